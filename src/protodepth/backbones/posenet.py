"""Pose networks: relative camera motion from two images.  They may forget; the training objective owns them."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protodepth.backbones.layers import ACTIVATIONS, Activation, Conv
from protodepth.errors import UnknownNameError
from protodepth.geometry import pose_matrix, skew
from protodepth.types import Float, Image

PoseKind = Literal["resnet18", "posenet", "small"]
Rotation = Literal["axis", "euler", "exponential"]


def axis_rotation(r: Float[Tensor, "b 3"]) -> Float[Tensor, "b 3 3"]:
    r"""Rodrigues' formula for angle :math:`\theta = |r|` about :math:`r / (\theta + 10^{-7})`.

    >>> torch.allclose(axis_rotation(torch.zeros(1, 3)), torch.eye(3))
    True
    """
    angle = torch.linalg.vector_norm(r, dim=-1, keepdim=True)
    axis = r / (angle + 1e-7)
    sine, cosine = angle.sin()[..., None], angle.cos()[..., None]
    outer = axis[:, :, None] * axis[:, None, :]
    return cosine * torch.eye(3, dtype=r.dtype, device=r.device) + sine * skew(axis) + (1 - cosine) * outer


def euler_rotation(r: Float[Tensor, "b 3"]) -> Float[Tensor, "b 3 3"]:
    r""":math:`R_x R_y R_z` with angles cut to :math:`\pm\pi`.

    >>> torch.allclose(euler_rotation(torch.zeros(1, 3)), torch.eye(3))
    True
    """
    x, y, z = r.clamp(-torch.pi, torch.pi).unbind(-1)
    zero, one = torch.zeros_like(x), torch.ones_like(x)
    Rx = torch.stack([one, zero, zero, zero, x.cos(), -x.sin(), zero, x.sin(), x.cos()], -1)
    Ry = torch.stack([y.cos(), zero, y.sin(), zero, one, zero, -y.sin(), zero, y.cos()], -1)
    Rz = torch.stack([z.cos(), -z.sin(), zero, z.sin(), z.cos(), zero, zero, zero, one], -1)
    return Rx.reshape(-1, 3, 3) @ Ry.reshape(-1, 3, 3) @ Rz.reshape(-1, 3, 3)


def exponential_rotation(r: Float[Tensor, "b 3"]) -> Float[Tensor, "b 3 3"]:
    r""":math:`I + \frac{\sin\theta}{\theta} [r] + \frac{1 - \cos\theta}{\theta^2} [r]^2`, by its series near 0.

    >>> torch.allclose(exponential_rotation(torch.zeros(1, 3)), torch.eye(3))
    True
    """
    squared = r.square().sum(-1)[:, None, None]
    near = squared < 1e-6
    safe = torch.where(near, torch.ones_like(squared), squared)  # no 0/0, also not in the branch that is not taken
    angle = safe.sqrt()
    first = torch.where(near, 1 - squared / 6, angle.sin() / angle)
    second = torch.where(near, 0.5 - squared / 24, (1 - angle.cos()) / safe)
    S = skew(r)
    return torch.eye(3, dtype=r.dtype, device=r.device) + first * S + second * (S @ S)


ROTATIONS = {"axis": axis_rotation, "euler": euler_rotation, "exponential": exponential_rotation}


def motion(vector: Float[Tensor, "b 6"], rotation: Rotation = "axis") -> Float[Tensor, "b 4 4"]:
    """Rigid motion of a 6-vector: three numbers of rotation, then three of translation.

    >>> motion(torch.tensor([[0.0, 0, 0, 1, 2, 3]]))[0, :3, 3]
    tensor([1., 2., 3.])
    """
    return pose_matrix(ROTATIONS[rotation](vector[:, :3]), vector[:, 3:])


class ResNetBlock(nn.Module):
    """Two 3x3 convolutions, each with norm and activation, plus a shortcut, then the activation again."""

    def __init__(self, c_in: int, c_out: int, stride: int, activation: Activation) -> None:
        super().__init__()
        self.conv1 = Conv(c_in, c_out, 3, stride, activation, norm=True)
        self.conv2 = Conv(c_out, c_out, 3, 1, activation, norm=True)
        self.projection = Conv(c_in, c_out, 1, stride, "linear")
        self.activation = activation
        # Published blocks own a projection also where the shortcut is the identity: kept for loading, not computed.
        self.projects = c_in != c_out or stride != 1
        self.projection.requires_grad_(self.projects)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.projection(x) if self.projects else x
        return ACTIVATIONS[self.activation](self.conv2(self.conv1(x)) + shortcut)


class ResNetEncoder(nn.Module):
    """ResNet-18 at a quarter of its usual width."""

    widths = (16, 32, 64, 128, 256)

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.conv1 = Conv(6, self.widths[0], 7, 2, activation, norm=True)
        for stage in range(2, 6):
            c_in, c_out = self.widths[stage - 2], self.widths[stage - 1]
            first = ResNetBlock(c_in, c_out, 1 if stage == 2 else 2, activation)
            setattr(self, f"blocks{stage}", nn.Sequential(first, ResNetBlock(c_out, c_out, 1, activation)))

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv1(x), 3, 2, 1)
        for stage in range(2, 6):
            x = self.get_submodule(f"blocks{stage}")(x)
        return x


class ConvEncoder(nn.Module):
    """Stride-2 convolutions with kernels 7, 5, 3, 3, ..."""

    def __init__(self, widths: tuple[int, ...], activation: Activation, norm: bool) -> None:
        super().__init__()
        self.levels = range(1, len(widths) + 1)
        for level, c_in, c_out in zip(self.levels, (6, *widths), widths, strict=False):
            kernel = {1: 7, 2: 5}.get(level, 3)
            setattr(self, f"conv{level}", Conv(c_in, c_out, kernel, 2, activation, norm))

    def forward(self, x: Tensor) -> Tensor:
        for level in self.levels:
            x = self.get_submodule(f"conv{level}")(x)
        return x


class PoseDecoder(nn.Module):
    """Convolutions to six channels."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


