"""Bags written message by message: each test says topic, times, frame and camera of what it sends."""

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Picture
from scipy.spatial.transform import Rotation

START = 10**18  # nanoseconds


@dataclass
class BagWriter:
    """Messages of ROS 1 (``.bag``) or ROS 2 (a folder), written by ``close``."""

    path: Path
    sent: list[tuple[str, str, int, Any]] = field(default_factory=list)  # topic, type, time of recording, message

    def __post_init__(self) -> None:
        pytest.importorskip("rosbags")
        from rosbags.typesys import Stores, get_types_from_msg, get_typestore

        self.ros = 1 if self.path.suffix == ".bag" else 2
        self.store = get_typestore(Stores.ROS1_NOETIC if self.ros == 1 else Stores.ROS2_HUMBLE)
        if self.ros == 1:
            definition = "geometry_msgs/TransformStamped[] transforms\n"
            self.store.register(get_types_from_msg(definition, "tf2_msgs/msg/TFMessage"))

    def make(self, kind: str, **fields: Any) -> Any:
        return self.store.types[kind](**fields)

    def header(self, taken: int, frame: str) -> Any:
        stamp = self.make("builtin_interfaces/msg/Time", sec=taken // 10**9, nanosec=taken % 10**9)
        return self.make("std_msgs/msg/Header", stamp=stamp, frame_id=frame, **({"seq": 0} if self.ros == 1 else {}))

    def send(self, topic: str, kind: str, recorded: int, message: Any) -> None:
        self.sent.append((topic, kind, recorded, message))

    def image(
        self, topic: str, pixels: np.ndarray, encoding: str, *, taken: int, frame: str = "cam", recorded: int = 0
    ) -> None:
        kind, step = "sensor_msgs/msg/Image", pixels.nbytes // len(pixels)
        message = self.make(
            kind,
            header=self.header(taken, frame),
            height=pixels.shape[0],
            width=pixels.shape[1],
            encoding=encoding,
            is_bigendian=0,
            step=step,
            data=np.frombuffer(pixels.tobytes(), np.uint8),
        )
        self.send(topic, kind, recorded or taken, message)

    def packed(
        self, topic: str, pixels: np.ndarray, words: str, *, taken: int, before: bytes = b"", frame: str = "cam"
    ) -> None:
        """A CompressedImage: PNG, so that nothing is lost."""
        buffer = io.BytesIO()
        Picture.fromarray(pixels).save(buffer, "PNG")
        self.raw(topic, before + buffer.getvalue(), words, taken=taken, frame=frame)

    def raw(self, topic: str, content: bytes, words: str, *, taken: int, frame: str = "cam") -> None:
        """A CompressedImage of any bytes."""
        kind, data = "sensor_msgs/msg/CompressedImage", np.frombuffer(content, np.uint8)
        self.send(topic, kind, taken, self.make(kind, header=self.header(taken, frame), format=words, data=data))

    def info(
        self,
        topic: str,
        K: np.ndarray,
        size: tuple[int, int],
        *,
        P: np.ndarray | None = None,
        R: np.ndarray | None = None,
        lens: Sequence[float] = (0.0,) * 5,
        model: str = "plumb_bob",
        frame: str = "cam",
        taken: int = START,
    ) -> None:
        kind = "sensor_msgs/msg/CameraInfo"
        roi = self.make("sensor_msgs/msg/RegionOfInterest", x_offset=0, y_offset=0, height=0, width=0, do_rectify=False)
        wide = np.hstack([K if P is None else P, np.zeros((3, 1))]).ravel()
        arrays = {"d": np.array(lens), "k": K.ravel(), "r": (np.eye(3) if R is None else R).ravel(), "p": wide}
        arrays = {name.upper() if self.ros == 1 else name: value for name, value in arrays.items()}
        rest = {"height": size[0], "width": size[1], "distortion_model": model, "binning_x": 0, "binning_y": 0}
        self.send(topic, kind, taken, self.make(kind, header=self.header(taken, frame), roi=roi, **rest, **arrays))

    def cloud(self, topic: str, points: np.ndarray, *, taken: int, frame: str = "lidar", recorded: int = 0) -> None:
        kind, one = "sensor_msgs/msg/PointCloud2", self.store.types["sensor_msgs/msg/PointField"]
        fields = [one(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate("xyz")]
        data = np.frombuffer(points.astype("<f4").tobytes(), np.uint8)
        sizes = {"height": 1, "width": len(points), "point_step": 12, "row_step": 12 * len(points)}
        message = self.make(
            kind, header=self.header(taken, frame), fields=fields, is_bigendian=False, data=data, is_dense=True, **sizes
        )
        self.send(topic, kind, recorded or taken, message)

    def transform(self, pose: np.ndarray) -> Any:
        x, y, z, w = Rotation.from_matrix(pose[:3, :3]).as_quat()
        shift = self.make("geometry_msgs/msg/Vector3", x=pose[0, 3], y=pose[1, 3], z=pose[2, 3])
        turn = self.make("geometry_msgs/msg/Quaternion", x=x, y=y, z=z, w=w)
        return self.make("geometry_msgs/msg/Transform", translation=shift, rotation=turn)

    def link(self, parent: str, child: str, pose: np.ndarray) -> None:
        """``pose``: points of the child in the parent's frame."""
        one = self.make(
            "geometry_msgs/msg/TransformStamped",
            header=self.header(START, parent),
            child_frame_id=child,
            transform=self.transform(pose),
        )
        kind = "tf2_msgs/msg/TFMessage"
        self.send("/tf_static", kind, START, self.make(kind, transforms=[one]))

    def close(self, behind: dict[str, float] | None = None) -> Path:
        """``behind``: topic -> a number that is appended to its messages, as RealSense's recorder does."""
        from rosbags import rosbag1, rosbag2

        writer = rosbag1.Writer(self.path) if self.ros == 1 else rosbag2.Writer(self.path, version=9)
        with writer:
            known: dict[str, Any] = {}
            for topic, kind, recorded, message in sorted(self.sent, key=lambda row: row[2]):
                if topic not in known:
                    known[topic] = writer.add_connection(topic, kind, typestore=self.store)
                pack = self.store.serialize_ros1 if self.ros == 1 else self.store.serialize_cdr
                data = bytes(pack(message, kind))
                data += struct.pack("<f", behind[topic]) if behind and topic in behind else b""
                writer.write(known[topic], recorded, data)
        return self.path
