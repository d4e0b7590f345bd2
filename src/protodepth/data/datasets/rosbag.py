"""ROS 1 and ROS 2 bags without ROS: colour image, camera_info, and a depth image or a PointCloud2.

``rosbag:/path/to.bag?image=/cam/image_raw&depth=/velodyne_points&extrinsics=lidar_to_camera.txt``.  Topics are found by
their types where there is only one candidate.  Pictures and depth are joined by the time in their headers.  Without
``extrinsics`` the place of the LiDAR, or of a depth camera that is not registered, is taken from ``/tf_static`` (or
from what RealSense's recorder wrote).  Messages are read in place; ``data prepare rosbag`` keeps the projected depth.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from protodepth.data import projection
from protodepth.data.datasets import realsense, ros_frames, ros_messages
from protodepth.data.datasets.ros_messages import (
    CLOUD,
    IMAGES,
    INFO,
    TopicTimes,
    choose_topic,
    cloud_points,
    colour,
    depth_image,
    first_message,
    message,
    times,
    topics,
)
from protodepth.data.entries import Entry, FrameReader
from protodepth.data.files import cameras
from protodepth.data.frame import EvalRules, time_blocks
from protodepth.data.manifest import Scan, register_scan
from protodepth.errors import DataError
from protodepth.types import Float

APART = 0.06  # seconds between a picture and its depth, at most
TRANSPORTS = ("compressed", "compressedDepth", "theora", "ffmpeg", "zstd")  # last words that image_transport adds
KITTI = re.compile(r"/kitti/camera_(gray|color)_(left|right)/")  # kitti2bag: rectified, whatever the topic is called
Clock = Literal["header", "record"]


@dataclass(frozen=True, slots=True)
class Bag:
    """Pictures: ``bag#topic@time``.  Depth: the same and, behind semicolons, how it comes into the picture:
    nothing or its ``steps`` a metre, if its pixels are the picture's; ``steps;T;K of depth;K;distortion;height,width``
    for another camera; ``cloud;T;K;distortion;height,width`` for a cloud.
    """

    def image_bytes(self, path: Path, inside: str) -> bytes:
        topic, time = inside.split("@")
        msg = message(path, topic, int(time))
        if not hasattr(msg, "format"):
            raise DataError(f"{path}#{inside} is not a compressed picture")
        return bytes(msg.data)

    def image(self, path: Path, inside: str) -> np.ndarray:
        topic, time = inside.split("@")
        return colour(message(path, topic, int(time)), f"{path} {topic}")

    def depth(self, path: Path, inside: str) -> Float[np.ndarray, "h w"]:
        place, *rest = inside.split(";")
        topic, time = place.split("@")
        msg, where = message(path, topic, int(time)), f"{path} {topic}"
        kind = rest[0] if rest else "0"
        numbers = [np.array(part.split(","), np.float64) for part in rest[1:]]
        if kind == "cloud":
            return _into_picture(cloud_points(msg, where), *numbers)
        depth = depth_image(msg, where, float(kind) or None)
        if not numbers:
            return depth
        pose, own, *picture = numbers
        return _into_picture(projection.lift(depth, own.reshape(3, 3)), pose, *picture)


def _into_picture(
    points: np.ndarray, pose: np.ndarray, K: np.ndarray, lens: np.ndarray, size: np.ndarray
) -> Float[np.ndarray, "h w"]:
    points = projection.transform(points, pose.reshape(4, 4))
    shape = (int(size[0]), int(size[1]))
    return projection.project(points, K.reshape(3, 3), shape, distortion=tuple(lens.tolist()))


CONTAINER = Bag()


@dataclass(frozen=True, slots=True)
class Picture:
    """The colour topic with its camera."""

    topic: str
    info: str
    K: Float[np.ndarray, "3 3"]
    lens: Float[np.ndarray, "8"]
    size: tuple[int, int]  # height, width
    turn: Float[np.ndarray, "3 3"] = field(default_factory=lambda: np.eye(3))  # from the named frame to the rectified


@dataclass(frozen=True, slots=True)
class Mounting:
    """How depth comes into the picture: the tail of its references, and the words for the record."""

    how: str
    tail: str = ""


@register_scan("rosbag")
def scan_rosbag(
    root: Path,
    *,
    image: str = "",
    info: str = "",
    depth: str = "",
    extrinsics: str = "",
    rectified: bool | None = None,
    registered: bool | None = None,
    clock: Clock = "header",
    sampler: str = "harris:1500",
    stride: int | None = None,
) -> Scan:
    """A bag.  ``image``, ``info``, ``depth``: topics.  ``extrinsics``: 4x4 cloud (or depth camera) to the picture's
    camera (a text file or 16 numbers); without it the chain of frames in ``/tf_static`` (and links of ``/tf`` that do
    not move).

    ``rectified``: the picture is rectified, though its topic is not called image_rect (or not, though it is).
    ``registered``: the depth image has the picture's pixels, though its frame and camera say otherwise.  ``clock``:
    join by the time in the headers, or by the time of recording.  A depth image is dense and thinned by ``sampler``; a
    cloud is projected and sparse.  ``stride``: frames between neighbours, default 0.1 s.  Blocks of time: 70 % train,
    10 % val, 20 % test.
    """
    path = root
    sdk = realsense.streams(path) if not image and not depth else None
    picture = _picture(path, image or (sdk[0].topic if sdk else ""), info or (sdk[0].info if sdk else ""), rectified)
    source = sdk[1].topic if sdk else _depth_topic(path, depth, picture.topic)
    dense = topics(path)[source] != CLOUD
    if not dense:
        mounting = _mounted_cloud(path, picture, source, extrinsics)
    elif sdk:
        mounting = _mounted_sdk(path, picture, sdk, extrinsics)
    else:
        mounting = _mounted_depth(path, picture, source, extrinsics, registered)
    entries = _join(path, picture, source, mounting, dense, clock)
    if mounting.tail.count(";") > 1:
        _check_projection(path, entries, mounting.how)
    step = stride or _tenth_second(path, picture.topic)
    blocks = {s: [entries[i] for i in block] for s, block in time_blocks(len(entries), 2 * step).items()}
    later = {s: partial(iter, blocks[s]) for s in ("val", "test")}
    return Scan(
        name="rosbag",
        reader=FrameReader(
            root=path.parent, sampler=sampler if dense else None, truth_without_input=dense, container=CONTAINER
        ),
        rules=EvalRules(min_depth=0.1, max_depth=100.0),
        splits={"train": partial(_with_neighbours, blocks["train"], step), **later},
        options={
            **{"image": picture.topic, "info": picture.info, "depth": source, "extrinsics": mounting.how},
            **{"clock": clock, "stride": step},
        },
        derive=() if dense else ("sparse",),
    )


# --- topics -----------------------------------------------------------------------------------------------------------


def _stem(topic: str) -> str:
    """A topic of pictures without what image_transport appends.

    >>> _stem("/cam/image_rect_color/compressed")
    '/cam/image_rect_color'
    """
    head, _, last = topic.rpartition("/")
    return head if last in TRANSPORTS else topic


def _parent(topic: str) -> str:
    topic = _stem(topic)
    return topic.rsplit("/", 1)[0] if topic.count("/") > 1 else ""


def _picture(path: Path, image: str, info: str, rectified: bool | None) -> Picture:
    topic = choose_topic(path, image, IMAGES, "image") if image else _colour_topic(path)
    source = choose_topic(path, info or _info_of(path, topic), (INFO,), "info", _parent(topic))
    msg = first_message(path, source)
    kitti = KITTI.match(topic) is not None
    straight = rectified if rectified is not None else kitti or "rect" in _stem(topic).rsplit("/", 1)[-1]
    K, lens = _calibration(msg, rectified=straight, where=f"{path} {source}")
    turn = np.asarray(getattr(msg, "R", getattr(msg, "r", ())), np.float64).reshape(-1, 3)
    # the frame that a header names is the camera's own; kitti2bag's frames are those of the rectified cameras already
    turned = straight and not kitti and turn.any()
    return Picture(topic, source, K, lens, (msg.height, msg.width), turn if turned else np.eye(3))


def _info_of(path: Path, topic: str) -> str:
    """The camera_info beside a topic of pictures, by ROS's custom; empty if there is none of that name."""
    name = f"{_parent(topic)}/camera_info"
    return name if topics(path).get(name) == INFO else ""


