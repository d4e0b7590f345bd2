"""`worlds:any`: an endless supply of drawn frames for a base that is to meet any sensor.

A frame is a scene of :mod:`clutter` seen by some camera.  What is learned from it is a *sample*: a crop at some zoom;
the picture as some camera would store it (exposure, colour, blur, noise, shadows that are no things, a place slightly
off the depth's); and the depth as some sensor would measure it: points anywhere, at corners, clustered at edges, along
scan lines, on a coarse grid, or a dense map with holes; noisy, with wrong points, nothing on dark or far things.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy import ndimage

from protodepth.data.frame import SPLITS, Domain, EvalRules, Frame
from protodepth.data.worlds.clutter import clutter
from protodepth.data.worlds.raycast import Array, Camera, Scene, relative, rotation
from protodepth.data.worlds.shading import depth_map, photograph
from protodepth.data.worlds.stage import Rng
from protodepth.types import Float

NAME = "any"
SEED = 1_400_000_000  # of the base's own scenes: far from every seed of the named worlds


def _camera(rng: Rng, eye: tuple[float, float, float], pitch: float, size: tuple[int, int]) -> Camera:
    """A camera of any focal length at ``eye``, mostly looking ahead."""
    h, w = size
    f = w * math.exp(rng.uniform(math.log(0.5), math.log(1.5)))
    x, y = (w - 1) / 2 + rng.normal(0, 0.02) * w, (h - 1) / 2 + rng.normal(0, 0.02) * h
    angles = np.radians([rng.uniform(-35, 35), pitch, rng.normal(0, 6)])
    return Camera(np.array([[f, 0.0, x], [0.0, f, y], [0.0, 0.0, 1.0]]), rotation(*angles), np.array(eye))


def _view(rng: Rng, size: tuple[int, int]) -> tuple[Scene, Camera, Array]:
    """A scene, a camera that sees something of it, and the depth that it sees (0 where nothing is within reach)."""
    while True:
        scene, eye, pitch, reach = clutter(rng)
        seen_by = _camera(rng, eye, pitch, size)
        depth = depth_map(scene, seen_by, size)
        depth = np.where(depth < reach, depth, 0.0).astype(np.float32)
        seen = depth[depth > 0]
        if seen.size > 0.3 * depth.size and np.percentile(seen, 98) > 1.15 * np.percentile(seen, 2):
            return scene, seen_by, depth  # else a bare wall, or the sky


def _exposed(picture: Array, rng: Rng) -> Array:
    """A picture of middling brightness in eight bits, whatever the lamps."""
    picture = picture * (rng.uniform(0.25, 0.55) / max(float(picture.mean()), 1e-3))
    return (np.clip(picture, 0, 1) ** rng.uniform(0.5, 1.0) * 255 + 0.5).astype(np.uint8)


def draw(index: int, size: tuple[int, int] = (240, 320), seed: int = 0) -> tuple[Array, Array]:
    """Scene ``index`` of ``worlds:any``: the picture, evenly exposed, and exact depth, 0 where nothing is in reach."""
    rng = np.random.default_rng(np.random.SeedSequence((SEED, seed, index)))
    scene, seen_by, depth = _view(rng, size)
    return _exposed(photograph(scene, seen_by, size), rng), depth


# --- as a domain ------------------------------------------------------------------------------------------------------


def _frame(sequence: np.random.SeedSequence, size: tuple[int, int], name: str = "") -> Frame:
    """One triplet as some sensor takes it, at a scale of 0.03 to 30."""
    rng = np.random.default_rng(sequence)
    scene, middle, depth = _view(rng, size)
    step = rng.normal(0, 0.02, 3) * float(np.median(depth[depth > 0]))
    others = [
        Camera(
            middle.intrinsics, middle.rotation @ rotation(*np.radians(rng.normal(0, 0.6, 3))), middle.origin + s * step
        )
        for s in (-1, 1)
    ]
    look, noise = int(rng.integers(2**31)), int(rng.integers(2**31))
    pictures = [photograph(scene, c, size) for c in (others[0], middle, others[1])]
    pictures = [
        _film(_exposed(p, np.random.default_rng(noise)) / np.float32(255), np.random.default_rng(look), alone=False)
        for p in pictures
    ]
    sparse, scale = _sense(depth, pictures[1], rng), np.float32(math.exp(rng.uniform(math.log(0.03), math.log(30))))
    poses = [relative(middle, c) for c in others]
    for pose in poses:
        pose[:3, 3] *= scale
    before, now, after = ((p * 255 + 0.5).astype(np.uint8) for p in pictures)
    return Frame(
        image=now,
        sparse_depth=sparse * scale,
        intrinsics=middle.intrinsics,
        neighbours=(before, after),
        poses=tuple(poses),
        ground_truth=depth * scale,
        name=name,
    )


class AnyDataset:
    """``count`` frames of one split, each drawn when it is asked for."""

    def __init__(self, split: str, count: int, size: tuple[int, int], seed: int) -> None:
        self.split, self.count, self.size, self.seed = split, count, size, seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Frame:
        if not -self.count <= index < self.count:
            raise IndexError(f"frame {index} of {self.count}")
        key = (SEED, SPLITS.index(self.split) + 1, self.seed, index % self.count)
        name = f"{NAME}-{self.split}-s{self.seed}-{index % self.count:05d}"
        return _frame(np.random.SeedSequence(key), self.size, name)


def domain(counts: dict[str, int], size: tuple[int, int], seed: int) -> Domain:
    """``worlds:any`` as a domain, to look at and to try networks on; the base's own scenes are others."""
    parts = {split: AnyDataset(split, count, size, seed) for split, count in counts.items()}
    identity = {"source": "worlds", "world": NAME, "size": list(size), "seed": seed, **counts}
    return Domain(name=NAME, rules=EvalRules(min_depth=0.001, max_depth=10_000.0), identity=identity, **parts)


