"""ROS 1 and ROS 2 bags without ROS: colour image, camera_info, and a depth image or a PointCloud2.

``rosbag:/path/to.bag?image=/cam/image_raw&depth=/velodyne_points&extrinsics=lidar_to_camera.txt``.  Topics are found by
their types where there is only one candidate.  Without ``extrinsics`` the place of the LiDAR is taken from
``/tf_static``.  Messages are read in place; ``data prepare rosbag`` keeps the projected depth.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data import projection
from protodepth.data.datasets import ros_frames
from protodepth.data.entries import Entry, FrameReader
from protodepth.data.files import cameras
from protodepth.data.files import images as image_files
from protodepth.data.frame import EvalRules, time_blocks
from protodepth.data.manifest import Scan, register_scan
from protodepth.errors import DataError
from protodepth.types import Float

IMAGES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")
INFO, CLOUD = "sensor_msgs/msg/CameraInfo", "sensor_msgs/msg/PointCloud2"
CHANNELS = {
    "rgb8": (3, [0, 1, 2]),
    "bgr8": (3, [2, 1, 0]),
    "rgba8": (4, [0, 1, 2]),
    "bgra8": (4, [2, 1, 0]),
    "mono8": (1, [0, 0, 0]),
}
DEPTHS = {"16UC1": ("u2", 1000.0), "mono16": ("u2", 1000.0), "32FC1": ("f4", 1.0)}
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}  # PointField.datatype


@lru_cache(maxsize=4)
def _open_bag(path: Path) -> Any:
    """An open reader, one for each process."""
    try:
        from rosbags.highlevel import AnyReader
        from rosbags.typesys import Stores, get_typestore
    except ImportError:
        raise DataError("reading bags needs rosbags: pip install 'protodepth[data]'") from None
    from rosbags.highlevel.anyreader import AnyReaderError
    from rosbags.rosbag1 import ReaderError
    from rosbags.rosbag2 import ReaderError as ReaderError2

    reader = AnyReader([path], default_typestore=get_typestore(Stores.ROS2_HUMBLE))
    try:
        reader.open()
    except (AnyReaderError, ReaderError, ReaderError2, OSError, ValueError) as error:
        raise DataError(f"{path} is not a readable ROS 1 or ROS 2 bag ({error})") from None
    return reader


def _topics(path: Path) -> dict[str, str]:
    """topic -> message type."""
    return {c.topic: c.msgtype for c in _open_bag(path).connections}


def _choose_topic(path: Path, given: str, types: Sequence[str], what: str, hint: str = "") -> str:
    """The given topic, or the only one of the right type (and with ``hint`` in its name, if that decides)."""
    known = _topics(path)
    listing = ", ".join(f"{t} ({k.split('/')[-1]})" for t, k in sorted(known.items()))
    if given:
        if given not in known:
            raise DataError(f"{path} has no topic {given!r} for the {what}; it has: {listing}")
        return given
    fits = [t for t, kind in known.items() if kind in types]
    fits = [t for t in fits if (hint in t) == bool(hint) or not hint] if len(fits) > 1 else fits
    if len(fits) != 1:
        raise DataError(f"{path}: say which topic is the {what} ({what}=/topic); it has: {listing}")
    return fits[0]


@lru_cache(maxsize=64)
def _times(path: Path, topic: str) -> np.ndarray:
    """Bag times of all messages of a topic, nanoseconds.  Kept: it takes a pass over the bag."""
    reader = _open_bag(path)
    chosen = [c for c in reader.connections if c.topic == topic]
    return np.array([time for _, time, _ in reader.messages(chosen)], np.int64)


def _message(path: Path, topic: str, time: int) -> Any:
    """One message, decoded."""
    reader = _open_bag(path)
    chosen = [c for c in reader.connections if c.topic == topic]
    for connection, _, data in reader.messages(chosen, start=time, stop=time + 1):
        return reader.deserialize(data, connection.msgtype)
    raise DataError(f"{path} has no message on {topic} at {time}")


def colour(msg: Any, where: str) -> np.ndarray:
    """Height x width x 3 of an Image or CompressedImage."""
    if hasattr(msg, "format"):
        return image_files.rgb_array(image_files.open_picture(io.BytesIO(bytes(msg.data)), where), where)
    if msg.encoding not in CHANNELS:
        raise DataError(f"{where} has encoding {msg.encoding!r}, expected one of {', '.join(CHANNELS)}")
    count, order = CHANNELS[msg.encoding]
    rows = np.asarray(msg.data, np.uint8).reshape(msg.height, msg.step)[:, : msg.width * count]
    return np.ascontiguousarray(rows.reshape(msg.height, msg.width, count)[..., order])


def depth_image(msg: Any, where: str) -> Float[np.ndarray, "h w"]:
    """Metres of a depth Image (16UC1 mm, 32FC1 m) or a compressedDepth picture."""
    if hasattr(msg, "format"):
        data = bytes(msg.data)
        start = data.find(b"\x89PNG")  # compressedDepth puts 12 bytes of its own before the picture
        if start < 0 or "16UC1" not in msg.format:
            raise DataError(f"{where} has format {msg.format!r}, expected 16UC1 compressedDepth (PNG)")
        return image_files.metres(np.asarray(image_files.open_picture(io.BytesIO(data[start:]), where)), "mm", where)
    if msg.encoding not in DEPTHS:
        raise DataError(f"{where} has encoding {msg.encoding!r}, expected one of {', '.join(DEPTHS)}")
    kind, scale = DEPTHS[msg.encoding]
    dtype = np.dtype((">" if msg.is_bigendian else "<") + kind)
    rows = np.frombuffer(bytes(msg.data), np.uint8).reshape(msg.height, msg.step)[:, : msg.width * dtype.itemsize]
    values = np.ascontiguousarray(rows).view(dtype).astype(np.float32)
    return image_files.metres(values / np.float32(scale), "metres", where)


def cloud_points(msg: Any, where: str) -> Float[np.ndarray, "n 3"]:
    """x, y, z of a PointCloud2, without points that are not finite."""
    fields = {f.name: f for f in msg.fields}
    if not {"x", "y", "z"} <= fields.keys():
        raise DataError(f"{where} has the fields {', '.join(fields)}, expected x, y, z")
    order = ">" if msg.is_bigendian else "<"
    formats = [order + NUMBERS[fields[a].datatype] for a in "xyz"]
    offsets = [fields[a].offset for a in "xyz"]
    dtype = np.dtype({"names": list("xyz"), "formats": formats, "offsets": offsets, "itemsize": msg.point_step})
    rows = np.frombuffer(bytes(msg.data), np.uint8).reshape(msg.height, msg.row_step)[:, : msg.width * msg.point_step]
    table = np.frombuffer(np.ascontiguousarray(rows).tobytes(), dtype)
    points = np.stack([table[a].astype(np.float64) for a in "xyz"], 1)
    return points[np.isfinite(points).all(1)]


@dataclass(frozen=True, slots=True)
class Bag:
    """``bag#topic@time`` and, for clouds, ``bag#topic@time;T;K;distortion;height,width``."""

    def image_bytes(self, path: Path, inside: str) -> bytes:
        topic, time = inside.split("@")
        msg = _message(path, topic, int(time))
        if not hasattr(msg, "format"):
            raise DataError(f"{path}#{inside} is not a compressed picture")
        return bytes(msg.data)

    def image(self, path: Path, inside: str) -> np.ndarray:
        topic, time = inside.split("@")
        return colour(_message(path, topic, int(time)), f"{path} {topic}")

    def depth(self, path: Path, inside: str) -> Float[np.ndarray, "h w"]:
        place, *rest = inside.split(";")
        topic, time = place.split("@")
        msg = _message(path, topic, int(time))
        if not rest:
            return depth_image(msg, f"{path} {topic}")
        motion, K, lens, size = (np.array(part.split(","), np.float64) for part in rest)
        points = projection.transform(cloud_points(msg, f"{path} {topic}"), motion.reshape(4, 4))
        shape = (int(size[0]), int(size[1]))
        return projection.project(points, K.reshape(3, 3), shape, distortion=tuple(lens.tolist()))


