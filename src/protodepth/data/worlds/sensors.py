"""Depth sensors of the built-in worlds: what they measure of a scene, and how wrong."""

from dataclasses import dataclass

import numpy as np

from protodepth.data import sampling
from protodepth.data.worlds import raycast
from protodepth.data.worlds.raycast import Camera, Scene
from protodepth.types import Float

Range = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corners:
    """Points at image corners, as visual odometry tracks them; error proportional to depth."""

    sampler: str  # of sampling.SAMPLERS
    density: float  # share of pixels
    noise: float  # standard deviation as a share of depth


@dataclass(frozen=True, slots=True, kw_only=True)
class Lidar:
    """A spinning scanner beside the camera; lines and columns are those for an image 96 pixels wide and grow with
    it.
    """

    lines: int
    columns: int
    elevation: Range  # degrees, down is positive
    noise: float  # metres
    relative_noise: float  # share of depth
    dropout: float
    offset: tuple[float, float, float]  # from the camera, camera axes: the gap lets it see behind edges


def corner_points(sensor: Corners, image: np.ndarray, truth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Depth at corners of the picture, with noise."""
    count = max(1, round(sensor.density * truth.size))
    sparse = sampling.SAMPLERS[sensor.sampler](image, truth, count, rng)
    return sparse * np.clip(1 + sensor.noise * rng.standard_normal(truth.shape), 0.5, 1.5)


def lidar_returns(sensor: Lidar, scene: Scene, camera: Camera, size: tuple[int, int]) -> Float[np.ndarray, "3 n"]:
    """Noiseless (column, row, z-depth) in the camera of every return in view,
    from rays cast at the scanner's own place.
    """
    w = size[1]
    scale = w / 96  # the focal length grows with the width: the gap between lines stays the same in pixels
    lines, columns = max(3, round(sensor.lines * scale)), max(3, round(sensor.columns * scale))
    reach = np.arctan(w / 2 / camera.intrinsics[0, 0]) * 1.1
    azimuth = np.linspace(-reach, reach, columns)[None, :]
    elevation = np.radians(np.linspace(*sensor.elevation, lines))[:, None]
    local = np.stack(np.broadcast_arrays(np.tan(azimuth), np.tan(elevation) / np.cos(azimuth), 1.0))
    place = np.array(sensor.offset)
    world = np.einsum("ij,jhw->ihw", camera.rotation, local)
    t = raycast.cast(scene, camera.origin + np.einsum("ij,j->i", camera.rotation, place), world).t
    hit = np.isfinite(t)
    x, y, z = place[:, None] + t[hit] * local[:, hit]
    K = camera.intrinsics
    return np.stack([x / z * K[0, 0] + K[0, 2], y / z * K[1, 1] + K[1, 2], z])


def lidar_points(
    sensor: Lidar, returns: Float[np.ndarray, "3 n"], truth: np.ndarray, rng: np.random.Generator
) -> Float[np.ndarray, "h w"]:
    """Returns written into pixels, with noise.

    A return that agrees with the picture takes the depth at its pixel's centre: at these sizes a pixel of far road
    spans metres, and that rounding is no sensor noise.  One that lies behind all its neighbours is kept as it is (a
    background seen past an edge), one in front of them (something thinner than a pixel) is lost.
    """
    h, w = truth.shape
    returns = returns[:, rng.random(returns.shape[1]) >= sensor.dropout]
    x, y = np.round(returns[0]).astype(int), np.round(returns[1]).astype(int)
    inside = (x >= 0) & (x < w) & (y >= 0) & (y < h)
    x, y, z = x[inside], y[inside], returns[2, inside]
    order = np.argsort(-z, kind="stable")  # the nearest is written last
    x, y, z = x[order], y[order], z[order]
    low, high = _window_range(truth)
    value = np.where(z > high[y, x] * 1.02, z, np.where(z < low[y, x] * 0.98, 0.0, truth[y, x]))
    value = value * (truth[y, x] > 0)
    noise = rng.standard_normal((2, len(value)))
    value = np.where(value > 0, value * (1 + sensor.relative_noise * noise[0]) + sensor.noise * noise[1], 0.0)
    sparse = np.zeros((h, w))
    sparse[y, x] = np.maximum(value, 0.0)
    return sparse


def _window_range(truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest depth among the known pixels of each 3 x 3 window."""
    padded = np.pad(truth, 1, mode="edge")
    h, w = truth.shape
    views = np.stack([padded[i : i + h, j : j + w] for i in range(3) for j in range(3)])
    return np.where(views > 0, views, np.inf).min(0), views.max(0)
