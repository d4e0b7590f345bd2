"""The ROS 2 example: messages in the wire format go in, a depth image comes out;
the node is driven by a stand-in for rclpy.
"""

import json
import sys
import types
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from helpers.documents import ROOT
from protodepth.data.worlds.worlds import WORLDS, render
from protodepth.errors import DataError
from protodepth.inference.stream import Stream
from protodepth.model import ProtoDepth

typesys = pytest.importorskip("rosbags.typesys", reason="rosbags is not installed: pip install 'protodepth[data]'")
EXAMPLE = ROOT / "examples" / "ros2"
STORE = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
FRAME = render(WORLDS["room"], seed=3, size=(32, 48))
# x forward, y left, z up of a vehicle to x right, y down, z forward of a camera, and a shift
TURN = Rotation.from_matrix([[0, -1, 0], [0, 0, -1], [1, 0, 0]]) * Rotation.from_euler("xyz", [0.1, -0.05, 0.2])
SHIFT = np.array([0.2, -0.1, 0.05])
MOTION = np.eye(4)
MOTION[:3, :3], MOTION[:3, 3] = TURN.as_matrix(), SHIFT


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    for name in [n for n in sys.modules if n.startswith("protodepth_ros")]:
        del sys.modules[name]


def make(kind: str, **fields: Any) -> Any:
    """A message that has travelled: written as CDR bytes and read again."""
    message = STORE.types[kind](**fields)
    return STORE.deserialize_cdr(STORE.serialize_cdr(message, kind), kind)


def header(time: float, frame: str = "camera") -> Any:
    stamp = STORE.types["builtin_interfaces/msg/Time"](sec=int(time), nanosec=round(time % 1 * 1e9))
    return STORE.types["std_msgs/msg/Header"](stamp=stamp, frame_id=frame)


def image(time: float, pixels: np.ndarray, encoding: str, frame: str = "camera") -> Any:
    height, width = pixels.shape[:2]
    padded = np.pad(pixels.reshape(height, -1).view(np.uint8), ((0, 0), (0, 4)))  # rows may be longer than the picture
    return make(
        "sensor_msgs/msg/Image",
        header=header(time, frame),
        height=height,
        width=width,
        encoding=encoding,
        is_bigendian=0,
        step=padded.shape[1],
        data=padded.ravel(),
    )


def picture(time: float) -> Any:
    return image(time, np.ascontiguousarray(FRAME.image[..., ::-1]), "bgr8")


def points_image(time: float) -> Any:
    return image(time, FRAME.sparse_depth.astype("<f4"), "32FC1")


