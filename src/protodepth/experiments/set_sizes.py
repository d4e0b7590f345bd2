"""The sensitivity study: how many prototypes the image and depth layers have."""

from dataclasses import replace
from typing import Any

from protodepth.experiments import scores
from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.experiment import Experiment, Finished
from protodepth.experiments.experiment import diagonal as _diagonal
from protodepth.experiments.experiment import variants as _variants
from protodepth.experiments.paper import by_metric, table
from protodepth.experiments.planning import Planner, Training
from protodepth.experiments.scores import network_name
from protodepth.metrics import METRICS, UNITS
from protodepth.report.results import METRIC_NAMES, UNRANKED, display_name
from protodepth.report.tables import Column, Line, Table, Value

SET_SIZES = {
    "indoor": ((1, 1), (5, 5), (10, 5), (10, 10), (100, 100)),
    "outdoor": ((1, 1), (10, 10), (25, 10), (25, 25), (100, 100)),
}


def plan(experiment: Experiment, plan: Planner) -> list[Cell]:
    (sequence,) = experiment.sequences
    rows = []
    for seed in plan.options.seeds:
        for backbone in experiment.networks(plan.options):
            own = Training(sequence=sequence, backbone=backbone, method="protodepth", seed=seed)
            rows.append(replace(own, method="pretrained"))
            for n, m in SET_SIZES[sequence]:
                changes = {"image_size": n, "depth_size": m}
                rows.append(replace(own, variant=f"{n}/{m}", changes=changes))
    return [plan.training(row) for row in rows]


def show(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    printed = table(experiment.name)
    there = {(f"{r['image_size']}/{r['depth_size']}" if "image_size" in r else ""): r for r in printed["rows"]}
    lines, domains = [], finished[0][1]["domains"] if finished else []
    for (backbone, method, variant), documents in _variants(finished).items():
        row = there.get(variant, {}) if paper else {}
        percent = list(documents[0]["overhead"].values())[1:]
        extra = percent[0] * documents[0]["parameters"] / 100 if percent else 0.0
        cells = [
            Value(extra / 1e6, None, row.get("million_parameters")),
            Value(percent[0] if percent else 0.0, None, row.get("percent")),
        ]
        for k in range(1, len(domains)):
            numbers = by_metric(row[printed["domains"][k - 1]]) if row else {}
            cells += [Value.of(_diagonal(documents, method, m, k), numbers.get(m)) for m in METRICS]
        size = variant.split("/") if variant else ["–", "–"]
        head = (network_name(backbone), display_name(method), *size)
        lines.append(Line(head, tuple(cells), backbone, method not in UNRANKED))
    columns = [
        Column("a domain", "parameters", "M", 3, ranked=False),
        Column("a domain", "parameters", "%", 1, ranked=False),
    ]
    columns += [Column(METRIC_NAMES[m], d, UNITS[m], scores.DECIMALS[UNITS[m]]) for d in domains[1:] for m in METRICS]
    note = (
        "Parameters are exact counts of A, P and W; the paper's printed counts are those of half a W (see "
        "docs/ambiguities.md)."
    )
    heads = ("Network", "Method", "N image", "N depth")
    return {
        "tables": [
            Table(
                name="sizes",
                title="Prototype set sizes",
                heads=heads,
                columns=tuple(columns),
                lines=tuple(lines),
                note=note,
            )
        ]
    }