# --- the camera's share -----------------------------------------------------------------------------------------------


def _smooth_noise(rng: Rng, size: tuple[int, int], cell: float) -> Float[Array, "h w"]:
    """Noise about 0 with features of ``cell`` pixels and a deviation of about 1."""
    h, w = size
    coarse = rng.standard_normal((max(2, round(h / cell)) + 1, max(2, round(w / cell)) + 1)).astype(np.float32)
    zoomed = ndimage.zoom(coarse, (h / (coarse.shape[0] - 1), w / (coarse.shape[1] - 1)), order=1)
    return zoomed[:h, :w] * 1.5


def _film(picture: Float[Array, "h w 3"], rng: Rng, *, alone: bool = True) -> Float[Array, "h w 3"]:
    """The picture in [0, 1] as some camera would store it; what only holds for one that stands ``alone`` included."""
    size = picture.shape[:2]
    picture = picture.astype(np.float32)
    if alone and rng.random() < 0.35:  # shadows and patches of light that are no things
        for _ in range(rng.integers(1, 3)):
            field = _smooth_noise(rng, size, rng.uniform(12, 70))
            edge = rng.uniform(0.02, 0.6)
            picture = (
                picture * (1 - rng.uniform(0.1, 0.65) * np.clip(field / edge + rng.uniform(-1, 1), 0, 1))[..., None]
            )
    grey = picture.mean(2, keepdims=True)
    picture = grey + (picture - grey) * rng.uniform(0.0, 1.5) * (rng.random() > 0.12)
    picture = picture * rng.uniform(0.8, 1.2, 3) * rng.uniform(0.5, 1.6)
    picture = np.clip(picture, 1e-4, 1) ** math.exp(rng.uniform(-0.6, 0.6))
    if rng.random() < 0.45:
        picture = ndimage.gaussian_filter(picture, (*(2 * [rng.uniform(0.3, 1.6)]), 0))
    elif rng.random() < 0.15:  # the camera moved
        picture = ndimage.uniform_filter1d(picture, int(rng.integers(2, 7)), axis=int(rng.integers(2)))
    if alone and rng.random() < 0.3:  # exposure that changes from row to row
        picture = picture * (1 + 0.25 * _smooth_noise(rng, (size[0], 4), rng.uniform(20, 90))[:, :1, None])
    picture = picture + rng.standard_normal(picture.shape).astype(np.float32) * rng.choice([0.0, 0.01, 0.02, 0.05])
    return np.clip(picture, 0, 1)


# --- the sensor's share -----------------------------------------------------------------------------------------------


