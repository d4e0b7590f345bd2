"""TUM RGB-D: ``rgb.txt``, ``depth.txt`` and ``groundtruth.txt`` are joined by time; depth of Freiburg is value/5000.

Many tools write the same layout with millimetres: a folder that is not of Freiburg has to say its unit, unless its
poses prove it.

A sequence becomes a Recording: blocks of time for train, val and test, a stride chosen from the motion.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data.files import cameras
from protodepth.data.files.text import number, read_text
from protodepth.data.recording.layout import Layout
from protodepth.data.recording.open import register_layout
from protodepth.data.recording.settings import Settings, make_settings
from protodepth.errors import DataError

CALIBRATION = {  # fx, fy, cx, cy by camera
    "freiburg1": (517.3, 516.5, 318.6, 255.3),
    "freiburg2": (520.9, 521.0, 325.1, 249.7),
    "freiburg3": (535.4, 539.2, 320.1, 247.6),
}
APART = 0.02  # seconds


def _read_times(path: Path, words: int) -> tuple[np.ndarray, list[list[str]]]:
    """(times, the other words of each line); lines with # are comments."""
    try:
        lines = [(n, line.split()) for n, line in enumerate(read_text(path).splitlines(), 1)]
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): a TUM sequence has rgb.txt and depth.txt") from None
    lines = [(n, parts) for n, parts in lines if parts and not parts[0].startswith("#")]
    for n, parts in lines:
        if len(parts) != words:
            raise DataError(f"{path}, line {n} has {len(parts)} words, expected {words}")
    try:
        return np.array([number(parts[0]) for _, parts in lines]), [parts[1:] for _, parts in lines]
    except ValueError as error:
        raise DataError(f"{path}: {error}") from None


def _associate(first: np.ndarray, second: np.ndarray, apart: float = APART) -> list[tuple[int, int]]:
    """Pairs (i, j) of nearest times, the closest first, each used once; in the order of the first.

    >>> _associate(np.array([0.0, 1.0, 2.0]), np.array([0.01, 1.999]))
    [(0, 0), (2, 1)]
    """
    order = np.argsort(second)
    places = np.searchsorted(second[order], first)
    candidates = []
    for i, place in enumerate(places):
        for j in order[max(0, place - 1) : place + 1]:
            candidates.append((abs(first[i] - second[j]), i, int(j)))
    chosen: dict[int, int] = {}
    taken: set[int] = set()
    for gap, i, j in sorted(candidates):
        if gap < apart and i not in chosen and j not in taken:
            chosen[i] = j
            taken.add(j)
    return sorted(chosen.items())


def _nearest_poses(path: Path, times: np.ndarray) -> np.ndarray | None:
    """Camera-to-world at each time from the nearest line within 0.02 s, NaN where there is none."""
    if not path.exists():
        return None
    stamps, rows = _read_times(path, 8)
    poses = np.full((len(times), 4, 4), np.nan)
    order = np.argsort(stamps)
    for i, time in enumerate(times):
        place = np.searchsorted(stamps[order], time)
        near = order[max(0, place - 1) : place + 1]
        if len(near):
            j = near[np.argmin(np.abs(stamps[near] - time))]
            if abs(stamps[j] - time) < APART:
                values = np.array(rows[j], np.float64)
                poses[i] = cameras.rigid(cameras.quaternion_matrix(values[3:]), values[:3])
    return poses


def _camera_of(folder: Path) -> str | None:
    """freiburg1, 2 or 3, by the folder's name; None for a sequence that was recorded elsewhere."""
    name = folder.resolve().name
    return next((camera for camera in CALIBRATION if camera in name or f"fr{camera[-1]}" in name), None)


def _calibration(folder: Path, given: str | None) -> np.ndarray:
    """K: given as text or file, else by the camera in the folder's name."""
    if given:
        return cameras.parse_intrinsics(given)
    if (folder / "intrinsics.txt").exists():
        return cameras.read_intrinsics(folder / "intrinsics.txt")
    name = _camera_of(folder)
    if name:
        return cameras.intrinsics_matrix(CALIBRATION[name])
    raise DataError(
        f"{folder} does not say which camera it is (freiburg1, 2 or 3 in its name): "
        "add intrinsics.txt with fx, fy, cx, cy, or give intrinsics=fx,fy,cx,cy"
    )


def _tum_layout(folder: Path, intrinsics: str | None = None) -> Layout:
    """The joined frames of a sequence, named by the time of the colour image."""
    colour_times, colours = _read_times(folder / "rgb.txt", 2)
    depth_times, depths = _read_times(folder / "depth.txt", 2)
    pairs = _associate(colour_times, depth_times)
    if not pairs:
        raise DataError(f"{folder}: no colour image has a depth map within {APART} s: are the clocks the same?")
    ids = tuple(Path(colours[i][0]).stem for i, _ in pairs)
    images = {name: folder / colours[i][0] for name, (i, _) in zip(ids, pairs, strict=True)}
    maps = {name: folder / depths[j][0] for name, (_, j) in zip(ids, pairs, strict=True)}
    poses = _nearest_poses(folder / "groundtruth.txt", colour_times[[i for i, _ in pairs]])
    return Layout(folder, ids, images, maps, True, {}, _calibration(folder, intrinsics), poses)


@register_layout("tum")
def open_tum(folder: Path, values: Mapping[str, Any]) -> tuple[Layout, Settings]:
    """``tum:/path/to/rgbd_dataset_freiburg1_xyz?stride=5``; options are fields of a recording's Settings."""
    known = {"name": folder.resolve().name, "poses": "groundtruth.txt"}
    known |= {"depth_unit": "tum"} if _camera_of(folder) else {}
    settings = make_settings({**known, **values}, f"tum:{folder}")
    return _tum_layout(folder, values.get("intrinsics")), settings
