"""What a run found, as one JSON document: scores, matrices, curves, costs, how it was made; names and numbers."""

import math
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from protodepth._version import processor, versions
from protodepth.metrics import METRICS, UNITS, Scores

if TYPE_CHECKING:
    from protodepth.training.sequence import SequenceResult

Document = dict[str, Any]
Row = dict[str, Any]
SCORES = ("forgetting", "performance", "spto")
SETTINGS = ("incremental", "agnostic")
METRIC_NAMES = {"mae": "MAE", "rmse": "RMSE", "imae": "iMAE", "irmse": "iRMSE"}
METHOD_NAMES = {
    "pretrained": "Pretrained",
    "finetune": "Finetuned",
    "ewc": "EWC",
    "lwf": "LwF",
    "replay": "Replay",
    "ancl": "ANCL",
    "cmp": "CMP",
    "l2p": "L2P",
    "joint": "Joint",
    "protodepth": "ProtoDepth",
    "protodepth-own": "ProtoDepth-own",
}
UNRANKED = ("pretrained", "joint")  # learns nothing; sees every domain at once


def display_name(method: str, setting: str = "incremental", run: str = "") -> str:
    """The name of a method in a setting as reports and tables write it.

    >>> display_name("protodepth", "agnostic"), display_name("finetune"), display_name("mine", "agnostic", "run2")
    ('ProtoDepth-A', 'Finetuned', 'mine-A (run2)')
    """
    name = METHOD_NAMES.get(method, method) + ("-A" if setting == "agnostic" else "")
    return f"{name} ({run})" if run else name


def row_name(row: Mapping[str, Any]) -> str:
    """The name of a row of results: its method, setting and run."""
    return display_name(row["method"], row["setting"], row.get("run", ""))


def row_key(row: Mapping[str, Any]) -> str:
    """The key of a row's method in ``matrix``, ``curves`` and the other tables by method."""
    return f"{row['method']} ({row['run']})" if row.get("run") else str(row["method"])


def results_document(results: Sequence["SequenceResult"], *, seconds: float, about: Mapping[str, Any]) -> Document:
    """What a run found, as the content of ``results.json``.

    ``rows``: a method whose numbers are the same in both settings has one row, ``incremental``; ProtoDepth has two.
    ``matrix[method][setting][metric][k][j]``: error on D_j after D_k.  A number that does not exist is ``null``.
    """
    accuracies = [r.selection_accuracy for r in results if r.selection_accuracy is not None]
    document = {
        "rows": [row for result in results for row in _result_rows(result)],
        "matrix": {
            r.method: {"incremental": r.incremental.to_json(), "agnostic": r.agnostic.to_json()} for r in results
        },
        "selection_accuracy": accuracies[-1] if accuracies else None,
        "seconds": seconds,
        "domains": list(results[0].domains) if results else [],
        "confusion": {r.method: r.confusion.tolist() for r in results if r.confusion is not None},
        "chosen_names": {r.method: list(r.chosen_names) for r in results if r.confusion is not None},
        "curves": {r.method: r.curves for r in results},
        "training_seconds": {r.method: list(r.seconds) for r in results},
        "skipped_steps": {r.method: r.skipped for r in results},
        "bad_frames": {r.method: r.record["bad_frames"] for r in results if r.record.get("bad_frames")},
        "extra_parameters": {r.method: r.extra_parameters for r in results},
        "extra_bytes": {r.method: r.extra_bytes for r in results},
        "about": dict(about),
    }
    return plain(document)


def _result_rows(result: "SequenceResult") -> list[Row]:
    settings = SETTINGS if _has_two_settings(result) else SETTINGS[:1]
    scores: dict[str, Scores] = {"incremental": result.incremental, "agnostic": result.agnostic}
    return [{"method": result.method, "setting": s, **scores[s].summary()} for s in settings]


