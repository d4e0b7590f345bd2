"""What judges while a domain is learned: frames kept back, points hidden from the network, and when to stop."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from protodepth.data.batches import collate
from protodepth.data.entries import withhold
from protodepth.data.faults import Faults, readable
from protodepth.data.frame import Domain, Frame, FrameDataset, Subset
from protodepth.errors import DataError
from protodepth.methods.base import Method
from protodepth.methods.statistics import share_frames
from protodepth.model import ProtoDepth
from protodepth.training.fit import StopTraining
from protodepth.types import View

if TYPE_CHECKING:
    from protodepth.training.adapt import AdaptConfig

JUDGES = 32  # frames with hidden points


@dataclass(frozen=True, slots=True)
class Thinned:
    """A dataset without the sparse points that judge: for recordings too short to judge on other frames."""

    data: FrameDataset
    share: float = 0.2

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Frame:
        return hide(self.data[index], self.share)[0]


@dataclass(frozen=True, slots=True)
class Joined:
    """The frames of two datasets, one after the other."""

    first: FrameDataset
    second: FrameDataset

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def __getitem__(self, index: int) -> Frame:
        return self.first[index] if index < len(self.first) else self.second[index - len(self.first)]


def hide(frame: Frame, share: float = 0.2) -> tuple[Frame, np.ndarray]:
    """The frame without a seeded share of its points, and those points (h w, 0 elsewhere);
    the same whenever it is called.
    """
    shown, hidden = withhold(frame.sparse_depth, share, name=frame.name)
    return replace(frame, sparse_depth=shown), hidden


@dataclass(frozen=True, slots=True)
class Parts:
    """Frames to learn from, frames with neighbours for the photometric loss, and frames whose hidden points judge."""

    learn: FrameDataset
    watch: FrameDataset
    judge: FrameDataset


def divide(domain: Domain, share: float = 0.2) -> Parts:
    """Val frames judge (if they are few, test frames too) and, if they have neighbours, watch;
    else the last part of the training block
    watches, after a gap."""
    train, val = domain.train, domain.val
    if len(val) == 0 or share_frames(train, val):
        return Parts(Thinned(train, share), train, train)
    if first(val).neighbours:
        return Parts(train, val, val)
    count, val = len(train), val if len(val) >= 8 else Joined(val, domain.test)
    last, gap = max(2, round(0.15 * count)), max(2, round(0.02 * count))
    if count < 10:
        return Parts(train, train, val)
    return Parts(Subset(train, tuple(range(count - last - gap))), Subset(train, tuple(range(count - last, count))), val)


def first(data: FrameDataset) -> Frame:
    """The first frame that can be read."""
    return next(readable(data, Faults(len(data))))


def some(count: int, most: int) -> list[int]:
    """At most so many numbers spread evenly over a range."""
    return [i * count // min(count, most) for i in range(min(count, most))]


def held_out_errors(
    model: ProtoDepth, data: FrameDataset, domain: str, *, share: float = 0.2, frames: int = JUDGES
) -> np.ndarray:
    """Mean absolute error in mm of each frame at the ``share`` of its sparse points that is hidden from the network."""
    errors = []
    for frame in readable(data, Faults(len(data)), some(len(data), frames)):
        shown, hidden = hide(replace(frame, neighbours=(), poses=()), share)
        if (hidden > 0).any() and (shown.sparse_depth > 0).any():
            depth = model.predict_batch(collate([shown]), domain).depth[0, 0].cpu().numpy()
            errors.append(np.abs(depth - hidden)[hidden > 0].mean() * 1000)
    if not errors:
        raise DataError("too few sparse points to hold some out: the recording's frames have almost none")
    return np.array(errors)


class Enough(StopTraining):
    """The held-out loss has not fallen for a while."""


class Watch:
    """Looks at the held-out photometric loss while a domain is learned, and keeps the prototypes that were best.

    The descriptor is not kept back: its loss does not depend on the prototypes (Eq. 9),
    so its last value is the one to use.
    """

    def __init__(self, method: Method, name: str, data: FrameDataset, config: "AdaptConfig") -> None:
        self.method, self.name, self.data, self.patience = method, name, data, config.patience
        self.every = max(1, config.schedule.steps // max(1, config.looks))
        self.best, self.best_step, self.step, self.since = self.loss(), 0, 0, 0
        self.start = self.best
        self.kept = self.state()

    def __call__(self, step: int) -> None:
        self.step = step
        if step % self.every:
            return
        loss = self.loss()
        if loss < self.best:
            self.best, self.best_step, self.since, self.kept = loss, step, 0, self.state()
            return
        self.since += 1
        if self.since >= self.patience:
            raise Enough

    @torch.no_grad()
    def loss(self) -> float:
        """Mean of colour and structure terms over at most 16 frames, without augmentation."""
        total = []
        for frame in readable(self.data, Faults(len(self.data)), some(len(self.data), 16)):
            batch = collate([replace(frame, ground_truth=None)])
            batch = batch.to(next(self.method.trainable_parameters()).device)
            terms = self.method.loss(batch, View.identity(batch))
            total.append(float(terms["color"] + terms["structure"]))
        return float(np.mean(total))

    def state(self) -> dict[str, Tensor]:
        found = self.method.model.domain(self.name).state_dict()
        return {key: value.clone() for key, value in found.items() if key != "descriptor"}

    def restore(self) -> None:
        self.method.model.domain(self.name).load_state_dict(self.kept, strict=False)
