"""The main tables (indoor, outdoor, mixed): scores over seeds beside the paper's, paired differences, gains, costs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.experiment import MAIN, Experiment, Finished
from protodepth.experiments.findings import findings
from protodepth.experiments.intervals import AT_THE_END, FEWEST_SEEDS, RESAMPLES
from protodepth.experiments.intervals import differences as intervals_of
from protodepth.experiments.paper import FAMILY, OURS, claims, gain, main_rows, score_rows
from protodepth.experiments.planning import Options, Planner, Training
from protodepth.experiments.scores import SCORE_NAMES, Group, decimals, groups, network_name, unit
from protodepth.metrics import METRICS
from protodepth.report.results import METRIC_NAMES, SCORES, UNRANKED, display_name
from protodepth.report.tables import Column, Line, Table, Value
from protodepth.training.published import SEQUENCES

MORE = ("ancl", "cmp")


def _methods_for(sequence: str, backbone: str, options: Options) -> tuple[str, ...]:
    """The rows of the paper's tables: ANCL and CMP with KBNet (and our own network), L2P with the transformer."""
    if options.methods:
        return options.methods
    if backbone == "uformer":
        return ("pretrained", "finetune", "l2p", "protodepth")
    more = MORE if backbone in ("lite", "kbnet") or sequence == "mixed" else ()
    return (*MAIN, *more, "protodepth")


def plan(experiment: Experiment, plan: Planner) -> list[Cell]:
    (sequence,) = experiment.sequences
    rows = [
        Training(sequence=sequence, backbone=backbone, method=method, seed=seed)
        for seed in plan.options.seeds  # every row once before any row twice
        for backbone in experiment.networks(plan.options)
        for method in _methods_for(sequence, backbone, plan.options)
    ]
    return [plan.training(row) for row in rows]


OTHER_DATA = (
    "The paper's numbers are for other data (NYUv2, ScanNet, VOID; KITTI, Waymo, VKITTI): "
    "signs and order can be compared, sizes cannot."
)
SAME_DATA = "The paper's numbers, in brackets, are for these very datasets."


def same_sets(finished: Finished, sequence: str) -> bool:
    """Whether all rows are runs of the paper's recipe on the paper's datasets, in its order."""
    wanted = list(SEQUENCES[f"paper-{sequence}"])
    runs = [(cell.inputs.get("recipe", {}), result) for cell, result in finished]
    return bool(runs) and all(r.get("name") == f"paper-{sequence}" and d["domains"] == wanted for r, d in runs)


def _shortest(finished: Finished) -> float:
    """The smallest share of the published epochs that a row had."""
    return min((float(cell.inputs.get("recipe", {}).get("scale", 1.0)) for cell, _ in finished), default=1.0)


CLOSE = 5.0  # per cent of the printed number


def _differences(rows: Sequence[Group], sequence: str) -> list[tuple[Group, list[float]]]:
    """100 (ours - printed) / printed for performance and SPTO in all metrics, of the rows that the paper prints."""
    printed = {(r.backbone, r.method, r.setting): r for r in score_rows(sequence)}
    compared = []
    for g in rows:
        there, ours = printed.get((g.backbone, g.method, g.setting)), g.row()
        if there is not None:
            pairs = [(ours.value(s, m), there.value(s, m)) for s in SCORES[1:] for m in METRICS]
            compared.append((g, [100 * (own - known) / known for own, known in pairs]))
    return compared


def beside_table(rows: Sequence[Group], sequence: str) -> Table:
    """How far our numbers are from the printed ones, on the same datasets."""
    lines = [
        Line(
            (network_name(g.backbone), g.name),
            tuple(f"{d:+.1f} %" + (" =" if abs(d) <= CLOSE else "") for d in far),
            g.backbone,
        )
        for g, far in _differences(rows, sequence)
    ]
    columns = [Column(METRIC_NAMES[m], SCORE_NAMES[s], "%", 1, ranked=False) for s in SCORES[1:] for m in METRICS]
    return Table(
        name="beside-the-paper",
        title="Beside the paper's numbers",
        heads=("Network", "Method"),
        columns=tuple(columns),
        lines=tuple(lines),
        note=f"100 (ours − printed) / printed; '=' marks numbers within {CLOSE:g} % of the printed one.",
    )


