"""Record3D (ARKit): iPhone LiDAR depth with poses, from an .r3d file or from the app's "EXR + JPG" export.

``scan.r3d``: a ZIP (or the folder it was unpacked to) of ``metadata`` (JSON), ``rgbd/<n>.jpg``, ``rgbd/<n>.depth``
(float32 metres, packed with LZFSE) and, for LiDAR, ``rgbd/<n>.conf`` (uint8: 0 low, 1 medium, 2 high confidence).
``EXR_RGBD/``: ``metadata.json``, ``rgb/<n>.jpg`` (or .png), ``depth/<n>.exr``.  The depth map is smaller than the
picture: each of its values becomes one sparse point at its place in the picture.
Poses are camera-to-world with y up, looking along -z; the selfie camera has none.
"""

import io
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data import projection
from protodepth.data.datasets.video import video_scan
from protodepth.data.entries import Entry, FrameReader
from protodepth.data.files import cameras, lzfse
from protodepth.data.files import images as image_files
from protodepth.data.files.text import parse_json
from protodepth.data.frame import EvalRules
from protodepth.data.manifest import Scan, register_scan
from protodepth.errors import DataError
from protodepth.types import Float

PICTURES = (".jpg", ".jpeg", ".png")
MOST = 2**28  # bytes of a file in an archive; a picture has some millions


# --- files ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _archive(path: Path) -> zipfile.ZipFile | None:
    if path.is_dir():
        return None
    try:
        return zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not an .r3d file ({error})") from None


