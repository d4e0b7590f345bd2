r"""Camera motion from sparse depth: the six numbers of a rigid motion under which the points of one image look like
another image.

Direct alignment.  For points X_i with grey value I_t(x_i), the motion g and a change of brightness b minimise

    sum_i rho( I_tau(pi(K g X_i)) - I_t(x_i) - b )

by damped Gauss-Newton steps, rho Huber's, on images that are blurred less and less.  NumPy only.
"""

import numpy as np
from scipy import ndimage
from scipy.spatial.transform import Rotation

from protodepth.data.recording.motion import grey
from protodepth.types import Float

WIDTH = 320  # images are reduced by a whole factor to about this width
POINTS = 3000  # at most so many take part
BLURS = (5.0, 2.5, 1.2)  # pixels, at that width
STEPS = 12  # for each blur
FEWEST = 50  # points in view; fewer say nothing


def small_motion(step: Float[np.ndarray, "6"]) -> Float[np.ndarray, "4 4"]:
    """A small motion: three numbers of translation, three of rotation (axis times angle).

    >>> small_motion(np.zeros(6)).tolist() == np.eye(4).tolist()
    True
    """
    g = np.eye(4)
    g[:3, :3], g[:3, 3] = Rotation.from_rotvec(step[3:]).as_matrix(), step[:3]
    return g


def estimate_pose(
    image: np.ndarray,
    neighbour: np.ndarray,
    depth: Float[np.ndarray, "h w"],
    K: np.ndarray,
    start: np.ndarray | None = None,
) -> Float[np.ndarray, "4 4"]:
    """The motion g from the image's camera to the neighbour's, from ``start`` (or from rest);
    ``start`` itself if too few points are seen.
    """
    factor = max(1, round(image.shape[1] / WIDTH))
    pictures = [_reduced(grey(i, 0.0), factor) for i in (image, neighbour)]
    points, places, calibration = _points(depth, K, factor)
    pose = np.eye(4) if start is None else np.asarray(start, np.float64)
    if places.shape[1] < FEWEST:
        return pose
    for blur in BLURS:
        here, there = (ndimage.gaussian_filter(p, blur) for p in pictures)
        value = ndimage.map_coordinates(here, places[::-1], order=1, mode="nearest")
        pose = _align(there, value, points, calibration, pose)
    return pose


def _reduced(picture: Float[np.ndarray, "h w"], factor: int) -> Float[np.ndarray, "h w"]:
    """Means over cells of ``factor`` pixels a side."""
    height, width = (side // factor for side in picture.shape)
    cells = picture[: height * factor, : width * factor].reshape(height, factor, width, factor)
    reduced: np.ndarray = cells.mean((1, 3))
    return reduced


def _points(
    depth: Float[np.ndarray, "h w"], K: np.ndarray, factor: int
) -> tuple[Float[np.ndarray, "3 n"], Float[np.ndarray, "2 n"], Float[np.ndarray, "3 3"]]:
    """Points in space, their places in the reduced image, and its calibration."""
    y, x = np.nonzero(depth > 0)
    keep = np.random.default_rng(0).permutation(len(y))[:POINTS]
    y, x = y[keep], x[keep]
    points = np.linalg.inv(np.asarray(K, np.float64)) @ np.stack([x, y, np.ones(len(x))]) * depth[y, x]
    smaller = np.array([[1 / factor, 0, 0.5 / factor - 0.5], [0, 1 / factor, 0.5 / factor - 0.5], [0, 0, 1]])
    return points, (np.stack([x, y]) + 0.5) / factor - 0.5, smaller @ K


def _align(
    there: np.ndarray, value: np.ndarray, points: np.ndarray, K: np.ndarray, pose: np.ndarray
) -> Float[np.ndarray, "4 4"]:
    """Damped Gauss-Newton at one blur; a step that does not lower the cost is taken back and the damping grows."""
    slopes = np.gradient(there)
    damping, bias = 1e-3, 0.0
    matched = _residual(there, value, points, K, pose)
    if matched is None:
        return pose
    cost = _cost(matched[0] - bias)
    for _ in range(STEPS):
        residual, seen, moved, pixels = matched
        rows = _rows(slopes, pixels, moved, K)
        error = residual - bias
        scale = 1.5 * np.median(np.abs(error)) + 1e-4
        weight = np.minimum(1, scale / np.maximum(np.abs(error), 1e-9))
        normal = (rows * weight) @ rows.T
        step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), (rows * weight) @ error)
        new, shift = small_motion(step[:6]) @ pose, bias - step[6]
        trial = _residual(there, value, points, K, new)
        lower = trial is not None and trial[1].sum() > 0.7 * seen.sum() and _cost(trial[0] - shift) < cost
        if trial is None or not lower:
            damping *= 10
            continue
        gone = cost - _cost(trial[0] - shift)
        pose, bias, matched, damping = new, shift, trial, damping / 3
        cost -= gone
        if gone < 1e-3 * cost:
            break
    return pose


Residual = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # differences, which points, in space, in the image


def _residual(
    there: np.ndarray, value: np.ndarray, points: np.ndarray, K: np.ndarray, pose: np.ndarray
) -> Residual | None:
    """Differences of the points that fall into the neighbour; None if they are too few."""
    moved = pose[:3, :3] @ points + pose[:3, 3:]
    z = np.maximum(moved[2], 1e-6)
    x, y = K[0, 0] * moved[0] / z + K[0, 2], K[1, 1] * moved[1] / z + K[1, 2]
    height, width = there.shape
    seen = (moved[2] > 1e-3) & (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)
    if seen.sum() < FEWEST:
        return None
    pixels = np.stack([y[seen], x[seen]])
    return ndimage.map_coordinates(there, pixels, order=1) - value[seen], seen, moved[:, seen], pixels


def _rows(
    slopes: "list[np.ndarray] | tuple[np.ndarray, ...]", pixels: np.ndarray, moved: np.ndarray, K: np.ndarray
) -> Float[np.ndarray, "7 n"]:
    """How each difference changes with translation, rotation (about the moved camera) and, negated, brightness."""
    down, right = (ndimage.map_coordinates(s, pixels, order=1) for s in slopes)
    x, y, z = moved
    gx, gy = right * K[0, 0] / z, down * K[1, 1] / z
    gz = -(gx * x + gy * y) / z
    return np.stack([gx, gy, gz, gz * y - gy * z, gx * z - gz * x, gy * x - gx * y, np.ones_like(x)])


def _cost(error: np.ndarray) -> float:
    """Mean of Huber's function with a bend at three grey levels."""
    bend, size = 3 / 255, np.abs(error)
    return float(np.where(size < bend, size**2 / 2, bend * (size - bend / 2)).mean())
