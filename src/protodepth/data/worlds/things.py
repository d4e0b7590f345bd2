"""Things: groups of solids on a foot, of all sizes, shapes and materials, for scenes that no sequence has."""

import math
from collections.abc import Callable

import numpy as np

from protodepth.data.worlds.raycast import Colour, Material, Pattern, Shape, Solid, Vector
from protodepth.data.worlds.stage import Rng, Stage

PATTERNS = tuple(p for p in Pattern if p is not Pattern.PLAIN)


def _colour(rng: Rng) -> Colour:
    """Greys, woods, paints and screaming colours, as they come."""
    value = float(rng.beta(1.6, 1.6))
    saturation = float(rng.beta(0.8, 2.0))
    hue = rng.random(3)
    mixed = value * (1 - saturation + saturation * hue / hue.max())
    r, g, b = np.clip(mixed, 0.015, 1.0)
    return float(r), float(g), float(b)


def material(rng: Rng, size: float = 1.0) -> Material:
    """A surface for a thing of about ``size`` metres: often plain, else any pattern; smooth or grained."""
    first = _colour(rng)
    if rng.random() < 0.3:  # two shades of one paint
        share = float(rng.uniform(0.4, 0.9))
        second = (first[0] * share, first[1] * share, first[2] * share)
    else:
        second = _colour(rng)
    pattern = Pattern.PLAIN if rng.random() < 0.45 else PATTERNS[rng.integers(len(PATTERNS))]
    return Material(
        first,
        second,
        pattern,
        scale=size * float(np.exp(rng.uniform(math.log(0.05), math.log(0.9)))),
        grain=float(
            rng.choice([rng.uniform(0, 0.15), rng.uniform(0.1, 0.6), rng.uniform(0.5, 1.6)], p=[0.5, 0.4, 0.1])
        ),
        grain_scale=size * float(np.exp(rng.uniform(math.log(0.03), math.log(1.0)))),
        glow=float(rng.uniform(0.3, 1.0)) if rng.random() < 0.04 else 0.0,
    )


