"""Frames, datasets of frames and domains: the nouns of the data.  The only way ground truth enters is evaluation."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from protodepth.types import Float


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


class FrameDataset(Protocol):
    """Anything with a length that gives frames by number.  Must be picklable (workers may be spawned)."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Frame: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRules:
    """Which pixels count: strict depth caps, and a crop of the bottom rows and centred columns."""

    min_depth: float
    max_depth: float
    crop: tuple[int, int] | None = None  # (rows, columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A stage D_k of a sequence: unlabelled frames to learn from, labelled frames to judge with."""

    name: str
    train: FrameDataset
    val: FrameDataset
    test: FrameDataset
    rules: EvalRules
    identity: dict[str, Any] = field(default_factory=dict)  # what the data is, for the run record

    def split(self, name: str) -> FrameDataset:
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
