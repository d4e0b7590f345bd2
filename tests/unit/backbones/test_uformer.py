"""The dual-encoder Uformer against oracles written from its description:
a loop for attention, neighbourhoods for LeFF.
"""

import math

import pytest
import torch
from torch import Tensor, nn

from protodepth.backbones.base import count_parameters
from protodepth.backbones.uformer import LeFF, Uformer, WindowAttention, from_windows, into_windows
from protodepth.descriptors import sample_descriptor
from protodepth.errors import ConfigError
from protodepth.types import Batch, Modality


def frames(size: int, height: int, width: int, seed: int = 0) -> tuple[Batch, Tensor]:
    """Slanted walls with a nearer box, 2 % of the pixels measured; and their true depth."""
    g = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
    a, centre = (torch.rand(size, n, 1, 1, generator=g) for n in (3, 2))
    wall = 1.5 + 3 * a[:, 0] + (a[:, 1] - 0.5) * x + (a[:, 2] - 0.5) * y
    box = ((x - centre[:, 0] + 0.5).abs() < 0.35) & ((y - centre[:, 1] + 0.5).abs() < 0.4)
    depth = torch.where(box, 0.6 * wall, wall)
    image = torch.stack([0.1 + 0.7 * box.float(), (0.5 + 0.3 * x).expand_as(wall), (0.5 + 0.3 * y).expand_as(wall)], 1)
    points = depth * (torch.rand(size, height, width, generator=g) < 0.02)
    return Batch(image=image, sparse_depth=points[:, None], intrinsics=torch.eye(3).expand(size, 3, 3)), depth[:, None]


@pytest.fixture
def net() -> Uformer:
    torch.manual_seed(0)
    return Uformer(width=16, heads=2).eval()


