"""The qualitative figures: depth and errors on an old domain after a new one, windows on thin things,
error by distance.
"""

from typing import Any

import numpy as np

from protodepth.data.batches import collate
from protodepth.data.frame import Domain, Frame, evenly
from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.experiment import MAIN, Experiment, Finished
from protodepth.experiments.jobs import Job
from protodepth.experiments.montage import montage
from protodepth.experiments.paper import OURS
from protodepth.experiments.planning import Planner, Training
from protodepth.experiments.scores import network_name
from protodepth.experiments.thin_things import DISTANCES, bin_names, by_distance, thin_frames
from protodepth.experiments.trainings import load_stage, load_start, open_of
from protodepth.methods.base import Method
from protodepth.report.bench_page import Figure
from protodepth.report.charts import METHOD_COLOURS, OTHER_METHOD, ChartLine, line_chart
from protodepth.report.pictures import absolute_error, png
from protodepth.report.results import display_name
from protodepth.report.samples import add_predictions, load_samples, sample_of, save_samples
from protodepth.report.tables import Column, Line, Table, Value


def plan(experiment: Experiment, plan: Planner) -> list[Cell]:
    """The paper's figures: VOICED on KITTI after Waymo, FusionNet on NYUv2 after ScanNet."""
    default = {"outdoor": ("voiced",), "indoor": ("fusionnet",)}
    cells = []
    for sequence in experiment.sequences:
        for backbone in plan.options.backbones or default.get(sequence, ("lite",)):
            chosen = plan.options.methods or (*MAIN[1:], "protodepth")
            seed = plan.options.seeds[0]
            rows = [Training(sequence=sequence, backbone=backbone, method=m, seed=seed) for m in chosen]
            label = {"sequence": sequence, "backbone": backbone, "seed": seed}
            inputs = {"old": 0, "new": 1, "frames": 2}
            needs = tuple(plan.training(row) for row in rows)
            cells.append(Cell(kind="pictures", label=label, inputs=inputs, needs=needs))
    return cells


JUDGED_FRAMES = 32  # for the error by distance


def run(job: Job) -> dict[str, Any]:
    """Depth and errors of every method on an old domain after a new one, windows on thin things,
    and the error by distance.
    """
    domains = open_of(job.cell.needs[0])
    old, new = (domains[job.cell.inputs[k]] for k in ("old", "new"))
    chosen, boxes = thin_frames(old.test, int(job.cell.inputs["frames"]))
    samples = [sample_of(old, old.test[i], i) for i in chosen]
    before = load_start(job.store, job.cell.needs[0], domains)
    samples = add_predictions(samples, lambda batch, name: before.predict_batch(batch, "base"), "Before")
    distance = {}
    for training in job.cell.needs:
        method = load_stage(job.store, training, domains, new.name)
        two = display_name(method.name, "agnostic") if method.chooses else None
        samples = add_predictions(samples, method.predict, display_name(method.name), two)
        distance[display_name(method.name)] = _errors_by_distance(method, old, old.name)
        if two:
            distance[two] = _errors_by_distance(method, old, None)
    save_samples(job.place / "samples.npz", samples)
    return {"old": old.name, "new": new.name, "boxes": boxes, "distance": distance, "frames": [s.name for s in samples]}


def _errors_by_distance(method: Method, domain: Domain, name: str | None) -> list[float | None]:
    """Mean absolute error in mm in each bin of the distance to the nearest sparse point."""
    total = np.zeros((len(DISTANCES) - 1, 2))
    for index in evenly(len(domain.test), JUDGED_FRAMES):
        frame = domain.test[index]
        if frame.ground_truth is not None:
            depth = method.predict(collate([frame]), name).depth[0, 0].cpu().numpy()
            total += _one_frame(frame, depth, domain)
    return [1000 * s / n if n else None for s, n in total.tolist()]


def _one_frame(frame: Frame, depth: np.ndarray, domain: Domain) -> np.ndarray:
    truth = np.asarray(frame.ground_truth)
    error, known = absolute_error(depth, truth)
    counts = known & (truth > domain.rules.min_depth) & (truth < domain.rules.max_depth)
    return by_distance(error, counts, frame.sparse_depth)


def show(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    figures, tables = [], []
    colours = {display_name(m): c for m, c in METHOD_COLOURS.items()} | {
        display_name(OURS, "agnostic"): METHOD_COLOURS[OURS]
    }
    for cell, r in finished:
        name = f"{cell.label['sequence']}-{cell.label['backbone']}"
        samples = load_samples(store.file(cell, "samples.npz"))
        for n, (sample, box) in enumerate(zip(samples, r["boxes"], strict=True)):
            title = (
                f"{r['old']} after learning {r['new']}, {network_name(cell.label['backbone'])}, "
                f"frame {sample.name}: depth, error, and both in a window on the most prominent thin thing"
            )
            figures.append(Figure(f"{name}-{n}", title, png=png(montage(sample, box))))
        curves = [
            ChartLine(
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
