"""Learning from drawn scenes: the loss, the growing pool, and a run that is cut in two is the run in one piece."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import protodepth.backbones  # noqa: F401  registers the built-in networks
from helpers.mutants import mutants
from protodepth.backbones.base import backbones
from protodepth.errors import CheckpointError, ConfigError, ProcessLost, ProtoDepthError, TrainingDiverged
from protodepth.model import ProtoDepth
from protodepth.storage import files
from protodepth.training import drawn, pool, runs
from protodepth.training.drawn import DrawnRecipe
from protodepth.training.state import read_state_tensors
from protodepth.types import Batch

DRAWING = drawn.drawing
TINY = DrawnRecipe(
    steps=6, warm=2, crops=((2, 32, 48), (1, 48, 64)), frames=5, start_frames=3, frames_per_step=0.5, size=(48, 64)
)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TINY's pool, drawn."""
    folder = tmp_path_factory.mktemp("pool")
    pool.FramePool(folder, TINY.frames, TINY.size, seed=0).draw(TINY.frames)
    return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, frames: Path) -> None:
    """One frame judges, and the pool is full: a process that draws takes seconds to begin."""

    @contextlib.contextmanager
    def full(recipe: DrawnRecipe, folder: Path) -> Iterator[None]:
        for file in frames.iterdir():
            shutil.copy(file, folder / file.name)
        yield

    monkeypatch.setattr(drawn, "HELD", 1)
    monkeypatch.setattr(drawn, "drawing", full)


def weights(folder: Path, recipe: DrawnRecipe) -> dict[str, torch.Tensor]:
    return drawn.train_drawn(recipe, folder, report=lambda line: None, every=100).state_dict()


def test_a_run_in_two_pieces_is_the_run_in_one(tmp_path: Path) -> None:
    whole = weights(tmp_path / "one", TINY)
    weights(tmp_path / "two", replace(TINY, steps=3, fall=1e-9))  # the rate has not begun to fall
    rest = weights(tmp_path / "two", replace(TINY, fall=1e-9))
    plain = weights(tmp_path / "plain", replace(TINY, fall=1e-9))
    assert all(torch.equal(rest[k], plain[k]) for k in plain)
    assert not all(torch.equal(rest[k], whole[k]) for k in whole)


def test_a_second_process_draws_until_it_is_not_needed(tmp_path: Path) -> None:
    folder = tmp_path / "pool"
    frames = pool.FramePool(folder, TINY.frames, TINY.size, seed=0)
    with DRAWING(TINY, folder):
        assert frames.wait(2)


def test_another_recipe_does_not_go_on_in_the_same_folder(tmp_path: Path) -> None:
    weights(tmp_path, replace(TINY, steps=1))
    with pytest.raises(CheckpointError, match="average"):
        weights(tmp_path, replace(TINY, steps=2, average=0.5))
    with pytest.raises(ConfigError, match="other settings"):
        drawn.FramePool(tmp_path / "pool", 9, TINY.size, seed=0)


def test_a_run_may_go_on_with_other_crops_and_a_claim_of_an_earlier_version_is_the_same_run(tmp_path: Path) -> None:
    runs._claim_run(tmp_path, TINY, "", resume=False)
    weights(tmp_path / "state", replace(TINY, steps=1))
    weights(tmp_path / "state", replace(TINY, steps=2, crops=((1, 48, 64),)))
    claim = json.loads((tmp_path / "run.json").read_text())
    assert not claim["recipe"].keys() & set(drawn.MAY_CHANGE)
    claim["recipe"]["crops"] = [[2, 32, 48]]  # which was not allowed to change once, and is still written there
    (tmp_path / "run.json").write_text(json.dumps(claim))
    runs._claim_run(tmp_path, TINY, "", resume=True)
    with pytest.raises(ProtoDepthError, match="seed"):
        runs._claim_run(tmp_path, replace(TINY, seed=9), "", resume=True)


def test_crops_larger_than_the_frames_are_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="do not fit"):
        drawn.check_drawn(replace(TINY, size=(40, 64)))
    with pytest.raises(ConfigError, match="start_frames"):
        drawn.check_drawn(replace(TINY, start_frames=6))


def test_a_run_begins_with_the_weights_of_the_model_that_it_is_given(tmp_path: Path) -> None:
    given = backbones.get("scalefree").from_preset("small")
    torch.nn.init.normal_(given.head.weight)
    ProtoDepth(given).save_pretrained(tmp_path / "given")
    learner = drawn.DrawnLearner(replace(TINY, start=str(tmp_path / "given")))
    for held in (learner.network.state_dict(), learner.average):
        assert all(torch.equal(held[k], v) for k, v in given.state_dict().items())


