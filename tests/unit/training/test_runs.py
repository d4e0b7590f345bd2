"""A run's seed reaches all that a method draws itself; an objective takes from its network what it does not name."""

from dataclasses import replace

import pytest
import torch

from protodepth import config
from protodepth.backbones.base import backbones
from protodepth.data.arguments import open_domain
from protodepth.losses import REDUCTIONS, ObjectiveConfig
from protodepth.model import ProtoDepth
from protodepth.training import recipes
from protodepth.training.fit import Schedule
from protodepth.training.runs import build_method, build_objective, train_base

TINY = "worlds:warehouse?size=32x48&train=8&val=2&test=2"


@pytest.fixture(scope="module")
def start() -> ProtoDepth:
    torch.manual_seed(0)
    return ProtoDepth(backbones.get("lite").from_preset("indoor"))


def first_prototypes(start: ProtoDepth, seed: int) -> torch.Tensor:
    method = build_method("protodepth", start, replace(recipes.indoor(), seed=seed))
    domain = open_domain(TINY)
    method.begin_domain(domain, lambda m, d: None)
    return dict(method.model.domain(domain.name).named_parameters())["sets.latent.P"].detach()


def test_prototypes_start_from_the_seed_of_the_run(start: ProtoDepth) -> None:
    assert torch.equal(first_prototypes(start, 1), first_prototypes(start, 1))
    assert not torch.equal(first_prototypes(start, 1), first_prototypes(start, 2))


@pytest.mark.parametrize("name", ["replay", "cmp", "ewc"])
def test_settings_take_the_seed_of_the_run_unless_one_is_given(start: ProtoDepth, name: str) -> None:
    recipe = replace(recipes.indoor(), seed=3, settings={})
    assert build_method(name, start, recipe).config.seed == 3
    assert build_method(name, start, replace(recipe, settings={name: {"seed": 7}})).config.seed == 7


@pytest.mark.parametrize("name", ["lite", "kbnet", "voiced", "fusionnet"])
def test_an_objective_that_names_no_reduction_takes_its_networks_own(name: str) -> None:
    model = ProtoDepth(backbones.get(name).from_preset("indoor" if name == "lite" else "small"))
    own = {"lite": "relative", "kbnet": "kbnet", "voiced": "voiced", "fusionnet": "voiced"}[name]
    assert build_objective(model, ObjectiveConfig()).reduction is REDUCTIONS[own]
    assert build_objective(model, ObjectiveConfig(reduction="paper")).reduction is REDUCTIONS["paper"]


def test_the_record_of_a_base_says_which_reduction_was_used() -> None:
    recipe = recipes.BaseRecipe(name="tiny", data=TINY, schedule=Schedule(steps=1, batch_size=1), pose=False)
    assert "reduction" not in config.to_dict(recipe)["objective"]
    assert train_base(recipe).history["warehouse"].recipe["objective"]["reduction"] == "relative"
