"""What a domain keeps beside prototypes: parts of the network of its own, which touch nobody else."""

from dataclasses import replace

import pytest
import torch

from conftest import random_batch, shake, tiny_model
from protodepth.backbones.base import backbones, count_parameters
from protodepth.errors import ConfigError, UnknownNameError
from protodepth.extras import LayerChanges, copy_parts, own_encoder, with_parts
from protodepth.inference.engines.graph import Graph
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import build
from protodepth.methods.protodepth import RATES
from protodepth.model import ProtoDepth
from protodepth.prototypes import PrototypeConfig
from protodepth.training.fast import kept_features
from protodepth.types import Batch

OWN = PrototypeConfig(image_size=3, depth_size=2, parts=("merges", "head"))
WAYS = {
    "decoder": OWN,
    "scales": replace(OWN, parts=("scales",)),
    "decoder and scales": replace(OWN, parts=("merges", "head", "scales")),
    "low rank": replace(OWN, parts=("lowrank-2",)),
    "everything": replace(OWN, parts=("image_stages", "depth_stages", "merges", "head")),
}


@pytest.fixture(params=WAYS)
def owner(request: pytest.FixtureRequest) -> ProtoDepth:
    """Two domains: `hall` with parts of its own that differ, `yard` with the network's."""
    model = tiny_model()
    model.add_domain("hall", config=WAYS[request.param])
    model.add_domain("yard")
    shake(model, "yard")
    shake(model, "hall", amount=0.1)
    with torch.no_grad():
        for part in model.domain("hall").parts.values():
            for parameter in part.parameters() if isinstance(part, LayerChanges) else ():
                parameter.mul_(0.3)  # a change of every layer at once is felt more
    return model


@pytest.mark.parametrize("config", WAYS.values(), ids=WAYS)
def test_a_new_domain_with_parts_answers_as_the_network_does(batch: Batch, config: PrototypeConfig) -> None:
    model = tiny_model()
    model.add_domain("hall", config=config)
    for prototypes in model.domain("hall").sets.values():
        torch.nn.init.zeros_(prototypes.P)
    assert torch.equal(model.predict_batch(batch, "hall").depth, model.predict_batch(batch, "base").depth)


def test_parts_change_their_own_domain_and_nothing_else(owner: ProtoDepth, batch: Batch) -> None:
    before = {name: owner.predict_batch(batch, name).depth for name in ("base", "yard", "hall")}
    owner.set_domain("hall")
    with torch.no_grad():
        for parameter in owner.domain("hall").parts.parameters():
            parameter.add_(0.1)
    for name in ("base", "yard"):
        assert torch.equal(owner.predict_batch(batch, name).depth, before[name])
    assert not torch.equal(owner.predict_batch(batch, "hall").depth, before["hall"])


def test_rows_of_a_mixed_batch_get_their_own_parts(owner: ProtoDepth) -> None:
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


def test_parts_learn_at_their_own_rates_stay_in_eval_mode_are_counted_and_stored(
    owner: ProtoDepth, tmp_path, batch: Batch
) -> None:
    owner.set_domain("hall")
    owner.train(True)
    parts, config = owner.domain("hall").parts, owner.domain("hall").config
    assert not any(m.training for m in parts.modules())
    method = build("protodepth", owner, Objective(ObjectiveConfig()), replace(config, factors={"parts": 0.5}))
    factors = {id(p): factor for group, factor in method.parameter_groups() for p in group}
    rates = {"scales": RATES["scales"], "lowrank-2": RATES["lowrank"]}
    for name, part in parts.items():
        assert {factors[id(p)] for p in part.parameters()} == {rates.get(name, 0.5)}
    counts = owner.overhead().layers["hall"]
    children = dict(owner.backbone.named_children())
    assert {n: counts[n] for n in parts if n in children} == {
        n: count_parameters(children[n]) for n in parts if n in children
    }
    assert sum(counts[n] for n in parts) == count_parameters(parts)
    assert not set(parts) & set(owner.overhead().layers["yard"])
    owner.save_pretrained(tmp_path / "m")
    again = ProtoDepth.from_pretrained(tmp_path / "m")
    assert again.domain("hall").config == config
    assert torch.equal(again.predict_batch(batch, "hall").depth, owner.predict_batch(batch, "hall").depth)


def test_every_part_learns_and_the_network_does_not(owner: ProtoDepth, batch: Batch) -> None:
    before = {name: t.clone() for name, t in owner.backbone.state_dict().items()}
    owner.set_domain("hall")
    owner(batch).depth.log().square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in owner.domain("hall").parts.parameters())
    assert all(p.grad is None for p in owner.backbone.parameters())
    assert all(torch.equal(t, before[name]) for name, t in owner.backbone.state_dict().items())