CONTAINER = Bag()


@register_scan("rosbag")
def scan_rosbag(
    root: Path,
    *,
    image: str = "",
    info: str = "",
    depth: str = "",
    extrinsics: str = "",
    sampler: str = "harris:1500",
    stride: int | None = None,
) -> Scan:
    """A bag.  ``image``, ``info``, ``depth``: topics.  ``extrinsics``: 4x4 cloud-to-camera (a text file or 16 numbers);
    without it the chain of frames in ``/tf_static`` (and links of ``/tf`` that do not move).

    A depth image is dense and thinned by ``sampler``; a cloud is projected and sparse.  ``stride``: frames between
    neighbours, default 0.1 s.  Blocks of time: 70 % train, 10 % val, 20 % test.
    """
    path = root
    picture = _choose_topic(path, image, IMAGES, "image") if image else _colour_topic(path)
    calibration = _choose_topic(path, info, (INFO,), "info", _parent(picture))
    source = _depth_topic(path, depth, picture)
    dense = _topics(path)[source] != CLOUD
    motion, how = (None, "") if dense else _mounting(path, extrinsics, source, calibration)
    entries = _join(path, (picture, calibration, source), motion)
    if motion is not None:
        _check_projection(path, entries, how)
    step = stride or _tenth_second(path, picture)
    blocks = {s: [entries[i] for i in block] for s, block in time_blocks(len(entries), 2 * step).items()}
    later = {s: partial(iter, blocks[s]) for s in ("val", "test")}
    splits = {"train": partial(_with_neighbours, blocks["train"], step), **later}
    return Scan(
        name="rosbag",
        reader=FrameReader(
            root=path.parent, sampler=sampler if dense else None, truth_without_input=dense, container=CONTAINER
        ),
        rules=EvalRules(min_depth=0.1, max_depth=100.0),
        splits=splits,
        options={"image": picture, "info": calibration, "depth": source, "extrinsics": how, "stride": step},
        derive=() if dense else ("sparse",),
    )


