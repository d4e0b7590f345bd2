"""A camera that walks through one scene of the built-in worlds: what the format tests write to disk and read back."""

from dataclasses import dataclass

import numpy as np

from protodepth.data.worlds import raycast, shading, worlds


@dataclass(frozen=True)
class Shot:
    image: np.ndarray  # h w 3 uint8
    depth: np.ndarray  # h w float64 metres, 0 where there is nothing
    K: np.ndarray
    pose: np.ndarray  # 4 4 camera-to-world


def walk(count: int = 4, size: tuple[int, int] = (48, 64), world: str = "room", step: float = 0.08) -> list[Shot]:
    """Shots of one scene from a camera that moves to the right, forward, and turns a little."""
    path = [((0.01 * i, 0.05, 0.003 * i), (step * i, -1.4, 0.3 * step * i)) for i in range(count)]
    return shoot(path, size, world)


def sway(count: int = 36, size: tuple[int, int] = (48, 64), world: str = "room") -> list[Shot]:
    """Shots from a hand that moves to and fro: its motion is another at every moment."""
    turns = [(0.3 * np.sin(i / 3), 0.05 + 0.08 * np.sin(i / 4), 0.03 * np.sin(i / 5)) for i in range(count)]
    places = [(0.35 * np.sin(i / 4), -1.4 + 0.05 * np.sin(i / 3), 0.25 * np.sin(i / 6)) for i in range(count)]
    return shoot(list(zip(turns, places, strict=True)), size, world)


def shoot(
    path: list[tuple[tuple[float, ...], tuple[float, ...]]], size: tuple[int, int], world: str = "room"
) -> list[Shot]:
    """Shots of one scene from each (yaw, pitch, roll) and place of a path."""
    spec = worlds.WORLDS[world]
    h, w = size
    K = np.array([[spec.focal * w, 0, w / 2 - 1.3], [0, spec.focal * w * 1.02, h / 2 + 0.7], [0, 0, 1]])
    scene = worlds.LAYOUTS[world](np.random.default_rng(3), (0.0, -1.4, 0.0))
    shots = []
    for turn, place in path:
        R = worlds.rotation(*turn)
        origin = np.array(place)
        camera = raycast.Camera(K, R, origin)
        image = (np.clip(shading.photograph(scene, camera, size), 0, 1) * 255 + 0.5).astype(np.uint8)
        depth = shading.depth_map(scene, camera, size)
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = R, origin
        shots.append(Shot(image, np.where(depth <= spec.max_depth, depth, 0.0), K, pose))
    return shots


def thin(depth: np.ndarray, every: int = 3) -> np.ndarray:
    """A sparse map: every n-th pixel of a grid."""
    sparse = np.zeros_like(depth)
    sparse[::every, ::every] = depth[::every, ::every]
    return sparse


def relative(t: Shot, tau: Shot) -> np.ndarray:
    """g_{tau t} by the general matrix inverse: an oracle apart from the package's closed form."""
    return np.linalg.inv(tau.pose) @ t.pose


def assert_frame_is(frame: object, shot: Shot, *, quantum: float, loss: float = 0.0) -> None:
    """Image (up to JPEG loss), ground truth (up to half a storage step) and intrinsics equal the scene's."""
    difference = np.abs(frame.image.astype(int) - shot.image.astype(int))  # type: ignore[attr-defined]
    assert difference.mean() <= loss, f"image differs by {difference.mean()} grey levels"
    assert np.allclose(frame.intrinsics, shot.K, atol=1e-4)  # type: ignore[attr-defined]
    truth = frame.ground_truth  # type: ignore[attr-defined]
    assert truth is not None
    assert np.abs(truth - shot.depth).max() <= quantum / 2 + 1e-5


def assert_neighbours_are(frame: object, t: Shot, around: list[Shot], *, loss: float = 0.0, atol: float = 1e-4) -> None:
    """The neighbouring images are the scene's, and each pose takes points of t into that neighbour."""
    assert len(frame.neighbours) == len(around)  # type: ignore[attr-defined]
    for image, shot in zip(frame.neighbours, around, strict=True):  # type: ignore[attr-defined]
        assert np.abs(image.astype(int) - shot.image.astype(int)).mean() <= loss
    for pose, shot in zip(frame.poses, around, strict=True):  # type: ignore[attr-defined]
        assert np.allclose(pose, relative(t, shot), atol=atol)


def enlarge(shot: Shot, factor: int) -> Shot:
    """Each pixel repeated: full-size pictures for formats with a fixed size, without the time to draw them."""
    image, depth = (np.repeat(np.repeat(a, factor, 0), factor, 1) for a in (shot.image, shot.depth))
    return Shot(image, depth, np.diag([factor, factor, 1.0]) @ shot.K, shot.pose)
