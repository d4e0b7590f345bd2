"""What the motion of a camera says about its recording: a stride with parallax, frames that stand still, units and
pose directions that do not warp.  NumPy only: it looks at a few thousand pixels of a few frames."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image as Picture
from scipy import ndimage

from protodepth.data.files.cameras import inverse, relative_pose
from protodepth.errors import DamagedFileError
from protodepth.types import Float

TARGET = 0.02  # wanted parallax between neighbours, as a share of the image width (13 px at 640)
OVERLAP = 0.85  # of the view of a frame, that its neighbours must share
STILL = 0.0015  # below this share (1 px at 640) two frames are the same view
STILL_GREY = 1.0 / 255  # mean grey difference of thumbnails below which two frames without poses are the same view
MAX_STRIDE = 30
BLOCK = 128  # pairs at once: their 768 rays fit into a processor's cache


def parallax(positions: Float[np.ndarray, "n 3"], stride: int, focal: float, depth: float) -> Float[np.ndarray, "m"]:
    r"""Image motion that depth causes between frames ``stride`` apart, :math:`f\,|t| / z`, in widths if f is f_x / w.

    Rotation is left out: it moves pixels but tells nothing about depth.
    """
    return focal * np.linalg.norm(positions[stride:] - positions[:-stride], axis=1) / depth


def overlap(
    poses: Float[np.ndarray, "n 4 4"], stride: int, focal: float, aspect: float, depth: float
) -> Float[np.ndarray, "m"]:
    """Share of a frame's view that the frame ``stride`` later sees, too: rotation and translation together.

    A grid of rays is cut off at ``depth`` and looked for in the other camera; ``focal`` in widths, ``aspect`` = h / w.
    NaN where a pose is.
    """
    pairs = (poses[:-stride], poses[stride:])
    count = len(pairs[0])
    blocks = [tuple(p[n : n + BLOCK] for p in pairs) for n in range(0, max(count, 1), BLOCK)]
    return np.concatenate([_overlap(here, there, focal, aspect, depth) for here, there in blocks])


def _overlap(
    here: Float[np.ndarray, "m 4 4"], there: Float[np.ndarray, "m 4 4"], focal: float, aspect: float, depth: float
) -> Float[np.ndarray, "m"]:
    x, y = np.meshgrid((np.arange(32) + 0.5) / 32 - 0.5, ((np.arange(24) + 0.5) / 24 - 0.5) * aspect)
    points = (np.stack([x.ravel() / focal, y.ravel() / focal, np.ones(x.size)]) * depth).astype(np.float32)
    back = np.swapaxes(there[:, :3, :3], 1, 2)
    moved = back @ (here[:, :3, 3:] - there[:, :3, 3:])
    seen = (back @ here[:, :3, :3]).astype(np.float32) @ points + moved.astype(np.float32)  # rays, no measurements
    x, y, z = abs(seen[:, 0]), abs(seen[:, 1]), seen[:, 2]
    inside = (focal * x <= 0.5 * z) & (focal * y <= aspect / 2 * z) & (z > 1e-9)
    known = np.isfinite(here).all((1, 2)) & np.isfinite(there).all((1, 2))
    return np.where(known, inside.mean(1), np.nan)


def choose_stride(
    poses: Float[np.ndarray, "n 4 4"], focal: float, depth: float, aspect: float = 0.75
) -> tuple[int, Float[np.ndarray, "m"]]:
    """The smallest stride whose median parallax over the moving frames reaches ``TARGET`` (at most 30 and n/4), and the
    overlap of its pairs.

    It stops before half of the pairs share less than ``OVERLAP`` of their view:
    a camera that turns has little parallax and is soon elsewhere.
    """
    positions = poses[:, :3, 3]
    limit = max(1, min(MAX_STRIDE, len(poses) // 4))
    before = None
    for stride in range(1, limit + 1):
        shared = overlap(poses, stride, focal, aspect, depth)
        if np.isfinite(shared).any() and np.nanmedian(shared) < OVERLAP:
            return (1, shared) if before is None else (stride - 1, before)
        moved = parallax(positions, stride, focal, depth)
        moved = moved[np.isfinite(moved) & (moved > STILL)]
        if moved.size and np.median(moved) >= TARGET:
            break
        before = shared
    return stride, shared


def still_by_pose(poses: Float[np.ndarray, "n 4 4"], stride: int, focal: float, depth: float) -> np.ndarray:
    """For each frame: neither neighbour ``stride`` away shows parallax (true also where a neighbour is missing)."""
    moved = parallax(poses[:, :3, 3], stride, focal, depth)
    return _from_pairs(np.nan_to_num(moved, nan=np.inf) > STILL, len(poses), stride)


def still_by_image(thumbnails: np.ndarray, stride: int) -> np.ndarray:
    """As ``still_by_pose``, from the mean grey difference of small pictures."""
    if len(thumbnails) <= stride:
        return np.ones(len(thumbnails), bool)
    difference = np.abs(thumbnails[stride:] - thumbnails[:-stride]).mean((1, 2))
    return _from_pairs(difference > STILL_GREY, len(thumbnails), stride)


def repeated(thumbnails: np.ndarray) -> np.ndarray:
    """Which frames show exactly what both of their neighbours show: no camera does, a recorder that hangs does."""
    same = (np.abs(np.diff(thumbnails, axis=0)) == 0).all((1, 2)) if len(thumbnails) > 1 else np.zeros(0, bool)
    inner = same[:-1] & same[1:]
    return np.concatenate([[False], inner, [False]]) if len(thumbnails) > 2 else np.zeros(len(thumbnails), bool)


def stride_by_image(thumbnails: np.ndarray) -> int:
    """The smallest stride at which half of the pairs differ by more than twice what counts as still (at most 30, n/4).

    Without poses it is all that can be seen of the motion; a video of 60 Hz has a larger stride than one of 10.
    """
    limit = max(1, min(MAX_STRIDE, len(thumbnails) // 4))
    for stride in range(1, limit + 1):
        difference = np.abs(thumbnails[stride:] - thumbnails[:-stride]).mean((1, 2))
        if np.isfinite(difference).any() and np.nanmedian(difference) > 2 * STILL_GREY:
            return stride
    return 1


def _from_pairs(moves: np.ndarray, count: int, stride: int) -> np.ndarray:
    still = np.ones(count, bool)
    inner = slice(stride, count - stride)
    if count > 2 * stride:
        still[inner] = ~(moves[:-stride] | moves[stride:])
    return still


def _thumbnail(path: Path, size: tuple[int, int] = (48, 64)) -> Float[np.ndarray, "h w"]:
    """A small grey picture in [0, 1]; JPEG files are decoded at reduced size, which is several times faster."""
    try:
        with Picture.open(path) as picture:
            picture.draft("L", (size[1] * 2, size[0] * 2))
            grey = picture.convert("L").resize(size[::-1], Picture.Resampling.BOX)
    except (OSError, SyntaxError, ValueError) as error:
        raise DamagedFileError(f"{path} cannot be decoded ({error}): truncated or damaged, copy it again") from None
    return np.asarray(grey, np.float32) / 255


def thumbnails(paths: Sequence[Path | None]) -> Float[np.ndarray, "n h w"]:
    """Small pictures of a recording's frames, decoded in threads; NaN where the path is None."""

    def small(path: Path | None) -> np.ndarray:
        return np.full((48, 64), np.nan, np.float32) if path is None else _thumbnail(path)

    with ThreadPoolExecutor(4) as pool:
        return np.stack(list(pool.map(small, paths))) if paths else np.empty((0, 48, 64), np.float32)


