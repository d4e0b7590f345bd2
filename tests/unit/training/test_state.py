"""What a training keeps: whole or refused, and with its counts."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import tiny_model
from helpers.mutants import mutants
from protodepth.data.frame import Domain
from protodepth.errors import CheckpointError
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import Method, build
from protodepth.storage import files
from protodepth.training.fit import build_optimiser, fit
from protodepth.training.log import JsonLines
from protodepth.training.schedule import Schedule
from protodepth.training.state import TrainingState, optimiser_state

SCHEDULE = Schedule(steps=3, save_every=1, rate=1e-2)
ABOUT = {"method": "protodepth", "domain": "room", "seed": 0, "steps": 3}


def make(domain: Domain) -> Method:
    model = tiny_model(pose=True)
    objective = Objective(ObjectiveConfig(reduction="relative"), pose=model.pose, max_depth=8.0)
    method = build("protodepth", model, objective, model.config)
    method.begin_domain(domain, lambda m, d: None)
    return method


def state(method: Method, folder: Path) -> TrainingState:
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    return TrainingState(folder, method, build_optimiser(method, SCHEDULE), scaler, ABOUT)


@pytest.fixture(scope="module")
def stored(room: Domain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("state")
    fit(make(room), room, SCHEDULE, seed=0, folder=folder)
    return folder


def attack(stored: Path, folder: Path, room: Domain, count: int, seed: int, *, sealed: bool) -> dict[str, int]:
    """Load damaged copies of the description; any error but a CheckpointError ends the test."""
    good = json.loads((stored / "state.json").read_text())
    if not sealed:  # as earlier versions wrote it
        good = {k: v for k, v in good.items() if k not in ("sealed", "format_version", "counts")}
    data = json.dumps(good, indent=2).encode()
    (folder / "state-3.safetensors").write_bytes((stored / "state-3.safetensors").read_bytes())
    method, seen = make(room), {"parsed": 0, "refused": 0, "loaded": 0, "silent": 0}
    keeper, said = state(method, folder), []
    for bad in mutants(data, count, seed):
        (folder / "state.json").write_bytes(bad)
        try:
            value = json.loads(bad)
            seen["parsed"] += 1
        except (ValueError, RecursionError):
            value = None
        try:
            keeper.load()
        except CheckpointError as error:
            said.append(str(error))
            seen["refused"] += 1
        else:
            seen["loaded"] += 1
            seen["silent"] += value != good
    assert not any("\n" in text for text in said)
    return seen


def test_of_damaged_states_none_loads_in_silence_and_none_ends_in_a_traceback(
    stored: Path, tmp_path: Path, room: Domain
) -> None:
    seen = attack(stored, tmp_path, room, 400, 1, sealed=True)
    assert seen["silent"] == 0
    assert seen["parsed"] > 40  # the mutants reach what reads the values
    assert seen["refused"] > 300


def test_states_of_earlier_versions_load_and_their_damage_is_no_traceback(
    stored: Path, tmp_path: Path, room: Domain
) -> None:
    seen = attack(stored, tmp_path, room, 200, 2, sealed=False)
    assert seen["parsed"] > 20
    earlier = {k: v for k, v in files.read_sealed(stored / "state.json", ()).items() if k != "counts"}
    (tmp_path / "state.json").write_text(json.dumps(earlier))
    assert state(make(room), tmp_path).load() == 3


@pytest.mark.slow
def test_of_ten_thousand_damaged_states_none_loads_in_silence(stored: Path, tmp_path: Path, room: Domain) -> None:
    seen = attack(stored, tmp_path, room, 10_000, 3, sealed=True)
    assert seen["silent"] == 0
    print(seen)


def test_another_step_number_is_refused(stored: Path, tmp_path: Path, room: Domain) -> None:
    for file in stored.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    meta = json.loads((tmp_path / "state.json").read_text())
    (tmp_path / "state.json").write_text(json.dumps({**meta, "step": 7}))
    with pytest.raises(CheckpointError, match="checksum"):
        state(make(room), tmp_path).load()


def test_a_tensor_file_elsewhere_is_not_read(stored: Path, tmp_path: Path, room: Domain) -> None:
    meta = files.read_sealed(stored / "state.json", ())
    for name in ("../state-3.safetensors", str(stored / "state-3.safetensors"), "state-4.safetensors", None, 3):
        files.write_sealed(tmp_path / "state.json", {**meta, "file": name})
        with pytest.raises(CheckpointError, match="damaged"):
            state(make(room), tmp_path).load()
    files.write_sealed(tmp_path / "state.json", meta)
    (tmp_path / "state-3.safetensors").symlink_to(stored / "state-3.safetensors")
    with pytest.raises(CheckpointError, match="leads out of"):
        state(make(room), tmp_path).load()


class Poisoned:
    """A dataset whose frames have no numbers where they should, now and then."""

    def __init__(self, inner: object, bad: set[int], what: str, value: float = float("nan")) -> None:
        self.inner, self.bad, self.what, self.value = inner, bad, what, value

    def __len__(self) -> int:
        return len(self.inner)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> object:
        frame = self.inner[index]  # type: ignore[index]
        if index not in self.bad:
            return frame
        if self.what in ("poses", "neighbours"):
            parts = tuple(np.full(p.shape, self.value, np.float32) for p in getattr(frame, self.what))
            return replace(frame, **{self.what: parts})
        values = getattr(frame, self.what).astype(np.float32)
        values[: len(values) // 2] = self.value
        return replace(frame, **{self.what: values})


@pytest.mark.parametrize("what", ["image", "sparse_depth", "intrinsics", "poses", "neighbours"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3e38, -3e38])
def test_frames_without_numbers_cost_their_steps_and_nothing_else(room: Domain, what: str, value: float) -> None:
    method = make(room)
    poisoned = replace(room, train=Poisoned(room.train, {1, 4}, what, value))
    pose = method.objective.pose
    assert pose is not None
    progress = fit(method, poisoned, replace(SCHEDULE, steps=8, batch_size=1), seed=0)
    assert progress.skipped <= 6
    assert progress.skipped >= 2 or value == value or what == "sparse_depth"  # NaN among the points is no point
    tensors = [*method.state().values(), *pose.state_dict().values()]
    assert all(torch.isfinite(t).all() for t in tensors if t.is_floating_point())


def test_counts_of_an_interrupted_run_are_those_of_a_whole_one(room: Domain, tmp_path: Path) -> None:
    poisoned = replace(room, train=Poisoned(room.train, {1, 4}, "poses"))
    schedule = replace(SCHEDULE, steps=12, batch_size=1, save_every=5)

    def stop(step: int, record: dict[str, float]) -> None:
        log(step, record)
        if step == 7:
            raise RuntimeError("killed")

    whole_log = JsonLines(tmp_path / "whole.jsonl")
    whole = fit(make(room), poisoned, schedule, seed=0, log=whole_log)
    log = JsonLines(tmp_path / "log.jsonl")
    with pytest.raises(RuntimeError, match="killed"):
        fit(make(room), poisoned, schedule, seed=0, folder=tmp_path / "s", log=stop)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 8, "meth')  # cut off in the middle of a line
    log = JsonLines(tmp_path / "log.jsonl")
    rest = fit(make(room), poisoned, schedule, seed=0, folder=tmp_path / "s", log=log)
    assert rest.skipped == whole.skipped > 2
    assert (tmp_path / "log.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_training_that_does_not_fit_on_the_disk_is_refused_before_its_first_step(
    room: Domain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = make(room)
    size = state(method, tmp_path)._size()
    written = files.tensor_bytes(method.state())
    assert size > len(written) // 2
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=3 * size - 1))
    with pytest.raises(CheckpointError, match=r"training on 'room' needs about .* make room"):
        fit(method, room, SCHEDULE, seed=0, folder=tmp_path / "s")
    assert not (tmp_path / "s").exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=3 * size))
    fit(method, room, SCHEDULE, seed=0, folder=tmp_path / "s")


def test_of_those_who_are_left_behind_one_saves(room: Domain, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    method = make(room)
    state(method, tmp_path).save(1)
    left = state(method, tmp_path)
    left.rescue(2)
    assert "step 2 was saved" in caplog.text
    left.rescue(3)  # another one was there before
    assert files.read_sealed(tmp_path / "state.json", ())["step"] == 2
    assert state(method, tmp_path).load() == 2
    left.save(3)
    assert not list(tmp_path.glob(".rescue-*"))
    nowhere = TrainingState(None, method, left.optimiser, left.scaler, ABOUT)
    nowhere.rescue(4)
    nowhere.save(4)
    assert nowhere.load() == 0


def test_the_scaler_of_half_precision_and_whoever_watches_go_on_too(room: Domain, tmp_path: Path) -> None:
    class Watcher:
        done = False

        def __init__(self) -> None:
            self.best = torch.zeros(2)

        def tensors(self) -> dict[str, torch.Tensor]:
            return {"best": self.best}

        def facts(self) -> dict[str, object]:
            return {"looked": 3}

        def go_on(self, tensors: dict[str, torch.Tensor], facts: dict[str, object]) -> None:
            self.best, self.looked = tensors["best"], facts["looked"]

    method, first, second = make(room), Watcher(), Watcher()
    first.best = torch.tensor([1.0, 2.0])
    optimiser, scaler = build_optimiser(method, SCHEDULE), torch.amp.GradScaler("cpu", init_scale=8.0)
    TrainingState(tmp_path, method, optimiser, scaler, ABOUT, first).save(2)
    fresh = torch.amp.GradScaler("cpu", init_scale=2.0)
    assert TrainingState(tmp_path, method, optimiser, fresh, ABOUT, second).load() == 2
    assert fresh.get_scale() == 8.0
    assert second.best.tolist() == [1.0, 2.0]
    assert second.looked == 3


def test_processes_that_see_different_folders_stop(
    room: Domain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protodepth.distributed.gather", lambda value: [value, value + 1])
    with pytest.raises(CheckpointError, match="different states"):
        state(make(room), tmp_path).load()


def test_an_optimisers_tensors_are_known_by_parameter_and_name(room: Domain) -> None:
    optimiser = build_optimiser(make(room), SCHEDULE)
    tensors = {"0.exp_avg": torch.ones(2), "0.exp_avg_sq": torch.zeros(2), "12.a.b": torch.ones(1)}
    values = optimiser_state(optimiser, tensors, ".")
    assert {index: set(names) for index, names in values["state"].items()} == {
        0: {"exp_avg", "exp_avg_sq"},
        12: {"a.b"},
    }
    assert values["param_groups"] == optimiser.state_dict()["param_groups"]
