"""A domain that nobody has seen."""

from typing import Any

from protodepth.data.arguments import open_domain
from protodepth.errors import ConfigError
from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.experiment import Experiment, Finished
from protodepth.experiments.experiment import error_columns as _error_columns
from protodepth.experiments.experiment import variants as _variants
from protodepth.experiments.jobs import Job
from protodepth.experiments.paper import OURS
from protodepth.experiments.paper import printed_errors as _printed_errors
from protodepth.experiments.planning import Planner, Training
from protodepth.experiments.scores import network_name
from protodepth.experiments.trainings import load_stage, open_of
from protodepth.metrics import METRICS
from protodepth.report.results import display_name
from protodepth.report.tables import Line, Table, Value
from protodepth.training import recipes
from protodepth.training.evaluate import evaluate


def plan(experiment: Experiment, plan: Planner) -> list[Cell]:
    chosen = plan.options.methods or ("pretrained", "joint", "ancl", "cmp", "protodepth")
    return [
        _unseen_cell(plan, Training(sequence=sequence, backbone=backbone, method=method, seed=seed))
        for seed in plan.options.seeds
        for sequence in experiment.sequences
        for backbone in experiment.networks(plan.options)
        for method in chosen
    ]


def _unseen_cell(plan: Planner, row: Training) -> Cell:
    training, data = plan.training(row), plan.unseen(row.sequence)
    scaffold = f"worlds:{recipes.SCAFFOLDS[recipes.SEQUENCES[row.sequence]().start]}"
    if row.backbone == "fusionnet" and data.partition("?")[0] == scaffold:
        raise ConfigError(f"FusionNet's ScaffNet has learned on {scaffold}, so it is not unseen: give a fourth --data")
    return Cell(kind="unseen", label=training.label, inputs={"data": data}, needs=(training,))


def run(job: Job) -> dict[str, Any]:
    """Errors of a finished training on a domain that it has never seen; nobody names a domain."""
    (training,) = job.cell.needs
    domains, unseen = open_of(training), open_domain(job.cell.inputs["data"])
    method = load_stage(job.store, training, domains, domains[-1].name)
    judged = evaluate(lambda batch: method.predict(batch, None), unseen.test, unseen.rules)
    chosen = {name: judged.chosen.count(name) for name in dict.fromkeys(judged.chosen)}
    return {
        "domain": unseen.name,
        "errors": judged.mean,
        "frames": len(judged.images),
        "chosen": chosen,
        "chooses": method.chooses,
    }


def show(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    there, lines, notes = _printed_errors("zero-shot", paper), [], []
    for (backbone, method, _), results in _variants(finished).items():
        chooses = results[0].get("chooses", method == OURS)  # older results do not say it
        setting = "agnostic" if chooses else "incremental"
        numbers = there.get((method, setting), {})
        cells = tuple(Value.of([r["errors"][m] for r in results], numbers.get(m)) for m in METRICS)
        lines.append(
            Line((network_name(backbone), display_name(method, setting)), cells, backbone, method != "pretrained")
        )
        if chooses:
            notes.append(
                f"{network_name(backbone)}: {display_name(method, setting)} used "
                + ", ".join(f"{n} for {c}" for n, c in results[0]["chosen"].items())
                + " frames."
            )
    domain = finished[0][1]["domain"] if finished else ""
    table_of_errors = Table(
        name="unseen",
        title=f"On {domain}, which nobody has seen",
        heads=("Network", "Method"),
        columns=_error_columns(domain),
        lines=tuple(lines),
    )
    return {"tables": [table_of_errors], "findings": notes}