def _colour_topic(path: Path) -> str:
    names = [t for t, kind in topics(path).items() if kind in IMAGES and "depth" not in t.lower()]
    plain = [t for t in names if _stem(t) == t or _stem(t) not in names]  # one picture, sent raw and compressed
    return plain[0] if len(plain) == 1 else choose_topic(path, "", IMAGES, "image")


def _depth_topic(path: Path, given: str, picture: str) -> str:
    if given:
        return choose_topic(path, given, (), "depth")
    known = topics(path)
    named = [t for t, kind in known.items() if kind in IMAGES and "depth" in t.lower() and t != picture]
    plain = [t for t in named if _stem(t) == t or _stem(t) not in named]
    aligned = [t for t in plain if re.search("aligned|registered|depth_to_rgb", t)]
    clouds = [t for t, kind in known.items() if kind == CLOUD]
    both = aligned if len(aligned) == 1 else plain + clouds
    return both[0] if len(both) == 1 else choose_topic(path, "", (), "depth")


# --- where depth comes from -------------------------------------------------------------------------------------------


def _text(*arrays: Any) -> str:
    return "".join(";" + ",".join(f"{v:.12g}" for v in np.ravel(a)) for a in arrays)


def _mounted_cloud(path: Path, picture: Picture, cloud: str, given: str) -> Mounting:
    """As given, else by the frames that the two topics name."""
    pose, how = (read_extrinsics(given), given) if given else _by_frames(path, cloud, picture)
    return Mounting(how, ";cloud" + _text(pose, picture.K, picture.lens, picture.size))


