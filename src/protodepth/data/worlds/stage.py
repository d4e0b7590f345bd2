"""Building a scene solid by solid.  All sizes in metres, y is down, the ground is y = 0.

A layout is a function (rng, eye) -> Scene; ``eye`` is the middle camera's position: near x = z = 0, looking along z.
"""

from collections.abc import Callable

import numpy as np

from protodepth.data.worlds.raycast import Colour, Light, Material, Pattern, Scene, Shape, Solid, Vector

Rng = np.random.Generator
SceneMaker = Callable[[Rng, Vector], Scene]

STEEL = Material((0.45, 0.47, 0.50), (0.2, 0.2, 0.2), Pattern.STRIPES, 0.5, 0.2, 0.3)
WOOD = Material((0.50, 0.30, 0.14), (0.26, 0.14, 0.06), Pattern.PLANKS, 0.09, 0.5, 0.25)
BARK = Material((0.30, 0.22, 0.15), grain=0.9, grain_scale=0.25)
RUBBER = Material((0.06, 0.06, 0.07), grain=0.3, grain_scale=0.2)


class Stage:
    """Builds a scene: collects solids; each call adds one."""

    def __init__(self, rng: Rng) -> None:
        self.rng = rng
        self.solids: list[Solid] = []

    def span(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, colours: tuple[Colour, ...], jitter: float = 0.06) -> Colour:
        colour = np.array(colours[self.rng.integers(len(colours))]) + self.rng.uniform(-jitter, jitter, 3)
        r, g, b = np.clip(colour, 0.02, 1.0)
        return float(r), float(g), float(b)

    def plane(self, y: float, material: Material) -> None:
        self.solids.append(Solid(Shape.PLANE, (0.0, y, 0.0), (1.0, 1.0, 1.0), material))

    def room(self, low: Vector, high: Vector, material: Material) -> None:
        self._box(Shape.ROOM, low, high, material)

    def box(self, low: Vector, high: Vector, material: Material, yaw: float = 0.0) -> None:
        self._box(Shape.BOX, low, high, material, yaw)

    def _box(self, shape: Shape, low: Vector, high: Vector, material: Material, yaw: float = 0.0) -> None:
        centre = tuple((a + b) / 2 for a, b in zip(low, high, strict=True))
        half = tuple(abs(b - a) / 2 for a, b in zip(low, high, strict=True))
        self.solids.append(Solid(shape, centre, half, material, yaw))  # type: ignore[arg-type]

    def stand(
        self, x: float, z: float, size: Vector, material: Material, *, base: float = 0.0, yaw: float = 0.0
    ) -> None:
        """A box of (width, height, depth) standing ``base`` above the ground at (x, z)."""
        w, h, d = size
        self.box((x - w / 2, -base - h, z - d / 2), (x + w / 2, -base, z + d / 2), material, yaw)

    def pole(self, x: float, z: float, radius: float, height: float, material: Material, *, base: float = 0.0) -> None:
        centre = (x, -base - height / 2, z)
        self.solids.append(Solid(Shape.CYLINDER, centre, (radius, height / 2, radius), material))

    def ball(self, x: float, y: float, z: float, radius: float, material: Material) -> None:
        self.solids.append(Solid(Shape.BALL, (x, y, z), (radius, radius, radius), material))

    def scene(self, light: Light) -> Scene:
        return Scene(tuple(self.solids), light)
