"""``transforms.json`` of nerfstudio, Polycam, NeRFCapture and instant-ngp: pictures, depth maps, poses, one file.

``{"fl_x", "fl_y", "cx", "cy", "w", "h", "frames": [{"file_path", "depth_file_path", "transform_matrix"}]}``; a frame
may have intrinsics of its own; older files have ``camera_angle_x`` instead.  Poses are camera-to-world with y up,
looking along -z (OpenGL).  Depth is in millimetres (nerfstudio's default) unless ``integer_depth_scale`` says other,
and may be smaller than the pictures (iPhone: 256x192): then each value becomes one sparse point.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data import projection
from protodepth.data.datasets.video import video_scan
from protodepth.data.entries import DepthContainer, Entry, FrameReader
from protodepth.data.files import cameras
from protodepth.data.files import images as image_files
from protodepth.data.files.names import natural_key
from protodepth.data.files.text import parse_json
from protodepth.data.frame import EvalRules
from protodepth.data.manifest import Scan, register_scan
from protodepth.errors import DataError, MissingFileError
from protodepth.types import Float

DEPTH_KEYS = ("depth_file_path", "depth_path")  # nerfstudio, NeRFCapture
LENS = ("k1", "k2", "k3", "k4", "p1", "p2")


@dataclass(frozen=True, slots=True)
class SmallDepth(DepthContainer):
    """``depth.png#height,width,unit``: a map whose values are put where they belong in a larger picture."""

    def depth(self, path: Path, inside: str) -> Float[np.ndarray, "h w"]:
        height, width, unit = inside.split(",")
        depth = image_files.read_depth(path, unit)
        return (
            depth if depth.shape == (int(height), int(width)) else projection.scatter(depth, (int(height), int(width)))
        )


CONTAINER = SmallDepth()


def _read_transforms(path: Path) -> dict[str, Any]:
    try:
        table = parse_json(path.read_bytes(), path)
    except OSError as error:
        raise MissingFileError(
            f"{path} cannot be read ({error.strerror}): give the folder of a transforms.json"
        ) from None
    if not isinstance(table, dict) or not isinstance(table.get("frames"), list) or not table["frames"]:
        raise DataError(f"{path} has no list of frames: expected transforms.json of nerfstudio, Polycam or NeRFCapture")
    return table


def _calibration(table: dict[str, Any], frame: dict[str, Any], size: tuple[int, int], where: str) -> np.ndarray:
    """K of a frame for pictures of (height, width): its own numbers, else those of the file, scaled to the size.

    The first pixel has its centre at (0.5, 0.5) there, and at (0, 0) here.
    """
    known = {**{k: v for k, v in table.items() if k != "frames"}, **frame}
    width, height = float(known.get("w", size[1])), float(known.get("h", size[0]))
    if "fl_x" not in known and "camera_angle_x" in known:
        known["fl_x"] = 0.5 * width / math.tan(0.5 * float(known["camera_angle_x"]))
    if "fl_x" not in known:
        raise DataError(f"{where} has neither fl_x nor camera_angle_x: no intrinsics")
    fx = float(known["fl_x"])
    numbers = [fx, float(known.get("fl_y", fx)), float(known.get("cx", width / 2)), float(known.get("cy", height / 2))]
    K = cameras.intrinsics_matrix(numbers, where) * np.array([size[1] / width, size[0] / height, 1.0])[:, None]
    K[:2, 2] -= 0.5
    return K


def _world_pose(frame: dict[str, Any], scale: float, where: str) -> Float[np.ndarray, "4 4"]:
    """Camera-to-world with OpenCV axes, metres."""
    pose = np.asarray(frame.get("transform_matrix", ()), np.float64)
    if pose.shape not in ((4, 4), (3, 4)):
        raise DataError(f"{where} has a transform_matrix of shape {pose.shape}, expected 4x4")
    whole = np.eye(4)
    whole[:3] = pose[:3]
    whole[:3, 3] /= scale
    return whole @ cameras.OPENCV_FROM_OPENGL if cameras.pose_is_valid(whole) else np.full((4, 4), np.nan)


def _find_file(root: Path, name: str) -> Path | None:
    """A file as the frames name it: relative to the JSON, at times without its ending."""
    path = root / name
    choices = [path, *(path.with_name(path.name + suffix) for suffix in image_files.IMAGE_SUFFIXES)]
    return next((p for p in choices if p.is_file()), None)


@register_scan("transforms")
def scan_transforms(
    root: Path, *, unit: str | None = None, sampler: str = "holes", stride: int | None = None, fps: float = 10.0
) -> Scan:
    """The folder of a transforms.json, or the file.  ``unit`` of the depth maps: default integer_depth_scale, else mm.

    Maps of the pictures' size are dense and completed where they have holes (``sampler``); smaller ones are sparse
    points.  Frames in the order of their names.
    """
    path = root / "transforms.json" if root.is_dir() else root
    table, folder = _read_transforms(path), path.parent
    scale = table.get("integer_depth_scale")
    own = unit or (f"{1 / float(scale):.9g}" if scale else "mm")
    image_files.unit_scale(own)
    frames = sorted(table["frames"], key=lambda f: natural_key(str(f.get("file_path", ""))))
    entries, poses, lost = [], [], []
    for frame in frames:
        made = _entry(table, frame, folder, own)
        if isinstance(made, str):
            lost.append(made)
        else:
            entries.append(made)
            poses.append(_world_pose(frame, float(table.get("applied_scale", 1.0)), f"{path}, {frame['file_path']}"))
    if not entries:
        raise DataError(f"{path}: no frame has both a picture and a depth map ({lost[0]})")
    notes = _notes(table, lost, len(frames))
    reader = FrameReader(
        root=folder, unit=own, sampler=sampler, truth_without_input=True, without_largest=True, container=CONTAINER
    )
    rules = EvalRules(min_depth=0.1, max_depth=100.0)
    options = {"unit": own, "sampler": sampler}
    return video_scan(
        "transforms",
        reader,
        entries,
        np.stack(poses),
        rules=rules,
        stride=stride,
        fps=fps,
        options=options,
        notes=notes,
    )


def _entry(table: dict[str, Any], frame: dict[str, Any], folder: Path, unit: str) -> Entry | str:
    """The entry of a frame, or why it has none."""
    image = _find_file(folder, str(frame.get("file_path", "")))
    if image is None:
        return f"{frame.get('file_path')} is not there"
    name = next((frame[key] for key in DEPTH_KEYS if frame.get(key)), None)
    if name is None:
        return f"{image.name} has no depth_file_path: export with depth, or give the model itself as colmap:FOLDER"
    depth = _find_file(folder, str(name))
    if depth is None:
        return f"{name} is not there"
    size = image_files.image_size(image)
    small = depth.suffix in image_files.ARRAY_SUFFIXES or image_files.image_size(depth) != size
    K = _calibration(table, frame, size, f"transforms.json, {image.name}")
    ref = f"{depth.relative_to(folder).as_posix()}#{size[0]},{size[1]},{unit}"
    entry: Entry = {"id": image.stem, "image": image.relative_to(folder).as_posix(), "K": K.ravel().tolist()}
    return {**entry, "sparse" if small else "dense": ref}


def _notes(table: dict[str, Any], lost: list[str], count: int) -> tuple[str, ...]:
    notes = [f"{len(lost)} of {count} frames are left out ({lost[0]})"] if lost else []
    if any(abs(float(table.get(k) or 0)) > 1e-3 for k in LENS):
        notes.append("the pictures have lens distortion (k1 ...), which K leaves out: undistort them")
    return tuple(notes)
