"""ROS messages to arrays and back, and which of them belong together.

Nothing here knows rclpy: any object with the fields of a message will do,
so that all of it is tested without a ROS installation.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from protodepth.data import projection
from protodepth.data.datasets.ros_messages import cloud_points, colour, depth_image
from protodepth.data.files import cameras
from protodepth.errors import DataError
from protodepth.inference.stream import Stream
from protodepth.types import Prediction

Encoding = Literal["32FC1", "16UC1"]
Lookup = Callable[[str, str], np.ndarray]  # (to frame, from frame) -> 4x4


@dataclass(frozen=True, slots=True)
class Camera:
    """What a CameraInfo says: K, the five numbers of the lens (empty = none), and the size of its pictures."""

    K: np.ndarray
    lens: tuple[float, ...]
    size: tuple[int, int]  # height, width


def camera(info: Any, *, rectified: bool) -> Camera:
    """Of a rectified picture (``image_rect``) the camera is P without a lens, of a raw one K with its distortion."""
    size = (int(info.height), int(info.width))
    if rectified:
        return Camera(cameras.intrinsics_matrix(info.p, "camera_info P"), (), size)
    lens = tuple(float(v) for v in info.d)
    if any(lens) and (info.distortion_model != "plumb_bob" or len(lens) != 5):
        raise DataError(
            f"camera_info has the lens model {info.distortion_model!r} with {len(lens)} numbers, "
            "expected plumb_bob with 5: rectify the pictures (image_proc) and set rectified:=true"
        )
    return Camera(cameras.intrinsics_matrix(info.k, "camera_info K"), lens if any(lens) else (), size)


def nanoseconds(msg: Any) -> int:
    return int(msg.header.stamp.sec) * 10**9 + int(msg.header.stamp.nanosec)


def transform_matrix(transform: Any) -> np.ndarray:
    """4x4 of a geometry_msgs Transform."""
    q, t = transform.rotation, transform.translation
    return cameras.rigid(cameras.quaternion_matrix([q.x, q.y, q.z, q.w]), [t.x, t.y, t.z])


def sparse_depth(msg: Any, eye: Camera, motion: np.ndarray | None) -> np.ndarray:
    """Metres at the pixels of the picture: a PointCloud2 moved into the camera and projected,
    or an Image of depths as it is.
    """
    if hasattr(msg, "fields"):
        points = cloud_points(msg, "point cloud")
        moved = points if motion is None else projection.transform(points, motion)
        return projection.project(moved, eye.K, eye.size, distortion=eye.lens)
    return depth_image(msg, "sparse depth")


def depth_fields(depth: np.ndarray, encoding: Encoding) -> dict[str, Any]:
    """The fields of an Image beside its header, as REP 118 wants depth:
    32FC1 metres, or 16UC1 millimetres with 0 for no value.
    """
    if encoding == "16UC1":
        values = np.rint(depth * 1000)
        pixels = np.where(values <= 65535, values, 0).astype("<u2")
    elif encoding == "32FC1":
        pixels = depth.astype("<f4")
    else:
        raise DataError(f"unknown depth encoding {encoding!r}: expected 32FC1 or 16UC1")
    height, width = pixels.shape
    data = np.frombuffer(pixels.tobytes(), np.uint8)
    step = width * pixels.itemsize
    return {"height": height, "width": width, "encoding": encoding, "is_bigendian": 0, "step": step, "data": data}


class Pairing:
    """A picture and the points of its moment, whichever comes first.  Keeps at most ``keep`` messages of each kind."""

    def __init__(self, apart: float, keep: int = 8) -> None:
        self.apart = apart * 1e9
        self.images: deque[Any] = deque(maxlen=keep)
        self.points: deque[Any] = deque(maxlen=keep)

    def image(self, msg: Any) -> tuple[Any, Any] | None:
        self.images.append(msg)
        return self.match()

    def cloud(self, msg: Any) -> tuple[Any, Any] | None:
        self.points.append(msg)
        return self.match()

    def match(self) -> tuple[Any, Any] | None:
        """The newest picture that has points near enough in time;
        it and older ones are then gone, points may serve again.
        """
        for image in reversed(self.images):
            time = nanoseconds(image)
            near = min(self.points, key=lambda p: abs(nanoseconds(p) - time), default=None)
            if near is not None and abs(nanoseconds(near) - time) <= self.apart:
                while self.images.popleft() is not image:
                    pass
                return image, near
        return None


@dataclass(frozen=True, slots=True)
class Reply:
    """What to publish for one picture."""

    header: Any  # of the picture: same moment, same frame
    fields: dict[str, Any]  # of the depth Image
    prediction: Prediction
    points: int

    def about(self) -> dict[str, Any]:
        """JSON-able."""
        p = self.prediction
        similarity = {name: round(value, 4) for name, value in p.similarity.items()}
        return {
            "domain": p.domain,
            "unknown": p.unknown,
            "excess": p.excess,
            "similarity": similarity,
            "points": self.points,
        }


class Completer:
    """Takes messages as they come and gives a Reply whenever a picture, its points and a camera_info are there.

    ``lookup`` finds the motion from the cloud's frame to the camera's; it is asked only where the two differ.
    """

    def __init__(
        self,
        stream: Stream,
        lookup: Lookup,
        *,
        rectified: bool = True,
        apart: float = 0.06,
        encoding: Encoding = "32FC1",
    ) -> None:
        self.stream, self.lookup, self.rectified, self.encoding = stream, lookup, rectified, encoding
        self.pairing = Pairing(apart)
        self.eye: Camera | None = None

    def info(self, msg: Any) -> None:
        self.eye = camera(msg, rectified=self.rectified)

    def image(self, msg: Any) -> Reply | None:
        return self.complete(self.pairing.image(msg)) if self.eye else None

    def cloud(self, msg: Any) -> Reply | None:
        return self.complete(self.pairing.cloud(msg)) if self.eye else None

    def complete(self, pair: tuple[Any, Any] | None) -> Reply | None:
        if pair is None or self.eye is None:
            return None
        image, points = pair
        picture = colour(image, "image")
        if picture.shape[:2] != self.eye.size:
            (h, w), (height, width) = picture.shape[:2], self.eye.size
            raise DataError(f"the image is {w}x{h}, its camera_info is for {width}x{height}: resize both, or neither")
        here, there = image.header.frame_id, points.header.frame_id
        motion = None if here == there else self.lookup(here, there)
        depth = sparse_depth(points, self.eye, motion)
        found = self.stream(picture, depth, self.eye.K)
        fields = depth_fields(found.depth, self.encoding)
        return Reply(image.header, fields, found, int((depth > 0).sum()))
