"""lite: size, range, scaffold, and that it uses what it is given."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from conftest import random_batch, tiny_lite
from protodepth.backbones.base import backbones, count_parameters
from protodepth.backbones.lite import Lite, pull_push
from protodepth.errors import UnknownNameError
from protodepth.types import Modality


def test_it_has_300_to_600_thousand_parameters_in_every_preset() -> None:
    for preset in Lite.presets:
        assert 300_000 <= count_parameters(Lite.from_preset(preset)) <= 600_000


@pytest.mark.parametrize(
    ("preset", "low", "high"), [("indoor", 0.1, 8.0), ("outdoor", 1.5, 100.0), ("mixed", 0.1, 100.0)]
)
def test_depth_stays_inside_the_presets_range_whatever_the_weights(preset: str, low: float, high: float) -> None:
    net = Lite.from_preset(preset).eval()
    torch.nn.init.normal_(net.head.weight, std=50.0)  # type: ignore[arg-type,union-attr]
    with torch.no_grad():
        depth = net(random_batch())
    assert float(depth.min()) >= low * (1 - 1e-5)
    assert float(depth.max()) <= high * (1 + 1e-5)
    assert net.depth_range == (low, high)


def test_a_fresh_network_starts_near_its_points() -> None:
    """The residual starts small: what the points say is already there before anything is learned."""
    batch = random_batch()
    flat = replace(batch, sparse_depth=2.0 * (batch.sparse_depth > 0))
    with torch.no_grad():
        depth = Lite.from_preset("indoor").eval()(flat)
    assert float((depth / 2).log().abs().median()) < 0.3


def test_latents_are_the_declared_ones_in_order() -> None:
    net = tiny_lite()
    layers = net.encode(random_batch()).layers
    assert list(layers) == [s.name for s in net.latent_specs]
    assert all(layers[s.name].shape[1] == s.channels for s in net.latent_specs)
    assert [tuple(layers[f"skip{n}_image"].shape[-2:]) for n in range(4)] == [(32, 48), (16, 24), (8, 12), (4, 6)]
    assert tuple(layers["latent"].shape[-2:]) == (2, 3)
    assert [s.name for s in net.latent_specs if s.bottleneck] == ["latent"]
    assert {s.modality for s in net.latent_specs} == set(Modality)


@pytest.mark.parametrize("size", [(8, 8), (17, 23), (31, 50)])
def test_any_size_is_completed(size: tuple[int, int]) -> None:
    assert tiny_lite()(random_batch(1, *size)).shape == (1, 1, *size)


def test_image_points_and_every_latent_matter_to_the_output() -> None:
    net, batch = tiny_lite().eval(), random_batch()
    with torch.no_grad():
        depth, latents = net(batch), net.encode(batch)
        assert not torch.allclose(net(replace(batch, image=batch.image.flip(-1))), depth)
        assert not torch.allclose(net(replace(batch, sparse_depth=batch.sparse_depth * 1.2)), depth)
        for name, layer in latents.layers.items():
            assert not torch.allclose(net.decode(latents.with_layers({name: layer + 1})), depth), name


def test_it_is_built_again_from_its_configuration() -> None:
    net = tiny_lite()
    again = backbones.get("lite")(**net.config())
    again.load_state_dict(net.state_dict())
    assert torch.equal(again(random_batch()), net(random_batch()))
    with pytest.raises(UnknownNameError, match="indoor, outdoor, mixed"):
        Lite.from_preset("moon")


# --- the scaffold -----------------------------------------------------------------------------------------------------


def test_filling_keeps_a_constant_and_stays_between_the_known_values() -> None:
    mask = (torch.rand(2, 1, 37, 53) < 0.03).float()
    torch.testing.assert_close(pull_push(3 * mask, mask), torch.full_like(mask, 3.0))
    values = (1 + torch.rand_like(mask)) * mask
    filled = pull_push(values, mask)
    known = values[mask > 0]
    assert float(filled.min()) >= float(known.min()) - 1e-5
    assert float(filled.max()) <= float(known.max()) + 1e-5


def test_filling_follows_near_points_more_than_far_ones() -> None:
    value = torch.zeros(1, 1, 32, 32)
    value[..., 4, 4], value[..., 28, 28] = 1.0, 5.0
    filled = pull_push(value, (value > 0).float())[0, 0]
    assert float(filled[4, 4]) < 1.5
    assert float(filled[28, 28]) > 4.5
    assert float(filled[3, 5]) < 2
    assert float(filled[27, 30]) > 4


def test_the_first_level_of_the_filling_against_a_loop() -> None:
    random = np.random.default_rng(0)
    mask = random.random((6, 8)) < 0.3
    mask[0, 0] = True
    value = random.uniform(1, 5, (6, 8)) * mask
    tensor, m = (torch.tensor(a, dtype=torch.float64)[None, None] for a in (value, mask.astype(float)))
    found = pull_push(tensor, m, levels=0, falloff=0.1)[0, 0].numpy()
    mean = 0.1 / mask.size
    for y in range(6):
        for x in range(8):
            expected = (value[y, x] + mean * value.sum()) / (mask[y, x] + mean * mask.sum())
            assert found[y, x] == pytest.approx(expected)


def test_no_points_at_all_give_finite_depth() -> None:
    batch = replace(random_batch(), sparse_depth=torch.zeros(2, 1, 32, 48))
    assert torch.isfinite(tiny_lite()(batch)).all()
