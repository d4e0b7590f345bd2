"""Folders of ``frame-000000.{color.png,depth.png,pose.txt}``: 7-Scenes, and what BundleFusion and others write alike.

Depth is in millimetres, 65535 where there is none; poses are camera-to-world.  7-Scenes gives one camera for all (585,
585, 320, 240), that of its depth sensor: its depth is not registered to the pictures.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data.files import cameras
from protodepth.data.files.text import read_text
from protodepth.data.recording.layout import Layout
from protodepth.data.recording.open import register_layout
from protodepth.data.recording.settings import Settings, make_settings
from protodepth.errors import DataError
from protodepth.types import Float

CAMERA = (585.0, 585.0, 320.0, 240.0)
PICTURES, MAPS = ("color.png", "color.jpg"), ("depth.png", "depth.proj.png", "depth.pgm")


@register_layout("seven_scenes")
def frames_layout(folder: Path, values: Mapping[str, Any]) -> tuple[Layout, Settings]:
    """``seven_scenes:/path/to/chess/seq-01``; options are fields of a recording's Settings."""
    images = _by_name(folder, PICTURES)
    if not images:
        raise DataError(
            f"{folder} has no frame-000000.color.png: give the folder of one sequence, such as chess/seq-01"
        )
    depths = _by_name(folder, MAPS)
    given = values.get("intrinsics")
    K = cameras.parse_intrinsics(str(given)) if given else _camera(folder)
    poses = np.stack([_pose(folder / f"{name}.pose.txt") for name in images])
    layout = Layout(folder, tuple(images), images, depths, True, {}, K, poses if np.isfinite(poses).any() else None)
    known = {"name": folder.resolve().name, "depth_unit": "mm", "poses": "frame-*.pose.txt"}
    return layout, make_settings({**known, **values}, f"seven_scenes:{folder}")


def _by_name(folder: Path, endings: tuple[str, ...]) -> dict[str, Path]:
    """frame -> its file with the first of the endings that it has."""
    files: dict[str, Path] = {}
    for ending in reversed(endings):
        files |= {p.name.removesuffix(f".{ending}"): p for p in folder.glob(f"frame-*.{ending}")}
    return dict(sorted(files.items()))


def _camera(folder: Path) -> Float[np.ndarray, "3 3"]:
    path = next((p for p in (folder / "intrinsics.txt", folder.parent / "intrinsics.txt") if p.exists()), None)
    return cameras.read_intrinsics(path) if path else cameras.intrinsics_matrix(CAMERA)


def _pose(path: Path) -> Float[np.ndarray, "4 4"]:
    """Camera-to-world, NaN where it is lost or not there."""
    lost = np.full((4, 4), np.nan)
    if not path.exists():
        return lost
    values = cameras.numbers_in(read_text(path), str(path))
    if len(values) != 16:
        raise DataError(f"{path} has {len(values)} numbers, expected 16 (4x4, row by row)")
    pose = np.reshape(values, (4, 4))
    return pose if cameras.pose_is_valid(pose) else lost
