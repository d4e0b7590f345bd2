"""Trainings of several runs in one: tables, findings and intervals again from what is kept of each training.

    python benchmarks/reproducing.py bench-fresh --with benchmarks/worlds_fresh_results.json --between fresh
    --write docs/reproducing.md --keep benchmarks/worlds_fresh_results.json

What is merged must be of one kind: the same configuration (recipes, tuned values, scenes) where both runs have kept
theirs, the same errors before anything was learned (same base, same test scenes) for all methods of a seed, and equal
numbers where both have the same training.  Everything else is refused.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from protodepth.experiments.cells import Cell
from protodepth.experiments.experiment import MAIN
from protodepth.experiments.findings import findings
from protodepth.experiments.main_tables import MORE, PAIRED, cost_table, error_tables
from protodepth.experiments.paper import FAMILY
from protodepth.experiments.scores import NETWORKS, Group, groups, network_name
from protodepth.report.bench_page import records
from protodepth.report.results import display_name
from protodepth.storage.claims import first_difference

Kept = dict[str, Any]  # of a training: label, matrix, scenes and, in later files, costs
Rows = list[dict[str, Any]]
METHODS = (*MAIN, *MORE, "l2p", *FAMILY)
OPEN = "not finished yet: "  # how a bench names trainings that are to come


class Mismatch(ValueError):
    """Two runs that do not belong together."""


def kept_cell(label: dict[str, Any], result: dict[str, Any]) -> Kept:
    """What is kept of a training: its matrices, the MAE of every test scene (``[setting][k][j]``), its costs."""
    method, scenes = label["method"], result.get("scenes") or {}
    errors = {s: scenes[s]["mae"] for s in ("incremental", "agnostic") if s in scenes}
    own = {name: result[name][method] for name in ("training_seconds", "extra_parameters", "extra_bytes")}
    whole = {name: result[name] for name in ("parameters", "selection_accuracy", "seconds")}
    costs = own | whole | {"resumed": bool(result["about"].get("resumed"))}
    return {"label": label, "matrix": result["matrix"][method], "scenes": rounded(errors), "costs": costs}


def rounded(errors: Any) -> Any:
    """Errors in mm to a tenth; a scene without truth has none.

    >>> rounded({"incremental": [[[1.26, None]]]})
    {'incremental': [[[1.3, None]]]}
    """
    if isinstance(errors, dict):
        return {key: rounded(value) for key, value in errors.items()}
    if isinstance(errors, list):
        return [rounded(value) for value in errors]
    return None if errors is None else round(errors, 1)


def merged(kept: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Two documents as ``reproducing.read`` gives them, in one."""
    names = dict.fromkeys((*kept["experiments"], *new["experiments"]))
    pairs = {name: [d["experiments"][name] for d in (kept, new) if name in d["experiments"]] for name in names}
    return {
        "about": _about(kept["about"], new["about"]),
        "experiments": {name: _one(name, runs) for name, runs in pairs.items()},
    }


