r"""What `scalefree` and its planes compute, in the form that engines of graphs run fastest: the same function, 1e-5.

ONNX Runtime runs convolutions in blocks of 16 channels and everything else map by map.  So here

    widths     are filled up to blocks of 16 by weights of zero: what is concatenated stays in blocks
    pyramids   a transposed convolution is a repetition of every cell and a 3 x 3 convolution, to which a sum is joined;
               of large maps first along columns, then along rows
    likeness   :math:`|a - b|^2` of two cells is computed once for both of them
    mixes      logits are relative to those of the cell itself, and sums of products grow without a stack of planes
    sums       over a few channels are additions of maps that fit into the cache

``tests/unit/backbones/test_in_graph.py`` compares each of them with the plain form.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protodepth.backbones.planes import (
    LEAST_SPREAD,
    LEAST_VARIANCE,
    MOMENTS,
    NEAREST,
    REACH,
    RIDGE,
    SHARP,
    SMOOTH,
    moved,
)
from protodepth.types import Float

BLOCK = 16
AROUND = tuple((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
MANY_CELLS = 4096  # from here on two convolutions of half the products are faster than one
FORWARD = ((0, 1), (1, -1), (1, 0), (1, 1))  # the other four are these, seen from the other cell
V = MOMENTS.index(("v", 0, 0))


def maps(x: Tensor) -> tuple[Tensor, ...]:
    """The channels, each as a map of its own."""
    return torch.split(x, 1, 1)


def total(parts: Sequence[Tensor]) -> Tensor:
    """The sum of tensors, one after the other."""
    return reduce(add, parts)


def sum_of_all(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 1 1 1"]:
    """Row by row: one sum over a whole picture would lose digits in ONNX Runtime."""
    return x.sum(3, keepdim=True).sum((1, 2), keepdim=True)


def mean_and_spread(image: Float[Tensor, "b c h w"]) -> tuple[Tensor, Tensor]:
    """(mean, standard deviation) of each picture."""
    count = int(image.shape[1]) * int(image.shape[2]) * int(image.shape[3])
    mean = sum_of_all(image) / count
    off = image - mean
    return mean, (sum_of_all(off * off) / (count - 1)).sqrt()


# --- convolutions: their weights are arrays, which a trace takes as the constants that they are -----------------------


def constant(x: Tensor | None) -> np.ndarray:
    """The values of a weight that will not change."""
    assert x is not None
    return x.detach().numpy()


def convolution(x: Tensor, weight: np.ndarray, bias: np.ndarray | None = None, **options: Any) -> Tensor:
    """``conv2d`` with constants, in the precision of x."""
    added = None if bias is None else torch.tensor(bias, dtype=x.dtype)
    return F.conv2d(x, torch.tensor(weight, dtype=x.dtype), added, **options)


def filled(x: np.ndarray, axis: int) -> np.ndarray:
    """Zeros are added until the side is a multiple of the block.

    >>> filled(np.ones((3, 12)), 1).shape
    (3, 16)
    """
    return np.pad(x, [(0, -side % BLOCK if n == axis else 0) for n, side in enumerate(x.shape)])


def convolved(
    layer: nn.Conv2d, x: Tensor, pieces: Sequence[int] = (), *, fill: bool = False, turned: bool = False
) -> Tensor:
    """A layer on pieces of these widths, each filled up (``turned``: which x has the other way round); with ``fill``
    its answer is filled up too.
    """
    weight, bias = constant(layer.weight), constant(layer.bias)
    if pieces:
        parts = [filled(part, 1) for part in np.split(weight, np.cumsum(pieces)[:-1], 1)]
        weight = np.concatenate(parts[::-1] if turned else parts, 1)
    if fill:
        weight, bias = filled(weight, 0), filled(bias, 0)
    return convolution(x, weight, bias, stride=layer.stride[0], padding=int(layer.padding[0]))


def activated(x: Tensor) -> Tensor:
    """Leaky ReLU of what is no convolution's answer: as one that changes nothing, which keeps it in blocks."""
    channels = int(x.shape[1])
    same = convolution(x, np.ones((channels, 1, 1, 1)), groups=channels)
    return F.leaky_relu(same, 0.1)


