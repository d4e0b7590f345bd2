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

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protodepth.backbones.base import Backbone, backbones
from protodepth.backbones.layers import plain_conv
from protodepth.backbones.planes import Planes, local_planes, pyramid
from protodepth.backbones.scalefree_graph import (
    DILATIONS,
    FEATURES,
    LIKENESS,
    SCALES,
    SIGNATURE_PIXELS,
    ScaleFreeInGraph,
    ScaleFreeStage,
    SkipMerge,
    active,
    corners,
    soft,
)
from protodepth.types import Batch, Depth, Float, Latents, LatentSpec, Modality


def _single(device: torch.device) -> AbstractContextManager[None]:
    """Single precision inside a region of half precision: planes are made of differences."""
    half = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if half else nullcontext()  # type: ignore[return-value]


def neighbours(x: Tensor, dilation: int) -> list[Tensor]:
    """The 3 x 3 neighbours of each cell, the border repeated."""
    height, width = x.shape[-2:]
    padded = F.pad(x, [dilation] * 4, mode="replicate")
    steps = range(0, 2 * dilation + 1, dilation)
    return [padded[..., i : i + height, j : j + width] for i in steps for j in steps]


def alike(places: Float[Tensor, "b p c h w"], there: Float[Tensor, "b c h w"], dilation: int) -> Tensor:
    """Minus the squared distance between each place's look and those of the 3 x 3 cells, less what all nine share."""
    size = torch.cat(neighbours(there.square().sum(1, keepdim=True), dilation), 1).unsqueeze(1)
    rows = [(places * t.unsqueeze(1)).sum(2) for t in neighbours(there, dilation)]
    return 2 * torch.stack(rows, 2) - size


def continued(dilation: int) -> Float[Tensor, "27 3 3 3"]:
    """Weights of a convolution that carries the planes (d, slope x, slope y) of the 3 x 3 cells to the cell's centre.

    Nine values at the centre come first, then the nine slopes along x and those along y.
    """
    weight = torch.zeros(3, 9, 3, 3, 3)
    for k, (i, j) in enumerate((i, j) for i in range(3) for j in range(3)):
        weight[0, k, :, i, j] = torch.tensor([1.0, (1 - j) * dilation, (1 - i) * dilation])
        weight[1, k, 1, i, j] = weight[2, k, 2, i, j] = 1
    return weight.flatten(0, 1)


def continued_to_pixels() -> Float[Tensor, "36 3 3 3"]:
    """The same for the four pixels of a cell, a quarter of a cell from its centre: nine values for each."""
    centre, x, y = continued(1).chunk(3)
    return torch.cat([centre + i * x + j * y for j in (-0.25, 0.25) for i in (-0.25, 0.25)])


def around(planes: Float[Tensor, "b 3 h w"], weight: Tensor, dilation: int) -> Float[Tensor, "b p 9 h w"]:
    """The planes of the 3 x 3 cells around each cell, continued by one of the two convolutions above."""
    near = F.conv2d(F.pad(planes, [dilation] * 4, mode="replicate"), weight, dilation=dilation)
    return near.unflatten(1, (-1, 9))  # type: ignore[no-untyped-call]


def _mix(logits: Float[Tensor, "b p 9 h w"], parts: Float[Tensor, "b q 9 h w"]) -> Float[Tensor, "b q h w"]:
    """The parts' mean, weighted by the softmax of the logits."""
    if not torch.onnx.is_in_onnx_export():
        return (logits.softmax(2) * parts).sum(2)
    weights = (logits - logits.amax(2, keepdim=True)).exp()  # in ONNX Runtime a softmax over an inner axis is slow
    return (weights * parts).sum(2) / weights.sum(2)


