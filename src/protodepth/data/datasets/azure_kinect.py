"""Recordings of Azure Kinect and of Orbbec's Femto (``k4arecorder``, Orbbec's K4A wrapper): one .mkv file.

Track COLOR (MJPEG), track DEPTH (b16g: 16 bits, big-endian, millimetres), the attachment ``calibration.json``.
The depth camera is another camera than the colour one: its pixels become points by its own lens and are projected into
the picture, which is freed of its lens on reading, so that K is all there is to know.  Calibrations are in shares of
the whole sensor; a mode of the camera bins it and cuts a part out.
"""

import io
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Picture
from scipy import ndimage

from protodepth.data import projection
from protodepth.data.datasets.video import video_scan
from protodepth.data.entries import Entry, FrameReader
from protodepth.data.files import cameras, matroska
from protodepth.data.files import images as image_files
from protodepth.data.files.text import parse_json
from protodepth.data.frame import EvalRules
from protodepth.data.manifest import Scan, register_scan
from protodepth.errors import DamagedFileError, DataError
from protodepth.types import Float

APART = 20_000_000  # nanoseconds between a picture and its depth, at most
# (width, height) of the depth map: sensor's pixels after binning, and where the map begins on it
DEPTH_MODES = {
    (640, 576): (1024, 192, 180),
    (320, 288): (512, 96, 90),
    (512, 512): (512, 0, 0),
    (1024, 1024): (1024, 0, 0),
}
LENS = "CALIBRATION_LensDistortionModelBrownConrady"


@dataclass(frozen=True, slots=True)
class KinectCamera:
    """A camera in one of its modes."""

    K: Float[np.ndarray, "3 3"]
    lens: tuple[float, ...]  # k1 k2 p1 p2 k3 k4 k5 k6
    size: tuple[int, int]  # height, width


@dataclass(frozen=True, slots=True)
class Device:
    """What a recording says of its two cameras, and where their frames lie in the file."""

    colour: KinectCamera
    depth: KinectCamera
    mounting: Float[np.ndarray, "4 4"]  # points of the depth camera in the colour camera
    pictures: tuple[matroska.StoredFrame, ...]
    maps: tuple[matroska.StoredFrame, ...]


# --- calibration ------------------------------------------------------------------------------------------------------


def _camera_table(path: Path, table: Any, place: str) -> dict[str, Any]:
    listed = table.get("CalibrationInformation", {}).get("Cameras", ()) if isinstance(table, dict) else ()
    for camera in listed:
        if camera.get("Location") == f"CALIBRATION_CameraLocation{place}":
            return camera
    raise DataError(f"{path}: its calibration.json does not describe the camera {place}")


def _numbers(path: Path, table: dict[str, Any]) -> tuple[np.ndarray, tuple[float, ...]]:
    """(cx, cy, fx, fy in shares of the sensor; the lens in OpenCV's order)."""
    own = table["Intrinsics"]
    values = np.asarray(own["ModelParameters"], np.float64)
    if own["ModelType"] != LENS or len(values) < 14:
        raise DataError(f"{path} has the lens model {own['ModelType']!r}, expected {LENS}")
    if values[10:12].any():
        raise DataError(f"{path}: a lens whose centre is not the principal point is not known here")
    k1, k2, k3, k4, k5, k6 = values[4:10]
    p2, p1 = values[12:14]
    return values[:4], (k1, k2, p1, p2, k3, k4, k5, k6)


def _camera(
    shares: np.ndarray, lens: tuple[float, ...], binned: np.ndarray, corner: np.ndarray, size: Any
) -> KinectCamera:
    """The first pixel has its corner at (0, 0) there, and its centre here."""
    cx, cy = shares[:2] * binned - corner - 0.5
    fx, fy = shares[2:] * binned
    return KinectCamera(np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]]), lens, size)


def _depth_camera(path: Path, table: Any, size: tuple[int, int]) -> KinectCamera:
    height, width = size
    if (width, height) not in DEPTH_MODES:
        known = ", ".join(f"{w}x{h}" for w, h in DEPTH_MODES)
        raise DataError(f"{path} has depth of {width}x{height}, expected one of the modes {known}")
    shares, lens = _numbers(path, _camera_table(path, table, "D0"))
    binned, left, top = DEPTH_MODES[width, height]
    return _camera(shares, lens, np.full(2, float(binned)), np.array([left, top]), size)


