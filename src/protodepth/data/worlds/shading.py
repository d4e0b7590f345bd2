"""Pictures and depth maps of a scene: patterns in surface coordinates, filtered by the pixel's footprint, and light."""

from functools import cache

import numpy as np

from protodepth.data.worlds.raycast import OCTAVES, Array, Camera, Hits, Lamp, Light, Pattern, Scene, Shape, cast
from protodepth.types import Float

# Plain integers: comparing arrays with members of an enumeration is slow.
PLANE, CYLINDER, BALL = int(Shape.PLANE), int(Shape.CYLINDER), int(Shape.BALL)
PLAIN, CHECK, BRICK, STRIPES, PLANKS, WINDOWS, ROAD, GOODS, RINGS = (int(p) for p in Pattern)


@cache
def _lattice() -> Float[Array, "65536"]:
    return np.random.default_rng(20250).random(65536, dtype=np.float32)


def _cell(i: Array, j: Array, salt: Array | int) -> Array:
    """A fixed pseudo-random number in [0, 1) for each integer cell."""
    key = (i * 73 + j * 26597 + salt * 7919) & 65535
    return np.take(_lattice(), key)


def _value_noise(u: Array, v: Array, salt: Array) -> Array:
    """Smooth noise in [0, 1), one lattice point a unit."""
    fu, fv = np.floor(u), np.floor(v)
    i, j = fu.astype(np.int32), fv.astype(np.int32)
    a, b = u - fu, v - fv
    a, b = a * a * (3 - 2 * a), b * b * (3 - 2 * b)
    key = i * 73 + j * 26597 + salt * 7919
    table = _lattice()
    c00, c10 = np.take(table, key & 65535), np.take(table, (key + 73) & 65535)
    c01, c11 = np.take(table, (key + 26597) & 65535), np.take(table, (key + 26670) & 65535)
    top, bottom = c00 + (c10 - c00) * a, c01 + (c11 - c01) * a
    return top + (bottom - top) * b


def _fractal(u: Array, v: Array, footprint: Array, salt: Array) -> Array:
    """Octaves of noise in about [-1, 1]; an octave fades out where its wavelength nears two pixels."""
    total = np.zeros_like(u)
    for octave in range(OCTAVES):
        rate = 2.0**octave
        fade = np.clip(1 / (rate * footprint) - 1, 0, 1)
        total += fade * np.float32(0.75**octave) * (_value_noise(u * rate, v * rate, salt + octave) - 0.5)
    return total * np.float32(1.2)


def _gate(x: Array, width: float, soft: Array) -> Array:
    """1 inside |x - 1/2| < width / 2 within each unit cell, with edges ``soft`` wide."""
    inside = width / 2 - np.abs(x - np.floor(x) - 0.5)
    return np.clip(inside / soft + 0.5, 0, 1)


def _brick(u: Array, v: Array, soft: Array, salt: Array) -> Array:
    row = np.floor(v * 2)
    across = u + 0.5 * (row % 2)
    tone = 0.5 * _cell(np.floor(across).astype(np.int32), row.astype(np.int32), salt)
    wall = _gate(across, 0.92, soft) * _gate(v * 2, 0.84, 2 * soft)
    return 1 - wall * (1 - tone)


def _planks(u: Array, v: Array, soft: Array, salt: Array) -> Array:
    column = np.floor(u)
    along = v / 6 + 0.37 * column
    tone = 0.7 * _cell(column.astype(np.int32), np.floor(along).astype(np.int32), salt)
    board = _gate(u, 0.9, soft) * _gate(along, 0.985, soft / 6)
    return 1 - board * (1 - tone)


def _goods(u: Array, v: Array, soft: Array, salt: Array) -> Array:
    i, j = np.floor(u).astype(np.int32), np.floor(v * 1.5).astype(np.int32)
    tone = _cell(i, j, salt)
    label = _gate(u * 1.0, 0.35, soft) * _gate(v * 1.5, 0.3, 1.5 * soft) * (tone > 0.4)
    return np.clip(tone * 0.8 + 0.6 * label, 0, 1) * _gate(u, 0.93, soft) * _gate(v * 1.5, 0.9, 1.5 * soft)


def _road(u: Array, v: Array, soft: Array) -> Array:
    line = _gate(u, 0.045, np.minimum(soft, 0.2))
    return line * _gate(v / 2.2, 0.5, soft / 2.2)


def _check(u: Array, v: Array, soft: Array) -> Array:
    a, b = 2 * _gate(u / 2, 0.5, soft / 2) - 1, 2 * _gate(v / 2, 0.5, soft / 2) - 1
    return 0.5 + 0.5 * a * b


