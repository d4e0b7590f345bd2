"""Pose networks against the published ones: evaluation and training mode, the gradient, and the three rotations."""

import pytest
import torch
from fixture_tools import Fixture, load_parts

from protodepth.backbones.posenet import PoseNet, motion

NETWORKS = ("posenet_resnet18_axis", "kbnet_void", "voiced_void", "fusionnet_void")


@pytest.fixture(params=NETWORKS)
def published(request):
    fixture = Fixture(request.param)
    stated = fixture.meta["constructor" if "posenet" in request.param else "posenet_constructor"]
    net = PoseNet(stated["encoder_type"], stated["rotation_parameterization"], stated["activation_func"])
    load_parts(net, fixture.checkpoint("pose"), PoseNet.official_keys)
    return fixture, net.eval()


@torch.no_grad()
def test_poses_equal_the_published_ones(published):
    fixture, net = published
    for case in fixture.cases:
        for other in (1, 2):
            pose = net(fixture.image(case, 0), fixture.image(case, other))
            fixture.check(f"{case}/out/pose0to{other}_eval", pose, 1e-5)


@torch.no_grad()
def test_training_mode_uses_and_updates_batch_statistics(published):
    fixture, net = published
    pose = net.train()(fixture.image("case0", 0), fixture.image("case0", 1))
    fixture.check("posenet_train_mode/pose0to1_case0", pose)
    norm = net.encoder.conv1.batch_norm
    fixture.check("posenet_train_mode/encoder.conv1.batch_norm.running_mean_after", norm.running_mean)
    fixture.check("posenet_train_mode/encoder.conv1.batch_norm.running_var_after", norm.running_var)


@pytest.mark.parametrize("rotation", ["axis", "euler", "exponential"])
def test_rotations_equal_the_published_ones(rotation):
    fixture = Fixture("losses")
    for case in fixture.meta["items"]:
        fixture.check(f"{case}/out/pose_matrix_{rotation}", motion(fixture[f"{case}/in/dof6"], rotation), 1e-6)
