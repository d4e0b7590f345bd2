"""A small ray caster on NumPy: cameras, scenes of convex solids with materials and lamps, and what each ray hits.

Axes as in a camera: x right, y down, z forward; the ground is y = 0, so what stands on it has negative y.  A ray is
``origin + t * direction``; camera rays have z = 1 in the camera's frame, so that t is the z-depth itself.
Light does not depend on the camera: a surface point has one colour in all frames of a triplet.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from protodepth.types import Float

Colour = tuple[float, float, float]
Vector = tuple[float, float, float]
Array = np.ndarray

NEAR = 0.05  # metres; nothing nearer is seen
FAR = 1000.0  # metres; the ground ends there, so that coordinates stay small
OCTAVES = 4


class Shape(IntEnum):
    """The kinds of convex solids that a ray can meet."""

    PLANE = 0  # y = centre.y, without end
    ROOM = 1  # a box seen from inside
    BOX = 2
    CYLINDER = 3  # upright
    BALL = 4


class Pattern(IntEnum):
    """How the two colours of a material lie on the surface of a solid."""

    PLAIN = 0
    CHECK = 1
    BRICK = 2
    STRIPES = 3  # along u: upright bars on a wall
    PLANKS = 4  # long cells, each with its own tone
    WINDOWS = 5  # panes in a grid; some are lit where the material glows
    ROAD = 6  # lane marks every ``scale`` metres, dashed along v
    GOODS = 7  # cells of random colour between the two
    RINGS = 8


@dataclass(frozen=True, slots=True)
class Material:
    """Two colours mixed by a pattern of size ``scale`` metres, and multiplied by noise of strength ``grain``."""

    colour: Colour
    second: Colour = (0.0, 0.0, 0.0)
    pattern: Pattern = Pattern.PLAIN
    scale: float = 1.0
    grain: float = 0.35
    grain_scale: float = 0.5
    glow: float = 0.0  # 1 = shines by itself


@dataclass(frozen=True, slots=True)
class Solid:
    """A convex solid of a scene: its shape, place, size, turn and material."""

    shape: Shape
    centre: Vector
    half: Vector  # half sizes; a cylinder takes its radius from the first, a ball with three sizes is an ellipsoid
    material: Material
    yaw: float = 0.0  # radians about y
    tilt: tuple[float, float] = (0.0, 0.0)  # radians about x and z, before the yaw


@dataclass(frozen=True, slots=True)
class Lamp:
    """A point light: strength 1 / (1 + (distance / reach)^2); with ``forward``, a cone about that direction."""

    position: Vector
    colour: Colour
    reach: float
    forward: Vector | None = None
    cone: float = 0.85  # cosine at which the cone is dark


@dataclass(frozen=True, slots=True, kw_only=True)
class Light:
    """All light of a scene.  Haze thickens with the distance from ``eye``, the middle camera, not the current one."""

    above: Colour  # ambient light on surfaces that face up
    below: Colour
    sun: Colour = (0.0, 0.0, 0.0)
    sun_direction: Vector = (0.0, -1.0, 0.0)  # towards the sun
    sky: tuple[Colour, Colour] = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))  # zenith, horizon
    clouds: float = 0.0
    haze: float = 0.0  # 1 / metres
    lamps: tuple[Lamp, ...] = ()
    eye: Vector = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Scene:
    """All that rays can meet, solids and light, with the solids' numbers as arrays."""

    solids: tuple[Solid, ...]
    light: Light

    @cached_property
    def centres(self) -> Float[Array, "n 3"]:
        return np.array([s.centre for s in self.solids], np.float64)

    @cached_property
    def halves(self) -> Float[Array, "n 3"]:
        return np.array([s.half for s in self.solids], np.float64)

    @cached_property
    def turns(self) -> Float[Array, "n 2"]:
        """(cos, sin) of each yaw."""
        yaw = np.array([s.yaw for s in self.solids], np.float64)
        return np.stack([np.cos(yaw), np.sin(yaw)], -1)

    @cached_property
    def tilted(self) -> bool:
        """Whether any solid leans: upright ones need two numbers where these need nine."""
        return any(any(s.tilt) for s in self.solids)

    @cached_property
    def rotations(self) -> Float[Array, "n 3 3"]:
        """Solid to world: about z, then x, then y."""
        return np.array([rotation(s.yaw, *s.tilt) for s in self.solids])

    @cached_property
    def corners(self) -> Float[Array, "n 8 3"]:
        """Corners of the bounding boxes; bits 4, 2, 1 of the number are the signs along x, y, z."""
        signs = np.array([[i, j, k] for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)], np.float64)
        if self.tilted:
            return np.einsum("nij,nkj->nki", self.rotations, signs[None] * self.halves[:, None]) + self.centres[:, None]
        x, y, z = np.moveaxis(signs[None] * self.halves[:, None], -1, 0)
        cos, sin = self.turns[:, :1], self.turns[:, 1:]
        return np.stack([cos * x + sin * z, y, cos * z - sin * x], -1) + self.centres[:, None]

    @cached_property
    def shapes(self) -> Array:
        return np.array([int(s.shape) for s in self.solids], np.int64)

    @cached_property
    def geometry(self) -> Float[Array, "8 n"]:
        """Centre, half sizes, cos and sin of yaw as rows, in single precision, for looking up by ray."""
        return np.concatenate([self.centres.T, self.halves.T, self.turns.T]).astype(np.float32)

    @cached_property
    def surfaces(self) -> Float[Array, "10 n"]:
        """First colour, second colour, scale, grain, grain scale and glow as rows."""
        rows = [
            (*m.colour, *m.second, m.scale, m.grain, m.grain_scale, m.glow) for m in (s.material for s in self.solids)
        ]
        return np.array(rows, np.float32).T.copy()

    @cached_property
    def patterns(self) -> Array:
        return np.array([int(s.material.pattern) for s in self.solids], np.int64)


