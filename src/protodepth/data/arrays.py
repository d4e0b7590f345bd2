"""From a user's arrays to a Batch of one or several frames, with every check that the inside need not repeat."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from protodepth.errors import DataError
from protodepth.types import Batch, Float

NARROWEST = 1e-3  # focal length in sides of the picture: it would see all but a tenth of a degree of what is before it


def as_numpy(value: Any, what: str) -> np.ndarray:
    """A user's array, tensor or list as a NumPy array of numbers; anything else is refused by name."""
    if value is None:
        raise DataError(f"{what} is missing")
    if isinstance(value, np.ma.MaskedArray):
        value = value.filled(0)
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()  # NumPy has no bfloat16
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{what} cannot be read as an array: {error}") from None
    if array.dtype.kind not in "uifb":
        raise DataError(f"{what} has type {array.dtype}, expected numbers")
    return array


def image_array(image: Any) -> Float[np.ndarray, "h w 3"]:
    """HxWx3 (or grey, HxW or HxWx1, or HxWx4 with alpha dropped), uint8 or float in [0, 1] -> float32 in [0, 1].

    Channels may also come first, as is usual for tensors.
    """
    array = as_numpy(image, "image")
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[-1] not in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    if array.ndim == 2 or (array.ndim == 3 and array.shape[-1] == 1):
        array = np.repeat(array.reshape(*array.shape[:2], 1), 3, axis=-1)
    if array.ndim != 3 or array.shape[-1] not in (3, 4):
        raise DataError(f"image has shape {array.shape}, expected (height, width, 3)")
    array = array[..., :3]
    if array.dtype == np.uint8:
        return array.astype(np.float32) / 255
    array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise DataError("image has NaN or infinite values: expected uint8, or floats in [0, 1]")
    if array.size and (array.min() < 0 or array.max() > 1):
        top = 65535 if array.max() > 255 else 255
        raise DataError(
            f"image has values from {array.min():g} to {array.max():g}: expected uint8, or floats in [0, "
            f"1] (divide by {top})"
        )
    return array


def size_fault(depth: tuple[int, int], picture: tuple[int, int]) -> str | None:
    """Why a depth map of one (height, width) cannot belong to a picture of another, and what to do; None if it can.

    >>> size_fault((240, 320), (480, 640))
    'is 320x240, its picture 640x480: make the picture 320x240 and divide the intrinsics by 2; depth cannot be enlarged'
    """
    if depth == picture:
        return None
    (h, w), (height, width) = depth, picture
    sizes = f"is {w}x{h}, its picture {width}x{height}"
    if (h, w) == (width, height):
        turn = "(phones store it lying and say so in EXIF, which only some programs follow)"
        return f"{sizes}: one of them is turned by 90 degrees {turn}: store both the same way round"
    if h < height and abs(width / w - height / h) < 0.01 * height / h:
        remedy = f"make the picture {w}x{h} and divide the intrinsics by {height / h:.4g}"
        return f"{sizes}: {remedy}; depth cannot be enlarged"
    return f"{sizes}: expected one size; project the points into the picture again"


def sparse_array(sparse_depth: Any, size: tuple[int, int]) -> Float[np.ndarray, "h w"]:
    """HxW metres; 0, negative-free; NaN means no point."""
    array = as_numpy(sparse_depth, "sparse depth")
    if array.dtype.kind == "b":
        raise DataError("sparse depth is a mask of true and false: expected metres, with 0 where there is no point")
    array = array[..., 0] if array.ndim == 3 and array.shape[-1] == 1 else array
    array = array[0] if isinstance(sparse_depth, Tensor) and array.ndim == 3 and array.shape[0] == 1 else array
    if array.shape != size:
        is_map = array.ndim == 2 and array.shape[1] > 4  # a list of points has two, three or four columns
        why = f"; it {size_fault((array.shape[0], array.shape[1]), size)}" if is_map else ""
        expected = f"expected a map of {size} like the image, in metres, with 0 where there is no point"
        raise DataError(f"sparse depth has shape {array.shape}, {expected}{why}")
    array = np.nan_to_num(array.astype(np.float32), nan=0.0, posinf=np.inf, neginf=-np.inf)
    if np.isinf(array).any() or (array < 0).any():
        raise DataError(
            f"sparse depth has {int((array < 0).sum())} negative and {int(np.isposinf(array).sum())} infinite values: "
            "expected metres, with 0 or NaN where there is no point; set those to 0"
        )
    if not (array > 0).any():
        raise DataError("sparse depth has no points (all 0 or NaN): at least one is needed to fix the scale")
    return array


