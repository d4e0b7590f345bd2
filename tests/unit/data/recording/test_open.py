"""A user's folder becomes a Domain: units, stride, static frames, splits, faults, held-out points."""

import logging
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from conftest import tiny_model
from helpers.data_scene import assert_neighbours_are, thin, walk
from helpers.recordings import SHOTS, write_recording
from protodepth.data.arguments import open_domain
from protodepth.data.check import check
from protodepth.data.recording.open import Recording, load_recording
from protodepth.errors import DataError
from protodepth.inference.inputs import open_data
from protodepth.training.adapt import adapt


def test_a_recording_gives_back_the_scene_with_neighbours_and_poses(tmp_path: Path) -> None:
    domain = load_recording(write_recording(tmp_path, SHOTS), depth_unit="mm", stride=2)
    frame = domain.train[3]
    i = int(frame.name)
    assert np.array_equal(frame.image, SHOTS[i].image)
    assert np.abs(frame.sparse_depth - thin(SHOTS[i].depth)).max() <= 0.0005 + 1e-6
    assert_neighbours_are(frame, SHOTS[i], [SHOTS[i - 2], SHOTS[i + 2]])
    assert frame.ground_truth is None


@pytest.mark.parametrize("unit", ["mm", "kitti"])
def test_the_unit_is_found_from_the_poses_and_said_aloud(
    tmp_path: Path, unit: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "protodepth"):
        domain = load_recording(write_recording(tmp_path, SHOTS, unit=unit))
    assert domain.identity["unit"] == unit
    assert f"read as {unit}" in caplog.text


def test_without_poses_an_ambiguous_unit_is_an_error_and_a_declared_one_is_taken(tmp_path: Path) -> None:
    write_recording(tmp_path, SHOTS, poses=False)
    with pytest.raises(DataError, match="Say which it is: --depth-unit"):
        load_recording(tmp_path)
    (tmp_path / "recording.toml").write_text('depth_unit = "mm"\n')
    assert load_recording(tmp_path).train[0].sparse_depth.max() == pytest.approx(SHOTS[1].depth.max(), rel=0.2)


def test_the_stride_grows_when_the_camera_moves_slowly(tmp_path: Path) -> None:
    slow, fast = walk(30, size=(40, 56), step=0.01), walk(30, size=(40, 56), step=0.06)
    strides = [
        load_recording(write_recording(tmp_path / name, shots), depth_unit="mm").identity["stride"]
        for name, shots in (("slow", slow), ("fast", fast))
    ]
    assert strides[0] >= 4 > strides[1]


def test_frames_where_the_camera_stands_still_are_not_trained_on(tmp_path: Path) -> None:
    shots = SHOTS[:10] + [SHOTS[10]] * 8 + SHOTS[11:]
    for poses in (True, False):
        folder = write_recording(tmp_path / str(poses), shots, poses=poses)
        domain = load_recording(folder, depth_unit="mm", stride=1)
        names = {domain.train.name(i) for i in range(len(domain.train))}
        assert not names & {str(i) for i in range(11, 17)}
        assert {"5", "6"} <= names
        assert domain.identity["skipped"]["still"] >= 6


def test_train_val_and_test_are_blocks_of_time_with_gaps_that_neighbours_do_not_cross(tmp_path: Path) -> None:
    domain = load_recording(write_recording(tmp_path, SHOTS), depth_unit="mm", stride=1)
    used = {s: {int(domain.split(s).name(i)) for i in range(len(domain.split(s)))} for s in ("train", "val", "test")}
    seen_in_training = used["train"] | {i - 1 for i in used["train"]} | {i + 1 for i in used["train"]}
    assert max(seen_in_training) < min(used["val"])
    assert max(used["val"]) < min(used["test"])
    assert min(used["test"]) - max(used["val"]) > 1
    assert max(used["test"]) == len(SHOTS) - 1


