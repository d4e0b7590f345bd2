"""Any predictor on real sensors: which points of a frame it is shown, and its errors between them by region.

A pattern takes some of the depth that a frame has as input; the rest judges.  What is taken follows from the seed and
the frame's name, so every predictor is given the same points.  Errors are in mm, over the pixels that have depth and
no input point:

``edges``   within a hundredth of the height of a jump in depth by a tenth
``smooth``  the others
``far``     the farthest quarter of them
``holes``   farther than a twentieth of the width from every input point; with the pattern ``holes`` all of them
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy import ndimage

from protodepth.data.arguments import open_domain
from protodepth.data.entries import EntryFrames, frame_seed
from protodepth.data.frame import Domain, EvalRules, Frame, FrameDataset, Subset, evenly
from protodepth.data.interpolation import completions
from protodepth.data.recording.open import SPARSE_DENSITY
from protodepth.data.sampling import parse_sampler
from protodepth.errors import DataError, UnknownNameError
from protodepth.metrics import counts
from protodepth.model import ProtoDepth
from protodepth.types import BASE, Float, Prediction

PredictFrame = Callable[[Frame], Prediction]  # the frame's image, points and intrinsics in, depth out
REGIONS = ("edges", "smooth", "far", "holes")
ERRORS = ("mae", "rmse", *REGIONS)
EVERYTHING = EvalRules(min_depth=0.0, max_depth=float("inf"))
JUMP, NEAR, EMPTY = 0.1, 0.01, 0.05  # share of the depth; of the height; of the width


@dataclass(frozen=True, slots=True)
class PointPattern:
    """Which of a frame's depths are shown.  ``fits``: to depth that is dense, to one sweep of a scanner, or to any."""

    name: str
    sampler: str  # as data/sampling.py writes it
    fits: Literal["dense", "sweep", "any"] = "any"
    about: str = ""


# fmt: off
PATTERNS: dict[str, PointPattern] = {p.name: p for p in (
    PointPattern("500", "uniform:500", "any", "500 random points"),
    PointPattern("1500", "uniform:1500", "any", "1500 random points"),
    PointPattern("5%", "uniform:5%", "dense", "5 % of the known pixels"),
    PointPattern("corners", "harris:500", "dense", "the 500 strongest corners"),
    PointPattern("lidar", "uniform:70%", "sweep", "a sweep of a scanner, 30 % withheld"),
    PointPattern("holes", "holes", "dense", "a dense map with holes"),
    PointPattern("100", "uniform:100", "any", "100 random points"),
    PointPattern("clustered", "clustered:500", "dense", "500 points crowded on strong edges, empty regions"),
    PointPattern("tof", "tof:32", "dense", "a grid of 32 zones across"),
    PointPattern("tenth", "uniform:10%", "sweep", "one tenth of a sweep"),
)}
# fmt: on
USUAL = ("500", "1500", "5%", "corners", "lidar", "holes")
HARDER = ("100", "clustered", "tof", "tenth")


def pattern(text: str) -> PointPattern:
    """A pattern of points to measure with, by name, or any sampler.

    >>> pattern("corners").sampler, pattern("harris:800").sampler
    ('harris:500', 'harris:800')
    """
    if text in PATTERNS:
        return PATTERNS[text]
    if ":" not in text:
        raise UnknownNameError("pattern", text, (*PATTERNS, "or a sampler such as harris:800"))
    parse_sampler(text)
    return PointPattern(text, text)


# --- frames -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MeasuredSource:
    """Frames to measure on, with all their depth, and the domain that they are from."""

    domain: Domain
    frames: Sequence[Frame]
    dense: bool

    @property
    def name(self) -> str:
        return self.domain.name

    def fits(self, wanted: PointPattern) -> bool:
        return wanted.fits in ("any", "dense" if self.dense else "sweep")


def open_source(argument: str, split: str = "val", count: int = 8) -> MeasuredSource:
    """Frames to measure predictors on: at most ``count`` of a recording or any data argument, evenly spaced in time."""
    domain = open_domain(argument)
    data = domain.split(split)
    if not len(data):
        raise DataError(f"{argument} has no {split} frames to measure on")
    frames = [_everything_known(data)[i] for i in evenly(len(data), count)]
    known = float(np.mean([(full_depth(f) > 0).mean() for f in frames]))
    return MeasuredSource(domain, frames, known >= SPARSE_DENSITY)


def _everything_known(data: FrameDataset) -> FrameDataset:
    """The same frames with all their depth: nothing thinned, nothing withheld."""
    if isinstance(data, Subset):
        return Subset(_everything_known(data.data), data.indices)
    if not isinstance(data, EntryFrames):
        return data
    sampler = data.reader.sampler and "uniform:1"  # what it draws is not used
    return EntryFrames(data.table, replace(data.reader, truth_without_input=False, withhold=0.0, sampler=sampler))


def full_depth(frame: Frame) -> Float[np.ndarray, "h w"]:
    """All depth that a frame has: its ground truth, or the sensor's points where there is none."""
    return frame.sparse_depth if frame.ground_truth is None else frame.ground_truth


def shown(frame: Frame, wanted: PointPattern, seed: int = 0) -> Frame:
    """What a predictor is given of a frame, the same for all of them; ``ground_truth`` is what then judges."""
    full = full_depth(frame)
    sparse = parse_sampler(wanted.sampler)(frame.image, full, frame_seed(seed, frame.name))
    truth = np.where(sparse > 0, np.float32(0), full)
    return replace(frame, sparse_depth=sparse, ground_truth=truth, neighbours=(), poses=())


