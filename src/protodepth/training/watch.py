"""What judges while a domain is learned: frames kept back, points hidden from the network, and which step is kept.

Three parts of a recording never meet: the frames that are learned from, those whose hidden points choose the step, and
those whose hidden points give the verdict.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from protodepth.data.batches import collate, groups
from protodepth.data.entries import frame_seed
from protodepth.data.faults import Faults, readable
from protodepth.data.frame import Domain, Frame, FrameDataset, Subset, evenly
from protodepth.data.hidden import DENSE, SCAN, HideConfig, choose_hidden, distance_weights
from protodepth.data.interpolation import completions
from protodepth.errors import DataError
from protodepth.methods.base import Method
from protodepth.methods.statistics import share_frames
from protodepth.model import ProtoDepth
from protodepth.progress import Say
from protodepth.storage.files import rounded
from protodepth.training.fit import StopTraining
from protodepth.types import BASE, PredictBatch

# frames, or draws of hidden points if there are fewer frames, that choose the step; twice as many give the verdict
CASES = 24
TOGETHER = 4  # cases that are completed at once
AVERAGED = 0.98  # share of the average that stays at a step: it reaches back over some 50
THINNED = (0.0015, 0.007, 0.02, 0.05)  # shares of a dense map's pixels that are shown
SPARSER = (0.01, 0.04, 0.1)  # shares of a scan's points that are shown
SHARES = (0.75, 0.5, 0.25)  # of the way from the base to what was learned, tried at the end
LARGEST = (288, 384)  # rows and columns of a frame that judges; of a larger one a window judges


def judging(withhold: float) -> HideConfig:
    """How the points that judge are hidden: half of the share as single points, and four blocks."""
    return HideConfig(
        points=(withhold, withhold), blocks=(4, 4), side=(0.1, 0.25), blocky=1.0, thinned=0.0, sparser=0.0
    )


def is_dense(frame: Frame) -> bool:
    """Whether a frame's depth is a map, of which most can be hidden, and not points or a scan."""
    return bool((frame.sparse_depth > 0).mean() >= DENSE)


def _judging_turns(config: HideConfig, frame: Frame) -> tuple[HideConfig, ...]:
    """What the cases hide in turns, so that a domain is judged by every density and pattern that it may be asked for.

    Of dense maps: blocks, holes, then all but a few points, in four densities, at corners and in crowds; of scans:
    single points and blocks, then all but a few; of sparser maps always points and blocks.
    """
    if is_dense(frame):
        thinned = replace(config, thinned=1.0, ways=("even",))
        corners = replace(config, thinned=1.0, thinned_to=(0.01, 0.01), ways=("corners",))
        return (
            config,
            *(replace(thinned, thinned_to=(s, s)) for s in THINNED),
            replace(config, blocky=0.0, holes=(12, 12)),
            corners,
            replace(corners, ways=("crowded",)),
        )
    if (frame.sparse_depth > 0).sum() >= SCAN:
        single = replace(config, blocky=0.0, points=(0.3, 0.3))
        return (config, single, *(replace(config, sparser=1.0, sparser_to=(s, s)) for s in SPARSER))
    return (config,)


@dataclass(frozen=True, slots=True)
class Case:
    """A frame without the points that judge, those points (h w, 0 elsewhere), and what each of them counts (sum 1)."""

    frame: Frame
    hidden: np.ndarray
    weight: np.ndarray
    registered: Frame | None = None  # with the picture where the depth sees it; the base has only the frame as it came

    def error(self, depth: np.ndarray) -> float:
        """Mean absolute error in mm at the hidden points, weighted as far from shown ones as pixels are."""
        return float((self.weight * np.abs(depth - self.hidden))[self.hidden > 0].sum() * 1000)


def hide(frame: Frame, config: HideConfig, *, draw: int = 0) -> tuple[Frame, np.ndarray]:
    """The frame without a seeded part of its points, and those points (h w, 0 elsewhere);
    the same whenever it is called.
    """
    rng = np.random.default_rng(frame_seed(draw, frame.name))
    mask = choose_hidden(frame.sparse_depth > 0, config, rng, frame.image)
    hidden = np.where(mask, frame.sparse_depth, np.float32(0))
    return replace(frame, sparse_depth=frame.sparse_depth - hidden), hidden


def window(frame: Frame, size: tuple[int, int], rng: np.random.Generator) -> Frame:
    """A drawn part of a frame that is larger than ``size``, without neighbours; the principal point moves along."""
    height, width = frame.sparse_depth.shape
    if height * width <= size[0] * size[1]:
        return replace(frame, neighbours=(), poses=(), ground_truth=None)
    rows, columns = min(size[0], height), min(size[1], width)
    top, left = int(rng.integers(height - rows + 1)), int(rng.integers(width - columns + 1))
    cut = (slice(top, top + rows), slice(left, left + columns))
    K = np.array(frame.intrinsics, np.float32)
    K[0, 2] -= left
    K[1, 2] -= top
    return replace(
        frame,
        image=frame.image[cut],
        sparse_depth=frame.sparse_depth[cut],
        intrinsics=K,
        neighbours=(),
        poses=(),
        ground_truth=None,
    )


