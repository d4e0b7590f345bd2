"""adapt(): what is held out stays hidden, the best prototypes are kept, failures leave the model as it was,
the verdict is honest.
"""

import copy
import dataclasses
import logging
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from conftest import tiny_model
from helpers.data_scene import thin, walk
from protodepth.data.arguments import without_folders
from protodepth.data.batches import collate
from protodepth.data.files import images
from protodepth.data.frame import Domain, EvalRules
from protodepth.data.recording.open import load_recording
from protodepth.errors import ConfigError, DataError, DomainError, TrainingDiverged, UnknownNameError
from protodepth.model import ProtoDepth
from protodepth.training import adapt as adaptation
from protodepth.training.adapt import Adaptation, AdaptConfig, adapt, estimate, spread_of_gain
from protodepth.training.plan import Costs
from protodepth.training.poses import examine
from protodepth.training.schedule import Schedule
from protodepth.training.watch import Watch
from protodepth.types import Batch

SHOTS = walk(30, size=(32, 48), step=0.03)


def config(steps: int = 6, **changes) -> AdaptConfig:
    """Few steps; whether the picture lies on the depth is looked at where a test asks for it: it takes the longest."""
    few = AdaptConfig(schedule=Schedule(steps=steps, rate=3e-2), judgings=3, register=False)
    return dataclasses.replace(few, **changes)


def record(folder: Path, count: int = 30, *, poses: bool = True) -> Path:
    for n, shot in enumerate(SHOTS[:count]):
        images.write_image(folder / "image" / f"{n}.png", shot.image)
        images.write_depth(folder / "sparse" / f"{n}.npy", thin(shot.depth))
    np.savetxt(folder / "intrinsics.txt", SHOTS[0].K)
    if poses:
        np.savetxt(folder / "poses.txt", np.stack([s.pose.ravel() for s in SHOTS[:count]]))
    return folder


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("walk"))