def _colour_camera(path: Path, table: Any, size: tuple[int, int]) -> KinectCamera:
    """Modes of 4:3 show the whole sensor, those of 16:9 leave out a stripe above and below."""
    own = _camera_table(path, table, "PV0")
    shares, lens = _numbers(path, own)
    height, width = size
    whole = np.array([width, 0.75 * width])
    if 9 * int(own["SensorWidth"]) == 16 * int(own["SensorHeight"]):  # an early calibration, of the middle alone
        shares = (shares * np.array([4096, 2304, 4096, 2304]) + np.array([0, 384, 0, 0])) / [4096, 3072, 4096, 3072]
    return _camera(shares, lens, whole, np.array([0, (whole[1] - height) / 2]), size)


def _mounting(path: Path, table: Any) -> Float[np.ndarray, "4 4"]:
    """Depth camera to colour camera; each camera's Rt leads to it from the device."""
    poses = []
    for place in ("PV0", "D0"):
        own = _camera_table(path, table, place)["Rt"]
        pose = cameras.rigid(np.reshape(own["Rotation"], (3, 3)), np.asarray(own["Translation"], np.float64))
        if not cameras.pose_is_valid(pose):
            raise DataError(f"{path}: the place of camera {place} in calibration.json is no rotation and translation")
        poses.append(pose)
    return poses[0] @ cameras.inverse(poses[1])


