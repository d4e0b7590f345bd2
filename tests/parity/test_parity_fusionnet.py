"""ScaffNet and FusionNet against the published networks, with and without spatial pyramid pooling."""

import pytest
import torch
from fixture_tools import Fixture, load_parts

from protodepth.backbones.fusionnet import FusionNet, match_scale
from protodepth.backbones.scaffnet import ScaffNet


@pytest.fixture(scope="module", params=["void", "kitti", "void_nospp"])
def published(request):
    fixture = Fixture(f"fusionnet_{request.param}")
    net = FusionNet.from_preset(request.param)
    load_parts(net, fixture.checkpoint("depth"), FusionNet.official_keys)
    return fixture, net.eval()


@torch.no_grad()
def test_scaffnet_scale_match_latents_and_depth_equal_the_published_ones(published):
    fixture, net = published
    for case in fixture.cases:
        latents = net.encode(fixture.batch(case))
        fixture.check(f"{case}/out/scaffnet_depth", latents.context["prior"], 1e-5)
        fixture.check(f"{case}/out/scale_matched_depth", latents.context["matched"], 1e-5)
        for name, value in latents.layers.items():
            fixture.check(f"{case}/out/{name}", value, 1e-5)
        fixture.check(f"{case}/out/depth_no_prototypes", net.decode(latents), 1e-5)


@torch.no_grad()
def test_scaffnet_alone_gives_the_same_depth_as_inside(published):
    fixture, net = published
    alone = ScaffNet(**net.scaffnet.config())
    part = "scaffnet_standalone" if "scaffnet_standalone" in fixture.meta["checkpoint"] else "depth"
    load_parts(alone, fixture.checkpoint(part), ScaffNet.official_keys)
    fixture.check("case0/out/scaffnet_depth", alone.eval()(fixture.batch("case0")), 1e-5)


def test_scale_matching_alone_equals_the_published_one():
    fixture = Fixture("losses")
    for case in fixture.meta["items"]:
        matched = match_scale(fixture[f"{case}/in/depth"], fixture[f"{case}/in/sparse"])
        fixture.check(f"{case}/out/scale_match_local_k5", matched, 1e-6)
