"""A folder that is no recording: the message says what it seems to be and what to write."""

from pathlib import Path

import pytest

from helpers.recordings import SHOTS, write_recording
from protodepth.data.check import check
from protodepth.data.recording.open import Recording, load_recording
from protodepth.errors import DataError


def test_folders_of_other_names_come_with_the_words_to_write(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "mine", SHOTS, toml='depth_unit = "mm"')
    (folder / "image").rename(folder / "rgb")
    (folder / "sparse").rename(folder / "depths")
    with pytest.raises(
        DataError, match=r'Write image = "rgb", depth = "depths" into recording.toml, or "(.*)"'
    ) as told:
        load_recording(folder)
    argument = str(told.value).rsplit('or "', 1)[1].rstrip('"')
    assert argument == f"{folder}?image=rgb&depth=depths"
    assert len(Recording.open(argument)) == len(SHOTS)


def test_intrinsics_of_another_name_come_with_the_words_to_write(tmp_path: Path) -> None:
    folder = write_recording(tmp_path, SHOTS, toml='depth_unit = "mm"')
    (folder / "intrinsics.txt").rename(folder / "camera.txt")
    with pytest.raises(DataError, match=r'Write intrinsics = "camera.txt" into recording.toml'):
        load_recording(folder)
    assert len(Recording.open(f"{folder}?intrinsics=camera.txt")) == len(SHOTS)


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("transforms.json", "transforms:{}"),
        ("rgb.txt", "tum:{}"),
        ("frame-000000.color.png", "seven_scenes:{}"),
        ("sparse/0/cameras.bin", "colmap:{}"),
        ("points3D.txt", "colmap:{}"),
        ("keyframes/images/1.jpg", "polycam:{}"),
        ("trajectory.log", "open3d:{}"),
        ("scan_0.mcap", "rosbag:{}"),
        ("d435.bag", "rosbag:{}/d435.bag"),
        ("output.mkv", "azure_kinect:{}/output.mkv"),
        ("scan.r3d", "record3d:{}/scan.r3d"),
    ],
)
def test_a_layout_that_another_reader_knows_is_named(tmp_path: Path, name: str, argument: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
    report = check(tmp_path)
    assert not report.ok
    assert f"write {argument.format(tmp_path)}" in report.text()


def test_files_that_are_not_read_are_named_by_kind(tmp_path: Path) -> None:
    folder = write_recording(tmp_path, SHOTS[:4])
    for path in list((folder / "image").iterdir()):
        path.rename(path.with_suffix(".heic"))
    with pytest.raises(DataError, match=r"image/ 4 \.heic; sparse/ 4 \.png\.  Files that are read: \.png, \.jpg"):
        load_recording(folder)


def test_an_empty_folder_says_what_a_recording_has(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no pictures in image/: a recording has image/<id>\.png or \.jpg$"):
        load_recording(tmp_path)


def test_pictures_and_maps_of_two_names_are_joined_by_number_and_it_is_said(tmp_path: Path) -> None:
    folder = write_recording(tmp_path, SHOTS, toml='depth_unit = "mm"')
    for kind, prefix in (("image", "rgb"), ("sparse", "depth")):
        for path in list((folder / kind).iterdir()):
            path.rename(path.with_name(f"{prefix}_{int(path.stem):04d}{path.suffix.upper()}"))
    report = check(folder)
    assert report.ok, report.text()
    assert "joined by number: depth_0000.PNG is rgb_0000's" in report.text()
    recording = Recording.open(folder)
    assert len(recording) == len(SHOTS)
    assert any("joined by number" in note for note in recording.notes)


def test_leaving_out_every_frame_is_not_offered(tmp_path: Path) -> None:
    folder = write_recording(tmp_path, SHOTS[:4])
    for path in list((folder / "sparse").iterdir()):
        path.write_bytes(path.read_bytes()[:40])
    assert "--fix" not in check(folder).text()
    (folder / "sparse" / "0.png").write_bytes(
        (write_recording(tmp_path / "b", SHOTS[:1]) / "sparse" / "0.png").read_bytes()
    )
    assert "--fix would write into recording.toml: exclude" in check(folder).text()
