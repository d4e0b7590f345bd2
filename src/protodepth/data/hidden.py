"""Hidden points: a recording has no labels, but a sparse point that the network was not shown is one.

Single points are hidden, and whole blocks of them: a network that only has to bridge the gap to the next point learns
(and is judged by) nothing else.  Of a dense map nearly all may be hidden: it teaches to complete points of every
density and pattern, and holes.  Whoever judges weighs the hidden points by how far they lie from the next shown one,
as the pixels of the image do: corners crowd together, so that a hidden corner alone is an easy question.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from scipy import ndimage

from protodepth.data.sampling import clustered, harris, holes, tof
from protodepth.errors import ConfigError
from protodepth.types import Batch, Bool, Float

MOST = 0.7  # share of a frame's points that is hidden at most
BINS = (1.5, 3.0, 6.0, 12.0, 24.0, 48.0)  # pixels from the next shown point: where one bin ends and the next begins
DENSE = 0.15  # share of the pixels with depth from which on a map is dense: then most of it can be hidden
SCAN = 1000  # points from which on a sparse map can be thinned and still say something
HEAVIEST = 10.0  # no hidden point counts more than this many times the average
FEWEST = 5  # points that a thinned map keeps
Thinning = Literal["even", "corners", "edges", "crowded", "grid"]  # how the points lie that a thinned map keeps


@dataclass(frozen=True, slots=True, kw_only=True)
class HideConfig:
    """How much of a frame's sparse points is hidden.
    Ranges are drawn from for each frame and step, so that densities vary.
    """

    points: tuple[float, float] = (0.1, 0.6)  # share of the points hidden one by one
    blocks: tuple[int, int] = (1, 6)  # rectangles in which every point is hidden
    side: tuple[float, float] = (0.05, 0.3)  # of a rectangle, as a share of the image's shorter side
    blocky: float = 0.5  # share of the frames that have rectangles; these hide fewer single points, dense maps none

    # Of a dense map: how often it is thinned to points, to which share of its pixels (drawn evenly in the logarithm),
    # and how these lie, one way as often as another.  Where it is neither thinned nor has rectangles it gets holes.
    thinned: float = 0.8
    thinned_to: tuple[float, float] = (0.001, 0.15)
    ways: tuple[Thinning, ...] = (
        *("even", "even", "even", "even"),
        *("corners", "corners", "edges", "crowded", "crowded", "grid"),
    )
    holes: tuple[int, int] = (3, 14)

    # Of a scan (sparse, but a thousand points or more): how often it is thinned, and to which share of its points.
    sparser: float = 0.6
    sparser_to: tuple[float, float] = (0.006, 0.5)

    def __post_init__(self) -> None:
        for name, most in (("points", MOST), ("side", 1.0), ("thinned_to", 1.0), ("sparser_to", 1.0)):
            low, high = getattr(self, name)
            if not 0 <= low <= high <= most:
                raise ConfigError(f"hidden {name} must be a range within 0 to {most:g}, got ({low:g}, {high:g})")
        if not (
            0 <= self.blocks[0] <= self.blocks[1]
            and 0 <= self.blocky <= 1
            and self.thinned_to[0] > 0
            and self.sparser_to[0] > 0
            and 1 <= self.holes[0] <= self.holes[1]
            and self.ways
        ):
            raise ConfigError(
                "hidden blocks must be a range from 0 on, holes one from 1 on, blocky a share, and ways at least one; "
                f"got {self.blocks}, {self.holes}, {self.blocky}, {self.ways}"
            )


def _thin_out(
    points: Bool[np.ndarray, "h w"], image: np.ndarray | None, config: HideConfig, rng: np.random.Generator
) -> Bool[np.ndarray, "h w"]:
    """The few points of a dense map that stay: drawn evenly or, where there is an image, in another way."""
    places = np.flatnonzero(points)
    share = np.exp(rng.uniform(*np.log(config.thinned_to)))
    count = min(len(places) - 1, max(FEWEST, round(share * len(places))))
    way = config.ways[rng.integers(len(config.ways))]
    if image is not None and way != "even":
        stay = _patterned(way, points, image, count, rng)
        if min(FEWEST, count) <= stay.sum() < len(places):  # a wall without corners is thinned evenly
            return stay
    stay = np.zeros_like(points)
    stay.flat[rng.choice(places, count, replace=False)] = True
    return stay


def _patterned(
    way: Thinning, points: Bool[np.ndarray, "h w"], image: np.ndarray, count: int, rng: np.random.Generator
) -> Bool[np.ndarray, "h w"]:
    """About so many of the points, as trackers, edges, crowds of corners or coarse sensors have them."""
    known = points.astype(np.float32)
    if way == "corners":
        return harris(image, known, count, rng) > 0
    if way == "crowded":
        return clustered(image, known, count, rng) > 0
    if way == "grid":
        height, width = points.shape
        return tof(None, known, max(2, round(np.sqrt(count * width / height))), rng) > 0
    slope = sum(ndimage.uniform_filter(np.square(g), 3) for g in np.gradient(image.mean(-1)))
    places = np.flatnonzero(points)
    chance = slope.flat[places] + 1e-3 * slope.mean() + 1e-12
    stay = np.zeros_like(points)
    stay.flat[rng.choice(places, count, replace=False, p=chance / chance.sum())] = True
    return stay


def choose_hidden(
    points: Bool[np.ndarray, "h w"], config: HideConfig, rng: np.random.Generator, image: np.ndarray | None = None
) -> Bool[np.ndarray, "h w"]:
    """Which of the points are hidden: at least one and at most 70 % of them, if there are two or more.

    Of a dense map or a scan nearly all may be hidden: what it knows teaches to complete points of any density.

    >>> points = np.arange(600).reshape(20, 30) % 10 == 0
    >>> config = HideConfig(points=(0.25, 0.25), blocky=0.0, sparser=0.0)
    >>> hidden = choose_hidden(points, config, np.random.default_rng(0))
    >>> int(hidden.sum())
    15
    """
    rows, columns = np.nonzero(points)
    hidden, most = np.zeros_like(points), int(MOST * len(rows))
    if len(rows) < 2:
        return hidden
    if config.thinned and points.mean() >= DENSE and rng.random() < config.thinned:
        return points & ~_thin_out(points, image, config, rng)
    if config.sparser and points.mean() < DENSE and len(rows) >= SCAN and rng.random() < config.sparser:
        return points & ~_thin_out(points, image, replace(config, thinned_to=config.sparser_to, ways=("even",)), rng)
    blocky = rng.random() < config.blocky
    dense = points.mean() >= DENSE  # then points beside shown ones ask nothing, and draws are even already
    if dense and not blocky:
        return points & (holes(None, points.astype(np.float32), _drawn_count(config.holes, rng), rng) == 0)
    share = rng.uniform(*config.points) * (0.5 if blocky and config.blocks[1] else 1.0) * (not dense)
    even = None if dense else _spread_evenly(rows, columns, points.shape)
    single = rng.choice(len(rows), round(share * len(rows)), replace=False, p=even)
    hidden[rows[single], columns[single]] = True
    for _ in range(_drawn_count(config.blocks, rng) if blocky else 0):
        middle = rng.choice(len(rows), p=even)
        grown = hidden | (points & _rectangle(points.shape, (rows[middle], columns[middle]), config.side, rng))
        if grown.sum() > most:
            break
        hidden = grown
    if not hidden.any():
        one = rng.integers(len(rows))
        hidden[rows[one], columns[one]] = True
    return hidden


def _drawn_count(bounds: tuple[int, int], rng: np.random.Generator) -> int:
    return int(rng.integers(bounds[0], bounds[1] + 1))


def _spread_evenly(rows: np.ndarray, columns: np.ndarray, size: tuple[int, ...]) -> Float[np.ndarray, "n"]:
    """Chances of the points (sum 1) by which draws spread over the image instead of over the points:
    1 / those in the same cell.

    A cell would hold four points if they lay evenly.
    """
    side = 2 * np.sqrt(size[0] * size[1] / len(rows))
    _, cell, count = np.unique((rows // side) * size[1] + columns // side, return_inverse=True, return_counts=True)
    chance = 1 / count[cell]
    return chance / chance.sum()


def _rectangle(
    size: tuple[int, ...], middle: tuple[int, int], side: tuple[float, float], rng: np.random.Generator
) -> Bool[np.ndarray, "h w"]:
    """A rectangle about a pixel, its sides drawn as shares of the shorter side of the image."""
    high, wide = np.maximum(1, min(size) * rng.uniform(*side, size=2) / 2)
    y, x = np.ogrid[: size[0], : size[1]]
    inside: np.ndarray = (abs(y - middle[0]) <= high) & (abs(x - middle[1]) <= wide)
    return inside


def hide_in_batch(batch: Batch, config: HideConfig, rng: np.random.Generator) -> Batch:
    """The batch with some of its points moved from ``sparse_depth`` to ``hidden_depth``: no point is in both."""
    points = (batch.sparse_depth[:, 0] > 0).cpu().numpy()
    images = batch.image.permute(0, 2, 3, 1).cpu().numpy()
    masks = np.stack([choose_hidden(p, config, rng, i) for p, i in zip(points, images, strict=True)])[:, None]
    hidden = torch.from_numpy(masks).to(batch.sparse_depth.device)
    zero = torch.zeros_like(batch.sparse_depth)
    return replace(
        batch,
        sparse_depth=torch.where(hidden, zero, batch.sparse_depth),
        hidden_depth=torch.where(hidden, batch.sparse_depth, zero),
    )


def hide_in_batches(batches: Iterable[Batch], config: HideConfig, *, start: int, seed: int) -> Iterator[Batch]:
    """Training batches with points hidden, others in each step; the same ones for a run resumed at ``start``."""
    for step, batch in enumerate(batches, start):
        yield hide_in_batch(batch, config, np.random.default_rng((seed, step)))


def distance_weights(shown: Bool[np.ndarray, "h w"], hidden: Bool[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    r"""Weights of the hidden points (0 elsewhere, sum 1) under which they lie as far from the next shown point as
    pixels do.

    With :math:`p_k` and :math:`h_k` the shares of all unshown pixels and of the hidden points in bin k of the distance,
    a hidden point of bin k weighs :math:`\min(p_k / h_k, 10)`.
    """
    far = np.digitize(ndimage.distance_transform_edt(~shown), BINS)
    pixels = np.bincount(far[~shown], minlength=len(BINS) + 1) / max(1, int((~shown).sum()))
    points = np.bincount(far[hidden], minlength=len(BINS) + 1) / max(1, int(hidden.sum()))
    ratio = np.minimum(np.divide(pixels, points, out=np.zeros_like(pixels), where=points > 0), HEAVIEST)
    weight = np.where(hidden, ratio[far], 0.0)
    total = weight.sum()
    return weight / total if total > 0 else hidden / max(1, int(hidden.sum()))
