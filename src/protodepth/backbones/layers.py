"""Building blocks and latent layers that networks share; the published ones' under the official checkpoints' names.

No convolution of theirs has a bias; padding is k // 2, so a stride-2 convolution gives ceil(side / 2); they activate by
leaky ReLU with slope 0.2 unless told otherwise.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional as F
from torch.nn.grad import conv2d_input

from protodepth.geometry import window_max
from protodepth.types import Depth, LatentSpec, Modality

Activation = Literal["leaky_relu", "relu", "sigmoid", "linear"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "linear": lambda x: x,
}


def plain_conv(inputs: int, outputs: int, *, size: int = 3, stride: int = 1) -> nn.Conv2d:
    """A convolution with bias for our own networks: the size stays (or is divided by the stride), He's start."""
    layer = LeanConv2d(inputs, outputs, size, stride=stride, padding=size // 2)
    nn.init.kaiming_normal_(layer.weight, a=0.2)
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer


@lru_cache(maxsize=64)
def _resizing(inputs: int, outputs: int) -> Tensor:
    r"""Weights (outputs, inputs) of a linear resize: a triangle of half width :math:`\max(n/m, 1)` about each output.

    >>> _resizing(4, 2)
    tensor([[0.4286, 0.4286, 0.1429, 0.0000],
            [0.0000, 0.1429, 0.4286, 0.4286]])
    """
    scale = inputs / outputs
    centres = (torch.arange(outputs, dtype=torch.float64)[:, None] + 0.5) * scale - 0.5
    weights = (1 - (centres - torch.arange(inputs)).abs() / max(scale, 1.0)).clamp(min=0)
    return (weights / weights.sum(1, keepdim=True)).float()


def resized(x: Tensor, size: tuple[int, int]) -> Tensor:
    """An image at another size, antialiased, as two products of matrices: engines of graphs have no such resize."""
    rows, columns = (_resizing(int(n), m).to(x) for n, m in zip(x.shape[-2:], size, strict=True))
    return rows @ x @ columns.T


class BatchNorm(nn.BatchNorm2d):
    """Batch norm that takes its running statistics where a channel has a single value, which has no spread: one frame
    of a small crop, after seven strides.

    >>> BatchNorm(2)(torch.zeros(1, 2, 1, 1)).shape
    torch.Size([1, 2, 1, 1])
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or x.shape[0] * x.shape[2] * x.shape[3] > 1:
            return super().forward(x)
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)


class _FrozenConvolution(torch.autograd.Function):
    """A convolution of which only the input learns.  PyTorch's own keeps that input, too, for the gradient of the
    weights: half of what a decoder keeps.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: tuple[int, int],
        padding: tuple[int, int],
    ) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.given = (x.shape, x.dtype, stride, padding)  # type: ignore[attr-defined]
        return F.conv2d(x, weight, bias, stride, padding)

    @staticmethod
    def backward(ctx: FunctionCtx, *slopes: Tensor) -> tuple[Tensor, None, None, None, None]:
        (weight,) = ctx.saved_tensors  # type: ignore[attr-defined]
        shape, kind, stride, padding = ctx.given  # type: ignore[attr-defined]
        weight = weight.to(slopes[0].dtype)  # half under autocast
        slope = conv2d_input(shape, weight, slopes[0], stride, padding)  # type: ignore[no-untyped-call]
        return slope.to(kind), None, None, None, None


class LeanConv2d(nn.Conv2d):
    """``nn.Conv2d`` that keeps no input for the gradient of weights that have none; only stride and padding."""

    def forward(self, x: Tensor) -> Tensor:
        frozen = not self.weight.requires_grad and (self.bias is None or not self.bias.requires_grad)
        if not (frozen and x.requires_grad and torch.is_grad_enabled()):
            return super().forward(x)
        pairs = (self.stride, self.padding)
        return _FrozenConvolution.apply(x, self.weight, self.bias, *pairs)  # type: ignore[no-untyped-call]