def test_dense_depth_is_thinned_by_the_sampler_and_the_rest_is_ground_truth(tmp_path: Path) -> None:
    domain = load_recording(write_recording(tmp_path, SHOTS, dense=True), depth_unit="mm", sampler="uniform:200")
    frame = domain.test[0]
    given = frame.sparse_depth > 0
    assert given.sum() == 200
    assert frame.ground_truth is not None
    assert not (given & (frame.ground_truth > 0)).any()
    assert np.abs(frame.ground_truth + frame.sparse_depth - SHOTS[int(frame.name)].depth).max() < 0.001
    assert np.array_equal(domain.test[0].sparse_depth, frame.sparse_depth)


def test_withheld_points_are_ground_truth_and_not_input(tmp_path: Path) -> None:
    domain = load_recording(write_recording(tmp_path, SHOTS), depth_unit="mm", withhold=0.25)
    frame = domain.test[0]
    whole = thin(SHOTS[int(frame.name)].depth)
    assert frame.ground_truth is not None
    assert not ((frame.sparse_depth > 0) & (frame.ground_truth > 0)).any()
    assert (frame.ground_truth > 0).sum() == round(0.25 * (whole > 0).sum())
    assert np.abs(frame.sparse_depth + frame.ground_truth - whole).max() < 0.001