def cloud(time: float, frame: str = "lidar") -> Any:
    """The sparse points lifted into space and seen from the LiDAR; one of them is not a number."""
    y, x = np.nonzero(FRAME.sparse_depth)
    rays = np.linalg.inv(FRAME.intrinsics) @ np.stack([x, y, np.ones(len(x))])
    seen = TURN.inv().apply((rays * FRAME.sparse_depth[y, x]).T - SHIFT)
    rows = np.zeros(len(seen) + 1, [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<u2"), ("pad", "V2")])
    for axis, column in zip("xyz", np.vstack([seen, [np.nan] * 3]).T, strict=True):
        rows[axis] = column
    field = STORE.types["sensor_msgs/msg/PointField"]
    fields = [field(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate("xyz")]
    return make(
        "sensor_msgs/msg/PointCloud2",
        header=header(time, frame),
        height=1,
        width=len(rows),
        fields=fields,
        is_bigendian=False,
        point_step=16,
        row_step=16 * len(rows),
        data=np.frombuffer(rows.tobytes(), np.uint8),
        is_dense=False,
    )


def info(height: int = 32, width: int = 48, lens: tuple[float, ...] = (0.0,) * 5, model: str = "plumb_bob") -> Any:
    roi = STORE.types["sensor_msgs/msg/RegionOfInterest"](x_offset=0, y_offset=0, height=0, width=0, do_rectify=False)
    K = FRAME.intrinsics
    P = np.hstack([K, np.zeros((3, 1))])
    return make(
        "sensor_msgs/msg/CameraInfo",
        header=header(0),
        height=height,
        width=width,
        distortion_model=model,
        d=np.array(lens),
        k=(0.5 * K + np.diag([0, 0, 0.5])).ravel(),
        r=np.eye(3).ravel(),
        p=P.ravel(),
        binning_x=0,
        binning_y=0,
        roi=roi,
    )


def transform() -> Any:
    q = TURN.as_quat()
    vector, quaternion = STORE.types["geometry_msgs/msg/Vector3"], STORE.types["geometry_msgs/msg/Quaternion"]
    return make("geometry_msgs/msg/Transform", translation=vector(*SHIFT), rotation=quaternion(*q))


def completer(model: ProtoDepth, **options: Any) -> Any:
    from protodepth_ros.messages import Completer, transform_matrix

    return Completer(Stream(model, "night"), lambda here, there: transform_matrix(transform()), **options)


def expected(model: ProtoDepth) -> np.ndarray:
    return model.predict(FRAME.image, FRAME.sparse_depth, FRAME.intrinsics, domain="night").depth


@pytest.mark.parametrize(("encoding", "kind", "scale"), [("32FC1", "<f4", 1), ("16UC1", "<u2", 1000)])
def test_picture_and_cloud_give_the_depth_that_predict_gives(model: ProtoDepth, encoding, kind, scale):
    work = completer(model, encoding=encoding)
    work.info(info())
    assert work.cloud(cloud(10.0)) is None
    reply = work.image(picture(10.02))
    sent = make("sensor_msgs/msg/Image", header=reply.header, **reply.fields)
    depth = np.asarray(sent.data).view(kind).reshape(sent.height, sent.width) / scale
    assert (sent.encoding, sent.step, sent.header.frame_id) == (encoding, 48 * np.dtype(kind).itemsize, "camera")
    assert sent.header.stamp.nanosec == 20_000_000
    np.testing.assert_allclose(depth, expected(model), atol=2e-3)  # the points went through 32 bits and a rotation
    assert reply.points == (FRAME.sparse_depth > 0).sum()
    assert json.loads(json.dumps(reply.about()))["domain"] == "night"


def test_a_registered_depth_image_serves_as_well_and_needs_no_transform(model: ProtoDepth):
    work = completer(model)
    work.lookup = lambda here, there: pytest.fail("asked for a transform between equal frames")
    work.info(info())
    work.image(picture(5.0))
    reply = work.cloud(points_image(5.01))
    assert np.array_equal(np.asarray(reply.fields["data"]).view("<f4").reshape(32, 48), expected(model))


def test_depth_beyond_16_bits_of_millimetres_is_no_value():
    from protodepth_ros.messages import depth_fields

    data = depth_fields(np.array([[1.5, 65.535, 65.6]]), "16UC1")["data"]
    assert data.view("<u2").tolist() == [1500, 65535, 0]


def test_pictures_pair_with_the_nearest_points_and_memory_stays_bounded():
    from protodepth_ros.messages import Pairing

    pairing, far = Pairing(apart=0.05, keep=3), [image(1 + n, np.zeros((1, 1), np.uint8), "mono8") for n in range(9)]
    assert all(pairing.image(msg) is None for msg in far)
    assert len(pairing.images) == 3
    pairing.points.extend([image(t, np.zeros((1, 1), np.uint8), "mono8") for t in (8.01, 9.04)])
    pair = pairing.cloud(image(9.01, np.zeros((1, 1), np.uint8), "mono8"))
    assert [round(m.header.stamp.sec + m.header.stamp.nanosec / 1e9, 2) for m in pair] == [9.0, 9.01]
    assert pairing.match() is None  # older pictures are gone, none is answered twice
    again = pairing.image(image(9.02, np.zeros((1, 1), np.uint8), "mono8"))
    assert again is not None  # one sweep may serve two pictures
    assert pairing.image(image(9.2, np.zeros((1, 1), np.uint8), "mono8")) is None


def test_a_rectified_picture_uses_p_and_a_raw_one_k_with_its_lens():
    from protodepth_ros.messages import camera

    lens = (0.1, -0.02, 0.001, 0.002, 0.0)
    np.testing.assert_allclose(camera(info(lens=lens), rectified=True).K, FRAME.intrinsics)
    assert camera(info(lens=lens), rectified=True).lens == ()
    raw = camera(info(lens=lens), rectified=False)
    assert raw.K[0, 0] == pytest.approx(FRAME.intrinsics[0, 0] / 2)
    assert raw.lens == lens
    with pytest.raises(DataError, match=r"'equidistant' with 4 numbers.*rectify"):
        camera(info(lens=(0.1, 0.1, 0.1, 0.1), model="equidistant"), rectified=False)


def test_faults_are_explained(model: ProtoDepth):
    work = completer(model)
    assert work.image(picture(1.0)) is None  # no camera_info yet
    work.info(info(height=64, width=96))
    work.image(picture(2.0))
    with pytest.raises(DataError, match=r"image is 48x32, its camera_info is for 96x64"):
        work.cloud(cloud(2.0))
    work.info(info())
    work.image(picture(3.0))
    with pytest.raises(DataError, match="no points"):
        work.cloud(image(3.0, np.zeros((32, 48), "<f4"), "32FC1"))


# --- the node with a stand-in for rclpy -------------------------------------------------------------------------------


class FakeNode:
    """What rclpy.node.Node offers to the example; ``given`` are parameters of the command line."""

    given: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, name: str) -> None:
        self.name, self.taken, self.sent, self.warnings = name, {}, {}, []

    def declare_parameter(self, name: str, default: Any) -> Any:
        return types.SimpleNamespace(value=self.given.get(name, default))

    def create_publisher(self, kind: type, topic: str, depth: int) -> Any:
        return types.SimpleNamespace(publish=self.sent.setdefault(topic, []).append)

    def create_subscription(self, kind: type, topic: str, take: Callable[[Any], None], qos: Any) -> None:
        self.taken[topic] = take

    def get_logger(self) -> Any:
        def warn(text: str, **options: float) -> None:
            self.warnings.append(text)

        return types.SimpleNamespace(info=lambda text: None, warning=warn)


class FakeImage:
    """Like a generated message: empty at first, and its data must be an array of bytes."""

    def __setattr__(self, name: str, value: Any) -> None:
        assert name != "data" or (isinstance(value, array) and value.typecode == "B")
        object.__setattr__(self, name, value)


class TransformException(Exception):
    pass


class FakeBuffer:
    known = False

    def lookup_transform(self, target: str, source: str, time: Any) -> Any:
        if not self.known:
            raise TransformException(f"{source} is not connected to {target}")
        return types.SimpleNamespace(transform=transform())


@pytest.fixture
def node(model: ProtoDepth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    model.save_pretrained(tmp_path / "m")
    FakeNode.given = {"model": str(tmp_path / "m"), "domain": "night"}
    simple = types.SimpleNamespace
    fakes = {
        "rclpy": simple(),
        "rclpy.node": simple(Node=FakeNode),
        "rclpy.qos": simple(qos_profile_sensor_data=object()),
        "rclpy.time": simple(Time=object),
        "sensor_msgs.msg": simple(Image=FakeImage, CameraInfo=object, PointCloud2=object),
        "std_msgs.msg": simple(String=simple),
        "tf2_ros": simple(
            Buffer=FakeBuffer, TransformListener=lambda b, n: None, TransformException=TransformException
        ),
    }
    for name, fake in fakes.items():
        monkeypatch.setitem(sys.modules, name, fake)  # type: ignore[arg-type]
    from protodepth_ros.node import CompletionNode

    return CompletionNode()


def test_the_node_publishes_what_its_topics_give_and_survives_a_missing_transform(node: Any, model: ProtoDepth):
    assert set(node.taken) == {"image", "camera_info", "points", "sparse_depth"}
    node.taken["camera_info"](info())
    node.taken["image"](picture(1.0))
    node.taken["points"](cloud(1.0))
    assert node.sent["depth"] == []
    assert "lidar is not connected to camera" in node.warnings[0]
    node.buffer.known = True
    node.taken["image"](picture(1.1))
    node.taken["points"](cloud(1.1))
    (sent,), (about,) = node.sent["depth"], node.sent["about"]
    np.testing.assert_allclose(
        np.frombuffer(sent.data, "<f4").reshape(sent.height, sent.width), expected(model), atol=2e-3
    )
    assert sent.header.stamp.nanosec == 100_000_000
    assert json.loads(about.data)["domain"] == "night"


def test_the_package_says_the_same_of_itself_everywhere():
    root = ElementTree.parse(EXAMPLE / "package.xml").getroot()
    name, version = root.findtext("name"), root.findtext("version")
    setup = (EXAMPLE / "setup.py").read_text()
    assert f'NAME = "{name}"' in setup
    assert f'version="{version}"' in setup
    assert (EXAMPLE / "resource" / str(name)).is_file()
    assert root.findtext("export/build_type") == "ament_python"
    used = {
        line.split()[1].split(".")[0]
        for line in (EXAMPLE / "protodepth_ros" / "node.py").read_text().splitlines()
        if line.startswith(("import ", "from "))
    }
    needed = {e.text for e in root.findall("exec_depend")}
    assert used & {"rclpy", "sensor_msgs", "std_msgs", "tf2_ros", "geometry_msgs"} == needed


def test_every_parameter_is_in_the_readme(node: Any):
    from protodepth_ros.node import PARAMETERS

    text = (EXAMPLE / "README.md").read_text()
    assert [name for name in PARAMETERS if f"`{name}`" not in text] == []
