"""Colours of ray hits: procedural patterns in surface coordinates, filtered by the pixel's footprint, and light."""

from functools import cache

import numpy as np

from protodepth.data.drawing.raycast import OCTAVES, Array, Hits, Lamp, Light, Pattern, Scene, Shape
from protodepth.types import Float


@cache
def _lattice() -> Float[Array, "65536"]:
    return np.random.default_rng(20250).random(65536, dtype=np.float32)


def _cell(i: Array, j: Array, salt: Array | int) -> Array:
    """A fixed pseudo-random number in [0, 1) for each integer cell."""
    key = (i * 73 + j * 26597 + salt * 7919) & 65535
    return np.take(_lattice(), key)


def value_noise(u: Array, v: Array, salt: Array) -> Array:
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


def fractal(u: Array, v: Array, footprint: Array, salt: Array) -> Array:
    """Octaves of noise in about [-1, 1]; an octave fades out where its wavelength nears two pixels."""
    total = np.zeros_like(u)
    for octave in range(OCTAVES):
        rate = 2.0**octave
        fade = np.clip(1 / (rate * footprint) - 1, 0, 1)
        total += fade * np.float32(0.75**octave) * (value_noise(u * rate, v * rate, salt + octave) - 0.5)
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
    if pattern == Pattern.CHECK:
        return _check(u, v, soft)
    if pattern == Pattern.BRICK:
        return _brick(u, v, soft, salt)
    if pattern == Pattern.STRIPES:
        return _gate(u, 0.5, soft)
    if pattern == Pattern.PLANKS:
        return _planks(u, v, soft, salt)
    if pattern == Pattern.WINDOWS:
        return _gate(u, 0.55, soft) * _gate(v, 0.6, soft)
    if pattern == Pattern.ROAD:
        return _road(u, v, soft)
    if pattern == Pattern.GOODS:
        return _goods(u, v, soft, salt)
    if pattern == Pattern.RINGS:
        return _gate(np.sqrt(u * u + v * v), 0.5, soft)
    return np.zeros_like(u)


def _surface(scene: Scene, n: Array, point: Float[Array, "3 k"]) -> tuple[Array, Array, Array]:
    """Normal up to sign (3 k) and surface coordinates u, v in metres of points on solids ``n``."""
    kind = point.dtype
    x, y, z = point - scene.centres.astype(kind)[n].T
    cos, sin = scene.turns.astype(kind)[n].T
    local = np.stack([cos * x - sin * z, y, sin * x + cos * z])
    half, shape = scene.halves.astype(kind)[n].T, scene.shapes[n]
    axis = np.abs(local / half).argmax(0)
    axis[shape == Shape.PLANE] = 1
    normal = np.zeros_like(local)
    columns = np.arange(len(n))
    normal[axis, columns] = np.sign(local[axis, columns])
    u = np.where(axis == 0, local[2], local[0])
    v = np.where(axis == 1, local[2], local[1])
    curved = ((shape == Shape.CYLINDER) & (np.hypot(local[0], local[2]) > 0.999 * half[0])) | (shape == Shape.BALL)
    if curved.any():
        tall = np.where(shape[curved] == Shape.BALL, local[1, curved], 0)
        out = np.stack([local[0, curved], tall, local[2, curved]]) / half[0, curved]
        normal[:, curved] = out
        u[curved] = np.arctan2(out[0], -out[2]) * half[0, curved]
        v[curved] = local[1, curved]
    normal[:, shape == Shape.PLANE] = np.array([[0], [1], [0]], kind)
    world = np.stack([cos * normal[0] + sin * normal[2], normal[1], cos * normal[2] - sin * normal[0]])
    return world, u, v


def _albedo(scene: Scene, n: Array, u: Array, v: Array, footprint: Array) -> tuple[Array, Array]:
    """Colour (3 k) and glow (k) of surface points."""
    kind = u.dtype
    materials = [s.material for s in scene.solids]
    scale = np.array([m.scale for m in materials], kind)[n]
    pattern = np.array([m.pattern for m in materials])[n]
    salt = n.astype(np.int32) * 13
    mix = np.zeros_like(u)
    soft = np.maximum(footprint / scale, 1e-4)
    for p in np.unique(pattern):
        if p != Pattern.PLAIN:
            k = pattern == p
            mix[k] = _mix(p, u[k] / scale[k], v[k] / scale[k], soft[k], salt[k])
    first = np.array([m.colour for m in materials], kind)[n].T
    second = np.array([m.second for m in materials], kind)[n].T
    grain_scale = np.array([m.grain_scale for m in materials], kind)[n]
    grain = np.array([m.grain for m in materials], kind)[n]
    grains = 1 + grain * fractal(u / grain_scale, v / grain_scale, footprint / grain_scale, salt)
    glow = np.array([m.glow for m in materials], kind)[n]
    panes = pattern == Pattern.WINDOWS
    if panes.any():
        lit = _cell(np.floor(u / scale).astype(np.int32), np.floor(v / scale).astype(np.int32), salt) < 0.4
        glow = np.where(panes, glow * mix * lit, glow)
        second = np.where(panes & ~lit, second * 0.35, second)
    return np.maximum((first + (second - first) * mix) * grains, 0), glow