def grey(image: np.ndarray, blur: float = 1.5) -> Float[np.ndarray, "h w"]:
    """A recording's picture as slightly blurred luminance in [0, 1]: small misalignments still lower the error."""
    return ndimage.gaussian_filter(image.astype(np.float32).mean(-1) / 255, blur)


def warp_error(
    image: np.ndarray, neighbour: np.ndarray, depth: Float[np.ndarray, "h w"], pose: np.ndarray, K: np.ndarray
) -> float:
    """Mean grey difference between the pixels that have depth and the places the pose sends them to (Eq. 2).

    NaN when fewer than 50 of them land inside the neighbour.
    """
    return _grey_error(grey(image), grey(neighbour), depth, pose, K)


def _grey_error(
    image: np.ndarray, neighbour: np.ndarray, depth: Float[np.ndarray, "h w"], pose: np.ndarray, K: np.ndarray
) -> float:
    y, x = np.nonzero(depth)
    keep = np.random.default_rng(0).permutation(len(y))[:4000]
    y, x = y[keep], x[keep]
    points = np.linalg.inv(K) @ np.stack([x, y, np.ones(len(x))]) * depth[y, x]
    moved = K @ (pose[:3, :3] @ points + pose[:3, 3:])
    front = moved[2] > 1e-3
    u, v = moved[0][front] / moved[2][front], moved[1][front] / moved[2][front]
    height, width = depth.shape
    inside = (u >= 0) & (u <= width - 1) & (v >= 0) & (v <= height - 1)
    if inside.sum() < 50:
        return float("nan")
    there = ndimage.map_coordinates(neighbour, [v[inside], u[inside]], order=1)
    here = image[y[front][inside], x[front][inside]]
    return float(np.abs(there - here).mean())


