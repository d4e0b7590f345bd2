"""What stands in the indoor worlds: 0.3 to 6 m, no sky."""

import numpy as np

from protodepth.data.worlds.raycast import Colour, Lamp, Light, Material, Pattern, Scene, Vector
from protodepth.data.worlds.stage import RUBBER, STEEL, WOOD, Rng, Stage

WARM: tuple[Colour, ...] = ((0.80, 0.62, 0.40), (0.78, 0.48, 0.32), (0.82, 0.72, 0.50), (0.66, 0.36, 0.26))
CLOTH: tuple[Colour, ...] = ((0.62, 0.18, 0.12), (0.74, 0.50, 0.16), (0.38, 0.40, 0.18), (0.55, 0.28, 0.30))


def _table(s: Stage, x: float, z: float) -> None:
    w, d, h = s.span(0.6, 1.1), s.span(0.45, 0.8), s.span(0.55, 0.78)
    s.stand(x, z, (w, 0.05, d), WOOD, base=h)
    for i in (-1, 1):
        for j in (-1, 1):
            s.pole(x + i * (w / 2 - 0.05), z + j * (d / 2 - 0.05), 0.03, h, WOOD)
    s.ball(
        x + s.span(-0.2, 0.2),
        -h - 0.17,
        z,
        0.12,
        Material(s.pick(CLOTH), (0.9, 0.8, 0.6), Pattern.RINGS, 0.08, 0.2, 0.1),
    )


def _sofa(s: Stage, x: float, z: float) -> None:
    cloth = Material(s.pick(CLOTH), s.pick(WARM), Pattern.CHECK, s.span(0.07, 0.14), 0.35, 0.12)
    w = s.span(0.9, 1.5)
    s.stand(x, z, (w, 0.42, 0.6), cloth)
    s.stand(x, z + 0.35, (w, 0.85, 0.18), cloth)
    for side in (-1, 1):
        s.stand(x + side * w / 2, z, (0.14, 0.6, 0.65), cloth)


def _bookcase(s: Stage, x: float, z: float) -> None:
    books = Material((0.25, 0.10, 0.05), s.pick(WARM, 0.2), Pattern.GOODS, s.span(0.09, 0.15), 0.4, 0.1)
    s.stand(x, z, (s.span(0.5, 1.0), s.span(1.2, 2.0), 0.32), books)


def _lamp(s: Stage, x: float, z: float) -> None:
    h = s.span(1.1, 1.5)
    s.pole(x, z, 0.025, h, STEEL)
    s.pole(x, z, 0.16, 0.25, Material((1.0, 0.85, 0.55), (0.8, 0.5, 0.3), Pattern.STRIPES, 0.08, 0.2, 0.1, 0.7), base=h)


def _plant(s: Stage, x: float, z: float) -> None:
    s.pole(x, z, 0.15, 0.3, Material((0.60, 0.30, 0.18), grain=0.4, grain_scale=0.1))
    s.ball(x, -0.6, z, s.span(0.22, 0.34), Material((0.25, 0.38, 0.12), grain=1.3, grain_scale=0.12))


def _chest(s: Stage, x: float, z: float) -> None:
    s.stand(x, z, (s.span(0.4, 0.9), s.span(0.4, 0.9), s.span(0.3, 0.5)), WOOD, yaw=s.span(-0.4, 0.4))


def _darker(colour: Colour, factor: float) -> Colour:
    return colour[0] * factor, colour[1] * factor, colour[2] * factor


def _pictures(s: Stage, side: float, front: float) -> None:
    """Framed pictures on the front wall and on both side walls."""
    for x in (-0.6 * side, 0.4 * side):
        w, y = s.span(0.4, 0.7), s.span(-1.5, -1.2)
        canvas = Material(s.pick(CLOTH, 0.2), s.pick(WARM, 0.2), Pattern.GOODS, s.span(0.1, 0.2), 0.5, 0.1)
        s.box((x, y - 0.55, front - 0.03), (x + w, y, front), WOOD)
        s.box((x + 0.05, y - 0.5, front - 0.05), (x + w - 0.05, y - 0.05, front - 0.03), canvas)
    for wall in (-side, side):
        z = s.span(0.6, front - 1.2)
        canvas = Material(s.pick(CLOTH), (0.9, 0.8, 0.5), Pattern.RINGS, s.span(0.12, 0.25), 0.4, 0.1)
        s.box((wall - 0.04, -1.8, z), (wall + 0.04, -1.1, z + 0.8), canvas)


