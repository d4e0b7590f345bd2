"""The demo's own measurement: steps of two methods in turns."""

import copy

import torch

from conftest import tiny_model
from protodepth.data.frame import Domain
from protodepth.experiments import demo
from protodepth.training import recipes


def test_the_step_ratio_is_measured_on_copies(room: Domain) -> None:
    model = tiny_model()
    before = copy.deepcopy(model.backbone.state_dict())
    ratio = demo.step_ratio(recipes.SEQUENCES["indoor"](), model, room, turns=2)
    assert 0.05 < ratio < 20
    assert model.domains == ()
    assert all(torch.equal(value, before[name]) for name, value in model.backbone.state_dict().items())