def attention_by_loops(layer: WindowAttention, x: Tensor, grid: tuple[int, int], shift: tuple[int, int]) -> Tensor:
    """Every patch looks at the patches of its own window, one pair at a time."""
    (h, w), side, d = grid, layer.side, x.shape[-1] // layer.heads
    places = [(i, j) for i in range(h) for j in range(w)]
    window = [((i + shift[0]) // side, (j + shift[1]) // side) for i, j in places]
    if layer.modulator is not None:
        rows = [(i + shift[0]) % side * side + (j + shift[1]) % side for i, j in places]
        x = x + layer.modulator[rows]
    q, (k, v) = layer.q(x)[0], layer.kv(x)[0].chunk(2, -1)
    output = torch.zeros_like(q)
    for n in range(layer.heads):
        part = slice(n * d, (n + 1) * d)
        for a, (i, j) in enumerate(places):
            seen = [b for b in range(len(places)) if window[b] == window[a]]
            place = [(i - places[b][0] + side - 1) * (2 * side - 1) + j - places[b][1] + side - 1 for b in seen]
            logits = k[seen, part] @ q[a, part] / math.sqrt(d) + layer.position[place, n]
            output[a, part] = torch.softmax(logits, 0) @ v[seen, part]
    return layer.out(output)[None]


@pytest.mark.parametrize(
    ("grid", "shifted", "shift"),
    [
        ((4, 3), False, (0, 0)),  # one window: global attention
        ((4, 3), True, (0, 0)),  # a grid that fits into one window is not shifted
        ((3, 9), True, (0, 2)),  # shifted along the long side only
        ((5, 9), False, (0, 0)),
        ((6, 9), True, (2, 2)),
    ],
)
@torch.no_grad()
def test_window_attention_equals_a_loop_over_pairs_of_patches(
    grid: tuple[int, int], shifted: bool, shift: tuple[int, int]
) -> None:
    torch.manual_seed(1)
    layer = WindowAttention(8, 2, 4, shifted=shifted, modulated=shifted)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    x = torch.randn(1, grid[0] * grid[1], 8)
    expected = attention_by_loops(layer, x, grid, shift)
    torch.testing.assert_close(layer(x, grid, None), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_one_window_equals_global_attention_of_another_implementation() -> None:
    torch.manual_seed(2)
    layer = WindowAttention(16, 4, 8, shifted=True, modulated=False)
    layer.position.zero_()
    other = nn.MultiheadAttention(16, 4, batch_first=True)
    other.in_proj_weight.copy_(torch.cat([layer.q.weight, layer.kv.weight]))
    other.in_proj_bias.copy_(torch.cat([layer.q.bias, layer.kv.bias]))
    other.out_proj.load_state_dict(layer.out.state_dict())
    x = torch.randn(3, 5 * 7, 16)
    torch.testing.assert_close(layer(x, (5, 7), None), other(x, x, x)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("offset", [(0, 0), (4, 4), (0, 4)])
def test_cutting_into_windows_and_back_changes_nothing(offset: tuple[int, int]) -> None:
    x = torch.randn(2, 9, 19, 3)
    windows = into_windows(x, 8, offset)
    assert torch.equal(from_windows(windows, (9, 19), 8, offset), x)
    assert (windows != 0).sum() == x.numel(), "the filling is zero"


def test_feed_forward_sees_the_neighbours_on_a_grid_that_is_not_square() -> None:
    torch.manual_seed(3)
    layer, x = LeFF(4), torch.randn(1, 3 * 7, 4)
    moved = x.clone()
    moved[0, 1 * 7 + 5] += 1  # row 1, column 5
    changed = (layer(moved, (3, 7)) - layer(x, (3, 7))).abs().sum(-1).reshape(3, 7) > 0
    expected = torch.zeros(3, 7, dtype=torch.bool)
    expected[0:3, 4:7] = True
    assert torch.equal(changed, expected)


def test_latents_are_nine_lists_of_patches_and_the_bottleneck_is_not_projected(net: Uformer) -> None:
    latents = net.encode(frames(2, 30, 45)[0])
    assert [s.name for s in net.latent_specs] == list(latents.layers)
    for spec in net.latent_specs:
        assert spec.layout == "bnc"
        assert latents.layers[spec.name].shape == (2, 3 * 4, spec.channels)
    both = torch.cat([latents.layers["skip4_image"], latents.layers["skip4_depth"]], -1)
    assert torch.equal(latents.layers["latent"], both)
    assert net.bottleneck.modality is Modality.FUSED
    assert [s.modality for s in net.latent_specs[:2]] == [Modality.IMAGE, Modality.DEPTH]


@pytest.mark.parametrize("size", [(8, 8), (13, 15), (14, 28), (37, 99), (352, 121)])
def test_any_size_gives_a_map_of_that_size_within_the_range(net: Uformer, size: tuple[int, int]) -> None:
    depth = net(frames(1, *size)[0])
    assert depth.shape == (1, 1, *size)
    assert (depth >= 0.1 * (1 - 1e-5)).all()
    assert (depth <= 8.0 * (1 + 1e-5)).all()


def test_presets_have_the_documented_sizes() -> None:
    assert count_parameters(Uformer.from_preset("full")) == 11_260_945
    assert count_parameters(Uformer.from_preset("small")) == 880_801


def test_every_skip_and_the_bottleneck_reach_the_output(net: Uformer) -> None:
    latents = net.encode(frames(1, 30, 45)[0])
    before = net.decode(latents)
    for name, X in latents.layers.items():
        assert not torch.equal(net.decode(latents.with_layers({name: X + 1})), before), name


def test_pixels_without_a_point_take_the_mean_of_their_patch_then_of_the_frame(net: Uformer) -> None:
    z = torch.zeros(1, 1, 14, 42)
    z[0, 0, 3, 3], z[0, 0, 9, 11], z[0, 0, 5, 20] = 0.1, 8.0, 8.0  # two points in patch 1, one in patch 2, none in 3
    value, valid = net.points(z)[0]
    assert valid.sum() == 3
    assert value[3, 3] == pytest.approx(-1)
    assert value[9, 11] == pytest.approx(1)
    torch.testing.assert_close(value[0, [0, 14, 41]], torch.tensor([0.0, 1.0, 1 / 3]), rtol=1e-4, atol=1e-5)


def test_a_frame_without_any_point_still_has_a_finite_answer(net: Uformer) -> None:
    batch = frames(1, 20, 30)[0].map(torch.zeros_like)
    assert torch.isfinite(net(batch)).all()


def test_points_beyond_the_range_count_as_its_ends(net: Uformer) -> None:
    far = torch.full((1, 1, 14, 14), 500.0)
    assert torch.equal(net.points(far), net.points(torch.full_like(far, 8.0)))


def test_no_prompts_and_zero_prompts_are_the_same_network(net: Uformer) -> None:
    batch = frames(2, 30, 45)[0]
    empty = net.encode(batch, prompts=torch.empty(2, 0, net.prompt_channels))
    assert torch.equal(empty.layers["latent"], net.encode(batch).layers["latent"])


def test_prompts_change_every_skip_but_add_no_positions(net: Uformer) -> None:
    batch = frames(2, 30, 45)[0]
    plain, prompted = net.encode(batch), net.encode(batch, prompts=torch.randn(2, 5, net.prompt_channels))
    for name, X in plain.layers.items():
        assert prompted.layers[name].shape == X.shape
        assert not torch.equal(prompted.layers[name], X), name
    assert net.decode(prompted).shape == (2, 1, 30, 45)


def test_halves_of_a_prompt_belong_to_their_own_encoder_and_frame(net: Uformer) -> None:
    batch = frames(2, 30, 45)[0]
    prompts = torch.randn(2, 3, net.prompt_channels)
    other = prompts.clone()
    other[1, :, : net.prompt_channels // 2] += 1  # image half of frame 1
    a, b = net.encode(batch, prompts=prompts).layers, net.encode(batch, prompts=other).layers
    assert torch.equal(a["skip4_depth"], b["skip4_depth"])
    assert torch.equal(a["skip4_image"][0], b["skip4_image"][0])
    assert not torch.equal(a["skip4_image"][1], b["skip4_image"][1])


def test_a_prompt_acts_in_block_one_as_one_more_key_and_value() -> None:
    torch.manual_seed(4)
    layer = WindowAttention(8, 2, 4, shifted=False, modulated=False)
    layer.position.data.zero_()
    x, prompt = torch.randn(1, 3 * 4, 8), torch.randn(1, 1, 8)
    source = torch.cat([prompt, x], 1)
    k, v = layer.kv(source).chunk(2, -1)
    heads = [t.reshape(1, -1, 2, 4).transpose(1, 2) for t in (layer.q(x), k, v)]
    expected = layer.out(nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x, (3, 4), prompt), expected, rtol=1e-4, atol=1e-5)


def test_gradients_reach_prompts_through_the_frozen_network(net: Uformer) -> None:
    net.requires_grad_(False)
    prompts = torch.randn(1, 5, net.prompt_channels, requires_grad=True)
    net.decode(net.encode(frames(1, 30, 45)[0], prompts=prompts)).mean().backward()
    assert prompts.grad is not None
    assert (prompts.grad.abs().sum(1) > 0).all()


def test_the_query_of_prompts_has_their_width_and_does_not_depend_on_them(net: Uformer) -> None:
    s = sample_descriptor(net.encode(frames(2, 30, 45)[0]).layers["latent"], "bnc")
    assert s.shape == (2, net.prompt_channels)


@pytest.mark.parametrize("shape", [(1, 5, 32), (2, 5, 16)])
def test_prompts_of_another_shape_are_refused(net: Uformer, shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"expected \(2, any number, 32\)"):
        net.encode(frames(2, 30, 45)[0], prompts=torch.zeros(shape))


@pytest.mark.parametrize("wrong", [{"width": 10, "heads": 4}, {"patch": 0}, {"depth_range": (5.0, 1.0)}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Uformer(**wrong)  # type: ignore[arg-type]


def test_an_exported_graph_gives_the_same_answer(net: Uformer) -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, image: Tensor, z: Tensor, K: Tensor) -> Tensor:
            return self.net(Batch(image=image, sparse_depth=z, intrinsics=K))

    b = frames(1, 130, 45)[0]
    inputs = (b.image, b.sparse_depth, b.intrinsics)
    exported = torch.export.export(Flat(), inputs).module()
    torch.testing.assert_close(exported(*inputs), net(b), rtol=1e-4, atol=1e-5)


def test_it_learns_from_scratch_what_the_mean_of_the_points_cannot_know() -> None:
    torch.manual_seed(0)
    net = Uformer(width=32, heads=4)
    batch, depth = frames(4, 64, 96)
    optimiser = torch.optim.Adam(net.parameters(), 2e-3)
    for _ in range(80):
        optimiser.zero_grad()
        (net(batch) - depth).abs().mean().backward()
        optimiser.step()
    z = batch.sparse_depth
    mean = z.sum((1, 2, 3), keepdim=True) / (z > 0).sum((1, 2, 3), keepdim=True)
    assert (net(batch) - depth).abs().mean() < 0.5 * (mean - depth).abs().mean()
