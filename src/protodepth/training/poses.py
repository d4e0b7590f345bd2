"""Are the poses of a recording to be believed?  Measured before learning:
does warping by them make neighbours look alike?
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from protodepth.data.faults import Faults, readable
from protodepth.data.frame import Frame, FrameDataset, evenly
from protodepth.data.recording.motion import warp_error
from protodepth.data.recording.odometry import estimate_pose

FRAMES = 12  # that are looked at
BETTER = 0.95  # estimated poses are taken if they leave less than this share of the given ones' difference
# Share of the difference gone below which poses are not believed, and from which on they are wholly.
NOTHING, PLENTY = 0.15, 0.55


@dataclass(frozen=True, slots=True)
class PoseReport:
    """Grey levels between neighbours at the sparse points:
    without motion, moved by the given poses, by estimated ones (NaN: there are none).
    """

    still: float
    given: float
    estimated: float

    @property
    def use_estimated(self) -> bool:
        return not self.given <= self.estimated / BETTER  # also where none are given

    @property
    def best(self) -> float:
        return self.estimated if self.use_estimated else self.given

    @property
    def gone(self) -> float:
        """Share of the difference that warping takes away."""
        return 1 - self.best / self.still if self.still > 0 and math.isfinite(self.best) else 0.0

    @property
    def trust(self) -> float:
        """From 0, the poses do not warp, to 1.

        >>> [PoseReport(20.0, given, 14.0).trust for given in (4.0, 13.0, float("nan"))]
        [1.0, 0.5, 0.375]
        >>> PoseReport(20.0, 18.5, 19.0).trust
        0.0
        """
        return round(min(1.0, max(0.0, (self.gone - NOTHING) / (PLENTY - NOTHING))), 3)

    def __str__(self) -> str:
        given = "no poses are given" if math.isnan(self.given) else f"{self.given:.1f} by the given poses"
        whose = "estimated from the sparse depth" if self.use_estimated else "as given"
        role = (
            f"the photometric term counts {self.trust:.2f} of its weight"
            if self.trust
            else "they do not warp: no photometric term"
        )
        if math.isnan(self.still):
            return f"no neighbours could be compared: poses {whose}, {role}"
        return (
            f"neighbours differ by {self.still:.1f} grey levels without motion, {given}, "
            f"{self.estimated:.1f} by poses estimated from the sparse depth; poses {whose}: {role}"
        )


def examine(data: FrameDataset, frames: int = FRAMES) -> PoseReport:
    """Are the poses to be believed: medians over pairs of neighbours; half of the points estimate, the others judge."""
    rows: list[tuple[float, float, float]] = []
    for frame in readable(data, Faults(len(data)), evenly(len(data), frames)):
        half = np.random.default_rng(0).random(frame.sparse_depth.shape) < 0.5
        fitted, judged = np.where(half, frame.sparse_depth, 0), np.where(half, 0, frame.sparse_depth)
        for neighbour, given in zip(frame.neighbours, frame.poses or (None,) * len(frame.neighbours), strict=True):
            estimated = estimate_pose(frame.image, neighbour, fitted, frame.intrinsics, given)
            readings = (np.eye(4), given, estimated)
            still, *moved = (_grey_levels(frame, neighbour, judged, g) for g in readings)
            rows.append((still, moved[0], moved[1]))
    if not rows:
        return PoseReport(0.0, math.nan, math.nan)
    return PoseReport(*(_median(column) for column in zip(*rows, strict=True)))


def _grey_levels(frame: Frame, neighbour: np.ndarray, points: np.ndarray, pose: np.ndarray | None) -> float:
    """Mean difference at the points; a pose that moves half of them out of view explains nothing, whatever is left."""
    if pose is None:
        return math.nan
    K = np.asarray(frame.intrinsics, np.float64)
    y, x = np.nonzero(points)
    moved = pose[:3, :3] @ (np.linalg.inv(K) @ np.stack([x, y, np.ones(len(x))]) * points[y, x]) + pose[:3, 3:]
    u, v, w = K @ moved
    inside = (w > 1e-3) & (u >= 0) & (u <= (points.shape[1] - 1) * w) & (v >= 0) & (v <= (points.shape[0] - 1) * w)
    if len(x) == 0 or inside.mean() < 0.5:
        return 255.0
    return 255 * warp_error(frame.image, neighbour, points, pose, frame.intrinsics)


def _median(values: tuple[float, ...]) -> float:
    finite = [v for v in values if math.isfinite(v)]
    return float(np.median(finite)) if finite else math.nan


@dataclass(frozen=True, slots=True)
class Posed:
    """The same frames with poses estimated from their sparse depth, each when it is first read."""

    data: FrameDataset
    estimated: dict[int, tuple[np.ndarray, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Frame:
        frame = self.data[index]
        if index not in self.estimated:
            starts = frame.poses or (None,) * len(frame.neighbours)
            pairs = zip(frame.neighbours, starts, strict=True)
            self.estimated[index] = tuple(
                estimate_pose(frame.image, n, frame.sparse_depth, frame.intrinsics, s).astype(np.float32)
                for n, s in pairs
            )
        return replace(frame, poses=self.estimated[index])


@dataclass(frozen=True, slots=True)
class Unmoved:
    """Frames without neighbours and poses, where these are not to be believed."""

    data: FrameDataset

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Frame:
        return replace(self.data[index], neighbours=(), poses=())
