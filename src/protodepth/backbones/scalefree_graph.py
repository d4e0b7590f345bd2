"""`scalefree` as a graph: its parts, and the same function in the form of in_graph.py."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protodepth.backbones import in_graph
from protodepth.backbones.in_graph import (
    PlaneMaps,
    activated,
    constant,
    convolution,
    convolved,
    filled,
    maps,
    relative,
    total,
)
from protodepth.backbones.layers import plain_conv, resized
from protodepth.types import Batch, Depth, Float, Image, Latents, LatentSpec

DILATIONS = (4, 2, 1)
LIKENESS = 6  # numbers by which two places are found alike
SIGNATURE_PIXELS = 120 * 160  # of the picture that describes a frame
SCALES = 3  # at which it does
FEATURES = 18  # what the depth encoder is told of a cell


def soft(x: Tensor) -> Tensor:
    """Nearly x below 1, never beyond 5: neither a wild point nor a wild weight makes an answer that is no number."""
    return x / (1 + x.abs() / 5)


def corners(slopes: Float[Tensor, "b 2 h w"]) -> Float[Tensor, "b 4 h w"]:
    """What a slope adds from a cell's centre to its four pixels, in the order of pixel_unshuffle."""
    x, y = slopes.chunk(2, 1)
    return 0.25 * torch.cat([-x - y, x - y, y - x, x + y], 1)


def _even(x: float) -> int:
    """The next even number, 2 at least.

    >>> _even(90.7), _even(0.3)
    (90, 2)
    """
    return max(2, 2 * round(x / 2))


def active(x: Tensor) -> Tensor:
    """The network's leaky ReLU: a tenth below zero."""
    return F.leaky_relu(x, 0.1)


class ScaleFreeStage(nn.Module):
    """Half the size and a second look; the latent stays linear, so that its average has a direction."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.down, self.mix = plain_conv(inputs, outputs, stride=2), plain_conv(outputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(active(x))
        return x + self.mix(active(x))


class SkipMerge(nn.Module):
    """The coarser decoder features at the skips' size, mixed with them."""

    def __init__(self, inputs: int, skips: int, outputs: int) -> None:
        super().__init__()
        self.up, self.join, self.mix = (
            plain_conv(inputs, outputs, size=1),
            plain_conv(skips, outputs, size=1),
            plain_conv(outputs, outputs),
        )

    def forward(self, x: Tensor, skips: Tensor) -> Tensor:
        height, width = skips.shape[-2:]
        up = F.interpolate(self.up(x), scale_factor=2.0, mode="nearest")[..., :height, :width]
        x = up + self.join(active(skips))
        return active(x + self.mix(active(x)))