# image, neighbour, stored depth numbers, T_t, T_tau, K
Pair = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def best_unit(pairs: Sequence[Pair], units: dict[str, float]) -> tuple[str, dict[str, float]] | None:
    """The unit under which depth and poses warp the neighbours best, if it is better than every other by 10 %."""

    def error(scale: float) -> float:
        return _median([warp_error(i, n, raw / scale, relative_pose(a, b), K) for i, n, raw, a, b, K in pairs])

    errors = {unit: error(scale) for unit, scale in units.items()}
    ranked = sorted(errors, key=lambda unit: errors[unit])
    if len(ranked) > 1 and errors[ranked[0]] < 0.9 * errors[ranked[1]]:
        return ranked[0], errors
    return None


def pose_readings(pairs: Sequence[Pair], scale: float) -> dict[str, float]:
    """Warp error under each way to read the poses: as given, inverted (world-to-camera), OpenGL axes, and no motion."""
    flip = np.diag([1.0, -1.0, -1.0, 1.0])
    readings: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "camera_to_world": lambda T: T,
        "world_to_camera": inverse,
        "opengl": lambda T: T @ flip,
        "still": lambda T: np.eye(4, dtype=T.dtype),
    }
    return {
        name: _median([warp_error(i, n, raw / scale, relative_pose(f(a), f(b)), K) for i, n, raw, a, b, K in pairs])
        for name, f in readings.items()
    }


FOCAL_FACTORS = (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.18, 1.25)
LEAST_FOCAL = 0.08  # a focal length nearer than this to the given one is within what poses and lenses leave open


def better_focal(pairs: Sequence[Pair], scale: float) -> tuple[float, float] | None:
    """(factor, share of the warp error that is gone) if another focal length fits depth and poses clearly better,
    else None.

    The usual cause: K is of the depth camera, the pictures are of the colour camera.  It must hold for three of four
    pairs, and in the middle of the view as well: a lens that is not undistorted has its own focal length there.
    """
    seen = [BlurredPair(pair, scale) for pair in pairs]
    errors = {factor: [view.error(focal=factor) for view in seen] for factor in FOCAL_FACTORS}
    best = min(errors, key=lambda factor: _median(errors[factor]))
    gone = _gone(errors[best], errors[1.0])
    if abs(best - 1) < LEAST_FOCAL or gone < 0.07 or _share_better(errors[best], errors[1.0]) < 0.75:
        return None
    middle = [[view.error(focal=factor, middle=True) for view in seen] for factor in (best, 1.0)]
    return (best, gone) if _gone(*middle) > 0.03 else None


