"""fit(): resumable to the bit, never poisoned by NaN, blind to ground truth."""

import json
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import tiny_model
from protodepth.data.augment import AugmentConfig
from protodepth.data.batches import training_batches
from protodepth.data.frame import Domain, Frame, Subset
from protodepth.errors import CheckpointError, DataError, TrainingDiverged
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import Method, build
from protodepth.training.fit import Learner, build_optimiser, fit, train_step
from protodepth.training.schedule import Schedule
from protodepth.types import Batch, LossTerms, View

AUGMENT = AugmentConfig(brightness=(0.8, 1.2), flip_horizontal=True, remove_points=(0.0, 0.5), resize=(0.8, 1.0))
SCHEDULE = Schedule(steps=6, save_every=2, rate=1e-2, augment=AUGMENT)


def make(name: str = "protodepth", domain: Domain | None = None, **prototypes: Any) -> Method:
    """A method ready to fit, with a pose network that learns too."""
    model = tiny_model(pose=True, **prototypes)
    objective = Objective(
        ObjectiveConfig(reduction="relative", sparse=0.6, smooth=0.02), pose=model.pose, max_depth=8.0
    )
    method = build(name, model, objective, model.config if name == "protodepth" else None)
    if domain is not None:
        method.begin_domain(domain, lambda m, d: None)
    return method


def weights(method: Method) -> dict[str, torch.Tensor]:
    pose = method.objective.pose
    assert pose is not None
    return {**method.state(), **{f"pose.{k}": v for k, v in pose.state_dict().items()}}


def equal(a: Method, b: Method) -> bool:
    x, y = weights(a), weights(b)
    return x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x)


class PowerCutError(RuntimeError):
    """Nothing is saved on the way out."""


def at(step: int, action: Callable[[], object]) -> Callable[[int, dict[str, float]], None]:
    def log(n: int, record: dict[str, float]) -> None:
        if n == step:
            action()

    return log


def cut() -> None:
    raise PowerCutError


@pytest.fixture(scope="module")
def wholes(room: Domain) -> dict[str, Method]:
    """Uninterrupted runs of seed 3."""
    methods = {name: make(name, room) for name in ("protodepth", "finetune")}
    for method in methods.values():
        fit(method, room, SCHEDULE, seed=3)
    return methods


