"""Hyper-parameters of every method, chosen on val frames with the same number of trials.
Test frames are never looked at here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w
import torch
from scipy.stats import qmc

from protodepth.errors import ConfigError, ProtoDepthError, UnknownNameError
from protodepth.experiments.bench import check_data, claim_folder, run_cells
from protodepth.experiments.cells import Cell, Store, ordered
from protodepth.experiments.planning import Options, Planner, Training, chosen_values, read_tuned
from protodepth.experiments.scores import Group
from protodepth.methods.base import methods
from protodepth.metrics import METRICS
from protodepth.progress import Reporter
from protodepth.storage import files

RATE = ("rate", 1e-4, 5e-3)
SPACES: Mapping[str, tuple[tuple[str, float, float], ...]] = {  # name, lowest, highest; all on a logarithmic scale
    "finetune": (RATE,),
    "ewc": (RATE, ("strength", 1e4, 1e8)),
    "lwf": (RATE, ("weight", 1e-2, 1e1)),
    "replay": (RATE,),
    "ancl": (RATE, ("strength", 1e4, 1e8), ("auxiliary_strength", 1e3, 1e7)),
    "cmp": (RATE,),
    "l2p": (("rate", 3e-4, 1e-1), ("key_weight", 5e-2, 2.0)),
    "joint": (RATE,),
    "protodepth": (("rate", 3e-3, 2e-1), ("separation", 3e-2, 1.0)),
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One point of a method's space: {} is the start as it is (the recipe, or what the options have tuned already)."""

    method: str
    number: int
    values: dict[str, Any]

    def tuned(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """The start's values (as in a tuned file) with this trial's in their places."""
        values = {**start.get("settings", {}), **{k: v for k, v in self.values.items() if k != "rate"}}
        rate = self.values.get("rate", start.get("rate"))
        tuned: dict[str, Any] = {} if rate is None else {"rate": rate}
        return tuned | ({"settings": values} if values else {})


def trials(method: str, count: int) -> list[Trial]:
    """The start's own values, then ``count - 1`` points that fill the space evenly (a Halton sequence),
    the same every time.

    >>> [t.number for t in trials("finetune", 3)], trials("ewc", 3)[0].values
    ([0, 1, 2], {})
    """
    if method not in SPACES:
        raise UnknownNameError("method with hyper-parameters", method, SPACES)
    if count < 1:
        raise ConfigError(f"--trials must be at least 1, got {count}")
    space = SPACES[method]
    points = qmc.Halton(len(space), scramble=False).random(count)[1:]  # the first is the corner
    series = [Trial(method, 0, {})]
    for n, point in enumerate(points, start=1):
        values = {
            name: float(f"{math.exp(math.log(low) + share * math.log(high / low)):.2g}")
            for (name, low, high), share in zip(space, point, strict=True)
        }
        series.append(Trial(method, n, values))
    return series


def plan_trial(options: Options, sequence: str, backbone: str, trial: Trial, domains: int = 2) -> Cell:
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
    domains: int = 2,
    reporter: Reporter | None = None,
    device: str | torch.device = "cpu",
) -> dict[TuneRow, dict[str, Any]]:
    """Trials (resumable cells) for the sequences, networks and methods of the options;
    writes ``tuned.toml`` and ``trials.json``.

    Both files keep what earlier commands chose for other sequences, networks and methods.
    Returns the chosen values by sequence, network and method.
    """
    rows = [(s, b, m) for s in options.sequences for b in options.backbones for m in options.methods]
    planned = {row: [(t, plan_trial(options, *row[:2], t, domains)) for t in trials(row[2], count)] for row in rows}
    store, every = Store(out, device), ordered(cell for trials_of_row in planned.values() for _, cell in trials_of_row)
    check_data(every, store)
    claim_folder(out)
    failed = run_cells(every, store, reporter or Reporter(quiet=True))
    chosen, record = {}, []
    for row, trials_of_row in planned.items():
        judged = [(score(store.result(cell), row[2]), trial) for trial, cell in trials_of_row if store.done(cell)]
        if not judged:
            raise ProtoDepthError(f"no trial of {row[2]} finished: {next(iter(failed.values()), 'unknown reason')}")
        best = min(judged, key=lambda pair: pair[0])[1]
        chosen[row] = best.tuned(chosen_values(options.tuned, *row))
        names = {**dict(zip(("sequence", "backbone", "method"), row, strict=True)), "domains": domains}
        record += [{**names, "trial": t.number, "values": t.values, "score": s, "chosen": t is best} for s, t in judged]
    files.write_bytes(out / "tuned.toml", tomli_w.dumps(_merged(out / "tuned.toml", chosen)).encode())
    earlier = files.read_json(out / "trials.json")["trials"] if (out / "trials.json").exists() else []
    others = [t for t in earlier if (t["sequence"], t["backbone"], t["method"]) not in planned]
    files.write_json(out / "trials.json", {"split": "val", "trials": others + record, "failed": failed})
    return chosen


def _merged(path: Path, chosen: Mapping[TuneRow, dict[str, Any]]) -> dict[str, Any]:
    """What a file holds already, with the new choices in their places."""
    known = read_tuned(path) if path.exists() else {}
    for (sequence, backbone, method), values in chosen.items():
        known.setdefault(sequence, {}).setdefault(backbone, {})[method] = values
    return known
