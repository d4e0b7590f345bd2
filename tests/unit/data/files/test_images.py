"""Depth maps and pictures in files."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from protodepth.data.files import images
from protodepth.errors import DataError, UnknownNameError
from protodepth.storage import space


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
    png16(tmp_path / "d.png", np.array([[65535, steps], [3 * steps, 65534]], np.uint16))
    depth = images.read_depth(tmp_path / "d.png", unit)
    assert depth.dtype == np.float32
    assert np.allclose(depth, [[0, 1], [3, 65534 / steps]])  # all bits set: no measurement


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


@pytest.mark.parametrize(("spelled", "steps"), [("Millimeters", 1000), ("MM", 1000), ("centimetre", 100), ("Metre", 1)])
def test_units_may_be_spelled_out_in_any_case(spelled: str, steps: int) -> None:
    assert images.unit_scale(spelled) == steps


def test_a_folder_is_no_picture(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder: expected the file of one picture"):
        images.read_image(tmp_path)


def test_metres_may_be_spelled_m() -> None:
    assert images.unit_scale("m") == images.unit_scale("metres") == images.unit_scale("meters") == 1


def test_a_picture_is_held_against_the_memory_by_its_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("L", (3000, 2000)).save(tmp_path / "a.png")
    monkeypatch.setattr(space, "free_memory", lambda: 7e7)
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("decoded"))
    with pytest.raises(DataError, match=r"a\.png: a picture of 2000x3000 needs about 78 MB .* 70 MB are free"):
        images.read_image(tmp_path / "a.png")


def test_damaged_exr_files_are_one_sentence_and_no_line_of_the_library(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    OpenEXR = pytest.importorskip("OpenEXR")
    path = tmp_path / "d.exr"
    pixels = np.random.default_rng(0).random((40, 50), np.float32)
    OpenEXR.File({"compression": OpenEXR.ZIP_COMPRESSION}, {"R": pixels}).write(str(path))
    assert np.array_equal(images.raw_depth(path), pixels)
    whole = path.read_bytes()
    for length in (400, 900, 3000):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"d\.exr cannot be read as EXR"):
            images.raw_depth(path)
    assert capfd.readouterr() == ("", "")
