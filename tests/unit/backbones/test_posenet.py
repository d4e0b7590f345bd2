"""Pose networks: counts, rotations, sizes."""

import pytest
import torch

from protodepth.backbones.base import count_parameters
from protodepth.backbones.posenet import PoseNet, axis_rotation, euler_rotation, exponential_rotation, motion
from protodepth.errors import UnknownNameError


@pytest.mark.parametrize(("kind", "count"), [("resnet18", 4_063_104), ("posenet", 1_587_776)])
def test_published_networks_have_the_published_counts(kind, count):
    assert count_parameters(PoseNet(kind)) == count


def test_small_network_is_small_and_has_no_batch_norm():
    net = PoseNet("small")
    assert 150_000 < count_parameters(net) < 250_000
    assert not list(net.buffers())


@pytest.mark.parametrize("kind", ["resnet18", "posenet", "small"])
@pytest.mark.parametrize("size", [(32, 32), (64, 96), (65, 97)])
def test_any_size_gives_a_rigid_motion(kind, size):
    net = PoseNet(kind).eval()
    T = net(torch.rand(2, 3, *size), torch.rand(2, 3, *size))
    assert torch.allclose(T[:, :3, :3] @ T[:, :3, :3].mT, torch.eye(3).expand(2, 3, 3), atol=1e-5)
    assert torch.equal(T[:, 3], torch.tensor([0.0, 0, 0, 1]).expand(2, 4))


@pytest.mark.parametrize("rotation", [axis_rotation, exponential_rotation])
@pytest.mark.parametrize("angle", [1e-8, 1e-4, 1e-3, 0.1, 3.0])
def test_rotation_is_the_matrix_exponential(rotation, angle):
    r = torch.nn.functional.normalize(torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.0, 1.0]]), dim=1) * angle
    x, y, z = r.double().unbind(1)
    o = torch.zeros_like(x)
    expected = torch.matrix_exp(torch.stack([o, -z, y, z, o, -x, -y, x, o], 1).reshape(-1, 3, 3)).float()
    assert torch.allclose(rotation(r), expected, atol=2e-6)


def test_euler_turns_about_z_first_and_cuts_at_half_a_turn():
    quarter = torch.pi / 2
    R = euler_rotation(torch.tensor([[quarter, 0.0, quarter]]))[0]
    assert torch.allclose(
        R @ torch.tensor([1.0, 0, 0]), torch.tensor([0.0, 0, 1]), atol=1e-6
    )  # x -> y (about z) -> z (about x)
    assert torch.allclose(euler_rotation(torch.tensor([[9.0, 0, 0]])), euler_rotation(torch.tensor([[torch.pi, 0, 0]])))


@pytest.mark.parametrize("rotation", ["axis", "euler", "exponential"])
def test_the_gradient_at_no_motion_is_finite(rotation):
    v = torch.zeros(1, 6, requires_grad=True)
    motion(v, rotation).sum().backward()
    assert v.grad.isfinite().all()


def test_unused_projections_are_not_computed():
    net = PoseNet("resnet18")
    net(torch.rand(2, 3, 64, 96), torch.rand(2, 3, 64, 96)).sum().backward()
    unused = sum(p.numel() for p in net.parameters() if p.grad is None)
    assert unused == 87_040


def test_config_builds_the_same_network_again():
    net = PoseNet("small", "euler", "leaky_relu")
    twin = PoseNet(**net.config())
    twin.load_state_dict(net.state_dict())
    a, b = torch.rand(2, 1, 3, 40, 50)
    assert torch.equal(net(a, b), twin(a, b))


@pytest.mark.parametrize("wrong", [{"kind": "vgg"}, {"rotation": "quaternion"}])
def test_unknown_names_list_the_choices(wrong):
    with pytest.raises(UnknownNameError, match="choose one of"):
        PoseNet(**wrong)


@pytest.mark.parametrize("kind", ["resnet18", "posenet"])
def test_one_small_frame_can_be_learned_from_although_its_last_map_is_a_single_pixel(kind):
    torch.manual_seed(0)
    net = PoseNet(kind).train()
    before = {name: b.clone() for name, b in net.named_buffers() if name.endswith("running_mean")}
    net(torch.rand(1, 3, 64, 64), torch.rand(1, 3, 64, 64)).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)
    moved = [not torch.equal(b, before[name]) for name, b in net.named_buffers() if name in before]
    assert moved[0]  # wide maps have their own statistics
    if kind == "posenet":
        assert not moved[-1]  # a single value has none