class BlurredPair:
    """A pair whose pictures are made grey once and warped many times."""

    def __init__(self, pair: Pair, scale: float) -> None:
        image, neighbour, raw, self.here, self.there, self.K = pair
        self.image, self.neighbour = grey(image), grey(neighbour)
        self.depth = raw / scale

    def error(self, pose: np.ndarray | None = None, focal: float = 1.0, *, middle: bool = False) -> float:
        """As ``warp_error``, by the pair's own pose or another, with a focal length so many times the given one."""
        K, depth = self.K.copy(), self.depth
        K[0, 0], K[1, 1] = focal * K[0, 0], focal * K[1, 1]
        if middle:
            rows, columns = np.indices(depth.shape)
            radius = 0.25 * np.hypot(*depth.shape)
            depth = np.where(np.hypot(columns - K[0, 2], rows - K[1, 2]) < radius, depth, 0)
        return _grey_error(self.image, self.neighbour, depth, self.own if pose is None else pose, K)

    @property
    def own(self) -> Float[np.ndarray, "4 4"]:
        return relative_pose(self.here, self.there)


def _gone(errors: Sequence[float], before: Sequence[float]) -> float:
    """Share of the median error that is gone."""
    known = _median(before)
    return 1 - _median(errors) / known if 0 < known < np.inf else 0.0


def _share_better(errors: Sequence[float], before: Sequence[float]) -> float:
    both = [(e, b) for e, b in zip(errors, before, strict=True) if np.isfinite(e) and np.isfinite(b)]
    return float(np.mean([e < b for e, b in both])) if both else 0.0


MAX_LAG = 6  # frames by which poses may be early or late
LAG_GAIN = 0.2  # share of the warp error that must be gone; a wrong focal length is made up for by less


def pose_lag(
    pairs: Sequence[Pair], places: Sequence[tuple[int, int]], poses: Float[np.ndarray, "n 4 4"], scale: float
) -> tuple[int, float] | None:
    """(frames by which the poses come late, share of the warp error that is gone without), or None.

    ``places``: the numbers of each pair's frames.  A camera that moves evenly has the same motion at any lag: then none
    is better, and none does harm.
    """
    seen = [BlurredPair(pair, scale) for pair in pairs]
    now = [view.error() for view in seen]
    errors = {}
    for lag in (s for n in range(1, MAX_LAG + 1) for s in (n, -n)):
        moved = [_pose_at(poses, a + lag, b + lag) for a, b in places]
        errors[lag] = [np.nan if g is None else view.error(g) for view, g in zip(seen, moved, strict=True)]
    known = {lag: e for lag, e in errors.items() if np.isfinite(e).mean() > 0.7}
    best = min(known, key=lambda lag: _median(known[lag]), default=0)
    if not best:
        return None
    gone = _gone(known[best], now)
    return (best, gone) if gone > LAG_GAIN and _share_better(known[best], now) >= 0.75 else None


def _pose_at(poses: np.ndarray, a: int, b: int) -> Float[np.ndarray, "4 4"] | None:
    if not (min(a, b) >= 0 and max(a, b) < len(poses)) or not np.isfinite(poses[[a, b]]).all():
        return None
    return relative_pose(poses[a], poses[b])


Move = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # image, neighbour, depth, g_{tau t}, K


def move_readings(moves: Sequence[Move]) -> dict[str, float]:
    """Warp error of relative poses as given, turned round, with y and z negated (OpenGL), and without motion."""
    flip = np.diag([1.0, -1.0, -1.0, 1.0])
    readings: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "as given": lambda g: g,
        "turned round": inverse,
        "as opengl": lambda g: flip @ g @ flip,
        "left out (no motion)": lambda g: np.eye(4),
    }
    if not moves:
        return {}
    return {name: _median([warp_error(i, n, d, f(g), K) for i, n, d, g, K in moves]) for name, f in readings.items()}


def _median(values: Sequence[float]) -> float:
    finite = [v for v in values if np.isfinite(v)]
    return float(np.median(finite)) if finite else float("inf")