@pytest.fixture(autouse=True)
def few_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few frames judge, and at few of them the poses are looked at: together half of the time of so short a run."""
    monkeypatch.setattr("protodepth.training.task.CASES", 3)
    monkeypatch.setattr("protodepth.training.task.examine", partial(examine, frames=3))


def weights(model: ProtoDepth, *, without: str = "") -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in model.state_dict().items() if not without or f"d_{without}." not in k}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for key in a:
        assert torch.equal(a[key], b[key]), key


def test_adapting_to_a_recording_lowers_the_error_at_hidden_points_and_leaves_the_rest_alone(
    model: ProtoDepth, recording: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("protodepth.training.task.CASES", 6)
    monkeypatch.setattr("protodepth.training.task.examine", examine)
    before = weights(model)
    result = adapt(model, recording, name="walk", config=config(60, register=True))
    assert result.helped, str(result)
    assert result.chosen[1] < result.chosen[0]
    assert set(result.interpolation) == {"nearest", "linear", "morphological"}
    assert "interpolation at the same points: linear" in str(result)
    assert "adapting helped" in str(result)
    assert_same(weights(model, without="walk"), before)
    assert model.history["walk"].source == recording.name
    assert str(recording.parent) not in str(model.history["walk"])  # a shared folder does not tell where it was made
    assert model.statistics["walk"].count > 2
    assert model.active is None


@pytest.mark.parametrize("objective", ["hidden", "paper"])
def test_without_poses_hidden_points_teach_and_the_papers_objective_asks_for_a_pose_network(
    tmp_path: Path, objective: str
):
    record(tmp_path, 14, poses=False)
    if objective == "hidden":
        model = tiny_model(pose=True)
        pose = copy.deepcopy(model.pose.state_dict())
        assert adapt(model, tmp_path, name="walk", config=config(objective=objective)).steps == 6
        assert_same(dict(model.pose.state_dict()), pose)
        return
    with pytest.raises(ConfigError, match="no pose network"):
        adapt(tiny_model(), tmp_path, name="walk", config=config(objective=objective))
    model = tiny_model(pose=True)
    pose = copy.deepcopy(model.pose.state_dict())
    adapt(model, tmp_path, name="walk", config=config(objective=objective))
    assert any(not torch.equal(pose[k], v) for k, v in model.pose.state_dict().items())


@pytest.mark.parametrize("objective", ["hidden", "paper"])
def test_with_given_poses_the_pose_network_stays_as_it_is(recording: Path, objective: str):
    model = tiny_model(pose=True)
    pose = copy.deepcopy(model.pose.state_dict())
    adapt(model, recording, name="walk", config=config(objective=objective))
    assert_same(dict(model.pose.state_dict()), pose)


def test_each_objective_has_its_own_terms(recording: Path):
    seen: dict[str, set[str]] = {}
    for objective in ("hidden", "paper"):
        adapt(
            tiny_model(), recording, name="walk", config=config(2, objective=objective),
            log=lambda step, record, o=objective: seen.setdefault(o, set()).update(record),
        )  # fmt: skip
    both = {"method", "domain", "rate", "total", "descriptor", "sparse"}
    assert seen["hidden"] == both | {"hidden", "photometric"}
    assert seen["paper"] == both | {"color", "structure", "smooth"}


def test_what_is_hidden_never_reaches_the_network(recording: Path, monkeypatch: pytest.MonkeyPatch):
    model, shown = tiny_model(), []
    whole = ProtoDepth.forward
    monkeypatch.setattr(ProtoDepth, "forward", lambda self, b: (shown.append(b), whole(self, b))[1])
    steps = config(4, schedule=Schedule(steps=4, batch_size=1, rate=1e-3))
    adapt(model, recording, name="walk", config=steps)
    domain = load_recording(recording)
    original = {f.image.tobytes(): f.sparse_depth for f in (domain.train[n] for n in range(len(domain.train)))}
    assert len(shown) == 4
    for batch in shown:
        image = (255 * batch.image[0]).round().byte().permute(1, 2, 0).contiguous().numpy()
        sparse, hidden = batch.sparse_depth[0, 0].numpy(), batch.hidden_depth[0, 0].numpy()
        assert (hidden > 0).any()
        assert not ((sparse > 0) & (hidden > 0)).any()
        assert np.array_equal(sparse + hidden, original[image.tobytes()])


def test_what_fails_leaves_the_model_as_it_was(recording: Path):
    model = tiny_model(pose=True)
    before = weights(model)

    def interrupt(step: int, record: dict[str, float]) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adapt(model, recording, name="walk", config=config(objective="paper", poses="network"), log=interrupt)
    assert model.domains == ()
    assert_same(weights(model), before)
    bad = dataclasses.replace(AdaptConfig().weights, sparse=float("nan"))
    with pytest.raises(TrainingDiverged):
        adapt(model, recording, name="walk", config=config(20, weights=bad))
    assert model.domains == ()


@pytest.mark.parametrize("active", [None, "base", "night"])
def test_after_a_failure_the_domain_that_was_active_is_active_again(
    model: ProtoDepth, recording: Path, active: str | None
):
    model.set_domain(active)
    learns = [p.requires_grad for p in model.parameters()]

    def interrupt(step: int, record: dict[str, float]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adapt(model, recording, name="walk", config=config(), log=interrupt)
    assert model.active == active
    assert [p.requires_grad for p in model.parameters()] == learns


def test_the_seed_also_draws_the_prototypes(recording: Path):
    starts = []
    for seed in (0, 1, 1):
        model = tiny_model()
        adapt(model, recording, name="walk", config=config(1, seed=seed))
        starts.append(torch.cat([s.W.flatten() for s in model.domain("walk").sets.values()]))
    assert (starts[0] - starts[1]).abs().mean() > 0.01  # one step of training moves W by less
    assert torch.equal(starts[1], starts[2])


def test_a_domain_that_does_not_help_is_said_so_and_answers_as_the_base(
    recording: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, batch: Batch
):
    monkeypatch.setattr(adaptation, "HELPED", 0.99)
    for force in (False, True):
        model = tiny_model()
        with caplog.at_level(logging.WARNING, "protodepth"):
            result = adapt(model, recording, name="walk", config=config(12, force=force))
        assert result.best_step > 0
        assert not result.helped
        assert "did not help" in str(result)
        assert "did not help" in caplog.text
        walk, base = (model.predict_batch(batch, name).depth for name in ("walk", "base"))
        assert torch.equal(walk, base) is not force


def test_a_step_that_is_worse_at_hidden_points_is_not_kept_whatever_the_loss_says(
    recording: Path, batch: Batch, caplog: pytest.LogCaptureFixture
):
    """An absurd rate: every step is worse than none, so that step 0 stays and the domain is the base's network."""
    model = tiny_model()
    wild = config(8, schedule=Schedule(steps=8, rate=30.0), judgings=8)
    result = adapt(model, recording, name="walk", config=wild)
    assert result.best_step == 0
    assert result.after == result.before
    assert min(error for step, error in result.curve if step) > result.chosen[0]
    assert torch.equal(model.predict_batch(batch, "walk").depth, model.predict_batch(batch, "base").depth)


