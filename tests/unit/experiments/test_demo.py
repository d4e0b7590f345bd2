"""The demo's own measurement: small frames on one thread, steps of two methods in turns."""

import copy

import torch

from conftest import tiny_model
from protodepth.data.frame import Domain
from protodepth.experiments import demo
from protodepth.training import recipes


def test_small_frames_run_on_one_thread_and_the_number_is_put_back(room: Domain, monkeypatch) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with demo.threads_for(room, 2) as threads:
            assert threads == torch.get_num_threads() == 1
        monkeypatch.setattr(demo, "FEW_PIXELS", 100)
        with demo.threads_for(room, 2) as threads:
            assert threads == 2
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_step_ratio_is_measured_on_copies(room: Domain) -> None:
    model = tiny_model()
    before = copy.deepcopy(model.backbone.state_dict())
    ratio = demo.step_ratio(recipes.SEQUENCES["indoor"](), model, room, turns=2)
    assert 0.05 < ratio < 20
    assert model.domains == ()
    assert all(torch.equal(value, before[name]) for name, value in model.backbone.state_dict().items())
