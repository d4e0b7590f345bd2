r"""`scalefree`: a small network for any depth sensor.  Depth times s in, depth times s out.

Nothing here knows a metre.  Depth enters as :math:`v = \log(z / c)` with c the geometric mean of the points, the
network sees v only relative to what the points around a pixel say (their local planes, mean M and spread S), and it
answers in the same unit:

    first guess   d = softmax gate . (sharp plane, nearest, smooth plane, plane of inverse depth) + S * residual
    propagation   three times: measured points are put in, then each cell takes a softmax mix of the planes of
                  the 3 x 3 cells around it, 4, 2 and 1 cells away, each continued to its place; cells that
                  look alike (a few learned numbers) count more
    full size     each pixel takes such a mix of the cells next to it
    depth         c * exp(d); exactly z at points unless a point is judged an outlier

The planes are those of :mod:`planes`.  Where nothing was learned, they are the answer.  All of it works on cells of
2 x 2 pixels.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protodepth.backbones.base import Backbone, backbones
from protodepth.backbones.planes import Planes, local_planes, pyramid
from protodepth.types import Batch, Depth, Float, Latents, LatentSpec, Modality

DILATIONS = (4, 2, 1)
LIKENESS = 6  # numbers by which two places are found alike
FEATURES = 18  # what the depth encoder is told of a cell


def single(device: torch.device) -> AbstractContextManager[None]:
    """Single precision inside a region of half precision: planes are made of differences."""
    half = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if half else nullcontext()  # type: ignore[return-value]


def soft(x: Tensor) -> Tensor:
    """Nearly x below 1, never beyond 5: neither a wild point nor a wild weight makes an answer that is no number."""
    return x / (1 + x.abs() / 5)


def corners(slopes: Float[Tensor, "b 2 h w"]) -> Float[Tensor, "b 4 h w"]:
    """What a slope adds from a cell's centre to its four pixels, in the order of pixel_unshuffle."""
    x, y = slopes.chunk(2, 1)
    return 0.25 * torch.cat([-x - y, x - y, y - x, x + y], 1)


def neighbours(x: Tensor, dilation: int) -> list[Tensor]:
    """The 3 x 3 neighbours of each cell, the border repeated."""
    height, width = x.shape[-2:]
    padded = F.pad(x, [dilation] * 4, mode="replicate")
    steps = range(0, 2 * dilation + 1, dilation)
    return [padded[..., i : i + height, j : j + width] for i in steps for j in steps]


def shifted(d: Float[Tensor, "b 1 h w"], dilation: int) -> Float[Tensor, "b 9 h w"]:
    return torch.cat(neighbours(d, dilation), 1)


def alike(places: Sequence[Tensor], there: Tensor, dilation: int) -> Tensor:
    """Minus the squared distance between each place's look and those of the 3 x 3 cells, less what all nine share."""
    size, seen = shifted(there.square().sum(1, keepdim=True), dilation), neighbours(there, dilation)
    rows = [2 * torch.cat([(here * t).sum(1, keepdim=True) for t in seen], 1) - size for here in places]
    return torch.cat(rows, 1)


def conv(inputs: int, outputs: int, *, size: int = 3, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2)
    nn.init.kaiming_normal_(layer.weight, a=0.2)
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer


def active(x: Tensor) -> Tensor:
    return F.leaky_relu(x, 0.1)


class ScaleFreeStage(nn.Module):
    """Half the size and a second look; the latent stays linear, so that its average has a direction."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.down, self.mix = conv(inputs, outputs, stride=2), conv(outputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(active(x))
        return x + self.mix(active(x))


class SkipMerge(nn.Module):
    """The coarser decoder features at the skips' size, mixed with them."""

    def __init__(self, inputs: int, skips: int, outputs: int) -> None:
        super().__init__()
        self.up, self.join, self.mix = (
            conv(inputs, outputs, size=1),
            conv(skips, outputs, size=1),
            conv(outputs, outputs),
        )

    def forward(self, x: Tensor, skips: Tensor) -> Tensor:
        height, width = skips.shape[-2:]
        up = F.interpolate(self.up(x), scale_factor=2.0, mode="nearest")[..., :height, :width]
        x = up + self.join(active(skips))
        return active(x + self.mix(active(x)))