def _has_two_settings(result: "SequenceResult") -> bool:
    pairs = ((result.incremental.matrices[m].values, result.agnostic.matrices[m].values) for m in METRICS)
    return result.confusion is not None or not all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def plain(value: Any) -> Any:
    """Only what JSON has: NaN and infinity become None, NumPy numbers and arrays become Python's."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)


def about_run(command: str, seed: int, **more: Any) -> dict[str, Any]:
    """What a reader needs to repeat the run: command, seed, versions, machine (no host or user name)."""
    packages = versions("torch", "numpy")
    machine = {
        "processor": processor(),
        "cores": os.cpu_count() or 0,
        "system": f"{platform.system()} {platform.release()}",
    }
    return {"command": command, "seed": seed, "python": platform.python_version(), **packages, **machine, **more}


def left_out(document: Document, most: int = 20) -> list[str]:
    """Sentences on what a run did without: steps whose loss or gradient was no number, frames that cannot be read.

    >>> left_out({"skipped_steps": {"ewc": 2}, "bad_frames": {"ewc": {"rec train": {"frame 4": "4.png is truncated"}}}})
    ['EWC: 2 steps skipped, not finite', 'EWC, rec train, frame 4 left out: 4.png is truncated']
    """
    lines = [
        f"{display_name(k)}: {n} steps skipped, not finite" for k, n in document.get("skipped_steps", {}).items() if n
    ]
    for method, parts in document.get("bad_frames", {}).items():
        for part, reasons in parts.items():
            where = f"{display_name(method)}, {part}"
            lines += [f"{where}, {frame} left out: {reason}" for frame, reason in list(reasons.items())[:most]]
            lines += [f"{where}: {len(reasons) - most} more frames left out"] if len(reasons) > most else []
    return lines


def written(score: str, metric: str, value: float | None) -> str:
    """A score as the tables print it: forgetting in per cent with three decimals, mm with one, 1/km with two.

    >>> written("forgetting", "mae", 0.0), written("spto", "mae", 44.092), written("spto", "imae", None)
    ('0.000', '44.1', '–')
    """
    if value is None:
        return "–"
    if score == "forgetting":
        return f"{100 * value:.3f}"
    return f"{value:.1f}" if UNITS[metric] == "mm" else f"{value:.2f}"


def marks(rows: Sequence[Row], score: str, metric: str) -> list[str]:
    """``"best"``, ``"second"`` or ``""`` for each row:
    the lowest and second lowest value of the methods that learn in sequence.  Forgetting below 0 % is as good as 0 %:
    a difference of chance is no best.
    """
    values = [None if row["method"] in UNRANKED else row[score][metric] for row in rows]
    if score == "forgetting":
        values = [None if v is None else max(0.0, v) for v in values]
    order = sorted({v for v in values if v is not None})
    names = dict(zip(order[:2], ("best", "second"), strict=False))
    return ["" if v is None else names.get(v, "") for v in values]


def duration(seconds: float) -> str:
    """Seconds as reports write them.

    >>> duration(7.31), duration(205)
    ('7.3 s', '3 min 25 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{seconds:.1f} s" if seconds < 60 else f"{minutes} min {rest} s"


# --- several runs -----------------------------------------------------------------------------------------------------

BY_METHOD = (
    "matrix",
    "confusion",
    "chosen_names",
    "curves",
    "training_seconds",
    "skipped_steps",
    "bad_frames",
    "extra_parameters",
    "extra_bytes",
)


def merge(documents: Mapping[str, Document]) -> Document:
    """Runs on one sequence of domains as one document:
    a method that several runs have is told apart by the run's name.
    """
    runs = list(documents.items())
    if len(runs) == 1:
        return runs[0][1]
    counts = [m for _, d in runs for m in dict.fromkeys(r["method"] for r in d["rows"])]
    merged: Document = {name: {} for name in BY_METHOD}
    merged["rows"] = []
    for n, (run, document) in enumerate(runs):
        rename = {
            r["method"]: {"run": run, "variant": n} if counts.count(r["method"]) > 1 else {} for r in document["rows"]
        }
        merged["rows"] += [{**row, **rename[row["method"]]} for row in document["rows"]]
        for name in BY_METHOD:
            by_method = document.get(name, {})
            merged[name].update({row_key({"method": m, **rename.get(m, {})}): v for m, v in by_method.items()})
    accuracies = [float(a) for _, d in runs if (a := d.get("selection_accuracy")) is not None]
    merged["selection_accuracy"] = sum(accuracies) / len(accuracies) if accuracies else None
    merged["seconds"] = sum(d["seconds"] for _, d in runs)
    merged["domains"] = runs[0][1].get("domains", [])
    merged["about"] = {run: d.get("about", {}) for run, d in runs}
    return merged


def command_line() -> str:
    """For the record of a run: the command as typed, without the path of the program."""
    return shlex.join(["protodepth", *sys.argv[1:]])
