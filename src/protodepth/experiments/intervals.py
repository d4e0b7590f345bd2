"""Differences between two methods with a 95 % interval: a bootstrap over seeds and, within each seed, over scenes.

Legend   a_j^k error on D_j after D_k (rows k, columns j)   r resample   s seed   n scene

A resample draws the seeds with replacement and, for each of them and each domain, its test scenes with replacement: the
same ones for both methods and all rows k.  Seeds draw scenes, base and order anew, so they carry nearly all of the
spread; resampling scenes as well makes the interval a little wider than the seeds alone would.

The resamples give the standard error, Student's t its factor: with three to five seeds the percentiles of the resamples
themselves lie between the smallest and the largest seed and hold the true difference in three of four cases, not in
19 of 20.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from scipy import stats

from protodepth.experiments.scores import Group
from protodepth.types import Float

RESAMPLES = 2000
FEWEST_SEEDS = 3  # below, nothing is decided: an interval over one or two seeds says nothing of the next one
AT_THE_END = "end"
WHEN_LEARNED = "learned"  # the later domains, each when it was learned
Verdict = Literal["better", "worse", "undecided"]


@dataclass(frozen=True, slots=True)
class Interval:
    """Other minus ours, in the score's unit: above zero ours has the lower error."""

    mean: float
    low: float
    high: float
    seeds: int

    @property
    def verdict(self) -> Verdict:
        """
        >>> Interval(3.0, 1.0, 5.0, 5).verdict, Interval(3.0, -1.0, 5.0, 5).verdict, Interval(3.0, 1.0, 5.0, 2).verdict
        ('better', 'undecided', 'undecided')
        """
        if self.seeds < FEWEST_SEEDS or self.low <= 0 <= self.high:
            return "undecided"
        return "better" if self.low > 0 else "worse"

    def text(self, decimals: int = 1) -> str:
        """
        >>> Interval(3.04, -1.0, 5.0, 5).text()
        '+3.0 (-1.0 to +5.0)'
        """
        return f"{self.mean:+.{decimals}f} ({self.low:+.{decimals}f} to {self.high:+.{decimals}f})"


def score_of(a: Float[np.ndarray, "*r t t"], score: str) -> Float[np.ndarray, "*r"]:
    """Eq. 12-14 for many matrices at once; ``end``: the mean of the last row; ``learned``: of the later domains when
    each was learned; forgetting in per cent.

    >>> a = np.array([[10.0, 99.0], [15.0, 8.0]])
    >>> float(score_of(a, "performance")), float(score_of(a, "forgetting")), float(score_of(a, "end"))
    (11.0, 50.0, 11.5)
    """
    T = a.shape[-1]
    k, j = np.tril_indices(T)
    diagonal = np.diagonal(a, axis1=-2, axis2=-1)
    S, P = np.asarray(a[..., -1, :].mean(-1)), np.asarray(diagonal.mean(-1))
    if score == AT_THE_END:
        return S
    if score == WHEN_LEARNED:
        return np.asarray(diagonal[..., 1:].mean(-1))
    if score == "spto":
        return 2 * S * P / (S + P)
    if score == "performance":
        return np.asarray(a[..., k, j].mean(-1))
    below = k > j
    return np.asarray(100 * (a[..., k[below], j[below]] / diagonal[..., j[below]] - 1).mean(-1))


@cache
def _scene_weights(seed: int, domain: int, count: int) -> Float[np.ndarray, "r n"]:
    """How often each scene of a domain is taken in each resample; the same for all methods."""
    random = np.random.default_rng((20250611, seed, domain, count))
    return random.multinomial(count, np.full(count, 1 / count), size=RESAMPLES).astype(np.float32)


