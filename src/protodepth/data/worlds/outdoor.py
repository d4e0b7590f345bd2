"""What stands in the outdoor worlds: 2 to 80 m, open sky, and thin things along the way."""

import numpy as np

from protodepth.data.worlds.raycast import Colour, Lamp, Light, Material, Pattern, Scene, Vector
from protodepth.data.worlds.stage import BARK, RUBBER, STEEL, Rng, Stage

CARS: tuple[Colour, ...] = (
    (0.65, 0.10, 0.10),
    (0.12, 0.25, 0.55),
    (0.80, 0.80, 0.82),
    (0.15, 0.15, 0.17),
    (0.75, 0.65, 0.15),
)
LEAVES: tuple[Colour, ...] = ((0.16, 0.34, 0.10), (0.24, 0.40, 0.12), (0.34, 0.36, 0.10))


def _car(s: Stage, x: float, z: float, *, glow: float = 0.0) -> None:
    colour = s.pick(CARS)
    shade = (colour[0] * 0.6, colour[1] * 0.6, colour[2] * 0.6)
    paint = Material(colour, shade, Pattern.STRIPES, s.span(0.8, 1.4), 0.35, 0.5)
    glass = Material((0.16, 0.20, 0.24), (0.5, 0.55, 0.6), Pattern.CHECK, 0.8, 0.5, 0.4)
    length = s.span(3.8, 4.8)
    s.stand(x, z, (1.75, 0.62, length), paint, base=0.28)
    s.stand(x, z + 0.2, (1.5, 0.55, length * 0.5), glass, base=0.9)
    s.stand(x, z, (1.7, 0.28, length * 0.8), RUBBER)
    for side in (-0.6, 0.6):
        s.stand(
            x + side, z - length / 2, (0.35, 0.16, 0.06), Material((0.9, 0.12, 0.06), grain=0.1, glow=glow), base=0.62
        )


def _tree(s: Stage, x: float, z: float, leaves: tuple[Colour, ...]) -> None:
    h = s.span(2.4, 3.6)
    s.pole(x, z, s.span(0.12, 0.22), h, BARK)
    for _ in range(2):
        r = s.span(1.0, 1.7)
        s.ball(
            x + s.span(-0.5, 0.5),
            -h - 0.5 * r,
            z + s.span(-0.5, 0.5),
            r,
            Material(s.pick(leaves), grain=1.5, grain_scale=0.9),
        )


def _sign(s: Stage, x: float, z: float, post: Material) -> None:
    h = s.span(2.0, 2.6)
    s.pole(x, z, 0.05, h + 0.3, post)
    colours: tuple[Colour, ...] = ((0.85, 0.10, 0.10), (0.10, 0.25, 0.75), (0.95, 0.80, 0.10))
    s.stand(
        x,
        z - 0.07,
        (0.75, 0.75, 0.05),
        Material(s.pick(colours), (0.95, 0.95, 0.95), Pattern.RINGS, 0.3, 0.1, 0.3),
        base=h - 0.4,
    )


def _lamp_post(s: Stage, x: float, z: float, height: float, glow: float) -> Vector:
    s.pole(x, z, 0.09, height, STEEL)
    arm = -1.2 if x > 0 else 1.2
    s.box((min(x, x + arm), -height, z - 0.05), (max(x, x + arm), -height + 0.1, z + 0.05), STEEL)
    s.box(
        (x + arm - 0.3, -height - 0.02, z - 0.15),
        (x + arm + 0.3, -height + 0.16, z + 0.15),
        Material((1.0, 0.85, 0.55), grain=0.0, glow=glow),
    )
    return (x + arm, -height + 0.5, z)


