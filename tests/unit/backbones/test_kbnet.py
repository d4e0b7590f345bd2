"""KBNet: sizes, counts, pooling, coordinates, dead weights."""

import pytest
import torch
from torch.nn import functional as F

from protodepth.backbones.base import backbones, count_parameters
from protodepth.backbones.kbnet import KBNet, SparseToDensePool, level_intrinsics
from protodepth.backbones.layers import window_maxima, window_minima_of_points
from protodepth.errors import ConfigError
from protodepth.geometry import rays
from protodepth.types import Batch


def frames(b: int = 2, height: int = 48, width: int = 64, seed: int = 0) -> Batch:
    g = torch.Generator().manual_seed(seed)
    depth = torch.rand(b, 1, height, width, generator=g) * 4 + 0.5
    kept = torch.rand(b, 1, height, width, generator=g) < 0.05
    K = torch.tensor([[60.0, 0, width / 2], [0, 55.0, height / 2], [0, 0, 1]]).expand(b, 3, 3)
    return Batch(image=torch.rand(b, 3, height, width, generator=g), sparse_depth=depth * kept, intrinsics=K)


@pytest.mark.parametrize(
    ("preset", "encoder", "decoder", "pool"),
    [
        ("void", 2_672_336, 4_284_540, 888),
        ("void_train", 2_672_336, 4_284_540, 888),
        ("kitti", 2_672_336, 4_284_540, 904),
    ],
)
def test_full_size_has_the_published_counts(preset, encoder, decoder, pool):
    net = KBNet.from_preset(preset)
    assert count_parameters(net.encoder) == encoder
    assert count_parameters(net.decoder) == decoder
    assert count_parameters(net.sparse_to_dense_pool) == pool
    assert count_parameters(net.encoder.calibrated_backprojection4.conv_image) == 663_552


def test_small_preset_has_less_than_600_000_parameters_and_the_same_layers():
    small, full = KBNet.from_preset("small"), KBNet.from_preset("void")
    assert 300_000 < count_parameters(small) < 600_000
    assert [s.name for s in small.latent_specs] == [s.name for s in full.latent_specs]
    assert small.default_layers == tuple(s.name for s in full.latent_specs if "skip1" not in s.name)


def square_min(z, size):
    """The published way: zeros become 999, which become zeros again."""
    hidden = torch.where(z == 0, torch.full_like(z, 999.0), z)
    least = -F.max_pool2d(-hidden, size, 1, size // 2)
    return torch.where(least == 999, torch.zeros_like(least), least)


@pytest.mark.parametrize("size", [(1, 1), (3, 40), (31, 5), (33, 50)])
def test_separable_windows_equal_square_pools_bit_for_bit(size):
    z = frames(2, *size).sparse_depth
    for sizes in [(15, 17), (23, 27, 29), (5, 7, 9, 11, 13), (17, 5)]:
        for s, m in zip(sizes, window_maxima(z, sizes), strict=True):
            assert torch.equal(m, F.max_pool2d(z, s, 1, s // 2))
        for s, m in zip(sizes, window_minima_of_points(z, sizes), strict=True):
            assert torch.equal(m, square_min(z, s))


def test_pool_of_no_points_is_finite_and_zero():
    z = torch.zeros(1, 1, 20, 30)
    assert torch.equal(SparseToDensePool((5,), (7,))(z, z), torch.zeros(1, 8, 20, 30))


@pytest.mark.parametrize("size", [(32, 32), (33, 47), (61, 96)])
def test_any_size_gives_depth_in_range(size):
    net = KBNet.from_preset("small", depth_range=(0.2, 5.0))
    depth = net(frames(2, *size))
    assert depth.shape == (2, 1, *size)
    assert (depth > 0.19).all()
    assert (depth < 5).all()


def test_a_map_without_points_and_a_black_image_give_finite_depth():
    batch = frames()
    empty = batch.map(torch.clone)
    empty = Batch(image=batch.image * 0, sparse_depth=batch.sparse_depth * 0, intrinsics=batch.intrinsics)
    assert KBNet.from_preset("small")(empty).isfinite().all()


def test_coordinates_per_level_are_the_rays_of_the_pixels_that_strided_convolutions_look_at():
    K = torch.tensor([[[70.0, 1.5, 31.0], [0, 65.0, 22.0], [0, 0, 1]]])
    full = rays(K, 45, 63)
    for level in range(4):
        step = 2**level
        expected = full[..., ::step, ::step]
        found = rays(level_intrinsics(K, level, (45, 63), "per_level"), *expected.shape[-2:])
        assert torch.allclose(found, expected, atol=1e-5)


def test_official_coordinates_use_the_ratio_of_level_1_everywhere():
    K = torch.tensor([[[70.0, 0, 31.0], [0, 65.0, 22.0], [0, 0, 1]]])
    scaled = [level_intrinsics(K, level, (45, 63), "official") for level in (1, 2, 3)]
    assert torch.equal(scaled[0], scaled[1])
    assert torch.equal(scaled[0], scaled[2])
    assert torch.allclose(scaled[0][0, :2, 2], torch.tensor([31 * 32 / 63, 22 * 23 / 45]))


def test_dead_image_weights_do_not_touch_the_output_and_get_no_gradient():
    net, batch = KBNet.from_preset("small"), frames()
    before = net(batch)
    dead = net.encoder.calibrated_backprojection4.conv_image.conv_block[0].conv.weight
    torch.nn.init.constant_(dead, 1e6)
    assert torch.equal(net(batch), before)
    before.sum().backward()
    missing = {name for name, p in net.named_parameters() if p.grad is None}
    assert missing == {"encoder.calibrated_backprojection4.conv_image.conv_block.0.conv.weight"}


def test_config_builds_the_same_network_again():
    net = KBNet.from_preset("small", depth_range=(0.3, 6.0), coordinates="official")
    twin = backbones.get("kbnet")(**net.config())
    twin.load_state_dict(net.state_dict())
    assert torch.equal(twin(frames()), net(frames()))


def test_unknown_coordinates_are_refused_with_the_choices():
    with pytest.raises(ConfigError, match="per_level"):
        KBNet(coordinates="right")


def test_centred_an_untrained_network_starts_in_the_middle_of_a_wide_range():
    wide = {"depth_range": [0.1, 100.0]}
    depths = []
    for centred in (False, True):
        torch.manual_seed(0)
        network = KBNet.from_preset("small", **wide, centred=centred)
        again = KBNet(**network.config())
        again.load_state_dict(network.state_dict())
        batch = frames()
        depth = network.decode(network.encode(batch))
        assert torch.equal(depth, again.decode(again.encode(batch)))
        depths.append(float(depth.detach().median()))
    assert depths[0] == pytest.approx(0.2, rel=0.3)
    assert 2.0 < depths[1] < 6.0  # sqrt(0.1 * 100) = 3.2
    assert "centred" not in KBNet.from_preset("small").config()  # stored networks keep their fingerprint
