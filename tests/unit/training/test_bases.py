"""Base networks: what their record says of the training, and what ScaffNet's own training does without numbers."""

from dataclasses import replace

import pytest
import torch

from conftest import tiny_lite
from protodepth import config
from protodepth.backbones.scaffnet import ScaffNet
from protodepth.data.frame import Domain
from protodepth.errors import ConfigError, TrainingDiverged
from protodepth.training import bases, recipes
from protodepth.training.bases import train_base
from protodepth.training.schedule import Schedule

SCHEDULE = Schedule(steps=4, batch_size=1, rate=1e-3)
TINY = "worlds:warehouse?size=32x48&train=8&val=2&test=2"


def test_the_record_of_a_base_says_which_reduction_was_used() -> None:
    recipe = recipes.BaseRecipe(name="tiny", data=TINY, schedule=Schedule(steps=1, batch_size=1), pose=False)
    assert "reduction" not in config.to_dict(recipe)["objective"]
    assert train_base(recipe).history["warehouse"].recipe["objective"]["reduction"] == "relative"


def spoiled(monkeypatch: pytest.MonkeyPatch, bad: set[int]) -> None:
    """The loss has no number at some steps."""
    steps = iter(range(100))
    loss = bases.supervised_loss

    def poisoned(*args: torch.Tensor) -> torch.Tensor:
        return loss(*args) * (float("nan") if next(steps) in bad else 1.0)

    monkeypatch.setattr(bases, "supervised_loss", poisoned)


def test_steps_without_numbers_are_counted_and_leave_the_weights_finite(
    room: Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiled(monkeypatch, {0, 2})
    network = ScaffNet.from_preset("small")
    progress = bases.train_scaffnet(network, room, SCHEDULE, seed=0)
    assert (progress.steps, progress.skipped) == (4, 2)
    assert all(torch.isfinite(p).all() for p in network.parameters())


def test_ten_in_a_row_end_it_with_the_weights_as_they_were(room: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    spoiled(monkeypatch, set(range(100)))
    network = ScaffNet.from_preset("small")
    before = {k: v.clone() for k, v in network.named_parameters()}
    with pytest.raises(TrainingDiverged, match="10 steps in a row"):
        bases.train_scaffnet(network, room, replace(SCHEDULE, steps=20), seed=0)
    assert all(torch.equal(v, before[k]) for k, v in network.named_parameters())


def test_other_networks_do_not_see_ground_truth(room: Domain) -> None:
    with pytest.raises(ConfigError, match="only scaffnet"):
        bases.train_scaffnet(tiny_lite(), room, SCHEDULE, seed=0)
