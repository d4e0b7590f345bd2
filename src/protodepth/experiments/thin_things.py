"""Where to look: thin things in the ground truth, found by rule,
and how far a pixel is from the nearest sparse point.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import ndimage

from protodepth.data.frame import FrameDataset, evenly
from protodepth.types import Float

WIDTH = 0.08  # of the image: what an opening of this size removes is thin
LARGEST = 0.03  # of the image's area: more is a wall, not a thing
STEP = 0.1  # in log depth: a tenth of the distance
DISTANCES = (0.0, 1.5, 3.0, 6.0, 12.0, float("inf"))  # pixels, edges of the bins


@dataclass(frozen=True, slots=True)
class ThinThing:
    """A thin object: the window around it and how much it stands out."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    score: float


def _thinness(depth: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """How far (in log depth) a pixel stands in front of what an opening leaves around it; no depth counts as far away.

    >>> d = np.full((40, 60), 20.0); d[5:35, 30] = 5.0
    >>> t = _thinness(d); round(float(t[20, 30]), 3), float(t[20, 10])
    (1.386, 0.0)
    """
    known = np.isfinite(depth) & (depth > 0)
    if not known.any():
        return np.zeros(depth.shape)
    nearness = -np.log(np.where(known, depth, 2 * depth[known].max()))
    size = max(3, round(WIDTH * max(depth.shape)))
    return np.where(known, nearness - ndimage.grey_opening(nearness, size=(size, size), mode="nearest"), 0.0)


def thin_things(depth: Float[np.ndarray, "h w"]) -> list[ThinThing]:
    """Connected thin regions of small area, the largest sum of depth steps first."""
    step = _thinness(depth)
    labels, _ = ndimage.label(step > STEP)
    things = []
    for n, place in enumerate(ndimage.find_objects(labels), start=1):
        own = labels[place] == n
        if 3 <= own.sum() <= LARGEST * depth.size:
            things.append(ThinThing(*window(place, depth.shape), float(step[place][own].sum())))
    return sorted(things, key=lambda t: -t.score)


def window(place: tuple[slice, slice], shape: tuple[int, ...]) -> tuple[tuple[int, int], tuple[int, int]]:
    """A window of a quarter of the image's height (or more, if the thing is larger) around a region,
    inside the image.
    """
    side = max(shape[0] // 4, *(s.stop - s.start + 4 for s in place))
    spans = []
    for cut, limit in zip(place, shape, strict=True):
        length = min(side, limit)
        first = min(max(0, (cut.start + cut.stop - length) // 2), limit - length)
        spans.append((first, first + length))
    return spans[0], spans[1]


def by_distance(
    error: Float[np.ndarray, "h w"], counts: np.ndarray, sparse: Float[np.ndarray, "h w"]
) -> Float[np.ndarray, "n 2"]:
    """Sum of errors and number of pixels in each bin of the distance to the nearest sparse point; ``counts``:
    pixels that count.
    """
    if not (sparse > 0).any():
        return np.zeros((len(DISTANCES) - 1, 2))
    distance = ndimage.distance_transform_edt(sparse <= 0)
    bins = np.digitize(distance[counts], DISTANCES[1:-1])
    n = len(DISTANCES) - 1
    return np.stack([np.bincount(bins, error[counts], n), np.bincount(bins, minlength=n)], 1)


def bin_names() -> tuple[str, ...]:
    """Names of the bins of distance to the nearest sparse point.

    >>> bin_names()[0], bin_names()[-1]
    ('below 1.5', '12 and more')
    """
    middle = [f"{a:g} to {b:g}" for a, b in pairwise(DISTANCES[1:-1])]
    return (f"below {DISTANCES[1]:g}", *middle, f"{DISTANCES[-2]:g} and more")


def thin_frames(data: FrameDataset, count: int) -> tuple[list[int], list[list[int]]]:
    """The frames whose ground truth has the most prominent thin things, and the window of each:
    no prediction is looked at.
    """
    windows = []
    for index in range(len(data)):
        truth = data[index].ground_truth
        things = thin_things(truth) if truth is not None else []
        if things:
            windows.append((things[0].score, index, [*things[0].rows, *things[0].columns]))
    if not windows:  # nothing thin anywhere: evenly spaced frames, the centre of each
        chosen = evenly(len(data), count)
        height, width = data[0].sparse_depth.shape
        box = [height // 4, height // 2, width // 4, width // 2]
        return chosen, [box] * len(chosen)
    best = sorted(windows, reverse=True)[:count]
    return [index for _, index, _ in best], [box for _, _, box in best]
