"""Cells and options of a small bench."""

from protodepth.experiments.cells import Cell
from protodepth.experiments.planning import Options
from protodepth.metrics import METRICS
from protodepth.report.tables import Column, Line, Table, Value


def cell(name: str, needs: tuple[Cell, ...] = (), **settings: object) -> Cell:
    return Cell(kind="errors", label={"name": name}, inputs={"name": name, **settings}, needs=needs)


TINY = Options(size=(32, 48), frames=4, steps=2, base_steps=2)


def _plain(options: Options) -> dict:
    return {name: getattr(options, name) for name in Options.__dataclass_fields__}


def change(**values: object) -> Options:
    return Options(**{**_plain(TINY), **values})


def document(method: str, told: list[list[float]], not_told: list[list[float]] | None = None) -> dict:
    settings = ("incremental",) if not_told is None else ("incremental", "agnostic")
    return {
        "rows": [{"method": method, "setting": setting} for setting in settings],
        "matrix": {
            method: {
                "incremental": dict.fromkeys(METRICS, told),
                "agnostic": dict.fromkeys(METRICS, not_told or told),
            }
        },
        "domains": ["a", "b"],
        "training_seconds": {method: [2.0]},
        "extra_parameters": {method: 50},
        "extra_bytes": {method: 200},
        "parameters": 1000,
        "selection_accuracy": None,
        "about": {},
    }


def row_cell(method: str, seed: int) -> Cell:
    label = {"sequence": "indoor", "backbone": "kbnet", "method": method, "variant": "", "seed": seed}
    return Cell(kind="sequence", label=label, inputs={"m": method, "s": seed})


def make_table(*means: float | None) -> Table:
    lines = tuple(Line((f"m{n}",), (Value(v),), ranked=n > 0) for n, v in enumerate(means))
    return Table(name="t", title="T", heads=("Method",), columns=(Column("MAE", "", "mm"),), lines=lines)
