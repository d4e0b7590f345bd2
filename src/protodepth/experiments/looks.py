"""Looking at finished trainings again: an unseen domain, an outside model's predictions, descriptors in the plane, pictures."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from protodepth.data import frames as files
from protodepth.data.base import Domain, Frame, FrameDataset, collate
from protodepth.data.open import open_domain
from protodepth.errors import ConfigError, DataError
from protodepth.experiments.cells import Cell
from protodepth.experiments.thin import DISTANCES, by_distance, thin_things
from protodepth.experiments.work import Job, load_stage, load_start, plain_prediction, sequence_recipe
from protodepth.figures import absolute_error
from protodepth.methods.base import Method
from protodepth.protocol import evaluate
from protodepth.report.results import display_name
from protodepth.report.samples import add_predictions, sample_of, save_samples
from protodepth.runs import open_domains
from protodepth.types import Batch, BatchPrediction

DESCRIBED_FRAMES = 100  # of each domain at most, for the picture of descriptors
JUDGED_FRAMES = 32  # for the error by distance


def open_of(cell: Cell) -> list[Domain]:
    return open_domains(sequence_recipe(cell))


def run_unseen(job: Job) -> dict[str, Any]:
    """Errors of a finished training on a domain that it has never seen; nobody names a domain."""
    (training,) = job.cell.needs
    domains, unseen = open_of(training), open_domain(job.cell.settings["data"])
    method = load_stage(job.store, training, domains, domains[-1].name)
    found = evaluate(lambda batch: method.predict(batch, None), unseen.test, unseen.rules)
    chosen = {name: found.chosen.count(name) for name in dict.fromkeys(found.chosen)}
    return {"domain": unseen.name, "errors": found.mean, "frames": len(found.images), "chosen": chosen}


# --- an outside model -------------------------------------------------------------------------------------------------


def outside_digest(folder: Path) -> str:
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


def run_outside(job: Job) -> dict[str, Any]:
    """Errors of an outside model's predictions, scaled by the median at the sparse points or at ground truth."""
    settings = job.cell.settings
    domain, folder = open_domain(settings["data"]), Path(job.cell.where)
    waiting = iter(range(len(domain.test)))

    def predict(batch: Batch) -> BatchPrediction:
        maps = []
        for _ in range(len(batch)):
            frame = domain.test[next(waiting)]
            target = frame.sparse_depth if settings["scale"] == "sparse" else frame.ground_truth
            values = read_outside(folder, frame.name, frame.sparse_depth.shape)
            maps.append(scaled(values, np.asarray(target), settings["kind"], frame.name))
        return plain_prediction(torch.from_numpy(np.stack(maps)[:, None].astype(np.float32)))

    found = evaluate(predict, domain.test, domain.rules)
    return {"domain": domain.name, "errors": found.mean, "frames": len(found.images)}


# --- descriptors ------------------------------------------------------------------------------------------------------


def run_descriptors(job: Job) -> dict[str, Any]:
    """t-SNE (cosine) of the sample descriptors of val frames together with the domain descriptors."""
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        raise ConfigError("the picture of descriptors needs scikit-learn: pip install 'protodepth[data]'") from None
    (training,) = job.cell.needs
    domains = open_of(training)
    model = load_stage(job.store, training, domains, domains[-1].name).model
    rows, labels = [], []
    for domain in domains:
        for index in evenly(domain.val, DESCRIBED_FRAMES):
            rows.append(normalize(model.predict_batch(collate([domain.val[index]]), "base").descriptor, dim=-1))
            labels.append(domain.name)
    known, descriptors = model.descriptors()
    names = sorted(known, key=[d.name for d in domains].index)  # a stored state does not keep the order of learning
    descriptors = descriptors[[known.index(n) for n in names]]
    every = torch.cat([*rows, normalize(descriptors.detach(), dim=-1)]).double().cpu().numpy()
    plane = TSNE(
        metric="cosine", init="random", perplexity=min(30.0, (len(every) - 1) / 3), random_state=0
    ).fit_transform(every)
    samples, own = every[: len(labels)], every[len(labels) :]
    chosen = [names[i] for i in (samples @ own.T).argmax(1)]
    right = float(np.mean([a == b for a, b in zip(chosen, labels, strict=True)]))
    return {
        "points": plane[: len(labels)].astype(float),
        "labels": labels,
        "marks": plane[len(labels) :].astype(float),
        "mark_labels": names,
        "right": right,
        "cosines": (own @ own.T).round(4),
    }


def evenly(data: FrameDataset, most: int) -> list[int]:
    return sorted({int(i) for i in np.linspace(0, len(data) - 1, min(most, len(data)))})


# --- pictures ---------------------------------------------------------------------------------------------------------


def run_pictures(job: Job) -> dict[str, Any]:
    """Depth and errors of every method on an old domain after a new one, windows on thin things, and the error by distance."""
    domains = open_of(job.cell.needs[0])
    old, new = (domains[job.cell.settings[k]] for k in ("old", "new"))
    chosen, boxes = thin_frames(old.test, int(job.cell.settings["frames"]))
    samples = [sample_of(old, old.test[i], i) for i in chosen]
    before = load_start(job.store, job.cell.needs[0], domains)
    samples = add_predictions(samples, lambda batch, name: before.predict_batch(batch, "base"), "Before")
    distance = {}
    for training in job.cell.needs:
        method = load_stage(job.store, training, domains, new.name)
        two = (None, display_name("protodepth", "agnostic"))[method.name == "protodepth"]
        samples = add_predictions(samples, method.predict, display_name(method.name), two)
        distance[display_name(method.name)] = errors_by_distance(method, old, old.name)
        if two:
            distance[two] = errors_by_distance(method, old, None)
    save_samples(job.place / "samples.npz", samples)
    return {"old": old.name, "new": new.name, "boxes": boxes, "distance": distance, "frames": [s.name for s in samples]}


def thin_frames(data: FrameDataset, count: int) -> tuple[list[int], list[list[int]]]:
    """The frames whose ground truth has the most prominent thin things, and the window of each: no prediction is looked at."""
    found = []
    for index in range(len(data)):
        truth = data[index].ground_truth
        things = thin_things(truth) if truth is not None else []
        if things:
            found.append((things[0].score, index, [*things[0].rows, *things[0].columns]))
    if not found:  # nothing thin anywhere: evenly spaced frames, the centre of each
        chosen = evenly(data, count)
        height, width = data[0].sparse_depth.shape
        box = [height // 4, height // 2, width // 4, width // 2]
        return chosen, [box] * len(chosen)
    best = sorted(found, reverse=True)[:count]
    return [index for _, index, _ in best], [box for _, _, box in best]


def errors_by_distance(method: Method, domain: Domain, name: str | None) -> list[float | None]:
    """Mean absolute error in mm in each bin of the distance to the nearest sparse point."""
    total = np.zeros((len(DISTANCES) - 1, 2))
    for index in evenly(domain.test, JUDGED_FRAMES):
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