def _mix(pattern: int, u: Array, v: Array, soft: Array, salt: Array) -> Array:
    """How much of the second colour, in [0, 1]; u and v in units of the pattern's scale."""
    if pattern == CHECK:
        return _check(u, v, soft)
    if pattern == BRICK:
        return _brick(u, v, soft, salt)
    if pattern == STRIPES:
        return _gate(u, 0.5, soft)
    if pattern == PLANKS:
        return _planks(u, v, soft, salt)
    if pattern == WINDOWS:
        return _gate(u, 0.55, soft) * _gate(v, 0.6, soft)
    if pattern == ROAD:
        return _road(u, v, soft)
    if pattern == GOODS:
        return _goods(u, v, soft, salt)
    if pattern == RINGS:
        return _gate(np.sqrt(u * u + v * v), 0.5, soft)
    return np.zeros_like(u)


def _dot(a: Array, b: Array) -> Array:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _surface(scene: Scene, n: Array, point: Float[Array, "3 k"]) -> tuple[Array, Array, Array]:
    """Normal up to sign (3 k) and surface coordinates u, v in metres of points on solids ``n``."""
    cx, cy, cz, hx, hy, hz, cos, sin = (np.take(row, n) for row in scene.geometry)
    shape = np.take(scene.shapes, n)
    x, y, z = point[0] - cx, point[1] - cy, point[2] - cz
    if scene.tilted:
        turn = scene.rotations.astype(np.float32)[n]
        x, y, z = np.einsum("kij,ik->jk", turn, np.stack([x, y, z]))
    else:
        x, z = cos * x - sin * z, sin * x + cos * z
    qx, qy, qz = np.abs(x / hx), np.abs(y / hy), np.abs(z / hz)
    level = ((qy >= qx) & (qy >= qz)) | (shape == PLANE)
    across = ~level & (qx >= qz)
    u, v = np.where(across, z, x), np.where(level, z, y)
    nx, ny, nz = across * np.sign(x), level * np.sign(y - (shape == PLANE)), ~(level | across) * np.sign(z)
    curved = np.flatnonzero((shape == BALL) | ((shape == CYLINDER) & (x * x + z * z > 0.998 * hx * hx)))
    if len(curved):
        radius, ball = hx[curved], shape[curved] == BALL
        nx[curved], nz[curved] = x[curved] / radius, z[curved] / radius
        ny[curved] = ball * y[curved] / radius
        u[curved] = np.arctan2(nx[curved], -nz[curved]) * radius
        v[curved] = y[curved]
        egg = curved[ball & ((hx[curved] != hy[curved]) | (hx[curved] != hz[curved]))]
        if len(egg):
            outward = np.stack([x[egg] / hx[egg] ** 2, y[egg] / hy[egg] ** 2, z[egg] / hz[egg] ** 2])
            nx[egg], ny[egg], nz[egg] = outward / np.sqrt(_dot(outward, outward))
    if scene.tilted:
        return np.einsum("kij,jk->ik", turn, np.stack([nx, ny, nz])), u, v
    return np.stack([cos * nx + sin * nz, ny, cos * nz - sin * nx]), u, v


def _albedo(scene: Scene, n: Array, u: Array, v: Array, footprint: Array) -> tuple[Array, Array]:
    """Colour (3 k) and glow (k) of surface points."""
    look = [np.take(row, n) for row in scene.surfaces]
    first, second, (scale, grain, grain_scale, glow) = look[:3], look[3:6], look[6:]
    pattern, salt = np.take(scene.patterns, n), (n * 13).astype(np.int32)
    grains = 1 + grain * _fractal(u / grain_scale, v / grain_scale, footprint / grain_scale, salt)
    soft = np.maximum(footprint / scale, 1e-4)
    u, v = u / scale, v / scale
    mix = np.zeros_like(u)
    for p in np.unique(scene.patterns).tolist():
        k = np.flatnonzero(pattern == p)
        if p != PLAIN and len(k):
            mix[k] = _mix(p, u[k], v[k], soft[k], salt[k])
    panes = np.flatnonzero(pattern == WINDOWS)
    if len(panes):
        cell = np.floor(u[panes]).astype(np.int32), np.floor(v[panes]).astype(np.int32)
        lit = _cell(*cell, salt[panes]) < 0.4
        glow[panes] *= mix[panes] * lit
        for channel in second:
            channel[panes] *= np.where(lit, 1, 0.35).astype(u.dtype)
    return np.stack([np.maximum((a + (b - a) * mix) * grains, 0) for a, b in zip(first, second, strict=True)]), glow


