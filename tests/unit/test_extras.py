"""What a domain keeps beside prototypes: parts of the decoder of its own, which touch nobody else."""

import pytest
import torch

from conftest import random_batch, shake, tiny_model
from protodepth.backbones.base import backbones, count_parameters
from protodepth.errors import UnknownNameError
from protodepth.extras import copy_parts, with_parts
from protodepth.inference.engines.graph import Graph
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import build
from protodepth.methods.protodepth import RATES
from protodepth.model import ProtoDepth
from protodepth.prototypes import PrototypeConfig
from protodepth.types import Batch

OWN = PrototypeConfig(image_size=3, depth_size=2, parts=("merges", "head"))


@pytest.fixture
def owner() -> ProtoDepth:
    """Two domains: `hall` with a decoder of its own that differs, `yard` with the network's."""
    model = tiny_model()
    model.add_domain("hall", config=OWN)
    model.add_domain("yard")
    shake(model, "yard")
    shake(model, "hall")
    return model


def test_a_new_domain_with_parts_answers_as_the_network_does(batch: Batch) -> None:
    model = tiny_model()
    model.add_domain("hall", config=OWN)
    for prototypes in model.domain("hall").sets.values():
        torch.nn.init.zeros_(prototypes.P)
    assert torch.equal(model.predict_batch(batch, "hall").depth, model.predict_batch(batch, "base").depth)


def test_parts_change_their_own_domain_and_nothing_else(owner: ProtoDepth, batch: Batch) -> None:
    before = {name: owner.predict_batch(batch, name).depth for name in ("base", "yard", "hall")}
    owner.set_domain("hall")
    with torch.no_grad():
        owner.domain("hall").parts["head"].bias.add_(0.5)
    for name in ("base", "yard"):
        assert torch.equal(owner.predict_batch(batch, name).depth, before[name])
    assert not torch.equal(owner.predict_batch(batch, "hall").depth, before["hall"])


def test_rows_of_a_mixed_batch_get_their_own_decoder(owner: ProtoDepth) -> None:
    batch = random_batch(2)
    s = owner.predict_batch(batch, "base").descriptor
    for n, name in enumerate(("hall", "yard")):
        owner.domain(name).descriptor.data.copy_(s[n])
    out = owner.predict_batch(batch)
    assert out.domains == ("hall", "yard")
    for n, name in enumerate(out.domains):
        alone = owner.predict_batch(batch[n : n + 1], name).depth
        torch.testing.assert_close(out.depth[n : n + 1], alone, rtol=2e-3, atol=2e-3)  # other sums, shaken weights
    graph = Graph(owner, None)
    depth, index, _ = graph(batch.image, batch.sparse_depth, batch.intrinsics)
    assert index.tolist() == [0, 1]
    torch.testing.assert_close(depth, out.depth, rtol=2e-3, atol=2e-3)
    alone = Graph(owner, "hall")(batch.image, batch.sparse_depth, batch.intrinsics)
    torch.testing.assert_close(alone, owner.predict_batch(batch, "hall").depth)


def test_parts_learn_slowly_stay_in_eval_mode_are_counted_and_stored(owner: ProtoDepth, tmp_path, batch: Batch) -> None:
    owner.set_domain("hall")
    owner.train(True)
    parts = owner.domain("hall").parts
    assert not any(m.training for m in parts.modules())
    method = build("protodepth", owner, Objective(ObjectiveConfig()), OWN)
    factors = {id(p): factor for group, factor in method.parameter_groups() for p in group}
    assert {factors[id(p)] for p in parts.parameters()} == {RATES["parts"]}
    counts = owner.overhead().layers["hall"]
    assert counts["head"] == count_parameters(owner.backbone.head)
    assert "head" not in owner.overhead().layers["yard"]
    owner.save_pretrained(tmp_path / "m")
    again = ProtoDepth.from_pretrained(tmp_path / "m")
    assert again.domain("hall").config.parts == OWN.parts
    assert torch.equal(again.predict_batch(batch, "hall").depth, owner.predict_batch(batch, "hall").depth)


def test_a_part_that_is_not_of_the_decoder_is_refused() -> None:
    model = tiny_model()
    with pytest.raises(UnknownNameError, match=r"image_stages.*merges, head"):
        model.add_domain("hall", config=PrototypeConfig(parts=("image_stages",)))
    assert model.domains == ()


@pytest.mark.parametrize("name", [n for n in backbones.names() if backbones.get(n).decoder_parts])
def test_a_network_with_other_parts_encodes_to_the_same_bits(name: str) -> None:
    kind = backbones.get(name)
    network = kind.from_preset(min(kind.presets, key=len)).eval()
    parts = copy_parts(network, kind.decoder_parts)
    with torch.no_grad():
        for parameter in parts.parameters():
            parameter.mul_(1.5)
    batch = random_batch(1, 64, 96)
    with torch.no_grad():
        mine, other = network.encode(batch), with_parts(network, parts).encode(batch)
        assert all(torch.equal(mine.layers[key], other.layers[key]) for key in mine.layers)
        assert not torch.equal(network.decode(mine), with_parts(network, parts).decode(mine))
