"""Scenes of no place in particular: what the base for any sensor has seen.

A layout is drawn from four kinds (an interior, a street or yard, a table top, a heap of solids).  Nothing of the named
worlds is used: those are domains of sequences, and no network may have seen them with labels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from protodepth.data.worlds.raycast import Colour, Lamp, Light, Scene, Vector
from protodepth.data.worlds.stage import Rng, Stage
from protodepth.data.worlds.things import INDOORS, OUTDOORS, SMALL, Thing, loose, material, tree


def _put(s: Stage, kinds: tuple[Callable[[Thing], None], ...], foot: Vector, size: float = 1.0) -> None:
    kinds[s.rng.integers(len(kinds))](Thing(s, foot, s.span(-math.pi, math.pi), size * s.span(0.75, 1.3)))


def _on_walls(s: Stage, low: Vector, high: Vector) -> None:
    """Flat things with strong patterns (a change of colour that is no change of depth), and some that stand out."""
    for _ in range(s.rng.integers(0, 9)):
        w, h, out = s.span(0.15, 1.4), s.span(0.15, 1.2), (s.span(0.001, 0.02) if s.chance(0.6) else s.span(0.03, 0.25))
        y = s.span(low[1] + 0.2, -0.2)
        if s.chance(0.5):
            x = s.span(low[0], high[0])
            s.box((x - w / 2, y - h / 2, high[2] - out), (x + w / 2, y + h / 2, high[2] + 0.1), material(s.rng, 0.5))
        else:
            z, side = s.span(low[2], high[2]), s.rng.integers(2)
            wall = (low, high)[side][0]
            inner = wall + out if side == 0 else wall - out
            a, b = sorted((inner, wall + (0.1 if side else -0.1)))
            s.box((a, y - h / 2, z - w / 2), (b, y + h / 2, z + w / 2), material(s.rng, 0.5))


def interior(rng: Rng, eye: Vector) -> Scene:
    s = Stage(rng)
    side, front, height = s.span(0.9, 4.5), s.span(1.5, 9.0), s.span(2.1, 4.0)
    low, high = (-side, -height, -s.span(0.8, 3.0)), (side * s.span(0.5, 1.2), 0.0, front)
    s.plane(0.0, material(rng, 1.0))
    s.plane(-height, material(rng, 1.5))
    s.room((low[0], -height - 1, low[2]), (high[0], 1.0, high[2]), material(rng, 1.5))
    _on_walls(s, low, high)
    for _ in range(rng.integers(3, 15)):
        z = s.span(0.6, front)
        x = float(np.clip(s.span(-0.9, 0.9) * z, low[0] + 0.1, high[0] - 0.1))
        if math.hypot(x, z) > 0.7:
            _put(s, INDOORS, (x, 0.0, z))
    if s.chance(0.4):  # a wall part way, so that one looks past it
        z, x = s.span(0.8, front), s.span(-0.8, 0.8) * side
        ends = (x, high[0]) if s.chance(0.5) else (low[0], x)
        s.box(
            (ends[0], -height, z), (ends[1], 0.0 if s.chance(0.6) else -s.span(0.6, 1.4), z + 0.12), material(rng, 1.0)
        )
    if s.chance(0.3):
        for x in rng.uniform(-side, side, 3).tolist():
            s.box((x, -height + 0.05, low[2]), (x + s.span(0.05, 0.3), -height + 0.35, front), material(rng, 0.5))
    return s.scene(_lights(s, eye, height))


def outside(rng: Rng, eye: Vector) -> Scene:
    s = Stage(rng)
    s.plane(0.0, material(rng, 4.0))
    lane, end = s.span(2.5, 12.0), s.span(20, 150)
    for side in (-1, 1):
        z = s.span(-6, 4)
        while z < end and s.chance(0.9):
            length, h, deep = s.span(3, 25), s.span(2, 22), s.span(2, 10)
            x = side * (lane + s.span(0, 5))
            if s.chance(0.7):
                s.box((min(x, x + side * deep), -h, z), (max(x, x + side * deep), 0.0, z + length), material(rng, 4.0))
            elif s.chance(0.5):
                for _ in range(4):
                    _put(s, (tree,), (x + s.span(-2, 2), 0.0, z + s.span(0, length)), 1.3)
            z += length + s.span(0, 6)
    for _ in range(rng.integers(3, 22)):
        z = float(np.exp(rng.uniform(math.log(3.0), math.log(70.0))))
        _put(s, OUTDOORS, (s.span(-1, 1) * (lane + 0.2 * z), 0.0, z))
    if s.chance(0.3):
        z, h = s.span(8, 60), s.span(4, 9)
        s.box((-60, -h - s.span(0.5, 2.0), z), (60, -h, z + s.span(1, 12)), material(rng, 3.0))
    return s.scene(_sunlight(s, eye))


def table_top(rng: Rng, eye: Vector) -> Scene:
    """Small things near the camera on a surface; a wall or nothing behind."""
    s = Stage(rng)
    drop = -eye[1]
    s.plane(0.0, material(rng, 0.6))
    s.room((-s.span(1.0, 4.0), -4.0, -2.0), (s.span(1.0, 4.0), 1.0, s.span(1.0, 5.0)), material(rng, 1.0))
    for _ in range(rng.integers(5, 22)):
        z = s.span(0.5, 2.5) * max(drop, 0.4)
        _put(s, SMALL, (s.span(-0.7, 0.7) * z, 0.0, z), s.span(0.08, 0.45))
    return s.scene(_lights(s, eye, 3.0))


def heap(rng: Rng, eye: Vector) -> Scene:
    """Solids of any kind anywhere: nothing can be taken for granted."""
    s = Stage(rng)
    far = s.span(2.0, 20.0)
    s.room((-far, -far, -2.0), (far * s.span(0.3, 1), far * s.span(0.2, 1), far), material(rng, 2.0))
    for _ in range(rng.integers(6, 45)):
        z = float(np.exp(rng.uniform(math.log(0.5), math.log(far))))
        foot = (s.span(-0.8, 0.8) * z, eye[1] + s.span(-0.5, 0.9) * z, z)
        kind = loose if s.chance(0.7) else INDOORS[rng.integers(len(INDOORS))]
        kind(Thing(s, foot, s.span(-3, 3), z * s.span(0.1, 0.8)))
    return s.scene(_lights(s, eye, far))


def _lights(s: Stage, eye: Vector, height: float) -> Light:
    """Ambient light of some colour and up to four lamps."""
    tint = 1 - 0.4 * s.rng.random(3) * s.rng.random()
    level, share = s.span(0.05, 0.9), s.span(0.4, 1.0)
    lamps = tuple(
        Lamp(
            (s.span(-2, 2), -height * s.span(0.4, 0.95), s.span(-1, 4)),
            _colour(tint * s.span(0.1, 1.6)),
            s.span(0.8, 4),
        )
        for _ in range(s.rng.integers(0, 5))
    )
    return Light(above=_colour(level * tint), below=_colour(level * share * tint), lamps=lamps, eye=eye)


def _colour(values: np.ndarray) -> Colour:
    r, g, b = (float(v) for v in values)
    return r, g, b


def _sunlight(s: Stage, eye: Vector) -> Light:
    """Sky of any weather, sun from any side, sometimes haze."""
    level, up = s.span(0.2, 0.8), s.span(0.1, 0.9)
    azimuth = s.span(0, 2 * math.pi)
    flat = math.sqrt(1 - up * up)
    sky = tuple(_colour(level * np.array(c) * s.span(0.7, 1.3)) for c in ((0.5, 0.7, 1.0), (0.9, 0.95, 1.0)))
    return Light(
        above=(level, level, level * 1.05),
        below=(level * 0.6, level * 0.6, level * 0.6),
        sun=_colour(s.span(0.0, 0.9) * np.array([1.0, 0.95, 0.85])),
        sun_direction=(flat * math.cos(azimuth), -up, flat * math.sin(azimuth)),
        sky=(sky[0], sky[1]),
        clouds=s.span(0, 0.8),
        haze=s.span(0.002, 0.03) if s.chance(0.3) else 0.0,
        eye=eye,
    )


@dataclass(frozen=True, slots=True)
class Kind:
    """A layout, how often it is drawn, and from where it is looked at."""

    layout: Callable[[Rng, Vector], Scene]
    share: float
    height: tuple[float, float]  # of the eye above the ground
    pitch: tuple[float, float]  # degrees, down is positive
    reach: tuple[float, float]  # metres, beyond which nothing is measured


KINDS = (
    Kind(interior, 0.47, (0.3, 2.0), (-12, 35), (30, 31)),
    Kind(outside, 0.25, (0.5, 3.0), (-8, 12), (50, 130)),
    Kind(table_top, 0.15, (0.15, 0.9), (5, 50), (30, 31)),
    Kind(heap, 0.13, (1.0, 1.1), (-20, 20), (30, 31)),
)


def clutter(rng: Rng) -> tuple[Scene, Vector, float, float]:
    """A scene of no place in particular, the eye, pitch in degrees, and how far a sensor sees there."""
    kind = KINDS[rng.choice(len(KINDS), p=[k.share for k in KINDS])]
    eye = (0.0, -float(rng.uniform(*kind.height)), 0.0)
    return kind.layout(rng, eye), eye, float(rng.uniform(*kind.pitch)), float(rng.uniform(*kind.reach))