def _parent(topic: str) -> str:
    return topic.rsplit("/", 1)[0] if topic.count("/") > 1 else ""


def _colour_topic(path: Path) -> str:
    names = [t for t, kind in _topics(path).items() if kind in IMAGES and "depth" not in t.lower()]
    return names[0] if len(names) == 1 else _choose_topic(path, "", IMAGES, "image")


def _depth_topic(path: Path, given: str, picture: str) -> str:
    if given:
        return _choose_topic(path, given, (), "depth")
    known = _topics(path)
    named = [t for t, kind in known.items() if kind in IMAGES and "depth" in t.lower() and t != picture]
    clouds = [t for t, kind in known.items() if kind == CLOUD]
    both = named + clouds
    return both[0] if len(both) == 1 else _choose_topic(path, "", (), "depth")


def _first(path: Path, topic: str) -> Any:
    stamps = _times(path, topic)
    if not len(stamps):
        raise DataError(f"{path}: no message on {topic}")
    return _message(path, topic, int(stamps[0]))


def _mounting(path: Path, given: str, cloud: str, info: str) -> tuple[Float[np.ndarray, "4 4"], str]:
    """(cloud to camera, how it is known): as given, else by the frames that the two topics name."""
    if given:
        return read_extrinsics(given), given
    source, target = (_first(path, topic).header.frame_id for topic in (cloud, info))
    pose, way = ros_frames.between(_open_bag(path), source, target, str(path))
    return pose, f"tf: {' -> '.join(way)}"


