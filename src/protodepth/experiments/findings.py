"""What the numbers of a main table say, in sentences, for or against the paper; none says more than its interval."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from protodepth.experiments.intervals import (
    AT_THE_END,
    FEWEST_SEEDS,
    WHEN_LEARNED,
    Interval,
    differences,
    of_seeds,
    standing,
)
from protodepth.experiments.paper import FAMILY, agnostic_wins, gain, main_rows
from protodepth.experiments.scores import SCORE_NAMES, Group, network_name
from protodepth.metrics import METRICS
from protodepth.report.results import METRIC_NAMES, UNRANKED, display_name

CLAIMED = ("performance", "spto", AT_THE_END)


def findings(rows: Sequence[Group], sequence: str) -> list[str]:
    """What a main table says: all its sentences."""
    lines = [*_forgetting(rows)]
    for backbone in dict.fromkeys(g.backbone for g in rows):
        own = [g for g in rows if g.backbone == backbone]
        for ours in FAMILY:
            settings = ("incremental", "agnostic")
            lines += [_place(own, ours, setting, score) for setting in settings for score in CLAIMED]
            lines += [_choosing(own, ours), _plasticity(own, ours)]
    lines += _agnostic(rows, sequence)
    return [line for line in lines if line]


def _forgetting(rows: Sequence[Group]) -> list[str]:
    lines = []
    zero = [g for g in rows if g.method in FAMILY and g.setting == "incremental"]
    if zero:
        worst = max(abs(v) for g in zero for m in METRICS for v in g.values("forgetting", m))
        lines.append(
            f"ProtoDepth's forgetting with the domain given: at most {worst:.6f} % in any network, metric and seed."
        )
    choosing = {g.method for g in rows if g.setting == "agnostic"}
    baselines = sorted({display_name(g.method) for g in rows if g.method not in choosing})
    if baselines:
        lines.append(
            "Same numbers with and without the domain's name (one network, checked on a frame of each domain): "
            f"{', '.join(baselines)}."
        )
    gains = gain([g.row() for g in rows], "forgetting", "agnostic")
    if gains.cells:
        lines.append(
            f"ProtoDepth-A's forgetting is {gains.mean:.1f} % below the best baseline's on average (over "
            f"{len(gains.cells)} cells of network and metric){_halved(rows)}."
        )
    if gains.undefined:
        cells = ", ".join(f"{network_name(b)} {METRIC_NAMES[m]}" for b, m in gains.undefined)
        lines.append(
            f"The best baseline forgets nothing (at or below 0 %) in {cells}: these cells are not in that mean."
        )
    return lines


def _halved(rows: Sequence[Group]) -> str:
    """Whether the seeds that all rows have decide that it forgets less than half: the interval of that mean by seed."""
    shared = set.intersection(*(set(g.documents) for g in rows))
    by_seed = []
    for seed in sorted(shared):
        one = [replace(g, documents={seed: g.documents[seed]}).row() for g in rows]
        by_seed.append(gain(one, "forgetting", "agnostic").mean)
    known = [value for value in by_seed if np.isfinite(value)]
    if len(known) < FEWEST_SEEDS or len(known) < len(by_seed):
        return f", {len(known)} seed(s) in common: whether less than half of it is undecided"
    interval = of_seeds(known)
    verdict = "not less"
    if interval.high > 50:
        verdict = "less" if interval.low > 50 else "undecided whether less"
    return f", by seed {interval.text()}, {len(known)} seeds: {verdict} than half of it"


def _agnostic(rows: Sequence[Group], sequence: str) -> list[str]:
    own = [g.row() for g in rows]
    wins = [f"{network_name(b)} {SCORE_NAMES[s]} {METRIC_NAMES[m]} ({d:+.2f} %)" for b, s, m, d in agnostic_wins(own)]
    lines = ["ProtoDepth-A beats ProtoDepth in: " + (", ".join(wins) if wins else "no cell") + "."]
    if sequence in ("indoor", "outdoor"):
        paper = [
            f"{network_name(b)} {SCORE_NAMES[s]} {METRIC_NAMES[m]}" for b, s, m, _ in agnostic_wins(main_rows(sequence))
        ]
        lines.append("In the paper it does in: " + (", ".join(paper) if paper else "no cell") + ".")
    return lines


def _means(group: Group, score: str, metric: str = "mae") -> float:
    """Mean of a score over the seeds."""
    if score == AT_THE_END:
        return float(np.mean([group.matrix(seed, metric).values[-1].mean() for seed in group.documents]))
    return float(np.mean(group.values(score, metric)))


def _rivals(rows: Sequence[Group]) -> list[Group]:
    """The baselines: sequential methods that learn, without a domain's name where they choose one."""
    return [g for g in rows if g.method not in (*FAMILY, *UNRANKED) and g.setting == "incremental"]


