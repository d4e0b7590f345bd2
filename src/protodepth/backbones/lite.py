"""`lite`: our own small network for CPUs and quick trials.  Two encoders, a decoder, a residual on a dense scaffold.

The scaffold is the sparse depth filled by a masked average pyramid (pull-push): pure tensor operations, so that it
exports.  The network learns what the image adds to it.
"""

import math
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protodepth.backbones.base import Backbone, backbones
from protodepth.backbones.layers import plain_conv
from protodepth.geometry import outlier_free
from protodepth.types import Batch, Depth, Float, Latents, LatentSpec, Mask, Modality


def pull_push(value: Depth, mask: Mask, levels: int = 6, falloff: float = 0.1) -> Depth:
    """Fill the pixels without a value: averages of known pixels over growing cells, nearer cells weigh more.

    Level l holds the masked averages over cells of 2^l pixels, joined bilinearly; it counts ``falloff``^l, so a pixel
    with points nearby follows them and one without takes what the coarser levels know.

    >>> v = torch.zeros(1, 1, 8, 8); v[..., 2, 3] = 5.0
    >>> bool(torch.allclose(pull_push(v, (v > 0).float()), torch.tensor(5.0)))
    True
    """
    total, weight = value * mask, mask
    numerator, denominator, share = total, weight, 1.0
    for level in range(1, levels + 1):
        total, weight = (F.avg_pool2d(t, 2, ceil_mode=True) for t in (total, weight))
        share *= falloff
        numerator = numerator + share * _spread(total, value, 0 if level == levels else 2**level)
        denominator = denominator + share * _spread(weight, value, 0 if level == levels else 2**level)
    share *= falloff  # the mean of all points, for pixels that no cell reaches
    numerator = numerator + share * (value * mask).mean((2, 3), keepdim=True)
    denominator = denominator + share * mask.mean((2, 3), keepdim=True)
    return numerator / denominator.clamp(min=1e-20)


def _spread(cells: Tensor, like: Tensor, factor: int) -> Tensor:
    """Cells joined bilinearly at the size of ``like``.

    By a power of two and then cut: such weights have no rounding errors, which at odd sizes would outweigh coarser
    levels.  The coarsest cells (``factor`` 0) are stretched to the image's sides instead.
    """
    height, width = like.shape[-2:]
    if factor == 0:
        return F.interpolate(cells, size=(height, width), mode="bilinear", align_corners=False)
    return F.interpolate(cells, scale_factor=float(factor), mode="bilinear", align_corners=False)[..., :height, :width]


class EncoderStage(nn.Module):
    """Two 3x3 convolutions, the first halves the size; the input is activated first, so that a latent is linear.

    Linear latents can be negative: their averages differ in direction between domains, not only in length.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.down, self.mix = plain_conv(inputs, outputs, stride=2), plain_conv(outputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(F.leaky_relu(self.down(F.leaky_relu(x, 0.2)), 0.2))


class Merge(nn.Module):
    """Upsample to the skip's size and mix with it."""

    def __init__(self, inputs: int, skip: int, outputs: int) -> None:
        super().__init__()
        self.up, self.mix = plain_conv(inputs, outputs), plain_conv(outputs + skip, outputs)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        x = F.interpolate(x, size=skip.shape[-2:], mode="nearest")
        x = F.leaky_relu(self.up(x), 0.2)
        return F.leaky_relu(self.mix(torch.cat([x, F.leaky_relu(skip, 0.2)], 1)), 0.2)