def _parts(kind: PoseKind, activation: Activation) -> tuple[nn.Module, nn.Module]:
    if kind == "resnet18":
        convs = [Conv(256, 256, 3, 2, activation, norm=True) for _ in range(2)]
        return ResNetEncoder(activation), PoseDecoder(nn.Sequential(*convs, Conv(256, 6, 1, 1, "linear")))
    if kind == "posenet":
        encoder = ConvEncoder((16, 32, 64, 128, 256, 256, 256), activation, norm=True)
        return encoder, PoseDecoder(Conv(256, 6, 1, 1, "linear"))
    if kind == "small":  # without batch norm: it behaves alike in training and evaluation and at batch size 1
        return ConvEncoder((16, 32, 48, 64, 96, 96), activation, norm=False), PoseDecoder(Conv(96, 6, 1, 1, "linear"))
    raise UnknownNameError("pose network", kind, ("resnet18", "posenet", "small"))


class PoseNet(nn.Module):
    r"""Relative pose from two images: 0.01 times the spatial mean of six channels, made a rigid motion.

    ``forward(a, b)`` maps points of camera a to camera b.  Published pairs: KBNet resnet18 + axis (relu), VOICED
    posenet + euler (leaky_relu), FusionNet posenet + axis (relu).

    >>> net = PoseNet("small")
    >>> net(torch.rand(2, 3, 64, 96), torch.rand(2, 3, 64, 96)).shape
    torch.Size([2, 4, 4])
    """

    official_keys = {"encoder_state_dict": "encoder", "decoder_state_dict": "decoder"}  # noqa: RUF012

    def __init__(
        self,
        kind: PoseKind = "small",
        rotation: Rotation = "axis",
        activation: Activation = "relu",
        scale: float = 0.01,
    ) -> None:
        super().__init__()
        if rotation not in ROTATIONS:
            raise UnknownNameError("rotation", rotation, tuple(ROTATIONS))
        self.kind, self.rotation, self.activation, self.scale = kind, rotation, activation, scale
        self.encoder, self.decoder = _parts(kind, activation)

    def config(self) -> dict[str, Any]:
        return {"kind": self.kind, "rotation": self.rotation, "activation": self.activation, "scale": self.scale}

    def vector(self, image_a: Image, image_b: Image) -> Float[Tensor, "b 6"]:
        """Rotation (3) and translation (3)."""
        return self.scale * self.decoder(self.encoder(torch.cat([image_a, image_b], 1))).mean((2, 3))

    def forward(self, image_a: Image, image_b: Image) -> Float[Tensor, "b 4 4"]:
        return motion(self.vector(image_a, image_b), self.rotation)