def test_the_verdict_counts_what_is_gone():
    made = Adaptation(
        name="x", frames=1, steps=1, best_step=1, seconds=1, before=200, after=150, spread=0.02, better=1, judged=9,
        chosen=(1, 1)
    )  # fmt: skip
    assert made.gain == 0.25
    assert "(-25.0 +- 2.0 % a frame, smaller on 100 % of 9 frames): adapting helped" in str(made)
    assert made.helped
    assert not dataclasses.replace(made, after=195).helped  # 2.5 % with a spread of 2: it may be chance
    assert dataclasses.replace(made, after=195, spread=0.01).helped
    assert not dataclasses.replace(made, after=199.9, spread=0.0).helped
    assert dataclasses.replace(made, after=199, ratio=0.8).gain == pytest.approx(0.2)  # as its frames have it
    assert "kept 50 % of step 1" in str(dataclasses.replace(made, share=0.5))


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        (None, ""),
        ((0.002, 2.0), "\nwhere fewer than 0.2 % of the pixels have a point, the base answers"),
        ((0.0, 0.15), "\nwhere 15 % or more of the pixels have a point, the base answers"),
        ((0.002, 0.15), "\nwhere fewer than 0.2 % or 15 % or more of the pixels have a point, the base answers"),
    ],
)
def test_the_verdict_says_for_which_densities_the_base_answers(gate: tuple[float, float] | None, words: str):
    made = Adaptation(
        name="x", frames=1, steps=1, best_step=1, seconds=1, before=200, after=150, spread=0.02, better=1, judged=9,
        chosen=(1, 1), gate=gate
    )  # fmt: skip
    assert str(made).partition("adapting helped")[2] == words


@pytest.mark.parametrize(
    ("chosen", "words"), [("walk", ""), ("room", "chosen for 0 % of its own frames only: name it")]
)
def test_a_domain_that_is_not_chosen_for_its_own_frames_is_said_so(recording: Path, chosen: str, words: str):
    """The descriptor of the other domain, or its own, points where the frames are."""
    model = tiny_model()
    model.add_domain("room", base=True)
    frame = load_recording(recording).val[0]
    near = model.predict_batch(collate([frame]), "room").descriptor[0]
    model.domain("room").descriptor.data = near if chosen == "room" else -near
    result = adapt(model, recording, name="walk", config=config(2, force=True, judgings=1))
    assert result.own == (chosen == "walk")
    assert (words in str(result)) if words else ("is named" not in str(result))


def test_it_is_judged_as_often_as_asked_for_and_the_clock_runs_from_the_start(recording: Path):
    started = time.monotonic()
    result = adapt(tiny_model(), recording, name="walk", config=config(4, judgings=1, force=True))
    assert [step for step, _ in result.curve] == [0, 4]
    assert 0 < result.seconds <= time.monotonic() - started


def test_a_plan_counts_each_frame_once(recording: Path):
    plan = estimate(tiny_model(), recording, name="walk", config=config(4))
    data = load_recording(recording)
    apart = len(data.train) - plan.frames
    assert apart > 0
    assert plan.aside.startswith(f"{apart} choose, {len(data.val)} judge, {len(data.test)} are for testing")


