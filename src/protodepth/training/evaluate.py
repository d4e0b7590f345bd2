"""Judging: errors of any predictor (a network, an interpolation, depth maps from outside) on the frames of a domain."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from protodepth import distributed
from protodepth.data.batches import collate, groups
from protodepth.data.faults import Faults, readable
from protodepth.data.frame import Domain, EvalRules, Frame, FrameDataset, Subset, evenly
from protodepth.data.interpolation import completions
from protodepth.errors import DataError
from protodepth.metrics import METRICS, UNITS, counts, depth_errors, evaluation_crop, mean_errors
from protodepth.types import BatchPrediction, PredictBatch, Shown


@dataclass(frozen=True, slots=True)
class Evaluation(Shown):
    """Errors of one predictor on one dataset: the mean, and every image's own."""

    mean: dict[str, float]
    images: list[dict[str, Any]]  # name, points, valid, mae, rmse, imae, irmse, domain, similarity
    bad_frames: dict[str, str] = field(default_factory=dict)  # left out because they could not be read

    @property
    def chosen(self) -> list[str]:
        return [str(row["domain"]) for row in self.images]

    def __repr__(self) -> str:
        """One line: how many frames, their mean errors, how often each domain was used."""
        errors = ", ".join(f"{name} {self.mean[name]:.4g} {UNITS[name]}" for name in METRICS if name in self.mean)
        used = ", ".join(f"{name} {count}" for name, count in Counter(self.chosen).items())
        return f"Evaluation({len(self.images)} frames, {errors}; domains: {used})"


def evaluate(predict: PredictBatch, data: FrameDataset, rules: EvalRules, *, batch_size: int = 8) -> Evaluation:
    """Per-image errors, then their mean.  Frames must have ground truth.

    Several processes (see ``distributed``) each take some blocks of frames,
    and all get the errors of all frames in their order.
    """
    faults, rows = Faults(len(data)), {}
    for block in _own_blocks(len(data), batch_size):
        rows[block.start] = [
            row
            for frames in groups(readable(data, faults, block), batch_size)
            for row in _image_errors(frames, predict(collate(frames)), rules)
        ]
    for part in distributed.gather((rows, faults.reasons)):
        rows |= part[0]
        faults.merge(part[1])
    images = [row for start in sorted(rows) for row in rows[start]]
    if not images:
        raise DataError("there are no frames to evaluate")
    return Evaluation(mean_errors(images), images, faults.reasons)


def plain_prediction(maps: Sequence[np.ndarray]) -> BatchPrediction:
    """Depth maps from outside, one a frame, as a prediction to be judged: it knows no domain and has no descriptor."""
    depth, names = torch.from_numpy(np.stack(maps)[:, None].astype(np.float32)), ("outside",) * len(maps)
    return BatchPrediction(depth=depth, domains=names, similarity=None, names=(), descriptor=torch.zeros(len(maps), 1))


def interpolated(name: str) -> PredictBatch:
    """A way to interpolate (``data.interpolation``) as a predictor of batches."""
    complete = completions.get(name)
    return lambda batch: plain_prediction([complete(points) for points in batch.sparse_depth[:, 0].cpu().numpy()])


def beside_interpolation(
    result: Evaluation, data: FrameDataset, rules: EvalRules, *, frames: int = 24
) -> dict[str, dict[str, float]]:
    """Mean errors of the network and of each way to interpolate, on the same (at most so many) frames and pixels."""
    some = Subset(data, tuple(evenly(len(data), frames)))
    table = {name: evaluate(interpolated(name), some, rules) for name in completions.names()}
    judged = {row["name"] for row in next(iter(table.values())).images}
    own = [row for row in result.images if row["name"] in judged]
    return {"network": mean_errors(own), **{name: of_completion.mean for name, of_completion in table.items()}}


def _own_blocks(count: int, batch_size: int) -> list[range]:
    """The frames that this process evaluates:
    blocks of a batch, so that frames meet in the same batches as in one process.
    """
    rank, world = distributed.rank(), distributed.world()
    if world == 1:
        return [range(count)]
    size = min(batch_size, max(1, -(-count // world)))  # few frames: smaller blocks rather than idle processes
    blocks = [range(first, min(first + size, count)) for first in range(0, count, size)]
    return blocks[rank::world]


def _image_errors(frames: list[Frame], out: BatchPrediction, rules: EvalRules) -> Iterator[dict[str, Any]]:
    """A row for each image: its errors, and what was chosen for it."""
    caps = {"min_depth": rules.min_depth, "max_depth": rules.max_depth}
    depth = out.depth[:, 0].cpu().numpy()
    for n, frame in enumerate(frames):
        if frame.ground_truth is None:
            raise DataError(f"frame {frame.name or n} has no ground truth: it cannot be evaluated")
        yield {
            "name": frame.name,
            "points": int((frame.sparse_depth > 0).sum()),
            "valid": int(counts(evaluation_crop(frame.ground_truth, rules.crop), **caps).sum()),
            **depth_errors(depth[n], frame.ground_truth, crop=rules.crop, **caps),
            "domain": out.domains[n],
            "similarity": {}
            if out.similarity is None
            else dict(zip(out.names, out.similarity[n].tolist(), strict=True)),
        }


def without_crop(domain: Domain) -> Domain:
    """The same domain judged without its evaluation crop: the frames of a rehearsal may be smaller than that."""
    return replace(domain, rules=replace(domain.rules, crop=None))
