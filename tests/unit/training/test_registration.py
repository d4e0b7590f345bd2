"""Pictures that do not lie on their depth: the place is found from hidden points, and nothing is moved without need."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from protodepth.data.frame import Frame
from protodepth.data.worlds import anywhere
from protodepth.geometry import Registration
from protodepth.model import ProtoDepth
from protodepth.training import registration
from protodepth.training.registration import (
    Judged,
    Registered,
    find_place,
    make_judge,
    move,
    reduced,
    search,
)

SIZE = (96, 128)


@pytest.fixture(scope="module")
def scenes() -> list[Frame]:
    """Drawn frames with dense depth, exactly registered."""
    K = np.array([[112.0, 0, 64], [0, 112, 48], [0, 0, 1]], np.float32)
    frames = []
    for index in range(12):
        picture, depth = anywhere.draw(index, SIZE, seed=5)
        frames.append(Frame(image=picture, sparse_depth=depth, intrinsics=K, name=str(index)))
    return frames


@pytest.fixture(scope="module")
def base() -> ProtoDepth:
    return ProtoDepth.from_pretrained("any-sensor")


def test_a_picture_that_is_too_small_is_found_and_one_that_fits_is_left_alone(
    scenes: list[Frame], base: ProtoDepth
) -> None:
    small = [replace(f, image=move(f.image, Registration(1 / 1.1, -0.02, 0.0))) for f in scenes]
    place = find_place(base, small)
    assert place is not None
    assert abs(place.place.scale - 1.1) < 0.04
    assert abs(place.place.x - 0.022) < 0.015
    assert place.gain > 0.02
    assert "not registered" in str(place)
    assert find_place(base, scenes) is None


def test_too_few_frames_are_not_judged(scenes: list[Frame], base: ProtoDepth) -> None:
    assert find_place(base, scenes[:3]) is None


def test_a_judge_gives_zero_where_the_picture_lies_and_asks_the_network_once_for_a_place(
    scenes: list[Frame], base: ProtoDepth, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = make_judge(base, scenes[:2])
    assert judge(Registration()).tolist() == [0.0, 0.0]
    judge(Registration(1.2))
    monkeypatch.setattr(base, "predict_batch", None)
    assert len(judge(Registration(1.2))) == 2


def test_the_search_walks_to_a_far_minimum_and_stays_where_nothing_is_better() -> None:
    goal = Registration(1.09, 0.031, -0.011)
    found = search(lambda r: sum(abs(a - b) for a, b in zip(r, goal, strict=True)))
    assert np.allclose(found, goal, atol=0.006)
    assert search(lambda r: 0.001 * abs(r.scale - 1.1)) == Registration()


def test_the_search_looks_at_four_sizes_and_one_step_each_way_and_then_halves_its_steps() -> None:
    asked: list[tuple[float, ...]] = []
    search(lambda r: asked.append(tuple(r)) or 0.0)  # nothing helps: it ends after the first round
    sizes = [(s, 0.0, 0.0) for s in (0.88, 0.94, 1.06, 1.12)]
    steps = [(1.04, 0, 0), (0.96, 0, 0), (1, 0.0125, 0), (1, -0.0125, 0), (1, 0, 0.0125), (1, 0, -0.0125)]
    assert list(dict.fromkeys(asked)) == [(1.0, 0.0, 0.0), *sizes, *steps]
    asked.clear()
    search(lambda r: asked.append(tuple(r)) or abs(r.scale - 1.06))
    assert min(abs(scale - 1.06) for scale, *_ in asked if scale != 1.06) == pytest.approx(0.005)


def judges(*logs: float) -> Judged:
    """Everything lies best at 1.06, where the ratios of the frames have these logarithms."""
    return lambda place: np.array(logs) * (1 - abs(place.scale - 1.06) / 0.06 - 10 * (abs(place.x) + abs(place.y)))


@pytest.mark.parametrize(
    ("searching", "agreeing", "gain"),
    [
        ((-0.1, -0.1), (-0.05, -0.35), None),  # 0.2, and the error of the mean is 0.15
        ((-0.1, -0.1), (-0.19, -0.21), 1 - np.exp(-0.2)),
        ((-0.1, -0.1), (-0.5, 0.3), None),
        ((-0.1, -0.1), (-0.25, 0.05) * 3, None),  # less than twice the error of the mean, though far more than the sum
        ((-0.1, -0.1), (-0.015, -0.016), None),  # sure, and not worth it
        ((-0.1, -0.1), (-0.2,), None),
        ((0.0, 0.0), (-0.19, -0.21), None),  # nothing is better anywhere
        ((), (-0.19, -0.21), None),
    ],
)
def test_a_place_is_believed_if_frames_that_did_not_search_agree_beyond_chance(
    searching: tuple[float, ...],
    agreeing: tuple[float, ...],
    gain: float | None,
    scenes: list[Frame],
    base: ProtoDepth,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = iter((judges(*searching), judges(*agreeing)))
    monkeypatch.setattr(registration, "make_judge", lambda model, frames: next(made))
    place = find_place(base, scenes[:4])
    assert (place is None) == (gain is None)
    if place is not None:
        assert place.place.scale == pytest.approx(1.06)
        assert place.gain == pytest.approx(gain)


def test_every_second_frame_searches_and_the_others_agree(
    scenes: list[Frame], base: ProtoDepth, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[list[str]] = []

    def make(model: ProtoDepth, frames: list[Frame]) -> Judged:
        parts.append([frame.name for frame in frames])
        return judges(-0.19, -0.21)

    monkeypatch.setattr(registration, "make_judge", make)
    assert find_place(base, scenes[:5]) is not None
    assert parts == [["0", "2", "4"], ["1", "3"]]


def test_a_move_forth_and_back_is_nearly_nothing_and_keeps_the_kind() -> None:
    rng = np.random.default_rng(0)
    picture = np.kron(rng.integers(0, 255, (6, 8, 3)), np.ones((10, 10, 1))).astype(np.uint8)
    there = move(picture, Registration(1.1, 0.05, 0.0))
    back = move(there, Registration(1 / 1.1, -0.05 / 1.1, 0.0))
    assert there.dtype == np.uint8
    assert np.abs(back.astype(float) - picture)[8:-8, 12:-12].mean() < 8
    assert move(picture / 255, Registration()).dtype == np.float64


def test_registered_frames_move_their_neighbours_too(scenes: list[Frame]) -> None:
    frame = replace(scenes[0], neighbours=(scenes[1].image,))
    place = Registration(1.05)
    moved = Registered([frame], place)[0]
    assert np.array_equal(moved.neighbours[0], move(scenes[1].image, place))
    assert np.array_equal(moved.image, move(frame.image, place))
    assert np.array_equal(moved.sparse_depth, frame.sparse_depth)


def test_large_frames_are_reduced_with_their_points_and_camera() -> None:
    sparse = np.zeros((480, 640), np.float32)
    sparse[3, 5], sparse[2, 4] = 2.0, 1.5
    K = np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]], np.float32)
    small = reduced(Frame(image=np.full((480, 640, 3), 7, np.uint8), sparse_depth=sparse, intrinsics=K))
    assert small.image.shape == (240, 320, 3)
    assert small.sparse_depth[1, 2] == 1.5
    assert (small.sparse_depth > 0).sum() == 1
    assert small.intrinsics[0, 0] == 250


def test_a_tall_frame_is_reduced_by_its_height_and_a_small_one_not_at_all(scenes: list[Frame]) -> None:
    tall = Frame(image=np.zeros((960, 320, 3), np.uint8), sparse_depth=np.ones((960, 320)), intrinsics=np.eye(3))
    assert reduced(tall).sparse_depth.shape == (240, 80)
    assert np.array_equal(reduced(scenes[0]).sparse_depth, scenes[0].sparse_depth)


def test_frames_without_points_to_spare_are_left_alone(base: ProtoDepth, scenes: list[Frame]) -> None:
    single = np.zeros(SIZE, np.float32)
    single[48, 64] = 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_place(base, [replace(frame, sparse_depth=single) for frame in scenes[:4]]) is None
