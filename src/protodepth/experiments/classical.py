"""The experiment ``classical``, the floor for every learned method: interpolation on the test frames of each domain."""

import time
from functools import partial
from typing import Any

from protodepth.data.arguments import open_domain
from protodepth.data.interpolation import completions
from protodepth.experiments import scores
from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.experiment import Experiment, Finished
from protodepth.experiments.experiment import by_sequence as _by_sequence
from protodepth.experiments.jobs import Job
from protodepth.experiments.planning import Planner
from protodepth.experiments.scores import network_name
from protodepth.experiments.trainings import base_folder
from protodepth.metrics import METRICS
from protodepth.model import ProtoDepth
from protodepth.report.results import METRIC_NAMES
from protodepth.report.tables import Column, Line, Table, Value
from protodepth.training.evaluate import evaluate, interpolated


def plan(experiment: Experiment, plan: Planner) -> list[Cell]:
    """Interpolation on the test frames of every domain, and the networks that the sequences start from on their own."""
    cells = []
    for sequence in experiment.sequences:
        for data in plan.domains(sequence):
            for name in completions.names():
                label = {"sequence": sequence, "data": data.partition("?")[0], "predictor": name}
                cells.append(Cell(kind="errors", label=label, inputs={"data": data, "predictor": name}))
        for backbone in experiment.networks(plan.options):
            base, data = plan.base(sequence, backbone), plan.domains(sequence)[0]
            label = {"sequence": sequence, "data": data.partition("?")[0], "predictor": backbone}
            inputs = {"data": data, "predictor": backbone}
            cells.append(Cell(kind="errors", label=label, inputs=inputs, needs=(base,)))
    return cells


def run(job: Job) -> dict[str, Any]:
    """Errors of a classical completion or of a base network on the test frames of one domain."""
    domain, name = open_domain(job.cell.inputs["data"]), job.cell.inputs["predictor"]
    if name in completions.names():
        predict = interpolated(name)
    else:
        model = ProtoDepth.from_pretrained(base_folder(job.store, job.cell.needed("base"))).to(job.store.device)
        predict = partial(model.predict_batch, domain="base")
    started = time.monotonic()
    judged = evaluate(predict, domain.test, domain.rules)
    return {
        "domain": domain.name,
        "errors": judged.mean,
        "frames": len(judged.images),
        "seconds": time.monotonic() - started,
    }


def show(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    tables, notes = [], []
    for sequence, rows in _by_sequence(finished).items():
        domains = list(dict.fromkeys(r["domain"] for _, r in rows))
        predictors = list(dict.fromkeys(c.label["predictor"] for c, _ in rows))
        errors = {(c.label["predictor"], r["domain"]): r["errors"] for c, r in rows}
        lines = []
        for name in predictors:
            network = name in scores.NETWORKS
            cells = tuple(
                Value((errors.get((name, d)) or dict.fromkeys(METRICS))[m]) for d in domains for m in ("mae", "rmse")
            )
            lines.append(Line((f"{network_name(name)}, base" if network else name,), cells))
            if network:
                floor = min(e["mae"] for (p, d), e in errors.items() if d == domains[0] and p not in scores.NETWORKS)
                own = errors[name, domains[0]]["mae"]
                verdict = "better than" if own < floor else "NOT better than"
                notes.append(
                    f"{sequence}: {network_name(name)}'s base is {verdict} the best interpolation on {domains[0]} "
                    f"({own:.1f} against {floor:.1f} mm)."
                )
        columns = tuple(Column(METRIC_NAMES[m], d, "mm", 1) for d in domains for m in ("mae", "rmse"))
        tables.append(
            Table(
                name=sequence,
                title=f"Test frames, {sequence}",
                heads=("Predictor",),
                columns=columns,
                lines=tuple(lines),
            )
        )
    return {"tables": tables, "findings": notes}
