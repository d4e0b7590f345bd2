"""Arrays as pictures: depth and error in colour with colour bars, sparse points over the image, clouds, PNG and PLY.

Depth is in metres.  A pixel without depth (0, negative, NaN or infinite) is drawn in ``NO_DEPTH``.
"""

import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from protodepth.errors import DataError, UnknownNameError
from protodepth.storage import files
from protodepth.types import Float

Scale = Literal["linear", "log", "inverse"]
NO_DEPTH = (58, 60, 66)  # dark grey: in none of the maps in use
# Even steps look even, in grey and to eyes that do not tell red from green; turbo and jet do neither.
DEPTH_COLORMAP, ERROR_COLORMAP = "viridis", "inferno"
OFFERED = ("viridis", "cividis", "plasma", "inferno", "magma", "turbo", "gray")  # any map of matplotlib is taken
RIM = (48, 50, 54)  # of a sparse point's dot
PALE = 120  # what black becomes under sparse points: the dark end of a map must stand out


# --- colour -----------------------------------------------------------------------------------------------------------


def valid_depth(depth: Float[np.ndarray, "h w"]) -> np.ndarray:
    """Where a depth map has a depth: finite and above 0."""
    return np.isfinite(depth) & (depth > 0)


def limits(depths: Iterable[Float[np.ndarray, "h w"]]) -> tuple[float, float, Scale]:
    """Limits for the colours of depth: the 1st and 99th percentile; logarithmic where they differ more than eightfold.

    >>> limits([np.full((2, 2), 4.0), np.full((2, 2), 1.0)])
    (1.0, 4.0, 'linear')
    """
    parts = [d[valid_depth(d)].ravel() for d in depths]
    values = np.concatenate(parts) if parts else np.empty(0)
    if not values.size:
        return 0.1, 1.0, "linear"
    low, high = (float(v) for v in np.percentile(values, [1, 99]))
    high = high if high > 1.001 * low else 1.1 * low
    return low, high, "log" if high > 8 * low else "linear"


def share(values: np.ndarray, low: float, high: float, scale: Scale = "linear") -> np.ndarray:
    """For colours: where values lie between low (0) and high (1); clipped.

    >>> share(np.array([1.0, 10.0, 100.0]), 1, 100, "log").tolist()
    [0.0, 0.5, 1.0]
    """
    if not high > low or (scale != "linear" and low <= 0):
        raise DataError(f"a {scale} colour scale from {low:g} to {high:g} is not possible: give 0 < low < high")
    line = np.stack([np.clip(np.asarray(values, np.float64), low, high), *np.broadcast_arrays(low, high, values)[:2]])
    if scale != "linear":
        line = np.log(line) if scale == "log" else -1 / line
    return (line[0] - line[1]) / (line[2] - line[1])


def palette(cmap: str = DEPTH_COLORMAP) -> Float[np.ndarray, "256 3"]:
    """uint8 colours of a matplotlib map in rows 1 to 255; row 0 is ``NO_DEPTH``."""
    import matplotlib

    if cmap not in matplotlib.colormaps:
        raise UnknownNameError("colormap", cmap, OFFERED)
    colours = (matplotlib.colormaps[cmap](np.linspace(0, 1, 255))[:, :3] * 255 + 0.5).astype(np.uint8)
    return np.concatenate([np.array([NO_DEPTH], np.uint8), colours])


def levels(values: np.ndarray, valid: np.ndarray, low: float, high: float, scale: Scale = "linear") -> np.ndarray:
    """Rows of a palette: 1 to 255 between low and high, 0 where not valid."""
    safe = np.where(valid, values, high)
    return np.where(valid, 1 + np.rint(254 * share(safe, low, high, scale)), 0).astype(np.uint8)


def colorize(
    depth: Float[np.ndarray, "h w"], low: float, high: float, cmap: str = DEPTH_COLORMAP, *, scale: Scale = "linear"
) -> Float[np.ndarray, "h w 3"]:
    """uint8 colours; beyond low and high the end colours, ``NO_DEPTH`` where there is no depth.

    >>> colorize(np.array([[0.0, 1.0, 80.0]]), 1, 80, scale="log")[0, 0].tolist() == list(NO_DEPTH)
    True
    """
    return palette(cmap)[levels(depth, valid_depth(depth), low, high, scale)]


def absolute_error(
    prediction: Float[np.ndarray, "h w"], truth: Float[np.ndarray, "h w"]
) -> tuple[np.ndarray, np.ndarray]:
    """(error in metres, where it is known)."""
    if prediction.shape != truth.shape:
        raise DataError(
            f"prediction has shape {prediction.shape}, ground truth {truth.shape}: they must be of one size"
        )
    known = valid_depth(truth) & np.isfinite(prediction)
    return np.where(known, np.abs(np.where(known, prediction, 0) - np.where(known, truth, 0)), 0), known


