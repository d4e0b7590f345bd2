"""The forms for graphs against the plain ones: the same function, whatever the size, the density and the weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from protodepth.backbones import in_graph
from protodepth.backbones.planes import MOMENTS, local_planes, pyramid
from protodepth.backbones.scalefree import ScaleFree, neighbours
from protodepth.types import Batch


def network(preset: str = "small") -> ScaleFree:
    """Random weights that let every part of the head say something; it answers in 32 bits, whatever the network is."""
    torch.manual_seed(0)
    net = ScaleFree.from_preset(preset).eval()
    with torch.no_grad():
        net.head.weight.normal_(std=0.03)
        net.last.weight.normal_(std=0.05)
    return net.double()  # so that what differs is the function, not its rounding


def scene(height: int, width: int, share: float = 0.1, count: int = 2) -> Batch:
    random = torch.Generator().manual_seed(1)
    depth, shown = torch.rand(2, count, 1, height, width, generator=random, dtype=torch.float64)
    image = torch.rand(count, 3, height, width, generator=random, dtype=torch.float64)
    sparse = (1 + 4 * depth) * (shown < share)
    return Batch(image=image, sparse_depth=sparse, intrinsics=torch.eye(3).expand(count, 3, 3))


@pytest.mark.parametrize("size", [(64, 96), (33, 47), (40, 95)])
@pytest.mark.parametrize("share", [0.002, 0.3])
def test_the_network_in_its_form_for_graphs_is_the_same_function(size: tuple[int, int], share: float) -> None:
    net, batch = network(), scene(*size, share=share)
    with torch.no_grad():
        plain, latents = net.encode(batch), net.encode_in_graph(batch)
        for name, layer in plain.layers.items():
            torch.testing.assert_close(latents.layers[name], layer, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(net.decode_in_graph(latents), net.decode(plain), rtol=1e-5, atol=0)


def test_widths_that_are_no_blocks_are_filled_up_in_the_large_network_too() -> None:
    net, batch = network("large"), scene(48, 64, count=1)
    with torch.no_grad():
        graph, plain = net.decode_in_graph(net.encode_in_graph(batch)), net.decode(net.encode(batch))
    torch.testing.assert_close(graph, plain, rtol=1e-5, atol=0)


def test_layers_that_prototypes_changed_are_the_ones_that_are_decoded() -> None:
    net, batch = network(), scene(32, 48, count=1)
    with torch.no_grad():
        plain, latents = net.encode(batch), net.encode_in_graph(batch)
        for name in net.default_layers:
            move = {name: plain.layers[name] + torch.linspace(-1, 1, plain.layers[name].shape[1]).view(1, -1, 1, 1)}
            expected = net.decode(plain.with_layers(move))
            torch.testing.assert_close(net.decode_in_graph(latents.with_layers(move)), expected, rtol=1e-5, atol=0)


def test_no_point_and_wild_weights_give_numbers() -> None:
    net, batch = network(), scene(32, 48, count=1)
    with torch.no_grad():
        empty = replace(batch, sparse_depth=torch.zeros_like(batch.sparse_depth))
        assert torch.isfinite(net.decode_in_graph(net.encode_in_graph(empty))).all()
        net.head.weight.mul_(1000)
        assert torch.isfinite(net.decode_in_graph(net.encode_in_graph(batch))).all()


def test_a_transposed_convolution_of_moments_is_one_of_repeated_cells() -> None:
    _, _, push = pyramid()
    x = torch.randn(1, len(MOMENTS), 5, 6, generator=torch.Generator().manual_seed(0))
    plain = F.conv_transpose2d(x, push, stride=2, padding=1)
    repeated = F.interpolate(x, scale_factor=2.0, mode="nearest")
    weight = in_graph.repeated_then(push.numpy())
    torch.testing.assert_close(in_graph.convolution(repeated, weight, padding=1), plain, rtol=1e-5, atol=1e-4)


def test_columns_then_rows_are_the_weights_of_both() -> None:
    columns, rows = in_graph.columns_and_rows()
    both = in_graph.repeated_then(pyramid()[2].numpy())
    np.testing.assert_allclose(np.einsum("omak,mikb->oiab", rows, columns), both, atol=1e-6)
    assert (columns.shape[2:], rows.shape[2:]) == ((1, 3), (3, 1))


def test_planes_of_many_cells_are_those_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The levels that go along columns and rows, and those that do both at once."""
    batch = scene(30, 44, share=0.2)
    points = F.pixel_unshuffle((batch.sparse_depth > 0).double(), 2)
    values = F.pixel_unshuffle(batch.sparse_depth.clamp(min=1).log(), 2) * points
    weights, found = tuple(w.double() for w in pyramid()), []
    for cells in (1, 100, 10**9):
        monkeypatch.setattr(in_graph, "MANY_CELLS", cells)
        ours = in_graph.local_planes(values, points, points * (-values).exp(), weights)
        found.append(torch.cat([*ours.guesses, *ours.slopes_x, *ours.slopes_y, ours.reach], 1))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])


