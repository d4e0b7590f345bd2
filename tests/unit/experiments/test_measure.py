"""The measure: the same points for everyone, judged where nobody was given one, by region."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from protodepth.data.example import write_example
from protodepth.data.files import images
from protodepth.data.frame import EvalRules, Frame
from protodepth.data.recording.open import Recording
from protodepth.errors import DataError, UnknownNameError
from protodepth.experiments import measure as m
from protodepth.types import Prediction


def step(seed: int = 0, *, size: tuple[int, int] = (100, 160)) -> Frame:
    """A wall at 2 m, and its right half at 4 m."""
    image = np.random.default_rng(seed).integers(0, 255, (*size, 3)).astype(np.uint8)
    depth = np.where(np.arange(size[1]) < size[1] // 2, 2.0, 4.0)[None].repeat(size[0], 0).astype(np.float32)
    return Frame(image=image, sparse_depth=depth, intrinsics=np.eye(3), name=f"step-{seed}")


def constant(depth: float) -> m.PredictFrame:
    return lambda frame: Prediction(depth=np.full(frame.sparse_depth.shape, depth), domain="constant", similarity={})


def test_errors_are_those_of_the_pixels_without_a_point() -> None:
    """Right at every point and 10 cm off elsewhere: the points must not water the error down."""

    def off(frame: Frame) -> Prediction:
        truth = m.full_depth(step())
        return Prediction(depth=np.where(frame.sparse_depth > 0, truth, truth + 0.1), domain="off", similarity={})

    found = m.measure(off, [step()], "uniform:50%")
    assert found["frames"][0]["points"] == 8000
    assert found["frames"][0]["pixels"] == 8000
    assert found["mean"]["mae"] == pytest.approx(100, abs=1e-3)
    assert found["mean"]["rmse"] == pytest.approx(100, abs=1e-3)


def test_a_predictor_sees_the_pattern_s_points_and_no_ground_truth_neighbours_or_poses() -> None:
    seen: list[Frame] = []

    def look(frame: Frame) -> Prediction:
        seen.append(frame)
        return Prediction(depth=frame.sparse_depth, domain="look", similarity={})

    frame = replace(step(), neighbours=(step().image,), poses=(np.eye(4),), ground_truth=step().sparse_depth)
    m.measure(look, [frame], "500")
    assert (seen[0].sparse_depth > 0).sum() == 500
    assert seen[0].ground_truth is None
    assert seen[0].neighbours == seen[0].poses == ()


@pytest.mark.parametrize("name", m.PATTERNS)
def test_points_follow_from_the_frame_s_name_and_the_seed_alone(name: str) -> None:
    wanted, frame = m.pattern(name), step(size=(120, 160))
    one, again = m.shown(frame, wanted), m.shown(frame, wanted)
    np.testing.assert_array_equal(one.sparse_depth, again.sparse_depth)
    full, truth = m.full_depth(frame), np.asarray(one.ground_truth)
    np.testing.assert_array_equal(one.sparse_depth + truth, full)  # input and judges together are all there is
    assert (truth > 0).any()
    if name not in ("tof", "corners"):  # these do not draw
        other = m.shown(replace(frame, name="another"), wanted)
        assert not np.array_equal(one.sparse_depth, other.sparse_depth)
        assert not np.array_equal(one.sparse_depth, m.shown(frame, wanted, seed=1).sparse_depth)


def test_regions_split_the_judged_pixels_and_far_is_the_far_quarter() -> None:
    frame = step()
    row = m.frame_errors(constant(2.0), frame, m.pattern("uniform:200"))
    assert row["shares"]["edges"] + row["shares"]["smooth"] == pytest.approx(1)
    assert row["shares"]["edges"] == pytest.approx(4 / 160, abs=0.005)  # two pixels on both sides of the step
    assert row["far"] == pytest.approx(2000)
    assert row["edges"] == pytest.approx(1000, abs=60)
    assert row["mae"] == pytest.approx(1000, abs=30)
    assert row["rmse"] == pytest.approx(2000 * np.sqrt(0.5), abs=30)


def test_inside_holes_is_far_from_every_point_and_everything_with_the_pattern_holes() -> None:
    frame = step()
    one = m.shown(frame, m.pattern("uniform:1"))
    y, x = np.argwhere(one.sparse_depth > 0)[0]
    rows, columns = np.mgrid[:100, :160]
    away = np.hypot(rows - y, columns - x) > 8
    row = m.frame_errors(constant(2.0), frame, m.pattern("uniform:1"))
    assert row["shares"]["holes"] == pytest.approx(away.sum() / (16000 - 1))
    assert m.frame_errors(constant(2.0), frame, m.pattern("holes"))["shares"]["holes"] == 1
    assert m.frame_errors(constant(2.0), frame, m.pattern("holes:2"))["shares"]["holes"] == 1


def test_the_rules_of_the_data_say_which_depths_judge_and_what_is_not_finite_is_no_gain() -> None:
    near = m.measure(constant(2.0), [step()], "500", rules=EvalRules(min_depth=0.1, max_depth=3))
    assert near["mean"]["mae"] == 0
    assert m.measure(constant(np.nan), [step()], "500")["mean"]["mae"] == np.inf


def test_a_region_without_pixels_has_no_error_and_does_not_count_in_the_mean() -> None:
    flat = replace(step(1), sparse_depth=np.full((100, 160), 2.0, np.float32))
    found = m.measure(constant(2.5), [step(), flat], "5%")
    assert found["frames"][1]["edges"] is None
    assert found["mean"]["edges"] == found["frames"][0]["edges"]


def test_the_ratio_is_to_the_best_classical_method_of_the_setting() -> None:
    found = {n: {"mae": v, "rmse": 2 * v} for n, v in {"nearest": 5.0, "linear": 4.0, "base": 3.0}.items()}
    assert m.ratios(found) == {"nearest": 1.25, "linear": 1.0, "base": 0.75}
    assert m.ratios({"base": {"mae": 3.0}}) == {"base": None}


def test_an_unknown_pattern_lists_the_known_ones_and_no_frames_are_an_error() -> None:
    with pytest.raises(UnknownNameError, match=r"corners.*lidar.*holes"):
        m.pattern("spiral")
    with pytest.raises(UnknownNameError, match="uniform"):
        m.pattern("spiral:3")
    with pytest.raises(DataError, match="no frames"):
        m.measure(constant(1.0), [], "500")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn recordings: sparse points with ground truth, a depth camera's maps, a car's sweeps."""
    folder = tmp_path_factory.mktemp("drawn")
    write_example(folder / "points", "room", frames=30, size=(48, 64))
    write_example(folder / "camera", "room", frames=30, size=(48, 64))
    (folder / "camera" / "ground_truth").rename(folder / "camera" / "depth")
    for path in (folder / "camera" / "sparse").iterdir():
        path.unlink()
    (folder / "camera" / "sparse").rmdir()
    write_example(folder / "car", "street_dusk", frames=30, size=(48, 64))
    for path in (folder / "car" / "ground_truth").iterdir():
        path.unlink()
    (folder / "car" / "ground_truth").rmdir()
    return folder