def room(rng: Rng, eye: Vector) -> Scene:
    """A furnished living room: warm colours, wallpaper, wooden floor, soft light from above."""
    s = Stage(rng)
    side, front, height = s.span(1.5, 2.3), s.span(2.6, 4.3), s.span(2.4, 2.8)
    paper = (Pattern.STRIPES, Pattern.CHECK, Pattern.BRICK)[rng.integers(3)]
    colour = s.pick(WARM)
    wall = Material(colour, _darker(colour, s.span(0.6, 0.8)), paper, s.span(0.14, 0.26), 0.3, 0.3)
    s.plane(0.0, Material((0.62, 0.40, 0.20), (0.36, 0.20, 0.09), Pattern.PLANKS, s.span(0.12, 0.18), 0.5, 0.3))
    s.plane(-height, Material((0.85, 0.76, 0.62), (0.74, 0.63, 0.47), Pattern.CHECK, 0.5, 0.25, 0.4))
    s.room((-side, -height - 1, -1.6), (side, 1.0, front), wall)
    rug = Material(s.pick(CLOTH), s.pick(WARM), Pattern.CHECK, 0.18, 0.4, 0.1)
    s.stand(s.span(-0.4, 0.4), s.span(1.6, 2.4), (1.6, 0.012, 1.1), rug)
    _pictures(s, side, front)
    for x in rng.permutation(np.linspace(-side + 0.3, side - 0.3, 6)):
        piece = (_table, _sofa, _bookcase, _lamp, _plant, _chest)[rng.integers(6)]
        nearest = 0.75 if abs(x) > 0.8 else 1.4
        piece(s, float(x) + s.span(-0.1, 0.1), s.span(nearest, front - 0.4))
    ceiling = Lamp((s.span(-0.5, 0.5), -height + 0.3, s.span(1.0, 2.0)), (0.95, 0.76, 0.52), 2.2)
    return s.scene(Light(above=(0.72, 0.60, 0.47), below=(0.50, 0.40, 0.30), lamps=(ceiling,), eye=eye))


COLD: tuple[Colour, ...] = ((0.55, 0.62, 0.70), (0.35, 0.45, 0.60), (0.70, 0.74, 0.78), (0.25, 0.50, 0.62))


def _rack(s: Stage, side: float, x0: float, x1: float, front: float) -> None:
    """One row of tall shelving along z: posts, beams, and goods with gaps."""
    post, beam = (
        Material((0.10, 0.22, 0.55), grain=0.2),
        Material((0.85, 0.35, 0.05), (0.6, 0.2, 0.0), Pattern.STRIPES, 0.1, 0.2),
    )
    lo, hi = sorted((side * x0, side * x1))
    z = s.span(0.5, 0.9)
    while z < front - 0.7:
        bay = s.span(0.9, 1.3)
        for level in range(3):
            y = 0.12 + 1.15 * level
            if s.chance(0.85):
                goods = Material((0.12, 0.16, 0.22), s.pick(COLD, 0.15), Pattern.GOODS, s.span(0.13, 0.3), 0.5, 0.12)
                s.box((lo + 0.06, -y - s.span(0.55, 0.95), z + 0.08), (hi - 0.06, -y, z + bay - 0.1), goods)
            s.box((lo, -y, z), (hi, -y + 0.09, z + bay), beam)
        s.stand(side * x0, z, (0.07, 3.6, 0.07), post)
        z += bay


