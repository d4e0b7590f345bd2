"""ScanNet, written byte by byte from a known scene and read back."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.data_scene import Shot, assert_frame_is, assert_neighbours_are, enlarge, walk
from helpers.dataset_writers import JPEG_LOSS, cut, jpeg, names, sens_bytes, write_sens
from protodepth.data.arguments import open_domain
from protodepth.data.check import check
from protodepth.data.files import images
from protodepth.data.preview import preview
from protodepth.errors import DataError


@pytest.fixture(scope="module")
def scan_shots() -> list[Shot]:
    return [enlarge(s, 10) for s in walk(4, size=(48, 64))]


def test_a_sens_file_gives_the_scene_with_poses(tmp_path: Path, scan_shots: list[Shot]) -> None:
    write_sens(tmp_path, scan_shots)
    domain = open_domain(f"scannet:{tmp_path}", every=1, poses=True, val_share=0.0, sampler="uniform:500")
    cropped = [cut(s, 16, 16, 448, 608) for s in scan_shots]
    assert names(domain, "train") == ["scene0000_00/1", "scene0000_00/2"]
    frame = domain.train[1]
    assert_frame_is(frame, cropped[2], quantum=1 / 1000, loss=JPEG_LOSS)
    assert_neighbours_are(frame, cropped[2], [cropped[1], cropped[3]], loss=JPEG_LOSS, atol=1e-5)


def test_an_exported_scan_gives_the_same_frames_as_its_sens_file(tmp_path: Path, scan_shots: list[Shot]) -> None:
    write_sens(tmp_path / "a", scan_shots)
    export = tmp_path / "b" / "scans" / "scene0000_00" / "export"
    for i, shot in enumerate(scan_shots):
        for place in ("color", "depth", "pose", "intrinsic"):
            (export / place).mkdir(parents=True, exist_ok=True)
        (export / "color" / f"{i}.jpg").write_bytes(jpeg(shot.image))
        images.write_depth(export / "depth" / f"{i}.png", shot.depth, "mm")
        np.savetxt(export / "pose" / f"{i}.txt", shot.pose)
    K = np.eye(4)
    K[:3, :3] = scan_shots[0].K
    np.savetxt(export / "intrinsic" / "intrinsic_color.txt", K)
    one, two = (
        open_domain(f"scannet:{tmp_path / x}", every=1, poses=True, val_share=0.0, sampler="uniform:500").train[0]
        for x in "ab"
    )
    assert np.array_equal(one.image, two.image)
    assert np.array_equal(one.sparse_depth, two.sparse_depth)
    assert np.allclose(one.intrinsics, two.intrinsics)
    assert np.allclose(one.poses, two.poses, atol=1e-6)


def test_scannet_colour_of_another_size_is_reduced_and_its_intrinsics_scaled(
    tmp_path: Path, scan_shots: list[Shot]
) -> None:
    """A colour image twice as large, each pixel repeated: the area average gives the small image back."""
    scene = tmp_path / "scans_test" / "scene0707_00"
    scene.mkdir(parents=True)
    large = [np.repeat(np.repeat(s.image, 2, 0), 2, 1) for s in scan_shots]
    doubled = [Shot(s.image, s.depth, np.diag([2, 2, 1]) @ s.K, s.pose) for s in scan_shots]
    (scene / "scene0707_00.sens").write_bytes(sens_bytes(doubled, [jpeg(i) for i in large], (960, 1280)))
    domain = open_domain(f"scannet:{tmp_path}", every=2, sampler="uniform:500")
    assert names(domain, "test") == ["scene0707_00/0", "scene0707_00/2"]
    assert_frame_is(domain.test[1], cut(scan_shots[2], 16, 16, 448, 608), quantum=1 / 1000, loss=JPEG_LOSS)


def test_the_slips_of_the_published_scannet_script_can_be_chosen(tmp_path: Path, scan_shots: list[Shot]) -> None:
    """cy times the factor of x; FAST points of the stored picture, reduced to the cut depth without cutting."""
    scene = tmp_path / "scans" / "scene0000_00"
    scene.mkdir(parents=True)
    size = (720, 1280)
    pictures = [Image.fromarray(s.image).resize(size[::-1], Image.Resampling.NEAREST) for s in scan_shots]
    colour = [jpeg(np.asarray(p)) for p in pictures]
    large = [Shot(s.image, s.depth, np.diag([2, 1.5, 1]) @ s.K, s.pose) for s in scan_shots]
    (scene / "scene0000_00.sens").write_bytes(sens_bytes(large, colour, size))
    options = "every=1&val_share=0&sampler=fast_protodepth:7500"
    right, slipped = (open_domain(f"scannet:{tmp_path}?{options}&official={o}").train[0] for o in ("", "protodepth"))
    K = scan_shots[0].K
    assert right.intrinsics[1, 2] == pytest.approx(K[1, 2] - 16, abs=1e-3)
    assert slipped.intrinsics[1, 2] == pytest.approx(K[1, 2] * 1.5 / 2 - 16, abs=1e-3)
    assert np.array_equal(right.intrinsics[0], slipped.intrinsics[0])
    assert np.array_equal(right.sparse_depth, slipped.sparse_depth)
    assert 800 < (right.sparse_depth > 0).sum() < 3000


def test_a_cut_off_sens_file_says_so(tmp_path: Path, scan_shots: list[Shot]) -> None:
    write_sens(tmp_path, scan_shots[:3])
    path = tmp_path / "scans" / "scene0000_00" / "scene0000_00.sens"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="download is incomplete"):
        open_domain(f"scannet:{tmp_path}", every=1, val_share=0.0)


def test_frames_where_the_scanner_was_lost_are_left_out_when_poses_are_used(
    tmp_path: Path, scan_shots: list[Shot]
) -> None:
    lost = Shot(scan_shots[3].image, scan_shots[3].depth, scan_shots[3].K, np.full((4, 4), -np.inf))
    write_sens(tmp_path, [*scan_shots[:3], lost])
    options = {"every": 1, "val_share": 0.0, "sampler": "uniform:9"}
    assert names(open_domain(f"scannet:{tmp_path}", poses=True, **options), "train") == ["scene0000_00/1"]
    assert len(open_domain(f"scannet:{tmp_path}", **options).train) == 2


def test_the_export_of_the_c_reader_gives_the_same_frames_as_the_sens_file(
    tmp_path: Path, scan_shots: list[Shot]
) -> None:
    """frame-000000.color.jpg, .depth.pgm (16 bits, the high byte first), .pose.txt, and _info.txt."""
    write_sens(tmp_path / "a", scan_shots)
    scene = tmp_path / "b" / "scans" / "scene0000_00"
    scene.mkdir(parents=True)
    for i, shot in enumerate(scan_shots):
        (scene / f"frame-{i:06d}.color.jpg").write_bytes(jpeg(shot.image))
        values = np.rint(shot.depth * 1000).astype(">u2")
        head = f"P5\n{values.shape[1]} {values.shape[0]}\n65535\n".encode()
        (scene / f"frame-{i:06d}.depth.pgm").write_bytes(head + values.tobytes())
        np.savetxt(scene / f"frame-{i:06d}.pose.txt", shot.pose)
    K = np.eye(4)
    K[:3, :3] = scan_shots[0].K
    height, width = scan_shots[0].image.shape[:2]
    lines = ["m_versionNumber = 4", "m_sensorName = StructureSensor", f"m_colorWidth = {width}"]
    lines += [f"m_colorHeight = {height}", "m_depthShift = 1000"]
    lines += ["m_calibrationColorIntrinsic = " + " ".join(f"{v:.9g}" for v in K.ravel()), "m_frames.size = 4"]
    (scene / "_info.txt").write_text("\n".join(lines))
    options = {"every": 1, "poses": True, "val_share": 0.0, "sampler": "uniform:500"}
    one, two = (open_domain(f"scannet:{tmp_path / x}", **options).train[0] for x in "ab")
    assert (one.name, np.array_equal(one.image, two.image)) == (two.name, True)
    assert np.array_equal(one.ground_truth, two.ground_truth)
    assert np.allclose(one.intrinsics, two.intrinsics, atol=1e-3)
    assert np.allclose(one.poses, two.poses, atol=1e-6)
    (scene / "_info.txt").write_text("m_versionNumber = 4\n")
    with pytest.raises(DataError, match=r"_info\.txt has no m_depthShift"):
        open_domain(f"scannet:{tmp_path / 'b'}", **options)


def test_frames_25k_are_single_frames_and_each_counts(tmp_path: Path, scan_shots: list[Shot]) -> None:
    """Every hundredth frame of the video: none is the neighbour of another, and none is left out."""
    scene = tmp_path / "scannet_frames_25k" / "scene0000_00"
    for i, shot in enumerate(scan_shots):
        for place in ("color", "depth", "pose"):
            (scene / place).mkdir(parents=True, exist_ok=True)
        (scene / "color" / f"{100 * i:06d}.jpg").write_bytes(jpeg(shot.image))
        images.write_depth(scene / "depth" / f"{100 * i:06d}.png", shot.depth, "mm")
        np.savetxt(scene / "pose" / f"{100 * i:06d}.txt", shot.pose)
    K = np.eye(4)
    K[:3, :3] = scan_shots[0].K
    np.savetxt(scene / "intrinsics_color.txt", K)
    domain = open_domain(f"scannet:{tmp_path}?val_share=0&sampler=uniform:500")
    assert names(domain, "train") == [f"scene0000_00/{100 * i:06d}" for i in range(4)]
    frame = domain.train[2]
    assert frame.neighbours == ()
    assert_frame_is(frame, cut(scan_shots[2], 16, 16, 448, 608), quantum=1 / 1000, loss=JPEG_LOSS)
    argument = f"scannet:{tmp_path / 'scannet_frames_25k'}?val_share=0&sampler=uniform:500"
    assert len(open_domain(argument).train) == 4
    report = check(argument)
    assert report.ok, report.text()
    assert report.frames == 4
    assert preview(argument, tmp_path / "sheet.png", rows=1).stat().st_size > 1000


def test_scans_that_are_not_understood_are_named(tmp_path: Path, scan_shots: list[Shot]) -> None:
    write_sens(tmp_path, scan_shots)
    strange = tmp_path / "scans" / "scene0001_00"
    strange.mkdir()
    (strange / "scene0001_00_vh_clean.ply").write_bytes(b"ply")
    domain = open_domain(f"scannet:{tmp_path}", every=1, val_share=0.0, sampler="uniform:500")
    said = " ".join(domain.identity["notes"])
    assert "1 of 2 scans are not understood" in said
    assert "scene0001_00 (scene0001_00_vh_clean.ply)" in said
    (tmp_path / "scans" / "scene0000_00" / "scene0000_00.sens").unlink()
    with pytest.raises(
        DataError, match=r"no frames of scannet.*2 of 2 scans are not understood.*expected <scene>\.sens"
    ):
        open_domain(f"scannet:{tmp_path}")
