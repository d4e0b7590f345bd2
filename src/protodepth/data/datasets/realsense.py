"""What a bag says that RealSense's own recorder wrote (the Viewer, ``rs2::recorder``): topics, unit, mounting.

``/device_0/sensor_1/Color_0/{image/data,info/camera_info,tf/0}`` and the same for ``Depth_0``.  Its depth is never
registered to the colour picture; ``tf/N`` takes points of a reference camera into the stream's camera.  The unit stands
behind each depth picture (newer files) or in the option "Depth Units", metres a step.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from protodepth.data.datasets import ros_messages
from protodepth.data.files import cameras
from protodepth.errors import DataError
from protodepth.types import Float

_STREAM = re.compile(r"(/device_\d+/sensor_\d+)/(Color|Depth)_\d+/image/data")
STEPS = 1000.0  # of a metre, where a file does not say


@dataclass(frozen=True, slots=True)
class SdkStream:
    """One camera of the device, by its topic of pictures."""

    topic: str

    @property
    def base(self) -> str:
        return self.topic.removesuffix("/image/data")

    @property
    def info(self) -> str:
        return f"{self.base}/info/camera_info"


def streams(path: Path) -> tuple[SdkStream, SdkStream] | None:
    """(colour, depth) of a file of the SDK; None for any other bag."""
    known = [(m[2], topic) for topic in sorted(ros_messages.topics(path)) if (m := _STREAM.fullmatch(topic))]
    pair = [next((SdkStream(topic) for kind, topic in known if kind == wanted), None) for wanted in ("Color", "Depth")]
    if not known:
        return None
    colour, depth = pair
    if colour is None or depth is None:
        missing = "colour" if colour is None else "depth"
        raise DataError(f"{path} was recorded without the {missing} stream: record both, {known[0][1]} alone is there")
    return colour, depth


def mounting(path: Path, colour: SdkStream, depth: SdkStream) -> Float[np.ndarray, "4 4"]:
    """Points of the depth camera in the colour camera: each ``tf`` leads from a common reference to its stream."""
    known = ros_messages.topics(path)
    groups = [{t.rsplit("/", 1)[1]: t for t in known if t.startswith(f"{s.base}/tf/")} for s in (colour, depth)]
    common = sorted(groups[0].keys() & groups[1].keys())
    if not common:
        raise DataError(f"{path} does not say where the colour camera sits (no {colour.base}/tf/0): give extrinsics")
    to_colour, to_depth = (_transform(path, group[common[0]]) for group in groups)
    return to_colour @ cameras.inverse(to_depth)


def _transform(path: Path, topic: str) -> Float[np.ndarray, "4 4"]:
    msg = ros_messages.first_message(path, topic)
    turn, shift = msg.rotation, msg.translation
    pose = cameras.rigid(cameras.quaternion_matrix([turn.x, turn.y, turn.z, turn.w]), [shift.x, shift.y, shift.z])
    return cameras.placed(pose, f"{topic} of {path}")


def depth_steps(path: Path, depth: SdkStream) -> float:
    """How many stored steps make a metre."""
    behind = ros_messages.appended_number(path, depth.topic)
    if behind:
        return float(round(1 / behind, 3))
    sensor = depth.base.rsplit("/", 1)[0]
    names = [f"{sensor}/option/{name}/value" for name in ("Depth Units", "Depth_Units")]
    for topic in (t for t in names if t in ros_messages.topics(path)):
        unit = float(ros_messages.first_message(path, topic).data)
        if unit > 0:
            return float(round(1 / unit, 3))
    return STEPS