@backbones.register("scalefree")
class ScaleFree(Backbone):
    """Encoders of image and points at 1/2 to 1/32 of the size, a decoder to 1/2, a head that answers in spreads."""

    name: ClassVar[str] = "scalefree"
    decoder_parts: ClassVar[tuple[str, ...]] = ("merges", "last", "head")
    pull: Tensor
    push: Tensor
    default_reduction = "relative"
    bounded: ClassVar[bool] = False
    selection: ClassVar[Literal["descriptor", "gaussian"]] = "gaussian"
    sizes_in_graph: ClassVar[bool] = False
    default_pose: ClassVar[dict[str, Any]] = {"kind": "small", "rotation": "axis"}
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {},
        "large": {
            "image_widths": (16, 40, 64, 80, 96),
            "depth_widths": (24, 40, 64, 80, 96),
            "decoder_widths": (32, 64, 80, 96),
        },
    }

    def __init__(
        self,
        depth_range: tuple[float, float] = (0.1, 200.0),
        image_widths: tuple[int, int, int, int, int] = (12, 24, 40, 56, 64),
        depth_widths: tuple[int, int, int, int, int] = (16, 32, 48, 64, 64),
        decoder_widths: tuple[int, int, int, int] = (24, 40, 56, 64),
    ) -> None:
        super().__init__()
        self.depth_range = (float(depth_range[0]), float(depth_range[1]))  # what it is for; no answer is cut to it
        self.image_widths, self.depth_widths = tuple(image_widths), tuple(depth_widths)
        self.decoder_widths = tuple(decoder_widths)
        i, d = self.image_widths, self.depth_widths
        self.image_stages = nn.ModuleList([conv(12, i[0]), *(ScaleFreeStage(a, b) for a, b in pairwise(i))])
        entry = conv(FEATURES + i[0], d[0])
        self.depth_stages = nn.ModuleList([entry, *(ScaleFreeStage(d[n] + i[n], d[n + 1]) for n in range(4))])
        widths = (*self.decoder_widths, i[4] + d[4])
        self.merges = nn.ModuleList([SkipMerge(widths[n + 1], i[n] + d[n], widths[n]) for n in range(4)])
        self.last = conv(widths[0], widths[0])
        nn.init.zeros_(self.last.weight)
        self.parts = (4, 1, 9 * len(DILATIONS), 36, 4, LIKENESS, 4 * LIKENESS)
        self.head = nn.Conv2d(widths[0], sum(self.parts), 1)
        self._start_as_scaffold()
        pull, push = pyramid()
        self.register_buffer("pull", pull, persistent=False)
        self.register_buffer("push", push, persistent=False)
        self.latent_specs = (
            *(LatentSpec(f"skip{n}_image", i[n], Modality.IMAGE) for n in range(4)),
            *(LatentSpec(f"skip{n}_depth", d[n], Modality.DEPTH) for n in range(4)),
            LatentSpec("latent_depth", d[4], Modality.DEPTH),
            LatentSpec("latent_image", i[4], Modality.IMAGE),
            # What describes a frame is what the picture shows at each scale, on average: the number and pattern of
            # points do not change it, and fine structure tells cameras and places apart better than the bottleneck.
            LatentSpec("signature", sum(i[:3]), Modality.IMAGE, bottleneck=True),
        )
        self.default_layers = tuple(s.name for s in self.latent_specs if not s.bottleneck)

    def _start_as_scaffold(self) -> None:
        """Untrained, the answer is the sharp plane, little propagated, with every point kept."""
        nn.init.normal_(self.head.weight, std=1e-2)
        gate, _, near, up, trust, *_ = torch.split(start := torch.zeros(sum(self.parts)), list(self.parts))
        gate[0] = gate[3] = 2.0
        near.view(-1, 9)[:, 4] = 2.0
        up.view(4, 9)[:, 4] = 3.0
        trust += 2.0
        with torch.no_grad():
            self.head.bias.copy_(start)  # type: ignore[union-attr]

    def config(self) -> dict[str, Any]:
        return {
            "depth_range": list(self.depth_range),
            "image_widths": list(self.image_widths),
            "depth_widths": list(self.depth_widths),
            "decoder_widths": list(self.decoder_widths),
        }

    def encode(self, batch: Batch) -> Latents:
        size = batch.size
        image, z = (F.pad(t, [0, size[1] % 2, 0, size[0] % 2]) for t in (batch.image, batch.sparse_depth))
        mask = (z > 0).to(z.dtype)
        count = mask.sum((1, 2, 3), keepdim=True).clamp(min=1)
        known = torch.where(z > 0, z, torch.ones_like(z))
        unit = (known.log().sum((1, 2, 3), keepdim=True) / count).exp()
        v = torch.where(z > 0, known / unit, torch.ones_like(z)).log()
        values, points = F.pixel_unshuffle(v, 2), F.pixel_unshuffle(mask, 2)
        with single(z.device):
            planes = local_planes(values, points, self.pull, self.push)
        features = self._features(planes, values, points)
        image = image - batch.image.mean((1, 2, 3), keepdim=True)
        image = image / (batch.image.std((1, 2, 3), keepdim=True) + 1e-3)
        look, depth = F.pixel_unshuffle(image, 2), features
        layers: dict[str, Tensor] = {}
        for n in range(5):
            before = look
            look = self.image_stages[n](look)
            depth = self.depth_stages[n](torch.cat([depth, look if n == 0 else before], 1))
            layers[f"skip{n}_image"], layers[f"skip{n}_depth"] = look, depth
        layers["latent_image"], layers["latent_depth"] = layers.pop("skip4_image"), layers.pop("skip4_depth")
        shown = [active(layers[f"skip{n}_image"]).mean((2, 3), keepdim=True) for n in range(3)]
        layers["signature"] = torch.cat(shown, 1)
        context = {"planes": planes, "values": values, "points": points, "unit": unit, "size": size}
        return Latents({s.name: layers[s.name] for s in self.latent_specs}, context)

    def _features(self, p: Planes, values: Tensor, points: Tensor) -> Float[Tensor, "b 18 h w"]:
        """What the points say of each cell, in their own spread."""
        slopes = torch.cat([p.slopes_x[:, :1], p.slopes_y[:, :1]], 1)
        sharp = p.guesses[:, :1]
        off = points * (values - sharp - corners(slopes))
        relative = [sharp - p.mean, p.guesses[:, 1:] - sharp, off, 4 * slopes]  # the change over eight pixels
        density = (p.weight.clamp(min=1e-9).log() + 4) / 4
        features = [
            soft(torch.cat(relative, 1) / p.spread),
            points,
            (10 * p.spread).log(),
            density,
            soft(p.reach.sqrt()),
        ]
        return torch.cat(features, 1)

    def decode(self, latents: Latents) -> Depth:
        layers, context = latents.layers, latents.context
        x = active(torch.cat([layers["latent_image"], layers["latent_depth"]], 1))
        for n in (3, 2, 1, 0):
            x = self.merges[n](x, torch.cat([layers[f"skip{n}_image"], layers[f"skip{n}_depth"]], 1))
        x = x + active(self.last(x))
        gate, residual, near, up, trust, look, fine_looks = torch.split(self.head(x).float(), list(self.parts), 1)
        p, values = context["planes"], context["values"]
        gate = gate.softmax(1)
        d = (gate * p.guesses).sum(1, keepdim=True) + p.spread * soft(residual)
        slopes = torch.cat([(gate * s).sum(1, keepdim=True) for s in (p.slopes_x, p.slopes_y)], 1)
        kept = context["points"] * _keep(trust)
        count = kept.sum(1, keepdim=True)
        measured = (kept * (values - corners(slopes))).sum(1, keepdim=True) / count.clamp(min=1e-6)
        held = count.clamp(max=1)
        for n, dilation in enumerate(DILATIONS):
            d = d + held * (measured - d)
            weight = (near[:, 9 * n : 9 * n + 9] + alike([look], look, dilation)).softmax(1)
            d, x, y = ((weight * part).sum(1, keepdim=True) for part in around(d, slopes, dilation))
            slopes = torch.cat([x, y], 1)
        closer = alike(fine_looks.chunk(4, 1), look, 1)
        full = _upsample(d, slopes, up + closer)
        full = full + kept * (values - full)
        depth = context["unit"] * F.pixel_shuffle(full, 2).exp()
        return depth[..., : context["size"][0], : context["size"][1]]