def _reproduced(rows: Sequence[Group], sequence: str, share: float) -> list[str]:
    """A sentence on how many printed numbers came out again."""
    every = [d for _, far in _differences(rows, sequence) for d in far]
    if share < 1:
        return [f"A rehearsal with {share:g} of the published epochs: its numbers say nothing about the paper's."]
    close = sum(abs(d) <= CLOSE for d in every)
    return [f"On the paper's own datasets {close} of {len(every)} printed numbers are met within {CLOSE:g} %."]


def score_table(rows: Sequence[Group], sequence: str, *, paper: bool, about_data: str = OTHER_DATA) -> Table:
    printed = {(r.backbone, r.method, r.setting): r for r in score_rows(sequence)} if paper else {}
    columns = [
        Column(METRIC_NAMES[m], SCORE_NAMES[s], unit(s, m), decimals(s, m), floor=0.0 if s == "forgetting" else None)
        for s in SCORES
        for m in METRICS
    ]
    lines = []
    for g in rows:
        there = printed.get((g.backbone, g.method, g.setting))
        cells = [Value.of(g.values(s, m), there.value(s, m) if there else None) for s in SCORES for m in METRICS]
        lines.append(Line((network_name(g.backbone), g.name), tuple(cells), g.backbone, g.method not in UNRANKED))
    note = (
        "Lower is better; bold lowest, underlined second lowest mean of the methods that learn one domain after the "
        "other. Whether a lead is decided says the table of paired differences. " + about_data
    )
    return Table(
        name="scores",
        title="Scores",
        heads=("Network", "Method"),
        columns=tuple(columns),
        lines=tuple(lines),
        note=note,
    )


def _stage_table(rows: Sequence[Group], domains: Sequence[str]) -> Table:
    """MAE on each domain when it was learned and after the last stage."""
    columns = [Column(when, d, "mm", 1) for d in domains for when in ("learned", "at the end")][:-1]
    lines = []
    for g in rows:
        matrices = [g.matrix(seed, "mae").values for seed in g.documents]
        cells = [Value.of([a[k, j] for a in matrices]) for j in range(len(domains)) for k in (j, len(domains) - 1)][:-1]
        lines.append(Line((network_name(g.backbone), g.name), tuple(cells), g.backbone, g.method not in UNRANKED))
    return Table(
        name="stages",
        title="Error on each domain (MAE)",
        heads=("Network", "Method"),
        columns=tuple(columns),
        lines=tuple(lines),
    )


PAIRED = {"mae": ("forgetting", "performance", "spto", AT_THE_END), "rmse": ("performance", "spto")}


def paired_table(rows: Sequence[Group], paired: Mapping[str, tuple[str, ...]] = PAIRED) -> Table:
    """Another method minus ProtoDepth (or ProtoDepth-own) over seeds and scenes: above zero, ours is better.
    ``paired``: metrics whose errors of scenes are known, and their scores.
    """
    lines, choosing = [], {g.method for g in rows if g.setting == "agnostic"}
    for ours in (g for g in rows if g.method in FAMILY):
        for other in rows:
            if other.backbone != ours.backbone or other.method in (ours.method, *UNRANKED):
                continue
            if other.method in choosing and other.setting != ours.setting:
                continue  # with the name against with it, not against without it
            intervals = [intervals_of(ours, other, metric, scores) for metric, scores in paired.items()]
            if not intervals[0]:
                continue
            cells = [
                f"{interval.text(decimals(score, metric))} {interval.verdict}"
                for metric, by_score in zip(paired, intervals, strict=True)
                for score, interval in by_score.items()
            ]
            head = (network_name(ours.backbone), f"{other.name} minus {ours.name}")
            lines.append(Line(head, (*cells, str(intervals[0]["spto"].seeds)), ours.backbone))
    columns = [
        Column(METRIC_NAMES[m], SCORE_NAMES[s], unit(s, m), decimals(s, m), ranked=False)
        for m, scores in paired.items()
        for s in scores
    ]
    return Table(
        name="paired",
        title="Paired differences",
        heads=("Network", "Difference"),
        columns=(*columns, Column("seeds", ranked=False, decimals=0)),
        lines=tuple(lines),
        note="Above zero: what is subtracted has the lower error. Mean over seeds and, in brackets, the 95 % interval "
        f"of a bootstrap over seeds and scenes ({RESAMPLES} resamples, Student's t for few seeds). An interval that "
        f"holds zero, or fewer than {FEWEST_SEEDS} seeds: undecided.",
    )


