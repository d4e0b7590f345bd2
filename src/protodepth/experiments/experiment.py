"""What an experiment is, and what the tables of several experiments share: columns, groups of finished cells."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from protodepth.experiments import scores
from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.planning import Options, Planner
from protodepth.metrics import METRICS, UNITS
from protodepth.report.results import METRIC_NAMES
from protodepth.report.tables import Column

MAIN = ("pretrained", "finetune", "ewc", "lwf", "replay")
CONVOLUTIONAL = ("lite", "kbnet", "voiced", "fusionnet")
PAIRS = ("indoor", "outdoor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """``sequences``: what it runs on by default.
    ``cells`` plans its cells for one request, ``show`` makes tables and figures of finished ones.
    """

    name: str
    paper: str
    about: str
    sequences: tuple[str, ...]
    backbones: tuple[str, ...]
    cells: "PlanCells"
    show: "Show"

    def networks(self, options: Options) -> tuple[str, ...]:
        return options.backbones or self.backbones


Finished = Sequence[tuple[Cell, dict[str, Any]]]
PlanCells = Callable[[Experiment, Planner], list[Cell]]
Show = Callable[[Experiment, Finished, Store, bool], dict[str, Any]]


def by_sequence(finished: Finished) -> dict[str, list[tuple[Cell, dict[str, Any]]]]:
    """The finished cells of an experiment, by the sequence of their label."""
    out: dict[str, list[tuple[Cell, dict[str, Any]]]] = {}
    for cell, result in finished:
        out.setdefault(cell.label["sequence"], []).append((cell, result))
    return out


def diagonal(documents: Sequence[dict[str, Any]], method: str, metric: str, k: int) -> list[float]:
    """For an experiment's tables: error on D_k when it was learned (row k; pretrained: the same in every row)."""
    return [d["matrix"][method]["incremental"][metric][k][k] for d in documents]


def variants(finished: Finished) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """The results of an experiment's cells over seeds, by (backbone, method, variant)."""
    results: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for cell, result in finished:
        label = cell.label
        results.setdefault((label["backbone"], label["method"], label["variant"]), []).append(result)
    return results


def error_columns(domain: str) -> tuple[Column, ...]:
    """The four columns of errors on one domain, for the table of any experiment."""
    return tuple(Column(METRIC_NAMES[m], domain, UNITS[m], scores.DECIMALS[UNITS[m]]) for m in METRICS)