@backbones.register("lite")
class Lite(Backbone):
    """Image and depth encoders with skips at full size, 1/2, 1/4 and 1/8, bottleneck at 1/16,
    and a residual in log depth.
    """

    name: ClassVar[str] = "lite"
    decoder_parts: ClassVar[tuple[str, ...]] = ("merges", "head")
    encoder_parts: ClassVar[tuple[str, ...]] = ("image_stages", "depth_stages")
    default_reduction = "relative"
    default_pose: ClassVar[dict[str, Any]] = {"kind": "small", "rotation": "axis"}
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "indoor": {"depth_range": (0.1, 8.0)},
        "outdoor": {"depth_range": (1.5, 100.0)},
        "mixed": {"depth_range": (0.1, 100.0)},
    }

    def __init__(
        self,
        depth_range: tuple[float, float] = (0.1, 100.0),
        image_widths: tuple[int, int, int, int, int] = (8, 16, 32, 48, 64),
        depth_widths: tuple[int, int, int, int, int] = (8, 8, 16, 24, 32),
    ) -> None:
        super().__init__()
        self.depth_range = (float(depth_range[0]), float(depth_range[1]))
        self.image_widths, self.depth_widths = tuple(image_widths), tuple(depth_widths)
        i, d = self.image_widths, self.depth_widths
        self.image_stages, self.depth_stages = self._stages(i), self._stages(d)
        widths = [i[4] + d[4], i[4], i[3], i[2], i[1]]  # of the decoder, from the bottleneck up to full size
        self.merges = nn.ModuleList([Merge(widths[n], i[3 - n] + d[3 - n], widths[n + 1]) for n in range(4)])
        self.head = plain_conv(widths[-1], 1)
        nn.init.normal_(self.head.weight, std=1e-2)
        self.latent_specs = (
            *(LatentSpec(f"skip{n}_image", i[n], Modality.IMAGE) for n in range(4)),
            *(LatentSpec(f"skip{n}_depth", d[n], Modality.DEPTH) for n in range(4)),
            LatentSpec("latent", widths[0], Modality.FUSED, bottleneck=True),
        )
        self.default_layers = tuple(s.name for s in self.latent_specs)

    @staticmethod
    def _stages(widths: tuple[int, ...]) -> nn.ModuleList:
        return nn.ModuleList([plain_conv(3, widths[0]), *(EncoderStage(a, b) for a, b in pairwise(widths))])

    def config(self) -> dict[str, Any]:
        return {
            "depth_range": list(self.depth_range),
            "image_widths": list(self.image_widths),
            "depth_widths": list(self.depth_widths),
        }

    def position(self, depth: Depth) -> Float[Tensor, "b 1 h w"]:
        """Depth as a fraction of the range on a logarithmic scale, kept inside (0, 1)."""
        low, high = self.depth_range
        return ((depth.clamp(min=low) / low).log() / math.log(high / low)).clamp(0.01, 0.99)

    def encode(self, batch: Batch) -> Latents:
        mask = outlier_free(batch.sparse_depth, size=3, relative=0.3)
        position = self.position(batch.sparse_depth) * mask
        scaffold = pull_push(position, mask).clamp(0.01, 0.99)
        image, depth = batch.image - 0.5, torch.cat([2 * scaffold - 1, (position - scaffold) * mask * 4, mask], 1)
        layers: dict[str, Tensor] = {}
        for n in range(5):
            image, depth = self.image_stages[n](image), self.depth_stages[n](depth)
            layers[f"skip{n}_image"], layers[f"skip{n}_depth"] = image, depth
        layers["latent"] = torch.cat([layers.pop("skip4_image"), layers.pop("skip4_depth")], 1)
        return Latents({s.name: layers[s.name] for s in self.latent_specs}, {"scaffold": scaffold})

    def decode(self, latents: Latents) -> Depth:
        layers, scaffold = latents.layers, latents.context["scaffold"]
        x = F.leaky_relu(layers["latent"], 0.2)
        for merge, n in zip(self.merges, (3, 2, 1, 0), strict=True):
            x = merge(x, torch.cat([layers[f"skip{n}_image"], layers[f"skip{n}_depth"]], 1))
        low, high = self.depth_range
        return low * torch.exp(math.log(high / low) * torch.sigmoid(torch.logit(scaffold) + self.head(x)))
