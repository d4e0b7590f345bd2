r"""Local planes of scattered points, by moving least squares on a pull-push pyramid.

Moments 1, x, y, xx, xy, yy, v, xv, yv, ... of the points are averaged over growing cells and spread again, nearer cells
counting more; at each cell a 2 x 2 system gives the plane through the points around it.  Tensor operations only: it
exports, and on a batch it is what it is on single images.
"""

from collections.abc import Sequence
from math import comb
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from protodepth.types import Float

NEAREST, SHARP, SMOOTH = 0.004, 0.02, 0.35  # how little a cell of twice the size counts
RIDGE = (0.01, 0.05)  # of the sharp and the smooth plane, as a share of the points' variance
LEAST_SPREAD = 0.006  # of log depth: six parts in a thousand
REACH = 4.0  # a plane stays within so many spreads of the local mean
LEAST_VARIANCE = 0.25  # of the points around a cell, in cells: a quarter is one pixel

# Powers of x and y, and of what they are multiplied with: nothing, v, v squared or the inverse depth q = exp(-v).
MOMENTS = (
    ("", 0, 0), ("", 1, 0), ("", 0, 1), ("", 2, 0), ("", 1, 1), ("", 0, 2),
    ("v", 0, 0), ("v", 1, 0), ("v", 0, 1), ("vv", 0, 0), ("q", 0, 0), ("q", 1, 0), ("q", 0, 1),
)  # fmt: skip


class Planes(NamedTuple):
    """What the points say at each cell, in log depth relative to the image's mean; slopes per cell.

    The four guesses: a sharp plane of log depth, the nearest points' mean, smooth planes of log depth and of inverse
    depth (in which a flat wall or floor is linear).
    """

    guesses: Float[Tensor, "b 4 h w"]
    slopes_x: Float[Tensor, "b 4 h w"]
    slopes_y: Float[Tensor, "b 4 h w"]
    mean: Tensor
    spread: Tensor
    weight: Float[Tensor, "b 2 h w"]  # how much the points nearby count, sharp and smooth
    reach: Tensor  # squared distance of the cell from the centre of its points, in their own variance


def moved(x: float, y: float, scale: float) -> Float[Tensor, "m m"]:
    r"""Turns moments :math:`\sum x^i y^j v` about one origin into those about (x, y), in units of ``scale``.

    >>> m = torch.tensor([1.0, 3, 4, 9, 12, 16, 2, 6, 8, 4, 0, 0, 0])  # one point at (3, 4) with v = 2
    >>> (moved(1.0, 1.0, 1.0) @ m).tolist()[:6]
    [1.0, 2.0, 3.0, 4.0, 6.0, 9.0]
    """
    matrix = torch.zeros(len(MOMENTS), len(MOMENTS))
    for row, (of, i, j) in enumerate(MOMENTS):
        for a in range(i + 1):
            for b in range(j + 1):
                share = comb(i, a) * comb(j, b) * (-x) ** (i - a) * (-y) ** (j - b)
                matrix[row, MOMENTS.index((of, a, b))] = share / scale ** (i + j)
    return matrix


def gathered() -> Float[Tensor, "m 16 1 1"]:
    """Weights of a 1 x 1 convolution from (1, v, v squared, q) of a cell's four pixels to the moments of the cell."""
    weight = torch.zeros(len(MOMENTS), 4, 4)
    for row, (of, i, j) in enumerate(MOMENTS):
        for pixel, (x, y) in enumerate(((-0.25, -0.25), (0.25, -0.25), (-0.25, 0.25), (0.25, 0.25))):
            weight[row, ("", "v", "vv", "q").index(of), pixel] = x**i * y**j
    return weight.view(len(MOMENTS), 16, 1, 1)


def pyramid() -> tuple[Float[Tensor, "m 16 1 1"], Float[Tensor, "m m 2 2"], Float[Tensor, "m m 4 4"]]:
    """Weights of convolutions: one that makes moments of a cell's pixels, one that averages the moments of 2 x 2 cells,
    and a transposed one that spreads them.

    Each cell's moments are about its own centre, in cells: about one origin for all, the digits that planes are made of
    would be lost.
    """
    pull = torch.stack([torch.stack([moved(0.5 - j, 0.5 - i, 2.0) / 4 for j in (0, 1)], -1) for i in (0, 1)], -2)
    share = (0.25, 0.75, 0.75, 0.25)
    push = [[share[i] * share[j] * moved(j - 1.5, i - 1.5, 1.0) for j in range(4)] for i in range(4)]
    double = torch.diag(torch.tensor([2.0 ** (i + j) for _, i, j in MOMENTS]))
    return gathered(), pull, torch.stack([torch.stack([(m @ double).mT for m in row], -1) for row in push], -2)