def test_a_start_of_another_network_or_a_wider_one_is_refused_before_anything_runs(tmp_path: Path) -> None:
    for preset in ("small", "large"):
        ProtoDepth(backbones.get("scalefree").from_preset(preset)).save_pretrained(tmp_path / preset)
    drawn.check_drawn(replace(TINY, start=str(tmp_path / "small")))
    for start, reason in ((str(tmp_path / "large"), "narrower"), ("worlds-tiny", "same network")):
        with pytest.raises(ConfigError, match=reason):
            drawn.check_drawn(replace(TINY, start=start))


def test_a_wider_network_begins_with_what_a_narrow_one_has_learned(tmp_path: Path) -> None:
    given = backbones.get("scalefree").from_preset("small")
    ProtoDepth(given).save_pretrained(tmp_path / "given")
    network = drawn.DrawnLearner(replace(TINY, preset="medium", start=str(tmp_path / "given"))).network
    assert torch.equal(network.state_dict()["head.weight"][:, :24], given.state_dict()["head.weight"])
    assert not network.state_dict()["head.weight"][:, 24:].any()


def test_the_loss_of_the_truth_is_zero_and_of_the_scaffold_about_two_and_a_third() -> None:
    g = torch.Generator().manual_seed(0)
    truth = 1 + torch.rand(2, 1, 24, 32, generator=g)
    scaffold = truth * 1.3
    none = torch.zeros_like(truth)
    assert float(drawn.loss(truth, scaffold, truth, none)) < 1e-4
    assert float(drawn.loss(scaffold, scaffold, truth, none)) == pytest.approx(2.3, abs=0.08)


def test_pixels_without_truth_do_not_count_and_points_count_a_tenth() -> None:
    truth = torch.full((1, 1, 8, 8), 2.0)
    truth[..., :4] = 0
    wrong = torch.full_like(truth, 2.0)
    wrong[..., :4] = 9.0
    scaffold = torch.full_like(truth, 3.0)
    assert float(drawn.loss(wrong, scaffold, truth, torch.zeros_like(truth))) < 1e-4
    off = torch.full_like(truth, 2.0)
    off[..., 0, 7] = 4.0
    sparse = torch.zeros_like(truth)
    sparse[..., 0, 7] = 4.0
    free, held = (float(drawn.loss(off, scaffold, truth, s)) for s in (torch.zeros_like(truth), sparse))
    assert held < 0.2 * free


class Broken(Exception):
    """A killed process, as far as files are concerned."""


def cut(
    folder: Path, recipe: DrawnRecipe, step: int, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """A run that ends with an error in the middle of a step."""
    learn = drawn.DrawnLearner.learn

    def fails(self: drawn.DrawnLearner, *batch: object) -> float | None:
        if self.step == step:
            raise error
        return learn(self, *batch)  # type: ignore[arg-type]

    with monkeypatch.context() as m:
        m.setattr(drawn.DrawnLearner, "learn", fails)
        with pytest.raises(error):
            drawn.train_drawn(recipe, folder, report=lambda line: None, every=2)


def everything(folder: Path) -> tuple[dict[str, torch.Tensor], list[dict[str, float]], dict[str, Any]]:
    """Weights, average and moments; the curve without its clock; the counts."""
    facts = files.read_sealed(folder / "state.json", ())
    lines = [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]
    curve = [{k: v for k, v in line.items() if k != "seconds"} for line in lines]
    return read_state_tensors(folder, facts), curve, facts["counts"]


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt])
def test_a_cut_run_ends_with_the_bits_the_curve_and_the_counts_of_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    recipe = replace(TINY, steps=5, fall=1e-9)
    drawn.train_drawn(recipe, tmp_path / "one", report=lambda line: None, every=2)
    cut(tmp_path / "two", recipe, 3, monkeypatch, error)
    drawn.train_drawn(recipe, tmp_path / "two", report=lambda line: None, every=2)
    whole, parts = everything(tmp_path / "one"), everything(tmp_path / "two")
    assert [line["step"] for line in whole[1]] == [2, 4, 5]
    assert whole[1:] == parts[1:]
    assert whole[0].keys() == parts[0].keys()
    assert all(torch.equal(whole[0][k], parts[0][k]) for k in whole[0])