def _lamp(lamp: Lamp, point: Array, normal: Array) -> Array:
    """Strength of one lamp at each point."""
    to = np.array(lamp.position, point.dtype)[:, None] - point
    distance = np.sqrt((to * to).sum(0)) + 1e-6
    to = to / distance
    strength = np.maximum(0.75 * (to * normal).sum(0) + 0.25, 0) / (1 + (distance / lamp.reach) ** 2)
    if lamp.forward is not None:
        along = -(to * np.array(lamp.forward, point.dtype)[:, None]).sum(0)
        strength *= np.clip((along - lamp.cone) / (1 - lamp.cone) * 2, 0.04, 1)
    return strength


def _lit(light: Light, point: Array, normal: Array) -> Array:
    """Light (3 k) that falls on each point."""
    kind = point.dtype
    up = 0.5 - 0.5 * normal[1]
    above, below = (np.array(c, kind)[:, None] for c in (light.above, light.below))
    total = below + (above - below) * up
    if any(light.sun):
        facing = np.maximum((np.array(light.sun_direction, kind)[:, None] * normal).sum(0), 0)
        total = total + np.array(light.sun, kind)[:, None] * facing
    for lamp in light.lamps:
        total = total + np.array(lamp.colour, kind)[:, None] * _lamp(lamp, point, normal)
    return total


def _sky(light: Light, direction: Float[Array, "3 k"]) -> Array:
    """Colour of rays that hit nothing: a gradient with clouds that depend on the direction alone."""
    kind = direction.dtype
    unit = direction / np.sqrt((direction * direction).sum(0))
    height = np.clip(-unit[1] * 2.5, 0, 1) ** 0.7
    zenith, horizon = (np.array(c, kind)[:, None] for c in light.sky)
    colour = horizon + (zenith - horizon) * height
    if light.clouds:
        bend = 1 / (np.abs(unit[1]) + 0.15)
        veil = fractal(
            unit[0] * bend, unit[2] * bend, np.full_like(bend, 0.03) * bend, np.full(bend.shape, 5, np.int32)
        )
        colour = colour + light.clouds * np.clip(veil + 0.1, 0, 1) * (horizon * 1.05 - colour + 0.15)
    return colour


def shade(
    scene: Scene, hits: Hits, origin: Array, direction: Float[Array, "3 h w"], pixel: float
) -> Float[Array, "3 h w"]:
    """Linear colour of every ray; ``pixel`` is the angle between neighbouring rays (1 / focal length)."""
    light, kind = scene.light, direction.dtype
    out = np.empty_like(direction)
    seen = hits.solid >= 0
    if not seen.all():
        out[:, ~seen] = _sky(light, direction[:, ~seen])
    n, t, d = hits.solid[seen].astype(np.intp), hits.t[seen], direction[:, seen]
    point = np.asarray(origin, kind)[:, None] + t * d
    normal, u, v = _surface(scene, n, point)
    cosine = (normal * d).sum(0) / np.sqrt((d * d).sum(0))
    normal *= -np.sign(cosine)  # towards the viewer: planes and rooms have no outside
    footprint = t * kind.type(pixel) / np.sqrt(np.maximum(np.abs(cosine), 0.02))
    albedo, glow = _albedo(scene, n, u, v, footprint)
    colour = albedo * (_lit(light, point, normal) * (1 - glow) + glow)
    if light.haze:
        far = np.sqrt(((point - np.array(light.eye, kind)[:, None]) ** 2).sum(0))
        clear = np.exp(-light.haze * far)
        horizon = np.array(light.sky[1], kind)[:, None]
        colour = horizon + (colour - horizon) * clear
    out[:, seen] = colour
    return out