def _by_frames(path: Path, source: str, picture: Picture) -> tuple[Float[np.ndarray, "4 4"], str]:
    start, end = (first_message(path, topic).header.frame_id for topic in (source, picture.info))
    pose, way = ros_frames.between(ros_messages.open_bag(path), start, end, str(path))
    return cameras.rigid(picture.turn, np.zeros(3)) @ pose, f"tf: {' -> '.join(way)}"


def _mounted_sdk(
    path: Path, picture: Picture, sdk: tuple[realsense.SdkStream, realsense.SdkStream], given: str
) -> Mounting:
    steps, own = realsense.depth_steps(path, sdk[1]), first_message(path, sdk[1].info)
    pose = read_extrinsics(given) if given else realsense.mounting(path, *sdk)
    K = _calibration(own, rectified=False, where=f"{path} {sdk[1].info}")[0]
    how = f"{given or 'RealSense recorder'}, {steps:g} steps a metre"
    return Mounting(how, f";{steps:g}" + _text(pose, K, picture.K, picture.lens, picture.size))


def _mounted_depth(path: Path, picture: Picture, source: str, given: str, registered: bool | None) -> Mounting:
    """A depth image has the picture's pixels if it names the same frame and the same camera; else it is projected."""
    if registered:
        return Mounting("registered, as said")
    name = _info_of(path, source)
    own = first_message(path, name) if name else None
    K = None if own is None else _calibration(own, rectified=True, where=f"{path} {name}")[0]
    alike = name == picture.info
    if own is not None and K is not None and (own.height, own.width) == picture.size:
        alike = alike or np.allclose(K, picture.K, rtol=0.01)
    frames = [ros_frames.plain(first_message(path, topic).header.frame_id) for topic in (source, picture.topic)]
    if registered is None and not given and (alike or (own is None and frames[0] == frames[1])):
        return Mounting(f"registered (frame {frames[0]})" if frames[0] == frames[1] else "registered (same camera)")
    if K is None:
        raise DataError(
            f"{path}: {source} is in the frame {frames[0]!r}, {picture.topic} in {frames[1]!r}, and there is no "
            f"camera_info of the depth: is the depth registered to the colour image?  If it is, say registered=true; "
            "else record aligned_depth_to_color (or depth_registered)"
        )
    if given:
        pose, how = read_extrinsics(given), given
    elif frames[0] == frames[1]:
        pose, how = cameras.rigid(picture.turn, np.zeros(3)), f"another camera in the same frame {frames[0]}"
    else:
        try:
            pose, how = _by_frames(path, source, picture)
        except DataError as error:
            raise DataError(
                f"{path}: {source} (frame {frames[0]!r}, fx {K[0, 0]:.1f}) is not registered to {picture.topic} (frame "
                f"{frames[1]!r}, fx {picture.K[0, 0]:.1f}): record aligned_depth_to_color, give extrinsics (16 "
                f"numbers, depth to colour), or say registered=true.  ({error})"
            ) from None
    return Mounting(how, ";0" + _text(pose, K, picture.K, picture.lens, picture.size))