def _row_of_houses(s: Stage, side: int, x: float, heights: tuple[float, float], walls: tuple[Material, ...]) -> None:
    z = s.span(-12.0, -6.0)
    while z < 85:
        length, back = s.span(7, 15), s.span(0.0, 1.6)
        wall = walls[s.rng.integers(len(walls))]
        material = Material(
            s.pick((wall.colour,)),
            wall.second,
            wall.pattern,
            wall.scale * s.span(0.85, 1.2),
            wall.grain,
            wall.grain_scale,
            wall.glow,
        )
        near, far = sorted((side * (x + back), side * (x + 10)))
        s.box((near, -s.span(*heights), z), (far, 0.0, z + length), material)
        z += length + (s.span(2, 6) if s.chance(0.3) else 0.0)


def _kerb_side(
    s: Stage, side: int, x: float, *, glow: float, leaves: tuple[Colour, ...], density: float
) -> list[Vector]:
    """What stands along one side of a street, with gaps; returns the places of its lights."""
    lights, z = [], s.span(3.5, 6.0)
    while z < 62:
        what = s.rng.random()
        if what < 0.24:
            _sign(s, side * (x + 0.6), z, STEEL)
        elif what < 0.44:
            _tree(s, side * (x + 1.3), z, leaves)
        elif what < 0.56:
            for k in range(4):
                s.pole(
                    side * (x + 0.4),
                    z + 1.3 * k,
                    0.06,
                    1.1,
                    Material((0.75, 0.75, 0.72), (0.7, 0.1, 0.1), Pattern.CHECK, 0.3, 0.2),
                )
        elif what < 0.66:
            s.pole(side * (x + 1.2), z, 0.24, 1.35, Material(s.pick(CARS), s.pick(CARS), Pattern.CHECK, 0.6, 0.4, 0.2))
            s.ball(side * (x + 1.2), -1.5, z, 0.15, Material((0.75, 0.55, 0.42), grain=0.2))
        else:
            lights.append(_lamp_post(s, side * (x + 0.5), z, s.span(5.0, 6.5), glow))
        if s.chance(density):
            _car(s, side * (x - 1.15), z + s.span(3.0, 4.0), glow=glow)
        z += s.span(5.5, 8.5) * (1 + z / 60)
    return lights


def street(rng: Rng, eye: Vector) -> Scene:
    """A town street by day: brick and plaster fronts, parked cars, signs, lamp posts, trees, sun."""
    s = Stage(rng)
    kerb = s.span(3.6, 5.0)
    s.plane(0.0, Material((0.36, 0.36, 0.37), (0.85, 0.85, 0.82), Pattern.ROAD, s.span(3.0, 3.6), 0.45, 0.7))
    walls = (
        Material((0.62, 0.30, 0.22), (0.24, 0.30, 0.38), Pattern.WINDOWS, 2.3, 0.5, 0.5),
        Material((0.78, 0.70, 0.52), (0.22, 0.28, 0.34), Pattern.WINDOWS, 2.7, 0.45, 0.7),
        Material((0.66, 0.40, 0.30), (0.80, 0.76, 0.70), Pattern.BRICK, 1.0, 0.4, 0.5),
        Material((0.58, 0.62, 0.60), (0.18, 0.22, 0.28), Pattern.WINDOWS, 3.2, 0.5, 0.6),
    )
    for side in (-1, 1):
        near, far = sorted((side * kerb, side * (kerb + 14)))
        s.box(
            (near, -0.14, -20.0),
            (far, 0.5, 95.0),
            Material((0.60, 0.58, 0.54), (0.45, 0.43, 0.40), Pattern.CHECK, 0.9, 0.5, 0.6),
        )
        _row_of_houses(s, side, kerb + s.span(2.6, 4.5), (6.0, 13.0), walls)
        _kerb_side(s, side, kerb, glow=0.0, leaves=LEAVES, density=0.6)
    sun = np.array([s.span(-0.8, 0.8), -1.0, s.span(-0.6, 0.2)])
    x, y, z = sun / np.sqrt((sun * sun).sum())
    return s.scene(
        Light(
            above=(0.52, 0.56, 0.62),
            below=(0.34, 0.33, 0.32),
            sun=(0.70, 0.66, 0.58),
            sun_direction=(float(x), float(y), float(z)),
            sky=((0.32, 0.52, 0.86), (0.80, 0.88, 0.96)),
            clouds=0.8,
            haze=0.004,
            eye=eye,
        )
    )


