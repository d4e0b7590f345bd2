"""A domain that nobody has seen."""

from functools import partial
from typing import Any, get_args

from protodepth.data.arguments import open_domain
from protodepth.data.frame import Domain
from protodepth.errors import ConfigError
from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.experiment import Experiment, Finished
from protodepth.experiments.experiment import error_columns as _error_columns
from protodepth.experiments.experiment import variants as _variants
from protodepth.experiments.jobs import Job
from protodepth.experiments.paper import OURS
from protodepth.experiments.paper import printed_errors as _printed_errors
from protodepth.experiments.planning import Planner, Training
from protodepth.experiments.reprojection import by_reprojection, candidates
from protodepth.experiments.scores import network_name
from protodepth.experiments.trainings import load_stage, open_of
from protodepth.methods.base import Method
from protodepth.metrics import METRICS
from protodepth.model import ProtoDepth
from protodepth.report.results import display_name
from protodepth.report.tables import Line, Table, Value
from protodepth.selection import Rule, Selection
from protodepth.training import recipes
from protodepth.training.evaluate import Evaluation, evaluate
from protodepth.types import Batch, BatchPrediction, PredictBatch


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
    training, data = plan.training(row), plan.unseen(row.sequence, row.seed)
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
    return {
        "domain": unseen.name,
        "errors": judged.mean,
        "frames": len(judged.images),
        "chosen": _counts(judged),
        "chooses": method.chooses,
        "rules": _rules(method, unseen) if method.chooses else {},
    }


def _counts(judged: Evaluation) -> dict[str, int]:
    return {name: judged.chosen.count(name) for name in dict.fromkeys(judged.chosen)}


def _rules(method: Method, unseen: Domain) -> dict[str, dict[str, Any]]:
    """Other ways to choose, and every set on its own: what choosing better could give."""
    model = method.model
    ways: dict[str, PredictBatch] = {
        f"chosen by {way}": partial(_predict_by, model, Rule(selection=way))
        for way in get_args(Selection)
        if way != "auto"
    }
    if model.statistics.missing(model.domains):
        del ways["chosen by gaussian"]
    if len(unseen.test) and unseen.test[0].neighbours:
        ways["chosen by reprojection"] = by_reprojection(model, method.objective)
    ways |= {f"set of {name}": partial(model.predict_batch, domain=name) for name in candidates(model)}
    measured = {name: evaluate(way, unseen.test, unseen.rules) for name, way in ways.items()}
    return {name: {"errors": judged.mean, "chosen": _counts(judged)} for name, judged in measured.items()}


def _predict_by(model: ProtoDepth, rule: Rule, batch: Batch) -> BatchPrediction:
    """The model's own choice, by another rule."""
    before, model.rule = model.rule, rule
    try:
        return model.predict_batch(batch, None)
    finally:
        model.rule = before


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
    return {"tables": [table_of_errors, _rule_table(finished, domain)], "findings": notes}


def _rule_table(finished: Finished, domain: str) -> Table:
    """ProtoDepth's sets on an unseen domain by the way they are chosen; a single set is no way to choose."""
    lines = []
    for (backbone, method, _), results in _variants(finished).items():
        for way in results[0].get("rules", {}):
            cells = tuple(Value.of([r["rules"][way]["errors"][m] for r in results]) for m in METRICS)
            heads = (network_name(backbone), display_name(method, "agnostic"), way)
            lines.append(Line(heads, cells, f"{backbone} {method}", way.startswith("chosen")))
    return Table(
        name="rules",
        title=f"Ways to choose a set on {domain}",
        heads=("Network", "Method", "Set"),
        columns=_error_columns(domain),
        lines=tuple(lines),
        note="By reprojection: of each frame the set whose depth explains its points and its neighbours best.",
    )