def on_cells(weight: np.ndarray) -> np.ndarray:
    """Weights of a convolution with stride 2 and padding 2 that is one with padding 1 after ``pixel_unshuffle``."""
    outputs, inputs, height, width = weight.shape
    parts = weight.reshape(outputs, inputs // 4, 2, 2, height, width)
    return parts.transpose(0, 1, 4, 2, 5, 3).reshape(outputs, inputs // 4, 2 * height, 2 * width)


def cells(x: Float[Tensor, "b 1 h w"]) -> Float[Tensor, "b 4 h w"]:
    """``pixel_unshuffle`` by 2, as a convolution."""
    return convolution(x, np.eye(4).reshape(4, 1, 2, 2), stride=2)


def cut(x: Tensor, like: Tensor) -> Tensor:
    """The upper left part that is as large; nothing is cut, and no node made, where the sizes agree."""
    height, width = (int(side) for side in like.shape[-2:])
    return x if (int(x.shape[-2]), int(x.shape[-1])) == (height, width) else x[..., :height, :width]


# --- planes -----------------------------------------------------------------------------------------------------------


def _block_of_moments(weight: np.ndarray) -> np.ndarray:
    """Of all moments, and once more of the two that the nearest points' mean is made of."""
    m, block = len(MOMENTS), np.zeros((BLOCK, BLOCK, *weight.shape[2:]), weight.dtype)
    block[:m, :m] = weight
    block[m, m], block[m + 1, m + 1] = weight[0, 0], weight[V, V]
    return block


def _three_for_four(x: np.ndarray) -> np.ndarray:
    """Weights of a convolution of repeated cells for those of the transposed one with stride 2 and padding 1: the last
    side, 4, becomes 3.

    Left of a cell's centre the cell itself is repeated on the right, and the other way round; moments have weights that
    are the same seen from both sides, which is what lets three numbers stand for four.
    """
    return x @ np.array([[0, -1, 1], [0, 1, 0], [0, 0, 0], [1, 0, 0]], x.dtype)


def repeated_then(push: np.ndarray) -> np.ndarray:
    """Weights of a 3 x 3 convolution of repeated cells that is the transposed one with stride 2 and padding 1."""
    return _three_for_four(_three_for_four(push).transpose(1, 0, 3, 2)).transpose(0, 1, 3, 2)


def columns_and_rows() -> tuple[np.ndarray, np.ndarray]:
    """Weights 1 x 3 and 3 x 1 that after each other are the 3 x 3 ones of :func:`repeated_then`; half the products:
    to move the origin of moments along x and then along y is to move it along both.
    """
    share, four = (0.25, 0.75, 0.75, 0.25), range(4)
    along_x = [share[k] * moved(k - 1.5, 0.0, 1.0).numpy() * [2.0**i for _, i, _ in MOMENTS] for k in four]
    along_y = [share[k] * moved(0.0, k - 1.5, 1.0).numpy() * [2.0**j for _, _, j in MOMENTS] for k in four]
    x, y = (_three_for_four(np.stack(one, -1)) for one in (along_x, along_y))
    return x[:, :, None, :], y[:, :, :, None]


def _pushed(levels: Sequence[Tensor], push: np.ndarray, falloff: np.ndarray) -> Float[Tensor, "b 16 h w"]:
    columns, rows = (_block_of_moments(weight) for weight in columns_and_rows())
    at_once, around = falloff * _block_of_moments(repeated_then(push)), levels[-1]
    for finer in reversed(levels[:-1]):
        if int(finer.shape[-2]) * int(finer.shape[-1]) < MANY_CELLS:
            up = convolution(_repeated(around, 2, 2), at_once, padding=1)
        else:
            wide = convolution(_repeated(around, 1, 2), columns, padding=(0, 1))
            up = convolution(_repeated(wide, 2, 1), falloff * rows, padding=(1, 0))
        around = finer + cut(up, finer)
    return around


def _repeated(x: Tensor, high: int, wide: int) -> Tensor:
    """Every cell so many times below and beside itself."""
    return F.interpolate(x, scale_factor=(float(high), float(wide)), mode="nearest")


class PlaneMaps(NamedTuple):
    """``planes.Planes`` as single maps; the nearest points' mean, the second guess, has no slopes."""

    guesses: tuple[Tensor, Tensor, Tensor, Tensor]
    slopes_x: tuple[Tensor, ...]
    slopes_y: tuple[Tensor, ...]
    mean: Tensor
    spread: Tensor
    weight: tuple[Tensor, Tensor]
    reach: Tensor


class _FitOfMaps:
    """``planes.LocalFit`` on single maps."""

    def __init__(self, moments: Sequence[Tensor], ridge: float) -> None:
        self.weight = moments[0].clamp(min=1e-30)
        self.share = 1 / self.weight
        self.x, self.y, xx, xy, yy = (m * self.share for m in moments[1:6])
        vx, vy = (xx - self.x * self.x).clamp(min=0), (yy - self.y * self.y).clamp(min=0)
        self.variance, c = vx + vy, xy - self.x * self.y
        extra = ridge * self.variance + LEAST_VARIANCE
        a, b = vx + extra, vy + extra
        scale = 1 / (a * b - c * c)
        self.xx, self.xy, self.yy = b * scale, c * scale, a * scale

    def plane(self, moments: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """(the value at the cell, its two slopes)."""
        mean, xv, yv = (m * self.share for m in moments)
        cx, cy = xv - self.x * mean, yv - self.y * mean
        sx, sy = self.xx * cx - self.xy * cy, self.yy * cy - self.xy * cx
        return mean - sx * self.x - sy * self.y, sx, sy


def local_planes(
    values: Float[Tensor, "b 4 h w"],
    points: Float[Tensor, "b 4 h w"],
    inverse: Float[Tensor, "b 4 h w"],
    weights: tuple[Tensor, Tensor, Tensor],
) -> PlaneMaps:
    """``planes.local_planes``; ``inverse`` is the points' inverse depth, ``weights`` those of its pyramid."""
    gather, pull, push = (constant(w) for w in weights)
    gather = filled(np.concatenate([gather, gather[:1], gather[V : V + 1]]), 0)
    levels = [convolution(torch.cat([points, values, values * values, inverse], 1), gather)]
    while max(int(side) for side in levels[-1].shape[-2:]) > 1:
        height, width = (int(side) for side in levels[-1].shape[-2:])
        finer = F.pad(levels[-1], [0, width % 2, 0, height % 2]) if height % 2 or width % 2 else levels[-1]
        levels.append(convolution(finer, _block_of_moments(pull), stride=2))
    sharp = np.where(np.arange(BLOCK) < len(MOMENTS), SHARP, NEAREST).reshape(BLOCK, 1, 1, 1)
    near, around = (maps(_pushed(levels, push, falloff)) for falloff in (sharp, np.full_like(sharp, SMOOTH)))
    return _planes(near, around)


def _planes(near: Sequence[Tensor], around: Sequence[Tensor]) -> PlaneMaps:
    """From the moments of the points nearby and of those farther around."""
    m, fit, wide = len(MOMENTS), _FitOfMaps(near, RIDGE[0]), _FitOfMaps(around, RIDGE[1])
    sharp, *sharp_slopes = fit.plane(near[6:9])
    smooth, *smooth_slopes = wide.plane(around[6:9])
    flat, *flat_slopes = wide.plane(around[10:13])
    mean, square = around[6] * wide.share, around[9] * wide.share
    spread = ((square - mean * mean).clamp(min=0) + LEAST_SPREAD**2).sqrt()
    reach = REACH * spread
    low, high, less = mean - reach, mean + reach, -spread
    flat = _between(flat, (-high).exp(), (-low).exp())
    nearest, turned = near[m + 1] / near[m].clamp(min=1e-30), -1 / flat
    slopes = zip(sharp_slopes, smooth_slopes, (s * turned for s in flat_slopes), strict=True)
    x, y = (tuple(_between(s, less, spread) for s in three) for three in slopes)
    return PlaneMaps(
        guesses=(_between(sharp, low, high), nearest, _between(smooth, low, high), -flat.log()),
        slopes_x=x,
        slopes_y=y,
        mean=mean,
        spread=spread,
        weight=(fit.weight, wide.weight),
        reach=(wide.x * wide.x + wide.y * wide.y) / (wide.variance + LEAST_VARIANCE),
    )


def _between(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(x, low), high)


# --- propagation ------------------------------------------------------------------------------------------------------


def relative(rows: np.ndarray, own: int) -> np.ndarray:
    """Rows less the row ``own``, which is left out."""
    return np.delete(rows, own, 0) - rows[own : own + 1]


def weights_of(logits: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """(the weight of the cell itself, those of the others): as in a softmax, but not yet divided by their sum."""
    highest = reduce(torch.maximum, logits).clamp(min=0)
    return (-highest).exp(), [(part - highest).exp() for part in logits]


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """The sum of products over the channels, an even number of them: one reduction of both halves is the fast one."""
    channels, height, width = (int(side) for side in a.shape[1:])
    return total(maps((a * b).reshape(-1, 2, channels // 2, height, width).sum(2)))


def _shifted(x: Tensor, dilation: int) -> dict[tuple[int, int], Tensor]:
    """The eight neighbours of each cell, the border repeated."""
    height, width = (int(side) for side in x.shape[-2:])
    wide = F.pad(x, [dilation] * 4, mode="replicate")
    starts = {n: dilation * (1 + n) for n in (-1, 0, 1)}
    rows = {i: wide[..., starts[i] : starts[i] + height, :] for i in (-1, 0, 1)}
    return {(i, j): rows[i][..., starts[j] : starts[j] + width] for i, j in AROUND}


def distances(look: Float[Tensor, "b c h w"], dilation: int) -> list[Tensor]:
    """Squared distances between each cell's look and those of its eight neighbours.

    That to a neighbour on the right is, seen from there, that to one on the left: on a map with the border around, four
    differences give all eight.
    """
    height, width = (int(side) for side in look.shape[-2:])
    wide = F.pad(look, [dilation] * 4, mode="replicate")
    table: dict[tuple[int, int], Tensor] = {}
    for i, j in FORWARD:
        top, left = dilation * (1 - i), dilation * (1 - max(j, 0))
        tall, broad = height + dilation * i, width + dilation * abs(j)
        here = wide[..., top : top + tall, left : left + broad]
        down, right = top + dilation * i, left + dilation * j
        there = wide[..., down : down + tall, right : right + broad]
        off = here - there
        apart = _dot(off, off)
        table[i, j] = apart[..., dilation * i :, dilation * max(j, 0) :][..., :width]
        table[-i, -j] = apart[..., :height, dilation * max(-j, 0) :][..., :width]
    return [table[place] for place in AROUND]


def mixed(logits: Sequence[Tensor], planes: Float[Tensor, "b 3 h w"], dilation: int) -> Float[Tensor, "b 3 h w"]:
    """The planes (d, slope x, slope y) of the cell and its neighbours, continued to the cell and averaged."""
    there, (own, weights) = _shifted(planes, dilation), weights_of(logits)
    parts = {place: weight * there[place] for place, weight in zip(AROUND, weights, strict=True)}
    left, right = (total([parts[i, j] for i in (-1, 0, 1)]) for j in (-1, 1))
    above, below = (total([parts[i, j] for j in (-1, 0, 1)]) for i in (-1, 1))
    every = own * planes + left + right + parts[-1, 0] + parts[1, 0]
    d, x, y = maps(every)
    carried = maps(left - right)[1] + maps(above - below)[2]
    return torch.cat([d + dilation * carried, x, y], 1) / (own + total(weights))


def mixed_to_pixels(
    described: tuple[Float[Tensor, "b c h w"], Float[Tensor, "b 4c h w"]],
    logits: Float[Tensor, "b 32 h w"],
    planes: Float[Tensor, "b 3 h w"],
) -> Float[Tensor, "b 4 h w"]:
    """The same at the four pixels of each cell.

    ``described`` are the looks of cells and twice those of their pixels, ``logits`` four for each neighbour.
    """
    coarse, fine = described
    both = torch.cat([coarse, _dot(coarse, coarse)], 1)
    channels, height, width = (int(side) for side in coarse.shape[1:])
    pixels = fine.reshape(-1, 4, channels, height, width)
    x, y = (
        torch.tensor(s, dtype=fine.dtype).view(1, 4, 1, 1)
        for s in ([-0.25, 0.25, -0.25, 0.25], [-0.25, -0.25, 0.25, 0.25])
    )
    around, there = _shifted(both, 1), _shifted(planes, 1)
    nearer = []
    for place, own in zip(AROUND, torch.split(logits, 4, 1), strict=True):
        toward, size = torch.split(around[place] - both, [channels, 1], 1)
        nearer.append((pixels * toward.unsqueeze(1)).sum(2) - size + own)
    first, weights = weights_of(nearer)
    d, slope_x, slope_y = maps(planes)
    values = first * (d + x * slope_x + y * slope_y)
    for (i, j), weight in zip(AROUND, weights, strict=True):
        d, slope_x, slope_y = maps(there[i, j])
        values = values + weight * (d + (x - j) * slope_x + (y - i) * slope_y)
    return values / (first + total(weights))
