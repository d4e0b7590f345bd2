"""What a recording's folder holds: which files belong to which frame, which frames are bad, the unit of its depth."""

import logging
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from protodepth.data.arrays import size_fault
from protodepth.data.faults import check_share
from protodepth.data.files import cameras
from protodepth.data.files import images as image_files
from protodepth.data.files.names import by_number
from protodepth.data.frame import evenly
from protodepth.data.recording import motion
from protodepth.data.recording.settings import Settings
from protodepth.data.recording.suggestions import suggest
from protodepth.errors import DataError
from protodepth.types import Float

logger = logging.getLogger("protodepth")
TOGETHER = 32  # frames that a thread looks at before it asks for others
GUESSED = ("kitti", "mm", "tum")  # units that are tried where none is declared


@dataclass(frozen=True, slots=True)
class Layout:
    """Which files belong to which frame, in the order of time."""

    root: Path
    ids: tuple[str, ...]
    images: dict[str, Path]
    depths: dict[str, Path]
    dense: bool  # depth is dense and will be thinned
    truths: dict[str, Path]
    intrinsics: dict[str, Path] | np.ndarray  # one file per frame, or one matrix for all
    poses: np.ndarray | None  # n 4 4, camera-to-world, NaN where lost
    faults: dict[str, str] = field(default_factory=dict)  # id -> why the frame is not used
    intrinsics_file: Path | None = None  # of the one matrix for all
    notes: tuple[str, ...] = ()  # what was decided on the way

    def calibration(self, frame: str) -> np.ndarray:
        K = self.intrinsics
        return K if isinstance(K, np.ndarray) else cameras.read_intrinsics(K[frame])

    def calibration_file(self, frame: str) -> str:
        """What a message calls the intrinsics of a frame."""
        path = self.intrinsics_file if isinstance(self.intrinsics, np.ndarray) else self.intrinsics[frame]
        return str(path or "intrinsics")


def _read_layout_poses(path: Path, ids: Sequence[str], convention: str) -> np.ndarray:
    """Camera-to-world poses of the frames, NaN where lost, from a file in the named convention."""
    poses = cameras.read_poses(path, ids)
    if convention == "world_to_camera":
        return np.stack([cameras.inverse(p) for p in poses])
    return poses @ cameras.OPENCV_FROM_OPENGL if convention == "opengl" else poses


