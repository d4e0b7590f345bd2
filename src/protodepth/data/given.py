"""Whatever a user has at hand as a Batch: arrays, tensors, PIL images, paths, a Frame, channels first, or several."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from protodepth.data import arrays
from protodepth.data.files import cameras, images
from protodepth.data.frame import Frame
from protodepth.errors import DataError
from protodepth.types import Batch

Triple = tuple[Any, Any, Any]


def read(image: Any, sparse_depth: Any, intrinsics: Any, unit: str | None = None) -> tuple[Batch, bool]:
    """Whatever a user has at hand as a batch, and whether several frames were given (a list, a batch) or one.

    >>> batch, several = read(np.zeros((3, 8, 9), np.uint8), np.eye(8, 9), "9,9,4,4")
    >>> tuple(batch.image.shape), several
    ((1, 3, 8, 9), False)
    """
    if isinstance(image, Batch):
        return image, True
    if not _is_several(image):
        return arrays.to_batch(*_frame_arrays(image, sparse_depth, intrinsics, unit)), False
    frames = [_frame_arrays(*row, unit) for row in _rows(image, sparse_depth, intrinsics)]
    return arrays.to_batches(*zip(*frames, strict=True)), True


def _is_several(image: Any) -> bool:
    if isinstance(image, list | tuple):
        if not image:
            raise DataError("no frames were given: expected one at least")
        return isinstance(image[0], Frame | str | Path) or len(_shape(image[0])) != 1 or hasattr(image[0], "convert")
    return getattr(image, "ndim", 0) == 4


def _rows(image: Any, sparse_depth: Any, intrinsics: Any) -> Iterable[Triple]:
    """Each frame of several; one camera may serve all of them."""
    count = len(image)
    one = count == 1 and getattr(sparse_depth, "ndim", 0) == 2  # a batch of one picture, and its map
    points = [None] * count if sparse_depth is None else [sparse_depth] if one else _each(sparse_depth, "sparse depth")
    own = getattr(intrinsics, "ndim", 0) == 3 or (
        isinstance(intrinsics, list | tuple) and len(intrinsics) > 0 and not np.isscalar(intrinsics[0])
    )
    each = own and _shape(intrinsics) != (3, 3)  # a matrix written as lists is one camera
    K = _each(intrinsics, "intrinsics") if each else [intrinsics] * count
    if not count == len(points) == len(K):
        raise DataError(f"{count} images, {len(points)} sparse maps and {len(K)} cameras: expected as many of each")
    return zip(image, points, K, strict=True)


def _shape(value: Any) -> tuple[int, ...]:
    """As NumPy sees it; lists of lists that differ in length have none."""
    try:
        return np.shape(value)
    except ValueError as error:
        raise DataError(f"lists of numbers that are no array: {error}") from None


def _each(value: Any, what: str) -> list[Any]:
    try:
        return list(value)
    except TypeError:
        kind = type(value).__name__
        raise DataError(f"several images were given, and as {what} a {kind}: expected one for each image") from None


def _frame_arrays(image: Any, sparse_depth: Any, intrinsics: Any, unit: str | None) -> Triple:
    """Image, metres and K of one frame, as ``arrays`` takes them."""
    if isinstance(image, Frame):
        return (
            image.image,
            image.sparse_depth if sparse_depth is None else _in_metres(sparse_depth, unit),
            image.intrinsics if intrinsics is None else _camera(intrinsics),
        )
    if sparse_depth is None or intrinsics is None:
        missing = "sparse depth" if sparse_depth is None else "intrinsics"
        raise DataError(f"{missing} is missing: give image, sparse depth and intrinsics, or a Frame")
    return _picture(image), _in_metres(sparse_depth, unit), _camera(intrinsics)


def _picture(image: Any) -> Any:
    if isinstance(image, str | Path):
        return images.read_image(Path(image))
    if hasattr(image, "convert"):  # a PIL image
        return images.rgb_array(image, "image")
    return image


def _in_metres(sparse_depth: Any, unit: str | None) -> Any:
    """Metres.  Whole numbers are millimetres, KITTI's or another sensor's steps: only ``unit`` can tell."""
    if isinstance(sparse_depth, str | Path):
        values = images.raw_depth(Path(sparse_depth))
        unit = "metres" if values.dtype.kind == "f" else unit
    else:
        values = arrays.as_numpy(sparse_depth, "sparse depth")
    if values.ndim == 3 and 3 in (values.shape[0], values.shape[-1]):
        raise DataError(
            f"sparse depth has shape {values.shape}, that of a picture: the order is image, sparse depth, intrinsics"
        )
    values = images.without_largest(values) if values.dtype.kind in "ui" else values
    if values.dtype.kind in "ui" and unit is None and values.any():
        top = int(values.max()) if values.size else 0
        raise DataError(
            f"sparse depth holds whole numbers (up to {top}), which may be millimetres, value/256 or metres: "
            'say which, unit="mm", "kitti", "m" or the number of steps in a metre; or give metres as floats'
        )
    if values.ndim == 3 and 1 in (values.shape[0], values.shape[-1]):
        values = values[0] if values.shape[0] == 1 else values[..., 0]
    if unit is None:
        return sparse_depth if isinstance(sparse_depth, Tensor) and sparse_depth.ndim == 2 else values
    return images.metres(values, unit, "sparse depth")


def _camera(intrinsics: Any) -> Any:
    if isinstance(intrinsics, Mapping):
        return cameras.named_intrinsics(intrinsics, "intrinsics")
    return cameras.parse_intrinsics(str(intrinsics), "intrinsics") if isinstance(intrinsics, str | Path) else intrinsics
