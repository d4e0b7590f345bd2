"""Bags as robots and cameras write them: clocks, transports, cameras beside each other, many readers at once."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from helpers import rvl
from helpers.bags import START, BagWriter
from helpers.data_scene import Shot, walk
from protodepth.data import projection
from protodepth.data.arguments import open_domain
from protodepth.data.check import check
from protodepth.data.datasets import ros_messages
from protodepth.data.preview import preview
from protodepth.errors import DataError

SIZE = (40, 56)
SHOTS = walk(14, size=SIZE, step=0.05)
K = SHOTS[0].K
TENTH = 100_000_000
FORWARDS = np.array([[0.0, -1, 0, 0.1], [0, 0, -1, -0.2], [1, 0, 0, 0.05], [0, 0, 0, 1]])  # LiDAR to camera


def sparse_of(shot: Shot) -> np.ndarray:
    sparse = np.zeros(SIZE)
    sparse[::5, ::5] = shot.depth[::5, ::5]
    return sparse


def cloud_of(shot: Shot, to_camera: np.ndarray, camera: np.ndarray = K) -> np.ndarray:
    """Every fifth pixel of a picture with that camera, in the frame of a LiDAR."""
    points = projection.lift(sparse_of(shot), camera)
    return projection.transform(points, np.linalg.inv(to_camera))


def in_mm(depth: np.ndarray) -> np.ndarray:
    return np.rint(depth * 1000).astype("<u2")


def simple(path: Path, shots: list[Shot] = SHOTS) -> Path:
    bag = BagWriter(path)
    bag.info("/cam/camera_info", K, SIZE)
    for i, shot in enumerate(shots):
        bag.image("/cam/image_raw", shot.image, "rgb8", taken=START + i * TENTH)
        bag.image("/cam/depth", in_mm(shot.depth), "16UC1", taken=START + i * TENTH)
    return bag.close()


class SlowReader:
    """A bag's reader that counts who reads at once, and gives the others time to interfere."""

    def __init__(self, reader: Any) -> None:
        self.reader, self.inside, self.most = reader, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reader, name)

    def messages(self, *args: Any, **options: Any) -> Iterator[Any]:
        self.inside += 1
        self.most = max(self.most, self.inside)
        time.sleep(0.002)
        try:
            yield from self.reader.messages(*args, **options)
        finally:
            self.inside -= 1


