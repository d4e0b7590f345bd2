"""Sparse points from dense depth, as sensors and visual odometry leave them.  Pure functions, seeded by the caller."""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Picture
from scipy import ndimage

from protodepth.errors import DataError, UnknownNameError
from protodepth.types import Float

Sampler = Callable[[np.ndarray, np.ndarray, int], np.ndarray]  # (image, depth, seed) -> sparse depth
SampleFunction = Callable[..., np.ndarray]


def luminance(image: Float[np.ndarray, "h w 3"]) -> Float[np.ndarray, "h w"]:
    """Grey values in [0, 1] of a uint8 or float image."""
    scale = 255.0 if image.dtype == np.uint8 else 1.0
    red, green, blue = (image[..., c].astype(np.float64) for c in range(3))
    return (0.299 * red + 0.587 * green + 0.114 * blue) / scale


def harris_response(grey: Float[np.ndarray, "h w"], sigma: float = 1.0, k: float = 0.04) -> Float[np.ndarray, "h w"]:
    r"""Corner strength :math:`\det M - k\,(\operatorname{tr} M)^2` of the structure tensor
    :math:`M = G_\sigma * \nabla I \nabla I^\top`.

    >>> step = np.zeros((16, 16)); step[8:, 8:] = 1.0
    >>> tuple(int(i) for i in np.unravel_index(harris_response(step).argmax(), step.shape)) in {(7, 7), (8, 8)}
    True
    """
    x, y = ndimage.sobel(grey, 1) / 8, ndimage.sobel(grey, 0) / 8
    xx, yy, xy = (ndimage.gaussian_filter(p, sigma) for p in (x * x, y * y, x * y))
    return xx * yy - xy * xy - k * (xx + yy) ** 2


