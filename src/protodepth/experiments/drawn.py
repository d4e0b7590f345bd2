"""Sections of the report that are figures: forgetting curves, descriptors in the plane, pictures."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from protodepth.experiments.catalogue import Experiment
from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.montage import montage
from protodepth.experiments.scores import network_name
from protodepth.experiments.thin import bin_names
from protodepth.metrics import METRICS
from protodepth.paper_tables import OURS
from protodepth.report.bench import Figure
from protodepth.report.charts import METHOD_COLOURS, OTHER_METHOD, line_chart, scatter_chart
from protodepth.report.charts import Line as Curve
from protodepth.report.page import curve_chart
from protodepth.report.results import METRIC_NAMES, display_name, merge
from protodepth.report.samples import load_samples
from protodepth.report.tables import Column, Line, Table, Value

Finished = Sequence[tuple[Cell, dict[str, Any]]]


def curve(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    figures = []
    for backbone in dict.fromkeys(c.label["backbone"] for c, _ in finished):
        documents = {c.label["method"]: r for c, r in finished if c.label["backbone"] == backbone}
        both = merge(documents)
        first = both["domains"][0]
        for metric in METRICS[:2]:
            svg = curve_chart(both, first, metric)
            title = f"{METRIC_NAMES[metric]} on {first} (val frames) while {' and '.join(both['domains'][1:])} are learned, {network_name(backbone)}"
            figures.append(Figure(f"{backbone}-{metric}", title, svg=svg))
    return {"figures": figures}


def tsne(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    figures, notes = [], []
    for cell, r in finished:
        svg = scatter_chart(np.array(r["points"]), r["labels"], np.array(r["marks"]), r["mark_labels"])
        title = f"Sample descriptors of val frames (dots) and domain descriptors (crosses), {network_name(cell.label['backbone'])}, t-SNE"
        figures.append(Figure(f"{cell.label['sequence']}-{cell.label['backbone']}", title, svg=svg))
        notes.append(
            f"{network_name(cell.label['backbone'])}: the nearest descriptor is that of the frame's own domain for {100 * r['right']:.1f} % of the val frames."
        )
    return {"figures": figures, "findings": notes}


def qualitative(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    figures, tables = [], []
    colours = {display_name(m): c for m, c in METHOD_COLOURS.items()} | {
        display_name(OURS, "agnostic"): METHOD_COLOURS[OURS]
    }
    for cell, r in finished:
        name = f"{cell.label['sequence']}-{cell.label['backbone']}"
        samples = load_samples(store.place(cell) / "samples.npz")
        for n, (sample, box) in enumerate(zip(samples, r["boxes"], strict=True)):
            title = f"{r['old']} after learning {r['new']}, {network_name(cell.label['backbone'])}, frame {sample.name}: depth, error, and both in a window on the most prominent thin thing"
            figures.append(Figure(f"{name}-{n}", title, png=montage(sample, box)))
        curves = [
            Curve(
                label,
                colours.get(label, OTHER_METHOD),
                [(float(i), v) for i, v in enumerate(values) if v is not None],
                label.endswith("-A"),
            )
            for label, values in r["distance"].items()
        ]
        svg = line_chart(
            curves,
            x_label="distance to the nearest sparse point (bins of the table)",
            y_label=f"mean error on {r['old']} (mm)",
        )
        figures.append(
            Figure(f"{name}-distance", f"Error on {r['old']} by the distance to the nearest sparse point", svg=svg)
        )
        columns = tuple(Column(b, "pixels to the nearest point", "mm", 1) for b in bin_names())
        lines = tuple(Line((label,), tuple(Value(v) for v in values)) for label, values in r["distance"].items())
        tables.append(
            Table(
                name=f"{name}-distance",
                title=f"Error on {r['old']} after {r['new']} ({network_name(cell.label['backbone'])})",
                heads=("Method",),
                columns=columns,
                lines=lines,
            )
        )
    return {"figures": figures, "tables": tables}
