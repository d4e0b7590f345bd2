"""Pictures and depth maps in files: names, sizes, units, what a folder of them holds. Depth is in metres, 0 unknown.

A 16-bit PNG carries no unit.  ``UNITS`` names the ones in use; ``guess_unit`` decides between the two common ones
(KITTI's value/256 and millimetres) only where the values leave no doubt, and says so.
"""

import io
import logging
import math
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image as Picture
from PIL import UnidentifiedImageError

from protodepth.data.files.names import natural_key
from protodepth.data.files.quiet import without_lines
from protodepth.data.files.text import load_array
from protodepth.errors import (
    ConfigError,
    DamagedFileError,
    DataError,
    MissingFileError,
    NegativeDepthError,
    ShallowDepthError,
    UnknownNameError,
)
from protodepth.storage.files import write_bytes
from protodepth.storage.space import check_memory
from protodepth.types import Float

logger = logging.getLogger("protodepth")

LARGEST = 65535
UNITS: dict[str, float] = {"kitti": 256.0, "mm": 1000.0, "cm": 100.0, "tum": 5000.0, "metres": 1.0}  # steps a metre
SPELLED = {
    "m": "metres",
    **dict.fromkeys(("metre", "meter", "meters"), "metres"),
    **dict.fromkeys(("millimetres", "millimetre", "millimeters", "millimeter"), "mm"),
    **dict.fromkeys(("centimetres", "centimetre", "centimeters", "centimeter"), "cm"),
}
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".ppm", ".bmp", ".webp", ".tif", ".tiff")
DEPTH_SUFFIXES = (".png", ".npy", ".exr", ".pgm", ".tif", ".tiff")
ARRAY_SUFFIXES = (".npy", ".exr")  # not pictures; fractions in them are metres
_FORMATS = ("PNG", "JPEG", "PPM", "BMP", "WEBP", "TIFF")  # Pillow knows many more; files come from strangers
_DECODED, _SMALL = 13, 4_000_000  # bytes of memory for a pixel, from decoder to array; pixels not worth a question
_DEEP_MODES = ("I", "I;16", "I;16B", "I;16L", "F")
_DEEP = "{name} is a {mode} picture, expected 8-bit colour: is it a depth map?  Save a picture of more bits with 8"
_SHALLOW = (
    "{path} is an 8-bit {mode} picture: depth needs 16 bits.  "
    "Export it as 16-bit PNG (value/256 or millimetres) or as .npy in metres"
)


def unit_scale(unit: str) -> float:
    """How many steps of a depth file make one metre: of a name in UNITS, or a number that says it.

    >>> unit_scale("mm"), unit_scale("Meters"), unit_scale("4000")
    (1000.0, 1.0, 4000.0)
    """
    word = str(unit).lower()
    unit = SPELLED.get(word, word)
    if unit in UNITS:
        return UNITS[unit]
    try:
        scale = float(unit)
    except ValueError:
        scale = math.nan
    if not (0 < scale < math.inf):
        raise UnknownNameError("depth unit", unit, (*UNITS, "or the number of steps in a metre, for example 4000"))
    return scale


def _check_decoded(size: tuple[int, int]) -> None:
    """Refuse a picture of (height, width) whose pixels alone do not fit into the memory, before they are decoded."""
    if size[0] * size[1] > _SMALL:
        check_memory(_DECODED * size[0] * size[1], f"a picture of {size[0]}x{size[1]}", "make it smaller")


def _ask(check: Callable[[tuple[int, int]], None], size: tuple[int, int], name: str) -> None:
    try:
        check(size)
    except ConfigError as error:
        raise DataError(f"{name}: {error}") from None


def open_picture(
    source: Path | IO[bytes], name: str = "", check: Callable[[tuple[int, int]], None] = _check_decoded
) -> Picture.Image:
    """A decoded Pillow image of a known format, or a DataError that names the file.

    ``check`` is given (height, width) before memory is taken for the pixels.
    """
    name = name or str(source)
    try:
        picture = Picture.open(source, formats=_FORMATS)
        _ask(check, (picture.height, picture.width), name)
        picture.load()
    except FileNotFoundError:
        raise MissingFileError(f"{name} does not exist") from None
    except IsADirectoryError:
        raise DataError(f"{name} is a folder: expected the file of one picture") from None
    except UnidentifiedImageError:
        raise DataError(f"{name} is not a picture of a known format ({', '.join(_FORMATS)})") from None
    except (OSError, SyntaxError, ValueError, Picture.DecompressionBombError) as error:
        raise DamagedFileError(f"{name} cannot be decoded ({error}): truncated or damaged, copy it again") from None
    return picture