@backbones.register("scalefree")
class ScaleFree(ScaleFreeInGraph, Backbone):
    """Encoders of image and points at 1/2 to 1/32 of the size, a decoder to 1/2, a head that answers in spreads."""

    name: ClassVar[str] = "scalefree"
    decoder_parts: ClassVar[tuple[str, ...]] = ("merges", "last", "head")
    encoder_parts: ClassVar[tuple[str, ...]] = ("image_stages", "depth_stages")
    to_pixels: Tensor
    default_reduction = "relative"
    bounded: ClassVar[bool] = False
    selection: ClassVar[Literal["descriptor", "gaussian"]] = "gaussian"
    sizes_in_graph: ClassVar[bool] = False
    default_pose: ClassVar[dict[str, Any]] = {"kind": "small", "rotation": "axis"}
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"signature_pixels": SIGNATURE_PIXELS},
        "medium": {  # 2.4 times the parameters where they cost least: full blocks of 16, and wide where cells are few
            "image_widths": (16, 32, 64, 96, 96),
            "depth_widths": (16, 48, 80, 96, 96),
            "decoder_widths": (32, 64, 80, 96),
            "signature_pixels": SIGNATURE_PIXELS,
        },
        "large": {
            "image_widths": (16, 40, 64, 80, 96),
            "depth_widths": (24, 40, 64, 80, 96),
            "decoder_widths": (32, 64, 80, 96),
            "signature_pixels": SIGNATURE_PIXELS,
        },
    }

    def __init__(
        self,
        depth_range: tuple[float, float] = (0.1, 200.0),
        image_widths: tuple[int, int, int, int, int] = (12, 24, 40, 56, 64),
        depth_widths: tuple[int, int, int, int, int] = (16, 32, 48, 64, 64),
        decoder_widths: tuple[int, int, int, int] = (24, 40, 56, 64),
        signature_pixels: int | None = None,  # None: pictures describe themselves at their own size, as models once did
    ) -> None:
        super().__init__()
        self.depth_range = (float(depth_range[0]), float(depth_range[1]))  # what it is for; no answer is cut to it
        self.image_widths, self.depth_widths = tuple(image_widths), tuple(depth_widths)
        self.decoder_widths, self.signature_pixels = tuple(decoder_widths), signature_pixels
        i, d = self.image_widths, self.depth_widths
        self.image_stages = nn.ModuleList([plain_conv(12, i[0]), *(ScaleFreeStage(a, b) for a, b in pairwise(i))])
        entry = plain_conv(FEATURES + i[0], d[0])
        self.depth_stages = nn.ModuleList([entry, *(ScaleFreeStage(d[n] + i[n], d[n + 1]) for n in range(4))])
        widths = (*self.decoder_widths, i[4] + d[4])
        self.merges = nn.ModuleList([SkipMerge(widths[n + 1], i[n] + d[n], widths[n]) for n in range(4)])
        self.last = plain_conv(widths[0], widths[0])
        nn.init.zeros_(self.last.weight)
        self.parts = (4, 1, *[9 for _ in DILATIONS], 36, 4, LIKENESS, 4 * LIKENESS)
        self.head = nn.Conv2d(widths[0], sum(self.parts), 1)
        self._start_as_scaffold()
        gather, pull, push = pyramid()
        self.register_buffer("gather", gather, persistent=False)
        self.register_buffer("pull", pull, persistent=False)
        self.register_buffer("push", push, persistent=False)
        for dilation in DILATIONS:
            self.register_buffer(f"continued{dilation}", continued(dilation), persistent=False)
        self.register_buffer("to_pixels", continued_to_pixels(), persistent=False)
        self.latent_specs = (
            *(LatentSpec(f"skip{n}_image", i[n], Modality.IMAGE) for n in range(4)),
            *(LatentSpec(f"skip{n}_depth", d[n], Modality.DEPTH) for n in range(4)),
            LatentSpec("latent_depth", d[4], Modality.DEPTH),
            LatentSpec("latent_image", i[4], Modality.IMAGE),
            # What describes a frame is what the picture shows at each scale, on average: the number and pattern of
            # points do not change it, and fine structure tells cameras and places apart better than the bottleneck.
            # Every picture is seen at one size: a camera that is set to another resolution is where it was.
            LatentSpec("signature", sum(i[:SCALES]), Modality.IMAGE, bottleneck=True),
        )
        self.default_layers = tuple(s.name for s in self.latent_specs if not s.bottleneck)

    def _start_as_scaffold(self) -> None:
        """Untrained, the answer is the sharp plane, little propagated, with every point kept."""
        nn.init.normal_(self.head.weight, std=1e-2)
        gate, _, *near, up, trust, _, _ = torch.split(start := torch.zeros(sum(self.parts)), list(self.parts))
        gate[0] = gate[3] = 2.0
        for logits in near:
            logits[4] = 2.0
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
            "signature_pixels": self.signature_pixels,
        }

    def encode(self, batch: Batch) -> Latents:
        if torch.onnx.is_in_onnx_export() and self.blocks_in_graph:
            return self.encode_in_graph(batch)
        size = batch.size
        image, z = (F.pad(t, [0, size[1] % 2, 0, size[0] % 2]) for t in (batch.image, batch.sparse_depth))
        mask = (z > 0).to(z.dtype)
        count = mask.sum((1, 2, 3), keepdim=True).clamp(min=1)
        known = torch.where(z > 0, z, torch.ones_like(z))
        unit = (known.log().sum((1, 2, 3), keepdim=True) / count).exp()
        v = torch.where(z > 0, known / unit, torch.ones_like(z)).log()
        values, points = F.pixel_unshuffle(v, 2), F.pixel_unshuffle(mask, 2)
        with _single(z.device):
            planes = local_planes(values, points, self.gather, self.pull, self.push)
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
        shown = self.first_looks(batch.image) or [layers[f"skip{n}_image"] for n in range(SCALES)]
        layers["signature"] = torch.cat([active(x).mean((2, 3), keepdim=True) for x in shown], 1)
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
        if torch.onnx.is_in_onnx_export() and self.blocks_in_graph:
            return self.decode_in_graph(latents)
        layers, context = latents.layers, latents.context
        x = active(torch.cat([layers["latent_image"], layers["latent_depth"]], 1))
        for n in (3, 2, 1, 0):
            x = self.merges[n](x, torch.cat([layers[f"skip{n}_image"], layers[f"skip{n}_depth"]], 1))
        x = x + active(self.last(x))
        answers = self._answers(x)
        with _single(x.device):
            return self._depth(answers, context)

    def _answers(self, x: Tensor) -> Sequence[Tensor]:
        """What the head says.  A graph has a convolution for each part: there, a split of one output is a slow copy."""
        if not torch.onnx.is_in_onnx_export():
            return self.head(x).float().split(self.parts, 1)
        weights, biases = self.head.weight.split(self.parts), self.head.bias.split(self.parts)  # type: ignore[union-attr,no-untyped-call]
        return [F.conv2d(x, w, b) for w, b in zip(weights, biases, strict=True)]

    def _depth(self, answers: Sequence[Tensor], context: Mapping[str, Any]) -> Depth:
        """From the first guess to the full size, as the module's first lines say."""
        gate, residual, *near, up, trust, look, fine_looks = answers
        p, values = context["planes"], context["values"]
        gate = gate.softmax(1)
        d = (gate * p.guesses).sum(1, keepdim=True) + p.spread * soft(residual)
        slopes = torch.cat([(gate * s).sum(1, keepdim=True) for s in (p.slopes_x, p.slopes_y)], 1)
        kept = context["points"] * _keep(trust)
        count = kept.sum(1, keepdim=True)
        measured = (kept * (values - corners(slopes))).sum(1, keepdim=True) / count.clamp(min=1e-6)
        held, here = count.clamp(max=1), look.unsqueeze(1)
        for weight, dilation in zip(near, DILATIONS, strict=True):
            planes = torch.cat([d + held * (measured - d), slopes], 1)
            logits = weight.unsqueeze(1) + alike(here, look, dilation)
            mixed = _mix(logits, around(planes, self.get_buffer(f"continued{dilation}"), dilation))
            d, slopes = mixed[:, :1], mixed[:, 1:]
        fine = fine_looks.unflatten(1, (4, LIKENESS))  # type: ignore[no-untyped-call]
        closer = up.unflatten(1, (4, 9)) + alike(fine, look, 1)  # type: ignore[no-untyped-call]
        full = _mix(closer, around(mixed, self.to_pixels, 1))
        full = full + kept * (values - full)
        depth = context["unit"] * F.pixel_shuffle(full, 2).exp()
        return depth[..., : context["size"][0], : context["size"][1]]


def _keep(trust: Tensor) -> Tensor:
    """1 where a point is believed and 0 where it is an outlier; learns as a sigmoid does."""
    chance = trust.sigmoid()
    return (chance > 0.5).to(chance.dtype) + (chance - chance.detach())
