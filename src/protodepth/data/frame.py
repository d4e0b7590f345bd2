"""Frames, datasets of frames, splits by blocks of time, domains: the nouns of the data.  Truth enters by evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from protodepth.types import Float, Shown

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame as arrays: what a dataset returns and ``collate`` stacks."""

    image: Float[np.ndarray, "h w 3"]  # uint8, or float32 in [0, 1]
    sparse_depth: Float[np.ndarray, "h w"]  # metres, 0 = no point
    intrinsics: Float[np.ndarray, "3 3"]
    neighbours: tuple[np.ndarray, ...] = ()  # h w 3, like image
    poses: tuple[np.ndarray, ...] = ()  # 4 4, g_{tau t}
    ground_truth: np.ndarray | None = None  # h w, metres, 0 = unknown
    name: str = ""

    def __repr__(self) -> str:
        """One line: name, size, points, and what else it has."""
        height, width = self.sparse_depth.shape
        words = [f"{height}x{width}", f"{int((self.sparse_depth > 0).sum())} points"]
        words += [f"{len(self.neighbours)} neighbours{' with poses' * bool(self.poses)}"] * bool(self.neighbours)
        words += ["ground truth"] * (self.ground_truth is not None)
        return f"Frame({self.name!r}: {', '.join(words)})"


class FrameDataset(Protocol):
    """Anything with a length that gives frames by number.  Must be picklable (workers may be spawned)."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Frame: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRules:
    """Which pixels of a domain's frames are judged: strict depth caps, a crop (bottom rows, centred columns)."""

    min_depth: float
    max_depth: float
    crop: tuple[int, int] | None = None  # (rows, columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain(Shown):
    """A stage D_k of a sequence: unlabelled frames to learn from, labelled frames to judge with."""

    name: str
    train: FrameDataset
    val: FrameDataset
    test: FrameDataset
    rules: EvalRules
    identity: dict[str, Any] = field(default_factory=dict)  # what the data is, for the run record

    def __repr__(self) -> str:
        """One line: its name, how many frames each part has, up to which depth it is judged."""
        parts = ", ".join(f"{part} {len(self.split(part))}" for part in SPLITS)
        low, high = self.rules.min_depth, self.rules.max_depth
        return f"Domain({self.name!r}: {parts} frames; judged from {low:g} to {high:g} m)"

    def split(self, name: str) -> FrameDataset:
        """``train``, ``val`` or ``test``."""
        return {"train": self.train, "val": self.val, "test": self.test}[name]


@dataclass(frozen=True, slots=True)
class Subset:
    """The frames of another dataset at the given numbers."""

    data: FrameDataset
    indices: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Frame:
        return self.data[self.indices[index]]


def evenly(count: int, most: int) -> list[int]:
    """Which frames to take: at most so many of the numbers 0 to count - 1, evenly spaced from first to last.

    >>> evenly(10, 4), evenly(2, 4)
    ([0, 3, 6, 9], [0, 1])
    """
    return [int(i) for i in np.linspace(0, count - 1, min(most, count))]


def time_blocks(count: int, gap: int, ends: Sequence[float] = (0.7, 0.8, 1.0)) -> dict[str, range]:
    """Frame numbers of train (70 %), val (10 %) and test (20 %), in this order with a gap before the later two.

    ``ends``: where the three end, as shares of all.

    >>> time_blocks(20, 1)
    {'train': range(0, 14), 'val': range(15, 16), 'test': range(17, 20)}
    """
    cuts = [0, *(round(end * count) for end in ends)]
    pairs = zip(SPLITS, cuts, cuts[1:], strict=False)
    return {s: range(a + (min(gap, (b - a) // 2) if a else 0), b) for s, a, b in pairs}
