"""Depth maps, pictures, intrinsics and poses in files."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from protodepth.data.files import cameras, images
from protodepth.errors import DataError, UnknownNameError


def png16(path: Path, values: np.ndarray) -> None:
    """A 16-bit grey PNG written byte by byte: an oracle apart from Pillow."""
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], 16, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


@pytest.mark.parametrize(("unit", "steps"), [("kitti", 256), ("mm", 1000), ("cm", 100), ("tum", 5000)])
def test_a_16_bit_png_is_read_in_its_unit(tmp_path: Path, unit: str, steps: int) -> None:
    png16(tmp_path / "d.png", np.array([[0, steps], [3 * steps, 65535]], np.uint16))
    depth = images.read_depth(tmp_path / "d.png", unit)
    assert depth.dtype == np.float32
    assert np.allclose(depth, [[0, 1], [3, 65535 / steps]])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 60), min_size=4, max_size=4), st.sampled_from(["kitti", "mm"]))
def test_depth_survives_a_png_up_to_half_a_step(values: list[float], unit: str) -> None:
    depth = np.array(values, np.float32).reshape(2, 2)
    data = images.encode_depth(depth, unit)
    stored = np.asarray(images.open_picture(io.BytesIO(data), "x"))
    assert np.abs(images.metres(stored, unit) - depth).max() <= 0.5 / images.UNITS[unit] + 1e-5


def test_depth_that_does_not_fit_16_bits_is_refused_not_clipped(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ends at 65\.535 m"):
        images.write_depth(tmp_path / "d.png", np.array([[70.0]]), "mm")
    assert not list(tmp_path.iterdir())


def test_an_8_bit_depth_map_is_refused_with_the_remedy(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 80, np.uint8)).save(tmp_path / "d.png")
    with pytest.raises(DataError, match="16 bits"):
        images.read_depth(tmp_path / "d.png", "mm")


def test_a_truncated_picture_names_the_file(tmp_path: Path) -> None:
    images.write_image(tmp_path / "a.png", np.random.default_rng(0).integers(0, 255, (30, 40, 3)).astype(np.uint8))
    data = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(data[: len(data) // 2])
    assert images.broken_tail(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"a\.png"):
        images.read_image(tmp_path / "a.png")


def test_formats_outside_the_whitelist_are_not_opened(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / "a.gif")
    with pytest.raises(DataError, match="not a picture of a known format"):
        images.read_image(tmp_path / "a.gif")


def test_nan_in_npy_means_no_point_and_a_negative_value_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.array([[1.5, np.nan], [np.inf, 0.0]]))
    assert images.read_depth(tmp_path / "d.npy").tolist() == [[1.5, 0.0], [0.0, 0.0]]
    np.save(tmp_path / "d.npy", np.array([[-1.0]]))
    with pytest.raises(DataError, match="negative"):
        images.read_depth(tmp_path / "d.npy")


def test_pickled_arrays_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(DataError, match="plain NumPy array"):
        images.read_depth(tmp_path / "d.npy")


def summary(low: float, high: float, density: float) -> images.DepthSummary:
    return images.DepthSummary(
        low=low, middle=(low + high) / 2, high=high, top=high, density=density, floating=False, where="first: d.png"
    )


def test_the_unit_is_guessed_where_sensors_leave_no_doubt() -> None:
    assert images.guess_unit(summary(500, 6000, 0.8))[0] == "mm"
    assert images.guess_unit(summary(1200, 20000, 0.05))[0] == "kitti"


def test_an_unsafe_guess_is_an_error_that_spells_out_both_readings() -> None:
    with pytest.raises(DataError, match=r"(?s)240\.0 m.*61\.4 m.*--depth-unit") as caught:
        images.guess_unit(summary(5000, 61440, 0.05), (0.1, 8.0))
    assert "0.1-8 m" in str(caught.value)


def test_the_models_range_decides_where_only_one_reading_fits() -> None:
    assert images.guess_unit(summary(600, 2500, 0.9), (0.1, 8.0))[0] == "mm"
    with pytest.raises(UnknownNameError, match="kitti, mm"):
        images.unit_scale("inch")


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
