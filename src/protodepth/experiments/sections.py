"""From the finished cells of an experiment to its section of the report."""

from collections.abc import Sequence
from typing import Any

from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.experiment import Experiment, Finished
from protodepth.report.bench_page import Section


def build_section(experiment: Experiment, cells: Sequence[Cell], store: Store, *, paper: bool) -> Section:
    """The section of an experiment; ``paper``: the numbers of the paper stand beside ours."""
    finished = list(store.finished(cells))
    parts = experiment.show(experiment, finished, store, paper)
    open_cells = [c for c in cells if not store.done(c)]
    missing = [f"not finished yet: {c.title}" for c in open_cells[:20]]
    missing += [f"... and {len(open_cells) - 20} more"] if len(open_cells) > 20 else []
    return Section(
        name=experiment.name,
        title=f"{experiment.name}: {experiment.about}",
        about=f"In the paper: {experiment.paper}. Sequence: "
        f"{_sequence_text(finished) or ', '.join(experiment.sequences)}.",
        tables=[t for t in parts.get("tables", ()) if t.lines],
        figures=parts.get("figures", ()),
        findings=parts.get("findings", ()),
        missing=(*parts.get("missing", ()), *missing),
        data={"cells": {c.key: {"label": c.label, "result": _light(r)} for c, r in finished}},
        seconds=sum(float(r.get("seconds") or 0.0) for _, r in finished),
    )


def _light(result: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in result.items() if k not in ("stages", "scenes")}


def _sequence_text(finished: Finished) -> str:
    names = dict.fromkeys(" → ".join(r["domains"]) for c, r in finished if c.kind == "sequence")
    return "; ".join(names)