def _read_member(path: Path, name: str, most: int = MOST) -> bytes:
    """A file of the archive, or of the folder it was unpacked to, of at most so many bytes: a ZIP may promise any."""
    archive = _archive(path)
    try:
        size = archive.getinfo(name).file_size if archive else (path / name).stat().st_size
        if size > most:
            raise DataError(f"{path}: {name} has {size} bytes, expected at most {most}")
        return archive.read(name) if archive else (path / name).read_bytes()
    except (KeyError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: {name} cannot be read ({error})") from None


def _members(path: Path) -> list[str]:
    """Names of all files, relative to the root of the archive or folder."""
    archive = _archive(path)
    return archive.namelist() if archive else [p.relative_to(path).as_posix() for p in path.glob("*/*")]


def _read_values(path: Path, name: str, kind: str, shape: tuple[int, int]) -> np.ndarray:
    """A packed (or plain) map of the archive: ``kind`` is the NumPy type of its values."""
    where, size = f"{path} {name}", shape[0] * shape[1] * np.dtype(kind).itemsize
    data = _read_member(path, name, min(MOST, 2 * size + 1024))
    data = data if len(data) == size else lzfse.unpack(data, size, where)
    if len(data) != size:
        count = len(data) // np.dtype(kind).itemsize
        raise DataError(f"{where} has {count} values, metadata says {shape[1]}x{shape[0]}")
    return np.frombuffer(data, kind).reshape(shape)


@dataclass(frozen=True, slots=True)
class R3D:
    """``file.r3d#n`` for pictures, ``file.r3d#n,dh,dw,confidence,height,width`` and ``n.exr#height,width`` for
    depth.
    """

    def image_bytes(self, path: Path, inside: str) -> bytes:
        return _read_member(path, f"rgbd/{inside}.jpg")

    def image(self, path: Path, inside: str) -> np.ndarray:
        data = io.BytesIO(self.image_bytes(path, inside))
        return image_files.rgb_array(image_files.open_picture(data, f"{path} rgbd/{inside}.jpg"), str(path))

    def depth(self, path: Path, inside: str) -> Float[np.ndarray, "h w"]:
        *rest, height, width = inside.split(",")
        if path.suffix == ".exr":
            small = image_files.read_depth(path)
        else:
            number, dh, dw, confidence = rest
            small = _packed_depth(path, number, (int(dh), int(dw)), int(confidence))
        return projection.scatter(small, (int(height), int(width)))


CONTAINER = R3D()


def _packed_depth(path: Path, number: str, shape: tuple[int, int], confidence: int) -> Float[np.ndarray, "h w"]:
    """Metres of ``rgbd/<n>.depth`` without the values whose ``.conf`` is lower than ``confidence``."""
    values = _read_values(path, f"rgbd/{number}.depth", "<f4", shape)
    depth = image_files.metres(values, "metres", f"{path} rgbd/{number}.depth")
    if confidence:
        depth[_read_values(path, f"rgbd/{number}.conf", "u1", shape) < confidence] = 0
    return depth


# --- metadata ---------------------------------------------------------------------------------------------------------


def _read_metadata(path: Path, name: str = "metadata") -> dict[str, Any]:
    meta = parse_json(_read_member(path, name), f"{path}: {name}")
    if not isinstance(meta, dict):
        raise DataError(f"{path}: {name} holds no metadata of Record3D")
    missing = [k for k in ("w", "h", "K") if k not in meta]
    if missing:
        raise DataError(f"{path}: {name} has no {', '.join(missing)}: a Record3D version that is not known here")
    return meta


def _calibration(meta: dict[str, Any], number: int, size: tuple[int, int]) -> Float[np.ndarray, "3 3"]:
    """K of a frame for the resized picture; metadata's K is stored column by column."""
    each = meta.get("perFrameIntrinsicCoeffs")
    four = each[number][:4] if each else [meta["K"][0], meta["K"][4], meta["K"][6], meta["K"][7]]
    factors = np.array([size[1] / meta["w"], size[0] / meta["h"], 1.0])[:, None]
    return cameras.intrinsics_matrix(four, "metadata K") * factors


def _world_poses(meta: dict[str, Any]) -> Float[np.ndarray, "n 4 4"] | None:
    """Camera-to-world with OpenCV axes from quaternion x, y, z, w and position; None where the phone did not track."""
    stored = np.asarray(meta.get("poses", ()), np.float64).reshape(-1, 7)
    if len(stored) < 2 or not np.ptp(stored, axis=0).any():
        return None
    poses = [cameras.rigid(cameras.quaternion_matrix(p[:4]), p[4:7]) for p in stored]
    return np.stack(poses) @ cameras.OPENCV_FROM_OPENGL


# --- the two exports --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record3dExport:
    """What both forms have in common: references to pictures and depth, by frame number."""

    root: Path  # what references start from
    meta: dict[str, Any]
    images: dict[int, str]
    depths: dict[int, str]  # without the tail ``,height,width``


def _numbers(names: list[str], folder: str, suffixes: tuple[str, ...]) -> dict[int, str]:
    members = {}
    for name in names:
        path = Path(name)
        if path.parent.as_posix() == folder and path.suffix in suffixes and path.stem.isdigit():
            members[int(path.stem)] = name
    return dict(sorted(members.items()))


def _open_export(root: Path, confidence: int) -> Record3dExport:
    """The folder or file that the app wrote."""
    for folder in (root, root / "EXR_RGBD"):
        if (folder / "metadata.json").is_file():
            return _exr_export(folder)
    return _r3d_export(root, confidence)


def _exr_export(folder: Path) -> Record3dExport:
    names = _members(folder)
    depths = {n: f"{name}#" for n, name in _numbers(names, "depth", (".exr",)).items()}
    return Record3dExport(folder, _read_metadata(folder, "metadata.json"), _numbers(names, "rgb", PICTURES), depths)


def _r3d_export(root: Path, confidence: int) -> Record3dExport:
    meta, names = _read_metadata(root), _members(root)
    depths, judged = _numbers(names, "rgbd", (".depth",)), _numbers(names, "rgbd", (".conf",))
    if depths and not {"dw", "dh"} <= meta.keys():
        meta |= _depth_size(root, meta, next(iter(depths.values())))
    refs = {n: f"{root.name}#{n},{meta['dh']},{meta['dw']},{confidence if n in judged else 0}," for n in depths}
    return Record3dExport(root.parent, meta, {n: f"{root.name}#{n}" for n in _numbers(names, "rgbd", (".jpg",))}, refs)


def _depth_size(root: Path, meta: dict[str, Any], name: str) -> dict[str, int]:
    """Older versions do not store the size of the depth map: it has the shape of the picture."""
    count = lzfse.unpacked_size(_read_member(root, name), f"{root} {name}") // 4
    height = max(1, round((count * meta["h"] / meta["w"]) ** 0.5))
    if height * (count // height) != count:
        raise DataError(f"{root} {name} has {count} values, which do not fit a picture of {meta['w']}x{meta['h']}")
    return {"dh": height, "dw": count // height}


@register_scan("record3d")
def scan_record3d(root: Path, *, long_side: int = 640, stride: int | None = None, confidence: int = 1) -> Scan:
    """A Record3D recording.  Pictures are reduced to ``long_side`` pixels; ``stride``: default from the motion.

    ``confidence``: depth below it is left out (0 keeps all, 2 keeps only the best); EXR exports do not say it.
    """
    if confidence not in (0, 1, 2):
        raise DataError(f"record3d: confidence is {confidence}, expected 0 (all), 1 or 2 (only the best)")
    export = _open_export(root, confidence)
    meta, poses = export.meta, _world_poses(export.meta)
    numbers = [n for n in export.images if n in export.depths]
    if not numbers:
        raise DataError(f"{root} has no frame with both a picture and depth: is the export complete?")
    if poses is not None and len(poses) <= numbers[-1]:
        raise DataError(f"{root}: metadata has {len(poses)} poses, but there is a frame {numbers[-1]}")
    shrink = min(1.0, long_side / max(meta["w"], meta["h"]))
    size = (round(meta["h"] * shrink), round(meta["w"] * shrink))
    entries = [_entry(export, n, size) for n in numbers]
    reader = FrameReader(root=export.root, unit="metres", resize=size, container=CONTAINER)
    poses = None if poses is None else poses[numbers]
    return video_scan(
        "record3d",
        reader,
        entries,
        poses,
        rules=EvalRules(min_depth=0.1, max_depth=10.0),
        stride=stride,
        fps=float(meta.get("fps", 30)),
        options={"long_side": long_side, "confidence": confidence},
    )


def _entry(export: Record3dExport, number: int, size: tuple[int, int]) -> Entry:
    return {
        "id": f"{number:06d}",
        "image": export.images[number],
        "sparse": f"{export.depths[number]}{size[0]},{size[1]}",
        "K": _calibration(export.meta, number, size).ravel().tolist(),
    }