def rgb_array(picture: Picture.Image, name: str) -> np.ndarray:
    """The pixels of an 8-bit colour or grey picture file: height x width x 3, uint8."""
    if picture.mode in _DEEP_MODES:
        raise DataError(_DEEP.format(name=name, mode=picture.mode))
    return np.array(picture.convert("RGB"))  # a copy: Pillow's own buffer is read-only


def read_image(path: Path, check: Callable[[tuple[int, int]], None] = _check_decoded) -> np.ndarray:
    """A picture file as height x width x 3, uint8; ``check`` is given (height, width) before it is decoded."""
    return rgb_array(open_picture(Path(path), check=check), str(path))


def image_size(path: Path) -> tuple[int, int]:
    """(height, width) of a picture file, from its header alone."""
    return _header(path)[0]


def look_at_header(path: Path, *, depth: bool) -> tuple[tuple[int, int], str | None]:
    """(height, width) of a picture file, and why it cannot be depth (8 bits) or colour (16 bits), from its header
    alone.
    """
    size, mode = _header(path)
    if depth and mode not in _DEEP_MODES:
        return size, _SHALLOW.format(path=path, mode=mode)
    return size, _DEEP.format(name=path, mode=mode) if not depth and mode in _DEEP_MODES else None


def _header(path: Path) -> tuple[tuple[int, int], str]:
    """((height, width), Pillow's mode) without decoding."""
    try:
        with Picture.open(path, formats=_FORMATS) as picture:
            return (picture.height, picture.width), picture.mode
    except (OSError, SyntaxError, ValueError, Picture.DecompressionBombError) as error:
        raise DataError(f"{path} cannot be opened as a picture ({error})") from None


def write_image(path: Path, image: np.ndarray, quality: int = 95) -> None:
    """Write a picture file, uint8 (or float in [0, 1]) as PNG or JPEG by suffix, all or nothing."""
    pixels = image if image.dtype == np.uint8 else np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    buffer = io.BytesIO()
    if path.suffix.lower() in (".jpg", ".jpeg"):
        Picture.fromarray(pixels).save(buffer, "JPEG", quality=quality, subsampling=0)
    else:
        Picture.fromarray(pixels).save(buffer, "PNG", compress_level=3)
    write_bytes(path, buffer.getvalue())


def raw_depth(path: Path, check: Callable[[tuple[int, int]], None] = _check_decoded) -> np.ndarray:
    """The stored numbers of a depth file, before any unit; refuses 8-bit pictures.  ``check`` as in ``read_image``."""
    path = Path(path)
    if path.suffix == ".npy":
        return _load_npy(path)
    if path.suffix == ".exr":
        return _read_exr(path)
    picture = open_picture(path, check=check)
    if picture.mode not in _DEEP_MODES:
        raise ShallowDepthError(_SHALLOW.format(path=path, mode=picture.mode))
    return np.asarray(picture)


def _load_npy(path: Path) -> np.ndarray:
    array = load_array(path)
    return np.squeeze(array) if array.ndim == 3 and 1 in array.shape else array


def _read_exr(path: Path) -> Float[np.ndarray, "h w"]:
    """The one channel of an EXR file, or its R channel if it has several (Record3D writes depth in metres there)."""
    try:
        import OpenEXR
    except ImportError:
        raise DataError(f"{path}: reading EXR files needs OpenEXR: pip install 'protodepth[data]'") from None
    if not path.exists():
        raise MissingFileError(f"{path} does not exist")
    try:
        with without_lines(f"{path}: (EXR_", "Warning: Exception raised reading pixel data"):
            with OpenEXR.File(str(path), header_only=True) as file:  # what it promises, before memory is taken for it
                _check_window(path, file.header()["dataWindow"])
            with OpenEXR.File(str(path), separate_channels=True) as file:
                channels = {name: np.array(channel.pixels) for name, channel in file.channels().items()}
    except (RuntimeError, ValueError, TypeError, KeyError) as error:  # what the library raises for damaged files
        reason = f"{error}".partition("\n")[0]
        raise DamagedFileError(
            f"{path} cannot be read as EXR ({reason}): truncated or damaged, copy it again"
        ) from None
    if len(channels) != 1 and "R" not in channels:
        raise DataError(f"{path} has the channels {', '.join(channels)}: expected one, or depth in R")
    return channels["R"] if "R" in channels else next(iter(channels.values()))