def _keep(trust: Tensor) -> Tensor:
    """1 where a point is believed and 0 where it is an outlier; learns as a sigmoid does."""
    chance = trust.sigmoid()
    return (chance > 0.5).to(chance.dtype) + (chance - chance.detach())


def around(d: Tensor, slopes: Tensor, dilation: int) -> tuple[Tensor, Tensor, Tensor]:
    """The planes of the 3 x 3 cells around each cell, at the cell's own centre (b 9 h w), and their two slopes."""
    x, y = (shifted(s, dilation) for s in slopes.chunk(2, 1))
    away = d.new_tensor([(-i * dilation, -j * dilation) for i in (-1, 0, 1) for j in (-1, 0, 1)])
    return shifted(d, dilation) + x * away[:, 1].view(1, 9, 1, 1) + y * away[:, 0].view(1, 9, 1, 1), x, y


def _upsample(d: Tensor, slopes: Tensor, logits: Float[Tensor, "b 36 h w"]) -> Float[Tensor, "b 4 h w"]:
    """The four pixels of each cell: convex mixes of the planes around it, each continued to the pixel."""
    centre, x, y = around(d, slopes, 1)
    signs = ((-0.25, -0.25), (0.25, -0.25), (-0.25, 0.25), (0.25, 0.25))
    weights = (part.softmax(1) for part in logits.chunk(4, 1))
    pixels = [(w * (centre + i * x + j * y)).sum(1, keepdim=True) for w, (i, j) in zip(weights, signs, strict=True)]
    return torch.cat(pixels, 1)