def test_a_state_of_an_earlier_version_is_gone_on_with_to_the_same_bits(tmp_path: Path) -> None:
    recipe = replace(TINY, fall=1e-9)
    whole = weights(tmp_path / "one", recipe)
    weights(tmp_path / "two", replace(recipe, steps=3))
    facts = files.read_sealed(tmp_path / "two" / "state.json", ())
    earlier = {k: facts[k] for k in ("step", "sha256", "recipe")}
    (tmp_path / "two" / "state.json").write_text(json.dumps(earlier, indent=2))
    rest = weights(tmp_path / "two", recipe)
    assert all(torch.equal(whole[k], rest[k]) for k in whole)


def test_damaged_states_are_refused_and_none_is_taken_in_silence(tmp_path: Path) -> None:
    learner = drawn.DrawnLearner(TINY)
    learner.save(tmp_path)
    good = (tmp_path / "state.json").read_bytes()
    refused: list[str] = []
    for bad in mutants(good, 300, seed=5):
        (tmp_path / "state.json").write_bytes(bad)
        try:
            learner.load(tmp_path)
        except CheckpointError as error:
            refused.append(str(error))
        else:
            assert json.loads(bad) == json.loads(good)
    assert len(refused) > 250
    assert not any("\n" in text for text in refused)
    earlier = {k: v for k, v in json.loads(good).items() if k in ("step", "sha256", "recipe")}
    for bad in mutants(json.dumps(earlier).encode(), 200, seed=6):  # without a seal: no traceback is all that can be
        (tmp_path / "state.json").write_bytes(bad)
        with contextlib.suppress(CheckpointError):
            learner.load(tmp_path)
    (tmp_path / "state.json").write_bytes(good)
    file = tmp_path / "state-0.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="checksum"):
        learner.load(tmp_path)


def tiny_batch() -> tuple[Batch, torch.Tensor]:
    rng = np.random.default_rng(0)
    picture, truth = rng.random((3, 32, 48), np.float32), 1 + rng.random((32, 48), np.float32)
    return drawn.collate([(picture, truth * (rng.random((32, 48)) < 0.1), truth)] * 2)


@pytest.mark.parametrize("what", ["image", "sparse_depth", "truth", "gradient"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
def test_steps_without_numbers_are_counted_and_change_nothing(what: str, value: float) -> None:
    learner = drawn.DrawnLearner(replace(TINY, half=False))
    batch, truth = tiny_batch()
    assert learner.learn(batch, truth) is not None
    before = {k: v.clone() for k, v in learner.network.state_dict().items()}
    if what == "gradient":
        parameter = next(learner.network.parameters())
        parameter.register_hook(lambda g: torch.full_like(g, value))
    elif what == "truth":
        truth[..., 24:] = value
    else:
        getattr(batch, what)[..., 24:] = value
    loss = learner.learn(batch, truth)
    assert all(torch.isfinite(t).all() for t in learner.tensors().values())
    assert learner.counts["skipped"] == learner.counts["bad"] == (loss is None)
    if loss is None:
        assert all(torch.equal(v, before[k]) for k, v in learner.network.state_dict().items())
    # NaN among the points is no point, and a network may make sense of huge values
    assert loss is None or what == "sparse_depth" or value == value


def test_ten_in_a_row_stop_with_the_last_good_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = replace(TINY, steps=30, half=False)
    good = tiny_batch()
    bad = (good[0], torch.full_like(good[1], float("nan")))
    monkeypatch.setattr(drawn, "batches", lambda recipe, folder, first: iter([good] * 3 + [bad] * 12))
    with pytest.raises(TrainingDiverged, match="10 steps in a row"):
        drawn.train_drawn(recipe, tmp_path, report=lambda line: None, every=100)
    facts = files.read_sealed(tmp_path / "state.json", ())
    tensors, counts = read_state_tensors(tmp_path, facts), facts["counts"]
    assert counts["skipped"] == counts["bad"] == 10
    monkeypatch.setattr(drawn, "batches", lambda recipe, folder, first: iter([good] * 3))
    drawn.train_drawn(replace(recipe, steps=3), tmp_path / "good", report=lambda line: None, every=100)
    kept = read_state_tensors(tmp_path / "good", files.read_sealed(tmp_path / "good" / "state.json", ()))
    assert all(torch.equal(v, tensors[k]) for k, v in kept.items() if not k.startswith("average/"))


def test_a_training_that_does_not_fit_on_the_disk_is_refused_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(CheckpointError, match="1 MB are free"):
        weights(tmp_path / "run", TINY)
    assert not (tmp_path / "run").exists()


def test_without_anybody_who_draws_a_run_ends_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "PATIENCE", 0.3)
    monkeypatch.setattr(drawn, "drawing", lambda recipe, folder: contextlib.nullcontext())
    with pytest.raises(ProcessLost, match="--resume"):
        weights(tmp_path, TINY)
    assert (tmp_path / "state.json").exists()
