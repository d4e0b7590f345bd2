"""Intrinsics and poses in files."""

from pathlib import Path

import numpy as np
import pytest

from protodepth.data.files import cameras
from protodepth.errors import DataError

EXPECTED = [[500.5, 0, 320], [0, 501, 240.25], [0, 0, 1]]
CAMERA_INFO = """header:
  frame_id: cam
height: 480
width: 640
distortion_model: plumb_bob
D: [0.0, 0.0, 0.0, 0.0, 0.0]
K: [500.5, 0.0, 320.0, 0.0, 501.0, 240.25, 0.0, 0.0, 1.0]
R: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
P: [1.0, 0.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0, 0.0, 1.0, 0.0]
"""
ROS2 = "width: 640\nd:\n- 0.0\nk:\n- 500.5\n- 0.0\n- 320.0\n- 0.0\n- 501.0\n- 240.25\n- 0.0\n- 0.0\n- 1.0\nr:\n- 1.0\n"
CALIBRATION = (
    "image_width: 640\ncamera_matrix:\n  rows: 3\n  cols: 3\n  data: [500.5, 0, 320, 0, 501, 240.25, 0, 0, 1]\n"
)

FOUR = {"fx": 500.5, "fy": 501.0, "cx": 320.0, "cy": 240.25}
REALSENSE = (
    '{"width": 640, "height": 480, "ppx": 320.0, "ppy": 240.25, "fx": 500.5, "fy": 501.0, '
    '"model": "distortion.inverse_brown_conrady", "coeffs": [0.0, 0.0, 0.0, 0.0, 0.0]}'
)
OPEN3D = '{"width": 640, "height": 480, "intrinsic_matrix": [500.5, 0, 0, 0, 501, 0, 320, 240.25, 1]}'
KALIBR = """cam0:
  cam_overlaps: [1]
  camera_model: pinhole
  distortion_coeffs: [-0.28, 0.07, 0.0001, 0.00002]
  distortion_model: radtan
  intrinsics: [500.5, 501, 320, 240.25]
  resolution: [640, 480]
cam1:
  intrinsics: [1, 2, 3, 4]
"""
OPENCV = """%YAML:1.0
---
image_width: 640
camera_matrix: !!opencv-matrix
   rows: 3
   cols: 3
   dt: d
   data: [ 5.005e+02, 0., 320., 0., 501., 2.4025e+02, 0., 0., 1. ]
distortion_coefficients: !!opencv-matrix
   rows: 1
   cols: 5
   dt: d
   data: [ 1., 2., 3., 4., 5. ]
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("k.txt", "500.5 0 320\n0 501 240.25\n0 0 1\n"),
        ("k.txt", "500.5, 501, 320, 240.25"),
        ("k.txt", "[[500.5, 0, 320],\n [0, 501, 240.25],\n [0, 0, 1]]"),
        ("k.txt", "500.5 0 320 0\n0 501 240.25 0\n0 0 1 0\n0 0 0 1\n"),
        ("k.txt", "fx = 500.5\nfy = 501\ncx = 320\ncy = 240.25\n"),
        ("k.txt", "".join(f"{k}: {v}\n" for k, v in FOUR.items())),
        ("k.json", '{"fx": 500.5, "fy": 501, "cx": 320, "cy": 240.25}'),
        ("k.json", '{"K": [[500.5, 0, 320], [0, 501, 240.25], [0, 0, 1]]}'),
        ("k.yaml", CAMERA_INFO),
        ("k.yaml", ROS2),
        ("k.yml", CALIBRATION),
        ("realsense.json", REALSENSE),
        ("open3d.json", OPEN3D),
        ("nerfstudio.json", '{"fl_x": 500.5, "fl_y": 501, "cx": 320, "cy": 240.25, "frames": []}'),
        ("kalibr.yaml", KALIBR),
        ("orbslam.yaml", "%YAML:1.0\n---\n" + "".join(f"Camera.{k}: {v}\n" for k, v in FOUR.items())),
        ("orbslam3.yaml", "%YAML:1.0\n" + "".join(f"Camera1.{k}: {v}\n" for k, v in FOUR.items())),
        ("opencv.yaml", OPENCV),
        ("opencv.yml", OPENCV.replace("camera_matrix", "cameraMatrix")),
        ("cameras.txt", "# Camera list\n# Number of cameras: 1\n1 OPENCV 640 480 500.5 501 320.5 240.75 0.1 0 0 0\n"),
    ],
)
def test_every_notation_of_intrinsics_gives_one_matrix(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert cameras.read_intrinsics(tmp_path / name).tolist() == EXPECTED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3", "has 3 numbers"),
        ("500 0 0 0 500 0 320 240 1", "transposed"),
        ("fx 500", "line 1: 'fx' is not a number"),
        ("-5 5 3 2", "positive"),
    ],
)
def test_wrong_intrinsics_say_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "k.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        cameras.read_intrinsics(tmp_path / "k.txt")


def test_intrinsics_of_another_resolution_are_noticed() -> None:
    K = cameras.intrinsics_matrix([525, 525, 319.5, 239.5])
    assert cameras.intrinsics_fault(K, (480, 640)) is None
    assert "another resolution" in str(cameras.intrinsics_fault(K, (120, 160)))
    assert "another resolution" in str(cameras.intrinsics_fault(K, (1440, 1920)))
    assert "normalised" in str(cameras.intrinsics_fault(cameras.intrinsics_matrix([0.9, 1.2, 0.5, 0.5]), (480, 640)))


def test_poses_are_read_with_or_without_names_and_lost_ones_are_nan(tmp_path: Path) -> None:
    pose = np.eye(4)
    pose[:3, 3] = [1, 2, 3]
    line = " ".join(str(v) for v in pose.ravel())
    lost = " ".join(["-inf"] * 16)
    (tmp_path / "p.txt").write_text(f"{line}\n{lost}\n")
    poses = cameras.read_poses(tmp_path / "p.txt", ["a", "b"])
    assert np.array_equal(poses[0], pose)
    assert np.isnan(poses[1]).all()
    (tmp_path / "p.txt").write_text(f"# id pose\nb {line}\n")
    assert np.array_equal(cameras.read_poses(tmp_path / "p.txt", ["a", "b"])[1], pose)


def test_a_number_of_poses_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("1 0 0 0 0 1 0 0 0 0 1 0\n")
    with pytest.raises(DataError, match="1 poses for 2 images"):
        cameras.read_poses(tmp_path / "p.txt", ["a", "b"])


def test_quaternions_agree_with_scipy() -> None:
    from scipy.spatial.transform import Rotation

    q = np.random.default_rng(0).standard_normal((20, 4))
    expected = Rotation.from_quat(q).as_matrix()
    assert np.allclose([cameras.quaternion_matrix(v) for v in q], expected)


def test_several_colmap_cameras_are_not_one(tmp_path: Path) -> None:
    (tmp_path / "cameras.txt").write_text("1 PINHOLE 640 480 500 500 320 240\n2 PINHOLE 640 480 500 500 320 240\n")
    with pytest.raises(DataError, match=r"2 cameras, expected one.*colmap:"):
        cameras.read_intrinsics(tmp_path / "cameras.txt")
    (tmp_path / "cameras.txt").write_text("1 OPENCV_FISHEYE 640 480 500 500 320 240 0 0 0 0\n")
    with pytest.raises(DataError, match=r"OPENCV_FISHEYE, expected one of .*undistort"):
        cameras.read_intrinsics(tmp_path / "cameras.txt")


def tum_lines(times: list[float]) -> str:
    rows = [[t, 0.1 * i, 0.2, 0.3, 0, 0, np.sin(0.1 * i), np.cos(0.1 * i)] for i, t in enumerate(times)]
    return "# timestamp tx ty tz qx qy qz qw\n" + "\n".join(" ".join(f"{v:.9f}" for v in row) for row in rows)


def test_poses_as_lines_of_tum_are_joined_by_the_time_in_the_names(tmp_path: Path) -> None:
    times = [1305031102.1 + 0.01 * i for i in range(20)]
    (tmp_path / "poses.txt").write_text(tum_lines(times))
    for ids in (["1305031102.144", "1305031102.181"], ["1305031102144000000", "1305031102181000000"]):
        poses = cameras.read_poses(tmp_path / "poses.txt", ids)
        assert poses[:, 0, 3] == pytest.approx([0.4, 0.8])
        assert poses[1, :2, :2] == pytest.approx(np.array([[np.cos(1.6), -np.sin(1.6)], [np.sin(1.6), np.cos(1.6)]]))
    lost = cameras.read_poses(tmp_path / "poses.txt", ["1305031102.1", "1305031102.9"])
    assert np.isfinite(lost[0]).all()
    assert np.isnan(lost[1]).all()


def test_poses_as_lines_of_tum_are_taken_in_order_where_names_are_no_times(tmp_path: Path) -> None:
    (tmp_path / "poses.txt").write_text(tum_lines([10.0, 10.1, 10.2]))
    assert cameras.read_poses(tmp_path / "poses.txt", ["0", "1", "2"])[:, 0, 3] == pytest.approx([0, 0.1, 0.2])
    with pytest.raises(DataError, match="3 poses with times for 2 images"):
        cameras.read_poses(tmp_path / "poses.txt", ["a", "b"])
    (tmp_path / "poses.txt").write_text("10 0 0 0 0 0 0 1\n11 0 0 0 0 0 1\n")
    with pytest.raises(DataError, match="line 2 has 7 numbers, expected 8"):
        cameras.read_poses(tmp_path / "poses.txt", ["0", "1"])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_poses_without_numbers_are_lost_or_refused_and_never_a_warning(value: float) -> None:
    """An infinite quaternion in a table of nuScenes moved its points nowhere, and NumPy complained."""
    assert np.isnan(cameras.quaternion_matrix([value, 0.1, 0.2, 0.3])).all()
    assert np.isnan(cameras.quaternion_matrix([0, 0, 0, 0])).all()
    pose = np.eye(4)
    pose[1, 3] = value
    assert np.isnan(cameras.inverse(pose)).all()
    assert np.isnan(cameras.relative_pose(np.eye(4), pose)).all()
    assert not cameras.pose_is_valid(pose)
    with pytest.raises(DataError, match=r"extrinsic\.txt has a pose that is no place"):
        cameras.placed(pose, "extrinsic.txt")
    assert cameras.placed(np.eye(4), "extrinsic.txt").trace() == 4


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("k.txt", "fx: 50_0\nfy: 500\ncx: 320\ncy: 240", r"'50_0' is not a number"),
        ("k.txt", "fx = 500px\nfy = 500\ncx = 320\ncy = 240", r"'500px' is not a number"),
        ("k.yaml", "K: [50_0, 0, 320, 0, 500, 240, 0, 0, 1]", r"'50_0' is not a number"),
        ("k.yaml", "camera_matrix:\n  data: [5OO, 0, 320, 0, 500, 240, 0, 0, 1]", r"'5OO' is not a number"),
        ("k.yaml", "Camera.fx: 50_0\nCamera.fy: 500\nCamera.cx: 320\nCamera.cy: 240", r"'50_0' is not a number"),
        ("k.json", '{"fx": 500, "fy": 500, "cx": 320, "cy": true}', "the intrinsics are not numbers"),
        ("k.json", '{"K": [[500, 0, 320], [0, 500, true], [0, 0, 1]]}', "the intrinsics are not numbers"),
    ],
)
def test_a_word_that_only_begins_as_a_number_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    """Its part would be another focal length, which may look right."""
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        cameras.read_intrinsics(tmp_path / name)


def test_numbers_of_a_yaml_may_stand_below_each_other_and_have_comments(tmp_path: Path) -> None:
    rows = ["K:  # row by row", *(f"- {v}" for v in (500.0, 0, 320, 0, "5e2", "240.", 0, 0, 1.0)), "D: [1, 2]"]
    (tmp_path / "k.yaml").write_text("\n".join(rows))
    assert cameras.read_intrinsics(tmp_path / "k.yaml").tolist() == [[500, 0, 320], [0, 500, 240], [0, 0, 1]]
