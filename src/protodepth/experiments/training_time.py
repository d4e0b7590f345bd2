"""The table of training times: seconds of a step and minutes of an epoch by method."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from protodepth.data.frame import Domain
from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.experiment import MAIN, Experiment, Finished
from protodepth.experiments.experiment import by_sequence as _by_sequence
from protodepth.experiments.jobs import Job
from protodepth.experiments.paper import table
from protodepth.experiments.planning import Planner, Training
from protodepth.experiments.scores import network_name
from protodepth.experiments.trainings import load_start, sequence_recipe
from protodepth.methods.base import Method, methods
from protodepth.report.results import about_run, display_name
from protodepth.report.tables import Column, Line, Table, Value
from protodepth.training.fit import fit
from protodepth.training.sequence import build_method, open_domains


def plan(experiment: Experiment, plan: Planner) -> list[Cell]:
    """What can leave out what only choosing needs, twice: ProtoDepth without and with the descriptor's loss."""
    cells = []
    steps = max(5, min(plan.options.steps or TIMED_STEPS, TIMED_STEPS))
    for sequence in experiment.sequences:
        for backbone in experiment.networks(plan.options):
            for method in plan.options.methods or (*MAIN[1:], "protodepth"):
                less = methods.get(method).without_choosing
                variants: dict[str, dict[str, Any]] = {"": less, "A": {}} if less else {"": {}}
                for variant, changes in variants.items():
                    row = Training(
                        sequence=sequence, backbone=backbone, method=method, variant=variant, changes=changes
                    )
                    cells.append(_as_timing(plan.training(row), steps))
    return cells


def _as_timing(training: Cell, steps: int) -> Cell:
    return replace(training, kind="timing", inputs={**training.inputs, "timed_steps": steps})


TIMED_STEPS = 40  # of which the first fifth is not counted


def run(job: Job) -> dict[str, Any]:
    """Seconds of a training step (median and quartiles) on each later domain,
    and of what a method does between domains.
    """
    recipe, name = sequence_recipe(job.cell), job.cell.inputs["method"]
    domains = open_domains(recipe)
    method = build_method(name, load_start(job.store, job.cell, domains), recipe)
    steps = int(job.cell.inputs["timed_steps"])
    timed = {
        d.name: replace(recipe.schedule_for(d.name, name), steps=steps, epochs=None, save_every=steps + 1)
        for d in domains
    }
    stamps: list[float] = []

    def quiet_fit(other: Method, domain: Domain, /) -> None:
        fit(other, domain, timed[domain.name], seed=recipe.seed)

    rows = []
    method.prepare(domains)
    begun = time.monotonic()
    method.learned_before(domains[0], quiet_fit)
    first = time.monotonic() - begun
    method.end_domain(domains[0])
    for domain in domains[1:]:
        stamps.clear()
        begun = time.monotonic()
        method.begin_domain(domain, quiet_fit)
        before, first = first + time.monotonic() - begun, 0.0
        schedule = timed[domain.name]
        fit(method, domain, schedule, seed=recipe.seed, log=lambda step, record: stamps.append(time.monotonic()))
        begun = time.monotonic()
        method.end_domain(domain)
        quartiles = np.percentile(np.diff(stamps)[steps // 5 :], [25, 50, 75])
        epoch = len(domain.train) / schedule.batch_size
        rows.append(
            {
                "domain": domain.name,
                "step_seconds": quartiles,
                "epoch_minutes": quartiles[1] * epoch / 60,
                "between_seconds": before + time.monotonic() - begun,
            }
        )
    return {"domains": rows, "threads": torch.get_num_threads(), "about": about_run("", recipe.seed)}


def show(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    printed = {(r["method"], r["setting"]): r["minutes"] for r in table("training-time")["rows"]}
    columns_of = {"indoor": (0, 1), "outdoor": (2, 3)}
    tables = []
    for sequence, rows in _by_sequence(finished).items():
        domains, lines = [d["domain"] for d in rows[0][1]["domains"]], []
        fine = {c.label["backbone"]: r for c, r in rows if c.label["method"] == "finetune"}
        reference = printed["finetune", "incremental"]
        for cell, result in rows:
            method, setting = cell.label["method"], "agnostic" if cell.label["variant"] == "A" else "incremental"
            minutes = printed.get((method, setting)) if paper and sequence in columns_of else None
            cells: list[Value | str] = []
            for k, row in enumerate(result["domains"]):
                low, middle, high = (1000 * v for v in row["step_seconds"])
                base = fine.get(cell.label["backbone"])
                ratio = middle / (1000 * base["domains"][k]["step_seconds"][1]) if base else None
                n = columns_of.get(sequence, (0, 1))[k]
                cells += [
                    Value(middle, (high - low) / 1.349),
                    Value(row["epoch_minutes"], None, minutes[n] if minutes else None),
                ]
                cells += [Value(ratio, None, round(minutes[n] / reference[n], 2) if minutes else None)]
                cells += [Value(row["between_seconds"])]
            lines.append(
                Line(
                    (network_name(cell.label["backbone"]), display_name(method, setting)),
                    tuple(cells),
                    cell.label["backbone"],
                )
            )
        columns = tuple(
            Column(title, d, unit, places, ranked=title == "step")
            for d in domains
            for title, unit, places in (
                ("step", "ms", 1),
                ("epoch", "min", 2),
                ("times finetuning", "", 2),
                ("between", "s", 1),
            )
        )
        note = (
            "Step: median, ± interquartile range / 1.349. Between: Fisher, buffers, auxiliary network. The paper: "
            "minutes an epoch on one RTX 3090, of other data. Measure with nothing else running on the machine."
        )
        tables.append(
            Table(
                name=sequence,
                title=f"Training time, {sequence}",
                heads=("Network", "Method"),
                columns=columns,
                lines=tuple(lines),
                note=note,
            )
        )
    return {"tables": tables}
