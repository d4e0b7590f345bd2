"""scalefree: equivariant to scale, keeps what was measured, continues planes, any size and density."""

from dataclasses import replace

import pytest
import torch

from protodepth.backbones.base import backbones, count_parameters
from protodepth.backbones.scalefree import ScaleFree, alike, around, continued, continued_to_pixels, neighbours
from protodepth.backbones.scalefree_graph import SIGNATURE_PIXELS, active
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
        trust = sum(net.parts[:-3])
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


# --- the fast formulations against the plain ones ---------------------------------------------------------------------


def test_what_describes_an_image_does_not_depend_on_its_size() -> None:
    """A camera that is set to another resolution is where it was; models of earlier versions keep what they had."""
    small = scene(120, 160)
    image = torch.nn.functional.avg_pool2d(small.image, 5, 1, 2)  # as smooth as a picture
    twice = torch.nn.functional.interpolate(image, scale_factor=2.0, mode="bilinear")
    points = torch.nn.functional.pad(small.sparse_depth, [0, 160, 0, 120])
    apart = {}
    for pixels in (SIGNATURE_PIXELS, None):
        torch.manual_seed(0)
        net = ScaleFree(signature_pixels=pixels).eval()
        with torch.no_grad():
            one = net.encode(replace(small, image=image)).layers["signature"]
            other = net.encode(replace(small, image=twice, sparse_depth=points)).layers["signature"]
        apart[pixels] = float((one - other).norm() / one.norm())
    assert apart[SIGNATURE_PIXELS] < 0.5 * apart[None]
    assert apart[SIGNATURE_PIXELS] < 0.05


def test_a_model_of_an_earlier_version_describes_as_it_did() -> None:
    """Its description says nothing of the size of signatures, and its domains were learned with pictures' own."""
    torch.manual_seed(0)
    net, batch = ScaleFree(**{k: v for k, v in ScaleFree().config().items() if k != "signature_pixels"}).eval(), scene()
    assert ScaleFree(**backbones.get("scalefree").presets["small"]).signature_pixels == SIGNATURE_PIXELS
    with torch.no_grad():
        layers = net.encode(batch).layers
    shown = [active(layers[f"skip{n}_image"]).mean((2, 3)) for n in range(3)]
    assert torch.equal(layers["signature"][:, :, 0, 0], torch.cat(shown, 1))


@pytest.mark.parametrize("dilation", [4, 2, 1])
def test_one_convolution_continues_the_planes_as_the_formula_does(dilation: int) -> None:
    """Value and gradient: each neighbour's plane d + x * (columns to here) + y * (rows to here)."""
    planes = torch.randn(2, 3, 7, 9, generator=torch.Generator().manual_seed(0)).requires_grad_()
    d, x, y = (torch.stack(neighbours(p, dilation), 2) for p in planes.chunk(3, 1))
    steps = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    columns, rows = (torch.tensor([-dilation * s[n] for s in steps]).view(1, 1, 9, 1, 1) for n in (1, 0))
    plain = torch.cat([d + x * columns + y * rows, x, y], 1)
    fast = around(planes, continued(dilation), dilation)
    torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-5)
    weight = torch.randn(plain.shape, generator=torch.Generator().manual_seed(1))
    gradients = [torch.autograd.grad((way * weight).sum(), planes, retain_graph=True)[0] for way in (plain, fast)]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)


def test_one_convolution_continues_the_planes_to_the_four_pixels_of_a_cell() -> None:
    planes = torch.randn(1, 3, 5, 6, generator=torch.Generator().manual_seed(0))
    centre, x, y = around(planes, continued(1), 1).unbind(1)
    plain = [centre + i * x + j * y for i, j in ((-0.25, -0.25), (0.25, -0.25), (-0.25, 0.25), (0.25, 0.25))]
    torch.testing.assert_close(around(planes, continued_to_pixels(), 1), torch.stack(plain, 1), rtol=1e-5, atol=1e-5)


def test_places_alike_are_those_at_a_small_squared_distance() -> None:
    random = torch.Generator().manual_seed(0)
    places, there = torch.randn(1, 4, 6, 5, 7, generator=random), torch.randn(1, 6, 5, 7, generator=random)
    near = torch.stack(neighbours(there, 2), 1)  # b 9 c h w
    distance = (places.unsqueeze(2) - near.unsqueeze(1)).square().sum(3)
    shared = places.square().sum(2, keepdim=True)
    torch.testing.assert_close(alike(places, there, 2), shared - distance, rtol=1e-5, atol=1e-4)


def test_a_prediction_makes_no_more_operations_than_it_did() -> None:
    """Counts, not times: nine slices for nine neighbours, one convolution for their planes, one softmax a mix."""
    batch, net = scene(), network()
    with torch.no_grad(), torch.autograd.profiler.profile() as record:
        net(batch)
    counts = {event.key: event.count for event in record.key_averages()}
    assert counts["aten::convolution"] <= 80
    assert counts["aten::softmax"] == 5
    assert counts["aten::mul"] <= 110