def _keep(depth: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    sparse = np.zeros_like(depth, dtype=np.float32)
    sparse[rows, columns] = depth[rows, columns]
    return sparse


def _check(image: np.ndarray | None, depth: np.ndarray, count: int) -> None:
    if depth.ndim != 2 or (image is not None and image.shape[:2] != depth.shape):
        shape = None if image is None else image.shape
        raise DataError(
            f"expected depth h w and an image h w 3 of the same size, got depth {depth.shape}, image {shape}"
        )
    if count < 1:
        raise DataError(f"the number of sparse points must be at least 1, got {count}")


def harris(
    image: Float[np.ndarray, "h w 3"], depth: Float[np.ndarray, "h w"], count: int, rng: np.random.Generator
) -> Float[np.ndarray, "h w"]:
    """Depth at the ``count`` strongest Harris corners that have depth, at most one in any 3 x 3 window.

    An image with fewer corners gives fewer points.  Equal strengths are ordered by ``rng``.

    >>> image = np.random.default_rng(0).random((24, 32, 3))
    >>> int((harris(image, np.ones((24, 32)), 10, np.random.default_rng(1)) > 0).sum())
    10
    """
    _check(image, depth, count)
    strength = harris_response(luminance(image))
    peak = (strength == ndimage.maximum_filter(strength, 3)) & (strength > 0) & (depth > 0)
    rows, columns = np.nonzero(peak)
    order = np.lexsort((rng.random(len(rows)), -strength[rows, columns]))[:count]
    return _keep(depth, rows[order], columns[order])


def harris_grid(
    image: Float[np.ndarray, "h w 3"], depth: Float[np.ndarray, "h w"], count: int, rng: np.random.Generator
) -> Float[np.ndarray, "h w"]:
    """The strongest corner of each cell of a grid of about ``count`` cells,
    as trackers do that spread their features.
    """
    _check(image, depth, count)
    h, w = depth.shape
    across = max(1, round(np.sqrt(count * w / h)))
    down = max(1, round(count / across))
    strength = np.where(depth > 0, harris_response(luminance(image)), -np.inf)
    y, x = np.mgrid[:h, :w]
    cell = (y * down // h) * across + x * across // w
    order = np.lexsort((rng.random(h * w), -strength.ravel(), cell.ravel()))
    first = order[np.unique(cell.ravel()[order], return_index=True)[1]]
    first = first[np.isfinite(strength.ravel()[first])]
    return _keep(depth, first // w, first % w)


def uniform(
    image: Float[np.ndarray, "h w 3"] | None, depth: Float[np.ndarray, "h w"], count: int, rng: np.random.Generator
) -> Float[np.ndarray, "h w"]:
    """Depth at ``count`` pixels drawn evenly among those that have depth (all of them if there are fewer)."""
    _check(image, depth, count)
    rows, columns = np.nonzero(depth > 0)
    chosen = rng.permutation(len(rows))[:count]
    return _keep(depth, rows[chosen], columns[chosen])


def scan_lines(
    depth: Float[np.ndarray, "h w"],
    lines: int,
    rng: np.random.Generator,
    *,
    columns: int | None = None,
    dropout: float = 0.0,
) -> Float[np.ndarray, "h w"]:
    """Depth on ``lines`` evenly spaced image rows, at ``columns`` evenly spaced columns,
    each point lost with ``dropout``.

    A flat stand-in for a LiDAR that sits at the camera; the first row of the pattern is drawn by ``rng``.
    """
    _check(None, depth, lines)
    h, w = depth.shape
    step = h / lines
    rows = np.unique((rng.random() * step + step * np.arange(lines)).astype(int) % h)
    places = np.unique(np.linspace(0, w - 1, columns or w).round().astype(int))
    mask = np.zeros(depth.shape, bool)
    mask[np.ix_(rows, places)] = True
    mask &= rng.random(depth.shape) >= dropout
    return np.where(mask & (depth > 0), depth, 0).astype(np.float32)


def lines(
    image: Float[np.ndarray, "h w 3"] | None, depth: Float[np.ndarray, "h w"], count: int, rng: np.random.Generator
) -> Float[np.ndarray, "h w"]:
    """``count`` full rows of ``scan_lines``."""
    _check(image, depth, count)
    return scan_lines(depth, count, rng)


def holes(
    image: Float[np.ndarray, "h w 3"] | None, depth: Float[np.ndarray, "h w"], count: int, rng: np.random.Generator
) -> Float[np.ndarray, "h w"]:
    """The whole map without ``count`` holes: tilted ellipses and boxes about a tenth of the width across.

    What a depth camera leaves out on dark and shiny things.  Their centres have depth; at least half of it stays.

    >>> left = holes(None, np.ones((60, 80)), 3, np.random.default_rng(0))
    >>> bool(0.9 < (left > 0).mean() < 1)
    True
    """
    _check(image, depth, count)
    left = np.where(depth > 0, depth, 0).astype(np.float32)
    centres = np.argwhere(left > 0)
    fewest = len(centres) // 2
    for row, column in centres[rng.integers(len(centres), size=count)] if len(centres) else ():
        wide, high = np.maximum(1.0, 0.05 * depth.shape[1] * rng.uniform(0.6, 1.4, 2))
        angle, box = rng.uniform(0, np.pi), rng.random() < 0.5
        reach = math.ceil(math.hypot(wide, high))
        top, start = max(0, row - reach), max(0, column - reach)
        part = left[top : row + reach + 1, start : column + reach + 1]
        y, x = np.mgrid[: part.shape[0], : part.shape[1]] + np.array([top - row, start - column])[:, None, None]
        along, across = (np.cos(angle) * x + np.sin(angle) * y) / wide, (np.cos(angle) * y - np.sin(angle) * x) / high
        inside = (np.maximum(abs(along), abs(across)) if box else np.hypot(along, across)) <= 1
        if int((left > 0).sum() - (part[inside] > 0).sum()) >= fewest:
            part[inside] = 0
    return left


def clustered(
    image: Float[np.ndarray, "h w 3"], depth: Float[np.ndarray, "h w"], count: int, rng: np.random.Generator
) -> Float[np.ndarray, "h w"]:
    """Depth at ``count`` pixels crowded on the strongest edges of the image, none in a drawn third of its 4 x 3 parts.

    The hard case of visual odometry: the more contrast an edge has the more points, and large regions have none.

    >>> image = np.random.default_rng(0).random((24, 32, 3))
    >>> int((clustered(image, np.ones((24, 32)), 10, np.random.default_rng(1)) > 0).sum())
    10
    """
    _check(image, depth, count)
    h, w = depth.shape
    strength = ndimage.gaussian_gradient_magnitude(luminance(image), 1.0)
    blind = rng.permutation(12)[:4]
    y, x = np.mgrid[:h, :w]
    open_to = (depth > 0) & ~np.isin((y * 3 // h) * 4 + x * 4 // w, blind)
    rows, columns = np.nonzero(open_to if open_to.any() else depth > 0)
    weight = strength[rows, columns] ** 2 + 1e-12
    crowd = np.argsort(-weight, kind="stable")[: max(count, len(rows) // 10)]
    share = weight[crowd] / weight[crowd].sum() if len(crowd) else None
    chosen = crowd[rng.choice(len(crowd), min(count, len(crowd)), replace=False, p=share)] if len(crowd) else crowd
    return _keep(depth, rows[chosen], columns[chosen])


def tof(
    image: Float[np.ndarray, "h w 3"] | None, depth: Float[np.ndarray, "h w"], count: int, rng: np.random.Generator
) -> Float[np.ndarray, "h w"]:
    """A coarse time-of-flight sensor: ``count`` square zones across, of each the known pixel nearest to its centre.

    >>> np.argwhere(tof(None, np.ones((6, 9)), 3, np.random.default_rng(0)) > 0).tolist()
    [[1, 1], [1, 4], [1, 7], [4, 1], [4, 4], [4, 7]]
    """
    del rng
    _check(image, depth, count)
    h, w = depth.shape
    across, down = min(count, w), max(1, min(h, round(count * h / w)))
    rows, columns = np.nonzero(depth > 0)
    zone_y, zone_x = rows * down // h, columns * across // w
    off = np.hypot(rows + 0.5 - (zone_y + 0.5) * h / down, columns + 0.5 - (zone_x + 0.5) * w / across)
    order = np.lexsort((off, zone_y * across + zone_x))
    first = order[np.unique((zone_y * across + zone_x)[order], return_index=True)[1]]
    return _keep(depth, rows[first], columns[first])


def harris_uncle(
    image: Float[np.ndarray, "h w 3"], depth: Float[np.ndarray, "h w"], count: int, rng: np.random.Generator
) -> Float[np.ndarray, "h w"]:
    """The points of the published NYUv2 preparation:
    the 30 000 LOWEST Harris responses, thinned to ``count`` by k-means.

    The published script sorts upwards and so takes strong edges (negative responses), not corners.  Its seed is 1
    whatever the frame; ``rng`` is not used.
    """
    del rng
    _check(image, depth, count)
    cv2 = _opencv("harris_uncle")
    response = cv2.cornerHarris(luminance(image).astype(np.float32) * 255, blockSize=5, ksize=3, k=0.04)
    response[depth <= 0] = 0.0
    lowest = np.argsort(response, axis=None, kind="stable")[:30_000]
    points = np.stack(np.unravel_index(lowest, depth.shape), 1)
    rows, columns = _cluster(points, min(count, len(points))).astype(np.int64).T
    return _keep(np.maximum(depth, 0), rows, columns)


def _cluster(points: Float[np.ndarray, "n 2"], count: int) -> Float[np.ndarray, "k 2"]:
    try:
        from sklearn.cluster import MiniBatchKMeans
    except ImportError:
        raise DataError("the sampler harris_uncle needs scikit-learn: pip install 'protodepth[data]'") from None
    means = MiniBatchKMeans(n_clusters=count, max_iter=2, n_init=1, random_state=1, reassignment_ratio=1e-11)
    return means.fit(points).cluster_centers_


def fast(
    image: Float[np.ndarray, "h w 3"], depth: Float[np.ndarray, "h w"], count: int, rng: np.random.Generator
) -> Float[np.ndarray, "h w"]:
    """Depth at ``count`` FAST corners (threshold 1, no suppression) drawn evenly: the published ScanNet preparation."""
    _check(image, depth, count)
    points = _fast_points(image, "fast")
    points = points[depth[points[:, 1], points[:, 0]] > 0]
    columns, rows = points[rng.permutation(len(points))[:count]].T
    return _keep(depth, rows, columns)


def fast_protodepth(
    image: Float[np.ndarray, "H W 3"], depth: Float[np.ndarray, "h w"], count: int, rng: np.random.Generator
) -> Float[np.ndarray, "h w"]:
    """The points of ProtoDepth's own ScanNet script:
    FAST on the picture as stored, the map of them reduced to the depth's size.

    It takes every n-th pixel of that map and does not cut it like the depth, so that the points are not corners any
    more; of 7500 about 1600 stay.
    """
    _check(None, depth, count)
    points = _fast_points(image, "fast_protodepth")
    columns, rows = points[rng.permutation(len(points))[:count]].T
    (high, wide, _), (height, width) = image.shape, depth.shape
    mask = np.zeros((high, wide), bool)
    mask[rows, columns] = True
    down, across = np.arange(height) * high // height, np.arange(width) * wide // width
    return np.where(mask[np.ix_(down, across)] & (depth > 0), depth, 0).astype(np.float32)


def _fast_points(image: np.ndarray, sampler: str) -> np.ndarray:
    """(column, row) of all FAST corners: threshold 1, no suppression."""
    cv2 = _opencv(sampler)
    grey = np.rint(luminance(image) * 255).astype(np.uint8)
    corners = cv2.FastFeatureDetector_create(threshold=1, nonmaxSuppression=False).detect(grey)
    return np.array([p.pt for p in corners], np.int64).reshape(-1, 2)


def _opencv(sampler: str) -> Any:
    try:
        import cv2
    except ImportError:
        raise DataError(f"the sampler {sampler} needs OpenCV: pip install 'protodepth[data]'") from None
    return cv2


def _lidar_pattern(depth: Float[np.ndarray, "h w"], pattern: Float[np.ndarray, "ph pw"]) -> Float[np.ndarray, "h w"]:
    """Depth where a real scan has points, its pixel coordinates scaled to this image's size.

    >>> scan = np.zeros((4, 6)); scan[1, 2] = 7.0
    >>> np.argwhere(_lidar_pattern(np.ones((8, 12)), scan) > 0).tolist()
    [[2, 4]]
    """
    rows, columns = np.nonzero(pattern > 0)
    height, width = depth.shape
    rows, columns = rows * height // pattern.shape[0], columns * width // pattern.shape[1]
    return _keep(np.maximum(depth, 0), rows, columns)


@lru_cache(maxsize=8)
def _pattern_sampler(folder: Path) -> Sampler:
    """A sampler that takes the pattern of one real scan, drawn by the seed from the PNG files under ``folder``."""
    files = sorted(folder.rglob("*.png"))
    if not files:
        raise DataError(f"lidar_pattern:{folder} has no PNG files: give a folder of KITTI velodyne_raw maps")

    def sampler(image: np.ndarray, depth: np.ndarray, seed: int) -> np.ndarray:
        _check(image, depth, 1)
        with Picture.open(files[np.random.default_rng(seed).integers(len(files))], formats=("PNG",)) as picture:
            return _lidar_pattern(depth, np.asarray(picture))

    return sampler


SAMPLERS: Mapping[str, SampleFunction] = {
    "harris": harris,
    "harris_grid": harris_grid,
    "harris_uncle": harris_uncle,
    "fast": fast,
    "fast_protodepth": fast_protodepth,
    "uniform": uniform,
    "lines": lines,
    "scan_lines": lines,
    "holes": holes,
    "clustered": clustered,
    "tof": tof,
}
USUAL = {"holes": 12}  # what a sampler takes that is named without a count

STORED_IMAGE = ("fast_protodepth",)  # samplers that look at the picture before it is reduced and cut


def parse_sampler(text: str) -> Sampler:
    """The sampler of a text, as a function of (image, depth, seed).

    ``name:count``, ``name:share%`` (of the pixels with depth), ``holes`` alone, or ``lidar_pattern:folder``.

    >>> sampler = parse_sampler("uniform:5")
    >>> int((sampler(np.zeros((4, 6, 3)), np.ones((4, 6)), 0) > 0).sum())
    5
    >>> int((parse_sampler("uniform:25%")(np.zeros((4, 6, 3)), np.ones((4, 6)), 0) > 0).sum())
    6
    """
    name, colon, number = text.partition(":")
    if name == "lidar_pattern" and number:
        return _pattern_sampler(Path(number))
    if name not in SAMPLERS:
        raise UnknownNameError("sampler", name, (*SAMPLERS, "lidar_pattern"))
    if not colon and name in USUAL:
        number = str(USUAL[name])
    counted, draw = _count(text, number), SAMPLERS[name]

    def sampler(image: np.ndarray, depth: np.ndarray, seed: int) -> np.ndarray:
        return draw(image, depth, counted(depth), np.random.default_rng(seed))

    return sampler


def _count(text: str, number: str) -> Callable[[np.ndarray], int]:
    """How many points a sampler takes from a map: a whole number, or a share of the pixels with depth."""
    if number.isdigit() and int(number) >= 1:
        return lambda depth: int(number)
    share = number.removesuffix("%")
    try:
        percent = float(share) if number.endswith("%") else 0.0
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise DataError(
            "a sampler is written name:count with a whole count of at least 1, for example harris:1500, or name:share% "
            f"as uniform:5%; got {text!r}"
        )
    return lambda depth: max(1, round(percent / 100 * int((depth > 0).sum())))
