r"""Where the picture lies on the depth, found from hidden points alone.

A depth camera is two cameras.  Where nobody joined their frames, the picture is too small or too large for the depth
and beside it (7-Scenes: focal lengths 585 and 525), and its edges teach the wrong place.  The network itself can tell:
of all places s, t of the picture (geometry.register) the one is taken at which the base completes hidden points best,

.. math:: \min_{s, t} \; \mathrm{mean}_{frames} \log \frac{e(s, t)}{e(1, 0)}

first around the place as it is, then with ever smaller steps.  It is believed only if other frames agree.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from protodepth.data.batches import collate, groups
from protodepth.data.faults import Faults, readable
from protodepth.data.frame import Frame, FrameDataset, evenly
from protodepth.data.hidden import HideConfig
from protodepth.geometry import Registration, register
from protodepth.model import ProtoDepth
from protodepth.training.watch import hide
from protodepth.types import BASE

FRAMES = 12  # every second one searches, the others agree or not
LARGEST = (240, 320)  # larger frames are reduced: a place is a share of the width
STEPS = Registration(0.04, 0.0125, 0.0125)  # of the search, halved three times
SCALES = (0.88, 0.94, 1.06, 1.12)  # where a search with small steps would not get to
WORTH = 0.02  # share of the error that a move must take away, on frames that did not search
HINT = 0.005  # less than this nearby, and there is nothing to search for

HIDDEN = HideConfig(points=(0.3, 0.3), blocky=0.0, thinned=1.0, thinned_to=(0.02, 0.02), ways=("even",), sparser=0.0)
Judged = Callable[[Registration], np.ndarray]  # log of each frame's error over its error at (1, 0, 0)


def move(picture: np.ndarray, place: Registration) -> np.ndarray:
    """A picture (h w 3, uint8 or float) at its place."""
    image = torch.from_numpy(np.ascontiguousarray(picture.transpose(2, 0, 1))).float()
    moved = register(image[None], torch.tensor([place]))[0].numpy().transpose(1, 2, 0)
    return np.round(moved).astype(np.uint8) if picture.dtype == np.uint8 else moved.astype(picture.dtype)


def move_frame(frame: Frame, place: Registration) -> Frame:
    """The frame with its picture and its neighbours at their registered place."""
    neighbours = tuple(move(n, place) for n in frame.neighbours)
    return replace(frame, image=move(frame.image, place), neighbours=neighbours)


@dataclass(frozen=True, slots=True)
class Registered:
    """Frames whose pictures lie on their depth."""

    data: FrameDataset
    place: Registration

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Frame:
        return move_frame(self.data[index], self.place)


def reduced(frame: Frame) -> Frame:
    """A frame of at most LARGEST: means of the picture's cells, the nearest point of each cell of the depth."""
    height, width = frame.sparse_depth.shape
    k = max(1, round(max(height / LARGEST[0], width / LARGEST[1])))
    if k == 1:
        return replace(frame, neighbours=(), poses=(), ground_truth=None)
    h, w = height // k, width // k
    cells = frame.image[: h * k, : w * k].reshape(h, k, w, k, 3)
    points = frame.sparse_depth[: h * k, : w * k].reshape(h, k, w, k)
    nearest = np.where(points > 0, points, np.inf).min((1, 3))
    K = np.array(frame.intrinsics, np.float32)
    K[:2] /= k
    return Frame(
        image=cells.mean((1, 3)).astype(frame.image.dtype),
        sparse_depth=np.where(np.isfinite(nearest), nearest, 0).astype(np.float32),
        intrinsics=K,
        name=frame.name,
    )


def make_judge(model: ProtoDepth, frames: list[Frame]) -> Judged:
    """Errors of the base at hidden points with the picture at a place, as log ratios to where it lies now."""
    pairs = [hide(frame, HIDDEN) for frame in frames]
    pairs = [(shown, hidden) for shown, hidden in pairs if (shown.sparse_depth > 0).any() and (hidden > 0).any()]
    kept: dict[Registration, np.ndarray] = {}

    def errors(place: Registration) -> np.ndarray:
        if place not in kept:
            seen = [replace(shown, image=move(shown.image, place)) for shown, _ in pairs]
            batches = (collate(some) for some in groups(seen, 4))
            depths = [d.numpy(force=True) for b in batches for d in model.predict_batch(b, BASE).depth[:, 0]]
            off = [np.abs(d - h)[h > 0].mean() for d, (_, h) in zip(depths, pairs, strict=True)]
            kept[place] = np.log(np.maximum(off, 1e-9))
        return kept[place]

    return lambda place: errors(place) - errors(Registration())


def _neighbours(place: Registration, steps: Registration) -> list[Registration]:
    """One step forth and back in each of the three.

    >>> _neighbours(Registration(), Registration(0.5, 0.25, 0.25))[:2]
    [Registration(scale=1.5, x=0.0, y=0.0), Registration(scale=0.5, x=0.0, y=0.0)]
    """
    ways = [(i, sign) for i in range(3) for sign in (1, -1)]
    return [place._replace(**{place._fields[i]: round(place[i] + sign * steps[i], 6)}) for i, sign in ways]


def search(error: Callable[[Registration], float]) -> Registration:
    """The place of least error: coordinate by coordinate, as long as a step helps, then with steps half as long."""
    here = Registration()
    start = [here, *(Registration(scale=s) for s in SCALES), *_neighbours(here, STEPS)]
    best = min(start, key=error)
    if error(best) > error(here) - HINT:
        return here
    steps = STEPS
    for _ in range(4):
        while (nearby := min(_neighbours(best, steps), key=error)) and error(nearby) < error(best):
            best = nearby
        steps = Registration(*(s / 2 for s in steps))
    return best


class Place(NamedTuple):
    """Where the picture lies, and the share of the error that moving it took away on frames that did not search."""

    place: Registration
    gain: float

    def __str__(self) -> str:
        s, x, y = self.place
        return (
            f"picture and depth are not registered: the picture is moved (size {s:.3f}, x {100 * x:+.1f} % and "
            f"y {100 * y:+.1f} % of the width), which takes {100 * self.gain:.0f} % off the base's error"
        )


def find_place(model: ProtoDepth, data: FrameDataset) -> Place | None:
    """The place of the pictures on their depth, or None where they lie on it as far as can be seen."""
    frames = [reduced(f) for f in readable(data, Faults(len(data)), evenly(len(data), FRAMES))]
    if len(frames) < 4:
        return None
    searching, agreeing = (make_judge(model, frames[part::2]) for part in (0, 1))
    if not len(searching(Registration())) or not len(agreeing(Registration())):  # no frame has points to spare
        return None
    place = search(lambda r: float(searching(r).mean()))
    if place == Registration():
        return None
    logs = agreeing(place)
    gain = 1 - float(np.exp(logs.mean()))
    sure = bool(logs.mean() + 2 * logs.std(ddof=1) / np.sqrt(len(logs)) < 0) if len(logs) > 1 else False
    return Place(place, gain) if gain > WORTH and sure else None
