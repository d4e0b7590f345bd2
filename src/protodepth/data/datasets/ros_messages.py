"""Messages of ROS 1 and ROS 2 bags as arrays, without ROS: pictures, depth images, clouds, and the time of each.

One open reader is shared by all threads of a process, and a reader has one place in its file: whoever reads holds
``_reading``.  RealSense's own recorder appends four bytes (the depth unit) to the pictures of its newer files.
"""

import io
import re
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data.files import images as image_files
from protodepth.data.files.rvl import unpack
from protodepth.errors import DamagedFileError, DataError
from protodepth.types import Float

IMAGES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")
INFO, CLOUD = "sensor_msgs/msg/CameraInfo", "sensor_msgs/msg/PointCloud2"
CHANNELS = {
    "rgb8": (3, [0, 1, 2]),
    "bgr8": (3, [2, 1, 0]),
    "8uc3": (3, [2, 1, 0]),
    "rgba8": (4, [0, 1, 2]),
    "bgra8": (4, [2, 1, 0]),
    "mono8": (1, [0, 0, 0]),
    "8uc1": (1, [0, 0, 0]),
}
YUV = {"yuv422_yuy2": (0, 1), "yuyv": (0, 1), "yuv422": (1, 0), "uyvy": (1, 0)}  # place of brightness, of colour
DEPTHS = {"16UC1": ("u2", 1000.0), "mono16": ("u2", 1000.0), "32FC1": ("f4", 1.0)}
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}  # PointField.datatype
MOST_PIXELS = 2**26  # of a depth map; more is a damaged header
_reading = threading.RLock()


@lru_cache(maxsize=4)
def open_bag(path: Path) -> Any:
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
        reason = f"{error}".partition("\n")[0]
        raise DataError(f"{path} is not a readable ROS 1 or ROS 2 bag ({reason})") from None
    return reader


def topics(path: Path) -> dict[str, str]:
    """topic -> message type."""
    with _reading:
        return {c.topic: c.msgtype for c in open_bag(path).connections}


@dataclass(frozen=True, slots=True)
class TopicTimes:
    """When the messages of a topic were recorded, and when their header says they were taken; nanoseconds."""

    recorded: np.ndarray
    taken: np.ndarray

    def __len__(self) -> int:
        return len(self.recorded)


@lru_cache(maxsize=64)
def times(path: Path, topic: str) -> TopicTimes:
    """Both times of all messages of a topic, in the order of recording.  Kept: it takes a pass over the bag.

    A header without a time (all of them 0) leaves the time of recording.
    """
    with _reading:
        reader = open_bag(path)
        chosen = [c for c in reader.connections if c.topic == topic]
        rows = [(time, _header_stamp(data, ros2=reader.is2)) for _, time, data in reader.messages(chosen)]
    recorded, taken = np.array(rows, np.int64).reshape(-1, 2).T
    return TopicTimes(recorded, taken if taken.any() else recorded)


def _header_stamp(data: bytes, *, ros2: bool) -> int:
    """Nanoseconds of the header with which pictures, clouds and camera_info begin.

    >>> _header_stamp(struct.pack("<III", 7, 3, 5), ros2=False)
    3000000005
    """
    if ros2:  # four bytes say the order of the others
        seconds, rest = struct.unpack_from("<iI" if data[1] & 1 else ">iI", data, 4)
    else:
        seconds, rest = struct.unpack_from("<II", data, 4)
    return seconds * 10**9 + rest


def message(path: Path, topic: str, time: int) -> Any:
    """One message, decoded, by the time of its recording."""
    with _reading:
        reader = open_bag(path)
        chosen = [c for c in reader.connections if c.topic == topic]
        for connection, _, data in reader.messages(chosen, start=time, stop=time + 1):
            return _decoded(reader, connection, data)
    raise DataError(f"{path} has no message on {topic} at {time}")


def first_message(path: Path, topic: str) -> Any:
    """The first message of a topic, decoded; an error that names the topic if there is none."""
    with _reading:
        reader = open_bag(path)
        chosen = [c for c in reader.connections if c.topic == topic]
        for connection, _, data in reader.messages(chosen) if chosen else ():
            return _decoded(reader, connection, data)
    raise DataError(f"{path}: no message on {topic}")


def appended_number(path: Path, topic: str) -> float | None:
    """The number that RealSense's recorder appended to the first picture of a topic, or None."""
    with _reading:
        reader = open_bag(path)
        chosen = [c for c in reader.connections if c.topic == topic]
        for _, _, data in reader.messages(chosen):
            longer = not reader.is2 and len(data) == _image_length(data) + 4
            return float(struct.unpack("<f", data[-4:])[0]) if longer else None
    return None


def _decoded(reader: Any, connection: Any, data: bytes) -> Any:
    if not reader.is2 and connection.msgtype == IMAGES[0] and len(data) == _image_length(data) + 4:
        data = data[:-4]
    return reader.deserialize(data, connection.msgtype)


def _image_length(data: bytes) -> int:
    """Bytes of a ROS 1 Image by its own counts: header, frame, size, encoding, order, step, pixels."""
    place = 12
    place += 4 + _count(data, place) + 8
    place += 4 + _count(data, place) + 5
    return place + 4 + _count(data, place)


