"""adapt(): what is held out stays hidden, the best prototypes are kept, failures leave the model as it was,
the verdict is honest.
"""

import copy
import dataclasses
import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import tiny_model
from helpers.data_scene import thin, walk
from protodepth.data.arguments import without_folders
from protodepth.data.files import images
from protodepth.data.frame import Domain, EvalRules
from protodepth.data.recording.open import load_recording
from protodepth.errors import ConfigError, DataError, DomainError, TrainingDiverged
from protodepth.model import ProtoDepth
from protodepth.training import adapt as adaptation
from protodepth.training.adapt import Adaptation, AdaptConfig, adapt, estimate
from protodepth.training.fit import Schedule
from protodepth.training.watch import Enough, Watch, divide, hide
from protodepth.types import Batch

SHOTS = walk(30, size=(32, 48), step=0.03)


def config(steps: int = 6, **changes) -> AdaptConfig:
    return dataclasses.replace(AdaptConfig(schedule=Schedule(steps=steps, rate=3e-2), looks=3), **changes)


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


def weights(model: ProtoDepth, *, without: str = "") -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in model.state_dict().items() if not without or f"d_{without}." not in k}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for key in a:
        assert torch.equal(a[key], b[key]), key


def test_adapting_to_a_recording_lowers_the_error_at_hidden_points_and_leaves_the_rest_alone(
    model: ProtoDepth, recording: Path, batch: Batch
):
    before = weights(model)
    result = adapt(model, recording, name="walk", config=config(60))
    assert result.helped, str(result)
    assert result.photometric[1] < result.photometric[0]
    assert "adapting helped" in str(result)
    assert_same(weights(model, without="walk"), before)
    assert model.history["walk"].source == recording.name
    assert str(recording.parent) not in str(model.history["walk"])  # a shared folder does not tell where it was made
    assert model.statistics["walk"].count > 2
    assert model.active is None


def test_a_recording_without_poses_needs_and_uses_the_pose_network(tmp_path: Path):
    record(tmp_path, 14, poses=False)
    with pytest.raises(ConfigError, match="no pose network"):
        adapt(tiny_model(), tmp_path, name="walk", config=config())
    model = tiny_model(pose=True)
    pose = copy.deepcopy(model.pose.state_dict())
    adapt(model, tmp_path, name="walk", config=config())
    assert any(not torch.equal(pose[k], v) for k, v in model.pose.state_dict().items())


def test_with_given_poses_the_pose_network_stays_as_it_is(recording: Path):
    model = tiny_model(pose=True)
    pose = copy.deepcopy(model.pose.state_dict())
    adapt(model, recording, name="walk", config=config())
    assert_same(dict(model.pose.state_dict()), pose)


def test_what_fails_leaves_the_model_as_it_was(recording: Path):
    model = tiny_model(pose=True)
    before = weights(model)
    network = dataclasses.replace(AdaptConfig().objective, poses="network")

    def interrupt(step: int, record: dict[str, float]) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adapt(model, recording, name="walk", config=config(objective=network), log=interrupt)
    assert model.domains == ()
    assert_same(weights(model), before)
    bad = dataclasses.replace(AdaptConfig().objective, sparse=float("nan"))
    with pytest.raises(TrainingDiverged):
        adapt(model, recording, name="walk", config=config(20, objective=bad))
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