def error_map(
    prediction: Float[np.ndarray, "h w"], truth: Float[np.ndarray, "h w"], high: float, cmap: str = ERROR_COLORMAP
) -> Float[np.ndarray, "h w 3"]:
    """uint8 colours of :math:`|\\hat d - d|` from 0 to ``high`` metres; ``NO_DEPTH`` where ground truth is unknown."""
    error, known = absolute_error(prediction, truth)
    return palette(cmap)[levels(error, known, 0, high)]


# --- raster files -----------------------------------------------------------------------------------------------------


def png(picture: Float[np.ndarray, "h w 3"]) -> bytes:
    """A picture as the bytes of a PNG file."""
    out = io.BytesIO()
    Pillow.fromarray(picture).save(out, "PNG", optimize=True)
    return out.getvalue()


def palette_png(rows: Float[np.ndarray, "h w"], colours: Float[np.ndarray, "256 3"]) -> bytes:
    """A PNG of one byte a pixel: a third of the size of the same picture in full colour."""
    picture = Pillow.fromarray(rows)
    picture.putpalette(colours.tobytes())
    out = io.BytesIO()
    picture.save(out, "PNG", optimize=True)
    return out.getvalue()


def jpeg(picture: Float[np.ndarray, "h w 3"], quality: int = 88) -> bytes:
    """A picture as the bytes of a JPEG file."""
    out = io.BytesIO()
    Pillow.fromarray(picture).save(out, "JPEG", quality=quality, subsampling=0)
    return out.getvalue()


def as_uint8(image: np.ndarray) -> Float[np.ndarray, "h w 3"]:
    """A picture as uint8: as it is, or from floats in [0, 1]."""
    return image if image.dtype == np.uint8 else (np.clip(image, 0, 1) * 255 + 0.5).astype(np.uint8)


def enlarge(picture: np.ndarray, factor: int) -> np.ndarray:
    """Every pixel of a picture as a square of ``factor`` x ``factor`` pixels."""
    return picture.repeat(factor, 0).repeat(factor, 1)