def intrinsics_array(intrinsics: Any, size: tuple[int, int]) -> Float[np.ndarray, "3 3"]:
    """3x3, or (fx, fy, cx, cy), in pixels of the given image; of 3x4 and 4x4 the left upper part."""
    array = as_numpy(intrinsics, "intrinsics").astype(np.float64)
    if array.shape == (4,):
        fx, fy, cx, cy = array
        array = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    array = array[:3, :3] if array.shape in ((3, 4), (4, 4)) else array
    if array.shape != (3, 3):
        raise DataError(f"intrinsics have shape {array.shape}, expected (3, 3) or four numbers fx, fy, cx, cy")
    if not np.isfinite(array).all() or array[0, 0] <= 0 or array[1, 1] <= 0:
        raise DataError(
            f"intrinsics must be finite with positive focal lengths, got fx={array[0, 0]:g}, fy={array[1, 1]:g}"
        )
    if not np.allclose([array[1, 0], array[2, 0], array[2, 1], array[2, 2] - 1], 0, atol=1e-6):
        raise DataError(
            "intrinsics must be upper triangular with 1 in the corner: is the matrix transposed, or a 4x4 cut wrongly?"
        )
    if abs(array[0, 1]) > array[0, 0] or np.abs(array).max() > 1e6:
        raise DataError(f"no camera has the intrinsics {array.tolist()}: expected pixels, and a skew near 0")
    height, width = size
    if array[0, 0] < 2 and array[0, 2] <= 1:
        raise DataError(
            f"intrinsics look normalised (fx={array[0, 0]:g}): expected pixels; "
            f"multiply rows by width {width} and height {height}"
        )
    if min(array[0, 0], array[1, 1]) < NARROWEST * max(size):
        raise DataError(
            f"no camera of {width}x{height} pixels has fx={array[0, 0]:g}, fy={array[1, 1]:g}: expected pixels of the "
            "stored images"
        )
    if not (-width < array[0, 2] < 2 * width and -height < array[1, 2] < 2 * height):
        raise DataError(
            f"principal point ({array[0, 2]:g}, {array[1, 2]:g}) does not fit an image of {width}x{height}: "
            "are the intrinsics of another resolution?"
        )
    return array


def to_batch(image: Any, sparse_depth: Any, intrinsics: Any) -> Batch:
    """One frame of arrays as a batch of one.

    >>> b = to_batch(np.zeros((8, 9, 3), np.uint8), np.eye(8, 9), (9, 9, 4, 4))
    >>> tuple(b.image.shape), tuple(b.sparse_depth.shape)
    ((1, 3, 8, 9), (1, 1, 8, 9))
    """
    picture = image_array(image)
    size = (picture.shape[0], picture.shape[1])
    if min(size) < 8:
        raise DataError(f"image is {size[1]}x{size[0]} pixels, expected at least 8x8")
    points, K = sparse_array(sparse_depth, size), intrinsics_array(intrinsics, size)
    return Batch(
        image=torch.from_numpy(np.ascontiguousarray(picture.transpose(2, 0, 1)))[None],
        sparse_depth=torch.from_numpy(points)[None, None],
        intrinsics=torch.from_numpy(K.astype(np.float32))[None],
    )


def to_batches(images: Sequence[Any], sparse_depths: Sequence[Any], intrinsics: Sequence[Any]) -> Batch:
    """Several frames of one size as one batch."""
    return join([to_batch(*frame) for frame in zip(images, sparse_depths, intrinsics, strict=True)])


def join(singles: Sequence[Batch]) -> Batch:
    """Batches of frames to predict, all of one size, as one batch."""
    sizes = {b.size for b in singles}
    if len(sizes) != 1:
        raise DataError(f"the frames of a batch must have one size, got {sorted(sizes)}")
    return Batch(
        image=torch.cat([b.image for b in singles]),
        sparse_depth=torch.cat([b.sparse_depth for b in singles]),
        intrinsics=torch.cat([b.intrinsics for b in singles]),
    )