def _about(kept: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Machine and versions of the newer run, the commands and seeds of both."""
    commands = dict.fromkeys(c for about in (kept, new) for c in str(about["command"]).split("; ") if c)
    seeds = sorted({int(seed) for about in (kept, new) for seed in re.findall(r"\d+", str(about["seed"]))})
    return {**new, "command": "; ".join(commands), "seed": ", ".join(map(str, seeds))}


def _one(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """One experiment of one or two runs."""
    if not all("cells" in run for run in runs):
        if len(runs) == 1:
            return runs[0]
        raise Mismatch(f"{name}: one of the runs keeps no trainings, so its tables cannot be made again")
    configuration = _configuration(name, runs)
    cells = _cells(name, runs)
    rows, domains = groups_of(cells), _domains(name, runs)
    paired = {"mae": PAIRED["mae"]}  # the only errors of scenes that are kept
    tables = {t.name: records(t) for t in error_tables(rows, name, domains, paired=paired) if t.lines}
    return {
        "title": runs[-1]["title"],
        "findings": findings(rows, name),
        "missing": _missing(runs, cells),
        "tables": tables | {"costs": _costs(runs, rows)},
        "seconds": _seconds(runs),
        **configuration,
        "cells": cells,
    }


def _configuration(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """That of the runs that have kept one: recipes, tuned values, scenes."""
    known = [run["configuration"] for run in runs if "configuration" in run]
    difference = first_difference(known[0], known[-1]) if known else None
    if difference:
        where, old, new = difference
        raise Mismatch(f"{name}: the runs have other settings ({where} = {old!r} and {new!r})")
    return {"configuration": known[0]} if known else {}


def _key(cell: Kept) -> tuple[str, str, str, int]:
    label = cell["label"]
    return label["backbone"], label["method"], label["variant"], int(label["seed"])


def _cells(name: str, runs: list[dict[str, Any]]) -> list[Kept]:
    """Every training once, in the order of the tables: network, method, seed."""
    known: dict[tuple[str, str, str, int], Kept] = {}
    for cell in (cell for run in runs for cell in run["cells"]):
        earlier = known.get(_key(cell), cell)
        if any(earlier[part] != cell[part] for part in ("matrix", "scenes")):
            raise Mismatch(f"{name}: {_title(cell)} has other numbers in the two runs")
        known[_key(cell)] = earlier | cell
    _check_starts(name, known.values())
    return [known[key] for key in sorted(known, key=_order)]


def _order(key: tuple[str, str, str, int]) -> tuple[object, ...]:
    backbone, method, variant, seed = key
    networks = list(NETWORKS)
    place = METHODS.index(method) if method in METHODS else len(METHODS)
    return networks.index(backbone) if backbone in networks else len(networks), backbone, place, method, variant, seed


def _title(cell: Kept) -> str:
    backbone, method, variant, seed = _key(cell)
    return " ".join(word for word in (backbone, method, variant, f"seed {seed}") if word)


def _check_starts(name: str, cells: Iterable[Kept]) -> None:
    """All methods of a seed begin with the same base and are tested on the same scenes: their errors before the second
    domain is learned are equal.  L2P has learned prompts for the first domain by then.
    """
    first: dict[tuple[str, int], Kept] = {}
    for cell in (c for c in cells if c["label"]["method"] != "l2p"):
        backbone, _, _, seed = _key(cell)
        other = first.setdefault((backbone, seed), cell)
        if any(_start(cell, metric) != _start(other, metric) for metric in PAIRED):
            raise Mismatch(
                f"{name}: {_title(cell)} and {_title(other)} have other errors before anything was learned: "
                "they began with another base or had other test scenes"
            )


def _start(cell: Kept, metric: str) -> list[float]:
    return cell["matrix"]["incremental"][metric][0]


def groups_of(cells: Iterable[Kept]) -> list[Group]:
    """Rows of a table from what is kept of trainings."""
    return groups((Cell(kind="sequence", label=c["label"], inputs={}), _document(c)) for c in cells)


def _document(cell: Kept) -> dict[str, Any]:
    """A training's result as far as it is kept, as a bench stores it."""
    method, costs = cell["label"]["method"], cell.get("costs", {})
    own = {k: {method: costs[k]} for k in ("training_seconds", "extra_parameters", "extra_bytes") if k in costs}
    whole = {k: costs[k] for k in ("parameters", "selection_accuracy") if k in costs}
    return {
        "rows": [{"method": method, "setting": setting} for setting in cell["scenes"]],
        "matrix": {method: cell["matrix"]},
        "scenes": {setting: {"mae": errors} for setting, errors in cell["scenes"].items()},
        "about": {"resumed": costs.get("resumed")},
        **own,
        **whole,
    }


def _domains(name: str, runs: list[dict[str, Any]]) -> list[str]:
    """The worlds of a sequence, in order."""
    known = [[k.removesuffix(" learned") for k in r["tables"]["stages"][0] if k.endswith(" learned")] for r in runs]
    if any(domains != known[0] for domains in known):
        raise Mismatch(f"{name}: the runs have other domains ({', '.join(known[0])} and {', '.join(known[-1])})")
    return known[0]


def _missing(runs: list[dict[str, Any]], cells: list[Kept]) -> list[str]:
    """What one of the runs lacks and the other does not have either."""
    done = {OPEN + f"{cell['label']['sequence']} {_title(cell)}" for cell in cells}
    return [line for line in dict.fromkeys(line for run in runs for line in run["missing"]) if line not in done]


def _seconds(runs: list[dict[str, Any]]) -> float:
    """Time of the first run and of what the second one adds; a training of both counts once."""
    there = {_key(cell) for cell in runs[0]["cells"]}
    added = [cell for run in runs[1:] for cell in run["cells"] if _key(cell) not in there]
    return float(runs[0]["seconds"] + sum(cell.get("costs", {}).get("seconds", 0.0) for cell in added))


def _costs(runs: list[dict[str, Any]], rows: list[Group]) -> Rows:
    """Costs of the trainings that keep theirs; for earlier ones the row that their own run wrote."""
    counted = []
    for g in rows:
        known = {seed: d for seed, d in g.documents.items() if "training_seconds" in d}
        if known:
            counted.append(Group(g.backbone, g.method, g.setting, known))
    written = [row for run in runs for row in run["tables"].get("costs", ())]
    by_name: dict[tuple[str, str], dict[str, Any]] = {}
    for row in (*records(cost_table(counted)), *written):
        by_name.setdefault((row["Network"], row["Method"]), row)
    order = dict.fromkeys((network_name(g.backbone), display_name(g.method)) for g in rows)
    return [by_name[key] for key in order if key in by_name]


def text_of(document: dict[str, Any]) -> str:
    """JSON with a line for each list of numbers: what changes can be seen, and half of the size."""
    text = json.dumps(document, indent=1)
    return (
        re.sub(r"\[\s+((?:[^\s\[\]{}\"]+\s+)*[^\s\[\]{}\"]+)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
        + "\n"
    )


def configuration_of(bench: Path, name: str) -> dict[str, Any]:
    """What everything of an experiment in the folder of a bench has in common."""
    return json.loads((bench / "experiments" / name / f"{name}.json").read_text())