def test_better_is_the_share_of_frames_whose_error_shrank(recording: Path, monkeypatch: pytest.MonkeyPatch):
    errors = {"base": np.array([10.0, 10.0, 10.0, 10.0]), "walk": np.array([8.0, 10.0, 2.0, 8.0])}
    monkeypatch.setattr("protodepth.training.task.CASES", 4)
    monkeypatch.setattr(adaptation, "find_gate", lambda judged: None)
    monkeypatch.setattr(adaptation, "answered", lambda cases, gate: np.ones(4, bool))
    monkeypatch.setattr(adaptation, "network_errors", lambda model, cases, domain: errors[domain])
    result = adapt(tiny_model(), recording, name="walk", config=config(2))
    assert result.better == 0.75  # of the second frame it stayed as it was
    assert (result.before, result.after, result.judged) == (10.0, 7.0, 4)
    assert result.gain == pytest.approx(1 - (0.8 * 1.0 * 0.2 * 0.8) ** 0.25)
    assert "smaller on 75 % of 4 frames" in str(result)
    chosen = 10 * (0.8 * 1.0 * 0.2 * 0.8) ** 0.25  # the mean error at the start times the mean ratio since
    assert result.chosen == pytest.approx((chosen, chosen))


def test_the_record_has_the_seconds_to_a_tenth():
    made = Adaptation(
        name="x", frames=1, steps=1, best_step=1, seconds=12.345, before=200, after=150, spread=0, better=1, judged=9,
        chosen=(1, 1)
    )  # fmt: skip
    task = SimpleNamespace(source="walk", domain=SimpleNamespace(identity={}))
    assert adaptation.record(made, task).seconds == 12.3


@pytest.mark.parametrize(("asked", "timed"), [(None, 5), (1, 2), (3, 3), (400, 5)])
def test_as_many_steps_are_timed_as_are_asked_for_but_two_at_least_and_five_at_most(
    monkeypatch: pytest.MonkeyPatch, asked: int | None, timed: int
):
    counts = []
    monkeypatch.setattr(adaptation, "step_seconds", lambda run, schedule, count: counts.append(count) or 1.0)
    monkeypatch.setattr(adaptation, "timed", lambda call: 0.5)
    method = SimpleNamespace(begin_domain=lambda domain, fit: None, model=None)
    task = SimpleNamespace(method=method, domain=SimpleNamespace(train=range(8)), choose=range(3), verdict=range(4))
    costs = adaptation.measure_costs(task, Schedule(), AdaptConfig(steps=asked))
    assert counts == [timed]
    assert costs == Costs(1.0, 3 * 0.5, 2 * 4 * 0.5 + 4 * 0.5 + 8 * 0.5)


def test_the_spread_of_the_gain_is_that_of_repeated_recordings():
    rng = np.random.default_rng(0)
    gains, spreads = [], []
    for _ in range(400):
        before = rng.gamma(9, 10, 24)
        after = before * np.exp(rng.normal(-0.2, 0.2, 24))
        gains.append(1 - np.exp(np.log(after / before).mean()))
        spreads.append(spread_of_gain(before, after))
    assert np.mean(spreads) == pytest.approx(np.std(gains), rel=0.1)


def test_an_early_stop_is_a_success(model: ProtoDepth, recording: Path, monkeypatch):
    errors = iter((1.0, 2.0, 2.0, 2.0))
    monkeypatch.setattr(Watch, "__init__", scripted(Watch.__init__, errors))
    result = adapt(model, recording, name="walk", config=config(60, judgings=60, patience=2))
    assert (result.steps, result.best_step) == (2, 0)
    assert "walk" in model.domains


def scripted(begin, errors):
    def init(self, method, name, judge, **options) -> None:
        begin(self, method, name, lambda: next(errors), **options)

    return init


def test_data_beyond_the_range_of_the_network_is_refused_before_learning(model: ProtoDepth, room: Domain):
    far = [dataclasses.replace(room.train[n], sparse_depth=room.train[n].sparse_depth * 10) for n in range(4)]
    rules = EvalRules(min_depth=0.1, max_depth=100)
    with pytest.raises(DataError, match=r"outside the network's range of 0\.1-8 m"):
        adapt(model, Domain(name="x", train=far, val=far, test=far, rules=rules), name="far")
    assert "far" not in model.domains