class Thing:
    """A group of solids on a foot at (x, y, z), turned by ``yaw``; sizes are in its own frame, y up from the foot."""

    def __init__(self, s: Stage, foot: Vector, yaw: float, size: float) -> None:
        self.s, self.foot, self.yaw, self.size = s, foot, yaw, size
        self.rng = s.rng

    def material(self, share: float = 1.0) -> Material:
        return material(self.rng, self.size * share)

    def add(
        self,
        shape: Shape,
        centre: Vector,
        half: Vector,
        look: Material,
        *,
        yaw: float = 0.0,
        tilt: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        x, y, z = (self.size * c for c in centre)
        cos, sin = math.cos(self.yaw), math.sin(self.yaw)
        place = (self.foot[0] + cos * x + sin * z, self.foot[1] - y, self.foot[2] + cos * z - sin * x)
        a, b, c = (max(self.size * h, 1e-4) for h in half)
        self.s.solids.append(Solid(shape, place, (a, b, c), look, self.yaw + yaw, tilt))

    def box(self, centre: Vector, size: Vector, look: Material, **turn: float) -> None:
        self.add(Shape.BOX, centre, (size[0] / 2, size[1] / 2, size[2] / 2), look, **turn)  # type: ignore[arg-type]

    def rod(self, a: Vector, b: Vector, radius: float, look: Material) -> None:
        """A cylinder from a to b."""
        d = np.subtract(b, a)
        length = float(np.sqrt((d * d).sum()))
        pitch = math.acos(float(np.clip(d[1] / length, -1, 1)))
        yaw = math.atan2(float(d[0]), float(d[2]))
        middle = tuple(float(v) for v in np.add(a, b) / 2)
        self.add(Shape.CYLINDER, middle, (radius, length / 2, radius), look, yaw=yaw, tilt=(-pitch, 0.0))  # type: ignore[arg-type]

    def egg(self, centre: Vector, half: Vector, look: Material, tilt: tuple[float, float] = (0.0, 0.0)) -> None:
        self.add(Shape.BALL, centre, half, look, tilt=tilt)


def table(t: Thing) -> None:
    u = t.rng.uniform
    w, d, h, leg = u(0.7, 1.6), u(0.5, 1.0), u(0.6, 0.9), u(0.015, 0.06)
    top, foot = t.material(), t.material(0.3)
    t.box((0, h, 0), (w, u(0.02, 0.08), d), top)
    for i in (-1, 1):
        for j in (-1, 1):
            x, z, lean = i * (w / 2 - leg), j * (d / 2 - leg), u(0, 0.08)
            t.rod((x * (1 + lean), 0, z * (1 + lean)), (x, h, z), leg, foot)


def chair(t: Thing) -> None:
    u = t.rng.uniform
    w, h, back, leg = u(0.4, 0.6), u(0.4, 0.5), u(0.4, 0.65), u(0.012, 0.035)
    cloth, frame = t.material(0.4), t.material(0.3)
    t.box((0, h, 0), (w, u(0.03, 0.1), w), cloth)
    for i in (-1, 1):
        for j in (-1, 1):
            t.rod((i * w / 2, 0, j * w / 2), (i * w / 2, h + (back if j > 0 else 0), j * w / 2), leg, frame)
    slats = int(t.rng.integers(1, 6))
    for y in np.linspace(h + 0.15, h + back, slats):
        t.box((0, float(y), w / 2), (w, back / (1.6 * slats), 0.025), cloth if t.rng.random() < 0.5 else frame)


def shelf(t: Thing) -> None:
    u = t.rng.uniform
    w, h, d, boards = u(0.6, 1.6), u(0.8, 2.2), u(0.25, 0.5), int(t.rng.integers(2, 6))
    wood = t.material()
    for x in (-w / 2, w / 2):
        t.box((x, h / 2, 0), (0.03, h, d), wood)
    if t.rng.random() < 0.6:
        t.box((0, h / 2, d / 2), (w, h, 0.02), t.material())
    for y in np.linspace(0.05, h, boards):
        t.box((0, float(y), 0), (w, 0.03, d), wood)
        x = -w / 2 + 0.05
        while x < w / 2 - 0.1 and t.rng.random() < 0.93:
            a, b = u(0.03, 0.25), u(0.08, 0.75 * h / boards)
            if t.rng.random() < 0.7:
                t.box((x + a / 2, float(y) + b / 2, u(-0.2, 0.1) * d), (a, b, u(0.3, 0.9) * d), t.material(0.2))
            elif t.rng.random() < 0.5:
                t.add(Shape.CYLINDER, (x + a / 2, float(y) + b / 2, 0), (a / 2, b / 2, a / 2), t.material(0.2))
            else:
                t.egg((x + a / 2, float(y) + a / 2, 0), (a / 2, a / 2, a / 2), t.material(0.2))
            x += a + u(0.0, 0.08)


def sofa(t: Thing) -> None:
    u = t.rng.uniform
    w, cloth = u(0.9, 2.2), t.material()
    t.box((0, 0.22, 0), (w, u(0.3, 0.45), 0.8), cloth)
    t.box((0, 0.45, 0.4), (w, u(0.5, 0.9), 0.2), cloth)
    for side in (-1, 1):
        t.box((side * w / 2, 0.3, 0), (0.16, 0.6, 0.8), cloth)
    for x in np.arange(-w / 2 + 0.3, w / 2 - 0.1, u(0.35, 0.6)).tolist():
        t.egg(
            (x, 0.55, 0.15), (u(0.12, 0.22), u(0.1, 0.2), u(0.06, 0.12)), t.material(0.3), (u(-0.5, 0.5), u(-0.5, 0.5))
        )


def plant(t: Thing) -> None:
    u = t.rng.uniform
    h = u(0.2, 0.5)
    t.add(Shape.CYLINDER, (0, h / 2, 0), (u(0.1, 0.2), h / 2, 0.15), t.material(0.3))
    leaf = t.material(0.1)
    for _ in range(int(t.rng.integers(3, 14))):
        y, r = h + u(0.05, 0.9), u(0.04, 0.2)
        t.egg(
            (u(-0.35, 0.35), y, u(-0.35, 0.35)), (r, r * u(0.15, 1), r * u(0.3, 1)), leaf, (u(-1.5, 1.5), u(-1.5, 1.5))
        )
    for _ in range(int(t.rng.integers(0, 5))):
        t.rod((0, h, 0), (u(-0.3, 0.3), h + u(0.3, 0.9), u(-0.3, 0.3)), u(0.005, 0.02), leaf)


def person(t: Thing) -> None:
    u = t.rng.uniform
    cloth, legs, skin = t.material(0.4), t.material(0.4), t.material(0.2)
    sway = u(-0.1, 0.1)
    for side in (-1, 1):
        t.rod((side * u(0.08, 0.25), 0, u(-0.2, 0.2)), (side * 0.1, 0.85, 0), 0.08, legs)
        t.rod((side * 0.22, 1.4, 0), (side * u(0.2, 0.5), u(0.8, 1.3), u(-0.4, 0.2)), 0.05, cloth)
    t.egg((sway / 2, 1.15, 0), (0.22, 0.36, 0.14), cloth)
    t.egg((sway, 1.62, 0), (0.095, 0.125, 0.11), skin)


def lamp(t: Thing) -> None:
    u = t.rng.uniform
    h = u(0.5, 1.8)
    t.rod((0, 0, 0), (u(-0.1, 0.1), h, u(-0.1, 0.1)), u(0.006, 0.025), t.material(0.2))
    t.add(Shape.CYLINDER, (0, h, 0), (u(0.08, 0.25), u(0.08, 0.2), 0.1), t.material(0.3))
    t.add(Shape.CYLINDER, (0, 0.01, 0), (0.15, 0.015, 0.1), t.material(0.3))


def pile(t: Thing) -> None:
    """Boxes, cans and balls upon each other."""
    u, y = t.rng.uniform, 0.0
    for _ in range(int(t.rng.integers(1, 5))):
        w, h, d = u(0.15, 0.7), u(0.08, 0.6), u(0.15, 0.7)
        kind = t.rng.random()
        if kind < 0.65:
            t.box((u(-0.08, 0.08), y + h / 2, u(-0.08, 0.08)), (w, h, d), t.material(0.4), yaw=u(-0.6, 0.6))
        elif kind < 0.85:
            t.add(Shape.CYLINDER, (0, y + h / 2, 0), (w / 2, h / 2, w / 2), t.material(0.4))
        else:
            t.egg((0, y + h / 2, 0), (w / 2, h / 2, d / 2), t.material(0.4))
        y += h


def railing(t: Thing) -> None:
    """Bars side by side: fences, radiators, blinds, curtains."""
    u = t.rng.uniform
    w, h, r, bar = u(0.6, 3.0), u(0.5, 2.0), u(0.008, 0.05), t.material(0.2)
    for x in np.linspace(-w / 2, w / 2, int(np.clip(w / (r * u(2.5, 12)), 3, 28))).tolist():
        t.rod((x, 0, 0), (x, h, 0), r, bar)
    for y in (0.05, h):
        t.rod((-w / 2, y, 0), (w / 2, y, 0), r, bar)


def stairs(t: Thing) -> None:
    u, stone = t.rng.uniform, t.material()
    rise, run, w = u(0.12, 0.2), u(0.22, 0.35), u(0.8, 2.0)
    for n in range(int(t.rng.integers(3, 9))):
        t.box((0, rise * (n + 0.5), run * n), (w, rise, run * 1.02 if n else run), stone)


def car(t: Thing) -> None:
    u = t.rng.uniform
    length, height, w = u(3.4, 5.0), u(0.55, 0.8), u(1.6, 1.9)
    paint, glass, tyre = t.material(2), t.material(1), Material((0.04, 0.04, 0.05), grain=0.2)
    t.box((0, 0.3 + height / 2, 0), (w, height, length), paint)
    t.egg(
        (0, 0.3 + height, u(-0.3, 0.3)), (w * 0.46, u(0.4, 0.75), length * u(0.25, 0.36)), glass if u() < 0.6 else paint
    )
    for x in (-w / 2, w / 2):
        for z in (-length * 0.32, length * 0.32):
            t.rod((x * 0.9, 0.32, z), (x * 1.02, 0.32, z), 0.32, tyre)


def truck(t: Thing) -> None:
    u = t.rng.uniform
    length = u(4, 9)
    t.box((0, 1.6, -length / 2 - 1), (2.3, u(2, 3), 1.8), t.material(2))
    if t.rng.random() < 0.5:
        t.rod((0, 2.2, -length / 2), (0, 2.2, length / 2), u(1.0, 1.3), t.material(2))
    else:
        t.box((0, 2.2, 0), (2.4, u(2, 3), length), t.material(2))
    for x in (-1.1, 1.1):
        for z in np.arange(-length / 2, length / 2, u(1.2, 2.4)).tolist():
            t.rod((x * 0.85, 0.5, z), (x, 0.5, z), 0.5, Material((0.05, 0.05, 0.05), grain=0.3))


def tree(t: Thing) -> None:
    """A thing: a tree with trunk, leaves and branches."""
    u = t.rng.uniform
    h, bark, leaf = u(1.5, 4.0), t.material(0.5), t.material(0.4)
    t.rod((0, 0, 0), (u(-0.3, 0.3), h, u(-0.3, 0.3)), u(0.06, 0.3), bark)
    for _ in range(int(t.rng.integers(2, 12))):
        r = u(0.4, 1.5)
        t.egg((u(-1.2, 1.2), h + u(-0.3, 1.8), u(-1.2, 1.2)), (r, r * u(0.5, 1), r), leaf, (u(-1, 1), u(-1, 1)))
    for _ in range(int(t.rng.integers(0, 6))):
        t.rod((0, h * u(0.5, 1), 0), (u(-1.5, 1.5), h * u(1, 1.5), u(-1.5, 1.5)), u(0.01, 0.06), bark)


def post(t: Thing) -> None:
    u = t.rng.uniform
    h = u(1.5, 7.0)
    t.rod((0, 0, 0), (0, h, 0), u(0.03, 0.15), t.material(0.5))
    if t.rng.random() < 0.6:
        t.box((0, h, 0), (u(0.3, 1.6), u(0.3, 1.2), 0.04), t.material(0.5))
    if t.rng.random() < 0.4:
        t.rod((0, h, 0), (u(-2.5, 2.5), h + u(-0.2, 0.3), 0), u(0.02, 0.08), t.material(0.5))


def loose(t: Thing) -> None:
    """A thing that is one solid and leans any way."""
    u = t.rng.uniform
    half = tuple(float(v) for v in np.exp(t.rng.uniform(math.log(0.02), math.log(0.6), 3)))
    shape = (Shape.BOX, Shape.BALL, Shape.CYLINDER)[t.rng.integers(3)]
    t.add(shape, (0, u(0, 1.2), 0), half, t.material(0.5), tilt=(u(-1.6, 1.6), u(-1.6, 1.6)))  # type: ignore[arg-type]


INDOORS: tuple[Callable[[Thing], None], ...] = (
    table,
    chair,
    chair,
    shelf,
    sofa,
    plant,
    person,
    lamp,
    pile,
    pile,
    railing,
    stairs,
    loose,
)
OUTDOORS: tuple[Callable[[Thing], None], ...] = (
    car,
    car,
    truck,
    tree,
    tree,
    post,
    post,
    person,
    railing,
    pile,
    loose,
    stairs,
)
SMALL: tuple[Callable[[Thing], None], ...] = (pile, pile, loose, loose, plant, lamp, shelf, railing)