def _lamp(lamp: Lamp, point: Array, normal: Array) -> Array:
    """Strength of one lamp at each point."""
    to = np.array(lamp.position, point.dtype)[:, None] - point
    distance = np.sqrt(_dot(to, to)) + 1e-6
    to = to / distance
    strength = np.maximum(0.75 * _dot(to, normal) + 0.25, 0) / (1 + (distance / lamp.reach) ** 2)
    if lamp.forward is not None:
        along = -_dot(to, np.array(lamp.forward, point.dtype))
        strength *= np.clip((along - lamp.cone) / (1 - lamp.cone) * 2, 0.04, 1)
    return strength


def _lit(light: Light, point: Array, normal: Array) -> Array:
    """Light (3 k) that falls on each point."""
    kind = point.dtype
    up = 0.5 - 0.5 * normal[1]
    above, below = (np.array(c, kind)[:, None] for c in (light.above, light.below))
    total = below + (above - below) * up
    if any(light.sun):
        facing = np.maximum(_dot(normal, np.array(light.sun_direction, kind)), 0)
        total = total + np.array(light.sun, kind)[:, None] * facing
    for lamp in light.lamps:
        total = total + np.array(lamp.colour, kind)[:, None] * _lamp(lamp, point, normal)
    return total


def _sky(light: Light, direction: Float[Array, "3 k"]) -> Array:
    """Colour of rays that hit nothing: a gradient with clouds that depend on the direction alone."""
    kind = direction.dtype
    unit = direction / np.sqrt(_dot(direction, direction))
    height = np.clip(-unit[1] * 2.5, 0, 1) ** 0.7
    zenith, horizon = (np.array(c, kind)[:, None] for c in light.sky)
    colour = horizon + (zenith - horizon) * height
    if light.clouds:
        bend = 1 / (np.abs(unit[1]) + 0.15)
        veil = _fractal(
            unit[0] * bend, unit[2] * bend, np.full_like(bend, 0.03) * bend, np.full(bend.shape, 5, np.int32)
        )
        colour = colour + light.clouds * np.clip(veil + 0.1, 0, 1) * (horizon * 1.05 - colour + 0.15)
    return colour


def _shade(
    scene: Scene, hits: Hits, origin: Array, direction: Float[Array, "3 h w"], pixel: float
) -> Float[Array, "3 h w"]:
    """Linear colour of every ray; ``pixel`` is the angle between neighbouring rays (1 / focal length)."""
    light, kind = scene.light, direction.dtype
    out = np.empty_like(direction).reshape(3, -1)
    rays, solid = direction.reshape(3, -1), hits.solid.ravel()
    if (solid < 0).any():
        empty = np.flatnonzero(solid < 0)
        out[:, empty] = _sky(light, rays[:, empty])
    seen = np.flatnonzero(solid >= 0)
    n, t, d = solid[seen].astype(np.intp), hits.t.ravel()[seen], rays[:, seen]
    point = np.asarray(origin, kind)[:, None] + t * d
    normal, u, v = _surface(scene, n, point)
    cosine = _dot(normal, d) / np.sqrt(_dot(d, d))
    normal *= -np.sign(cosine)  # towards the viewer: planes and rooms have no outside
    footprint = t * kind.type(pixel) / np.sqrt(np.maximum(np.abs(cosine), 0.02))
    albedo, glow = _albedo(scene, n, u, v, footprint)
    colour = albedo * (_lit(light, point, normal) * (1 - glow) + glow)
    if light.haze:
        away = point - np.array(light.eye, kind)[:, None]
        horizon = np.array(light.sky[1], kind)[:, None]
        colour = horizon + (colour - horizon) * np.exp(-light.haze * np.sqrt(_dot(away, away)))
    out[:, seen] = colour
    return out.reshape(direction.shape)


def photograph(scene: Scene, camera: Camera, size: tuple[int, int]) -> Float[np.ndarray, "h w 3"]:
    """The noiseless picture in [0, 1], each pixel the mean of 2 x 2 rays."""
    h, w = size
    x, y = ((np.arange(2 * n) + 0.5) / 2 - 0.5 for n in (w, h))
    direction = camera.directions(x, y)
    hits = cast(scene, camera.origin, direction, camera.windows(scene, x, y))
    colour = _shade(scene, hits, camera.origin, direction, 0.7 / camera.intrinsics[0, 0])
    return colour.reshape(3, h, 2, w, 2).mean((2, 4)).transpose(1, 2, 0)


def depth_map(scene: Scene, camera: Camera, size: tuple[int, int]) -> Float[np.ndarray, "h w"]:
    """Exact z-depth at pixel centres in double precision; infinity where there is nothing."""
    x, y = (np.arange(n, dtype=np.float64) for n in (size[1], size[0]))
    direction = camera.directions(x, y, np.float64)
    return cast(scene, camera.origin, direction, camera.windows(scene, x, y)).t