def test_a_few_bad_frames_are_left_out_and_counted_with_their_triplets(tmp_path: Path) -> None:
    write_recording(tmp_path, SHOTS)
    (tmp_path / "image" / "5.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    domain = load_recording(tmp_path, depth_unit="mm", stride=1)
    names = {domain.train.name(i) for i in range(len(domain.train))}
    assert domain.identity["skipped"]["bad"] == 1
    assert not names & {"4", "5", "6"}


def test_many_bad_frames_stop_with_the_reasons(tmp_path: Path) -> None:
    write_recording(tmp_path, SHOTS)
    for i in (2, 9):
        (tmp_path / "sparse" / f"{i}.png").unlink()
    with pytest.raises(DataError, match=r"(?s)2 of 24 frames cannot be used.*2: 2.png has no depth map"):
        load_recording(tmp_path, depth_unit="mm")


def test_world_to_camera_and_opengl_poses_are_turned_round_when_declared(tmp_path: Path) -> None:
    write_recording(tmp_path, SHOTS, toml='depth_unit = "mm"\nstride = 1\npose_convention = "world_to_camera"\n')
    np.savetxt(tmp_path / "poses.txt", np.stack([np.linalg.inv(s.pose).ravel() for s in SHOTS]))
    frame = load_recording(tmp_path).train[0]
    assert_neighbours_are(frame, SHOTS[1], [SHOTS[0], SHOTS[2]])
    (tmp_path / "recording.toml").write_text('depth_unit = "mm"\nstride = 1\npose_convention = "opengl"\n')
    flip = np.diag([1, -1, -1, 1])
    np.savetxt(tmp_path / "poses.txt", np.stack([(s.pose @ flip).ravel() for s in SHOTS]))
    assert_neighbours_are(load_recording(tmp_path).train[0], SHOTS[1], [SHOTS[0], SHOTS[2]])


def test_intrinsics_of_another_size_stop(tmp_path: Path) -> None:
    write_recording(tmp_path, SHOTS[:4])
    (tmp_path / "intrinsics.txt").write_text("525 525 319.5 239.5")
    with pytest.raises(DataError, match="another resolution"):
        load_recording(tmp_path, depth_unit="mm")


def test_per_frame_intrinsics_are_read_per_frame(tmp_path: Path) -> None:
    write_recording(tmp_path, SHOTS[:12])
    (tmp_path / "intrinsics.txt").unlink()
    (tmp_path / "intrinsics").mkdir()
    for i in range(12):
        np.savetxt(tmp_path / "intrinsics" / f"{i}.txt", SHOTS[0].K + np.diag([i, 0, 0]))
    recording = Recording.open(tmp_path, depth_unit="mm")
    assert recording[7].intrinsics[0, 0] == pytest.approx(SHOTS[0].K[0, 0] + 7)


def test_three_frames_are_enough_and_one_frame_can_be_judged(tmp_path: Path) -> None:
    domain = load_recording(write_recording(tmp_path / "three", SHOTS[:3]), depth_unit="mm", stride=1)
    assert (len(domain.train), len(domain.test)) == (1, 3)
    domain = load_recording(write_recording(tmp_path / "one", SHOTS[:1], poses=False), depth_unit="mm")
    assert (len(domain.train), len(domain.test)) == (0, 1)


def test_a_dataset_can_be_sent_to_another_process(tmp_path: Path) -> None:
    domain = load_recording(write_recording(tmp_path, SHOTS), depth_unit="mm")
    again = pickle.loads(pickle.dumps(domain.train))  # noqa: S301
    assert np.array_equal(again[0].image, domain.train[0].image)


def test_a_unit_may_be_a_number_of_steps_in_a_metre(tmp_path: Path) -> None:
    write_recording(tmp_path, SHOTS, unit="tum", toml="depth_unit = 5000\n")
    by_file = load_recording(tmp_path).train[0].sparse_depth
    (tmp_path / "recording.toml").unlink()
    by_name, by_number = (load_recording(tmp_path, depth_unit=unit).train[0].sparse_depth for unit in ("tum", "5000"))
    assert np.array_equal(by_file, by_name)
    assert np.array_equal(by_number, by_name)
    for wrong in ("0", "-3", "inf", "fathom"):
        with pytest.raises(DataError, match="steps in a metre"):
            load_recording(tmp_path, depth_unit=wrong)


def test_whole_numbers_in_npy_files_have_the_declared_unit_and_fractions_are_metres(tmp_path: Path) -> None:
    for kind, unit in (("<u2", 1000), ("<f4", 1)):
        folder = write_recording(tmp_path / kind[1:], SHOTS, toml='depth_unit = "mm"\n')
        for path in (folder / "sparse").glob("*.png"):
            values = thin(SHOTS[int(path.stem)].depth) * unit
            np.save(path.with_suffix(".npy"), (values if unit == 1 else np.rint(values)).astype(kind))
            path.unlink()
        frame = load_recording(folder, stride=1).train[0]
        assert np.abs(frame.sparse_depth - thin(SHOTS[int(frame.name)].depth)).max() < 0.001


@pytest.mark.parametrize("written", ["sample", "sampler"])
@pytest.mark.parametrize("asked", ["sample", "sampler"])
def test_the_sampler_has_one_name_inside_and_two_outside(tmp_path: Path, written: str, asked: str) -> None:
    write_recording(tmp_path / "r", SHOTS, dense=True, toml=f'depth_unit = "mm"\n{written} = "uniform:50"\n')
    assert Recording.open(tmp_path / "r").settings.sampler == "uniform:50"
    assert Recording.open(f"{tmp_path / 'r'}?{asked}=uniform:70").settings.sampler == "uniform:70"
    domain = load_recording(f"{tmp_path / 'r'}?{asked}=uniform:70", sampler="uniform:90")
    assert domain.identity["sampler"] == "uniform:90"


def test_settings_may_follow_the_path_and_options_given_beside_it_win(tmp_path: Path) -> None:
    write_recording(tmp_path / "r", SHOTS, dense=True, toml='depth_unit = "kitti"\nstride = 5\n')
    domain = open_domain(f"{tmp_path / 'r'}?depth_unit=mm&stride=2&sampler=uniform:70&splits=0.5,0.2,0.3&exclude=1,2")
    assert (domain.identity["unit"], domain.identity["stride"], domain.identity["sampler"]) == ("mm", 2, "uniform:70")
    assert domain.identity["split"].startswith("time blocks (0.5, 0.2, 0.3)")
    assert domain.identity["skipped"]["bad"] == 2
    assert open_domain(f"recording:{tmp_path / 'r'}?stride=2", stride=3, depth_unit="mm").identity["stride"] == 3
    with pytest.raises(DataError, match="'strides'"):
        open_domain(f"{tmp_path / 'r'}?strides=2")
    with pytest.raises(DataError, match="key=value"):
        open_domain(f"{tmp_path / 'r'}?stride")
    with pytest.raises(DataError, match="does not exist"):
        open_domain(f"{tmp_path / 'nothing'}?stride=2")


def test_a_recording_toml_may_stand_apart_from_the_files_it_names(tmp_path: Path) -> None:
    data = write_recording(tmp_path / "read_only", SHOTS)
    names = {"image": "image", "sparse": "sparse", "intrinsics": "intrinsics.txt", "poses": "poses.txt"}
    apart = tmp_path / "mine"
    apart.mkdir()
    lines = [f'{field} = "{data / name}"' for field, name in names.items()]
    (apart / "recording.toml").write_text("\n".join([*lines, 'depth_unit = "mm"', "stride = 2"]))
    there, here = load_recording(data, depth_unit="mm", stride=2).train[3], load_recording(apart).train[3]
    assert np.array_equal(there.image, here.image)
    assert np.array_equal(there.sparse_depth, here.sparse_depth)
    assert np.array_equal(there.poses, here.poses)


def test_a_dense_folder_is_judged_by_holes_and_completed_whole(tmp_path: Path) -> None:
    folder = write_recording(tmp_path, SHOTS, dense=True, toml='depth_unit = "mm"\nstride = 1\n')
    recording = Recording.open(folder)
    assert recording.settings.sampler == "holes"
    cut, whole = recording[0], recording.whole()[0]
    assert 0.5 < (cut.sparse_depth > 0).sum() / (whole.sparse_depth > 0).sum() < 1
    assert np.abs(whole.sparse_depth - SHOTS[0].depth).max() < 1e-3
    assert ((cut.ground_truth > 0) == ((cut.sparse_depth == 0) & (whole.sparse_depth > 0))).all()
    assert len(recording.whole()) == len(recording)
    (completed, *_) = open_data(str(folder))
    assert np.array_equal(completed.sparse_depth, whole.sparse_depth)
    (thinned, *_) = open_data(f"{folder}?sample=uniform:70")
    assert (thinned.sparse_depth > 0).sum() == 70


def in_fractions_of_millimetres(folder: Path) -> Path:
    """A recording whose depth is stored as floats, in millimetres: fractions are read as metres."""
    for i, shot in enumerate(SHOTS):
        (folder / "sparse" / f"{i}.png").unlink()
        np.save(folder / "sparse" / f"{i}.npy", 1000 * thin(shot.depth))
    return folder


def test_fractions_are_metres_whatever_is_declared_and_millimetres_among_them_are_named(tmp_path: Path) -> None:
    folder = in_fractions_of_millimetres(write_recording(tmp_path, SHOTS, toml='depth_unit = "mm"\n'))
    assert open_data(str(folder)).unit == "metres"
    assert load_recording(folder).identity["unit"] == "metres"
    model = tiny_model()
    with pytest.raises(DataError, match=r"as metres they go from .* read as mm: "):
        adapt(model, folder, name="walk")
    faults = [f.message for f in check(folder).faults if f.kind == "unit"]
    assert ["if they are mm, divide by 1000" in text for text in faults] == [True]


def test_a_single_frame_has_no_neighbours_to_speak_of(tmp_path: Path) -> None:
    notes = Recording.open(write_recording(tmp_path, SHOTS[:1], toml='depth_unit = "mm"\n')).notes
    assert notes[-1] == "stride 1 from the poses, for 2% of the width parallax"


def test_a_pipe_among_the_pictures_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    folder = write_recording(tmp_path, SHOTS[:3])
    os.mkfifo(folder / "image" / "3.png")
    with pytest.raises(DataError, match=r"3\.png is no file but a pipe"):
        load_recording(folder)