def test_planes_map_by_map_are_the_planes() -> None:
    batch = scene(30, 44, share=0.2)
    points = F.pixel_unshuffle((batch.sparse_depth > 0).double(), 2)
    values = F.pixel_unshuffle(batch.sparse_depth.clamp(min=1).log(), 2) * points
    weights = tuple(w.double() for w in pyramid())
    plain = local_planes(values, points, *weights)
    ours = in_graph.local_planes(values, points, points * (-values).exp(), weights)
    torch.testing.assert_close(torch.cat(ours.guesses, 1), plain.guesses)
    for mine, theirs in ((ours.slopes_x, plain.slopes_x), (ours.slopes_y, plain.slopes_y)):
        torch.testing.assert_close(torch.cat(mine, 1), theirs[:, [0, 2, 3]])
        assert float(theirs[:, 1].abs().max()) == 0  # the nearest points' mean is flat
    torch.testing.assert_close(ours.reach, plain.reach)


@pytest.mark.parametrize("dilation", [4, 2, 1])
def test_four_differences_give_the_distances_to_eight_neighbours(dilation: int) -> None:
    look = torch.randn(2, 6, 9, 11, generator=torch.Generator().manual_seed(0))
    around = neighbours(look, dilation)
    plain = [(look - there).square().sum(1, keepdim=True) for n, there in enumerate(around) if n != 4]
    torch.testing.assert_close(in_graph.distances(look, dilation), plain, rtol=1e-5, atol=1e-5)


def test_a_convolution_of_pictures_is_that_of_their_cells() -> None:
    random = torch.Generator().manual_seed(0)
    image, weight = torch.randn(1, 3, 8, 10, generator=random), torch.randn(5, 12, 3, 3, generator=random)
    plain = F.conv2d(F.pixel_unshuffle(image, 2), weight, padding=1)
    ours = in_graph.convolution(image, in_graph.on_cells(weight.numpy()), stride=2, padding=2)
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)
    assert torch.equal(in_graph.cells(image[:, :1]), F.pixel_unshuffle(image[:, :1], 2))


def test_mean_and_spread_are_those_of_the_whole_picture() -> None:
    image = torch.rand(2, 3, 20, 30, generator=torch.Generator().manual_seed(0)) + torch.arange(2).view(2, 1, 1, 1)
    mean, spread = in_graph.mean_and_spread(image)
    torch.testing.assert_close(mean.flatten(), image.mean((1, 2, 3)))
    torch.testing.assert_close(spread.flatten(), image.std((1, 2, 3)))


def test_rows_are_relative_to_the_cell_itself() -> None:
    assert in_graph.relative(np.array([[1.0], [5.0], [7.0]]), 1).tolist() == [[-4.0], [2.0]]