def _check_window(path: Path, window: tuple[np.ndarray, np.ndarray]) -> None:
    """Refuse a picture of more pixels than Pillow takes."""
    width, height = (int(high) - int(low) + 1 for low, high in zip(*window, strict=True))
    limit = 2 * (Picture.MAX_IMAGE_PIXELS or 0)
    if width < 1 or height < 1 or width * height > limit:
        raise DamagedFileError(f"{path} says that it has {width}x{height} pixels, expected 1 to {limit} of them")
    _ask(_check_decoded, (height, width), str(path))


def without_largest(raw: np.ndarray) -> np.ndarray:
    """Stored whole numbers with 65535 as 0: the largest of 16 bits is what a sensor writes that saw nothing, or
    something too far; it is never a measurement.

    >>> without_largest(np.array([[1500, 65535]], np.uint16)).tolist()
    [[1500, 0]]
    """
    return raw if raw.dtype.kind == "f" else np.where(raw == LARGEST, raw.dtype.type(0), raw)


def metres(raw: np.ndarray, unit: str, name: str = "depth") -> Float[np.ndarray, "h w"]:
    """Stored numbers -> float32 metres; NaN and infinity become 0 (no point), a negative value is an error.

    >>> metres(np.array([[256, 0]], np.uint16), "kitti").tolist()
    [[1.0, 0.0]]
    """
    if raw.ndim != 2:
        raise DataError(f"{name} has shape {raw.shape}, expected (height, width)")
    with np.errstate(over="ignore", invalid="ignore"):  # what float32 does not hold becomes infinity, and so no point
        depth = raw.astype(np.float32) / np.float32(unit_scale(unit))
    depth[~np.isfinite(depth)] = 0
    if depth.size and depth.min() < 0:
        raise NegativeDepthError(
            f"{name} has negative values (down to {depth.min():g} m), expected metres with 0 = no point"
        )
    return depth


def read_depth(
    path: Path, unit: str | None = None, *, raw: np.ndarray | None = None, keep_largest: bool = False
) -> Float[np.ndarray, "h w"]:
    """A depth file in metres.  ``unit`` is of the stored whole numbers; fractions in .npy and .exr files are metres.

    ``raw``: the stored numbers, if they were read already.  ``keep_largest``: 65535 is a depth, as in the published
    lists, where the sky ends there.
    """
    path = Path(path)
    raw = raw_depth(path) if raw is None else raw
    raw = raw if keep_largest else without_largest(raw)
    if path.suffix in ARRAY_SUFFIXES and raw.dtype.kind == "f":
        unit = "metres"
    if unit is None:
        raise DataError(f"{path} does not say its unit.  Say which it is: --depth-unit {' | '.join(UNITS)}")
    return metres(raw, unit, str(path))


def encode_depth(depth: Float[np.ndarray, "h w"], unit: str = "kitti", name: str = "depth") -> bytes:
    """Metres -> the bytes of a 16-bit PNG; what does not fit 16 bits is an error, not a clip."""
    values = np.rint(np.nan_to_num(depth.astype(np.float64), nan=0.0) * unit_scale(unit))
    if values.size and (values.min() < 0 or values.max() > 65535):
        limit = 65535 / unit_scale(unit)
        raise DataError(f"{name} has depth up to {np.nanmax(depth):g} m: a 16-bit PNG in {unit!r} ends at {limit:g} m")
    buffer = io.BytesIO()
    Picture.fromarray(values.astype(np.uint16)).save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()


