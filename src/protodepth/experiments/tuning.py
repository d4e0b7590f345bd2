"""Hyper-parameters of every method, chosen on val frames by one rule: the same number of distinct trials, edges moved
until the best is inside (trials.py), the lowest ``score``.  Test frames are never looked at here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w
import torch

from protodepth.errors import ConfigError, ProtoDepthError
from protodepth.experiments.bench import check_data, run_cells, sharing_bench
from protodepth.experiments.cells import Cell, Store, ordered
from protodepth.experiments.planning import Options, Planner, Training, chosen_values, read_tuned
from protodepth.experiments.scores import Group
from protodepth.experiments.trials import JudgedTrial, Trial, best_of, edge_of, following, space_of, trials
from protodepth.methods.base import methods
from protodepth.metrics import METRICS
from protodepth.progress import Reporter
from protodepth.prototypes import PrototypeConfig
from protodepth.storage import files


def plan_trial(options: Options, sequence: str, backbone: str, trial: Trial, domains: int = 3) -> Cell:
    """One trial on the first ``domains`` of a sequence.

    With two, the third domain is new to the chosen values too.
    But what must tell domains apart (ProtoDepth's separation) shows only with all of them.
    """
    if domains not in (2, 3):
        raise ConfigError(f"--domains must be 2 or 3 (a sequence has three, the first is the base's), got {domains}")
    start = chosen_values(options.tuned, sequence, backbone, trial.method)
    tuned = {sequence: {backbone: {trial.method: trial.tuned(start)}}}
    row = Training(
        sequence=sequence,
        backbone=backbone,
        method=trial.method,
        seed=options.seeds[0],
        variant=f"trial {trial.number}",
        chosen=tuple(range(domains)),
        split="val",
    )
    return Planner(replace(options, tuned=tuned)).training(row)


def score(document: dict[str, Any], method: str) -> float:
    """Geometric mean of Average Performance over the four metrics (and, if the method chooses, over both settings):
    lower is better.

    No metric outweighs another by its unit.
    """
    settings = ("incremental", "agnostic") if methods.get(method).chooses else ("incremental",)
    logs = []
    for setting in settings:
        group = Group("", method, setting, {0: document})
        logs += [math.log(group.values("performance", m)[0]) for m in METRICS]
    return math.exp(sum(logs) / len(logs))


TuneRow = tuple[str, str, str]  # sequence, backbone, method


def tune(
    count: int,
    out: Path,
    options: Options,
    *,
    domains: int = 3,
    reporter: Reporter | None = None,
    device: str | torch.device = "cpu",
) -> dict[TuneRow, dict[str, Any]]:
    """Trials (resumable cells) for the sequences, networks and methods of the options;
    writes ``tuned.toml`` and ``trials.json``.

    Both files keep what earlier commands chose for other sequences, networks and methods.
    Returns the chosen values by sequence, network and method.
    """
    rows = [(s, b, m) for s in options.sequences for b in options.backbones for m in options.methods]
    free = options.steps is None  # else their number is given, and the same for all
    begun = {row: trials(row[2], max(1, (count + 1) // 2), steps=free) for row in rows}
    store, reporter = Store(out, device), reporter or Reporter(quiet=True)
    first = [plan_trial(options, *row[:2], t, domains) for row, several in begun.items() for t in several]
    check_data(ordered(first), store)
    with sharing_bench(out):
        chosen, record = {}, []
        failed: dict[str, str] = {}
        for row, several in begun.items():
            judged, lost = _judge_row(row, several, count, options, domains, store, reporter)
            failed |= lost
            best = best_of(judged)
            if not math.isfinite(best[2]):
                raise ProtoDepthError(f"no trial of {row[2]} finished: {next(iter(lost.values()), 'unknown reason')}")
            chosen[row] = best[0].tuned(chosen_values(options.tuned, *row))
            record += _trial_rows(row, domains, judged)
        files.write_bytes(out / "tuned.toml", tomli_w.dumps(_merged(out / "tuned.toml", chosen)).encode())
        earlier = files.read_json(out / "trials.json")["trials"] if (out / "trials.json").exists() else []
        others = [t for t in earlier if (t["sequence"], t["backbone"], t["method"]) not in begun]
        files.write_json(out / "trials.json", {"split": "val", "trials": others + record, "failed": failed})
    return chosen


def _judge_row(
    row: TuneRow, begun: Sequence[Trial], count: int, options: Options, domains: int, store: Store, reporter: Reporter
) -> tuple[list[JudgedTrial], dict[str, str]]:
    """All trials of a method with a network on a sequence; one that failed has an infinite error."""
    judged: list[JudgedTrial] = []
    lost: dict[str, str] = {}
    waiting = list(begun)
    while waiting:
        cells = [plan_trial(options, *row[:2], trial, domains) for trial in waiting]
        lost |= run_cells(ordered(cells), store, reporter)
        for trial, cell in zip(waiting, cells, strict=True):
            error = score(store.result(cell), row[2]) if store.done(cell) else math.inf
            judged.append((trial, values_of(cell, row[2], steps=options.steps is None), error))
        more = following(judged, count)
        waiting = [] if more is None else [more]
    return judged, lost


def values_of(cell: Cell, method: str, *, steps: bool = True) -> dict[str, Any]:
    """Every value of the method's space that a training has, also those of the recipe."""
    recipe, values = cell.inputs["recipe"], {}
    own = recipe.get("settings", {}).get(method, {})
    prototypes = recipe.get("prototypes", {})
    for part in space_of(method, steps=steps):
        if part.name == "rate":
            values["rate"] = recipe.get("rates", {}).get(method, recipe["schedule"]["rate"])
        elif part.name == "steps":
            values["steps"] = recipe["schedule"]["steps"]
        elif part.name == "sizes":
            values["sizes"] = (prototypes["image_size"], prototypes["depth_size"])
        elif methods.get(method).Config is PrototypeConfig:
            values[part.name] = prototypes[part.name]
        else:
            values[part.name] = own.get(part.name, getattr(methods.get(method).Config(), part.name))
    return values


def _trial_rows(row: TuneRow, domains: int, judged: Sequence[JudgedTrial]) -> list[dict[str, Any]]:
    """For trials.json: every trial with all its values, and whether the best is inside what was tried."""
    names = {**dict(zip(("sequence", "backbone", "method"), row, strict=True)), "domains": domains}
    best, edge = best_of(judged), edge_of(judged)
    return [
        {
            **names,
            "trial": trial.number,
            "values": values,
            "score": error if math.isfinite(error) else None,
            "chosen": trial is best[0],
            **({"edge": edge[0].name if edge else None} if trial is best[0] else {}),
        }
        for trial, values, error in judged
    ]


def _merged(path: Path, chosen: Mapping[TuneRow, dict[str, Any]]) -> dict[str, Any]:
    """What a file holds already, with the new choices in their places."""
    known = read_tuned(path) if path.exists() else {}
    for (sequence, backbone, method), values in chosen.items():
        known.setdefault(sequence, {}).setdefault(backbone, {})[method] = values
    return known
