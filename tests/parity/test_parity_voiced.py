"""VOICED against the published network: scaffolding, every latent, depth."""

import pytest
import torch
from fixture_tools import Fixture, load_parts

from protodepth.backbones.voiced import VOICED, scaffold


@pytest.fixture(scope="module", params=["void", "kitti"])
def published(request):
    fixture = Fixture(f"voiced_{request.param}")
    net = VOICED.from_preset(request.param)
    load_parts(net, fixture.checkpoint("depth"), VOICED.official_keys)
    return fixture, net.eval()


@torch.no_grad()
def test_scaffolding_latents_and_depth_equal_the_published_ones(published):
    fixture, net = published
    for case in fixture.cases:
        batch = fixture.batch(case)
        fixture.check(f"{case}/out/scaffolding", scaffold(batch.sparse_depth), 1e-6)
        latents = net.encode(batch)
        for name, value in latents.layers.items():
            fixture.check(f"{case}/out/{name}", value, 1e-5)
        fixture.check(f"{case}/out/depth_no_prototypes", net.decode(latents), 1e-5)
