"""Polycam's raw data (an iPhone's LiDAR, developer mode): ``keyframes/`` with a file of each kind for every frame.

``images/<time>.jpg``, ``cameras/<time>.json``, ``depth/<time>.png`` (16 bits, millimetres, smaller than the picture:
each value becomes one sparse point), ``confidence/<time>.png`` (0 low, 127 medium, 255 high).  ``corrected_images/``
and ``corrected_cameras/`` are undistorted pictures and poses after loop closure; they are taken where they exist.
A camera has fx, fy, cx, cy, width, height and t_00 ... t_23, camera-to-world with y up, looking along -z.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from protodepth.data import projection
from protodepth.data.datasets.video import video_scan
from protodepth.data.entries import DepthContainer, Entry, FrameReader
from protodepth.data.files import cameras
from protodepth.data.files import images as image_files
from protodepth.data.files.text import parse_json
from protodepth.data.frame import EvalRules
from protodepth.data.manifest import Scan, register_scan
from protodepth.errors import DataError, MissingFileError, SizeError
from protodepth.types import Float

LEVELS = (0, 127, 255)  # stored confidence: low, medium, high


@dataclass(frozen=True, slots=True)
class Keyframes(DepthContainer):
    """``depth/<time>.png#confidence,height,width``: a small map whose values are put into the larger picture."""

    def depth(self, path: Path, inside: str) -> Float[np.ndarray, "h w"]:
        confidence, height, width = (int(part) for part in inside.split(","))
        depth = image_files.read_depth(path, "mm")
        if confidence:
            depth = np.where(_confidence(path, depth.shape) >= LEVELS[confidence], depth, np.float32(0))
        return projection.scatter(depth, (height, width))


CONTAINER = Keyframes()


def _confidence(depth: Path, shape: tuple[int, ...]) -> np.ndarray:
    """The map beside a depth map that says how sure the phone was; sure everywhere if there is none."""
    path = depth.parents[1] / "confidence" / depth.name
    if not path.is_file():
        return np.full(shape, LEVELS[2], np.uint8)
    levels = np.asarray(image_files.open_picture(path, str(path)).convert("L"))
    if levels.shape != shape:
        raise SizeError(f"{path} is {levels.shape[1]}x{levels.shape[0]}, its depth map {shape[1]}x{shape[0]}")
    return levels


@dataclass(frozen=True, slots=True)
class PolycamCamera:
    """What one JSON file says of a frame."""

    K: Float[np.ndarray, "3 3"]
    pose: Float[np.ndarray, "4 4"]  # camera-to-world with OpenCV axes, NaN where lost


def _read_camera(path: Path, size: tuple[int, int]) -> PolycamCamera:
    """K for pictures of (height, width), whatever size the file speaks of."""
    try:
        table = parse_json(path.read_bytes(), path)
    except OSError as error:
        raise MissingFileError(f"{path} cannot be read ({error.strerror})") from None
    names = [f"t_{row}{column}" for row in range(3) for column in range(4)]
    table = table if isinstance(table, dict) else {}
    missing = [name for name in ("fx", "fy", "cx", "cy", *names) if name not in table]
    if missing:
        raise DataError(f"{path} has no {', '.join(missing[:3])}: expected a camera of Polycam's raw data")
    K = cameras.intrinsics_matrix([float(table[name]) for name in ("fx", "fy", "cx", "cy")], str(path))
    known = float(table.get("width", size[1])), float(table.get("height", size[0]))
    K *= np.array([[size[1] / known[0]], [size[0] / known[1]], [1.0]])
    pose = np.eye(4)
    pose[:3] = np.reshape([float(table[name]) for name in names], (3, 4))
    valid = cameras.pose_is_valid(pose)
    return PolycamCamera(K, pose @ cameras.OPENCV_FROM_OPENGL if valid else np.full((4, 4), np.nan))


def _keyframes(root: Path) -> Path:
    """The folder with ``cameras/``, however much around it was given."""
    for folder in (root, root / "keyframes"):
        if (folder / "cameras").is_dir() or (folder / "corrected_cameras").is_dir():
            return folder
    raise DataError(
        f"{root} has no keyframes/cameras: export 'raw data' in Polycam (settings, developer mode) and unzip"
    )


@register_scan("polycam")
def scan_polycam(
    root: Path, *, long_side: int = 640, stride: int | None = None, confidence: int = 1, corrected: bool | None = None
) -> Scan:
    """Polycam's raw data.  Pictures are reduced to ``long_side`` pixels; ``stride``: default from the motion.

    ``confidence``: depth below it is left out (0 keeps all, 2 only the best).  ``corrected``: undistorted pictures and
    corrected poses; default: where they exist.
    """
    if confidence not in range(3):
        raise DataError(f"polycam: confidence is {confidence}, expected 0 (all), 1 or 2 (only the best)")
    folder = _keyframes(root)
    better = (folder / "corrected_cameras").is_dir() and (folder / "corrected_images").is_dir()
    if corrected and not better:
        raise DataError(f"{folder} has no corrected_images and corrected_cameras: leave out corrected=true")
    prefix = "corrected_" if (better if corrected is None else corrected) else ""
    kinds = {"image": (f"{prefix}images", image_files.IMAGE_SUFFIXES), "depth": ("depth", image_files.DEPTH_SUFFIXES)}
    absent = [name for name, _ in kinds.values() if not (folder / name).is_dir()]
    if absent:
        raise DataError(f"{folder} has no {' and no '.join(absent)}/: export 'raw data' in Polycam and unzip all of it")
    files = {k: image_files.files_by_id(folder / name, ends) for k, (name, ends) in kinds.items()}
    ids = [i for i in files["image"] if i in files["depth"] and (folder / f"{prefix}cameras" / f"{i}.json").is_file()]
    if not ids:
        raise DataError(
            f"{folder} has no frame with {prefix}images, {prefix}cameras and depth: export 'raw data' again"
        )
    height, width = image_files.image_size(files["image"][ids[0]])
    shrink = min(1.0, long_side / max(height, width))
    size = (round(height * shrink), round(width * shrink))
    entries, poses = [], []
    for i in ids:
        camera = _read_camera(folder / f"{prefix}cameras" / f"{i}.json", size)
        image, depth = (files[kind][i].relative_to(folder).as_posix() for kind in ("image", "depth"))
        ref = f"{depth}#{confidence},{size[0]},{size[1]}"
        entry: Entry = {"id": i, "image": image, "sparse": ref, "K": camera.K.ravel().tolist()}
        entries.append(entry)
        poses.append(camera.pose)
    return video_scan(
        "polycam",
        FrameReader(root=folder, unit="metres", resize=size, container=CONTAINER),
        entries,
        np.stack(poses),
        rules=EvalRules(min_depth=0.1, max_depth=10.0),
        stride=stride,
        options={"long_side": long_side, "confidence": confidence, "corrected": bool(prefix)},
        notes=_notes(len(files["image"]) - len(ids), len(files["image"]), prefix),
    )


def _notes(lost: int, count: int, prefix: str) -> tuple[str, ...]:
    notes = [f"{lost} of {count} pictures have no depth map or camera and are left out"] if lost else []
    if not prefix:
        notes.append("no corrected_images: the pictures have some lens distortion, and poses are the phone's own")
    return tuple(notes)
