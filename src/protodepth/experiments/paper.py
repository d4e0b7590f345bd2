"""The paper's printed tables as data (``paper.toml``),
and the gain over the best baseline as the paper computes it.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from protodepth.errors import UnknownNameError
from protodepth.metrics import METRICS
from protodepth.report.results import SCORES, UNRANKED

OURS = "protodepth"
FAMILY = (OURS, "protodepth-own")  # with what is not the paper's: none of them is a baseline


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One printed row of a main table: forgetting in per cent, performance and SPTO in mm and 1/km."""

    backbone: str
    method: str
    setting: str
    scores: Mapping[str, Mapping[str, float]]  # score -> metric -> value

    def value(self, score: str, metric: str) -> float:
        return self.scores[score][metric]


@dataclass(frozen=True, slots=True)
class Gain:
    """Improvement over the best baseline, in per cent, by (backbone, metric).

    ``undefined``: cells whose best baseline is at or below zero, where a relative gain means nothing.
    """

    cells: Mapping[tuple[str, str], float]
    undefined: tuple[tuple[str, str], ...] = ()

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.cells.values()))) if self.cells else float("nan")


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads((resources.files("protodepth.experiments") / "paper.toml").read_text(encoding="utf-8"))


def names() -> tuple[str, ...]:
    return tuple(name for name, value in _document().items() if isinstance(value, dict))


def table(name: str) -> dict[str, Any]:
    """One table of the paper as it is printed: its label, caption and rows.

    >>> table("training-time")["rows"][0]["minutes"]
    [165.8, 35.4, 84.7, 17.3]
    """
    if name not in names():
        raise UnknownNameError("table of the paper", name, names())
    return _document()[name]


def claims(sequence: str, setting: str) -> dict[str, float]:
    """What the text says of the main tables: mean gain over the best baseline in per cent, by score."""
    matching = [c for c in _document()["claims"] if (c["sequence"], c["setting"]) == (sequence, setting)]
    return {s: float(matching[0][s]) for s in SCORES if matching and s in matching[0]}


def by_metric(values: Sequence[float]) -> dict[str, float]:
    """Printed numbers in the order of the tables, by metric; the ablation table has only the first two."""
    return dict(zip(METRICS, values, strict=False))


def score_rows(sequence: str) -> list[ScoreRow]:
    """The printed rows of a main table and of the additional one for ``indoor``, ``outdoor`` or ``mixed``.

    ProtoDepth-A of KBNet stands in both, the second time with two decimals: only the first is given.

    >>> row = next(r for r in score_rows("indoor") if r.backbone == "kbnet" and r.setting == "agnostic")
    >>> row.value("spto", "mae")
    45.264
    """
    main = _document().get(sequence, {}).get("rows", [])
    more = [r for r in _document()["additional"]["rows"] if r["sequence"] == sequence]
    rows: dict[tuple[str, str, str], ScoreRow] = {}
    for row in (*main, *more):
        key = (row["backbone"], row["method"], row["setting"])
        rows.setdefault(key, ScoreRow(*key, {s: by_metric(row[s]) for s in SCORES}))
    return list(rows.values())


def main_rows(sequence: str) -> list[ScoreRow]:
    """Only the printed rows of the main table: what the text's means are taken over."""
    known = {(r["backbone"], r["method"], r["setting"]) for r in table(sequence)["rows"]}
    return [r for r in score_rows(sequence) if (r.backbone, r.method, r.setting) in known]


def gain(rows: Iterable[ScoreRow], score: str, setting: str, *, baselines: Sequence[str] | None = None) -> Gain:
    r"""For each network and metric :math:`100 (b - o) / b` with b the lowest value of the baselines and o ProtoDepth's.

    The baseline may be another one in each cell, as in the paper.  ``baselines`` None:
    all sequential methods that learn.

    >>> round(gain(main_rows("indoor"), "forgetting", "agnostic").mean, 2)
    52.22
    """
    rows = list(rows)
    cells: dict[tuple[str, str], float] = {}
    undefined: list[tuple[str, str]] = []
    for backbone in dict.fromkeys(r.backbone for r in rows):
        own = [r for r in rows if r.backbone == backbone]
        ours = [r for r in own if r.method == OURS and r.setting == setting]
        others = [r for r in own if (r.method in baselines if baselines else r.method not in (*UNRANKED, *FAMILY))]
        choosing = {r.method for r in own if r.setting == "agnostic"}  # the others have one row for both settings
        others = [r for r in others if r.setting == setting or r.method not in choosing]
        for metric in METRICS if ours and others else ():
            best = min(r.value(score, metric) for r in others)
            if best <= 0:
                undefined.append((backbone, metric))
            else:
                cells[backbone, metric] = 100 * (best - ours[0].value(score, metric)) / best
    return Gain(cells, tuple(undefined))


def agnostic_wins(rows: Iterable[ScoreRow]) -> list[tuple[str, str, str, float]]:
    """Printed values where ProtoDepth-A is below ProtoDepth: (backbone, score, metric, difference in per cent).

    Forgetting is left out: ProtoDepth's is zero, so nothing can be relative to it.

    >>> agnostic_wins(main_rows("outdoor"))
    []
    """
    rows = [r for r in rows if r.method == OURS]
    wins = []
    for backbone in dict.fromkeys(r.backbone for r in rows):
        pair = {r.setting: r for r in rows if r.backbone == backbone}
        for score in SCORES[1:] if len(pair) == 2 else ():
            for metric in METRICS:
                a, b = pair["agnostic"].value(score, metric), pair["incremental"].value(score, metric)
                if a < b:
                    wins.append((backbone, score, metric, 100 * (a - b) / b))
    return wins


def printed_errors(name: str, paper: bool) -> dict[tuple[str, str], dict[str, float]]:
    """The errors that the paper prints in a table, by (method, setting); none where they are not asked for."""
    return {(r["method"], r["setting"]): by_metric(r["errors"]) for r in table(name)["rows"]} if paper else {}
