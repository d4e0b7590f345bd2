"""Depth maps to points, points into a camera's picture, small maps onto larger ones: some datasets leave it to us."""

from collections.abc import Sequence

import numpy as np
from scipy import ndimage

from protodepth.types import Float

Points = Float[np.ndarray, "n 3"]


def transform(points: Points, pose: Float[np.ndarray, "4 4"]) -> Points:
    """Apply a rigid motion to LiDAR points in rows."""
    return points @ pose[:3, :3].T + pose[:3, 3]


def lift(depth: Float[np.ndarray, "h w"], K: Float[np.ndarray, "3 3"]) -> Points:
    """The points of a depth map in its camera's frame, one for each pixel with a value.

    >>> lift(np.array([[0.0, 2.0]]), np.diag([4.0, 4.0, 1.0])).tolist()
    [[0.5, 0.0, 2.0]]
    """
    v, u = np.nonzero(depth)
    z = depth[v, u].astype(np.float64)
    x = (u - K[0, 2] - K[0, 1] * (v - K[1, 2]) / K[1, 1]) / K[0, 0]
    return np.stack([x * z, (v - K[1, 2]) / K[1, 1] * z, z], 1)


def write_nearest(
    columns: np.ndarray, rows: np.ndarray, depth: np.ndarray, size: tuple[int, int], *, last: bool = False
) -> Float[np.ndarray, "h w"]:
    """A depth map from projected points; where several fall on one pixel, the nearest stays (or the ``last``).

    >>> write_nearest(np.array([1, 1]), np.array([0, 0]), np.array([9.0, 4.0]), (1, 2)).tolist()
    [[0.0, 4.0]]
    """
    inside = (columns >= 0) & (columns < size[1]) & (rows >= 0) & (rows < size[0]) & (depth > 0)
    order = slice(None) if last else np.argsort(-depth[inside], kind="stable")  # the nearest is written last
    out = np.zeros(size, np.float32)
    out[rows[inside][order], columns[inside][order]] = depth[inside][order]
    return out


def scatter(depth: Float[np.ndarray, "h w"], size: tuple[int, int]) -> Float[np.ndarray, "H W"]:
    """Each depth of a small map at the middle of its cell in a map of the picture's size; nothing is interpolated.

    >>> scatter(np.array([[1.0, 2.0]]), (2, 4)).tolist()
    [[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 2.0]]
    """
    rows, columns = (((np.arange(n) + 0.5) * N / n).astype(int) for n, N in zip(depth.shape, size, strict=True))
    out = np.zeros(size, np.float32)
    out[np.ix_(rows, columns)] = depth
    return out


def project(
    points: Points,
    K: np.ndarray,
    size: tuple[int, int],
    *,
    near: float = 0.1,
    distortion: Sequence[float] = (),
    last: bool = False,
) -> Float[np.ndarray, "h w"]:
    """LiDAR points in the camera's frame (x right, y down, z forward) as a depth map; pixel centres at integers.

    ``distortion``: k1, k2, p1, p2, k3 (k4, k5, k6) of a picture that was not undistorted.  ``last``: of several points
    on a pixel the last one stays, not the nearest.
    """
    points = points[points[:, 2] > near]
    x, y = (points[:, :2] / points[:, 2:]).T
    if any(distortion):
        x, y = distort(x, y, distortion)
    u, v = K[0, 0] * x + K[0, 1] * y + K[0, 2], K[1, 1] * y + K[1, 2]
    sane = np.isfinite(u) & np.isfinite(v) & (np.abs(u) < 1e6) & (np.abs(v) < 1e6)
    u, v, z = u[sane], v[sane], points[sane, 2]
    return write_nearest(np.rint(u).astype(np.int64), np.rint(v).astype(np.int64), z, size, last=last)


def distort(x: np.ndarray, y: np.ndarray, k: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Brown's model on normalised coordinates: k1, k2, p1, p2, k3, and where eight are given the divisor's k4, k5, k6.
    Far outside the picture it folds back, so such points are moved away.
    """
    k1, k2, p1, p2, k3, k4, k5, k6 = (*k, 0.0, 0.0, 0.0)[:8]
    r2 = x * x + y * y
    above, below = 1 + r2 * (k1 + r2 * (k2 + r2 * k3)), 1 + r2 * (k4 + r2 * (k5 + r2 * k6))
    rise = (k1 + r2 * (2 * k2 + r2 * 3 * k3)) * below - above * (k4 + r2 * (2 * k5 + r2 * 3 * k6))
    radial = above / below
    slope = radial + 2 * r2 * rise / below**2  # of the distorted radius
    xd = x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x)
    yd = y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y
    good = (slope > 0) & (below > 0)
    return np.where(good, xd, np.inf), np.where(good, yd, np.inf)


def undistort(x: np.ndarray, y: np.ndarray, k: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """The normalised coordinates that ``distort`` takes to (x, y); NaN where there are none.

    >>> lens = (0.2, -0.1, 0.001, 0.002, 0.03)
    >>> there = undistort(*distort(np.array([0.3]), np.array([-0.4]), lens), lens)
    >>> [round(float(v[0]), 6) for v in there]
    [0.3, -0.4]
    """
    known = np.stack([x, y]).astype(np.float64)
    guess, step = known.copy(), 1e-6
    with np.errstate(invalid="ignore", over="ignore"):
        for _ in range(20):  # Newton's method in the plane
            here = np.stack(distort(guess[0], guess[1], k))
            across = (np.stack(distort(guess[0] + step, guess[1], k)) - here) / step
            down = (np.stack(distort(guess[0], guess[1] + step, k)) - here) / step
            off = known - here
            det = across[0] * down[1] - across[1] * down[0]
            guess[0] += (off[0] * down[1] - off[1] * down[0]) / det
            guess[1] += (across[0] * off[1] - across[1] * off[0]) / det
        missed = ~(np.abs(np.stack(distort(guess[0], guess[1], k)) - known).max(0) < 1e-6)
    guess[:, missed] = np.nan
    return guess[0], guess[1]


def drop_occluded(depth: Float[np.ndarray, "h w"], window: int = 7, threshold: float = 1.5) -> Float[np.ndarray, "h w"]:
    """A LiDAR depth map without points that lie behind one of their window by more than ``threshold`` metres."""
    filled = np.where(depth > 0, depth, np.inf)
    return np.where(ndimage.minimum_filter(filled, window) < depth - threshold, np.float32(0), depth)


def in_box(
    points: Points, centre: np.ndarray, size: np.ndarray, rotation: np.ndarray, margin: float = 0.1
) -> np.ndarray:
    """Which LiDAR points lie in a box (length, width, height along its own axes), grown by ``margin`` metres."""
    local = (points - centre) @ rotation
    return (np.abs(local) <= np.asarray(size) / 2 + margin).all(1)