def test_a_domain_that_does_not_help_is_said_so(
    model: ProtoDepth, recording: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(adaptation, "HELPED", 0.1)  # the random start alone changes a random network by a per cent
    still = dataclasses.replace(config(), schedule=Schedule(steps=2, rate=1e-9))
    with caplog.at_level(logging.WARNING, "protodepth"):
        result = adapt(model, recording, name="walk", config=still)
    assert not result.helped
    assert "did not help" in str(result)
    assert "did not help" in caplog.text


def test_the_verdict_counts_what_is_gone():
    made = Adaptation(
        name="x",
        frames=1,
        steps=1,
        best_step=1,
        seconds=1,
        before=200,
        after=150,
        better=1,
        judged=9,
        photometric=(1, 1),
    )
    assert made.gain == 0.25
    assert made.helped
    assert not dataclasses.replace(made, after=199).helped


def test_judging_points_are_always_the_same_and_never_in_the_input(room: Domain):
    frame = room.val[0]
    shown, hidden = hide(frame)
    again = hide(frame)[1]
    assert np.array_equal(hidden, again)
    assert not ((shown.sparse_depth > 0) & (hidden > 0)).any()
    assert np.array_equal(shown.sparse_depth + hidden, frame.sparse_depth)
    assert (hidden > 0).sum() == round(0.2 * (frame.sparse_depth > 0).sum())


def test_a_short_recording_learns_without_the_points_that_judge(tmp_path: Path):
    domain = load_recording(record(tmp_path, 8))
    parts = divide(domain)
    for n in range(len(parts.learn)):
        hidden = hide(parts.judge[n])[1]
        assert (hidden > 0).any()
        assert not ((parts.learn[n].sparse_depth > 0) & (hidden > 0)).any()


def test_of_a_recording_the_last_training_frames_watch_and_later_frames_judge(recording: Path):
    domain = load_recording(recording)
    parts = divide(domain)
    learn, watch, judge = ([int(d[n].name) for n in range(len(d))] for d in (parts.learn, parts.watch, parts.judge))
    assert max(learn) + 1 < min(watch)
    assert max(watch) < min(judge)
    assert parts.watch[0].neighbours


class Scripted(Watch):
    """A watch whose losses are given."""

    losses: tuple[float, ...] = ()

    def loss(self) -> float:
        self.seen = getattr(self, "seen", -1) + 1
        return self.losses[self.seen]


def test_the_best_prototypes_are_kept_and_learning_stops_after_patience(model: ProtoDepth, monkeypatch):
    monkeypatch.setattr(Scripted, "losses", (5.0, 3.0, 4.0, 3.5, 9.0))
    method = type("M", (), {"model": model})()
    watch = Scripted(method, "night", [], config(40, looks=40, patience=3))
    stopped = None
    for step in range(1, 10):
        with torch.no_grad():
            for parameter in model.domain("night").parameters():
                parameter.fill_(float(step))
        try:
            watch(step)
        except Enough:
            stopped = step
            break
    assert stopped == 4
    assert (watch.best, watch.best_step, watch.start) == (3.0, 1, 5.0)
    watch.restore()
    for name, parameter in model.domain("night").named_parameters():
        assert (parameter == (4.0 if name == "descriptor" else 1.0)).all(), name  # the descriptor is the last one


def test_an_early_stop_is_a_success(model: ProtoDepth, recording: Path, monkeypatch):
    monkeypatch.setattr(Scripted, "losses", (1.0, 2.0, 2.0, 2.0))
    monkeypatch.setattr(adaptation, "Watch", Scripted)
    result = adapt(model, recording, name="walk", config=config(60, looks=60, patience=2))
    assert (result.steps, result.best_step) == (2, 0)
    assert "walk" in model.domains


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


def test_the_share_of_points_that_judge_can_be_chosen(recording: Path):
    with pytest.raises(ConfigError, match=r"withhold is 1\.5"):
        adapt(tiny_model(), recording, name="walk", config=config(withhold=1.5))
    frame = load_recording(recording).val[0]
    for share in (0.1, 0.5):
        shown, hidden = hide(frame, share)
        assert (hidden > 0).sum() == round(share * (frame.sparse_depth > 0).sum())
        assert np.array_equal(shown.sparse_depth + hidden, frame.sparse_depth)


def test_a_record_to_share_does_not_tell_where_the_data_was(recording: Path, tmp_path: Path):
    model = tiny_model()
    adapt(model, f"{recording}?stride=2&sample=lidar_pattern:{tmp_path}", name="walk", config=config(2))
    told = model.history["walk"]
    assert told.source == f"{recording.name}?stride=2&sample=lidar_pattern:{tmp_path.name}"
    assert told.data["stride"] == 2
    assert told.data["sampler"] == f"lidar_pattern:{tmp_path.name}"
    assert str(tmp_path.parent) not in str(told)
    assert without_folders("value/256 and worlds:street") == "value/256 and worlds:street"
