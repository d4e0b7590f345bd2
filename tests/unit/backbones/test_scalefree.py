"""scalefree: equivariant to scale, keeps what was measured, continues planes, any size and density."""

from dataclasses import replace

import pytest
import torch

from protodepth.backbones.base import backbones, count_parameters
from protodepth.backbones.scalefree import ScaleFree
from protodepth.types import Batch, Modality


def network(seed: int = 0, stir: float = 0.3) -> ScaleFree:
    """Random weights; ``stir`` makes the head's answer depend on the features as a trained one does."""
    torch.manual_seed(seed)
    net = ScaleFree().eval()
    with torch.no_grad():
        net.head.weight.mul_(1 + stir)
    return net


def scene(height: int = 64, width: int = 96, count: int = 200, seed: int = 0, scale: float = 1.0) -> Batch:
    g = torch.Generator().manual_seed(seed)
    image = torch.rand(1, 3, height, width, generator=g)
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    depth = 1.5 + x + 2 * (y > 0.5) + 0.1 * torch.rand(height, width, generator=g)
    chosen = torch.randperm(height * width, generator=g)[:count]
    sparse = torch.zeros(height * width)
    sparse[chosen] = depth.flatten()[chosen]
    return Batch(image=image, sparse_depth=scale * sparse.view(1, 1, height, width), intrinsics=torch.eye(3)[None])


@pytest.mark.parametrize("scale", [0.03, 0.5, 7.3, 100.0])
@pytest.mark.parametrize("count", [5, 200, 64 * 96])
def test_depth_times_s_in_is_depth_times_s_out(scale: float, count: int) -> None:
    net = network()
    with torch.no_grad():
        one, other = net(scene(count=count)), net(scene(count=count, scale=scale))
    assert float((other / scale / one - 1).abs().max()) < 1e-5


def test_points_are_kept_exactly_unless_judged_wrong() -> None:
    net, batch = network(), scene()
    with torch.no_grad():
        depth = net(batch)
        trust = sum(net.parts[:4])
        net.head.bias[trust : trust + 4] = -9.0  # type: ignore[index]
        doubted = net(batch)
    known = batch.sparse_depth > 0
    assert float((depth[known] / batch.sparse_depth[known] - 1).abs().max()) < 1e-5
    assert float((doubted[known] / batch.sparse_depth[known] - 1).abs().max()) > 1e-2


def test_a_fresh_network_answers_with_its_scaffold() -> None:
    batch = scene(count=600)
    flat = replace(batch, sparse_depth=2.0 * (batch.sparse_depth > 0))
    with torch.no_grad():
        depth = ScaleFree().eval()(flat)
    assert float((depth / 2).log().abs().max()) < 0.2


@pytest.mark.parametrize("size", [(64, 64), (33, 47), (40, 95), (128, 200)])
def test_any_size_is_completed_from_five_points(size: tuple[int, int]) -> None:
    with torch.no_grad():
        depth = network()(scene(*size, count=5))
    assert depth.shape == (1, 1, *size)
    assert torch.isfinite(depth).all()
    assert float(depth.min()) > 0


@pytest.mark.parametrize("level", [0.01, 1000.0])
def test_without_any_point_the_answer_is_finite_and_with_one_it_is_that_depth(level: float) -> None:
    net, batch = ScaleFree().eval(), scene()
    with torch.no_grad():
        assert torch.isfinite(net(replace(batch, sparse_depth=torch.zeros_like(batch.sparse_depth)))).all()
        single = torch.zeros_like(batch.sparse_depth)
        single[..., 10, 20] = level
        assert float((net(replace(batch, sparse_depth=single)) / level).log().abs().max()) < 0.2


def test_a_mixed_batch_gives_what_single_images_give() -> None:
    net, frames = network(), [scene(count=5, seed=1), scene(count=3000, seed=2, scale=40.0)]
    both = Batch(
        image=torch.cat([f.image for f in frames]),
        sparse_depth=torch.cat([f.sparse_depth for f in frames]),
        intrinsics=torch.eye(3).expand(2, 3, 3),
    )
    with torch.no_grad():
        together, apart = net(both), torch.cat([net(f) for f in frames])
    assert torch.allclose(together, apart, rtol=1e-4)


def test_latents_are_the_declared_ones_and_the_small_network_is_small() -> None:
    net = network()
    layers = net.encode(scene()).layers
    assert list(layers) == [s.name for s in net.latent_specs]
    assert all(layers[s.name].shape[1] == s.channels for s in net.latent_specs)
    assert tuple(layers["latent_depth"].shape[-2:]) == (2, 3)
    assert {s.modality for s in net.latent_specs} == {Modality.IMAGE, Modality.DEPTH}
    assert count_parameters(net) < 700_000
    assert backbones.get("scalefree") is ScaleFree


def test_every_latent_and_the_image_matter() -> None:
    net, batch = network(), scene()
    latents = net.encode(batch)
    with torch.no_grad():
        depth = net.decode(latents)
        for name in net.default_layers:
            moved_layer = {k: v + (k == name) * torch.randn_like(v) for k, v in latents.layers.items()}
            assert not torch.equal(net.decode(latents.with_layers(moved_layer)), depth), name
        assert not torch.equal(net(replace(batch, image=batch.image.flip(-1))), depth)


def test_what_describes_an_image_does_not_depend_on_its_points() -> None:
    net = network()
    few, many = (net.encode(scene(count=n)).layers[net.bottleneck.name] for n in (20, 3000))
    assert torch.equal(few, many)