def warehouse(rng: Rng, eye: Vector) -> Scene:
    """A tall cold hall: concrete, racks on both sides, fine labels, strip lights."""
    s = Stage(rng)
    half, front, height = s.span(2.5, 3.1), s.span(4.4, 5.3), s.span(4.2, 5.0)
    s.plane(0.0, Material((0.46, 0.50, 0.54), (0.85, 0.80, 0.25), Pattern.ROAD, s.span(1.2, 1.7), 0.6, 0.22))
    s.plane(-height, Material((0.30, 0.34, 0.40), (0.16, 0.19, 0.24), Pattern.STRIPES, 0.4, 0.3, 0.3))
    s.room(
        (-half, -height - 1, -2.0),
        (half, 1.0, front),
        Material((0.60, 0.66, 0.72), (0.40, 0.46, 0.54), Pattern.STRIPES, 0.12, 0.35, 0.3),
    )
    aisle = s.span(1.0, 1.5)
    _rack(s, -1, aisle, half, front)
    _rack(s, 1, aisle, half, front)
    for _ in range(rng.integers(2, 5)):
        x, z = s.span(-0.9, 0.9) * aisle, s.span(2.2, front - 0.5)
        if s.chance(0.5):
            s.pole(
                x,
                z,
                s.span(0.2, 0.3),
                s.span(0.7, 0.95),
                Material((0.08, 0.25, 0.65), (0.5, 0.6, 0.7), Pattern.CHECK, 0.2, 0.3, 0.15),
            )
        else:
            crate = Material((0.20, 0.25, 0.30), s.pick(COLD), Pattern.GOODS, 0.16, 0.5, 0.15)
            s.stand(x, z, (s.span(0.4, 0.8), s.span(0.3, 1.1), 0.6), crate, yaw=s.span(-0.5, 0.5))
    for z in (1.5, 3.2, 4.6):
        s.box(
            (-0.12, -height + 0.25, z - 0.6),
            (0.12, -height + 0.3, z + 0.6),
            Material((0.95, 1.0, 1.0), grain=0.0, glow=1.0),
        )
    lamps = tuple(Lamp((0.0, -height + 0.4, z), (0.30, 0.36, 0.42), 3.0) for z in (1.5, 4.0))
    return s.scene(Light(above=(0.60, 0.68, 0.78), below=(0.45, 0.52, 0.60), lamps=lamps, eye=eye))


def _doors_and_heaters(s: Stage, side: int, half: float, front: float) -> None:
    door = Material((0.30, 0.40, 0.34), (0.55, 0.60, 0.50), Pattern.PLANKS, 0.16, 0.5, 0.2)
    heater = Material((0.75, 0.74, 0.66), (0.35, 0.35, 0.32), Pattern.STRIPES, 0.09, 0.3, 0.1)
    wall, z = side * half, s.span(0.5, 1.4)
    while z < front - 1.0:
        inner = side * (half - s.span(0.05, 0.10))
        s.box((min(wall, inner), -2.0, z), (max(wall, inner), 0.0, z + 0.9), door)
        s.ball(inner, -1.0, z + 0.8, 0.05, STEEL)
        if s.chance(0.6):
            inner = side * (half - 0.18)
            s.box((min(inner, wall), -0.8, z + 1.0), (max(inner, wall), -0.15, z + 1.6), heater)
        z += s.span(1.6, 2.4)


def corridor_night(rng: Rng, eye: Vector) -> Scene:
    """A narrow dark corridor lit by a hand lamp that stays where the middle frame was taken."""
    s = Stage(rng)
    half, front, height = s.span(0.65, 0.95), s.span(3.2, 5.6), s.span(2.2, 2.5)
    s.plane(0.0, Material((0.50, 0.52, 0.46), (0.22, 0.26, 0.24), Pattern.CHECK, s.span(0.25, 0.35), 0.5, 0.2))
    s.plane(-height, Material((0.55, 0.58, 0.52), (0.40, 0.42, 0.38), Pattern.CHECK, 0.45, 0.3, 0.25))
    wall = Material((0.60, 0.66, 0.56), (0.36, 0.42, 0.36), Pattern.BRICK, s.span(0.26, 0.4), 0.5, 0.2)
    s.room((-half, -height - 1, -1.5), (half, 1.0, front), wall)
    for side in (-1, 1):
        _doors_and_heaters(s, side, half, front)
    for x in (-0.5, 0.3):
        s.box((x, -height + 0.05, -1.0), (x + 0.09, -height + 0.14, front), STEEL)
    for z in rng.uniform(0.7, front - 0.4, rng.integers(2, 5)).tolist():
        x = s.span(0.35, 0.75) * half * (1 if s.chance(0.5) else -1)
        if s.chance(0.4):
            s.pole(
                x,
                z,
                0.09,
                s.span(0.5, 1.3),
                Material((0.75, 0.08, 0.06), (0.9, 0.9, 0.8), Pattern.STRIPES, 0.1, 0.2, 0.1),
            )
        else:
            box = Material((0.45, 0.42, 0.36), (0.2, 0.2, 0.18), Pattern.GOODS, 0.14, 0.4, 0.1)
            s.stand(x, z, (s.span(0.25, 0.4), s.span(0.4, 1.3), 0.35), box)
    exit_sign = Material((0.02, 0.35, 0.12), (0.45, 0.7, 0.5), Pattern.STRIPES, 0.1, 0.1, 0.1, 1.0)
    s.box((-0.2, -height + 0.2, front - 0.06), (0.2, -height + 0.36, front - 0.02), exit_sign)
    torch = Lamp(eye, (4.6, 4.3, 3.6), 1.0, forward=(s.span(-0.15, 0.15), s.span(0.0, 0.12), 0.98), cone=0.84)
    return s.scene(Light(above=(0.06, 0.07, 0.08), below=(0.045, 0.05, 0.055), lamps=(torch,), eye=eye))