@dataclass(frozen=True, slots=True)
class Camera:
    """A pinhole camera: world = rotation @ camera + origin."""

    intrinsics: Float[Array, "3 3"]
    rotation: Float[Array, "3 3"]
    origin: Float[Array, "3"]

    def directions(self, x: Float[Array, "w"], y: Float[Array, "h"], dtype: type = np.float32) -> Float[Array, "3 h w"]:
        r"""World directions :math:`R K^{-1} (x, y, 1)` of a grid of pixels."""
        a = ((x - self.intrinsics[0, 2]) / self.intrinsics[0, 0])[None, :]
        b = ((y - self.intrinsics[1, 2]) / self.intrinsics[1, 1])[:, None]
        R = self.rotation
        return np.stack([R[i, 0] * a + R[i, 1] * b + R[i, 2] for i in range(3)]).astype(dtype)

    def pose(self) -> Float[Array, "4 4"]:
        """Camera to world."""
        matrix = np.eye(4)
        matrix[:3, :3], matrix[:3, 3] = self.rotation, self.origin
        return matrix

    def windows(self, scene: Scene, x: Array, y: Array) -> Array:
        """Rows and columns (r0, r1, c0, c1) of the pixel grid that may see each solid, by its bounding box."""
        points, ahead = _clipped(np.einsum("nkj,ji->nki", scene.corners - self.origin, self.rotation))
        z = np.where(ahead, points[..., 2], 1.0)
        u = points[..., 0] / z * self.intrinsics[0, 0] + self.intrinsics[0, 2]
        v = points[..., 1] / z * self.intrinsics[1, 1] + self.intrinsics[1, 2]
        window = np.stack(
            [
                np.searchsorted(y, np.where(ahead, v, np.inf).min(1)),
                np.searchsorted(y, np.where(ahead, v, -np.inf).max(1), "right"),
                np.searchsorted(x, np.where(ahead, u, np.inf).min(1)),
                np.searchsorted(x, np.where(ahead, u, -np.inf).max(1), "right"),
            ],
            -1,
        )
        endless = (scene.shapes <= int(Shape.ROOM))[:, None]
        return np.where(endless, np.array([0, len(y), 0, len(x)]), window)


def rotation(yaw: float, pitch: float, roll: float) -> Float[np.ndarray, "3 3"]:
    """Camera to world, angles in radians: roll about z, then pitch (down positive), then yaw (right positive)."""
    (cy, cp, cr), (sy, sp, sr) = ([f(a) for a in (yaw, pitch, roll)] for f in (math.cos, math.sin))
    turn = np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    nod = np.array([[1, 0, 0], [0, cp, sp], [0, -sp, cp]])
    lean = np.array([[cr, -sr, 0], [sr, cr, 0], [0, 0, 1]])
    return np.einsum("ij,jk,kl->il", turn, nod, lean)


def relative(middle: Camera, other: Camera) -> Float[np.ndarray, "4 4"]:
    """g_{tau t} of two ray-cast cameras: points of the middle one in the other one's frame."""
    pose = np.eye(4)
    pose[:3, :3] = np.einsum("ji,jk->ik", other.rotation, middle.rotation)
    pose[:3, 3] = np.einsum("ji,j->i", other.rotation, middle.origin - other.origin)
    return pose


def _clipped(corners: Float[Array, "n 8 3"]) -> tuple[Float[Array, "n 20 3"], Array]:
    """Corners of boxes in the camera's frame and their edges' cuts with z = NEAR,
    and which of these 20 are in front.
    """
    start = [c for c in range(8) for bit in (1, 2, 4) if not c & bit]
    end = [c | bit for c in range(8) for bit in (1, 2, 4) if not c & bit]
    a, b = corners[:, start], corners[:, end]
    rise = b[..., 2] - a[..., 2]
    crosses = (a[..., 2] < NEAR) != (b[..., 2] < NEAR)
    share = np.where(crosses, (NEAR - a[..., 2]) / np.where(crosses, rise, 1.0), 0.0)
    cuts = a + share[..., None] * (b - a)
    return np.concatenate([corners, cuts], 1), np.concatenate([corners[..., 2] >= NEAR, crosses], 1)


