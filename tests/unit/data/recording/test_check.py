"""Recordings that were made wrong on purpose: each is found, and the same recording as it should be is not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from helpers.data_scene import Shot, shoot, sway, walk
from helpers.recordings import write_recording
from protodepth.data.check import check
from protodepth.data.files import images
from protodepth.data.recording.open import load_recording

SHOTS = sway()
K = SHOTS[0].K
LENGTH = np.linalg.norm(  # of the ray to each pixel at depth 1
    np.stack([*(np.linalg.inv(K) @ np.stack([*np.indices((48, 64))[::-1].reshape(2, -1), np.ones(48 * 64)]))]), axis=0
).reshape(48, 64)


def late(shots: list[Shot], frames: int) -> list[Shot]:
    return [replace(s, depth=shots[max(0, i - frames)].depth) for i, s in enumerate(shots)]


def lagging(shots: list[Shot], frames: int) -> list[Shot]:
    return [replace(s, pose=shots[max(0, i - frames)].pose) for i, s in enumerate(shots)]


@pytest.mark.parametrize("poses", [True, False])
@pytest.mark.parametrize("dense", [True, False])
def test_a_recording_as_it_should_be_has_no_such_fault(tmp_path: Path, poses: bool, dense: bool) -> None:
    report = check(write_recording(tmp_path, SHOTS, dense=dense, poses=poses, toml='depth_unit = "mm"\n'))
    assert report.ok, report.text()
    assert "WARNING" not in report.text()


BAD: list[tuple[str, Callable[[list[Shot]], list[Shot]], str, str]] = [
    ("late", lambda shots: late(shots, 5), "alignment", "depth comes 5 frames late"),
    ("early", lambda shots: late(shots[::-1], 4)[::-1], "alignment", "depth comes 4 frames early"),
    ("mirrored", lambda shots: [replace(s, depth=s.depth[:, ::-1]) for s in shots], "alignment",
     "fit their pictures better mirrored left to right"),
    ("ray", lambda shots: [replace(s, depth=s.depth * LENGTH) for s in shots], "ray depth", "along the ray"),
    ("lag", lambda shots: lagging(shots, 3), "pose", "the poses come 3 frames late"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "kind", "words"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_recording_made_wrong_is_found(
    tmp_path: Path, spoil: Callable[[list[Shot]], list[Shot]], kind: str, words: str
) -> None:
    report = check(write_recording(tmp_path, spoil(SHOTS), dense=True, toml='depth_unit = "mm"\n'))
    assert set(report.counts()) == {kind}, report.text()
    assert words in report.text()


def test_the_largest_number_of_16_bits_is_no_measurement(tmp_path: Path) -> None:
    folder = write_recording(tmp_path, SHOTS, dense=True, toml='depth_unit = "mm"\n')
    for path in (folder / "depth").iterdir():
        depth = images.read_depth(path, "mm")
        depth[5:12, 20:40] = 65.535
        images.write_depth(path, depth, "mm")
    report = check(folder)
    assert report.ok, report.text()
    assert "are 65535, the largest of 16 bits: no measurement" in report.text()
    frame = load_recording(folder, sampler="uniform:500").train[0]
    assert not (frame.sparse_depth + frame.ground_truth)[5:12, 20:40].any()
    assert frame.ground_truth.max() < 10


def test_the_unit_of_tum_is_found_where_none_is_declared(tmp_path: Path) -> None:
    """With poses by warping; without them a map of fives that would reach far is TUM's, and else it is asked."""
    posed = write_recording(tmp_path / "posed", SHOTS, dense=True, unit="tum")
    assert load_recording(posed).identity["unit"] == "tum"
    assert "read as tum" in check(posed).text()
    wrong = write_recording(tmp_path / "wrong", SHOTS, dense=True, unit="tum", toml='depth_unit = "mm"\n')
    assert "declared as mm, but looks like tum" in check(wrong).text()
    rounded = [replace(s, depth=np.rint(s.depth * 1000) / 1000) for s in SHOTS]
    alone = write_recording(tmp_path / "alone", rounded, dense=True, unit="tum", poses=False)
    said = check(alone).text()
    assert "read as tum: every value is a multiple of 5" in said or "Say which it is: --depth-unit" in said


def test_frames_are_judged_at_the_stride_of_training(tmp_path: Path) -> None:
    """Sixty pictures a second: each is nearly the next, and none stands still."""
    path = [((0.0004 * i, 0.05, 0.0), (0.0015 * i, -1.4, 0.0)) for i in range(60)]
    for poses in (True, False):
        folder = write_recording(tmp_path / str(poses), shoot(path, (40, 56)), poses=poses, toml='depth_unit = "mm"\n')
        report = check(folder)
        assert report.counts().get("static", 0) == 0, report.text()
        assert load_recording(folder).identity["stride"] > 1


def through_a_lens(shot: Shot, k1: float) -> Shot:
    """The picture and depth of a camera whose lens was not undistorted."""
    h, w = shot.depth.shape
    v, u = np.indices((h, w)).astype(float)
    xd, yd = (u - shot.K[0, 2]) / shot.K[0, 0], (v - shot.K[1, 2]) / shot.K[1, 1]
    x, y = xd, yd
    for _ in range(20):
        r2 = x * x + y * y
        x, y = xd / (1 + k1 * r2), yd / (1 + k1 * r2)
    places = [y * shot.K[1, 1] + shot.K[1, 2], x * shot.K[0, 0] + shot.K[0, 2]]
    image = np.stack([ndimage.map_coordinates(shot.image[..., c].astype(float), places, order=1) for c in range(3)], -1)
    depth = ndimage.map_coordinates(shot.depth, places, order=0)
    return replace(shot, image=image.astype(np.uint8), depth=depth)


@pytest.mark.parametrize(("name", "factor", "lens"), [("lens", 1.0, 0.26), ("near", 0.95, 0.0)])
def test_a_lens_or_a_little_of_the_focal_length_is_no_wrong_camera(
    tmp_path: Path, name: str, factor: float, lens: float
) -> None:
    """Freiburg 1 has k1 = 0.26, and a RealSense fitted five per cent beside its own calibration."""
    shots = [through_a_lens(s, lens) for s in walk(24, size=(60, 80), step=0.05)]
    folder = write_recording(tmp_path, shots, dense=True, toml='depth_unit = "mm"\n')
    other = K_of(shots[0], factor)
    np.savetxt(folder / "intrinsics.txt", other)
    report = check(folder)
    assert "focal length" not in report.text(), report.text()


def K_of(shot: Shot, factor: float) -> np.ndarray:
    other = shot.K.copy()
    other[0, 0], other[1, 1] = factor * other[0, 0], factor * other[1, 1]
    return other