@pytest.mark.parametrize("name", ["a.bag", "bag2"])
def test_four_threads_that_check_a_bag_take_turns_at_its_one_reader(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = simple(tmp_path / name)
    slow = SlowReader(ros_messages.open_bag(path))
    monkeypatch.setattr(ros_messages, "open_bag", lambda _: slow)
    report = check(f"rosbag:{path}?sampler=uniform:200")
    assert report.ok, report.text()
    assert slow.most == 1
    assert preview(f"rosbag:{path}?sampler=uniform:200", tmp_path / "sheet.png", rows=1).stat().st_size > 1000


def test_pictures_and_depth_are_joined_by_their_headers_not_by_when_they_were_written(tmp_path: Path) -> None:
    """The depth was written a quarter of a second late: two and a half pictures."""
    bag = BagWriter(tmp_path / "a.bag")
    bag.info("/cam/camera_info", K, SIZE)
    for i, shot in enumerate(SHOTS):
        taken = START + i * TENTH
        bag.image("/cam/image_raw", shot.image, "rgb8", taken=taken)
        bag.image("/cam/depth", in_mm(shot.depth), "16UC1", taken=taken + 3_000_000, recorded=taken + 250_000_000)
    path = bag.close()
    frame = open_domain(f"rosbag:{path}?sampler=uniform:200").test[0]
    number = (int(frame.name) - START) // TENTH
    assert np.array_equal(frame.image, SHOTS[number].image)
    assert np.abs(frame.sparse_depth + frame.ground_truth - SHOTS[number].depth).max() < 0.0006
    late = open_domain(f"rosbag:{path}?sampler=uniform:200&clock=record").test[0]
    number = (int(late.name) - START) // TENTH
    assert np.abs(late.sparse_depth + late.ground_truth - SHOTS[number].depth).max() > 0.01


def test_two_clocks_are_named_and_the_time_of_recording_may_be_asked_for(tmp_path: Path) -> None:
    bag = BagWriter(tmp_path / "a.bag")
    bag.info("/cam/camera_info", K, SIZE)
    for i, shot in enumerate(SHOTS):
        at = START + i * TENTH
        bag.image("/cam/image_raw", shot.image, "rgb8", taken=at)
        bag.image("/cam/depth", in_mm(shot.depth), "16UC1", taken=at + 37 * 10**9, recorded=at)
    path = bag.close()
    with pytest.raises(DataError, match=r"about 37\.0 s apart: two clocks\?\): clock=record"):
        open_domain(f"rosbag:{path}")
    assert len(open_domain(f"rosbag:{path}?clock=record").train) > 0


# --- rectified pictures -----------------------------------------------------------------------------------------------

OWN = np.array([[38.0, 0, 30], [0, 39, 18], [0, 0, 1]])  # the camera before it was rectified to K
TURN = Rotation.from_euler("xyz", [0.04, -0.03, 0.02]).as_matrix()  # from the camera to the rectified camera
LENS = (-0.3, 0.1, 0.001, -0.002, 0.0)


def rectified_bag(path: Path, topic: str, *, frame_is_rectified: bool = False) -> Path:
    """A LiDAR beside a camera whose pictures are rectified; /tf_static leads to the camera as it is mounted."""
    bag = BagWriter(path)
    head = topic.rsplit("/image", 1)[0]
    bag.info(f"{head}/camera_info", OWN, SIZE, P=K, R=TURN, lens=LENS)
    to_rectified = FORWARDS
    turn = np.eye(4)
    turn[:3, :3] = TURN
    to_frame = to_rectified if frame_is_rectified else np.linalg.inv(turn) @ to_rectified
    bag.link("cam", "lidar", to_frame)
    for i, shot in enumerate(SHOTS):
        taken = START + i * TENTH
        if topic.endswith("compressed"):
            bag.packed(topic, shot.image, "rgb8; png compressed", taken=taken)
        else:
            bag.image(topic, shot.image, "rgb8", taken=taken)
        bag.cloud("/velodyne_points", cloud_of(shot, to_rectified), taken=taken)
    return bag.close()


def share_right(path: Path, options: str = "") -> float:
    """Of the points, how many fall on the pixel that shows them."""
    frame = open_domain(f"rosbag:{path}{options}").test[0]
    truth = sparse_of(SHOTS[(int(frame.name) - START) // TENTH])
    points = frame.sparse_depth > 0
    return float((np.abs(frame.sparse_depth - truth)[points] < 0.01).mean())


@pytest.mark.parametrize(
    ("topic", "options"),
    [
        ("/cam/image_rect_color", ""),
        ("/cam/image_rect_color/compressed", ""),
        ("/cam/image_raw", "?rectified=true"),
    ],
)
def test_points_fall_on_what_a_rectified_picture_shows(tmp_path: Path, topic: str, options: str) -> None:
    path = rectified_bag(tmp_path / "a.bag", topic)
    assert share_right(path, options) > 0.99
    frame = open_domain(f"rosbag:{path}{options}").test[0]
    assert np.allclose(frame.intrinsics, K, atol=1e-4)
    assert share_right(path, "?rectified=false") < 0.5


@pytest.mark.parametrize("topic", ["/kitti/camera_color_left/image_raw", "/kitti/camera_color_left/image"])
def test_the_pictures_of_kitti2bag_are_rectified_and_so_are_its_frames(tmp_path: Path, topic: str) -> None:
    assert share_right(rectified_bag(tmp_path / "a.bag", topic, frame_is_rectified=True)) > 0.99


# --- a depth camera beside a colour camera ----------------------------------------------------------------------------

DEPTH_K = np.array([[33.0, 0, 27.5], [0, 33, 20.5], [0, 0, 1]])
BESIDE = np.eye(4)
BESIDE[:3, :3], BESIDE[:3, 3] = Rotation.from_euler("y", 0.02).as_matrix(), [0.015, 0.001, 0.0]  # depth to colour


def seen_by_depth(shot: Shot) -> np.ndarray:
    """The scene from the depth camera: its pixels are a projection of the colour camera's."""
    points = projection.transform(projection.lift(shot.depth, K), np.linalg.inv(BESIDE))
    return projection.project(points, DEPTH_K, SIZE)


def two_cameras(path: Path, *, tf: bool = True, info: bool = True, frame: str = "depth_optical") -> Path:
    bag = BagWriter(path)
    bag.info("/camera/color/camera_info", K, SIZE, frame="color_optical")
    if info:
        bag.info("/camera/depth/camera_info", DEPTH_K, SIZE, frame=frame)
    if tf:
        bag.link("color_optical", "depth_optical", BESIDE)
    for i, shot in enumerate(SHOTS):
        taken = START + i * TENTH
        bag.image("/camera/color/image_raw", shot.image, "rgb8", taken=taken, frame="color_optical")
        depth = in_mm(seen_by_depth(shot))
        bag.image("/camera/depth/image_rect_raw", depth, "16UC1", taken=taken, frame=frame)
    return bag.close()


def misplaced(path: Path, options: str = "") -> float:
    """Median relative error of the depth at the pixels of the picture."""
    frame = open_domain(f"rosbag:{path}?sampler=uniform:100{options}").test[0]
    depth, truth = frame.sparse_depth + frame.ground_truth, SHOTS[(int(frame.name) - START) // TENTH].depth
    known = (depth > 0) & (truth > 0)
    assert known.mean() > 0.4
    return float(np.median(np.abs(depth - truth)[known] / truth[known]))


def test_unregistered_depth_of_equal_size_is_projected_into_the_picture(tmp_path: Path) -> None:
    path = two_cameras(tmp_path / "a.bag")
    assert misplaced(path) < 0.004
    assert misplaced(path, "&registered=true") > 0.02
    words = open_domain(f"rosbag:{path}").identity["options"]["extrinsics"]
    assert words == "tf: depth_optical -> color_optical"


def test_unregistered_depth_without_frames_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = two_cameras(tmp_path / "a.bag", tf=False)
    with pytest.raises(DataError, match=r"'depth_optical', fx 33\.0\) is not registered.*aligned_depth_to_color.*extr"):
        open_domain(f"rosbag:{path}")
    numbers = ",".join(str(v) for v in BESIDE.ravel())
    assert misplaced(path, f"&extrinsics={numbers}") < 0.004
    path = two_cameras(tmp_path / "b.bag", tf=False, info=False)
    with pytest.raises(DataError, match=r"no camera_info of the depth.*registered=true"):
        open_domain(f"rosbag:{path}")


def test_another_camera_in_the_same_frame_is_not_taken_for_the_pictures_own(tmp_path: Path) -> None:
    """A driver that names both streams alike: the camera_info tells."""
    path = two_cameras(tmp_path / "a.bag", tf=False, frame="color_optical")
    assert open_domain(f"rosbag:{path}").identity["options"]["extrinsics"].startswith("another camera in the same")


def test_the_topics_of_a_realsense_node_need_no_options(tmp_path: Path) -> None:
    """Colour raw and compressed, aligned depth as compressedDepth, and the depth camera's own map beside it."""
    bag = BagWriter(tmp_path / "bag2")
    for name in ("color", "aligned_depth_to_color"):
        bag.info(f"/camera/{name}/camera_info", K, SIZE, frame="color_optical")
    bag.info("/camera/depth/camera_info", DEPTH_K, SIZE, frame="depth_optical")
    for i, shot in enumerate(SHOTS):
        taken = START + i * TENTH
        bag.packed("/camera/color/image_raw/compressed", shot.image, "rgb8; png", taken=taken, frame="color_optical")
        topic = "/camera/aligned_depth_to_color/image_raw/compressedDepth"
        words, before = "16UC1; compressedDepth png", struct.pack("<iff", 0, 0.0, 0.0)
        bag.packed(topic, in_mm(shot.depth), words, taken=taken, before=before, frame="color_optical")
        bag.image("/camera/depth/image_rect_raw", in_mm(shot.depth), "16UC1", taken=taken, frame="depth_optical")
    path = bag.close()
    assert misplaced(path) < 0.001
    assert check(f"rosbag:{path}?sampler=uniform:100").ok


def test_depth_as_coded_inverse_depth_is_read(tmp_path: Path) -> None:
    """compressedDepth of 32FC1: stored = a / metres + b, with a and b in front of the picture."""
    bag = BagWriter(tmp_path / "a.bag")
    bag.info("/cam/camera_info", K, SIZE)
    a, b = 10_000.0, -1.5
    for i, shot in enumerate(SHOTS):
        taken = START + i * TENTH
        bag.image("/cam/image_raw", shot.image, "rgb8", taken=taken)
        with np.errstate(divide="ignore"):
            coded = np.where(shot.depth > 0, a / shot.depth + b, 0)
        before = struct.pack("<iff", 0, a, b)
        words = "32FC1; compressedDepth png"
        bag.packed("/cam/depth/compressedDepth", np.rint(coded).astype(np.uint16), words, taken=taken, before=before)
    assert misplaced(bag.close()) < 0.001


@pytest.mark.parametrize("encoding", ["16UC1", "32FC1"])
def test_depth_that_is_packed_with_rvl_is_read(tmp_path: Path, encoding: str) -> None:
    bag = BagWriter(tmp_path / "a.bag")
    bag.info("/cam/camera_info", K, SIZE)
    a, b = 10_000.0, -1.5
    for i, shot in enumerate(SHOTS[:6]):
        taken = START + i * TENTH
        bag.image("/cam/image_raw", shot.image, "rgb8", taken=taken)
        with np.errstate(divide="ignore"):
            coded = np.where(shot.depth > 0, a / shot.depth + b, 0) if encoding == "32FC1" else 1000 * shot.depth
        data = struct.pack("<iffII", 1, a, b, SIZE[1], SIZE[0]) + rvl.pack(np.rint(coded).astype(int).ravel())
        bag.raw("/cam/depth/compressedDepth", data, f"{encoding}; compressedDepth rvl", taken=taken)
    assert misplaced(bag.close()) < 0.001


@pytest.mark.parametrize(
    ("words", "data", "why"),
    [
        ("16UC1; compressedDepth rvl", bytes(8), "too few for a map packed with RVL"),
        ("16UC1; compressedDepth rvl", bytes(12) + b"\xff" * 12, "damaged"),
        ("16UC1; compressedDepth", bytes(40), "neither form of compressedDepth"),
        ("8UC1; jpeg", bytes(40), "expected 16UC1 or 32FC1"),
    ],
)
def test_packed_depth_that_is_none_is_named(tmp_path: Path, words: str, data: bytes, why: str) -> None:
    bag = BagWriter(tmp_path / "a.bag")
    bag.info("/cam/camera_info", K, SIZE)
    for i, shot in enumerate(SHOTS[:4]):
        bag.image("/cam/image_raw", shot.image, "rgb8", taken=START + i * TENTH)
        bag.raw("/cam/depth/compressedDepth", data, words, taken=START + i * TENTH)
    with pytest.raises(DataError, match=why):
        open_domain(f"rosbag:{bag.close()}").test[0]


@pytest.mark.parametrize(("encoding", "order"), [("yuv422_yuy2", (0, 1, 0, 2)), ("uyvy", (1, 0, 2, 0))])
def test_pictures_in_yuv_become_colour(tmp_path: Path, encoding: str, order: tuple[int, ...]) -> None:
    bag = BagWriter(tmp_path / "a.bag")
    bag.info("/cam/camera_info", K, SIZE)
    flat = np.zeros((*SIZE, 3), np.uint8)
    flat[:, :28], flat[:, 28:] = (200, 40, 60), (30, 180, 90)
    r, g, b = (flat[..., i].astype(float) for i in range(3))
    yuv = [0.299 * r + 0.587 * g + 0.114 * b, -0.168736 * r - 0.331264 * g + 0.5 * b + 128]
    yuv.append(0.5 * r - 0.418688 * g - 0.081312 * b + 128)
    packed = np.stack([np.rint(yuv[c]) for c in range(3)], -1)
    rows = np.stack([packed[:, 0::2, order[0]], packed[:, 0::2, order[1]], packed[:, 1::2, order[2]],
                     packed[:, 0::2, order[3]]], -1).reshape(SIZE[0], SIZE[1], 2)  # fmt: skip
    for i in range(4):
        bag.image("/cam/image_raw", rows.astype(np.uint8), encoding, taken=START + i * TENTH)
        bag.image("/cam/depth", in_mm(SHOTS[i].depth), "16UC1", taken=START + i * TENTH)
    frame = open_domain(f"rosbag:{bag.close()}?sampler=uniform:100").test[0]
    assert np.abs(frame.image.astype(int) - flat).max() <= 2


def test_a_cloud_is_projected_through_the_lens_that_an_azure_kinect_publishes(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    lens = (0.9, -0.2, 3e-4, -2e-4, 0.1, 1.2, 0.1, 0.1)
    bag = BagWriter(tmp_path / "a.bag")
    bag.info("/rgb/camera_info", K, SIZE, lens=lens, model="rational_polynomial")
    points = projection.lift(sparse_of(SHOTS[0]), K)
    for i in range(4):
        bag.image("/rgb/image_raw", SHOTS[0].image, "rgb8", taken=START + i * TENTH)
        bag.cloud("/points", projection.transform(points, np.linalg.inv(FORWARDS)), taken=START + i * TENTH)
    given = ",".join(str(v) for v in FORWARDS.ravel())
    sparse = open_domain(f"rosbag:{bag.close()}?extrinsics={given}").test[0].sparse_depth
    wanted = cv2.projectPoints(points, np.zeros(3), np.zeros(3), K, np.array(lens))[0].reshape(-1, 2)
    u, v = np.rint(wanted).astype(int).T
    inside = (u >= 0) & (u < SIZE[1]) & (v >= 0) & (v < SIZE[0])
    assert set(zip(*np.nonzero(sparse), strict=True)) == set(zip(v[inside], u[inside], strict=True))


# --- files of RealSense's own recorder --------------------------------------------------------------------------------


def sdk_file(path: Path, *, behind: bool) -> Path:
    """As rs2::recorder writes: static messages at time 1, frame_id "0" (or "1"), depth in steps of 0.25 mm."""
    bag, colour, depth = BagWriter(path), "/device_0/sensor_1/Color_0", "/device_0/sensor_0/Depth_0"
    version = "1" if behind else "0"
    for base, camera in ((colour, K), (depth, DEPTH_K)):
        bag.info(f"{base}/info/camera_info", camera, SIZE, P=np.zeros((3, 3)), model="Inverse Brown Conrady", taken=1,
                 frame="")  # fmt: skip
    reference = np.eye(4)
    reference[:3, 3] = [0.05, 0.0, 0.01]  # a common reference that is neither camera
    for base, pose in ((depth, reference), (colour, BESIDE @ reference)):
        bag.send(f"{base}/tf/0", "geometry_msgs/msg/Transform", 1, bag.transform(pose))
    if not behind:
        number = bag.make("std_msgs/msg/Float32", data=0.00025)
        bag.send("/device_0/sensor_0/option/Depth Units/value", "std_msgs/msg/Float32", 1, number)
    for i, shot in enumerate(SHOTS):
        taken = START + i * TENTH
        quarter = np.rint(seen_by_depth(shot) * 4000).astype("<u2")
        bag.image(f"{colour}/image/data", shot.image, "rgb8", taken=taken, frame=version)
        bag.image(f"{depth}/image/data", quarter, "mono16", taken=taken + 4_000_000, frame=version)
    return bag.close({f"{base}/image/data": 0.00025 for base in (colour, depth)} if behind else None)


@pytest.mark.parametrize("behind", [True, False])
def test_a_file_of_the_realsense_recorder_is_read_with_its_unit_and_projected(tmp_path: Path, behind: bool) -> None:
    path = sdk_file(tmp_path / "d435.bag", behind=behind)
    assert misplaced(path) < 0.004
    domain = open_domain(f"rosbag:{path}?sampler=uniform:100")
    assert domain.identity["options"]["extrinsics"] == "RealSense recorder, 4000 steps a metre"
    report = check(f"rosbag:{path}?sampler=uniform:100")
    assert report.ok, report.text()
    assert preview(f"rosbag:{path}?sampler=uniform:100", tmp_path / "sheet.png", rows=1).stat().st_size > 1000