@dataclass(frozen=True, slots=True)
class Hits:
    """Nearest surface of each ray: t (infinity = none) and the number of the solid (-1 = none)."""

    t: Float[Array, "h w"]
    solid: Array


def _nonzero(d: Array) -> Array:
    return d if d.all() else np.where(d == 0, d.dtype.type(1e-12), d)


def _slab(origin: float, inverse: Array, half: float) -> tuple[Array, Array]:
    middle, reach = -origin * inverse, half * np.abs(inverse)
    return middle - reach, middle + reach


def _round(origin: Array, direction: Array, axes: Sequence[int], radius: float) -> tuple[Array, Array]:
    """Interval inside an infinite cylinder (two axes) or a ball (three): roots of |o + t d|^2 = r^2."""
    d = [direction[i] for i in axes]
    a = _nonzero(sum(x * x for x in d))  # type: ignore[arg-type]
    b = sum(float(origin[i]) * x for i, x in zip(axes, d, strict=True)) / a
    c = (sum(float(origin[i]) ** 2 for i in axes) - radius**2) / a
    square = b * b - c
    root = np.sqrt(np.maximum(square, 0))
    empty = np.where(square < 0, np.inf, 0).astype(root.dtype)
    return -b - root + empty, -b + root - empty


def _interval(shape: int, origin: Array, direction: Array, inverse: Array | None, half: Array) -> tuple[Array, Array]:
    """The part of each ray inside a convex solid, in the solid's own frame."""
    if shape == Shape.BALL and (half != half[0]).any():
        return _round(origin / half, direction / half.astype(direction.dtype)[:, None, None], (0, 1, 2), 1.0)
    if shape == Shape.BALL:
        return _round(origin, direction, (0, 1, 2), half[0])
    axes = (1,) if shape == Shape.CYLINDER else (0, 1, 2)
    start, end = _round(origin, direction, (0, 2), half[0]) if shape == Shape.CYLINDER else (None, None)
    for i in axes:
        slope = inverse[i] if inverse is not None else 1 / _nonzero(direction[i])
        enter, leave = _slab(float(origin[i]), slope, float(half[i]))
        start = enter if start is None else np.maximum(start, enter, out=start)
        end = leave if end is None else np.minimum(end, leave, out=end)
    return start, end  # type: ignore[return-value]


def cast(scene: Scene, origin: Array, direction: Float[Array, "3 h w"], windows: Array | None = None) -> Hits:
    """Nearest hits.  ``windows`` limits each solid to the rows and columns that can see it (``Camera.windows``)."""
    t = np.full(direction.shape[1:], np.inf, direction.dtype)
    solid = np.full(direction.shape[1:], -1, np.int16)
    direction = np.stack([_nonzero(d) for d in direction])
    inverse = 1 / direction
    for n, shape in enumerate(scene.shapes.tolist()):
        r0, r1, c0, c1 = (0, t.shape[0], 0, t.shape[1]) if windows is None else windows[n]
        if r0 >= r1 or c0 >= c1:
            continue
        part = (slice(r0, r1), slice(c0, c1))
        hit = _first(scene, n, shape, origin, direction[:, *part], inverse[:, *part])
        nearer = hit < t[part]
        np.copyto(t[part], hit, where=nearer)
        np.copyto(solid[part], n, where=nearer)
    return Hits(t, solid)


def _first(scene: Scene, n: int, shape: int, origin: Array, direction: Array, inverse: Array) -> Array:
    """t at which the rays meet solid n, infinity where they do not."""
    offset = origin - scene.centres[n]
    if shape == Shape.PLANE:
        t = -float(offset[1]) * inverse[1]
        return np.where((t > NEAR) & (t < FAR), t, np.inf)
    slopes: Array | None = inverse
    cos, sin = (float(v) for v in scene.turns[n])
    if any(scene.solids[n].tilt):
        back = scene.rotations[n].T
        offset, slopes = back @ offset, None
        direction = np.tensordot(back.astype(direction.dtype), direction, 1)
    elif sin != 0 and shape in (Shape.BOX, Shape.ROOM):
        offset = np.array([cos * offset[0] - sin * offset[2], offset[1], sin * offset[0] + cos * offset[2]])
        x, y, z = direction
        direction, slopes = np.stack([cos * x - sin * z, y, sin * x + cos * z]), None
    start, end = _interval(shape, offset, direction, slopes, scene.halves[n])
    if shape == Shape.ROOM:
        return np.where(end > NEAR, end, np.inf)
    return np.where((start <= end) & (start > NEAR), start, np.inf)
