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


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("k.txt", "500.5 0 320\n0 501 240.25\n0 0 1\n"),
        ("k.txt", "500.5, 501, 320, 240.25"),
        ("k.txt", "[[500.5, 0, 320],\n [0, 501, 240.25],\n [0, 0, 1]]"),
        ("k.txt", "500.5 0 320 0\n0 501 240.25 0\n0 0 1 0\n0 0 0 1\n"),
        ("k.json", '{"fx": 500.5, "fy": 501, "cx": 320, "cy": 240.25}'),
        ("k.json", '{"K": [[500.5, 0, 320], [0, 501, 240.25], [0, 0, 1]]}'),
        ("k.yaml", CAMERA_INFO),
        ("k.yaml", ROS2),
        ("k.yml", CALIBRATION),
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
