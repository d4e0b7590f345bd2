"""ScaffNet and FusionNet: counts, the frozen inside, scale matching."""

import pytest
import torch

from protodepth.backbones.base import backbones, count_parameters
from protodepth.backbones.fusionnet import FusionNet, match_scale
from protodepth.backbones.scaffnet import ScaffNet
from protodepth.types import Batch, Modality


def frames(b: int = 2, height: int = 45, width: int = 63, seed: int = 0) -> Batch:
    g = torch.Generator().manual_seed(seed)
    depth = torch.rand(b, 1, height, width, generator=g) * 4 + 0.5
    kept = torch.rand(b, 1, height, width, generator=g) < 0.05
    image = torch.rand(b, 3, height, width, generator=g)
    return Batch(image=image, sparse_depth=depth * kept, intrinsics=torch.eye(3).expand(b, 3, 3))


def test_full_size_has_the_published_counts():
    net = FusionNet.from_preset("void")
    parts = [count_parameters(m) for m in (net.encoder_image, net.encoder_depth, net.decoder, net.scaffnet)]
    assert parts == [2_201_616, 245_024, 4_304_448, 2_870_960]
    assert count_parameters(net) == 9_622_048
    assert count_parameters(ScaffNet.from_preset("kitti_nospp")) == 2_865_680


def test_small_presets_are_small():
    assert count_parameters(ScaffNet.from_preset("small")) < 250_000
    assert count_parameters(FusionNet.from_preset("small")) < 600_000


def test_scaffnet_stays_frozen_whatever_train_and_requires_grad_say():
    net = FusionNet.from_preset("small")
    before = {name: t.clone() for name, t in net.scaffnet.state_dict().items()}
    net.train().requires_grad_(True)
    assert not any(m.training for m in net.scaffnet.modules())
    optimiser = torch.optim.Adam(net.parameters(), lr=0.1)
    net(frames()).mean().backward()
    optimiser.step()
    assert all(p.grad is None for p in net.scaffnet.parameters())
    assert all(torch.equal(before[name], t) for name, t in net.scaffnet.state_dict().items())
    assert all(p.grad is not None for p in net.encoder_depth.parameters())


def test_scaffnet_alone_can_be_trained():
    net = ScaffNet.from_preset("small").train()
    net(frames()).mean().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_scaffnet_sees_points_only_and_all_its_latents_are_depth():
    net, batch = ScaffNet.from_preset("small").eval(), frames()
    other = Batch(image=1 - batch.image, sparse_depth=batch.sparse_depth, intrinsics=batch.intrinsics)
    assert torch.equal(net(batch), net(other))
    assert {spec.modality for spec in net.latent_specs} == {Modality.DEPTH}


def test_scale_matching_by_hand():
    dense = torch.full((1, 1, 9, 9), 2.0)
    points = torch.zeros(1, 1, 9, 9)
    points[0, 0, 2, 2] = 3.0  # ratio 1.5
    points[0, 0, 2, 3] = 1.0  # ratio 0.5: loses to 1.5 where both are in the window
    points[0, 0, 7, 7] = 5.0  # ratio 2.5: does not count
    found = match_scale(dense, points)[0, 0]
    assert found[2, 2] == 3.0  # both points in the window
    assert found[2, 5] == 1.0  # only the second
    assert found[2, 0] == 3.0
    assert found[7, 7] == 2.0
    assert found[8, 0] == 2.0


def test_the_context_carries_scaffnets_own_depth_as_prior():
    net, batch = FusionNet.from_preset("small").eval(), frames()
    near = 0.08 * batch.sparse_depth  # an untrained ScaffNet predicts about 0.2 m
    batch = Batch(image=batch.image, sparse_depth=near, intrinsics=batch.intrinsics)
    context = net.encode(batch).context
    assert torch.equal(context["prior"], net.scaffnet(batch))
    assert not torch.equal(context["prior"], context["matched"])


@pytest.mark.parametrize("size", [(32, 32), (33, 47), (61, 96)])
@pytest.mark.parametrize("name", ["scaffnet", "fusionnet"])
def test_any_size_gives_depth_in_range(name, size):
    net = backbones.get(name).from_preset("small", depth_range=(0.2, 5.0)).eval()
    depth = net(frames(2, *size))
    assert depth.shape == (2, 1, *size)
    assert (depth > 0.19).all()
    assert (depth <= 5).all()


@pytest.mark.parametrize("name", ["scaffnet", "fusionnet"])
@pytest.mark.parametrize("preset", ["small", "void_nospp"])
def test_config_builds_the_same_network_again(name, preset):
    net = backbones.get(name).from_preset(preset).eval()
    twin = backbones.get(name)(**net.config()).eval()
    twin.load_state_dict(net.state_dict())
    assert torch.equal(twin(frames()), net(frames()))


def test_no_points_and_a_black_image_give_finite_depth():
    batch = frames()
    empty = Batch(image=batch.image * 0, sparse_depth=batch.sparse_depth * 0, intrinsics=batch.intrinsics)
    assert FusionNet.from_preset("small")(empty).isfinite().all()
