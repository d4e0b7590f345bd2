"""The node: topics, parameters and tf around ``messages.Completer``."""

import json
import sys
from array import array
from typing import Any

import numpy as np
import rclpy
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from rclpy.time import Time
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from std_msgs.msg import String
from tf2_ros import Buffer, TransformException, TransformListener

from protodepth import ProtoDepth, Rule, Stream
from protodepth.data.datasets.rosbag import read_extrinsics
from protodepth.errors import DataError, ProtoDepthError
from protodepth_ros.messages import Completer, Reply, transform_matrix

PARAMETERS = {
    "model": "worlds-tiny",  # a model folder, or a bundled name
    "domain": "",  # "" = chosen for each picture
    "selection": "descriptor",  # or gaussian
    "unknown": "nearest",  # or base
    "rectified": True,  # pictures are undistorted: P of camera_info counts, not K
    "extrinsics": "",  # 16 numbers or a file, cloud to camera; "" = from tf
    "apart": 0.06,  # seconds between a picture and its points at most
    "encoding": "32FC1",  # or 16UC1
}


class CompletionNode(Node):
    """``image``, ``camera_info`` and ``points`` (PointCloud2) or ``sparse_depth`` (Image) in;
    ``depth`` (Image) and ``about`` (JSON) out.
    """

    def __init__(self) -> None:
        super().__init__("protodepth")
        given = {name: self.declare_parameter(name, default).value for name, default in PARAMETERS.items()}
        model = ProtoDepth.from_pretrained(given["model"])
        rule = Rule(selection=given["selection"], unknown=given["unknown"])
        stream = Stream(model, given["domain"] or None, rule=rule)
        self.extrinsics = read_extrinsics(given["extrinsics"]) if given["extrinsics"] else None
        self.buffer = Buffer()
        self.listener = TransformListener(self.buffer, self)
        options = {key: given[key] for key in ("rectified", "apart", "encoding")}
        self.completer = Completer(stream, self.find_motion, **options)
        self.depth = self.create_publisher(Image, "depth", 1)
        self.about = self.create_publisher(String, "about", 1)
        incoming = (
            (CameraInfo, "camera_info", self.completer.info),
            (Image, "image", self.completer.image),
            (PointCloud2, "points", self.completer.cloud),
            (Image, "sparse_depth", self.completer.cloud),
        )
        for kind, topic, take in incoming:
            self.create_subscription(
                kind, topic, lambda msg, take=take: self.handle(take, msg), qos_profile_sensor_data
            )
        self.get_logger().info(f"{given['model']}: domains {', '.join(model.domains) or 'none'}")

    def find_motion(self, here: str, there: str) -> np.ndarray:
        if self.extrinsics is not None:
            return self.extrinsics
        try:
            found = self.buffer.lookup_transform(here, there, Time())
        except TransformException as error:
            raise DataError(
                f"no motion from {there} to {here} yet ({error}): publish it on tf, or give extrinsics"
            ) from None
        return transform_matrix(found.transform)

    def handle(self, take: Any, msg: Any) -> None:
        """A bad frame is said once a second and the next one is tried."""
        try:
            reply = take(msg)
        except ProtoDepthError as error:
            self.get_logger().warning(str(error), throttle_duration_sec=1.0)
            return
        if reply is not None:
            self.publish(reply)

    def publish(self, reply: Reply) -> None:
        out = Image()
        out.header = reply.header
        for name, value in reply.fields.items():
            # The setter of a message copies an array at once, and checks anything else number by number.
            setattr(out, name, array("B", value.tobytes()) if name == "data" else value)
        self.depth.publish(out)
        self.about.publish(String(data=json.dumps(reply.about())))


def main() -> None:
    rclpy.init()
    try:
        node = CompletionNode()
    except ProtoDepthError as error:
        sys.exit(f"protodepth: {error}")
    try:
        rclpy.spin(node)
    except KeyboardInterrupt:
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