def _pulled(total: Float[Tensor, "b m h w"], pull: Tensor) -> list[Tensor]:
    """Moments of growing cells, each of four of the level before."""
    levels = [total]
    while max(levels[-1].shape[-2:]) > 1:
        height, width = levels[-1].shape[-2:]
        levels.append(F.conv2d(F.pad(levels[-1], [0, width % 2, 0, height % 2]), pull, stride=2))
    return levels


def _pushed(levels: Sequence[Tensor], push: Tensor, falloff: float) -> Float[Tensor, "b m h w"]:
    """Moments of the points around every cell: those of growing cells added up, a coarser one counting ``falloff``."""
    around, weight = levels[-1], push * falloff
    for finer in reversed(levels[:-1]):
        up = F.conv_transpose2d(around, weight, stride=2, padding=1)
        around = finer + up[..., : finer.shape[-2], : finer.shape[-1]]
    return around


class LocalFit(NamedTuple):
    """Weighted means and variances of the points' places around each cell, ready for a linear fit of any value."""

    weight: Tensor
    place: Float[Tensor, "b 2 h w"]
    variance: Tensor  # of x and y together
    inverse: tuple[Tensor, Tensor, Tensor]  # of the 2 x 2 covariance with its ridge: xx, xy, yy

    def plane(self, value: Float[Tensor, "b 3 h w"]) -> tuple[Tensor, Tensor]:
        """(the value at the cell, its slopes) of the least-squares plane; ``value`` is its moments 1, x, y."""
        mean, xv, yv = (value / self.weight).chunk(3, 1)
        x, y = self.place.chunk(2, 1)
        cx, cy = xv - x * mean, yv - y * mean
        xx, xy, yy = self.inverse
        slopes = torch.cat([xx * cx + xy * cy, xy * cx + yy * cy], 1)
        return mean - (slopes * self.place).sum(1, keepdim=True), slopes


def _places(u: Float[Tensor, "b m h w"], ridge: float) -> LocalFit:
    weight = u[:, :1].clamp(min=1e-30)
    x, y, xx, xy, yy = (u[:, 1:6] / weight).chunk(5, 1)
    vx, vy, c = (xx - x * x).clamp(min=0), (yy - y * y).clamp(min=0), xy - x * y
    extra = ridge * (vx + vy) + LEAST_VARIANCE
    a, b = vx + extra, vy + extra
    determinant = a * b - c * c
    return LocalFit(weight, torch.cat([x, y], 1), vx + vy, (b / determinant, -c / determinant, a / determinant))


def local_planes(
    values: Float[Tensor, "b 4 h w"], points: Float[Tensor, "b 4 h w"], gather: Tensor, pull: Tensor, push: Tensor
) -> Planes:
    """Planes at cells of 2 x 2 pixels, from the log depth of their pixels and where there are points."""
    v, q = values * points, (-values).exp() * points
    total = F.conv2d(torch.cat([points, v, v * values, q], 1), gather)
    levels, few = _pulled(total, pull), [0, MOMENTS.index(("v", 0, 0))]
    near, around = _pushed(levels, push, SHARP), _pushed(levels, push, SMOOTH)
    # of these two moments nothing is mixed in when the origin moves
    nearest = _pushed([level[:, few] for level in levels], push[few][:, few], NEAREST)
    fit, wide = _places(near, RIDGE[0]), _places(around, RIDGE[1])
    sharp, slopes = fit.plane(near[:, 6:9])
    smooth, smooth_slopes = wide.plane(around[:, 6:9])
    flat, flat_slopes = wide.plane(around[:, 10:13])
    mean, square = around[:, 6:7] / wide.weight, around[:, 9:10] / wide.weight
    spread = ((square - mean * mean).clamp(min=0) + LEAST_SPREAD**2).sqrt()
    low, high = mean - REACH * spread, mean + REACH * spread
    flat = flat.clamp((-high).exp(), (-low).exp())
    zero = torch.zeros_like(mean)
    guesses = torch.cat(
        [
            sharp.clamp(low, high),
            nearest[:, 1:] / nearest[:, :1].clamp(min=1e-30),
            smooth.clamp(low, high),
            -flat.log(),
        ],
        1,
    )
    x, y = (
        torch.cat([slopes[:, n : n + 1], zero, smooth_slopes[:, n : n + 1], -flat_slopes[:, n : n + 1] / flat], 1)
        for n in (0, 1)
    )
    return Planes(
        guesses=guesses,
        slopes_x=x.clamp(-spread, spread),  # of two points that nearly touch, a plane can be as steep as it likes
        slopes_y=y.clamp(-spread, spread),
        mean=mean,
        spread=spread,
        weight=torch.cat([fit.weight, wide.weight], 1),
        reach=wide.place.square().sum(1, keepdim=True) / (wide.variance + LEAST_VARIANCE),
    )
