"""The upper bound: all domains at once against one after the other."""

from typing import Any

from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.experiment import Experiment, Finished
from protodepth.experiments.experiment import error_columns as _error_columns
from protodepth.experiments.paper import printed_errors as _printed_errors
from protodepth.experiments.planning import Planner, Training
from protodepth.experiments.scores import groups, network_name
from protodepth.metrics import METRICS
from protodepth.report.tables import Line, Table, Value


def plan(experiment: Experiment, plan: Planner) -> list[Cell]:
    return [
        plan.training(Training(sequence=sequence, backbone=backbone, method=method, seed=seed))
        for seed in plan.options.seeds
        for sequence in experiment.sequences
        for backbone in experiment.networks(plan.options)
        for method in plan.options.methods or ("pretrained", "joint", "protodepth")
    ]


def show(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    """Mean over the domains after the last stage."""
    there, lines = _printed_errors("joint", paper), []
    for g in groups(finished):
        numbers = there.get((g.method, g.setting), {})
        cells = [
            Value.of([float(g.matrix(s, m).values[-1].mean()) for s in g.documents], numbers.get(m)) for m in METRICS
        ]
        lines.append(Line((network_name(g.backbone), g.name), tuple(cells), g.backbone))
    text = "Mean over the domains at the end"
    return {
        "tables": [
            Table(name="mean", title=text, heads=("Network", "Method"), columns=_error_columns(""), lines=tuple(lines))
        ]
    }
