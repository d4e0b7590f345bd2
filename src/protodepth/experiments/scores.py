"""Finished trainings as rows: the scores of a method with a network over seeds, and how they are named and rounded."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from protodepth.experiments.cells import Cell
from protodepth.experiments.paper import ScoreRow
from protodepth.metrics import METRICS, UNITS, ScoreMatrix
from protodepth.report.results import SCORES, display_name

NETWORKS = {"lite": "lite", "kbnet": "KBNet", "voiced": "VOICED", "fusionnet": "FusionNet", "uformer": "Uformer"}
SCORE_NAMES = {
    "forgetting": "Forgetting",
    "performance": "Average performance",
    "spto": "SPTO",
    "end": "Error at the end",
}
DECIMALS = {"forgetting": 2, "mm": 1, "1/km": 2}


def network_name(backbone: str) -> str:
    """A network's name as the tables of scores print it."""
    return NETWORKS.get(backbone, backbone)


@dataclass(frozen=True, slots=True)
class Group:
    """One row of a main table: a method with a network in one setting, its documents by seed."""

    backbone: str
    method: str
    setting: str
    documents: dict[int, dict[str, Any]]

    def matrix(self, seed: int, metric: str) -> ScoreMatrix:
        rows = self.documents[seed]["matrix"][self.method][self.setting][metric]
        return ScoreMatrix(np.array([[np.nan if v is None else v for v in row] for row in rows], np.float64))

    def values(self, score: str, metric: str) -> list[float]:
        """By seed; forgetting in per cent."""
        factor = 100.0 if score == "forgetting" else 1.0
        return [factor * getattr(self.matrix(seed, metric), score)() for seed in self.documents]

    def row(self) -> ScoreRow:
        means = {s: {m: float(np.mean(self.values(s, m))) for m in METRICS} for s in SCORES}
        return ScoreRow(self.backbone, self.method, self.setting, means)

    @property
    def name(self) -> str:
        return display_name(self.method, self.setting)


def groups(finished: Iterable[tuple[Cell, dict[str, Any]]]) -> list[Group]:
    """Finished trainings as rows of scores, in order; a method that chooses a domain, as ProtoDepth, has two."""
    by_row: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for cell, document in finished:
        by_row.setdefault((cell.label["backbone"], cell.label["method"]), {})[int(cell.label["seed"])] = document
    rows = []
    for (backbone, method), documents in by_row.items():
        for setting in _settings_of(next(iter(documents.values())), method):
            rows.append(Group(backbone, method, setting, dict(sorted(documents.items()))))
    order = list(dict.fromkeys(g.backbone for g in rows))
    return sorted(rows, key=lambda g: order.index(g.backbone))


def _settings_of(document: dict[str, Any], method: str) -> tuple[str, ...]:
    """The settings in which a method's numbers differ."""
    settings = {row["setting"] for row in document["rows"] if row["method"] == method}
    return ("agnostic", "incremental") if "agnostic" in settings else ("incremental",)


def unit(score: str, metric: str) -> str:
    """The unit of a score in the tables: per cent of forgetting, else the metric's."""
    return "%" if score == "forgetting" else UNITS[metric]


def decimals(score: str, metric: str) -> int:
    """How many decimals a score has in the tables."""
    return DECIMALS["forgetting"] if score == "forgetting" else DECIMALS[UNITS[metric]]