def test_kept_latents_are_the_networks_and_never_those_of_a_domain(owner: ProtoDepth, batch: Batch) -> None:
    expected = owner.predict_batch(batch, "hall").depth
    method = build("protodepth", owner, Objective(ObjectiveConfig()), owner.domain("hall").config)
    owner.backbone.requires_grad_(False)
    with kept_features(method, 0.1) as cache:
        first, again = (owner.predict_batch(batch, "hall").depth for _ in range(2))
    assert torch.equal(first, expected)
    assert torch.equal(again, expected)
    assert cache is not None
    assert cache.hits == len(batch)


def test_what_is_chosen_by_is_what_the_frozen_encoder_says(owner: ProtoDepth, batch: Batch) -> None:
    named = owner.predict_batch(batch, "hall").descriptor
    assert torch.equal(named, owner.predict_batch(batch, "base").descriptor)


def test_scales_are_of_every_layer_that_the_domain_has_no_copy_of() -> None:
    network = tiny_model().backbone
    layers = {n.replace(".", "/") for n, m in network.named_modules() if isinstance(m, torch.nn.Conv2d)}
    alone, beside = (copy_parts(network, names)["scales"] for names in (("scales",), ("merges", "head", "scales")))
    assert isinstance(alone, LayerChanges)
    assert set(alone) == layers
    assert set(beside) == {n for n in layers if n.startswith(("image_stages", "depth_stages"))}


def test_a_part_that_the_network_has_not_is_refused() -> None:
    model = tiny_model()
    with pytest.raises(UnknownNameError, match=r"stages.*merges, head, image_stages, depth_stages, scales, lowrank-4"):
        model.add_domain("hall", config=PrototypeConfig(parts=("stages",)))
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
        mine, changed = network.encode(batch), with_parts(network, copy_parts(network, ("scales",))).encode(batch)
        assert all(torch.equal(mine.layers[key], changed.layers[key]) for key in mine.layers)  # they begin as none


def test_a_method_copies_every_part_unless_some_are_named_and_needs_a_network_that_names_them() -> None:
    model, objective = tiny_model(), Objective(ObjectiveConfig())
    assert set(build("protodepth-own", model, objective).config.parts) == set(WAYS["everything"].parts)
    assert build("protodepth-own", model, objective, OWN).config.parts == OWN.parts
    with pytest.raises(ConfigError, match=r"scaffnet names none: use protodepth"):
        build("protodepth-own", ProtoDepth(backbones.get("scaffnet").from_preset("small")), objective)


def test_which_parts_change_the_encoder() -> None:
    network = tiny_model().backbone
    changing = {name: own_encoder(network, copy_parts(network, (name,))) for name in ("head", "image_stages", "scales")}
    assert changing == {"head": False, "image_stages": True, "scales": True}


def test_beyond_the_densities_that_a_domain_is_for_the_base_answers(tmp_path) -> None:
    model, batch = tiny_model(), random_batch(2)
    model.add_domain("hall", config=PrototypeConfig(parts=("merges", "head")))
    shake(model, "hall")
    sparse = batch.sparse_depth.clone()
    sparse[1].flatten()[400:] = 0  # a view: the second sample keeps few points
    batch = replace(batch, sparse_depth=sparse)
    between = float((sparse > 0).float().mean((1, 2, 3)).mean())
    base, own = (model.predict_batch(batch, name).depth for name in ("base", "hall"))
    model.domain("hall").gate = torch.tensor([between, 2.0])
    model.domain("hall").registration = torch.tensor([1.0, 0.0, 0.0])
    out = model.predict_batch(batch, "hall")
    assert out.domains == ("hall", "hall")  # whose it is does not change
    torch.testing.assert_close(out.depth[0], own[0], rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(out.depth[1], base[1], rtol=2e-3, atol=2e-3)
    assert not torch.allclose(own[1], base[1], rtol=2e-2)
    few = batch[1:2]
    assert torch.equal(model.predict_batch(few, "hall").depth, model.predict_batch(few, "base").depth)
    assert model.predict_batch(few).domains == ("hall",)
    assert torch.equal(model.predict_batch(few).depth, model.predict_batch(few, "base").depth)
    for graph in (Graph(model, "hall"), Graph(model, None)):
        answer = graph(batch.image, batch.sparse_depth, batch.intrinsics)
        depth = answer if isinstance(answer, torch.Tensor) else answer[0]
        torch.testing.assert_close(depth, out.depth, rtol=2e-3, atol=2e-3)
    model.save_pretrained(tmp_path / "m")
    again = ProtoDepth.from_pretrained(tmp_path / "m")
    assert torch.equal(again.predict_batch(batch, "hall").depth, out.depth)
