"""The ablation tables: ProtoDepth without each of its parts."""

from typing import Any

from protodepth.experiments import scores
from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.experiment import Experiment, Finished
from protodepth.experiments.experiment import by_sequence as _by_sequence
from protodepth.experiments.experiment import diagonal as _diagonal
from protodepth.experiments.experiment import variants as _variants
from protodepth.experiments.paper import by_metric, table
from protodepth.experiments.planning import Planner, Training, layers_without
from protodepth.experiments.scores import network_name
from protodepth.metrics import METRICS, UNITS
from protodepth.report.results import METRIC_NAMES
from protodepth.report.tables import Column, Line, Table, Value
from protodepth.types import Modality


def ablations(backbone: str, preset: str) -> dict[str, dict[str, Any]]:
    """Changes to the prototypes by variant, in the order of the paper's two tables."""
    return {
        "no-global": {"use_global": False},
        "no-projection": {"use_projection": False},
        "no-stop-gradient": {"stop_gradient": False},
        "no-image": {"layers": list(layers_without(backbone, preset, Modality.IMAGE))},
        "no-depth": {"layers": list(layers_without(backbone, preset, Modality.DEPTH))},
        "no-bottleneck": {"layers": list(layers_without(backbone, preset, Modality.FUSED))},
        "none": {},
    }


def plan(experiment: Experiment, plan: Planner) -> list[Cell]:
    """The second domain alone, as in the paper: prototype sets of different domains do not touch each other."""
    rows = [
        Training(
            sequence=sequence,
            backbone=backbone,
            method="protodepth",
            seed=seed,
            variant=variant,
            changes=changes,
            chosen=(0, 1),
        )
        for seed in plan.options.seeds
        for sequence in experiment.sequences
        for backbone in experiment.networks(plan.options)
        for variant, changes in ablations(backbone, plan.options.preset).items()
    ]
    return [plan.training(row) for row in rows]


def show(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    there = {r["variant"]: r for r in table("ablations")["rows"]}
    names = {"indoor": "ScanNet", "outdoor": "Waymo"}
    tables = []
    for sequence, rows in _by_sequence(finished).items():
        domain, lines = rows[0][1]["domains"][1], []
        for (backbone, method, variant), documents in _variants(rows).items():
            numbers = by_metric(there[variant][names[sequence]]) if paper and sequence in names else {}
            cells = [Value.of(_diagonal(documents, method, m, 1), numbers.get(m)) for m in METRICS]
            lines.append(Line((network_name(backbone), there[variant]["component"]), tuple(cells), backbone))
        columns = tuple(Column(METRIC_NAMES[m], domain, UNITS[m], scores.DECIMALS[UNITS[m]]) for m in METRICS)
        title = f"Ablated component, {domain}"
        tables.append(
            Table(name=sequence, title=title, heads=("Network", "Without"), columns=columns, lines=tuple(lines))
        )
    return {"tables": tables}
