"""Folders of Open3D's reconstruction system: ``color/``, ``depth/``, ``intrinsic.json``, ``trajectory.log``.

Pictures and maps belong together in the order of their names (they need not be called alike); depth is in millimetres.
The JSON has the matrix column by column.  The log has five lines a frame: three numbers, then camera-to-world.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data.files import cameras
from protodepth.data.files import images as image_files
from protodepth.data.files.text import read_text
from protodepth.data.recording.layout import Layout
from protodepth.data.recording.open import register_layout
from protodepth.data.recording.settings import Settings, make_settings
from protodepth.errors import DataError
from protodepth.types import Float

PICTURES = ("color", "image", "rgb", "images")
CAMERAS = ("intrinsic.json", "camera_intrinsic.json", "intrinsics.json", "camera.json")
TRAJECTORIES = ("trajectory.log", "scene/trajectory.log", "odometry.log")


def _first_there(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).exists()), None)


def _read_trajectory(path: Path) -> Float[np.ndarray, "n 4 4"]:
    """The poses of a .log file in their order."""
    values = cameras.numbers_in(read_text(path), str(path))
    if not values or len(values) % 19:
        raise DataError(f"{path} has {len(values)} numbers, expected 19 for each frame (three, then a 4x4 matrix)")
    poses = np.reshape(values, (-1, 19))[:, 3:].reshape(-1, 4, 4)
    valid = np.array([cameras.pose_is_valid(p) for p in poses])
    return np.where(valid[:, None, None], poses, np.nan)


@register_layout("open3d")
def open3d_layout(folder: Path, values: Mapping[str, Any]) -> tuple[Layout, Settings]:
    """``open3d:/path/to/folder``; options are fields of a recording's Settings."""
    pictures, camera = _first_there(folder, PICTURES), _first_there(folder, CAMERAS)
    if pictures is None or not (folder / "depth").is_dir():
        raise DataError(f"{folder} has no color/ and depth/: expected a folder of Open3D's reconstruction system")
    given = values.get("intrinsics")
    if camera is None and not given:
        raise DataError(f"{folder} has none of {', '.join(CAMERAS)}: give intrinsics=fx,fy,cx,cy")
    images = image_files.files_by_id(pictures, image_files.IMAGE_SUFFIXES)
    depths = image_files.files_by_id(folder / "depth", image_files.DEPTH_SUFFIXES)
    if len(images) != len(depths) or not images:
        raise DataError(f"{folder}: {len(images)} pictures and {len(depths)} depth maps, expected as many of each")
    log = _first_there(folder, TRAJECTORIES)
    poses = _read_trajectory(log) if log else None
    if poses is not None and len(poses) != len(images):
        raise DataError(f"{log} has {len(poses)} poses for {len(images)} pictures: expected one for each")
    K = cameras.parse_intrinsics(str(given)) if given else cameras.read_intrinsics(camera or folder)
    maps = dict(zip(images, depths.values(), strict=True))
    layout = Layout(folder, tuple(images), images, maps, True, {}, K, poses, intrinsics_file=camera)
    known = {"depth_unit": "mm", "image": pictures.name, **({"poses": log.name} if log else {})}
    return layout, make_settings({**known, **values}, f"open3d:{folder}")