def sparse_overlay(
    image: Float[np.ndarray, "h w 3"],
    sparse: Float[np.ndarray, "h w"],
    low: float,
    high: float,
    *,
    scale: Scale = "linear",
    cmap: str = DEPTH_COLORMAP,
) -> Float[np.ndarray, "H W 3"]:
    """The image pale and without colour, each sparse point a dot in the colour of its depth, near points on top.

    Small images are enlarged (to about 384 pixels in width) so that a dot is wider than its pixel.
    """
    factor = max(1, round(384 / image.shape[1]))
    spacing = factor * math.sqrt(sparse.size / max(1, int(valid_depth(sparse).sum())))
    widest = max(2.0, 0.8 * factor, image.shape[1] / 170)  # a large picture is shown smaller
    radius = max(1.0, min(0.3 * spacing, widest))  # dots of a dense sensor must not touch
    grey = as_uint8(image).astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)
    out = enlarge(np.repeat((PALE + (1 - PALE / 255) * grey)[..., None], 3, -1), factor).astype(np.uint8)
    y, x = np.nonzero(valid_depth(sparse))
    order = np.argsort(-sparse[y, x], kind="stable")
    y, x = y[order], x[order]
    colours = colorize(sparse[y, x][None], low, high, cmap, scale=scale)[0] if len(y) else np.empty((0, 3), np.uint8)
    outer = radius + 1 if radius >= 2 else radius  # a dark rim: yellow on white would not be seen
    reach = int(outer)
    dy, dx = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    distance = dy * dy + dx * dx
    disc = distance <= outer * outer
    rows = np.clip(y[:, None] * factor + factor // 2 + dy[disc], 0, out.shape[0] - 1)
    columns = np.clip(x[:, None] * factor + factor // 2 + dx[disc], 0, out.shape[1] - 1)
    inside = (distance[disc] <= radius * radius)[None, :, None]
    # of several values for one pixel the last stays: the nearest point's
    out[rows, columns] = np.where(inside, colours[:, None], np.array(RIM, np.uint8))
    return out


def ticks(low: float, high: float, scale: Scale = "linear", most: int = 6) -> list[float]:
    """Numbers beside a colour bar, round ones between low and high: 1, 2, 5 times powers of ten.

    >>> ticks(0, 2.3), ticks(2, 80, "log")
    ([0.0, 0.5, 1.0, 1.5, 2.0], [2.0, 5.0, 10.0, 20.0, 50.0])
    """
    span = high - low
    if scale != "linear" and low > 0:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        values = [
            float(f"{m}e{p}") for p in powers for m in (1, 2, 5) if low * 0.999 <= float(f"{m}e{p}") <= high * 1.001
        ]
        if 2 <= len(values) <= most:
            return values
    base = 10 ** math.floor(math.log10(span / most))
    step = next(s * base for s in (1, 2, 5, 10) if span / (s * base) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{n * step:.6g}") for n in range(first, last + 1)]


def depth_picture(
    depth: Float[np.ndarray, "h w"],
    *,
    low: float | None = None,
    high: float | None = None,
    unit: str = "m",
    scale: Scale | None = None,
    cmap: str = DEPTH_COLORMAP,
) -> bytes:
    """PNG: the depth map in colour with a colour bar and its numbers.  Limits not given are taken from the map."""
    span = limits([depth])
    low, high = span[0] if low is None else low, span[1] if high is None else high
    scale = scale or ("log" if low > 0 and high > 8 * low else "linear")
    factor = max(1, math.ceil(480 / depth.shape[1]))
    picture = enlarge(colorize(depth, low, high, cmap, scale=scale), factor)
    height, width = picture.shape[:2]
    size = max(13, width // 36)
    font = ImageFont.load_default(size)
    canvas = Pillow.new("RGB", (width + 7 * size, max(height, 6 * size)), "white")
    canvas.paste(Pillow.fromarray(picture), (0, 0))
    top, bottom, left = size, canvas.height - size, width + size
    colours = palette(cmap)[np.linspace(255, 1, bottom - top).astype(int)]
    canvas.paste(Pillow.fromarray(colours[:, None].repeat(size, 1)), (left, top))
    draw = ImageDraw.Draw(canvas)
    for value in ticks(low, high, scale, most=min(6, (bottom - top) // (2 * size))):
        y = round(bottom - float(share(np.array(value), low, high, scale)) * (bottom - top))
        draw.line([(left + size, y), (left + size + 4, y)], fill="black", width=2)
        draw.text((left + size + 8, y), f"{value:g} {unit}", fill="black", font=font, anchor="lm")
    out = io.BytesIO()
    canvas.save(out, "PNG", optimize=True)
    return out.getvalue()


# --- points -----------------------------------------------------------------------------------------------------------


def point_cloud(
    depth: Float[np.ndarray, "h w"],
    image: Float[np.ndarray, "h w 3"],
    intrinsics: Float[np.ndarray, "3 3"],
    max_points: int | None = None,
) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "n 3"]]:
    r"""(xyz float32, rgb uint8) of the pixels with depth: :math:`K^{-1} \bar x\, d(x)`, x right, y down, z forward.

    Above ``max_points`` every s-th row and column is taken.

    >>> xyz, rgb = point_cloud(np.full((2, 3), 2.0), np.zeros((2, 3, 3), np.uint8), np.eye(3))
    >>> xyz[-1].tolist(), rgb.shape
    ([4.0, 2.0, 2.0], (6, 3))
    """
    h, w = depth.shape
    if image.shape[:2] != (h, w):
        raise DataError(f"image has shape {image.shape}, depth {depth.shape}: they must be of one size")
    stride = stride_for((h, w), max_points)
    y, x = np.mgrid[stride // 2 : h : stride, stride // 2 : w : stride]
    d = np.asarray(depth, np.float64)[y, x]
    ok = valid_depth(d)
    pixels = np.stack([x[ok], y[ok], np.ones(ok.sum())])
    xyz = (np.linalg.inv(np.asarray(intrinsics, np.float64)) @ pixels * d[ok]).T
    return xyz.astype(np.float32), as_uint8(image)[y[ok], x[ok]]


def stride_for(size: tuple[int, int], max_points: int | None) -> int:
    """Of a point cloud: the smallest step between rows and columns that leaves at most ``max_points`` pixels."""
    return (
        1
        if max_points is None
        else next(
            s
            for s in range(1, max(size) + 1)
            if len(range(s // 2, size[0], s)) * len(range(s // 2, size[1], s)) <= max(1, max_points)
        )
    )


def ply(xyz: Float[np.ndarray, "n 3"], rgb: Float[np.ndarray, "n 3"]) -> bytes:
    """A binary coloured PLY (metres, camera frame).

    >>> ply(np.zeros((2, 3), np.float32), np.zeros((2, 3), np.uint8)).splitlines()[2]
    b'element vertex 2'
    """
    rows = np.empty(len(xyz), [("xyz", "<f4", 3), ("rgb", "u1", 3)])
    rows["xyz"], rows["rgb"] = xyz, rgb
    properties = [f"property float {a}" for a in "xyz"] + [f"property uchar {c}" for c in ("red", "green", "blue")]
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {len(xyz)}", *properties, "end_header", ""]
    return "\n".join(header).encode() + rows.tobytes()


def save_ply(
    path: str | Path,
    depth: Float[np.ndarray, "h w"],
    image: Float[np.ndarray, "h w 3"],
    intrinsics: Float[np.ndarray, "3 3"],
    max_points: int | None = None,
) -> int:
    """Write a binary coloured PLY (metres, camera frame); returns the number of points."""
    xyz, rgb = point_cloud(depth, image, intrinsics, max_points)
    files.write_bytes(Path(path), ply(xyz, rgb))
    return len(xyz)