def find_layout(folder: Path, settings: Settings, *, with_poses: bool = True) -> Layout:
    """Look at the folder's names, intrinsics and poses; read no pixels."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: a recording has image/, sparse/ or depth/, and intrinsics.txt")
    images = _files(folder, settings.image, image_files.IMAGE_SUFFIXES)
    sparse = _files(folder, settings.sparse, image_files.DEPTH_SUFFIXES)
    dense = _files(folder, settings.depth, image_files.DEPTH_SUFFIXES) if settings.depth != settings.sparse else {}
    if not images:
        raise DataError(
            f"{folder} has no pictures in {settings.image}/: a recording has image/<id>.png or .jpg{suggest(folder)}"
        )
    if not sparse and not dense:
        raise DataError(
            f"{folder} has neither {settings.sparse}/<id>.png (or .npy) nor {settings.depth}/ (dense){suggest(folder)}"
        )
    joined = by_number(sparse or dense, images)
    notes = _joined_note(sparse or dense, joined)
    poses = folder / (settings.poses or "poses.txt")
    if with_poses and settings.poses and not poses.exists():
        raise DataError(f"{poses} does not exist, but recording.toml names it")
    truths = _files(folder, settings.ground_truth, image_files.DEPTH_SUFFIXES)
    if sparse and dense and not truths:
        truths = dense  # both there: the dense map is what sparse points can be judged with
    truths = by_number(truths, images)
    intrinsics, source = _find_intrinsics(folder, settings.intrinsics)
    return Layout(
        root=folder,
        ids=tuple(images),
        images=images,
        depths=joined,
        dense=not sparse,
        truths=truths,
        intrinsics=intrinsics,
        intrinsics_file=source,
        poses=_read_layout_poses(poses, tuple(images), settings.pose_convention)
        if with_poses and poses.exists()
        else None,
        notes=notes,
    )


def _joined_note(maps: dict[str, Path], joined: dict[str, Path]) -> tuple[str, ...]:
    """Which names were taken for one frame, where they differ."""
    other = next(((name, path) for name, path in joined.items() if name not in maps), None)
    if other is None:
        return ()
    return (f"depth maps have other names than the pictures and are joined by number: {other[1].name} is {other[0]}'s",)


def _files(folder: Path, name: str, suffixes: Sequence[str]) -> dict[str, Path]:
    return image_files.files_by_id(folder / name, suffixes) if (folder / name).is_dir() else {}


def _find_intrinsics(folder: Path, name: str | None) -> tuple[dict[str, Path] | np.ndarray, Path]:
    names = [name] if name else [f"intrinsics{s}" for s in cameras.INTRINSICS_SUFFIXES]
    names += [] if name else ["camera_info.yaml", "camera_info.yml", "intrinsics"]
    for candidate in names:
        path = folder / candidate
        if path.is_file():
            return cameras.read_intrinsics(path), path
        if path.is_dir():
            return image_files.files_by_id(path, cameras.INTRINSICS_SUFFIXES), path
    raise DataError(
        f"{folder} has no intrinsics ({', '.join(names)}): write intrinsics.txt with the 3x3 matrix or fx, fy, cx, cy "
        f"in pixels of the stored images{suggest(folder, camera=True)}"
    )


Size = tuple[int, int]


def _frame_fault(layout: Layout, frame: str) -> tuple[str | None, Size | None]:
    """(why a frame cannot be used, its size), from headers and last bytes alone."""
    image, depth, truth = layout.images[frame], layout.depths.get(frame), layout.truths.get(frame)
    if depth is None:
        return f"{image.name} has no depth map of its name", None
    if isinstance(layout.intrinsics, dict) and frame not in layout.intrinsics:
        return f"{image.name} has no intrinsics of its name", None
    maps = [path for path in (depth, truth) if path is not None]
    for path in (image, *maps):
        problem = image_files.broken_tail(path)
        if problem:
            return f"{path} {problem}", None
    pictures = [path for path in maps if path.suffix.lower() not in image_files.ARRAY_SUFFIXES]
    try:
        size, fault = image_files.look_at_header(image, depth=False)
        headers = {path: image_files.look_at_header(path, depth=True) for path in pictures}
    except DataError as error:
        return str(error), None
    odd = next((f"{p} {why}" for p in pictures if (why := size_fault(headers[p][0], size))), None)
    return next((why for why in (fault, *(why for _, why in headers.values()), odd) if why), None), size


def _faults_of(layout: Layout, frames: Sequence[str]) -> list[tuple[str | None, Size | None]]:
    return [_frame_fault(layout, frame) for frame in frames]


def _text(size: Size) -> str:
    return f"{size[1]}x{size[0]}"


def odd_sizes(sizes: dict[str, Size]) -> dict[str, str]:
    """Frames of a recording that have another size than most: batches need one."""
    if not sizes:
        return {}
    usual = Counter(sizes.values()).most_common(1)[0][0]
    return {i: f"the image is {_text(s)}, most are {_text(usual)}" for i, s in sizes.items() if s != usual}


def find_faults(layout: Layout, exclude: Sequence[str] = ()) -> Layout:
    """The layout with every unusable frame named; more than 5 % of them, besides those excluded, stops."""
    wanted = [i for i in layout.ids if i not in exclude]
    some = [wanted[n : n + TOGETHER] for n in range(0, len(wanted), TOGETHER)]
    with ThreadPoolExecutor(8) as pool:
        faults_and_sizes = chain.from_iterable(pool.map(partial(_faults_of, layout), some))
        checked = dict(zip(wanted, faults_and_sizes, strict=True))
    faults = {frame: why for frame, (why, _) in checked.items() if why}
    faults |= odd_sizes({frame: size for frame, (why, size) in checked.items() if size and not why})
    check_share(str(layout.root), faults, len(layout.ids), f"protodepth data check {layout.root} lists them all")
    if faults:
        first = ": ".join(next(iter(faults.items())))
        logger.warning("%s: %d of %d frames left out (%s ...)", layout.root, len(faults), len(layout.ids), first)
    return replace(layout, faults={**faults, **dict.fromkeys(exclude, "excluded in recording.toml")})


def motion_places(layout: Layout, stride: int, count: int = 6) -> list[tuple[int, int]]:
    """Numbers of a few pairs of good frames with both poses, so many frames apart."""
    poses = layout.poses
    if poses is None:
        return []
    good = list(range(len(layout.ids) - stride))
    good = [i for i in good if not {layout.ids[i], layout.ids[i + stride]} & layout.faults.keys()]
    good = [i for i in good if np.isfinite(poses[i]).all() and np.isfinite(poses[i + stride]).all()]
    return [(good[j], good[j] + stride) for j in evenly(len(good), count)]


def motion_pairs(layout: Layout, stride: int, count: int = 6) -> list[motion.Pair]:
    """A few pairs of frames with both poses: image, neighbour, stored depth numbers, two poses, K."""
    pairs: list[motion.Pair] = []
    for i, j in motion_places(layout, stride, count):
        here, there = layout.ids[i], layout.ids[j]
        raw = stored_depth(layout, here)
        pictures = image_files.read_image(layout.images[here]), image_files.read_image(layout.images[there])
        assert layout.poses is not None  # motion_places is empty without
        pairs.append((*pictures, raw, layout.poses[i], layout.poses[j], layout.calibration(here)))
    return pairs


def stored_depth(layout: Layout, frame: str) -> Float[np.ndarray, "h w"]:
    """The stored numbers of a frame's depth, 0 where there is no measurement."""
    stored = image_files.without_largest(image_files.raw_depth(layout.depths[frame]))
    return np.nan_to_num(stored.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def find_unit(
    layout: Layout, summary: image_files.DepthSummary, depth_range: tuple[float, float] | None = None
) -> tuple[str, str]:
    """(unit of a recording's depth files, how it is known) if none was declared: by warping, else by the values."""
    if layout.poses is not None and not summary.floating:
        stride = max(1, min(5, len(layout.ids) // 4))
        best = motion.best_unit(motion_pairs(layout, stride), {u: image_files.UNITS[u] for u in GUESSED})
        if best:
            errors = ", ".join(f"{255 * error:.1f} as {unit}" for unit, error in best[1].items())
            return best[0], f"the poses warp the images best with it (grey levels of error: {errors})"
    return image_files.guess_unit(summary, depth_range)
