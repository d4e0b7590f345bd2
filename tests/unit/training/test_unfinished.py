"""An adaptation that was killed goes on and ends with the same bits."""

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import tiny_model
from helpers.data_scene import thin, walk
from protodepth.data.files import images
from protodepth.model import ProtoDepth
from protodepth.training.adapt import Adaptation, AdaptConfig, carry_out, make_plan
from protodepth.training.schedule import Schedule
from protodepth.training.task import prepare
from protodepth.training.unfinished import Unfinished

SHOTS = walk(24, size=(32, 48), step=0.03)
CONFIG = AdaptConfig(schedule=Schedule(steps=8, rate=3e-2), judgings=4)


class KilledError(RuntimeError):
    """Nothing is saved on the way out."""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("walk")
    for n, shot in enumerate(SHOTS):
        images.write_image(folder / "image" / f"{n}.png", shot.image)
        images.write_depth(folder / "sparse" / f"{n}.npy", thin(shot.depth))
    np.savetxt(folder / "intrinsics.txt", SHOTS[0].K)
    np.savetxt(folder / "poses.txt", np.stack([s.pose.ravel() for s in SHOTS]))
    return folder


@pytest.fixture(autouse=True)
def few_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protodepth.training.task.CASES", 4)


def learn(
    recording: Path, folder: Path | None, config: AdaptConfig = CONFIG, kill: int = -1
) -> tuple[ProtoDepth, Adaptation]:
    def log(step: int, record: object) -> None:
        if step == kill:
            raise KilledError

    model = tiny_model(pose=True)
    task = prepare(model, recording, "walk", config, {})
    return model, carry_out(model, task, make_plan(task, config), config, log=log, folder=folder)


def same(a: tuple[ProtoDepth, Adaptation], b: tuple[ProtoDepth, Adaptation]) -> bool:
    states = a[0].state_dict(), b[0].state_dict()
    equal = states[0].keys() == states[1].keys() and all(torch.equal(v, states[1][k]) for k, v in states[0].items())
    results = [dataclasses.replace(result, seconds=0.0) for _, result in (a, b)]
    return equal and results[0] == results[1]


@pytest.mark.parametrize("force", [False, True])
def test_an_adaptation_killed_at_any_step_ends_with_the_same_bits(recording: Path, tmp_path: Path, force: bool) -> None:
    config = dataclasses.replace(CONFIG, force=force, register=not force)  # to look for a place takes half of the time
    whole = learn(recording, None, config)
    for kill in (1, 3, 5, 8) if force else (4,):
        folder = tmp_path / str(kill)
        with pytest.raises(KilledError):
            learn(recording, folder, config, kill)
        assert same(learn(recording, folder, config), whole), f"killed at step {kill}"


def test_one_that_had_stopped_early_does_not_learn_further(recording: Path, tmp_path: Path) -> None:
    wild = Schedule(steps=40, rate=30.0)
    config = dataclasses.replace(CONFIG, patience=1, schedule=wild, judgings=20, register=False)
    first = learn(recording, tmp_path, config)
    assert first[1].steps < 40
    assert same(learn(recording, tmp_path, config), first)


def test_only_the_same_adaptation_is_gone_on_with(tmp_path: Path) -> None:
    one = Unfinished.beside(tmp_path / "m", "walk", {"rate": 1})
    assert one.schedule() is None
    one.begin(CONFIG.schedule)
    assert one.schedule() == CONFIG.schedule
    assert Unfinished.beside(tmp_path / "m", "other", {"rate": 1}).schedule() is None
    assert one.schedule() == CONFIG.schedule  # that of another name is left alone
    other = Unfinished.beside(tmp_path / "m", "walk", {"rate": 2})
    assert other.schedule() is None
    assert not one.folder.exists()
    one.begin(CONFIG.schedule)
    (one.folder / "plan.json").write_text("{")
    assert copy.copy(one).schedule() is None
    assert list(tmp_path.iterdir()) == []


def test_what_is_of_other_settings_is_cleared_and_files_of_others_stay(tmp_path: Path) -> None:
    old, new = (Unfinished.beside(tmp_path / "m", "den", {"rate": rate}) for rate in (1, 2))
    old.remove()  # nothing there
    old.begin(Schedule(steps=3))
    states = old.folder / "state"
    states.mkdir()
    for name in ("state.json", "state-3.safetensors", ".rescue-ab", ".state.json.0123abcd.tmp", "mine.txt"):
        (states / name).write_text("x")
    assert old.schedule() == Schedule(steps=3)
    old.begin(Schedule(steps=9))  # begun already
    assert old.schedule() == Schedule(steps=3)
    assert new.schedule() is None
    assert [p.name for p in new.folder.rglob("*")] == ["state", "mine.txt"]
    (states / "mine.txt").unlink()
    new.begin(Schedule(steps=5))
    new.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_keeps_the_old_one_stops_the_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (Unfinished.beside(tmp_path / "m", "den", {"rate": rate}) for rate in (1, 2))
    old.begin(Schedule(steps=3))

    def kept(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", kept)
    with pytest.raises(PermissionError):
        new.schedule()
    old.remove()  # at the end of a command all is written: a word would say that it is not
    assert (old.folder / "plan.json").exists()