def _place(rows: Sequence[Group], method: str, setting: str, score: str) -> str:
    """Where ProtoDepth stands among the methods of a network, and whether the seeds and scenes decide it."""
    ours, others = [g for g in rows if g.method == method and g.setting == setting], _rivals(rows)
    if not ours or not others:
        return ""
    place = standing(ours[0], others, score)
    if place is None:
        return ""
    rival = next(g for g in others if g.name == place.against)
    few = f", fewer than {FEWEST_SEEDS} seeds" if place.interval.seeds < FEWEST_SEEDS else ""
    numbers = f"{ours[0].name} {_means(ours[0], score):.1f} mm, {rival.name} {_means(rival, score):.1f} mm"
    return (
        f"{network_name(ours[0].backbone)}, {SCORE_NAMES[score]} (MAE): {numbers}, difference "
        f"{place.interval.text()}, {place.interval.seeds} seed(s){few}: {place.verdict}."
    )


def _share(ours: float, reference: float) -> float:
    """Per cent above the reference.

    >>> _share(11.0, 10.0)
    10.0
    """
    return 100 * (ours - reference) / reference if reference else float("nan")


def _above(ours: Group, reference: Group, score: str) -> tuple[str, Interval | None]:
    """How far ours is above a reference in a score of the MAE, in per cent of it, with the interval."""
    numbers = {g.name: _learned(g) if score == WHEN_LEARNED else _means(g, score) for g in (ours, reference)}
    text = f"{_share(numbers[ours.name], numbers[reference.name]):+.1f} %"
    interval = differences(ours, reference, "mae", (score,)).get(score)
    if interval is None or interval.seeds < FEWEST_SEEDS:
        return f"{text} ({0 if interval is None else interval.seeds} seed(s))", None
    low, high = (0.0 - 100 * bound / numbers[reference.name] for bound in (interval.high, interval.low))
    return f"{text} ({low:+.1f} to {high:+.1f})", interval


def _choosing(rows: Sequence[Group], method: str) -> str:
    """What not knowing the domain costs."""
    pair = {g.setting: g for g in rows if g.method == method}
    if len(pair) < 2:
        return ""
    above = [_above(pair["agnostic"], pair["incremental"], score)[0] for score in CLAIMED]
    texts = ", ".join(f"{SCORE_NAMES[s]} {text}" for s, text in zip(CLAIMED, above, strict=True))
    names = f"{pair['agnostic'].name} above {pair['incremental'].name}"
    return f"{network_name(rows[0].backbone)}, {names} (MAE): {texts}."


def _learned(group: Group, metric: str = "mae") -> float:
    """Mean error on the later domains when each was learned."""
    return float(np.mean([np.diag(group.matrix(seed, metric).values)[1:].mean() for seed in group.documents]))


def _plasticity(rows: Sequence[Group], method: str) -> str:
    """How much less a frozen network learns than a free one."""
    ours = [g for g in rows if g.method == method and g.setting == "incremental"]
    free = [g for g in rows if g.method == "finetune"]
    if not ours or not free:
        return ""
    above, interval = _above(ours[0], free[0], WHEN_LEARNED)
    name = f"{network_name(rows[0].backbone)}, later domains when learned (MAE): {ours[0].name}"
    return (
        f"{name} {_learned(ours[0]):.1f} mm, Finetuned {_learned(free[0]):.1f} mm, {above}: "
        f"{interval.verdict if interval else 'undecided'}."
    )