# --- predictors -------------------------------------------------------------------------------------------------------


def classical(name: str) -> PredictFrame:
    """A predictor to measure: interpolation by name (nearest, linear, morphological)."""
    complete = completions.get(name)
    return lambda frame: Prediction(depth=complete(frame.sparse_depth), domain=name, similarity={})


def network(model: ProtoDepth, domain: str | None = BASE) -> PredictFrame:
    """A predictor to measure: a model in one domain; None: chosen for each frame."""
    return lambda frame: model.predict(frame.image, frame.sparse_depth, frame.intrinsics, domain=domain)


# --- errors -----------------------------------------------------------------------------------------------------------


def _near_edges(full: Float[np.ndarray, "h w"]) -> np.ndarray:
    """Where the nearest and the farthest known depth within a hundredth of the height differ by more than a tenth."""
    size = 2 * max(2, round(NEAR * full.shape[0])) + 1
    low = ndimage.minimum_filter(np.where(full > 0, full, np.inf), size)
    high = ndimage.maximum_filter(full, size)
    return high > (1 + JUMP) * low


def _regions(
    frame: Frame, full: Float[np.ndarray, "h w"], judged: np.ndarray, wanted: PointPattern
) -> dict[str, np.ndarray]:
    edges = _near_edges(full)
    away = ndimage.distance_transform_edt(frame.sparse_depth <= 0) > EMPTY * full.shape[1]
    inside = np.ones_like(judged) if wanted.sampler.startswith("holes") else away
    far = full >= np.quantile(full[judged], 0.75) if judged.any() else judged
    masks = {"edges": edges, "smooth": ~edges, "far": far, "holes": inside}
    return {name: mask & judged for name, mask in masks.items()}


def frame_errors(
    predict: PredictFrame, frame: Frame, wanted: PointPattern, *, seed: int = 0, rules: EvalRules = EVERYTHING
) -> dict[str, Any]:
    """One frame: MAE and RMSE, the MAE of each region (None where it has no pixel), CPU seconds, the choice."""
    given, full = shown(frame, wanted, seed), full_depth(frame)
    truth = np.asarray(given.ground_truth)
    judged = counts(truth, rules.min_depth, rules.max_depth)
    started = time.process_time()  # not the wall's: other work on the machine must not count
    out = predict(replace(given, ground_truth=None))
    seconds = time.process_time() - started
    error = np.where(judged, np.abs(out.depth.astype(np.float64) - truth) * 1000, 0.0)
    error = np.where(np.isfinite(error), error, np.inf)
    masks = _regions(given, full, judged, wanted)
    return {
        "name": frame.name,
        "points": int((given.sparse_depth > 0).sum()),
        "pixels": int(judged.sum()),
        "mae": _mean(error, judged),
        "rmse": None if not judged.any() else float(np.sqrt((error[judged] ** 2).mean())),
        **{name: _mean(error, mask) for name, mask in masks.items()},
        "shares": {name: float(mask.sum() / max(1, judged.sum())) for name, mask in masks.items()},
        "seconds": seconds,
        "domain": out.domain,
        "unknown": out.unknown,
    }


def _mean(error: np.ndarray, mask: np.ndarray) -> float | None:
    return float(error[mask].mean()) if mask.any() else None


def _means(rows: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """Mean over frames of each error; a frame without such pixels contributes nothing.

    >>> _means([{"mae": 2.0, "rmse": 4.0}, {"mae": 4.0, "rmse": None}])["mae"]
    3.0
    """
    rows = list(rows)
    values_of = {name: [r[name] for r in rows if r.get(name) is not None] for name in ERRORS}
    return {name: float(np.mean(values)) if values else None for name, values in values_of.items()}


def measure(
    predict: PredictFrame,
    frames: Iterable[Frame],
    wanted: PointPattern | str,
    *,
    seed: int = 0,
    rules: EvalRules = EVERYTHING,
) -> dict[str, Any]:
    """Errors of a predictor on frames shown through a pattern: the ``mean``, and ``frames``, a row for each.

    >>> image, depth = np.zeros((20, 30, 3), np.uint8), np.full((20, 30), 2.0, np.float32)
    >>> flat = Frame(image=image, sparse_depth=depth, intrinsics=np.eye(3))
    >>> round(measure(classical("linear"), [flat], "uniform:40")["mean"]["mae"], 6)
    0.0
    """
    wanted = pattern(wanted) if isinstance(wanted, str) else wanted
    rows = [frame_errors(predict, frame, wanted, seed=seed, rules=rules) for frame in frames]
    if not rows:
        raise DataError("there are no frames to measure on")
    return {"pattern": wanted.name, "mean": _means(rows), "frames": rows}


def ratios(errors_of: Mapping[str, Mapping[str, float | None]], error: str = "mae") -> dict[str, float | None]:
    """Each predictor's error over the smallest of the classical methods' in the same setting.

    >>> ratios({"linear": {"mae": 4.0}, "nearest": {"mae": 8.0}, "mine": {"mae": 3.0}})["mine"]
    0.75
    """
    floor = [
        value for name in completions.names() if name in errors_of and (value := errors_of[name][error]) is not None
    ]
    best = min(floor, default=0.0)
    return {
        name: None if not best or (value := errors[error]) is None else value / best
        for name, errors in errors_of.items()
    }