def _edges(depth: Array, step: float = 0.06) -> Array:
    """Pixels at a jump of depth of more than ``step`` of it."""
    logs = np.log(np.where(depth > 0, depth, 1.0))
    spread = ndimage.maximum_filter(logs, 3) - ndimage.minimum_filter(logs, 3)
    return (spread > step) & (depth > 0)


def _gradient(picture: Array) -> Float[Array, "h w"]:
    grey = picture.mean(2)
    return np.hypot(ndimage.sobel(grey, 0), ndimage.sobel(grey, 1))


def _log(rng: Rng, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def anywhere(depth: Array, picture: Array, rng: Rng) -> Array:
    return rng.random(depth.shape) < _log(rng, 0.0006, 0.2)


def at_corners(depth: Array, picture: Array, rng: Rng) -> Array:
    """Where the picture changes most, as trackers choose; sometimes only where it does, in a part of the picture."""
    strength = _gradient(ndimage.gaussian_filter(picture, (1, 1, 0)))
    strength = strength / (strength.mean() + 1e-6)
    chance = strength ** rng.uniform(0.7, 2.5)
    if rng.random() < 0.4:
        chance = chance * (_smooth_noise(rng, depth.shape, rng.uniform(20, 60)) > rng.uniform(-0.5, 0.8))
        chance = chance * (strength > rng.uniform(0.5, 2.0))
    return rng.random(depth.shape) < chance * (_log(rng, 0.0015, 0.04) / max(float(chance.mean()), 1e-6))


def leaning_lines(depth: Array, picture: Array, rng: Rng) -> Array:
    """Lines that lean and bend a little, dense along and wide apart across."""
    h, w = depth.shape
    y, x = np.mgrid[:h, :w].astype(np.float32)
    bend = rng.normal(0, 0.03) * x + rng.normal(0, 4) * ((x / w - rng.random()) ** 2)
    gap = rng.uniform(1.8, 14)
    chosen: Array = np.floor((y + bend) / gap) != np.floor((y + bend - 1) / gap)
    if rng.random() < 0.3:  # upright, as some scanners and sparse columns are
        chosen = chosen & (rng.random((1, w)) < rng.uniform(0.2, 0.6))
    keep = rng.uniform(0.15, 1.0)
    top = rng.uniform(-0.2, 0.45) * h if rng.random() < 0.6 else 0
    return chosen & (rng.random(depth.shape) < keep) & (y > top)


def coarse_grid(depth: Array, picture: Array, rng: Rng) -> Array:
    step = int(rng.integers(2, 17))
    chosen = np.zeros(depth.shape, bool)
    chosen[rng.integers(step) :: step, rng.integers(step) :: step] = True
    return chosen


def with_holes(depth: Array, picture: Array, rng: Rng) -> Array:
    """A dense map that lacks patches, rims of things, dark or far things."""
    h, w = depth.shape
    known = np.ones(depth.shape, bool)
    y, x = np.mgrid[:h, :w]
    for _ in range(rng.integers(1, 13)):
        a, b = _log(rng, 0.02, 0.2) * w, _log(rng, 0.02, 0.2) * w
        u, v = x - rng.uniform(0, w), y - rng.uniform(0, h)
        turn = rng.uniform(0, math.pi)
        u, v = u * math.cos(turn) + v * math.sin(turn), v * math.cos(turn) - u * math.sin(turn)
        known &= (np.abs(u) > a) | (np.abs(v) > b) if rng.random() < 0.5 else (u / a) ** 2 + (v / b) ** 2 > 1
    if rng.random() < 0.4:
        known &= _smooth_noise(rng, depth.shape, rng.uniform(4, 40)) < rng.uniform(0.3, 1.8)
    if rng.random() < 0.5:
        known &= ~ndimage.binary_dilation(_edges(depth), iterations=int(rng.integers(1, 6)))
    if rng.random() < 0.3:
        grey = ndimage.gaussian_filter(picture.mean(2), 1.5)
        known &= grey > np.quantile(grey, rng.uniform(0.02, 0.35))
    if rng.random() < 0.3:
        known &= depth < np.quantile(depth[depth > 0], rng.uniform(0.6, 0.98))
    if rng.random() < 0.25:  # moire gaps of a map that was projected into another camera
        wave = np.sin(x / rng.uniform(1.5, 4) + _smooth_noise(rng, depth.shape, 40) * 3)
        known &= wave < rng.uniform(0.5, 0.95)
    return known


Scatter = Callable[[Array, Array, Rng], Array]  # depth, picture, rng -> where there are points
PATTERNS: tuple[tuple[Scatter, float], ...] = (
    (anywhere, 0.28),
    (at_corners, 0.22),
    (leaning_lines, 0.16),
    (coarse_grid, 0.10),
    (with_holes, 0.24),
)


def _from_beside(depth: Array, rng: Rng) -> Array:
    """Depth measured from another place than the camera's: near things move more, and things behind them show.

    A scanner on a roof is above its camera, one in a hand beside it: the way is any.
    """
    middle = float(np.median(depth[depth > 0]))
    shift = rng.uniform(0, 3.0) * middle / np.maximum(depth, 0.2 * middle)
    turn = rng.uniform(0, 2 * math.pi)
    places = np.indices(depth.shape)
    row, column = (
        np.clip(np.round(place + way * shift), 0, length - 1).astype(int)
        for place, way, length in zip(places, (math.sin(turn), math.cos(turn)), depth.shape, strict=True)
    )
    order = np.argsort(-depth, axis=None)
    moved = np.zeros(depth.shape, depth.dtype)
    moved.ravel()[(row * depth.shape[1] + column).ravel()[order]] = depth.ravel()[order]
    return moved


def _beside(picture: Float[Array, "h w 3"], rng: Rng) -> Float[Array, "h w 3"]:
    """A picture that does not lie on its depth: some pixels off, or of another focal length."""
    if rng.random() < 0.6:
        return np.roll(picture, rng.integers(-4, 5, 2), (0, 1))
    scale, size = rng.uniform(0.88, 1.13), picture.shape[:2]
    rows, columns = (
        np.clip(np.round((np.arange(n) - n / 2) * scale + n / 2 + rng.normal(0, 1.5)), 0, n - 1).astype(int)
        for n in size
    )
    return picture[rows][:, columns]


def _as_found(depth: Array, rng: Rng) -> Array:
    """Depth as real places and the maps that judge there have it, where a drawn one is too good to be true.

    Surfaces are uneven, edges run a little beside those of the picture and are smeared over a pixel or two, and beside
    a near thing there is a strip without any depth.
    """
    out: Array = depth.astype(np.float32)
    size = depth.shape
    if rng.random() < 0.35:  # edges that do not quite follow the picture's
        reach, cell = rng.uniform(0.5, 3.0), rng.uniform(4, 30)
        places = np.indices(size, np.float32) + reach * np.stack([_smooth_noise(rng, size, cell) for _ in range(2)])
        rows, columns = (np.clip(np.round(p), 0, n - 1).astype(int) for p, n in zip(places, size, strict=True))
        out = out[rows, columns]
    if rng.random() < 0.3:
        known, sigma = (out > 0).astype(np.float32), _log(rng, 0.4, 3.5)
        share = np.maximum(ndimage.gaussian_filter(known, sigma), 1e-3)
        out = np.where(out > 0, ndimage.gaussian_filter(out, sigma) / share, 0).astype(np.float32)
    if rng.random() < 0.18:  # a scanner beside the camera: before and behind an edge in turn
        moved = _from_beside(out, rng)
        out = np.where((moved > 0) & (rng.random(size) < 0.5), moved, out)
    if rng.random() < 0.65:
        for _ in range(rng.integers(1, 3)):
            uneven = np.float32(_log(rng, 0.0004, 0.008)) * _smooth_noise(rng, size, _log(rng, 2.5, 50))
            out = out * (1 + uneven)
    if rng.random() < 0.25:
        rim = ndimage.binary_dilation(_edges(out), iterations=int(rng.integers(1, 4)))
        near = ndimage.minimum_filter(np.where(out > 0, out, np.inf), 9)
        out = np.where(rim & (out > 1.05 * near), 0, out)
    return out.astype(np.float32)


def _measured(depth: Array, rng: Rng) -> Array:
    """Depth as a sensor says it everywhere: smeared at edges, off registration, noisy, rounded."""
    out = depth.astype(np.float32)
    if rng.random() < 0.15:  # flying pixels
        known = (out > 0).astype(np.float32)
        sigma = rng.uniform(0.4, 1.2)
        out = np.where(
            out > 0, ndimage.gaussian_filter(out, sigma) / np.maximum(ndimage.gaussian_filter(known, sigma), 1e-3), 0
        )
    middle = float(np.median(out[out > 0]))
    if rng.random() < 0.15:
        moved = _from_beside(out, rng)
        out = np.where(moved > 0, moved, out) if rng.random() < 0.5 else moved
    noise = rng.choice([0.0, 0.0, 0.0, 0.002, 0.005, 0.015]) * rng.standard_normal(out.shape)
    out = out * np.clip(1 + noise * (out / middle if rng.random() < 0.5 else 1), 0.5, 1.5)
    if rng.random() < 0.2:
        out = out * (1 + rng.uniform(0.002, 0.015) * _smooth_noise(rng, out.shape, rng.uniform(5, 30)))
    if rng.random() < 0.2:
        step = rng.uniform(0.001, 0.02) * middle
        out = np.round(out / step) * step
    return np.where(depth > 0, out, 0).astype(np.float32)


def _sense(depth: Array, picture: Array, rng: Rng) -> Float[Array, "h w"]:
    """A sparse or broken depth map of some sensor; at least five points where that many pixels have a depth."""
    pattern = PATTERNS[rng.choice(len(PATTERNS), p=[share for _, share in PATTERNS])][0]
    chosen = pattern(depth, picture, rng)
    value = _measured(depth, rng)
    if rng.random() < 0.2:
        h, w = depth.shape
        a, b = rng.uniform(0.2, 0.7, 2)
        r, c = int(rng.uniform(0, h * (1 - a))), int(rng.uniform(0, w * (1 - b)))
        chosen[r : r + int(a * h), c : c + int(b * w)] = False
    if rng.random() < 0.15 and pattern is not with_holes:
        chosen &= ~ndimage.binary_dilation(_edges(depth), iterations=int(rng.integers(1, 4)))
    wrong = chosen & (rng.random(depth.shape) < rng.choice([0.0, 0.0, 0.0, 0.0, 0.003, 0.01]))
    value = np.where(wrong, value * np.exp(rng.normal(0, 0.5, depth.shape)).astype(np.float32), value)
    sparse = np.ascontiguousarray(np.where(chosen, value, 0), np.float32)
    if (sparse > 0).sum() < 5:
        places = np.flatnonzero(value > 0)
        few = rng.choice(places, min(len(places), int(rng.integers(5, 60))), replace=False)
        sparse.ravel()[few] = value.ravel()[few]
    return sparse


def sample(picture: Array, depth: Array, crop: tuple[int, int], rng: Rng) -> tuple[Array, Array, Array]:
    """Of ``worlds:any``, a random crop for the base to learn from: (image 3xhxw, sparse hxw, exact depth hxw)."""
    h, w = crop
    while True:
        zoom = rng.uniform(1.0, min(picture.shape[0] / h, picture.shape[1] / w)) if rng.random() < 0.5 else 1.0
        zoom = 2.0 if zoom > 1.75 else zoom
        rows, columns = min(round(h * zoom), picture.shape[0]), min(round(w * zoom), picture.shape[1])
        r, c = rng.integers(picture.shape[0] - rows + 1), rng.integers(picture.shape[1] - columns + 1)
        part, z = picture[r : r + rows, c : c + columns] / np.float32(255), depth[r : r + rows, c : c + columns]
        if zoom > 1:
            i, j = (np.arange(h) * (rows / h)).astype(int), (np.arange(w) * (columns / w)).astype(int)
            part = ndimage.uniform_filter(part, (2, 2, 1))[i][:, j] if zoom > 1.4 else part[i][:, j]
            z = z[i][:, j]
        if (z > 0).mean() > 0.25:
            break
    if rng.random() < 0.5:
        part, z = part[:, ::-1].copy(), z[:, ::-1].copy()  # a view would be copied where points are written into it
    part, z = _film(part, rng), _as_found(z, rng)
    sparse = _sense(z, part, rng)
    if rng.random() < 0.25:  # a picture that sits beside its depth
        part = _beside(part, rng)
    if rng.random() < 0.08:  # in the dark the points are all there is
        part = np.full_like(part, rng.random())
    return np.ascontiguousarray(part.transpose(2, 0, 1), np.float32), sparse, np.ascontiguousarray(z, np.float32)
