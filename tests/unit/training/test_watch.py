"""Who judges: what is hidden stays hidden, the three parts never meet, and the best step is kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.data_scene import walk
from helpers.recordings import write_recording
from protodepth.data.frame import Domain, Frame, Subset
from protodepth.data.interpolation import linear
from protodepth.data.recording.open import load_recording
from protodepth.errors import DataError
from protodepth.model import ProtoDepth
from protodepth.training.watch import (
    Case,
    Enough,
    Watch,
    divide,
    hide,
    interpolation_errors,
    judging,
    make_cases,
    network_errors,
    window,
)

HIDE = judging(0.2)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Domain:
    shots = walk(40, size=(32, 48), step=0.03)
    folder = write_recording(tmp_path_factory.mktemp("walk"), shots, toml='depth_unit = "mm"\nstride = 1\n')
    return load_recording(folder)


def names(data) -> list[int]:
    return [int(data[n].name) for n in range(len(data))]


def test_judging_points_are_always_the_same_and_never_in_the_input(room: Domain):
    frame = room.val[0]
    shown, hidden = hide(frame, HIDE)
    assert np.array_equal(hidden, hide(frame, HIDE)[1])
    assert not np.array_equal(hidden, hide(frame, HIDE, draw=1)[1])
    assert not ((shown.sparse_depth > 0) & (hidden > 0)).any()
    assert np.array_equal(shown.sparse_depth + hidden, frame.sparse_depth)


def test_the_share_of_points_that_judge_is_at_least_half_of_what_is_asked_for(room: Domain):
    frame = room.val[0]
    shares = [(hide(frame, judging(s))[1] > 0).sum() / (frame.sparse_depth > 0).sum() for s in (0.1, 0.5)]
    assert shares[0] >= 0.05
    assert shares[1] >= 0.25


def test_frames_that_learn_choose_and_judge_never_meet_and_the_test_block_is_left_alone(recording: Domain):
    parts = divide(recording, HIDE)
    learn, choose, verdict = names(parts.learn), names(parts.choose), names(parts.verdict)
    assert max(learn) + 1 < min(choose)
    assert max(choose) < min(verdict)
    assert max(verdict) < min(names(recording.test))


def test_scenes_of_their_own_take_turns_at_choosing_and_judging(room: Domain):
    parts = divide(room, HIDE)
    assert parts.learn is room.train
    choose, verdict = ({d[n].name for n in range(len(d))} for d in (parts.choose, parts.verdict))
    assert not choose & verdict
    assert choose | verdict == {room.val[n].name for n in range(len(room.val))}
    more = replace(room, val=Subset(room.train, tuple(range(5))), train=Subset(room.train, (5,)))
    taken = divide(more, HIDE)
    assert [[data[n].name for n in range(len(data))] for data in (taken.choose, taken.verdict)] == [
        [room.train[n].name for n in (0, 2, 4)],
        [room.train[n].name for n in (1, 3)],
    ]


def test_a_short_recording_divides_its_points_instead_of_its_frames(tmp_path: Path):
    shots = walk(8, size=(32, 48), step=0.03)
    domain = load_recording(write_recording(tmp_path, shots, toml='depth_unit = "mm"\nstride = 1\n'))
    parts = divide(domain, HIDE)
    assert parts.shared
    cases = [make_cases(d, HIDE, half=h) for d, h in ((parts.choose, 0), (parts.verdict, 1))]
    for n, (choose, verdict) in enumerate(zip(*cases, strict=True)):
        learned = parts.learn[n].sparse_depth > 0
        assert not (learned & (choose.hidden > 0)).any()
        assert not (learned & (verdict.hidden > 0)).any()
        assert not ((choose.hidden > 0) & (verdict.hidden > 0)).any()
        assert np.array_equal(choose.frame.sparse_depth, parts.learn[n].sparse_depth)  # input hides what either judges


def test_few_frames_are_drawn_from_several_times_until_there_are_24_cases(recording: Domain):
    parts = divide(recording, HIDE)
    assert len(parts.choose) < 24
    cases = make_cases(parts.choose, HIDE)
    assert len(cases) == 24
    again = [c for c in cases if c.frame.name == cases[0].frame.name]
    assert len(again) > 2
    assert len({c.hidden.tobytes() for c in again}) == len(again)
    assert all(c.frame.neighbours == () and c.frame.ground_truth is None for c in cases)


def test_the_error_of_a_case_is_the_weighted_mean_at_its_hidden_points():
    hidden = np.zeros((2, 3), np.float32)
    hidden[0, 0], hidden[1, 2] = 2.0, 4.0
    weight = np.where(hidden == 2, 0.25, np.where(hidden == 4, 0.75, 0))
    frame = Frame(image=np.zeros((2, 3, 3)), sparse_depth=np.zeros((2, 3)), intrinsics=np.eye(3))
    assert Case(frame, hidden, weight).error(np.full((2, 3), 3.0)) == pytest.approx(1000)
    assert Case(frame, hidden, weight).error(np.full((2, 3), 4.0)) == pytest.approx(500)


def test_of_a_large_frame_a_window_judges_in_which_every_pixel_keeps_its_ray():
    rng = np.random.default_rng(0)
    sparse = rng.random((300, 500)).astype(np.float32)
    K = np.array([[400.0, 0, 250], [0, 400, 150], [0, 0, 1]], np.float32)
    frame = Frame(image=np.repeat(sparse[..., None], 3, -1), sparse_depth=sparse, intrinsics=K, name="a")
    part = window(frame, (64, 96), rng)
    assert part.sparse_depth.shape == part.image.shape[:2] == (64, 96)
    left, top = (int(K[i, 2] - part.intrinsics[i, 2]) for i in (0, 1))
    assert np.array_equal(part.sparse_depth, sparse[top : top + 64, left : left + 96])
    case = make_cases([frame], HIDE, count=2)[0]
    assert case.frame.sparse_depth.shape == (288, 384)


def test_a_window_may_lie_at_either_edge():
    rows = np.arange(1, 66, dtype=np.float32)[:, None].repeat(97, 1) + np.arange(97) / 1000
    frame = Frame(image=np.zeros((65, 97, 3)), sparse_depth=rows, intrinsics=np.eye(3))
    firsts = {float(window(frame, (64, 96), np.random.default_rng(n)).sparse_depth[0, 0]) for n in range(32)}
    assert firsts == {float(v) for v in rows[:2, :2].ravel()}


def test_frames_in_which_no_point_was_hidden_judge_nothing():
    single = np.zeros((8, 8), np.float32)
    single[4, 4] = 2.0
    frames = [
        Frame(image=np.zeros((8, 8, 3)), sparse_depth=single, intrinsics=np.eye(3), name=str(n)) for n in range(6)
    ]
    assert not any((hide(f, HIDE)[1] > 0).any() for f in frames)  # points are shown, and none is left to judge
    with pytest.raises(DataError, match="too few sparse points"):
        make_cases(frames, HIDE)


def test_frames_without_points_cannot_judge():
    empty = Frame(image=np.zeros((8, 8, 3)), sparse_depth=np.zeros((8, 8)), intrinsics=np.eye(3))
    with pytest.raises(DataError, match="too few sparse points"):
        make_cases([empty], HIDE)


def test_interpolation_and_network_are_judged_at_the_same_points(recording: Domain, model: ProtoDepth):
    cases = make_cases(recording.val, HIDE, count=3)
    expected = np.mean([c.error(linear(c.frame.sparse_depth)) for c in cases])
    assert interpolation_errors(cases)["linear"] == pytest.approx(expected)
    frame = cases[1].frame
    depth = model.predict(frame.image, frame.sparse_depth, frame.intrinsics, domain="night").depth
    assert network_errors(model, cases, "night")[1] == pytest.approx(cases[1].error(depth))


def watch(model: ProtoDepth, errors: tuple[float, ...], patience: int = 3) -> Watch:
    script = iter(errors)
    return Watch(type("M", (), {"model": model})(), "night", lambda: next(script), every=1, patience=patience)


def walk_through(model: ProtoDepth, judge: Watch) -> int | None:
    for step in range(1, 10):
        with torch.no_grad():
            for parameter in model.domain("night").parameters():
                parameter.fill_(float(step))
        try:
            judge(step)
        except Enough:
            return step
    return None


def test_the_best_prototypes_are_kept_and_learning_stops_after_patience(model: ProtoDepth):
    start = {name: p.detach().clone() for name, p in model.domain("night").named_parameters()}
    judge = watch(model, (5.0, 3.0, 4.0, 3.5, 9.0))
    assert walk_through(model, judge) == 4
    assert (judge.best, judge.best_step, judge.start) == (3.0, 1, 5.0)
    assert judge.curve == [(0, 5.0), (1, 3.0), (2, 4.0), (3, 3.5), (4, 9.0)]
    judge.restore()
    for name, parameter in model.domain("night").named_parameters():
        # the descriptor is the last one; of the rest the average of the start and the first step is kept
        expected = torch.full_like(parameter, 4.0) if name == "descriptor" else (start[name] + 10 * 1.0) / 11
        torch.testing.assert_close(parameter.detach(), expected)


def test_what_is_judged_is_the_average_and_learning_goes_on_from_the_last_step(model: ProtoDepth):
    seen = []

    def judge() -> float:
        seen.append(float(model.domain("night").sets["latent"].A[0]))
        return 1.0 / len(seen)

    made = Watch(type("M", (), {"model": model})(), "night", judge, every=1, patience=9)
    walk_through(model, made)
    assert seen[0] == 1.0
    assert all(now < step for step, now in enumerate(seen[2:], 2))  # behind what was learned, and following it
    assert seen[1:] == sorted(seen[1:])
    assert float(model.domain("night").sets["latent"].A[0]) == 9.0
    other = Watch(type("M", (), {"model": model})(), "night", judge, every=1, patience=9)
    other.go_on(made.tensors(), made.facts())
    assert all(torch.equal(t, other.tensors()[key]) for key, t in made.tensors().items())


def test_at_the_end_the_best_share_of_the_way_from_the_base_is_kept(model: ProtoDepth):
    judge = watch(model, (5.0, 3.0, 2.0, 2.5, 1.0))
    _one_step(model, judge)
    whole = {key: value.clone() for key, value in judge.kept.items()}
    assert judge.blend() == 0.25
    assert judge.best == 1.0
    name = next(key for key in whole if key.endswith(".A"))
    torch.testing.assert_close(model.domain("night").state_dict()[name], 1 + 0.25 * (whole[name] - 1))
    worse = watch(model, (5.0, 3.0, 3.5, 4.0, 4.5))
    _one_step(model, worse)
    assert worse.blend() == 1.0
    assert worse.best == 3.0
    none = watch(model, (5.0, 6.0))
    _one_step(model, none)
    assert none.blend() == 1.0  # nothing was kept: nothing is tried


def test_own_parts_are_rounded_before_the_verdict_but_the_base_is_never(model: ProtoDepth) -> None:
    judge = watch(model, (5.0, 3.0, 4.0, 4.0, 4.0))
    judge.kept = judge.kept | {"parts.head.weight": torch.tensor([0.1])}
    judge.plain = judge.plain | {"parts.head.weight": torch.tensor([0.1])}
    judge.blend()
    assert float(judge.kept["parts.head.weight"]) == pytest.approx(0.1, rel=1e-7)  # step 0: what the network has
    judge.best_step = 1
    judge.blend()
    assert float(judge.kept["parts.head.weight"]) == 0.0999755859375  # the nearest number of half precision
    assert torch.equal(judge.kept["sets.latent.W"], judge.plain["sets.latent.W"])


def _one_step(model: ProtoDepth, judge: Watch) -> None:
    with torch.no_grad():
        for parameter in model.domain("night").parameters():
            parameter.fill_(2.0)
    judge(1)


def test_a_better_look_gives_new_patience(model: ProtoDepth):
    judge = watch(model, (5.0, 6.0, 6.0, 4.0, 6.0, 6.0, 6.0, 1.0))
    assert walk_through(model, judge) == 6
    assert judge.best_step == 3


def test_the_start_is_judged_as_the_base_and_then_learned_from_as_it_was_drawn(model: ProtoDepth, batch):
    drawn = {k: v.clone() for k, v in model.domain("night").state_dict().items()}
    base, seen = model.predict_batch(batch, "base").depth, []

    def judge() -> float:
        seen.append(model.predict_batch(batch, "night").depth)
        return 1.0

    made = Watch(type("M", (), {"model": model})(), "night", judge, every=1, patience=3)
    assert torch.equal(seen[0], base)
    for key, value in model.domain("night").state_dict().items():
        assert torch.equal(value, drawn[key]), key
    made.restore()  # nothing was better than step 0
    assert torch.equal(model.predict_batch(batch, "night").depth, base)


def test_the_curve_is_said(model: ProtoDepth):
    said: list[str] = []
    script = iter((200.0, 150.0))
    judge = Watch(
        type("M", (), {"model": model})(), "night", lambda: next(script), every=5, patience=3, say=said.append
    )
    for step in range(1, 6):
        judge(step)
    assert said == ["step 5: 150.0 mm at hidden points (-25.0 %)"]


def dense_frames(count: int) -> list[Frame]:
    rng = np.random.default_rng(0)
    return [
        Frame(image=rng.random((48, 64, 3)), sparse_depth=1 + rng.random((48, 64)), intrinsics=np.eye(3), name=str(n))
        for n in range(count)
    ]


def test_dense_maps_judge_blocks_four_densities_holes_corners_and_crowds_in_turns():
    shares = [(c.frame.sparse_depth > 0).mean() for c in make_cases(dense_frames(8), HIDE, count=16)]
    for n, share in enumerate((0.0015, 0.007, 0.02, 0.05), 1):
        assert shares[n::8] == pytest.approx([share] * 2, rel=0.1)
    assert min(shares[0::8] + shares[5::8]) > 0.3
    assert max(shares[6::8] + shares[7::8]) < 0.011


def test_scans_judge_single_points_blocks_and_three_densities_in_turns():
    frames = [replace(f, sparse_depth=np.where(np.arange(48)[:, None] % 8, 0, f.sparse_depth)) for f in dense_frames(5)]
    wide = [replace(f, sparse_depth=np.tile(f.sparse_depth, (2, 2)), image=np.tile(f.image, (2, 2, 1))) for f in frames]
    shown = [(c.frame.sparse_depth > 0).sum() / 1536 for c in make_cases(wide, HIDE, count=5)]
    assert shown[1] == pytest.approx(0.7, abs=0.01)
    assert shown[2:] == pytest.approx([0.01, 0.04, 0.1], rel=0.05)
    assert 0.3 <= shown[0] < 0.95


def test_every_frame_judges_before_one_does_so_twice():
    cases = make_cases(dense_frames(5), HIDE, count=8)
    assert [c.frame.name for c in cases] == ["0", "1", "2", "3", "4", "0", "1", "2"]