@dataclass(frozen=True, slots=True)
class Thinned:
    """A dataset without the sparse points that judge: for recordings too short to judge on other frames."""

    data: FrameDataset
    config: HideConfig

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Frame:
        return hide(self.data[index], self.config)[0]


@dataclass(frozen=True, slots=True)
class Parts:
    """Frames to learn from, frames whose hidden points choose the step,
    and frames whose hidden points give the verdict.

    ``shared``: all three are the same frames, and their points are divided instead.
    """

    learn: FrameDataset
    choose: FrameDataset
    verdict: FrameDataset
    shared: bool = False


def divide(domain: Domain, config: HideConfig) -> Parts:
    """What teaches and what judges: val frames give the verdict; the end of the training block, after a gap, chooses.
    The test block is not touched.

    Data whose val frames are scenes of their own (they have neighbours) is learned from whole;
    its val frames take turns.
    """
    train, val = domain.train, domain.val
    scenes = len(val) > 1 and bool(first(val).neighbours)
    if len(val) == 0 or (len(train) < 10 and not scenes) or share_frames(train, val):
        return Parts(Thinned(train, config), train, train, shared=True)
    if scenes:
        return Parts(train, Subset(val, tuple(range(0, len(val), 2))), Subset(val, tuple(range(1, len(val), 2))))
    count = len(train)
    last, gap = max(2, round(0.15 * count)), max(1, round(0.02 * count))
    return Parts(Subset(train, tuple(range(count - last - gap))), Subset(train, tuple(range(count - last, count))), val)


def first(data: FrameDataset) -> Frame:
    """Of the frames kept back to judge, the first that can be read."""
    return next(readable(data, Faults(len(data))))