def resampled(group: Group, seed: int, metric: str) -> Float[np.ndarray, "r t t"]:
    """The matrix of a seed with its scenes taken anew; the matrix as it is where a result has no errors of scenes."""
    matrix = group.matrix(seed, metric).values
    out = np.broadcast_to(matrix, (RESAMPLES, *matrix.shape)).copy()
    rows = _scene_rows(group.documents[seed], group.setting, metric)
    for k, row in enumerate(rows):
        for j, errors in enumerate(row):
            known = np.isfinite(errors)
            weights = _scene_weights(seed, j, len(errors))[:, known]
            out[:, k, j] = (weights @ errors[known].astype(np.float32)) / np.maximum(weights.sum(1), 1)
    return out


def _scene_rows(document: dict[str, Any], setting: str, metric: str) -> list[list[Float[np.ndarray, "n"]]]:
    """Errors of every scene, ``[k][j]`` with j <= k; empty for results from before they were kept."""
    scenes = document.get("scenes") or {}
    rows = scenes.get(setting, scenes.get("incremental", {})).get(metric, [])
    return [[np.array([np.nan if e is None else e for e in errors], np.float64) for errors in row] for row in rows]


def differences(ours: Group, other: Group, metric: str, scores: Sequence[str]) -> dict[str, Interval]:
    """Other minus ours over the seeds that both have, by score; empty if they share none."""
    seeds = [seed for seed in ours.documents if seed in other.documents]
    if not seeds:
        return {}
    pairs = [[resampled(g, seed, metric) for g in (other, ours)] for seed in seeds]
    plain = [[g.matrix(seed, metric).values for g in (other, ours)] for seed in seeds]
    chosen = np.random.default_rng(len(seeds)).integers(len(seeds), size=(RESAMPLES, len(seeds)))
    intervals = {}
    for score in scores:
        each = np.stack([score_of(a, score) - score_of(b, score) for a, b in pairs], axis=1)  # r s
        means = np.take_along_axis(each, chosen, axis=1).mean(1)
        mean = float(np.mean([score_of(a, score) - score_of(b, score) for a, b in plain]))
        half = _factor(len(seeds)) * float(means.std())
        intervals[score] = Interval(mean, mean - half, mean + half, len(seeds))
    return intervals


def _factor(seeds: int) -> float:
    """Half of a 95 % interval in standard errors of the bootstrap, which are too small by sqrt((s - 1) / s).  One seed
    has no spread between seeds: its interval is of its scenes, and decides nothing.

    >>> round(_factor(3), 2), round(_factor(5), 2), round(_factor(1), 2)
    (5.27, 3.1, 1.96)
    """
    if seeds == 1:
        return float(stats.norm.ppf(0.975))
    return float(stats.t.ppf(0.975, seeds - 1)) * math.sqrt(seeds / (seeds - 1))


def of_seeds(values: Sequence[float]) -> Interval:
    """The 95 % interval of a mean over seeds, by Student's t; one seed has no spread and an interval without end.

    >>> of_seeds([1.0, 2.0, 3.0]).text()
    '+2.0 (-0.5 to +4.5)'
    """
    mean, count = float(np.mean(values)), len(values)
    half = math.inf if count < 2 else _factor(count) * float(np.std(values)) / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, count)


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a method is first among others in one score, as far as the intervals decide it."""

    verdict: str  # first, not first, undecided
    against: str  # the name of the rival that decides it
    interval: Interval  # against it


def standing(ours: Group, others: Sequence[Group], score: str, metric: str = "mae") -> Standing | None:
    """Where a method stands by intervals. First: better than all others. Not first: worse than one. Else undecided."""
    intervals = {g.name: differences(ours, g, metric, (score,)).get(score) for g in others}
    known = {name: interval for name, interval in intervals.items() if interval is not None}
    if not known:
        return None
    for verdict, meaning in (("worse", "not first"), ("undecided", "undecided"), ("better", "first")):
        nearest = [name for name, interval in known.items() if interval.verdict == verdict]
        if nearest:
            rival = min(nearest, key=lambda name: known[name].mean)
            return Standing(meaning, rival, known[rival])
    return None
