"""The first figure: the error on the first domain while later ones are learned."""

from typing import Any

from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.experiment import MAIN, Experiment, Finished
from protodepth.experiments.planning import Planner, Training
from protodepth.experiments.scores import network_name
from protodepth.metrics import METRICS
from protodepth.report.bench_page import Figure
from protodepth.report.results import METRIC_NAMES, merge
from protodepth.report.run_page import curve_chart


def plan(experiment: Experiment, plan: Planner) -> list[Cell]:
    return [
        plan.training(Training(sequence=sequence, backbone=backbone, method=method, seed=seed, curve=True))
        for seed in plan.options.seeds[:1]
        for sequence in experiment.sequences
        for backbone in experiment.networks(plan.options)
        for method in plan.options.methods or (*MAIN[1:], "protodepth")
    ]


def show(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    figures = []
    for backbone in dict.fromkeys(c.label["backbone"] for c, _ in finished):
        documents = {c.label["method"]: r for c, r in finished if c.label["backbone"] == backbone}
        both = merge(documents)
        first = both["domains"][0]
        for metric in METRICS[:2]:
            svg = curve_chart(both, first, metric)
            title = (
                f"{METRIC_NAMES[metric]} on {first} (val frames) while {' and '.join(both['domains'][1:])} are "
                f"learned, {network_name(backbone)}"
            )
            figures.append(Figure(f"{backbone}-{metric}", title, svg=svg))
    return {"figures": figures}
