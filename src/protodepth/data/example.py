"""A small recording to try the commands on: a camera moves through one scene of a built-in world."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from protodepth.data.files import images as files
from protodepth.data.frame import Frame
from protodepth.data.worlds import worlds
from protodepth.data.worlds.raycast import Camera, rotation
from protodepth.data.worlds.shading import photograph
from protodepth.errors import DataError
from protodepth.storage.files import write_bytes
from protodepth.storage.space import check_space

STORED = 3  # bytes of a pixel of a picture and two depth maps, compressed


def write_example(
    out: str | Path, world: str = "street_dusk", *, frames: int = 40, size: tuple[int, int] = (96, 144), seed: int = 0
) -> int:
    """Write a recording folder with ground truth, as docs/own_data.md describes it; returns the number of frames."""
    folder = Path(out)
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder} is not empty: choose another folder for the example")
    if frames < 3:
        raise DataError(f"a recording needs at least 3 frames for one triplet, got {frames}")
    spec = worlds.spec_of(world)
    worlds.check_drawing(size)
    check_space(folder, frames * size[0] * size[1] * STORED, f"an example of {frames} frames of {size[0]}x{size[1]}")
    unit = "mm" if spec.indoor else "kitti"
    poses = []
    for frame, pose in walk(world, range(frames), size, seed):
        files.write_image(folder / "image" / f"{frame.name}.png", frame.image)
        files.write_depth(folder / "sparse" / f"{frame.name}.png", frame.sparse_depth, unit)
        files.write_depth(folder / "ground_truth" / f"{frame.name}.png", np.asarray(frame.ground_truth), unit)
        poses.append(pose.ravel())
    write_bytes(folder / "intrinsics.txt", _text(frame.intrinsics))
    write_bytes(folder / "poses.txt", _text(np.stack(poses)))
    write_bytes(folder / "recording.toml", f'depth_unit = "{unit}"\nfps = 10\n'.encode())
    return frames


def walk(
    world: str, numbers: Iterable[int], size: tuple[int, int], seed: int = 0
) -> Iterator[tuple[Frame, np.ndarray]]:
    """Frames of the example's recording by number, each with its pose (4x4, camera to world).

    Place and way depend on the seed alone, not on the size.  Noise goes on from frame to frame, so that a frame drawn
    alone has other noise than within the recording.
    """
    spec = worlds.spec_of(world)
    scene, (_, first, _), film, sensing = worlds.set_scene(spec, np.random.SeedSequence(seed), size)
    for i in numbers:
        camera = _moved(first, i, indoor=spec.indoor)
        picture = worlds.develop(photograph(scene, camera, size), spec, film)
        sparse, truth = worlds.sense(spec, scene, camera, picture, sensing)
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = camera.rotation, camera.origin
        yield (
            Frame(
                image=picture,
                sparse_depth=sparse,
                intrinsics=first.intrinsics,
                ground_truth=truth,
                name=f"{i:06d}",
            ),
            pose,
        )


def _moved(first: Camera, i: int, *, indoor: bool) -> Camera:
    """Indoors to and fro sideways; outdoors forward, 0.3 m a frame; both with a small sway of the view."""
    sway = rotation(0.03 * np.sin(i / 9), 0.01 * np.sin(i / 7), 0.0)
    if indoor:
        way = np.array([0.4 * np.sin(i / 10), 0.03 * np.sin(i / 5), 0.1 * np.sin(i / 13)])
    else:
        way = np.array([0.2 * np.sin(i / 11), 0.02 * np.sin(i / 3), 0.3 * i])
    return Camera(first.intrinsics, first.rotation @ sway, first.origin + first.rotation @ way)


def _text(rows: np.ndarray) -> bytes:
    return "".join(" ".join(f"{v:.9g}" for v in row) + "\n" for row in rows).encode()