def gain_table(rows: Sequence[Group], sequence: str) -> Table:
    """As the paper: for each network and metric the gain over the best baseline there, then the mean."""
    own, has_main = [g.row() for g in rows], sequence in ("indoor", "outdoor")
    lines = []
    for setting in ("incremental", "agnostic"):
        claimed = claims(sequence, setting)
        cells: list[Value | str] = []
        for score in SCORES:
            printed = gain(main_rows(sequence), score, setting).mean if has_main else None
            cells.append(Value(_finite(gain(own, score, setting).mean), None, printed and round(printed, 2)))
        text = ", ".join(f"{SCORE_NAMES[s]} {claimed[s]:g} %" for s in SCORES if s in claimed)
        lines.append(Line((display_name(OURS, setting),), (*cells, text or "–")))
    return Table(
        name="gain",
        title="Gain over the best baseline",
        heads=("Method",),
        columns=(
            *(Column(SCORE_NAMES[s], "", "%", 2, ranked=False) for s in SCORES),
            Column("the paper's text", ranked=False),
        ),
        lines=tuple(lines),
        note="Mean over networks and metrics of 100 (best baseline − ours) / best baseline, "
        "the best baseline of each cell. In brackets: computed from the paper's printed tables (its text exchanges two "
        "of the indoor numbers).",
    )


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def cost_table(rows: Sequence[Group]) -> Table:
    lines = []
    for g in rows:
        if g.setting == "agnostic":
            continue  # the same training
        documents = list(g.documents.values())
        seconds = [sum(d["training_seconds"][g.method]) for d in documents if not d["about"].get("resumed")]
        extra = documents[0]["extra_parameters"][g.method]
        accuracy = [d["selection_accuracy"] for d in documents if d.get("selection_accuracy") is not None]
        cells = (
            Value.of(seconds),
            Value(documents[0]["parameters"] / 1e6),
            Value(extra / 1e6),
            Value(100 * extra / documents[0]["parameters"]),
            Value(documents[0]["extra_bytes"][g.method] / 1e6),
            Value.of([100 * a for a in accuracy]),
        )
        lines.append(Line((network_name(g.backbone), display_name(g.method)), cells, g.backbone))
    columns = (
        Column("training", "", "s", 1, ranked=False),
        Column("network", "parameters", "M", 3, ranked=False),
        Column("extra", "parameters", "M", 3, ranked=False),
        Column("extra", "parameters", "% of network", 1, ranked=False),
        Column("extra memory", "", "MB", 2, ranked=False),
        Column("domain chosen rightly", "", "%", 1, ranked=False),
    )
    return Table(
        name="costs",
        title="Costs",
        heads=("Network", "Method"),
        columns=columns,
        lines=tuple(lines),
        note="Training: all later domains, with the method's own extra work; "
        "seeds that were interrupted and resumed are left out. Extra: what is kept between domains beyond the network, "
        "for all later domains together.",
    )


def show(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    rows, (sequence,) = groups(finished), experiment.sequences
    if not rows:
        return {}
    domains = next(iter(rows[0].documents.values()))["domains"]
    same = same_sets(finished, sequence)
    return {
        "tables": [*error_tables(rows, sequence, domains, paper=paper, same=same), cost_table(rows)],
        "findings": [
            *(_reproduced(rows, sequence, _shortest(finished)) if same else []),
            *findings(rows, sequence),
        ],
    }


def error_tables(
    rows: Sequence[Group],
    sequence: str,
    domains: Sequence[str],
    *,
    paper: bool = True,
    same: bool = False,
    paired: Mapping[str, tuple[str, ...]] = PAIRED,
) -> list[Table]:
    """Everything that a main table says of errors: scores, gains, domains, differences; no costs.
    ``same``: the data are the paper's own.
    """
    return [
        score_table(rows, sequence, paper=paper, about_data=SAME_DATA if same else OTHER_DATA),
        *([beside_table(rows, sequence)] if same else []),
        gain_table(rows, sequence),
        _stage_table(rows, domains),
        paired_table(rows, paired),
    ]
