"""Learning from drawn scenes: the loss, the growing pool, and a run that is cut in two is the run in one piece."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import protodepth.backbones  # noqa: F401  registers the built-in networks
from protodepth.errors import CheckpointError, ConfigError
from protodepth.training import drawn
from protodepth.training.drawn import DrawnRecipe

TINY = DrawnRecipe(
    steps=6, warm=2, crops=((2, 32, 48), (1, 48, 64)), frames=5, start_frames=3, frames_per_step=0.5, size=(48, 64)
)


@pytest.fixture(autouse=True)
def few_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn, "HELD", 1)


def weights(folder: Path, recipe: DrawnRecipe) -> dict[str, torch.Tensor]:
    return drawn.train_drawn(recipe, folder, report=lambda line: None, every=100).state_dict()


def test_a_run_in_two_pieces_is_the_run_in_one(tmp_path: Path) -> None:
    whole = weights(tmp_path / "one", TINY)
    weights(tmp_path / "two", replace(TINY, steps=3, fall=1e-9))  # the rate has not begun to fall
    rest = weights(tmp_path / "two", replace(TINY, fall=1e-9))
    plain = weights(tmp_path / "plain", replace(TINY, fall=1e-9))
    assert all(torch.equal(rest[k], plain[k]) for k in plain)
    assert not all(torch.equal(rest[k], whole[k]) for k in whole)


def test_another_recipe_does_not_go_on_in_the_same_folder(tmp_path: Path) -> None:
    weights(tmp_path, replace(TINY, steps=1))
    with pytest.raises(CheckpointError, match="average"):
        weights(tmp_path, replace(TINY, steps=2, average=0.5))
    with pytest.raises(ConfigError, match="other settings"):
        drawn.FramePool(tmp_path / "pool", 9, TINY.size, seed=0)


def test_crops_larger_than_the_frames_are_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="do not fit"):
        drawn.check_drawn(replace(TINY, size=(40, 64)))
    with pytest.raises(ConfigError, match="start_frames"):
        drawn.check_drawn(replace(TINY, start_frames=6))


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


def test_the_pool_is_what_was_drawn_and_is_not_drawn_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = drawn.FramePool(tmp_path, 3, (24, 32), seed=0)
    pool.draw(2)
    kept = np.array(pool.depths[1])
    monkeypatch.setattr(drawn.anywhere, "draw", lambda *a: pytest.fail("drawn twice"))
    again = drawn.FramePool(tmp_path, 3, (24, 32), seed=0)
    again.draw(2)
    assert again.count == 2
    assert np.array_equal(again.depths[1], kept)