def _check_projection(path: Path, entries: Sequence[Entry], how: str) -> None:
    """Points of the first cloud must fall into the picture, else the frames or the matrix are not what they seem."""
    name, inside = (entries[0].get("sparse") or entries[0]["dense"]).rsplit("#", 1)
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


def _calibration(msg: Any, *, rectified: bool, where: str) -> tuple[np.ndarray, Float[np.ndarray, "8"]]:
    """(K, k1 k2 p1 p2 k3 k4 k5 k6) of a CameraInfo.  A rectified picture has the camera of P and no distortion.

    RealSense's "Inverse Brown Conrady" is applied with the signs turned: right to first order, and its numbers are
    small.
    """
    values = {name: np.asarray(getattr(msg, name, getattr(msg, name.lower(), ())), np.float64) for name in "KDP"}
    if values["P"].any() and (rectified or not values["K"].any()):
        return cameras.intrinsics_matrix(values["P"], f"{where} P"), np.zeros(8)
    lens, model = values["D"], msg.distortion_model.lower().replace("_", " ").removeprefix("distortion.")
    known = ("", "none", "plumb bob", "radtan", "brown conrady", "modified brown conrady", "inverse brown conrady")
    rational = model == "rational polynomial" and not lens[8:].any()
    if lens.any() and not rectified and not rational and (model not in known or lens[5:].any()):
        raise DataError(
            f"{where} has the lens model {msg.distortion_model!r}, expected plumb_bob or rational_polynomial: "
            "rectify the pictures (image_proc) and give image=/.../image_rect_color"
        )
    lens = np.zeros(8) if rectified or model == "none" else np.pad(lens, (0, 8))[:8]
    return cameras.intrinsics_matrix(values["K"], f"{where} K"), -lens if model.startswith("inverse") else lens


# --- frames -----------------------------------------------------------------------------------------------------------


def _join(path: Path, picture: Picture, depth: str, mounting: Mounting, dense: bool, clock: Clock) -> list[Entry]:
    """Each picture with the depth message that was taken nearest to it, within ``APART`` seconds."""
    images, depths = times(path, picture.topic), times(path, depth)
    for topic, stamps in ((picture.topic, images), (depth, depths)):
        if not len(stamps):
            raise DataError(f"{path}: no message on {topic}")
    at, other = (t.taken if clock == "header" else t.recorded for t in (images, depths))
    order = np.argsort(other, kind="stable")
    entries = []
    for i in np.argsort(at, kind="stable"):
        place = np.searchsorted(other[order], at[i])
        near = order[max(0, place - 1) : place + 1]
        j = near[np.argmin(np.abs(other[near] - at[i]))]
        if abs(int(other[j]) - int(at[i])) < APART * 1e9:
            ref = f"{path.name}#{depth}@{depths.recorded[j]}{mounting.tail}"
            entry: Entry = {"id": str(at[i]), "image": f"{path.name}#{picture.topic}@{images.recorded[i]}"}
            entries.append({**entry, "K": picture.K.ravel().tolist(), "dense" if dense else "sparse": ref})
    if not entries:
        raise DataError(_no_pair(path, (picture.topic, images), (depth, depths), clock))
    return entries


def _no_pair(path: Path, image: tuple[str, TopicTimes], depth: tuple[str, TopicTimes], clock: Clock) -> str:
    text = f"{path}: no picture on {image[0]} has a message on {depth[0]} within {APART} s by the time of "
    if clock == "record":
        return text + "recording"
    apart = abs(float(np.median(image[1].taken)) - float(np.median(depth[1].taken))) / 1e9
    return text + f"their headers (about {apart:.1f} s apart: two clocks?): clock=record joins by the time of recording"


def _tenth_second(path: Path, topic: str) -> int:
    stamps = times(path, topic).taken
    usual = float(np.median(np.diff(stamps))) if len(stamps) > 1 else 0.0
    return max(1, round(1e8 / usual)) if usual > 0 else 1


def _with_neighbours(entries: list[Entry], step: int) -> Iterator[Entry]:
    for i in range(step, len(entries) - step):
        yield {**entries[i], "neighbours": [entries[i - step]["image"], entries[i + step]["image"]]}