@pytest.mark.parametrize("name", ["protodepth", "finetune"])
@pytest.mark.parametrize("step", [1, 3, 4])
def test_a_run_cut_anywhere_and_resumed_ends_with_the_very_same_weights(
    tmp_path: Path, room: Domain, wholes: dict[str, Method], name: str, step: int
) -> None:
    first = make(name, room)
    with pytest.raises(PowerCutError):
        fit(first, room, SCHEDULE, seed=3, folder=tmp_path, log=at(step, cut))
    again = make(name, room)
    seen: list[int] = []
    fit(again, room, SCHEDULE, seed=3, folder=tmp_path, log=lambda n, record: seen.append(n))
    assert seen[0] == 2 * ((step - 1) // 2) + 1  # a save at step 4 comes after its log
    assert equal(again, wholes[name])


def test_ctrl_c_in_the_middle_of_a_step_saves_whole_steps_only(
    tmp_path: Path, room: Domain, wholes: dict[str, Method]
) -> None:
    """The signal arrives while the third step runs:
    it is finished, saved, and the run goes on as if nothing had been.
    """
    first = make("protodepth", room)
    loss, calls = first.loss, [0]

    def pressed(batch: Batch, view: View) -> LossTerms:
        calls[0] += 1
        if calls[0] == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return loss(batch, view)

    first.loss = pressed  # type: ignore[method-assign]
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fit(first, room, SCHEDULE, seed=3, folder=tmp_path)
    assert signal.getsignal(signal.SIGINT) is before
    assert json.loads((tmp_path / "state.json").read_text())["step"] == 3
    again = make("protodepth", room)
    fit(again, room, SCHEDULE, seed=3, folder=tmp_path)
    assert equal(again, wholes["protodepth"])


def test_a_finished_run_is_loaded_and_not_learned_again(tmp_path: Path, room: Domain) -> None:
    whole = make("protodepth", room)
    fit(whole, room, SCHEDULE, seed=3, folder=tmp_path)
    again = make("protodepth", room)
    progress = fit(again, room, SCHEDULE, seed=3, folder=tmp_path)
    assert progress.steps == 0
    assert equal(again, whole)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state-6.safetensors", "state.json"]


def test_two_runs_of_one_seed_are_equal_and_of_two_seeds_are_not(room: Domain) -> None:
    methods = [make("protodepth", room) for _ in range(3)]
    for method, seed in zip(methods, (1, 1, 2), strict=True):
        fit(method, room, SCHEDULE, seed=seed)
    assert equal(methods[0], methods[1])
    assert not equal(methods[0], methods[2])


def test_a_state_of_another_run_is_refused(tmp_path: Path, room: Domain) -> None:
    fit(make("protodepth", room), room, SCHEDULE, seed=3, folder=tmp_path)
    with pytest.raises(CheckpointError, match="holds a run with seed=3, this one has 4"):
        fit(make("protodepth", room), room, SCHEDULE, seed=4, folder=tmp_path)
    with pytest.raises(CheckpointError, match="holds a run with steps=6"):
        fit(make("protodepth", room), room, replace(SCHEDULE, steps=7), seed=3, folder=tmp_path)


def test_a_damaged_state_is_refused(tmp_path: Path, room: Domain) -> None:
    fit(make("protodepth", room), room, SCHEDULE, seed=3, folder=tmp_path)
    file = tmp_path / "state-6.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(CheckpointError, match="checksum"):
        fit(make("protodepth", room), room, SCHEDULE, seed=3, folder=tmp_path)


# --- numbers that are none --------------------------------------------------------------------------------------------


def poisoned(method: Method, steps: set[int], how: str) -> None:
    """Make the loss of some steps NaN, or leave it finite and make a gradient NaN."""
    loss, calls = method.loss, [-1]

    def bad(batch: Batch, view: View) -> LossTerms:
        calls[0] += 1
        terms = loss(batch, view)
        if calls[0] in steps:
            if how == "loss":
                terms["color"] = terms["color"] * math.nan
            else:
                terms["color"].register_hook(lambda gradient: gradient * math.inf)
        return terms

    method.loss = bad  # type: ignore[method-assign]


@pytest.mark.parametrize("how", ["loss", "gradient"])
def test_a_step_that_is_not_finite_is_skipped_and_counted_and_touches_no_weight(room: Domain, how: str) -> None:
    method = make("protodepth", room)
    poisoned(method, {1, 2, 4}, how)
    changes: list[bool] = []
    last = [{k: v.clone() for k, v in weights(method).items()}]

    def look(step: int) -> None:
        now = {k: v.clone() for k, v in weights(method).items()}
        changes.append(any(not torch.equal(now[k], last[0][k]) for k in now))
        last[0] = now

    progress = fit(method, room, SCHEDULE, seed=0, each_step=look)
    assert changes == [True, False, False, True, False, True]
    assert progress.skipped == 3
    assert all(torch.isfinite(v).all() for v in weights(method).values())


def test_a_skipped_step_leaves_running_statistics_as_they_were(room: Domain) -> None:
    """A batch norm has taken note of the batch before anybody knows that the loss is no number."""
    method = make("finetune", room)
    norm = torch.nn.BatchNorm1d(2)
    method.objective.pose.add_module("norm", norm)  # type: ignore[union-attr]
    loss = method.loss
    method.loss = lambda b, v: (norm(torch.rand(4, 2)), {k: x * math.nan for k, x in loss(b, v).items()})[1]  # type: ignore[method-assign]
    learner = Learner.of(method, SCHEDULE, 0)
    before = norm.running_mean.clone()
    assert train_step(learner, next(training_batches(room.train, 2, seed=0)), 0) is None
    assert torch.equal(norm.running_mean, before)
    assert int(norm.num_batches_tracked) == 0


def test_a_network_that_a_step_does_not_use_does_not_move_in_it(room: Domain) -> None:
    """No gradient is not a gradient of zero, with which Adam goes on as before."""
    method = make("finetune", room)
    pose, loss = method.objective.pose, method.loss
    assert pose is not None
    learner, batch = Learner.of(method, SCHEDULE, 0), next(training_batches(room.train, 2, seed=0))
    start = {k: v.clone() for k, v in pose.state_dict().items()}
    train_step(learner, batch, 0)
    moved = {k: v.clone() for k, v in pose.state_dict().items()}
    assert any(not torch.equal(moved[k], start[k]) for k in start)
    method.loss = lambda b, v: {"sparse": loss(b, v)["sparse"]}  # type: ignore[method-assign]
    train_step(learner, batch, 1)
    assert all(torch.equal(v, moved[k]) for k, v in pose.state_dict().items())


def test_a_pose_network_that_was_frozen_learns_again(room: Domain) -> None:
    method = make("finetune", room)
    pose = method.objective.pose
    assert pose is not None
    pose.requires_grad_(False).eval()
    Learner.of(method, SCHEDULE, 0)
    assert all(p.requires_grad for p in pose.parameters())
    assert pose.training


@pytest.mark.parametrize("asked", [False, True])
def test_images_have_the_layout_that_the_schedule_asks_for(room: Domain, asked: bool) -> None:
    method, seen = make("protodepth", room), []
    loss = method.loss
    method.loss = lambda b, v: (seen.append(v.batch.image), loss(b, v))[1]  # type: ignore[method-assign]
    learner = Learner.of(method, replace(SCHEDULE, channels_last=asked), 0)
    train_step(learner, next(training_batches(room.train, 2, seed=0)), 0)
    assert [image.is_contiguous(memory_format=torch.channels_last) for image in seen] == [asked]


def test_ten_bad_steps_in_a_row_stop_the_run_with_a_saved_finite_state(tmp_path: Path, room: Domain) -> None:
    method = make("protodepth", room)
    poisoned(method, set(range(2, 99)), "loss")
    with pytest.raises(TrainingDiverged, match="10 steps in a row on 'room'"):
        fit(method, room, replace(SCHEDULE, steps=50, save_every=100), seed=0, folder=tmp_path)
    saved = json.loads((tmp_path / "state.json").read_text())
    assert saved["step"] == 11
    expected = make("protodepth", room)  # the two good steps, of the same schedule
    with pytest.raises(PowerCutError):
        fit(expected, room, replace(SCHEDULE, steps=50, save_every=100), seed=0, log=at(2, cut))
    assert equal(method, expected)


def test_nine_bad_steps_are_survived(room: Domain) -> None:
    method = make("protodepth", room)
    poisoned(method, set(range(9)), "loss")
    assert fit(method, room, replace(SCHEDULE, steps=11), seed=0).skipped == 9


# --- what may reach a method ------------------------------------------------------------------------------------------


class Labelled:
    """A dataset whose ground truth is a trap: reading any value of it would be noticed."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Frame:
        frame = self.data[index]
        assert frame.ground_truth is not None
        return frame


def test_ground_truth_never_reaches_a_method(room: Domain) -> None:
    method = make("protodepth", replace(room, train=Labelled(room.train)))
    seen: list[Batch] = []
    loss = method.loss

    def spy(batch: Batch, view: View) -> LossTerms:
        seen.extend([batch, view.batch])
        return loss(batch, view)

    method.loss = spy  # type: ignore[method-assign]
    fit(method, replace(room, train=Labelled(room.train)), SCHEDULE, seed=0)
    assert len(seen) == 12
    assert all(batch.ground_truth is None for batch in seen)


def test_ground_truth_mixed_in_by_a_method_is_taken_away_again(room: Domain) -> None:
    """A replay buffer may hold labelled frames by mistake; the step strips them."""
    method = make("protodepth", room)
    batch = next(training_batches(room.train, 2, seed=0))
    labelled = replace(batch, ground_truth=torch.ones_like(batch.sparse_depth))
    seen: list[Batch] = []
    loss = method.loss
    method.loss = lambda b, v: (seen.append(b), loss(b, v))[1]  # type: ignore[method-assign]
    train_step(Learner.of(method, SCHEDULE, 0), labelled, 0)
    assert seen[0].ground_truth is None


def test_the_loss_sees_clean_images_and_the_network_augmented_ones(room: Domain) -> None:
    method = make("protodepth", room)
    pairs: list[tuple[Batch, Batch]] = []
    loss = method.loss
    method.loss = lambda b, v: (pairs.append((b, v.batch)), loss(b, v))[1]  # type: ignore[method-assign]
    fit(method, room, replace(SCHEDULE, steps=1, augment=AugmentConfig(brightness=(0.5, 0.5))), seed=0)
    clean, seen = pairs[0]
    raw = next(training_batches(room.train, 2, seed=0))
    assert torch.equal(clean.image, raw.image)
    torch.testing.assert_close(seen.image, raw.image / 2)


# --- optimiser --------------------------------------------------------------------------------------------------------


def test_rates_follow_the_schedule_for_network_and_pose(room: Domain) -> None:
    method = make("finetune", room)
    schedule = replace(SCHEDULE, rate=1e-2, pose_rate=1e-4)
    learner = Learner.of(method, schedule, 0)
    batch = next(training_batches(room.train, 2, seed=0))
    for step in (0, 3):
        train_step(learner, batch, step)
        rates = [group["lr"] for group in learner.optimiser.param_groups]
        assert rates == pytest.approx([1e-2 * schedule.factor(step), 1e-4 * schedule.factor(step)])


def test_gradients_are_clipped_group_by_group(room: Domain) -> None:
    """A pose network with huge gradients must not slow the depth down."""
    method = make("finetune", room)
    optimiser = torch.optim.SGD(
        [
            {"params": g, "lr": 1.0, "initial_lr": 1.0}
            for g in ([*method.trainable_parameters()], [*method.objective.pose.parameters()])
        ]  # type: ignore[union-attr]
    )
    schedule = replace(SCHEDULE, clip=1e-3, decay="constant", augment=AugmentConfig())
    before = [[p.detach().clone() for p in g["params"]] for g in optimiser.param_groups]
    train_step(Learner(method, optimiser, schedule, 0), next(training_batches(room.train, 2, seed=0)), 0)
    for old, group in zip(before, optimiser.param_groups, strict=True):
        moved = math.sqrt(
            sum(float((a - b.detach()).square().sum()) for a, b in zip(old, group["params"], strict=True))
        )
        assert moved == pytest.approx(1e-3, rel=1e-2)


def test_one_run_gives_both_settings_the_descriptor_changes_no_prototype(room: Domain) -> None:
    """Eq. 9 has no gradient on A, P, W; with or without it, clipped or not, they learn the very same."""
    learned = []
    for learn in (True, False):
        method = make("protodepth", room, learn_descriptor=learn)
        fit(method, room, replace(SCHEDULE, clip=1e-2), seed=0)
        learned.append({n: p.detach().clone() for n, p in method.model.domain("room").sets.named_parameters()})
    assert all(torch.equal(learned[0][n], learned[1][n]) for n in learned[0])


def test_only_the_new_domain_and_the_pose_network_are_optimised(room: Domain) -> None:
    method = make("protodepth", room)
    optimised = {id(p) for g in build_optimiser(method, SCHEDULE).param_groups for p in g["params"]}
    expected = {id(p) for p in [*method.model.domain("room").parameters(), *method.objective.pose.parameters()]}  # type: ignore[union-attr]
    assert optimised == expected


def test_pretrained_learns_nothing(room: Domain) -> None:
    method = make("pretrained", room)
    before = {k: v.clone() for k, v in weights(method).items()}
    assert fit(method, room, SCHEDULE, seed=0).steps == 0
    assert all(torch.equal(v, before[k]) for k, v in weights(method).items())


# --- batches ----------------------------------------------------------------------------------------------------------


def names(data: Any, count: int, **options: Any) -> list[list[float]]:
    batches = training_batches(data, 2, seed=5, **options)
    return [[round(v, 5) for v in next(batches).image.mean((1, 2, 3)).tolist()] for _ in range(count)]


def test_every_frame_comes_once_an_epoch_and_a_resumed_stream_goes_on_where_it_was(room: Domain) -> None:
    whole = names(room.train, 9)
    epochs = [sorted(v for batch in whole[n : n + 3] for v in batch) for n in (0, 3, 6)]
    assert epochs[0] == epochs[1] == epochs[2]
    assert len(set(epochs[0])) == 6
    assert whole[:3] != whole[3:6]
    assert names(room.train, 4, start=5) == whole[5:9]


def test_worker_processes_give_the_same_batches(room: Domain) -> None:
    assert names(room.train, 4, workers=2) == names(room.train, 4)


def test_a_domain_without_frames_is_refused(room: Domain) -> None:
    with pytest.raises(DataError, match="no training frames"):
        fit(make("protodepth", room), replace(room, train=Subset(room.train, ())), SCHEDULE, seed=0)


def test_records_carry_every_term_and_their_sum(room: Domain) -> None:
    records: list[dict[str, Any]] = []
    fit(make("protodepth", room), room, SCHEDULE, seed=0, log=lambda n, record: records.append(record))
    assert len(records) == 6
    for n, record in enumerate(records):
        terms = [record[k] for k in ("color", "structure", "sparse", "smooth", "pose", "descriptor")]
        assert record["total"] == pytest.approx(sum(terms), rel=1e-5)
        assert record["rate"] == pytest.approx(1e-2 * SCHEDULE.factor(n))
        assert (record.pop("method"), record.pop("domain")) == ("protodepth", "room")
    assert np.isfinite([v for r in records for v in r.values()]).all()
