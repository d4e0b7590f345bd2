"""Record3D and ARKit: an .r3d file (or the same unpacked), iPhone LiDAR depth with poses.

An .r3d file is a ZIP: ``metadata`` (JSON), ``rgbd/<n>.jpg``, ``rgbd/<n>.depth`` (float32 metres, usually LZFSE-packed).  The depth
map is smaller than the picture: each of its values becomes one sparse point at its place in the picture.
"""

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data import cameras, frames, motion
from protodepth.data.base import EvalRules
from protodepth.data.entries import Entry, FrameReader
from protodepth.data.manifest import Scan, register_scan, time_blocks
from protodepth.errors import DataError
from protodepth.types import Float

OPENCV_FROM_ARKIT = np.diag([1.0, -1.0, -1.0, 1.0])  # ARKit's camera has y up and looks along -z


@lru_cache(maxsize=4)
def _archive(path: Path) -> zipfile.ZipFile | None:
    if path.is_dir():
        return None
    try:
        return zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not an .r3d file ({error})") from None


def read_member(path: Path, name: str) -> bytes:
    """A file of the archive, or of the folder it was unpacked to."""
    archive = _archive(path)
    try:
        return archive.read(name) if archive else (path / name).read_bytes()
    except (KeyError, OSError) as error:
        raise DataError(f"{path} has no {name} ({error})") from None


def unpack_depth(data: bytes, count: int, where: str) -> Float[np.ndarray, "n"]:
    """``count`` float32 values: plain, in an uncompressed LZFSE block, or LZFSE-packed (needs pyliblzfse)."""
    if len(data) == 4 * count:
        return np.frombuffer(data, "<f4")
    if data[:4] == b"bvx-":  # block header: magic and size
        return np.frombuffer(data[8 : 8 + 4 * count], "<f4")
    try:
        import liblzfse  # type: ignore[import-not-found]
    except ImportError:
        raise DataError(f"{where} is packed with LZFSE: pip install pyliblzfse, or export uncompressed depth") from None
    return np.frombuffer(liblzfse.decompress(data), "<f4")


def scatter(depth: Float[np.ndarray, "h w"], size: tuple[int, int]) -> Float[np.ndarray, "H W"]:
    """Each value of a small map at the middle of its cell in a larger one; nothing is interpolated.

    >>> scatter(np.array([[1.0, 2.0]]), (2, 4)).tolist()
    [[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 2.0]]
    """
    rows, columns = (((np.arange(n) + 0.5) * N / n).astype(int) for n, N in zip(depth.shape, size, strict=True))
    out = np.zeros(size, np.float32)
    out[np.ix_(rows, columns)] = depth
    return out


@dataclass(frozen=True, slots=True)
class R3D:
    """``file.r3d#n`` for pictures and ``file.r3d#n,dh,dw,height,width`` for depth."""

    def image_bytes(self, path: Path, inside: str) -> bytes:
        return read_member(path, f"rgbd/{inside}.jpg")

    def image(self, path: Path, inside: str) -> np.ndarray:
        data = io.BytesIO(self.image_bytes(path, inside))
        return frames.rgb_array(frames.open_picture(data, f"{path}#{inside}"), str(path))

    def depth(self, path: Path, inside: str) -> Float[np.ndarray, "h w"]:
        number, dh, dw, height, width = inside.split(",")
        shape = (int(dh), int(dw))
        values = unpack_depth(
            read_member(path, f"rgbd/{number}.depth"), shape[0] * shape[1], f"{path} rgbd/{number}.depth"
        )
        if values.size != shape[0] * shape[1]:
            raise DataError(f"{path} rgbd/{number}.depth has {values.size} values, metadata says {dw}x{dh}")
        return scatter(frames.metres(values.reshape(shape), "metres", str(path)), (int(height), int(width)))


CONTAINER = R3D()


def read_metadata(path: Path) -> dict[str, Any]:
    try:
        meta = json.loads(read_member(path, "metadata"))
    except ValueError as error:
        raise DataError(f"{path}: metadata is not JSON ({error})") from None
    missing = [k for k in ("w", "h", "dw", "dh", "K", "poses") if k not in meta]
    if missing:
        raise DataError(f"{path}: metadata has no {', '.join(missing)}: a Record3D version that is not known here")
    return meta


def calibration(meta: dict[str, Any], number: int, size: tuple[int, int]) -> Float[np.ndarray, "3 3"]:
    """K of a frame for the resized picture; metadata's K is stored column by column."""
    each = meta.get("perFrameIntrinsicCoeffs")
    four = each[number][:4] if each else [meta["K"][0], meta["K"][4], meta["K"][6], meta["K"][7]]
    factors = np.array([size[1] / meta["w"], size[0] / meta["h"], 1.0])[:, None]
    return cameras.intrinsics_matrix(four, "metadata K") * factors


def world_poses(meta: dict[str, Any]) -> Float[np.ndarray, "n 4 4"]:
    """Camera-to-world with OpenCV axes from quaternion x, y, z, w and position."""
    poses = [cameras.rigid(cameras.quaternion_matrix(p[:4]), p[4:7]) for p in meta["poses"]]
    return np.stack(poses) @ OPENCV_FROM_ARKIT


@register_scan("record3d")
def scan_record3d(root: Path, *, long_side: int = 640, stride: int | None = None) -> Scan:
    """An .r3d recording.  Pictures are reduced to ``long_side`` pixels; ``stride``: default from the motion."""
    meta = read_metadata(root)
    shrink = min(1.0, long_side / max(meta["w"], meta["h"]))
    size = (round(meta["h"] * shrink), round(meta["w"] * shrink))
    poses = world_poses(meta)
    tail = f"{meta['dh']},{meta['dw']},{size[0]},{size[1]}"
    entries: list[Entry] = [
        {
            "id": f"{i:06d}",
            "image": f"{root.name}#{i}",
            "sparse": f"{root.name}#{i},{tail}",
            "K": calibration(meta, i, size).ravel().tolist(),
        }
        for i in range(len(poses))
    ]
    depth = CONTAINER.depth(root, f"0,{tail}")
    middle = float(np.median(depth[depth > 0])) if (depth > 0).any() else 2.0
    step = stride or motion.choose_stride(poses, entries[0]["K"][0] / size[1], middle)
    blocks = time_blocks(len(entries), 2 * step)
    return Scan(
        name="record3d",
        reader=FrameReader(root=root.parent, unit="metres", resize=size, container=CONTAINER),
        rules=EvalRules(min_depth=0.1, max_depth=10.0),
        splits={
            "train": partial(_training, entries, poses, blocks["train"], step),
            **{s: partial(_plain, entries, blocks[s]) for s in ("val", "test")},
        },
        options={"long_side": long_side, "stride": step},
    )


def _plain(entries: list[Entry], block: range) -> Iterator[Entry]:
    return (entries[i] for i in block)


def _training(entries: list[Entry], poses: np.ndarray, block: range, step: int) -> Iterator[Entry]:
    for i in block[step : len(block) - step]:
        around = (i - step, i + step)
        moves = [cameras.relative_pose(poses[i], poses[j]).ravel().tolist() for j in around]
        yield {**entries[i], "neighbours": [entries[j]["image"] for j in around], "poses": moves}