def test_frames_come_from_the_block_that_was_asked_for(drawn: Path) -> None:
    splits = {name: m.open_source(str(drawn / "camera"), name, 100).frames for name in ("train", "val", "test")}
    names = {split: [f.name for f in frames] for split, frames in splits.items()}
    domain = Recording.open(drawn / "camera").domain()
    assert names["val"] == [domain.val[i].name for i in range(len(domain.val))]
    assert max(names["train"]) < min(names["val"])
    assert max(names["val"]) < min(names["test"])
    few = m.open_source(str(drawn / "camera"), "test", 2).frames
    assert [f.name for f in few] == [names["test"][0], names["test"][-1]]


def test_all_depth_of_a_recording_is_known_whatever_its_own_sampler_takes(drawn: Path) -> None:
    frame = m.open_source(str(drawn / "camera") + "?sample=uniform:3", "val", 1).frames[0]
    stored = images.read_depth(drawn / "camera" / "depth" / f"{frame.name}.png", "mm")
    np.testing.assert_array_equal(m.full_depth(frame), stored)


def test_patterns_fit_a_depth_camera_or_a_sweep_by_the_share_of_known_pixels(drawn: Path) -> None:
    camera, car = (m.open_source(str(drawn / name), "val", 2) for name in ("camera", "car"))
    assert camera.dense
    assert not car.dense
    assert m.open_source(str(drawn / "points"), "val", 2).dense  # its ground truth is
    assert [n for n in m.PATTERNS if car.fits(m.pattern(n))] == ["500", "1500", "lidar", "100", "tenth"]
    assert [n for n in m.USUAL if camera.fits(m.pattern(n))] == ["500", "1500", "5%", "corners", "holes"]


def test_other_data_than_recordings_can_be_measured_on() -> None:
    source = m.open_source("worlds:room?size=48x64&train=2&val=2&test=2", "val", 2)
    found = m.measure(m.classical("nearest"), source.frames, "100", rules=source.domain.rules)
    assert 0 < found["mean"]["mae"] < 2000