def _count(data: bytes, place: int) -> int:
    return int(struct.unpack_from("<I", data, place)[0])


# --- pixels -----------------------------------------------------------------------------------------------------------


def colour(msg: Any, where: str) -> np.ndarray:
    """Height x width x 3 of an Image or CompressedImage."""
    if hasattr(msg, "format"):
        return image_files.rgb_array(image_files.open_picture(io.BytesIO(bytes(msg.data)), where), where)
    encoding = msg.encoding.lower()
    if encoding in YUV:
        return _from_yuv(_rows(msg, 2), *YUV[encoding])
    if encoding not in CHANNELS:
        raise DataError(f"{where} has encoding {msg.encoding!r}, expected one of {', '.join((*CHANNELS, *YUV))}")
    count, order = CHANNELS[encoding]
    return np.ascontiguousarray(_rows(msg, count).reshape(msg.height, msg.width, count)[..., order])


def _rows(msg: Any, width: int) -> np.ndarray:
    """The bytes of each row without what pads it; ``width`` bytes a pixel."""
    return np.frombuffer(bytes(msg.data), np.uint8).reshape(msg.height, msg.step)[:, : msg.width * width]


def _from_yuv(rows: np.ndarray, bright: int, chroma: int) -> np.ndarray:
    """Two pixels share their colour: Y U Y V (or U Y V Y), BT.601 in the full range."""
    pairs = rows.reshape(len(rows), -1, 4).astype(np.float32)
    Y = pairs[..., [bright, bright + 2]].reshape(len(rows), -1)
    U, V = (np.repeat(pairs[..., chroma + i], 2, 1) - 128 for i in (0, 2))
    rgb = np.stack([Y + 1.402 * V, Y - 0.344136 * U - 0.714136 * V, Y + 1.772 * U], -1)
    return np.clip(np.rint(rgb), 0, 255).astype(np.uint8)


def depth_image(msg: Any, where: str, steps: float | None = None) -> Float[np.ndarray, "h w"]:
    """Metres of a depth Image (16UC1 mm, 32FC1 m) or a compressedDepth picture.

    ``steps``: how many of the stored whole numbers make a metre, if not 1000.
    """
    if hasattr(msg, "format"):
        return _unpacked_depth(msg, where, steps)
    if msg.encoding not in DEPTHS:
        raise DataError(f"{where} has encoding {msg.encoding!r}, expected one of {', '.join(DEPTHS)}")
    kind, scale = DEPTHS[msg.encoding]
    dtype = np.dtype((">" if msg.is_bigendian else "<") + kind)
    values = np.ascontiguousarray(_rows(msg, dtype.itemsize)).view(dtype).astype(np.float32)
    scale = steps if steps and dtype.kind == "u" else scale
    return image_files.metres(values / np.float32(scale), "metres", where)


def _unpacked_depth(msg: Any, where: str, steps: float | None) -> Float[np.ndarray, "h w"]:
    """compressedDepth: 12 bytes of its own, then a picture of millimetres (16UC1) or of coded inverse depth (32FC1).

    32FC1: metres = a / (stored - b), a and b the two floats of the 12 bytes; 0 is no measurement.
    """
    if not re.match("16UC1|32FC1|mono16", msg.format):
        raise DataError(f"{where} has format {msg.format!r}, expected 16UC1 or 32FC1 compressedDepth")
    data = bytes(msg.data)
    raw, start = _packed_picture(data, where, rvl="rvl" in msg.format.lower())
    if not msg.format.startswith("32FC1"):
        return image_files.metres(raw, str(steps or 1000), where)
    if start != 12:
        raise DataError(f"{where} has {start} bytes before its picture, expected the 12 of compressedDepth")
    a, b = struct.unpack_from("<ff", data, 4)
    with np.errstate(divide="ignore"):
        return image_files.metres(np.where(raw > 0, a / (raw.astype(np.float32) - b), 0), "metres", where)


def _packed_picture(data: bytes, where: str, *, rvl: bool) -> tuple[np.ndarray, int]:
    """(stored values, bytes before them): a PNG, or width, height and RVL."""
    if rvl:
        if len(data) < 20:
            raise DamagedFileError(f"{where} has {len(data)} bytes, too few for a map packed with RVL")
        width, height = struct.unpack_from("<II", data, 12)
        if width * height > MOST_PIXELS:
            raise DamagedFileError(f"{where} says that its map has {width}x{height} pixels: damaged")
        return unpack(data[20:], width * height, where).reshape(height, width), 12
    start = data.find(b"\x89PNG")
    if start < 0:
        raise DataError(f"{where} holds no PNG, and its format does not say rvl: neither form of compressedDepth")
    return np.asarray(image_files.open_picture(io.BytesIO(data[start:]), where)), start


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


def choose_topic(path: Path, given: str, types: Sequence[str], what: str, hint: str = "") -> str:
    """The given topic, or the only one of the right type (and with ``hint`` in its name, if that decides)."""
    known = topics(path)
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
