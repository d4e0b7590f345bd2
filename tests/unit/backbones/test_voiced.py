"""VOICED: counts, the scaffolding and its fallback."""

import numpy as np
import pytest
import torch

from protodepth.backbones.base import backbones, count_parameters
from protodepth.backbones.voiced import VOICED, scaffold, scaffold_array
from protodepth.types import Batch


def frames(b: int = 2, height: int = 45, width: int = 63, seed: int = 0) -> Batch:
    g = torch.Generator().manual_seed(seed)
    depth = torch.rand(b, 1, height, width, generator=g) * 4 + 0.5
    kept = torch.rand(b, 1, height, width, generator=g) < 0.05
    image = torch.rand(b, 3, height, width, generator=g)
    return Batch(image=image, sparse_depth=depth * kept, intrinsics=torch.eye(3).expand(b, 3, 3))


def test_full_size_has_the_published_counts():
    net = VOICED.from_preset("void")
    parts = [count_parameters(m) for m in (net.encoder_image, net.encoder_depth, net.decoder)]
    assert parts == [5_187_600, 576_800, 4_276_800]


def test_small_preset_is_small():
    assert 200_000 < count_parameters(VOICED.from_preset("small")) < 600_000


def test_points_of_a_plane_give_the_plane_inside_their_hull_and_0_outside():
    rows, columns = np.mgrid[:20, :30]
    plane = 2 + 0.1 * rows + 0.05 * columns
    z = np.zeros((20, 30))
    for point in [(2, 3), (2, 25), (17, 3), (17, 25), (9, 11)]:
        z[point] = plane[point]
    dense = scaffold_array(z)
    inside = (rows >= 2) & (rows <= 17) & (columns >= 3) & (columns <= 25)
    assert np.allclose(dense[inside], plane[inside], atol=1e-5)
    assert (dense[~inside] == 0).all()


def nearest_by_search(z):
    points = np.argwhere(z > 0)
    grid = np.indices(z.shape).reshape(2, -1).T
    least = ((grid[:, None] - points[None]) ** 2).sum(-1)
    return least, z[tuple(points.T)]


@pytest.mark.parametrize(
    "points",
    [
        [(5, 5)],
        [(1, 2), (8, 9)],
        [(1, 2), (8, 9), (4, 15)],
        [(3, c) for c in (1, 5, 9, 14)],
        [(i, i) for i in range(8)],
    ],
    ids=["one", "two", "three", "a row", "a diagonal"],
)
def test_too_few_points_or_points_on_a_line_take_the_nearest_point(points):
    z = np.zeros((12, 18), np.float32)
    for i, point in enumerate(points):
        z[point] = 1 + i
    distance, values = nearest_by_search(z)
    dense = scaffold_array(z).reshape(-1)
    for pixel, value in enumerate(dense):  # ties may go either way
        assert distance[pixel][values == value].min() == distance[pixel].min()


def test_no_points_give_zeros_and_a_finite_prediction():
    batch = frames()
    empty = Batch(image=batch.image * 0, sparse_depth=batch.sparse_depth * 0, intrinsics=batch.intrinsics)
    assert (scaffold(empty.sparse_depth) == 0).all()
    assert VOICED.from_preset("small")(empty).isfinite().all()


@pytest.mark.parametrize("size", [(45, 63), (200, 340)], ids=["one after another", "in threads"])
def test_frames_of_a_batch_do_not_touch_each_other(size):
    batch = frames(3, *size)
    assert torch.equal(scaffold(batch.sparse_depth), torch.cat([scaffold(one.sparse_depth) for one in batch.singles()]))


def test_a_given_scaffolding_is_used_as_it_is():
    net, batch = VOICED.from_preset("small"), frames()
    other = torch.rand(2, 1, 45, 63)
    same = net.encode_scaffolded(batch, scaffold(batch.sparse_depth))
    assert torch.equal(net.decode(same), net(batch))
    assert not torch.equal(net.decode(net.encode_scaffolded(batch, other)), net(batch))


@pytest.mark.parametrize("size", [(32, 32), (33, 47), (61, 96)])
def test_any_size_gives_depth_in_range(size):
    depth = VOICED.from_preset("small", depth_range=(0.2, 5.0))(frames(2, *size))
    assert depth.shape == (2, 1, *size)
    assert (depth > 0.19).all()
    assert (depth < 5).all()


def test_config_builds_the_same_network_again():
    net = VOICED.from_preset("small", depth_range=(0.3, 6.0))
    twin = backbones.get("voiced")(**net.config())
    twin.load_state_dict(net.state_dict())
    assert torch.equal(twin(frames()), net(frames()))


def test_centred_an_untrained_network_starts_in_the_middle_of_its_range():
    g = torch.Generator().manual_seed(0)
    K = torch.tensor([[[60.0, 0, 24], [0, 55.0, 16], [0, 0, 1]]])
    z = (torch.rand(1, 1, 32, 48, generator=g) * 4 + 0.5) * (torch.rand(1, 1, 32, 48, generator=g) < 0.1)
    batch = Batch(image=torch.rand(1, 3, 32, 48, generator=g), sparse_depth=z, intrinsics=K)
    depths = []
    for centred in (False, True):
        torch.manual_seed(0)
        network = VOICED.from_preset("small", depth_range=[0.1, 8.0], centred=centred)
        assert VOICED(**network.config()).offset == network.offset
        depths.append(float(network.decode(network.encode(batch)).detach().median()))
    assert depths[0] == pytest.approx(0.2, rel=0.3)
    assert depths[1] == pytest.approx(0.9, rel=0.5)  # sqrt(0.1 * 8)