def test_names_and_data_are_checked_first(model: ProtoDepth, room: Domain):
    with pytest.raises(DomainError, match="exists"):
        adapt(model, room, name="night")
    with pytest.raises(DomainError, match="cannot name a domain"):
        adapt(model, room, name="a/b", config=config())
    empty = dataclasses.replace(room, train=[])
    with pytest.raises(DataError, match="needs a sequence"):
        adapt(model, empty, name="walk")


def test_an_estimate_grows_with_the_steps_and_changes_nothing(recording: Path):
    model = tiny_model(pose=True)
    before = weights(model)
    short, long = (estimate(model, recording, name="walk", config=config(steps)) for steps in (10, 1000))
    assert long.seconds > 5 * short.seconds
    assert "1000 steps on" in str(long)
    assert_same(weights(model), before)
    assert model.domains == ()


def test_more_minutes_give_more_steps_and_steps_win_over_minutes(recording: Path, monkeypatch):
    monkeypatch.setattr(adaptation, "measure_costs", lambda *a: Costs(0.05, 0.5, 2.0))
    model = tiny_model()
    few, many = (estimate(model, recording, name="walk", minutes=m, register=False) for m in (0.5, 1.0))
    assert 400 < many.steps - few.steps < 800  # 30 s at 20 steps a second; what opening took differs a little
    assert many.seconds <= 60.0
    given = estimate(model, recording, name="walk", minutes=0.5, steps=7, register=False)
    assert given.steps == 7
    assert given.seconds < few.seconds


def test_fields_of_the_configuration_can_be_given_by_name_and_settings_of_the_recording_too(recording: Path):
    model = tiny_model()
    result = adapt(model, recording, name="walk", config=config(), schedule=Schedule(steps=2, rate=1e-3), stride=2)
    assert result.steps == 2
    assert model.history["walk"].data["stride"] == 2
    with pytest.raises(ConfigError, match="minutes and steps must be positive"):
        adapt(model, recording, name="again", minutes=0.0)
    with pytest.raises(ConfigError, match="minutes and steps must be positive"):
        adapt(model, recording, name="again", minutes=float("nan"))
    with pytest.raises(ConfigError, match="objective is 'papers': choose hidden or paper"):
        adapt(model, recording, name="again", objective="papers")
    with pytest.raises(UnknownNameError, match=r"unknown option of adapt 'stepz'.*steps.*stride"):
        adapt(model, recording, name="again", stepz=3)
    with pytest.raises(ConfigError, match="for --objective paper"):
        adapt(model, recording, name="again", poses="network")


def test_the_share_of_points_that_judge_can_be_chosen(recording: Path):
    with pytest.raises(ConfigError, match=r"withhold is 1\.5"):
        adapt(tiny_model(), recording, name="walk", withhold=1.5)


def test_a_record_to_share_does_not_tell_where_the_data_was(recording: Path, tmp_path: Path):
    model = tiny_model()
    adapt(model, f"{recording}?stride=2&sample=lidar_pattern:{tmp_path}", name="walk", config=config(2))
    told = model.history["walk"]
    assert told.source == f"{recording.name}?stride=2&sample=lidar_pattern:{tmp_path.name}"
    assert told.data["stride"] == 2
    assert told.data["sampler"] == f"lidar_pattern:{tmp_path.name}"
    assert str(tmp_path.parent) not in str(told)
    assert without_folders("value/256 and worlds:street") == "value/256 and worlds:street"


def test_an_option_that_adapt_does_not_have_is_refused_by_its_name(
    model: ProtoDepth, room: Domain, recording: Path
) -> None:
    with pytest.raises(UnknownNameError, match="unknown option of adapt 'step'; did you mean steps"):
        adapt(model, str(recording), name="x", step=3)
    with pytest.raises(ConfigError, match="worlds data has no option 'colour'"):
        adapt(model, "worlds:room", name="x", colour=3)
    with pytest.raises(UnknownNameError, match="'colour'"):
        adapt(model, room, name="x", colour=3)
    assert "x" not in model.domains


def test_a_name_is_no_model() -> None:
    with pytest.raises(ConfigError, match="adapt takes a model, got 'worlds-tiny'"):
        adapt("worlds-tiny", "anywhere", name="x")  # type: ignore[arg-type]