def street_dusk(rng: Rng, eye: Vector) -> Scene:
    """A narrow street of tall houses at dusk: blue light, orange lamps, lit windows, tail lights."""
    s = Stage(rng)
    kerb = s.span(2.7, 3.4)
    s.plane(0.0, Material((0.42, 0.40, 0.44), (0.30, 0.28, 0.30), Pattern.BRICK, 0.9, 0.7, 0.6))
    walls = (
        Material((0.40, 0.36, 0.44), (1.0, 0.72, 0.30), Pattern.WINDOWS, 2.0, 0.7, 0.6, 0.9),
        Material((0.50, 0.42, 0.42), (0.95, 0.80, 0.45), Pattern.WINDOWS, 2.6, 0.7, 0.5, 0.8),
        Material((0.34, 0.38, 0.46), (0.20, 0.20, 0.26), Pattern.STRIPES, 1.1, 0.7, 0.6),
    )
    places: list[Vector] = []
    for side in (-1, 1):
        _row_of_houses(s, side, kerb + s.span(1.6, 2.2), (11.0, 22.0), walls)
        places += _kerb_side(s, side, kerb, glow=1.0, leaves=((0.14, 0.18, 0.12),), density=0.45)
    _car(s, s.span(-0.8, 0.8), s.span(14, 30), glow=1.0)
    lamps = tuple(Lamp(p, (1.5, 0.9, 0.38), 4.0) for p in sorted(places, key=lambda p: p[2])[:7])
    return s.scene(
        Light(
            above=(0.17, 0.21, 0.34),
            below=(0.13, 0.14, 0.21),
            lamps=lamps,
            sky=((0.05, 0.07, 0.20), (0.62, 0.34, 0.26)),
            clouds=0.5,
            haze=0.006,
            eye=eye,
        )
    )


def _truck(s: Stage, x: float, z: float) -> None:
    body = Material(
        s.pick(((0.85, 0.85, 0.85), (0.80, 0.30, 0.10), (0.15, 0.40, 0.60))),
        s.pick(CARS),
        Pattern.STRIPES,
        s.span(1.0, 3.0),
        0.35,
        1.0,
    )
    s.stand(x, z + 5, (2.5, 2.8, 10.0), body, base=1.0)
    s.stand(x, z + 5, (2.3, 1.0, 9.0), RUBBER)


def _gantry(s: Stage, half: float, z: float) -> None:
    for side in (-1, 1):
        s.pole(side * half, z, 0.22, 6.2, STEEL)
    s.box((-half, -6.4, z - 0.15), (half, -6.0, z + 0.15), STEEL)
    for x in (-4.2, 0.2):
        board = Material((0.05, 0.30, 0.62), (0.92, 0.95, 0.98), Pattern.GOODS, 0.9, 0.15, 0.5)
        s.box((x, -7.6, z - 0.25), (x + 3.8, -5.4, z - 0.16), board)