def make_cases(
    data: FrameDataset,
    config: HideConfig,
    *,
    count: int | None = None,
    half: int | None = None,
    place: Callable[[Frame], Frame] | None = None,
) -> list[Case]:
    """Cases to judge by, so many: frames spread over the data or, if there are fewer, several draws of each.

    ``place`` moves a frame's picture to where its depth sees it.

    ``half`` 0 or 1: of the points that ``hide`` takes out of the frames for good, this half judges.
    """
    cases: list[Case] = []
    count = CASES if count is None else count
    frames = list(readable(data, Faults(len(data)), evenly(len(data), count)))
    draws = 1 if half is not None else -(-count // max(1, len(frames)))
    for number, (draw, frame) in enumerate(itertools.product(range(draws), frames)):
        turns = _judging_turns(config, frame) if half is None else (config,)
        seed = frame_seed(draw, f"window {frame.name}")
        rng = np.random.default_rng(seed)
        largest = frame.sparse_depth.shape if half is not None else LARGEST
        case = _case(*hide(window(frame, largest, rng), turns[number % len(turns)], draw=draw), half, rng)
        if case and place:
            picture = window(place(frame), largest, np.random.default_rng(seed)).image
            case = replace(case, registered=replace(case.frame, image=picture))
        cases += [case] if case else []
    if not cases:
        raise DataError("too few sparse points to hold some out: the recording's frames have almost none")
    return cases[: max(count, 1)]


def _case(shown: Frame, hidden: np.ndarray, half: int | None, rng: np.random.Generator) -> Case | None:
    if half is not None:
        places = rng.permutation(np.flatnonzero(hidden))[half::2]
        part = np.zeros_like(hidden)
        part.flat[places] = hidden.flat[places]
        hidden = part
    points = shown.sparse_depth > 0
    if not points.any() or not (hidden > 0).any():
        return None
    return Case(shown, hidden, distance_weights(points, hidden > 0))


def _prediction_errors(predict: PredictBatch, cases: list[Case]) -> np.ndarray:
    """Error in mm of each case."""
    depths = [
        depth.cpu().numpy()
        for frames in groups((c.frame for c in cases), TOGETHER)
        for depth in predict(collate(frames)).depth[:, 0]
    ]
    return np.array([case.error(depth) for case, depth in zip(cases, depths, strict=True)])


def network_errors(model: ProtoDepth, cases: list[Case], domain: str) -> np.ndarray:
    """Error in mm of each case that judges, by a domain of the model."""
    if domain != BASE:
        cases = [replace(c, frame=c.registered or c.frame) for c in cases]
    return _prediction_errors(lambda batch: model.predict_batch(batch, domain), cases)


def compare(predict: PredictBatch, data: FrameDataset, *, withhold: float = 0.2, cases: int = 12) -> dict[str, float]:
    """What hidden points of the last frames (30 %) judge: errors in mm of the network and of each interpolation."""
    last = Subset(data, tuple(range(len(data) - max(1, round(0.3 * len(data))), len(data))))
    made = make_cases(last, judging(withhold), count=cases)
    return {"network": float(_prediction_errors(predict, made).mean()), **interpolation_errors(made)}


def interpolation_errors(cases: list[Case]) -> dict[str, float]:
    """Mean error in mm of each way to interpolate, at the same hidden points."""
    methods = {name: completions.get(name) for name in completions.names()}
    return {name: float(np.mean([c.error(f(c.frame.sparse_depth)) for c in cases])) for name, f in methods.items()}


class Enough(StopTraining):
    """The error at hidden points has not fallen for a while."""


class Watch:
    """Looks at the error at hidden points while a domain is learned, and keeps the prototypes that were best.

    What is judged and kept is the average of what was learned over the last steps: single steps of a few frames swing
    about it.  Step 0 takes part: prototypes that change nothing (A = 1, P = 0), with which the network is the base's.
    The descriptor is not kept back: its loss does not depend on the prototypes (Eq. 9),
    so its last value is the one to use.
    """

    def __init__(
        self,
        method: Method,
        name: str,
        judge: Callable[[], float],
        *,
        every: int,
        patience: int,
        say: Say = lambda text: None,
    ) -> None:
        self.method, self.name, self.judge, self.every, self.patience, self.say = (
            method,
            name,
            judge,
            every,
            patience,
            say,
        )
        self.step, self.best_step, self.since = 0, 0, 0
        learned = self.state()
        self.kept = self.plain = _neutral(learned)  # parts of the decoder are still copies of the network's
        self.restore()
        self.start = self.best = self.judge()
        self.curve = [(0, self.start)]
        self.average = learned
        self._load(learned)

    def tensors(self) -> dict[str, Tensor]:
        return {f"{part}.{key}": t for part in ("kept", "average") for key, t in getattr(self, part).items()}

    def facts(self) -> dict[str, Any]:
        """What was seen so far, for a run that goes on."""
        return {"step": self.step, "best_step": self.best_step, "since": self.since, "curve": self.curve}

    def go_on(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        self.step, self.best_step, self.since = (int(facts[key]) for key in ("step", "best_step", "since"))
        self.curve = [(int(step), float(error)) for step, error in facts["curve"]]
        self.kept, self.average = (
            {key.removeprefix(f"{part}."): t for key, t in tensors.items() if key.startswith(f"{part}.")}
            for part in ("kept", "average")
        )
        self.start, self.best = self.curve[0][1], min(error for _, error in self.curve)

    @property
    def done(self) -> bool:
        return self.since >= self.patience

    def __call__(self, step: int) -> None:
        self.step = step
        learned = self.state()
        share = min(AVERAGED, step / (step + 10))
        self.average = {key: torch.lerp(now, self.average[key], share) for key, now in learned.items()}
        if step % self.every:
            return
        self._load(self.average)
        error = self.judge()
        self._load(learned)
        self.curve.append((step, error))
        self.say(f"step {step}: {error:.1f} mm at hidden points ({100 * (error / self.start - 1):+.1f} %)")
        if error < self.best:
            self.best, self.best_step, self.since, self.kept = error, step, 0, self.average
            return
        self.since += 1
        if self.done:
            raise Enough

    def blend(self) -> float:
        """Take the best share of the way from the base to what was kept: the whole, or less where it goes too far.

        Own parts are rounded to half precision, before anything is said of them: their file is half as large.
        """
        whole, best = self.kept, 1.0
        for share in SHARES if self.best_step else ():
            part = {key: torch.lerp(self.plain[key], now, share) for key, now in whole.items()}
            self._load(part)
            error = self.judge()
            if error < self.best:
                self.best, self.kept, best = error, part, share
        if self.best_step:
            self.kept = {key: rounded(now) if key.startswith("parts.") else now for key, now in self.kept.items()}
        self.restore()
        return best

    def state(self) -> dict[str, Tensor]:
        learned = self.method.model.domain(self.name).state_dict()
        return {key: value.clone() for key, value in learned.items() if key != "descriptor"}

    def _load(self, state: dict[str, Tensor]) -> None:
        self.method.model.domain(self.name).load_state_dict(state, strict=False)

    def restore(self) -> None:
        """What was kept, in place of what was learned last."""
        self._load(self.kept)

    def forget(self) -> None:
        """Back to prototypes that change nothing."""
        self.kept = self.plain
        self.restore()


def _neutral(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Prototypes under which every latent stays as it is: A = 1, P = 0.

    >>> three = torch.tensor([3.0])
    >>> {key: float(value) for key, value in _neutral({"s.A": three, "s.P": three, "s.W": three}).items()}
    {'s.A': 1.0, 's.P': 0.0, 's.W': 3.0}
    """
    plain = {"A": torch.ones_like, "P": torch.zeros_like}
    return {key: plain.get(key.rsplit(".", 1)[-1], torch.clone)(value) for key, value in state.items()}