def _check_projection(path: Path, entries: Sequence[Entry], how: str) -> None:
    """Points of the first cloud must fall into the picture, else the frames or the matrix are not what they seem."""
    name, inside = entries[0]["sparse"].rsplit("#", 1)
    if not (CONTAINER.depth(path.parent / name, inside) > 0).any():
        raise DataError(
            f"{path}: no point of the first cloud falls into the picture ({how}): "
            "the matrix must take points from the cloud to the camera's optical frame (z forward, x right, y down); "
            "give extrinsics"
        )


def read_extrinsics(text: str) -> Float[np.ndarray, "4 4"]:
    """A 4x4 cloud-to-camera matrix from 16 (or 12) numbers or a file with them."""
    source = Path(text).read_text() if Path(text).is_file() else text
    values = cameras.numbers_in(source, "extrinsics")
    if len(values) not in (12, 16):
        raise DataError(f"extrinsics have {len(values)} numbers, expected 16 (4x4, row by row) or 12")
    pose = np.eye(4)
    pose[: len(values) // 4] = np.reshape(values, (-1, 4))
    if not cameras.pose_is_valid(pose):
        raise DataError("extrinsics are not a rotation and a translation: is the matrix transposed?")
    return pose


def _join(path: Path, chosen: tuple[str, str, str], motion: np.ndarray | None, apart: float = 0.06) -> list[Entry]:
    """Each picture with the nearest depth message within ``apart`` seconds."""
    picture, info, depth = chosen
    msg = _first(path, info)
    K, lens = _calibration(msg, rectified="rect" in picture.rsplit("/", 1)[-1], where=f"{path} {info}")
    tail = ""
    if motion is not None:
        parts = [",".join(f"{v:.12g}" for v in a.ravel()) for a in (motion, K, lens)]
        tail = ";" + ";".join([*parts, f"{msg.height},{msg.width}"])
    images, depths = _times(path, picture), _times(path, depth)
    if not len(depths):
        raise DataError(f"{path}: no message on {depth}")
    entries = []
    for t in images:
        j = int(np.argmin(np.abs(depths - t)))
        if abs(int(depths[j]) - int(t)) < apart * 1e9:
            ref = f"{path.name}#{depth}@{depths[j]}{tail}"
            entry: Entry = {"id": str(t), "image": f"{path.name}#{picture}@{t}", "K": K.ravel().tolist()}
            entries.append({**entry, "dense" if motion is None else "sparse": ref})
    if not entries:
        raise DataError(f"{path}: no picture on {picture} has a message on {depth} within {apart} s")
    return entries


def _calibration(msg: Any, *, rectified: bool, where: str) -> tuple[np.ndarray, Float[np.ndarray, "5"]]:
    """(K, k1 k2 p1 p2 k3) of a CameraInfo.  A rectified picture has the camera of P and no distortion."""
    values = {name: np.asarray(getattr(msg, name, getattr(msg, name.lower(), ())), np.float64) for name in "KDP"}
    if rectified and values["P"].any():
        return cameras.intrinsics_matrix(values["P"], f"{where} P"), np.zeros(5)
    lens = values["D"]
    if lens.any() and (msg.distortion_model not in ("", "plumb_bob", "radtan") or lens[5:].any()):
        raise DataError(
            f"{where} has the lens model {msg.distortion_model!r}, expected plumb_bob: "
            "rectify the pictures (image_proc) and give image=/.../image_rect_color"
        )
    return cameras.intrinsics_matrix(values["K"], f"{where} K"), np.pad(lens, (0, 5))[:5]


def _tenth_second(path: Path, topic: str) -> int:
    stamps = _times(path, topic)
    return max(1, round(1e8 / float(np.median(np.diff(stamps))))) if len(stamps) > 1 else 1


def _with_neighbours(entries: list[Entry], step: int) -> Iterator[Entry]:
    for i in range(step, len(entries) - step):
        yield {**entries[i], "neighbours": [entries[i - step]["image"], entries[i + step]["image"]]}