class Conv(nn.Module):
    """Convolution without bias, optional batch norm, activation.

    >>> Conv(3, 8, 3, stride=2)(torch.zeros(1, 3, 5, 7)).shape
    torch.Size([1, 8, 3, 4])
    """

    def __init__(
        self,
        c_in: int,
        c_out: int,
        kernel: int = 3,
        stride: int = 1,
        activation: Activation = "leaky_relu",
        norm: bool = False,
    ) -> None:
        super().__init__()
        self.conv = LeanConv2d(c_in, c_out, kernel, stride, kernel // 2, bias=False)
        nn.init.xavier_normal_(self.conv.weight)
        self.batch_norm = BatchNorm(c_out) if norm else None
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        if self.batch_norm is not None:
            x = self.batch_norm(x)
        return ACTIVATIONS[self.activation](x)


class ConvBlock(nn.Module):
    """n 3x3 convolutions, of which the last has stride 2."""

    def __init__(self, c_in: int, c_out: int, n: int = 1, norm: bool = False) -> None:
        super().__init__()
        convs = [Conv(c_in if i == 0 else c_out, c_out, stride=2 if i == n - 1 else 1, norm=norm) for i in range(n)]
        self.conv_block = nn.Sequential(*convs)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv_block(x)


class UpConv(nn.Module):
    """Nearest resize to a given (h, w), then a 3x3 convolution."""

    def __init__(self, c_in: int, c_out: int, norm: bool = False) -> None:
        super().__init__()
        self.conv = Conv(c_in, c_out, norm=norm)

    def forward(self, x: Tensor, size: tuple[int, int]) -> Tensor:
        return self.conv(F.interpolate(x, size=size, mode="nearest"))


class DecoderBlock(nn.Module):
    """Up-convolution to the size of the skip, concatenation [upsampled, skip], 3x3 convolution."""

    def __init__(self, c_in: int, c_skip: int, c_out: int, norm: bool = False) -> None:
        super().__init__()
        self.deconv = UpConv(c_in, c_out, norm)
        self.conv = Conv(c_out + c_skip, c_out, norm=norm)

    def forward(self, x: Tensor, skip: Tensor | None, size: tuple[int, int]) -> Tensor:
        x = self.deconv(x, size)
        return self.conv(x if skip is None else torch.cat([x, skip], 1))


class Decoder(nn.Module):
    """Blocks ``deconv4`` to ``deconv0`` (``deconv1`` with four widths), then a 3x3 convolution ``output<last>``.

    ``skips`` are channels from the deepest level to the finest; 0 = that level has no skip.
    """

    def __init__(
        self,
        c_latent: int,
        skips: Sequence[int],
        widths: Sequence[int],
        output: tuple[int, Activation] = (1, "linear"),
        norm: bool = False,
    ) -> None:
        super().__init__()
        self.levels = range(4, 4 - len(widths), -1)
        for level, c_in, c_skip, c_out in zip(self.levels, [c_latent, *widths], skips, widths, strict=False):
            setattr(self, f"deconv{level}", DecoderBlock(c_in, c_skip, c_out, norm))
        self.add_module(f"output{self.levels[-1]}", Conv(widths[-1], output[0], activation=output[1]))

    def forward(self, latent: Tensor, skips: Sequence[Tensor | None], size: tuple[int, int]) -> Tensor:
        """``skips`` from the deepest to the finest; ``size`` is that of a level without a skip (full resolution)."""
        x = latent
        for level, skip in zip(self.levels, skips, strict=True):
            target = size if skip is None else (skip.shape[-2], skip.shape[-1])
            x = self.get_submodule(f"deconv{level}")(x, skip, target)
        return self.get_submodule(f"output{self.levels[-1]}")(x)


class VGGEncoder(nn.Module):
    """Five stride-2 levels: ``conv1`` is one 5x5 convolution, ``conv2`` to ``conv5`` are blocks of 3x3 convolutions."""

    def __init__(
        self, c_in: int, widths: Sequence[int], depths: Sequence[int] = (1, 1, 1, 1, 1), norm: bool = False
    ) -> None:
        super().__init__()
        self.conv1 = Conv(c_in, widths[0], 5, 2, norm=norm)
        for level in range(2, 6):
            setattr(self, f"conv{level}", ConvBlock(widths[level - 2], widths[level - 1], depths[level - 1], norm))

    def forward(self, x: Tensor) -> list[Tensor]:
        """Outputs of the five levels; the first four are skips."""
        outputs = []
        for level in range(1, 6):
            x = self.get_submodule(f"conv{level}")(x)
            outputs.append(x)
        return outputs


def window_maxima(x: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Stride-1 maxima over several odd windows, each exactly equal to its own square max pool.

    A window grows out of the next smaller one (a maximum of maxima), so the largest costs, not the sum.

    >>> x = torch.rand(1, 1, 9, 11)
    >>> torch.equal(window_maxima(x, [3, 7])[1], F.max_pool2d(x, 7, 1, 3))
    True
    """
    maxima: dict[int, Tensor] = {}
    reached = 1
    for size in sorted(set(sizes)):
        x = window_max(x, size - reached + 1)
        maxima[size], reached = x, size
    return [maxima[size] for size in sizes]


def window_minima_of_points(z: Depth, sizes: Sequence[int]) -> list[Tensor]:
    """Nearest point in each window; pixels without a point do not count, and a window without any gives 0."""
    far = 1e6  # beyond any depth in metres; finite, so that it exports
    hidden = torch.where(z > 0, -z, torch.full_like(z, -far))
    return [torch.where(m <= -far, torch.zeros_like(m), -m) for m in window_maxima(hidden, sizes)]


def paired_specs(image: Sequence[int], depth: Sequence[int]) -> tuple[LatentSpec, ...]:
    """Latents of the published two-branch networks: a pair of skips at levels 1-4, then the fused bottleneck."""
    specs = []
    for level in range(1, 5):
        specs.append(LatentSpec(f"skip{level}_image", image[level - 1], Modality.IMAGE))
        specs.append(LatentSpec(f"skip{level}_depth", depth[level - 1], Modality.DEPTH))
    return (*specs, LatentSpec("latent", image[4] + depth[4], Modality.FUSED, bottleneck=True))


def without_finest(specs: Sequence[LatentSpec]) -> tuple[str, ...]:
    """All layers but those of level 1: what the published prototypes adapt."""
    return tuple(s.name for s in specs if not s.name.startswith("skip1"))


def paired_layers(image: Sequence[Tensor], depth: Sequence[Tensor]) -> dict[str, Tensor]:
    """Encoder outputs of five levels under the names of :func:`paired_specs`."""
    layers: dict[str, Tensor] = {}
    for level in range(4):
        layers[f"skip{level + 1}_image"] = image[level]
        layers[f"skip{level + 1}_depth"] = depth[level]
    layers["latent"] = torch.cat([image[4], depth[4]], 1)
    return layers


def fused_skips(layers: Mapping[str, Tensor]) -> list[Tensor]:
    """Skips for the decoder, deepest first: the channels of [image, depth]."""
    return [torch.cat([layers[f"skip{n}_image"], layers[f"skip{n}_depth"]], 1) for n in (4, 3, 2, 1)]
