"""What all methods share."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from helpers.methods_toy import Line, SquaredError, no_fit, toy_domain, toy_model
from protodepth.data.augment import AugmentConfig, augment, generator
from protodepth.data.batches import collate
from protodepth.methods.base import build
from protodepth.model import ProtoDepth
from protodepth.types import Batch, Latents, LossTerms


class WithPrior(Line):
    """A line that hands its own depth on as the prior, and has a place for prompts."""

    prompt_channels = 2

    def encode(self, batch: Batch, prompts: Tensor | None = None) -> Latents:
        latents = super().encode(batch)
        return Latents(latents.layers, {"prior": self.decode(latents).detach()})


class Difference(nn.Module):
    """How far the depth is from the prior."""

    pose = None

    def forward(self, batch: Batch, depth: Tensor, *, mask: Tensor | None = None, prior: Any = None) -> LossTerms:
        return {"difference": (depth - prior).abs().max()}


@pytest.mark.parametrize("name", ["finetune", "ewc", "lwf", "protodepth", "l2p"])
def test_depth_and_prior_are_compared_in_the_same_pixels(name: str) -> None:
    batch = Batch(
        image=torch.linspace(0, 1, 2 * 3 * 4 * 6).reshape(2, 3, 4, 6),
        sparse_depth=torch.ones(2, 1, 4, 6),
        intrinsics=torch.eye(3).repeat(2, 1, 1),
    )
    view = augment(batch, AugmentConfig(flip_horizontal=True), generator(0, 0))
    assert not torch.equal(view.batch.image, batch.image)  # this seed flips
    method = build(name, ProtoDepth(WithPrior()), Difference())  # type: ignore[arg-type]
    method.begin_domain(toy_domain("a", [(0.5, 2.0)]), no_fit)
    if name == "protodepth":
        nn.init.zeros_(method.model.domain("a").sets["latent"].P)  # no bias: the adapted depth is the network's
    assert float(method.loss(batch, view)["difference"]) < 1e-5


@pytest.mark.parametrize("name", ["ewc", "ancl", "lwf", "replay", "cmp"])
def test_a_stage_to_look_at_keeps_the_network_and_nothing_that_only_learning_needs(name: str) -> None:
    """All that is in ``state`` beside the network is the method's own to name: no other file lists its prefixes."""
    domain = toy_domain("a", [(0.2, 1.0), (0.5, 2.0), (0.8, 3.0)])
    method = build(name, toy_model(), SquaredError())  # type: ignore[arg-type]
    method.prepare([domain])
    method.end_domain(domain)
    assert len(method.state()) > len(method.stage_state())
    assert set(method.stage_state()) == {"backbone.slope", "backbone.offset"}
    again = build(name, toy_model(7.0, 7.0), SquaredError())  # type: ignore[arg-type]
    again.load_state(method.stage_state())
    batch = collate([domain.test[0]])
    assert torch.equal(again.predict(batch, None).depth, method.predict(batch, None).depth)
