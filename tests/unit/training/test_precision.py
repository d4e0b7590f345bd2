"""Half precision and channels_last: options of a schedule that leave weights, losses and files in single precision."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conftest import tiny_lite, tiny_model
from protodepth import config
from protodepth.backbones.base import Backbone, backbones
from protodepth.data.batches import training_batches
from protodepth.data.frame import Domain
from protodepth.errors import ConfigError
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import Method, build
from protodepth.model import ProtoDepth
from protodepth.training.fit import Learner, fit, gradients, train_step
from protodepth.training.schedule import Schedule

SCHEDULE = Schedule(steps=3, rate=1e-3)
NETWORKS = ("kbnet", "voiced", "fusionnet", "uformer")


def make(name: str, network: Backbone | None = None) -> Method:
    torch.manual_seed(0)
    model = ProtoDepth(network) if network is not None else tiny_model()
    objective = Objective(ObjectiveConfig(reduction="relative"), max_depth=8.0)
    method = build(name, model, objective, model.config if name == "protodepth" else None)
    if name == "protodepth":
        model.add_domain("room")
        model.set_domain("room")
    return method


def flat(learner: Learner) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in learner.parameters if p.grad is not None])


@pytest.mark.parametrize("name", ["finetune", "protodepth"])
@pytest.mark.parametrize("changes", [{"precision": "bfloat16"}, {"channels_last": True}], ids=str)
def test_a_step_has_nearly_the_same_terms_and_gradients(name: str, changes: dict[str, object], room: Domain) -> None:
    batch = next(training_batches(room.train, 2, seed=0))
    plain, other = Learner.of(make(name), SCHEDULE, 0), Learner.of(make(name), replace(SCHEDULE, **changes), 0)
    expected, found = gradients(plain, batch, 0), gradients(other, batch, 0)
    half = "precision" in changes
    assert found == pytest.approx(expected, rel=0.03 if half else 1e-5)
    cosine = torch.cosine_similarity(flat(plain), flat(other), dim=0)
    assert 1 - cosine < (0.05 if half else 1e-6)
    assert all(p.dtype == torch.float32 for p in other.parameters)
    if half:
        assert found != expected  # the networks did compute in another precision


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_learns_in_bfloat16(name: str, room: Domain) -> None:
    network = backbones.get(name).from_preset("small", depth_range=(0.1, 8.0))
    learner = Learner.of(make("finetune", network), replace(SCHEDULE, precision="bfloat16"), 0)
    terms = train_step(learner, next(training_batches(room.train, 2, seed=0)), 0)
    assert terms is not None
    assert math.isfinite(terms["total"])


def test_the_objective_computes_in_single_precision_inside_autocast(room: Domain) -> None:
    batch = next(training_batches(room.train, 2, seed=0))
    depth, objective = tiny_lite()(batch).detach(), Objective(ObjectiveConfig(reduction="relative"), max_depth=8.0)
    plain = objective(batch, depth)
    with torch.autocast("cpu", torch.bfloat16):
        inside = objective(batch, depth)
    assert all(torch.equal(inside[name], term) for name, term in plain.items())


@pytest.mark.parametrize("layout", [None, True])
def test_a_run_in_another_layout_leaves_an_ordinary_state(layout: bool | None, room: Domain, tmp_path: Path) -> None:
    method = make("finetune")
    fit(method, room, replace(SCHEDULE, channels_last=layout), seed=0, folder=tmp_path)
    again = make("finetune")
    fit(again, room, SCHEDULE, seed=0, folder=tmp_path)  # finished: it is only loaded
    assert all(torch.equal(a, b) for a, b in zip(method.state().values(), again.state().values(), strict=True))


def test_a_layout_that_would_destroy_memory_is_refused() -> None:
    """KBNet's small preset has 1x1 convolutions with stride 2 on few channels;
    frozen they have no gradient that could do it.
    """
    schedule = replace(SCHEDULE, channels_last=True)
    with pytest.raises(ConfigError, match="oneDNN issue 6035"):
        Learner.of(make("finetune", backbones.get("kbnet").from_preset("small")), schedule, 0)
    Learner.of(make("protodepth", backbones.get("kbnet").from_preset("small")), schedule, 0)


def test_float16_needs_a_gpu(room: Domain) -> None:
    with pytest.raises(ConfigError, match="needs a GPU"):
        fit(make("finetune"), room, replace(SCHEDULE, precision="float16"), seed=0)


def test_a_scaled_loss_gives_the_same_step_and_an_overflow_halves_the_scale(room: Domain) -> None:
    """What float16 needs, tried in single precision:
    the scale comes out of the gradients again, or the step is skipped.
    """
    batch = next(training_batches(room.train, 2, seed=0))
    methods = [make("finetune") for _ in range(3)]
    scales = (None, 256.0, 3e38)
    learners = [Learner.of(m, SCHEDULE, 0) for m in methods]
    learners = [
        learner if scale is None else replace(learner, scaler=torch.amp.GradScaler("cpu", init_scale=scale))
        for learner, scale in zip(learners, scales, strict=True)
    ]
    before = [p.detach().clone() for p in learners[2].parameters]
    results = [train_step(learner, batch, 0) for learner in learners]
    assert results[1] == pytest.approx(results[0], rel=1e-6)
    for a, b in zip(learners[0].parameters, learners[1].parameters, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert results[2] is None
    assert all(torch.equal(a, b) for a, b in zip(before, learners[2].parameters, strict=True))
    assert learners[2].scaler.get_scale() == pytest.approx(1.5e38)


def test_settings_that_are_not_given_are_not_written_down() -> None:
    """Recipes and bench folders from before these settings stay the same."""
    assert not {"precision", "channels_last"} & config.to_dict(Schedule()).keys()
    given = config.override(Schedule(), ("precision=bfloat16", "channels_last=true"))
    assert config.from_dict(Schedule, config.to_dict(given)) == given
    with pytest.raises(ConfigError, match="precision"):
        config.override(Schedule(), ("precision=float8",))
