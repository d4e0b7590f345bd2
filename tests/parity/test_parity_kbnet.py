"""KBNet against the published network: pool output, every latent, depth."""

import pytest
import torch
from fixture_tools import Fixture, load_parts

from protodepth.backbones.kbnet import KBNet
from protodepth.geometry import outlier_free

NETWORKS = {"kbnet_void": "void", "kbnet_kitti": "kitti"}


@pytest.fixture(scope="module", params=NETWORKS)
def published(request):
    fixture = Fixture(request.param)
    limits = fixture.meta["wrapper_config"]
    net = KBNet.from_preset(
        NETWORKS[request.param],
        depth_range=(limits["min_predict_depth"], limits["max_predict_depth"]),
        coordinates="official",
    )
    load_parts(net, fixture.checkpoint("depth"), KBNet.official_keys)
    return fixture, net.eval()


def test_preset_has_the_published_pools(published):
    fixture, net = published
    stated = fixture.meta["constructor"]
    assert net.sparse_to_dense_pool.min_sizes == tuple(stated["min_pool_sizes_sparse_to_dense_pool"])
    assert net.sparse_to_dense_pool.max_sizes == tuple(stated["max_pool_sizes_sparse_to_dense_pool"])


@torch.no_grad()
def test_outlier_removal_equals_the_published_one(published):
    fixture, _ = published
    for case in fixture.cases:
        sparse = fixture[f"{case}/in/sparse_depth"]
        assert torch.equal((sparse > 0).float(), fixture[f"{case}/in/validity_map"])
        valid = outlier_free(sparse)
        assert torch.equal(valid, fixture[f"{case}/out/outlier_removed_validity_map"])
        assert torch.equal(valid * sparse, fixture[f"{case}/out/outlier_removed_sparse_depth"])


@torch.no_grad()
def test_pool_latents_and_depth_equal_the_published_ones(published):
    fixture, net = published
    for case in fixture.cases:
        batch = fixture.batch(case)
        fixture.check(f"{case}/out/sparse_to_dense_pool", net.pool(batch.sparse_depth), 1e-5)
        latents = net.encode(batch)
        for name, value in latents.layers.items():
            fixture.check(f"{case}/out/{name}", value, 1e-5)
        fixture.check(f"{case}/out/sample_descriptor", latents.layers["latent"].mean((2, 3)), 1e-5)
        fixture.check(f"{case}/out/depth_no_prototypes", net.decode(latents), 1e-5)


@torch.no_grad()
def test_the_right_scale_of_K_differs_from_the_published_one(published):
    fixture, net = published
    right = KBNet(**{**net.config(), "coordinates": "per_level"})
    right.load_state_dict(net.state_dict())
    batch = fixture.batch("case0")
    assert torch.equal(right.encode(batch).layers["skip2_depth"], net.encode(batch).layers["skip2_depth"])
    assert not torch.allclose(
        right.encode(batch).layers["skip3_depth"], net.encode(batch).layers["skip3_depth"], rtol=1e-2
    )
