"""Do depth and pictures belong together?  What the pixels themselves say, without a network and without poses.

Where depth jumps, a picture usually has an edge.  How well the picture's differences tell jumps from even surfaces is
the area under the ROC curve: 0.5 for depth of another place, higher for the picture's own.  Compared are the map as it
is, mirrored, and the maps of frames before and after.  And: the inverse depth of a plane is an affine function of the
pixel if depth is measured along the view; measured along the ray, every wall bends.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy import ndimage

from protodepth.types import Float

JUMP, EVEN = 0.10, 0.02  # relative differences of depth between two near pixels
FITS = 0.57  # agreement from which on a map belongs to a picture at all; the Kinect's of 7-Scenes have 0.58
REACH = 6  # pixels up to which a sparse value stands for its surroundings
WINDOW = 0.4  # of the width and height, in which planes are looked for
FLAT = 0.02  # a window whose relative residual is larger is no plane


def _agreement(grey: Float[np.ndarray, "h w"], depth: Float[np.ndarray, "h w"]) -> float:
    """The probability that a pair of pixels across a jump of depth differs more in the picture than an even pair.

    NaN if there are fewer than 30 pairs of either kind.
    """
    gap = max(2, grey.shape[1] // 80)
    depth = _surroundings(depth)
    jumps, evens = [], []
    for shifted in (np.s_[:, gap:], np.s_[gap:, :]):
        base = np.s_[:, :-gap] if shifted == np.s_[:, gap:] else np.s_[:-gap, :]
        a, b = depth[base], depth[shifted]
        known = (a > 0) & (b > 0)
        step = np.abs(np.log(np.where(known, a, 1) / np.where(known, b, 1)))
        difference = np.abs(grey[base] - grey[shifted])
        jumps.append(difference[known & (step > JUMP)])
        evens.append(difference[known & (step < EVEN)])
    across, along = np.concatenate(jumps), np.sort(np.concatenate(evens))
    if min(len(across), len(along)) < 30:
        return float("nan")
    below = np.searchsorted(along, across, "left") + np.searchsorted(along, across, "right")
    return float(below.mean() / (2 * len(along)))


def _surroundings(depth: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """A sparse map with each value spread to the pixels that are nearest to it."""
    known = depth > 0
    if known.mean() > 0.3 or not known.any():
        return depth
    distance, (rows, columns) = ndimage.distance_transform_edt(~known, return_indices=True)
    return np.where(distance <= REACH, depth[rows, columns], 0)


FLIPS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mirrored left to right": lambda d: d[:, ::-1],
    "turned upside down": lambda d: d[::-1],
    "turned by 180 degrees": lambda d: d[::-1, ::-1],
}


def better_flip(frames: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[str, float, float] | None:
    """(how depth would fit its pictures better, agreement then, agreement now) of (grey, depth) pairs, or None."""
    now = [_agreement(grey, depth) for grey, depth in frames]
    best = None
    for name, flip in FLIPS.items():
        then = [_agreement(grey, flip(depth)) for grey, depth in frames]
        gain = _clear_gain(now, then, 0.05)
        if gain is not None and (best is None or gain > best[1]):
            best = (name, gain)
    return (best[0], best[1], float(np.nanmean(now))) if best else None


def _clear_gain(now: Sequence[float], then: Sequence[float], least: float) -> float | None:
    """The mean of ``then`` if it fits and is larger, by ``least`` and in four of five frames (of five at least)."""
    both = np.array([now, then])
    both = both[:, np.isfinite(both).all(0)]
    if both.shape[1] < 5 or (both[1] > both[0]).mean() < 0.8 or both[1].mean() - both[0].mean() < least:
        return None
    return float(both[1].mean()) if both[1].mean() >= FITS else None


def better_moment(
    greys: Mapping[int, np.ndarray], depths: Callable[[int], np.ndarray | None], most: int
) -> tuple[int, float, float] | None:
    """(frames by which another depth map fits better, agreement then, now), or None.

    +5: the depth that belongs to picture 10 is stored with picture 15, it comes five frames late.
    """
    now = [_at(grey, depths(i)) for i, grey in greys.items()]
    best = None
    for shift in (s for n in range(2, most + 1) for s in (n, -n)):  # one frame is within what sensors do
        then = [_at(grey, depths(i + shift)) for i, grey in greys.items()]
        gain = _clear_gain(now, then, 0.05)
        if gain is not None and (best is None or gain > best[1]):
            best = (shift, gain)
    return (best[0], best[1], float(np.nanmean(now))) if best else None


def _at(grey: np.ndarray, depth: np.ndarray | None) -> float:
    return float("nan") if depth is None else _agreement(grey, depth)


# --- along the view or along the ray ----------------------------------------------------------------------------------


def ray_votes(depth: Float[np.ndarray, "h w"], K: Float[np.ndarray, "3 3"]) -> list[float]:
    r"""For each flat part of the view: log of how much less a plane fits if depth is along the ray, so > 0 for z-depth.

    On a plane 1/z is affine in the pixel; with the distance r along the ray z = r / sqrt(1 + x^2 + y^2).
    """
    height, width = depth.shape
    high, wide = int(WINDOW * height), int(WINDOW * width)
    votes = []
    for top in np.linspace(0, height - high, 3).astype(int):
        for left in np.linspace(0, width - wide, 3).astype(int):
            v, u = np.nonzero(depth[top : top + high, left : left + wide])
            keep = np.random.default_rng(0).permutation(len(v))[:1500]
            v, u = v[keep] + top, u[keep] + left
            z = depth[v, u]
            x, y = (u - K[0, 2]) / K[0, 0], (v - K[1, 2]) / K[1, 1]
            if len(z) < 40 or np.ptp(x) < 0.15:
                continue
            residuals = [_plane_residual(x, y, q) for q in (1 / z, np.sqrt(1 + x * x + y * y) / z)]
            if min(residuals) < FLAT:
                along_view, along_ray = np.clip(residuals, 1e-6, 1.0)
                votes.append(float(np.log(along_ray / along_view)))
    return votes


def _plane_residual(x: np.ndarray, y: np.ndarray, q: np.ndarray) -> float:
    """Relative spread of q around its affine fit, over the pixels that it explains; infinite if those are few."""
    rows = np.stack([x, y, np.ones_like(x)], 1)
    kept = np.ones(len(q), bool)
    for _ in range(4):
        fit = np.linalg.lstsq(rows[kept], q[kept], rcond=None)[0]
        error = q - rows @ fit
        spread = 1.4826 * np.median(np.abs(error[kept])) + 1e-9
        kept = np.abs(error) < 3 * spread
        if kept.mean() < 0.7:
            return float("inf")
    return float(error[kept].std() / q[kept].mean())


def is_along_the_ray(votes: Sequence[float]) -> bool:
    """Four of five planes, of ten at least that decide, fit clearly better as distance along the ray."""
    clear = [v for v in votes if abs(v) > 0.1]
    return len(clear) >= 10 and float(np.mean([v < 0 for v in clear])) >= 0.8