class ScaleFreeInGraph(nn.Module):
    """What ``ScaleFree`` has and what it computes while it is exported; in_graph.py says what is different, and why."""

    blocks_in_graph: bool
    image_widths: tuple[int, ...]
    depth_widths: tuple[int, ...]
    decoder_widths: tuple[int, ...]
    signature_pixels: int | None
    image_stages: nn.ModuleList
    depth_stages: nn.ModuleList
    merges: nn.ModuleList
    last: nn.Conv2d
    head: nn.Conv2d
    parts: tuple[int, ...]
    latent_specs: tuple[LatentSpec, ...]
    gather: Tensor
    pull: Tensor
    push: Tensor

    def encode_in_graph(self, batch: Batch) -> Latents:
        size = batch.size
        odd = [0, int(size[1]) % 2, 0, int(size[0]) % 2]
        image, z = (F.pad(t, odd) if any(odd) else t for t in (batch.image, batch.sparse_depth))
        z = in_graph.cells(z)
        points = (z > 0).to(z.dtype)
        known = torch.where(z > 0, z, torch.ones_like(z))
        logs = known.log()
        middle = in_graph.sum_of_all(logs) / in_graph.sum_of_all(points).clamp(min=1)
        unit, values = middle.exp(), (logs - middle) * points
        weights = (self.gather, self.pull, self.push)
        planes = in_graph.local_planes(values, points, points * unit / known, weights)
        mean, spread = in_graph.mean_and_spread(batch.image)
        image = (image - mean) / (spread + 1e-3)
        first, (i, d) = self.image_stages[0], (self.image_widths, self.depth_widths)
        assert isinstance(first, nn.Conv2d)
        weight, bias = in_graph.on_cells(constant(first.weight)), constant(first.bias)
        look = convolution(image, filled(weight, 0), filled(bias, 0), stride=2, padding=2)
        depth = self._entry(self._features_of_maps(planes, values, points), look)
        wide = {"skip0_image": look, "skip0_depth": depth}
        for n in range(1, 5):
            shown = activated(look)
            both = torch.cat([shown, activated(depth)], 1)
            look = _stage(self.image_stages[n], shown, i[n - 1 : n])
            depth = _stage(self.depth_stages[n], both, (d[n - 1], i[n - 1]))
            wide[f"skip{n}_image"], wide[f"skip{n}_depth"] = look, depth
        wide["latent_image"], wide["latent_depth"] = wide.pop("skip4_image"), wide.pop("skip4_depth")
        seen = self.first_looks(batch.image) or [wide[f"skip{n}_image"][:, : i[n]] for n in range(SCALES)]
        layers = {s.name: wide[s.name][:, : s.channels] for s in self.latent_specs if s.name in wide}
        layers["signature"] = torch.cat([active(x).mean((2, 3), keepdim=True) for x in seen], 1)
        context = {"planes": planes, "values": values, "points": points, "unit": unit, "size": size}
        return Latents(layers, {**context, "filled": {name: (layers[name], wide[name]) for name in wide}})

    def first_looks(self, image: Image) -> list[Tensor]:
        """What the image encoder's first stages give of the picture at the size of signatures; none where its own is
        that size.
        """
        if self.signature_pixels is None:
            return []
        height, width = (int(n) for n in image.shape[-2:])
        factor = (self.signature_pixels / (height * width)) ** 0.5
        small = resized(image, (_even(height * factor), _even(width * factor)))
        mean, spread = in_graph.mean_and_spread(small)
        look, out = F.pixel_unshuffle((small - mean) / (spread + 1e-3), 2), []
        for stage in self.image_stages[:SCALES]:
            look = stage(look)
            out.append(look)
        return out

    def _entry(self, features: Sequence[Tensor], look: Tensor) -> Tensor:
        """A sum of convolutions: of fewer channels than a block ONNX Runtime takes maps as they are, and the look stays
        in its block.
        """
        entry = self.depth_stages[0]
        assert isinstance(entry, nn.Conv2d)
        ends = np.cumsum([int(part.shape[1]) for part in features])
        *weights, of_look = np.split(filled(constant(entry.weight), 0), ends, 1)
        x = convolution(look, filled(of_look, 1), filled(constant(entry.bias), 0), padding=1)
        for part, weight in zip(features, weights, strict=True):
            x = x + convolution(part, weight, padding=1)
        return x

    def _features_of_maps(self, p: PlaneMaps, values: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        slopes = torch.cat([p.slopes_x[0], p.slopes_y[0]], 1)
        sharp, *others = p.guesses
        off = points * (values - sharp - corners(slopes))
        relative = torch.cat([sharp - p.mean, *(g - sharp for g in others), off, 4 * slopes], 1)
        density = [0.25 * w.clamp(min=1e-9).log() + 1 for w in p.weight]
        return (
            soft(relative / p.spread),
            torch.cat([points, (10 * p.spread).log(), *density, soft(p.reach.sqrt())], 1),
        )

    def decode_in_graph(self, latents: Latents) -> Depth:
        i, d, x = self.image_widths, self.depth_widths, _shown(latents, "latent")
        pieces: Sequence[int] = (i[4], d[4])
        for n in (3, 2, 1, 0):
            merge, skips = self.merges[n], _shown(latents, f"skip{n}")
            assert isinstance(merge, SkipMerge)
            up = F.interpolate(convolved(merge.up, x, pieces, fill=True), scale_factor=2.0, mode="nearest")
            x = in_graph.cut(up, skips) + convolved(merge.join, skips, (i[n], d[n]), fill=True)
            pieces = self.decoder_widths[n : n + 1]
            x = activated(x + convolved(merge.mix, activated(x), pieces, fill=True))
        x = x + active(convolved(self.last, x, pieces, fill=True))
        return self._depth_of_maps(self._relative_answers(x), latents.context)

    def _relative_answers(self, x: Tensor) -> list[Tensor]:
        """What the head says, relative to what it says of the cell itself, as in_graph wants it: gate, residual, trust
        and look, then the logits of the cells around, those of the pixels, and twice the pixels' looks.
        """
        rows, ends = [], np.cumsum(self.parts)[:-1]
        for t in (constant(self.head.weight), constant(self.head.bias)):
            gate, residual, *near, up, trust, look, fine = np.split(t, ends)
            pixels = np.stack([relative(pixel, 4) for pixel in np.split(up, 4)], 1).reshape(32, *up.shape[1:])
            first = np.concatenate([relative(gate, 0), residual, trust, look])
            rows.append([first, np.concatenate([relative(n, 4) for n in near]), pixels, 2 * fine])
        return [convolution(x, filled(w, 1), b) for w, b in zip(*rows, strict=True)]

    def _depth_of_maps(self, answers: Sequence[Tensor], context: Mapping[str, Any]) -> Depth:
        first, near, up, fine = answers
        gate, residual, trust, look = torch.split(first, [3, 1, 4, LIKENESS], 1)
        p, values = context["planes"], context["values"]
        own, others = in_graph.weights_of(maps(gate))
        share = 1 / (own + total(others))
        sharp, nearest, smooth, flat = (w * share for w in (own, *others))
        gates = (sharp, smooth, flat)  # of what has slopes

        def gated(weights: Sequence[Tensor], parts: Sequence[Tensor]) -> Tensor:
            return total([w * part for w, part in zip(weights, parts, strict=True)])

        d = gated((sharp, nearest, smooth, flat), p.guesses) + p.spread * soft(residual)
        slopes = torch.cat([gated(gates, s) for s in (p.slopes_x, p.slopes_y)], 1)
        kept = context["points"] * (trust > 0).to(trust.dtype)
        count = total(maps(kept))
        measured = total(maps(kept * (values - corners(slopes)))) / count.clamp(min=1e-6)
        held = count.clamp(max=1)
        logits = maps(near)  # eight neighbours at each dilation
        for n, dilation in enumerate(DILATIONS):
            planes = torch.cat([d + held * (measured - d), slopes], 1)
            apart = in_graph.distances(look, dilation)
            nearer = [x - far for x, far in zip(logits[8 * n : 8 * n + 8], apart, strict=True)]
            mixed = in_graph.mixed(nearer, planes, dilation)
            d, slopes = torch.split(mixed, [1, 2], 1)
        full = in_graph.mixed_to_pixels((look, fine), up, mixed)
        full = full + kept * (values - full)
        depth = context["unit"] * F.pixel_shuffle(full, 2).exp()
        height, width = (int(side) for side in context["size"])
        return depth[..., :height, :width] if height % 2 or width % 2 else depth


def _shown(latents: Latents, name: str) -> Tensor:
    """The activated layers of image and points, filled up; those that nobody changed still are."""
    parts = []
    for layer in (f"{name}_image", f"{name}_depth"):
        x, (given, wide) = latents.layers[layer], latents.context["filled"][layer]
        x = wide if x is given else F.pad(x, [0, 0, 0, 0, 0, wide.shape[1] - x.shape[1]])
        parts.append(activated(x))
    return torch.cat(parts, 1)


def _stage(stage: nn.Module, x: Tensor, pieces: Sequence[int]) -> Tensor:
    assert isinstance(stage, ScaleFreeStage)
    x = convolved(stage.down, x, pieces, fill=True, turned=True)
    return x + convolved(stage.mix, activated(x), stage.mix.weight.shape[1:2], fill=True)