def write_depth(path: Path, depth: Float[np.ndarray, "h w"], unit: str = "kitti") -> None:
    """Write metres as .npy (float32) or 16-bit PNG by suffix, all or nothing."""
    if path.suffix == ".npy":
        buffer = io.BytesIO()
        np.save(buffer, depth.astype(np.float32))
        write_bytes(path, buffer.getvalue())
    else:
        write_bytes(path, encode_depth(depth, unit, path.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthSummary:
    """What some depth maps of a folder hold, before the unit is known."""

    low: float  # 1st percentile of the positive values
    middle: float
    high: float  # 99th percentile
    top: float
    density: float  # share of pixels with a value
    floating: bool  # fractions are stored: metres
    where: str
    step: int = 1  # the greatest number that divides all stored values
    largest: float = 0.0  # share of the values above 0 that are 65535, the largest of 16 bits; they are left out


def summarise(paths: Sequence[Path]) -> DepthSummary:
    """What depth files hold, before their unit is known: percentiles of the stored numbers."""
    return summarise_maps([raw_depth(path) for path in paths], _first(paths))


def summarise_maps(maps: Sequence[np.ndarray], where: str) -> DepthSummary:
    """What depth maps that were read already hold, before their unit is known: percentiles of the stored numbers."""
    values = np.concatenate([m[np.isfinite(m) & (m > 0)].astype(np.float64) for m in maps]) if maps else np.empty(0)
    floating = all(m.dtype.kind == "f" for m in maps)
    most = values.size
    values = values if floating else values[values != LARGEST]
    if values.size == 0:
        raise DataError(f"none of the {len(maps)} depth maps looked at has a value above 0 ({where})")
    low, middle, high = np.percentile(values, [1, 50, 99])
    density = values.size / sum(m.size for m in maps)
    step = 1 if floating else int(np.gcd.reduce(values.astype(np.int64)))
    return DepthSummary(
        low=low,
        middle=middle,
        high=high,
        top=values.max(),
        density=density,
        floating=floating,
        where=where,
        step=step,
        largest=1 - values.size / most,
    )


def _first(paths: Sequence[Path]) -> str:
    return f"first: {paths[0]}" if paths else "no files"


def guess_unit(s: DepthSummary, depth_range: tuple[float, float] | None = None) -> tuple[str, str]:
    """(unit, reason) where the values leave no doubt, a DataError that asks where they do.

    Three kinds of evidence, in this order: stored fractions are metres; with a model's ``depth_range``, the only unit
    that puts both the 1st and the 99th percentile inside; else what sensors can do: a dense map of multiples of five
    that reaches beyond 12 m as millimetres is TUM's (millimetres times five), one that /256 would place beyond 11 m is
    millimetres (depth cameras end before), a sparse one that /256 places at 40-130 m is KITTI's.
    """
    if s.floating:
        return "metres", f"stored as floating point, median {s.middle:.2f}"
    if depth_range is not None:
        near, far = depth_range
        fits = [u for u in ("kitti", "mm") if near <= s.low / UNITS[u] and s.high / UNITS[u] <= far]
        if len(fits) == 1:
            return fits[0], f"only {fits[0]} lies in the model's range {near:g}-{far:g} m"
    if s.density > 0.3 and s.step == 5 and s.high > 12_000:
        return "tum", f"every value is a multiple of 5, as millimetres x 5 are: up to {s.high / 5000:.1f} m"
    if s.density > 0.3 and s.step != 5 and 11 * 256 <= s.high <= 12_000:
        return "mm", f"dense map up to {s.high / 1000:.1f} m as mm; as value/256 it would reach {s.high / 256:.0f} m"
    if s.density < 0.15 and 40 * 256 <= s.high <= 130 * 256:
        return "kitti", f"sparse map up to {s.high / 256:.0f} m as value/256"
    raise DataError(_ambiguous_unit(s, depth_range))


def _ambiguous_unit(s: DepthSummary, depth_range: tuple[float, float] | None = None) -> str:
    """The question to the user, with both readings spelled out."""
    span = f"; the model's range is {depth_range[0]:g}-{depth_range[1]:g} m" if depth_range else ""
    return (
        f"depth values go up to {s.top:.0f} ({s.where}): as KITTI PNG (value/256) that is {s.top / 256:.1f} m, "
        f"as millimetres {s.top / 1000:.1f} m, as TUM (value/5000) {s.top / 5000:.1f} m{span}.\n"
        "  Say which it is: --depth-unit mm | kitti | tum | metres, or "
        'depth_unit = "mm" in recording.toml.  (protodepth data check FOLDER shows all frames.)'
    )


def files_by_id(folder: Path, suffixes: Sequence[str]) -> dict[str, Path]:
    """The pictures or depth maps of a folder: id (file name without suffix) -> path, in natural order, each id once."""
    paths: dict[str, Path] = {}
    for path in folder.iterdir():
        if path.suffix.lower() not in suffixes or path.name.startswith("."):
            continue
        if _waits(path):
            raise DataError(f"{path} is no file but a pipe or device: remove it")
        if path.stem in paths:
            raise DataError(f"{folder} holds both {paths[path.stem].name} and {path.name}: one frame, one file")
        paths[path.stem] = path
    return dict(sorted(paths.items(), key=lambda item: natural_key(item[0])))


def _waits(path: Path) -> bool:
    """Whether reading it would wait for ever: a pipe, a socket, a device."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)


def broken_tail(path: Path) -> str | None:
    """Why a picture file (PNG or JPEG) is certainly cut off, from its last bytes alone, or None."""
    suffix = path.suffix.lower()
    try:
        with path.open("rb") as file:
            file.seek(0, io.SEEK_END)
            size = file.tell()
            file.seek(max(0, size - 64))
            tail = file.read()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if size == 0:
        return "is empty"
    if suffix == ".png" and b"IEND" not in tail:
        return "is truncated (no PNG end mark)"
    if suffix in (".jpg", ".jpeg") and b"\xff\xd9" not in tail:
        return "is truncated (no JPEG end mark)"
    return None