@lru_cache(maxsize=4)
def _open_recording(path: Path) -> Device:
    """The cameras of a file; kept, since every frame needs them."""
    file = matroska.read_matroska(path)
    tracks = {track.name.upper(): track for track in file.tracks}
    missing = [name for name in ("COLOR", "DEPTH") if name not in tracks]
    if missing:
        there = ", ".join(tracks) or "none"
        raise DataError(f"{path} has no track {' and no '.join(missing)} (it has: {there}): record colour and depth")
    colour, depth = tracks["COLOR"], tracks["DEPTH"]
    if colour.kind not in ("MJPG", "V_MJPEG") or colour.packed:
        raise DataError(f"{path} has colour as {colour.kind.strip()}, expected MJPEG: k4arecorder --color-mode 1080p")
    if depth.kind not in ("b16g", "V_UNCOMPRESSED") or depth.packed:
        raise DataError(f"{path} has depth as {depth.kind.strip()}, expected b16g: was the file converted?")
    if "calibration.json" not in file.attachments:
        raise DataError(f"{path} has no calibration.json attached: was the file converted?  Take the recorded one")
    table = parse_json(file.attachments["calibration.json"].rstrip(b"\0"), f"{path}: calibration.json")
    try:
        return Device(
            _colour_camera(path, table, (colour.height, colour.width)),
            _depth_camera(path, table, (depth.height, depth.width)),
            _mounting(path, table),
            tuple(file.blocks.get(colour.number, ())),
            tuple(file.blocks.get(depth.number, ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: calibration.json is not one of an Azure Kinect ({error!r})") from None


# --- frames -----------------------------------------------------------------------------------------------------------


def _scaled(K: Float[np.ndarray, "3 3"], size: tuple[int, int], to: tuple[int, int]) -> Float[np.ndarray, "3 3"]:
    """K of a picture that was reduced; pixel centres at whole numbers."""
    x, y = to[1] / size[1], to[0] / size[0]
    return np.array([[x, 0, 0.5 * x - 0.5], [0, y, 0.5 * y - 0.5], [0, 0, 1]]) @ K


@lru_cache(maxsize=4)
def _straight(path: Path, size: tuple[int, int]) -> np.ndarray:
    """Where each pixel of the picture without a lens lies in the (reduced) picture with it: rows, columns."""
    camera = _open_recording(path).colour
    K = _scaled(camera.K, camera.size, size)
    v, u = np.mgrid[: size[0], : size[1]].astype(np.float64)
    x, y = projection.distort((u - K[0, 2]) / K[0, 0], (v - K[1, 2]) / K[1, 1], camera.lens)
    return np.nan_to_num(np.stack([y * K[1, 1] + K[1, 2], x * K[0, 0] + K[0, 2]]), posinf=-1e6)


@lru_cache(maxsize=4)
def _rays(path: Path) -> Float[np.ndarray, "2 h w"]:
    """The direction (x / z, y / z) that each pixel of the depth camera sees; NaN outside of its lens."""
    camera = _open_recording(path).depth
    v, u = np.mgrid[: camera.size[0], : camera.size[1]].astype(np.float64)
    K = camera.K
    return np.stack(projection.undistort((u - K[0, 2]) / K[0, 0], (v - K[1, 2]) / K[1, 1], camera.lens))


@dataclass(frozen=True, slots=True)
class KinectFile:
    """``file.mkv#offset,length,height,width``: bytes of a frame, and the size that pictures are reduced to."""

    def image_bytes(self, path: Path, inside: str) -> bytes:
        return matroska.read_bytes(path, _block(inside)[0])

    def image(self, path: Path, inside: str) -> np.ndarray:
        _, size = _block(inside)
        data = io.BytesIO(self.image_bytes(path, inside))
        picture = image_files.open_picture(data, f"{path} picture at {inside.partition(',')[0]}").convert("RGB")
        small = np.asarray(picture.resize(size[::-1], Picture.Resampling.BOX))
        places = _straight(path, size)
        channels = [ndimage.map_coordinates(small[..., c], places, order=1, cval=0) for c in range(3)]
        return np.stack(channels, -1)

    def depth(self, path: Path, inside: str) -> Float[np.ndarray, "h w"]:
        block, size = _block(inside)
        device = _open_recording(path)
        data, (height, width) = matroska.read_bytes(path, block), device.depth.size
        if len(data) != 2 * height * width:
            raise DamagedFileError(f"{path}: depth at {block.offset} has {len(data)} bytes, expected {width}x{height}")
        raw = np.frombuffer(data, ">u2").reshape(height, width)
        z = image_files.metres(image_files.without_largest(raw), "mm", str(path)).astype(np.float64)
        x, y = _rays(path)
        seen = (z > 0) & np.isfinite(x)
        points = np.stack([x[seen] * z[seen], y[seen] * z[seen], z[seen]], 1)
        K = _scaled(device.colour.K, device.colour.size, size)
        return projection.project(projection.transform(points, device.mounting), K, size)


CONTAINER = KinectFile()


def _block(inside: str) -> tuple[matroska.StoredFrame, tuple[int, int]]:
    offset, length, height, width = (int(part) for part in inside.split(","))
    return matroska.StoredFrame(0, offset, length), (height, width)


def _pairs(pictures: tuple[matroska.StoredFrame, ...], maps: tuple[matroska.StoredFrame, ...]) -> list[tuple[int, int]]:
    """Numbers of each picture and of the depth map that was taken nearest to it."""
    if not pictures or not maps:
        return []
    at, other = (np.array([block.time for block in blocks]) for blocks in (pictures, maps))
    near = [int(np.abs(other - time).argmin()) for time in at]
    return [(i, j) for i, j in enumerate(near) if abs(int(other[j]) - int(at[i])) <= APART]


@register_scan("azure_kinect")
def scan_azure_kinect(root: Path, *, long_side: int = 640, sampler: str = "holes", stride: int | None = None) -> Scan:
    """A recording of Azure Kinect or Femto.  Pictures are reduced to ``long_side`` pixels and freed of their lens.

    Depth is a dense map with holes (``sampler`` as for every dense map).  ``stride``: frames between neighbours,
    default 0.1 s; there are no poses in these files.
    """
    device = _open_recording(root)
    height, width = device.colour.size
    shrink = min(1.0, long_side / max(height, width))
    size = (round(height * shrink), round(width * shrink))
    tail, K = f"{size[0]},{size[1]}", _scaled(device.colour.K, device.colour.size, size)
    entries: list[Entry] = []
    for i, j in _pairs(device.pictures, device.maps):
        image, depth = device.pictures[i], device.maps[j]
        refs = [f"{root.name}#{block.offset},{block.length},{tail}" for block in (image, depth)]
        entries.append({"id": f"{i:06d}", "image": refs[0], "dense": refs[1], "K": K.ravel().tolist()})
    if not entries:
        raise DataError(f"{root}: no picture has a depth map within {APART / 1e9:g} s: were both cameras on?")
    steps = np.diff([block.time for block in device.pictures])
    return video_scan(
        "azure_kinect",
        FrameReader(root=root.parent, unit="metres", sampler=sampler, truth_without_input=True, container=CONTAINER),
        entries,
        None,
        rules=EvalRules(min_depth=0.1, max_depth=10.0),
        stride=stride,
        fps=1e9 / float(np.median(steps)) if len(steps) and np.median(steps) > 0 else 30.0,
        options={"long_side": long_side, "sampler": sampler},
    )
