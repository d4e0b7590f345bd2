"""Depth completion without learning: what a network must beat on the same points.

``nearest``        every pixel takes the depth of the nearest point
``linear``         linear on the triangles between the points, nearest outside of them
``morphological``  after the idea of IP-Basic (Ku et al. 2018): dilations of growing size in which the nearer surface
                   wins, columns extended upwards, then blurs
None of them looks at the image.
"""

from collections.abc import Callable

import numpy as np
from scipy import ndimage
from scipy.interpolate import LinearNDInterpolator
from scipy.spatial import QhullError

from protodepth.errors import DataError
from protodepth.registry import Registry
from protodepth.types import Float

Interpolation = Callable[[np.ndarray], np.ndarray]
completions: Registry[Interpolation] = Registry("classical method")


def _points(sparse: Float[np.ndarray, "h w"]) -> tuple[np.ndarray, np.ndarray]:
    """Depth with 0 where there is no point, and where there is one."""
    sparse = np.asarray(sparse, np.float64)
    if sparse.ndim != 2:
        raise DataError(f"a sparse depth map has two dimensions, got shape {sparse.shape}")
    valid = np.isfinite(sparse) & (sparse > 0)
    if not valid.any():
        raise DataError("the sparse depth map has no point: nothing can be interpolated")
    return np.where(valid, sparse, 0.0), valid


@completions.register("nearest")
def nearest(sparse: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """The depth of the nearest point (in pixels).

    >>> nearest(np.array([[2.0, 0.0, 0.0, 5.0]])).tolist()
    [[2.0, 2.0, 5.0, 5.0]]
    """
    depth, valid = _points(sparse)
    rows, columns = ndimage.distance_transform_edt(~valid, return_distances=False, return_indices=True)
    return depth[rows, columns]


@completions.register("linear")
def linear(sparse: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """Linear on the Delaunay triangles of the points; nearest outside of them, or where the points lie on one line.

    >>> z = np.zeros((3, 3)); z[0, 0], z[0, 2], z[2, 0] = 1, 3, 1
    >>> linear(z)[0].tolist()
    [1.0, 2.0, 3.0]
    """
    depth, valid = _points(sparse)
    filled = nearest(depth)
    # a point with eight known neighbours has no triangle beyond them: without it a dense map takes a tenth of the time
    matters = valid & ~ndimage.binary_erosion(valid, np.ones((3, 3), bool), border_value=1)
    if matters.sum() < 3:
        return filled
    try:
        surface = LinearNDInterpolator(np.argwhere(matters), depth[matters])
    except QhullError:  # all points on one line: there is no triangle
        return filled
    inside = surface(np.argwhere(~valid))
    filled[~valid] = np.where(np.isfinite(inside), inside, filled[~valid])
    return filled


def _diamond(size: int) -> np.ndarray:
    """
    >>> _diamond(3).astype(int).tolist()
    [[0, 1, 0], [1, 1, 1], [0, 1, 0]]
    """
    reach = np.abs(np.arange(size) - size // 2)
    return reach[:, None] + reach[None] <= size // 2


def _dilate(nearness: np.ndarray, footprint: np.ndarray, *, everywhere: bool = False) -> np.ndarray:
    """The largest nearness around each empty pixel (or each pixel); 0 is empty."""
    grown = ndimage.grey_dilation(nearness, footprint=footprint, mode="constant", cval=0.0)
    return grown if everywhere else np.where(nearness > 0, nearness, grown)


def _extend_upwards(nearness: np.ndarray) -> np.ndarray:
    """Above the topmost value of a column, that value: scanners see no sky and no tops of poles."""
    known = nearness > 0
    top = known.argmax(0)
    above = np.arange(nearness.shape[0])[:, None] < top[None]
    return np.where(above & known.any(0), nearness[top, np.arange(nearness.shape[1])][None], nearness)


def _blur(nearness: np.ndarray) -> np.ndarray:
    """Median against outliers, then a Gaussian within the surface."""
    return ndimage.gaussian_filter(ndimage.median_filter(nearness, size=5, mode="nearest"), 1.0, mode="nearest")


@completions.register("morphological")
def morphological(sparse: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """Points grow into surfaces; where two meet, the nearer one wins.

    >>> z = np.zeros((9, 9)); z[4, 4] = 3.0
    >>> bool(np.allclose(morphological(z), 3.0))
    True
    """
    depth, valid = _points(sparse)
    far = 1.1 * depth.max() + 1.0
    nearness = np.where(valid, far - depth, 0.0)  # a maximum is then the nearest surface, and 0 stays empty
    nearness = _dilate(nearness, _diamond(5), everywhere=True)
    nearness = ndimage.grey_closing(nearness, size=(5, 5), mode="constant", cval=0.0)
    nearness = _dilate(nearness, np.ones((7, 7), bool))
    nearness = _extend_upwards(nearness)
    while not (nearness > 0).all():
        nearness = _dilate(nearness, np.ones((31, 31), bool))
    return far - _blur(nearness)