def highway(rng: Rng, eye: Vector) -> Scene:
    """An open motorway: pale concrete, guard rails on posts, lorries, gantries, hills, haze."""
    s = Stage(rng)
    lane, half = 3.6, s.span(7.0, 9.0)
    s.plane(0.0, Material((0.62, 0.60, 0.56), (0.95, 0.95, 0.92), Pattern.ROAD, lane, 0.45, 1.4))
    grass = Material((0.55, 0.52, 0.22), (0.38, 0.44, 0.16), Pattern.CHECK, 3.0, 0.9, 1.6)
    rail = Material((0.70, 0.72, 0.72), (0.45, 0.46, 0.46), Pattern.CHECK, 2.0, 0.2, 0.5)
    for side in (-1, 1):
        near, far = sorted((side * (half + 0.8), side * 120.0))
        s.box((near, -0.05, -20.0), (far, 0.5, 140.0), grass)
        near, far = sorted((side * half, side * (half + 0.08)))
        s.box((near, -0.85, -10.0), (far, -0.50, 100.0), rail)
        for z in np.arange(s.span(4, 8), 60, 6.0):
            s.pole(side * (half + 0.12), float(z), 0.07, 0.8, STEEL)
        for z in np.arange(s.span(8, 24), 90, s.span(22, 30)):
            _lamp_post(s, side * (half + 0.6), float(z), 9.5, 0.0)
        for _ in range(3):
            r = s.span(20, 45)
            s.ball(
                side * s.span(45, 90),
                s.span(0.62, 0.8) * r,
                s.span(60, 130),
                r,
                Material((0.46, 0.48, 0.24), grain=0.9, grain_scale=5.0),
            )
        for _ in range(rng.integers(1, 4)):
            _tree(s, side * (half + s.span(4, 14)), s.span(18, 75), ((0.40, 0.42, 0.14), (0.50, 0.40, 0.14)))
    for x in (-lane * 1.5, -lane * 0.5, lane * 0.5, lane * 1.5):
        if s.chance(0.6):
            (_truck if s.chance(0.45) else _car)(s, x, s.span(16 if abs(x) < lane else 10, 60))
    if s.chance(0.6):
        _gantry(s, half + 0.9, s.span(25, 65))
    return s.scene(
        Light(
            above=(0.66, 0.64, 0.58),
            below=(0.42, 0.40, 0.36),
            sun=(0.50, 0.46, 0.36),
            sun_direction=(0.5, -0.6, -0.62),
            sky=((0.62, 0.72, 0.80), (0.94, 0.92, 0.84)),
            clouds=0.5,
            haze=0.009,
            eye=eye,
        )
    )


def garden(rng: Rng, eye: Vector) -> Scene:
    """A park path under an overcast sky: lawn, hedges, many trunks, a picket fence.  Kept for unseen-domain trials."""
    s = Stage(rng)
    path = s.span(1.4, 2.0)
    s.plane(0.0, Material((0.20, 0.42, 0.12), (0.14, 0.34, 0.08), Pattern.CHECK, 1.5, 1.0, 0.4))
    s.box(
        (-path, -0.03, -10.0),
        (path, 0.3, 90.0),
        Material((0.66, 0.58, 0.44), (0.56, 0.48, 0.36), Pattern.BRICK, 0.8, 0.5, 0.3),
    )
    hedge = Material((0.12, 0.30, 0.08), grain=1.4, grain_scale=0.5)
    picket = Material((0.88, 0.88, 0.84), grain=0.2, grain_scale=0.3)
    for side in (-1, 1):
        for z in np.arange(s.span(4, 7), 55, s.span(4, 6)).tolist():
            _tree(s, side * (path + s.span(1.5, 7.0)), z, LEAVES)
        z, x = s.span(5, 15), side * (path + s.span(0.8, 1.4))
        for k in range(12):
            s.pole(x, z + 0.9 * k, 0.05, 1.0, picket)
        near, far = sorted((side * (path + 8), side * (path + 9.5)))
        s.box((near, -s.span(1.5, 2.6), -5.0), (far, 0.0, s.span(40, 75)), hedge)
        for _ in range(3):
            s.ball(side * (path + s.span(1.5, 6)), -0.3, s.span(6, 40), s.span(0.5, 1.0), hedge)
    s.stand(
        s.span(-8, 8),
        s.span(60, 75),
        (9.0, 5.0, 6.0),
        Material((0.75, 0.72, 0.66), (0.25, 0.2, 0.2), Pattern.WINDOWS, 2.4, 0.4, 0.5),
    )
    sky = ((0.72, 0.76, 0.80), (0.82, 0.84, 0.86))
    return s.scene(Light(above=(0.95, 0.97, 1.0), below=(0.45, 0.48, 0.42), sky=sky, clouds=0.6, haze=0.005, eye=eye))