def _desk(s: Stage, x: float, z: float) -> None:
    """A desk on steel legs with a screen, and a chair in front."""
    top = Material((0.92, 0.92, 0.90), (0.75, 0.76, 0.78), Pattern.PLANKS, 0.3, 0.2, 0.3)
    s.stand(x, z, (1.3, 0.04, 0.7), top, base=0.72)
    for dx, dz in ((-0.6, -0.3), (0.6, -0.3), (-0.6, 0.3), (0.6, 0.3)):
        s.pole(x + dx, z + dz, 0.025, 0.72, STEEL)
    screen = Material((0.05, 0.06, 0.08), (0.55, 0.75, 0.95), Pattern.GOODS, s.span(0.06, 0.12), 0.1, 0.1, 0.6)
    s.stand(x, z + 0.15, (0.55, 0.34, 0.04), screen, base=0.88)
    s.pole(x, z + 0.15, 0.03, 0.14, RUBBER, base=0.76)
    cloth = Material((0.16, 0.45, 0.42), (0.10, 0.30, 0.30), Pattern.CHECK, 0.06, 0.4, 0.1)
    s.stand(x + s.span(-0.2, 0.2), z - 0.55, (0.45, 0.08, 0.42), cloth, base=0.42)
    s.stand(x + s.span(-0.2, 0.2), z - 0.75, (0.45, 0.5, 0.06), cloth, base=0.5)


def office(rng: Rng, eye: Vector) -> Scene:
    """A bright white office: desks, screens, glass partitions on posts, carpet tiles.
    Kept for unseen-domain trials.
    """
    s = Stage(rng)
    side, front, height = s.span(2.0, 2.8), s.span(3.6, 5.2), s.span(2.5, 2.9)
    s.plane(0.0, Material((0.36, 0.42, 0.44), (0.28, 0.34, 0.37), Pattern.CHECK, 0.5, 0.6, 0.15))
    s.plane(-height, Material((0.94, 0.95, 0.95), (0.80, 0.82, 0.83), Pattern.BRICK, 0.6, 0.15, 0.1))
    s.room(
        (-side, -height - 1, -1.8),
        (side, 1.0, front),
        Material((0.90, 0.91, 0.90), (0.72, 0.78, 0.80), Pattern.STRIPES, 1.2, 0.25, 0.3),
    )
    for x in np.arange(-side + 0.9, side - 0.6, 1.6).tolist():
        _desk(s, x + s.span(-0.2, 0.2), s.span(1.8, front - 0.6))
    for x in np.arange(-side + 0.3, side, 1.1).tolist():
        if s.chance(0.5):
            s.stand(
                x,
                front - 0.25,
                (0.8, s.span(0.8, 1.9), 0.4),
                Material((0.75, 0.78, 0.80), (0.95, 0.75, 0.2), Pattern.GOODS, 0.2, 0.25, 0.2),
            )
    s.pole(
        s.span(0.8, 1.4) * (1 if s.chance(0.5) else -1),
        s.span(1.4, 2.4),
        0.14,
        3.0,
        Material((0.85, 0.86, 0.86), grain=0.3, grain_scale=0.2),
    )
    light = Light(
        above=(0.85, 0.88, 0.90),
        below=(0.70, 0.74, 0.78),
        lamps=(Lamp((0.0, -height + 0.2, 2.0), (0.3, 0.3, 0.3), 3.0),),
        eye=eye,
    )
    return s.scene(light)
