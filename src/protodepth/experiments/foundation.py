"""Foundation models: an outside model's predictions, scaled by the median, beside ours."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data.arguments import open_domain
from protodepth.data.files import images as files
from protodepth.data.files.images import write_image
from protodepth.errors import ConfigError, DataError
from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.experiment import Experiment, Finished
from protodepth.experiments.experiment import error_columns as _error_columns
from protodepth.experiments.jobs import Job
from protodepth.experiments.paper import by_metric, table
from protodepth.experiments.paper import printed_errors as _printed_errors
from protodepth.experiments.planning import Options, Planner, Training
from protodepth.experiments.scores import groups, network_name
from protodepth.metrics import METRICS
from protodepth.report.tables import Line, Table, Value
from protodepth.training.evaluate import evaluate, plain_prediction
from protodepth.types import Batch, BatchPrediction


def plan(experiment: Experiment, plan: Planner) -> list[Cell]:
    """NYUv2 -> VOID: the first and the third domain; an outside model where its predictions are given."""
    (sequence,) = experiment.sequences
    cells, options = [], plan.options
    if options.predictions:
        folder = Path(options.predictions)
        if not folder.is_dir():
            raise ConfigError(f"--predictions {folder} is not a folder: expected <frame>.npy or <frame>.png inside")
        if options.scale not in ("sparse", "truth"):
            raise ConfigError(f"--scale-by {options.scale!r}: choose sparse or truth")
        inputs = {
            "data": plan.domains(sequence, seed=options.seeds[0])[2],
            "kind": options.kind,
            "scale": options.scale,
            "predictions": _outside_digest(folder),
        }
        label = {"sequence": sequence, "outside": options.outside, "scale": options.scale}
        cells.append(Cell(kind="outside", label=label, inputs=inputs, where=str(folder.resolve())))
    for seed in options.seeds:
        for backbone in experiment.networks(options):
            row = Training(sequence=sequence, backbone=backbone, method="protodepth", seed=seed, chosen=(0, 2))
            cells.append(plan.training(row))
    return cells


def _outside_digest(folder: Path) -> str:
    """What the predictions are: names and content."""
    total = hashlib.sha256()
    for path in sorted(p for p in folder.iterdir() if p.suffix in (".npy", ".png")):
        total.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def read_outside(folder: Path, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The map of one frame: ``<name>.npy``, or a 16-bit ``<name>.png`` (any unit: it is scaled anyway)."""
    place = next((folder / f"{name}{end}" for end in (".npy", ".png") if (folder / f"{name}{end}").is_file()), None)
    if place is None:
        raise DataError(f"{folder} has no {name}.npy or {name}.png: every test frame needs a prediction of that name")
    values = files.raw_depth(place)
    values = np.squeeze(np.asarray(values, np.float64))
    if values.shape != shape:
        raise DataError(
            f"{place} has shape {values.shape}, the frame {shape}: predictions must have the frame's own size"
        )
    return values


def scaled(values: np.ndarray, target: np.ndarray, kind: str, where: str) -> np.ndarray:
    """Depth in metres from a map of unknown scale: times the median of target / depth over the pixels with a target.

    >>> scaled(np.array([[1.0, 2.0]]), np.array([[3.0, 0.0]]), "depth", "x").tolist()
    [[3.0, 6.0]]
    """
    if kind not in ("depth", "disparity"):
        raise ConfigError(f"--kind {kind!r}: choose depth or disparity (1/depth)")
    ok = np.isfinite(values) & (values > 0)
    depth = np.where(ok, values if kind == "depth" else 1 / np.where(ok, values, 1), 0.0)
    use = (target > 0) & ok
    if not use.any():
        raise DataError(f"{where}: no pixel has both a prediction and a depth to scale by")
    depth = depth * float(np.median(target[use] / depth[use]))
    return np.where(ok, depth, depth[ok].max())  # no disparity: as far as anything in the frame


def run(job: Job) -> dict[str, Any]:
    """Errors of an outside model's predictions, scaled by the median at the sparse points or at ground truth."""
    inputs = job.cell.inputs
    domain, folder = open_domain(inputs["data"]), Path(job.cell.where)
    waiting = iter(range(len(domain.test)))

    def predict(batch: Batch) -> BatchPrediction:
        maps = []
        for _ in range(len(batch)):
            frame = domain.test[next(waiting)]
            target = frame.sparse_depth if inputs["scale"] == "sparse" else frame.ground_truth
            values = read_outside(folder, frame.name, frame.sparse_depth.shape)
            maps.append(scaled(values, np.asarray(target), inputs["kind"], frame.name))
        return plain_prediction(maps)

    judged = evaluate(predict, domain.test, domain.rules)
    return {"domain": domain.name, "errors": judged.mean, "frames": len(judged.images)}


HOW_FOUNDATION = (
    "Predictions of an outside model are not given. Write the test images with 'protodepth bench foundation --images "
    "FOLDER', run the model on them, save each map as <frame>.npy (or 16-bit .png) of the same size, "
    "then 'protodepth bench foundation --predictions FOLDER --kind depth' (or disparity) '--scale-by sparse' (or "
    "truth)."
)


def show(experiment: Experiment, finished: Finished, store: Store, paper: bool) -> dict[str, Any]:
    there, lines = _printed_errors("foundation", paper), []
    outside = [(c, r) for c, r in finished if c.kind == "outside"]
    for cell, result in outside:
        name = (
            f"{cell.label['outside']} (scaled at "
            f"{'sparse points' if cell.label['scale'] == 'sparse' else 'ground truth'})"
        )
        lines.append(Line(("–", name), tuple(Value(result["errors"][m]) for m in METRICS)))
    ours = groups([(c, r) for c, r in finished if c.kind == "sequence"])
    for g in ours:
        numbers = there.get((g.method, g.setting), {})
        cells = tuple(
            Value.of([float(g.matrix(s, m).values[-1, -1]) for s in g.documents], numbers.get(m)) for m in METRICS
        )
        lines.append(Line((network_name(g.backbone), g.name), cells))
    for name, title in (("depth-anything", "Depth Anything"), ("depth-pro", "Depth Pro")) if paper else ():
        printed = by_metric(next(r["errors"] for r in table("foundation")["rows"] if r["method"] == name))
        lines.append(
            Line(
                ("–", f"{title} (the paper's, not run here)"),
                tuple(Value(None, None, printed[m]) for m in METRICS),
                ranked=False,
            )
        )
    domain = next(iter(ours[0].documents.values()))["domains"][-1] if ours else ""
    table_of_errors = Table(
        name="errors",
        title=f"On {domain}",
        heads=("Network", "Method"),
        columns=_error_columns(domain),
        lines=tuple(lines),
    )
    return {"tables": [table_of_errors], "missing": [] if outside else [HOW_FOUNDATION]}


def write_images(folder: Path, options: Options) -> int:
    """The test images that ``foundation`` needs predictions for, as <frame>.png; returns how many."""
    domain = open_domain(Planner(options).domains("indoor", seed=options.seeds[0])[2])
    for index in range(len(domain.test)):
        frame = domain.test[index]
        write_image(folder / f"{frame.name}.png", frame.image)
    return len(domain.test)
