"""KITTI depth completion: Velodyne sweeps projected by KITTI, raw colour images, both cameras.

Raw images: ``<date>/<drive>/image_0{2,3}/data/<frame>.png`` with ``<date>/calib_cam_to_cam.txt``.  Depth (16-bit,
/256): ``{train,val}/<drive>/proj_depth/{velodyne_raw,groundtruth}/image_0{2,3}/<frame>.png`` as unpacked, or sorted
into ``train_val_split/{sparse_depth,ground_truth}/{train,val}/...``.  Test:
the 1000 frames of ``val_selection_cropped``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal

import numpy as np

from protodepth.data.entries import Entry, FrameReader
from protodepth.data.files import cameras, images
from protodepth.data.files.text import read_text
from protodepth.data.frame import EvalRules
from protodepth.data.manifest import Scan, held_out, register_scan
from protodepth.errors import DataError

SELECTED = 1000
ANNOTATED = {"train": 85_898, "val": 6852}  # of both cameras
DRIVES = {"train": 138}
STATIC = 8044  # entries of the published list; its last line has no end, so that wc -l counts 8043
RULES = {"none": None, "240x1216": (240, 1216)}
CAMERAS = ("image_02", "image_03")
CROP = (352, 1216)  # bottom rows, centred columns: every KITTI image holds it, and val_selection has this size
_SELECTED = re.compile(r"(\d{4}_\d\d_\d\d_drive_\d{4}_sync)_\w+?_(\d{10})_(image_0[23])")
_SORTED = {"velodyne_raw": "sparse_depth", "groundtruth": "ground_truth"}


@dataclass(frozen=True, slots=True)
class Places:
    """Where the parts of KITTI are under the given root."""

    root: Path
    raw: Path
    depth: tuple[Path, ...]  # folders in which the two kinds of depth are looked for

    def drives(self, split: str) -> list[str]:
        names: set[str] = set()
        for folder in self.depth:
            for sub in (folder / split, folder / "sparse_depth" / split):
                names |= {p.name for p in sub.iterdir() if p.is_dir()} if sub.is_dir() else set()
        return sorted(names)

    def depth_folder(self, split: str, drive: str, kind: str, camera: str) -> Path | None:
        tail = Path(split, drive, "proj_depth", kind, camera)
        options = [folder / head / tail for folder in self.depth for head in (".", _SORTED[kind])]
        return next((p for p in options if p.is_dir()), None)


@register_scan("kitti")
def scan_kitti(
    root: Path,
    *,
    static_list: Path | None = None,
    val_share: float = 0.05,
    test: Literal["selection", "val"] = "selection",
    eval_crop: Literal["240x1216", "none"] = "240x1216",
    neighbours: int = 1,
) -> Scan:
    """KITTI.  Train: the frames of ``train`` with both neighbours; val: whole training drives drawn by name.

    ``static_list``: text with "date drive frame" lines; those frames of both cameras are left out of training.
    ``test``: the 1000 selected frames, or every annotated frame of the val drives.  ``eval_crop``: the paper's
    240x1216, or none as the released code.  Published counts:
    85 898 train + val frames before the ends are dropped, 1000 test.
    """
    places = _find(root)
    static = _read_static(static_list) if static_list else frozenset()
    drives = places.drives("train")
    chosen = {part: [d for d in drives if held_out(d, val_share) == (part == "val")] for part in ("train", "val")}
    testing = (
        partial(_selection, root) if test == "selection" else partial(_drives, places, "val", places.drives("val"))
    )
    splits = {
        "train": partial(_drives, places, "train", chosen["train"], neighbours, static),
        "val": partial(_drives, places, "train", chosen["val"]),
        "test": testing,
    }
    options = {"static_list": str(static_list) if static_list else None, "val_share": val_share, "test": test}
    return Scan(
        name="kitti",
        reader=FrameReader(root=root, unit="kitti"),
        rules=EvalRules(min_depth=0.001, max_depth=100.0, crop=RULES[eval_crop]),
        splits=splits,
        expected={"test": SELECTED if test == "selection" else ANNOTATED["val"]},
        tally=partial(_tally, places, static_list is not None, len(static)),
        options={**options, "eval_crop": eval_crop, "neighbours": neighbours},
    )


def _tally(places: Places, listed: bool, static: int) -> dict[str, tuple[int, int]]:
    """Drives and annotated frames, before the ends and the static frames are dropped."""
    counts: dict[str, tuple[int, int]] = {}
    drives = {split: places.drives(split) for split in ANNOTATED}
    for split, published in ANNOTATED.items():
        folders = [places.depth_folder(split, d, "velodyne_raw", camera) for d in drives[split] for camera in CAMERAS]
        counts[f"annotated {split} frames"] = (sum(len(list(f.glob("*.png"))) for f in folders if f), published)
    counts["train drives"] = (len(drives["train"]), DRIVES["train"])
    return {**counts, "static frames listed": (static, STATIC)} if listed else counts


def _find(root: Path) -> Places:
    raws = [root / n for n in ("kitti_raw_data", "raw", "raw_data", ".")]
    raw = next((p for p in raws if any(p.glob("20??_??_??/*_sync"))), None)
    names = (
        "kitti_depth_completion/train_val_split",
        "train_val_split",
        "kitti_depth_completion",
        "depth",
        "data_depth",
    )
    heads = [root / n for n in (*names, "data_depth_velodyne", "data_depth_annotated", ".")]
    depth = tuple(p for p in heads if any((p / s).is_dir() for s in ("train", "val", "sparse_depth")))
    if raw is None and not _selection_folder(root):
        raise DataError(f"{root} has no raw KITTI images (<date>/<date>_drive_XXXX_sync) and no val_selection_cropped")
    return Places(root, raw or root, depth)


def _read_static(path: Path) -> frozenset[tuple[str, str]]:
    """(drive, frame) of every "date drive frame" line.  A set: each frame is looked for among 8 044 entries."""
    frames = set()
    for number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.split()
        if words and len(words) != 3:
            raise DataError(f"{path}, line {number}: expected 'date drive frame', got {line!r}")
        if words:
            date, drive, frame = words
            name = drive if drive.startswith(date) else f"{date}_drive_{drive.zfill(4)}_sync"
            frames.add((name, frame.zfill(10)))
    return frozenset(frames)


@cache
def calibration(path: Path, camera: str) -> tuple[np.ndarray, tuple[int, int]]:
    """(K, (height, width)) of a rectified camera from calib_cam_to_cam.txt: P_rect[:3, :3] and S_rect."""
    try:
        lines = dict(line.split(":", 1) for line in read_text(path).splitlines() if ":" in line)
        number = camera[-2:]
        P = np.array(lines[f"P_rect_{number}"].split(), np.float64)
        width, height = (round(float(v)) for v in lines[f"S_rect_{number}"].split())
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}): it comes with the raw data's calibration zip"
        ) from None
    except (KeyError, ValueError) as error:
        raise DataError(f"{path} has no usable P_rect/S_rect for {camera} ({error})") from None
    return cameras.intrinsics_matrix(P, f"{path}: P_rect_{number}"), (height, width)


def _drives(
    places: Places,
    split: str,
    drives: list[str],
    neighbours: int = 0,
    static: frozenset[tuple[str, str]] = frozenset(),
) -> Iterator[Entry]:
    for drive in drives:
        for camera in CAMERAS:
            sparse, truth = (places.depth_folder(split, drive, k, camera) for k in ("velodyne_raw", "groundtruth"))
            if sparse is not None:
                yield from _camera(places, sparse, truth, neighbours, static)


def _camera(
    places: Places, sparse: Path, truth: Path | None, neighbours: int, static: frozenset[tuple[str, str]]
) -> Iterator[Entry]:
    """The frames of one camera on one drive."""
    drive, camera = sparse.parents[2].name, sparse.name
    date = drive[:10]
    pictures = places.raw / date / drive / camera / "data"
    names = {p.name for p in pictures.iterdir()} if pictures.is_dir() else set()
    labelled = {p.name for p in truth.iterdir()} if truth else set()
    K, size = calibration(places.raw / date / "calib_cam_to_cam.txt", camera)
    crop, K = _bottom_crop(K, size)
    for path in sorted(sparse.glob("*.png")):
        around = [f"{int(path.stem) + d:010d}.png" for d in (-neighbours, neighbours)] if neighbours else []
        if (drive, path.stem) in static or not {path.name, *around} <= names:
            continue
        entry = _paths(places.root, image=pictures / path.name, sparse=path)
        if truth and path.name in labelled:
            entry |= _paths(places.root, truth=truth / path.name)
        entry |= {"id": f"{drive}/{camera}/{path.stem}", "K": K.ravel().tolist(), "crop": crop}
        if around:
            entry["neighbours"] = [(pictures / n).relative_to(places.root).as_posix() for n in around]
        yield entry


def _paths(root: Path, **paths: Path) -> Entry:
    return {key: path.relative_to(root).as_posix() for key, path in paths.items()}


def _bottom_crop(K: np.ndarray, size: tuple[int, int], crop: tuple[int, int] = CROP) -> tuple[list[int], np.ndarray]:
    """((top, left, height, width), K of the crop): the bottom rows and the centred columns."""
    height, width = min(size[0], crop[0]), min(size[1], crop[1])
    top, left = size[0] - height, (size[1] - width) // 2
    shift = np.array([[0, 0, left], [0, 0, top], [0, 0, 0]])
    return [top, left, height, width], K - shift


def _selection_folder(root: Path) -> Path | None:
    names = (
        "val_selection_cropped",
        "depth_selection/val_selection_cropped",
        "validation",
        "data_depth_selection/validation",
    )
    more = ("data_depth_selection/depth_selection/val_selection_cropped", "kitti_depth_completion/validation")
    return next((root / n for n in (*names, *more) if (root / n / "image").is_dir()), None)


def _selection(root: Path) -> Iterator[Entry]:
    """The 1000 validation frames: image, sparse and ground truth carry the same drive,
    frame and camera in their names.
    """
    folder = _selection_folder(root)
    if folder is None:
        return
    sparse, truth = (
        _by_frame(folder, names) for names in (("velodyne_raw", "sparse_depth"), ("groundtruth_depth", "ground_truth"))
    )
    for key, image in _by_frame(folder, ("image",)).items():
        if key not in sparse:
            raise DataError(f"{image} has no velodyne_raw map with the same drive, frame and camera")
        K = cameras.read_intrinsics(folder / "intrinsics" / f"{image.stem}.txt")
        entry = _paths(root, image=image, sparse=sparse[key], **({"truth": truth[key]} if key in truth else {}))
        yield {**entry, "id": "/".join(key), "K": K.ravel().tolist()}


def _by_frame(folder: Path, names: tuple[str, ...]) -> dict[tuple[str, ...], Path]:
    place = next((folder / n for n in names if (folder / n).is_dir()), None)
    paths: dict[tuple[str, ...], Path] = {}
    for path in sorted(place.iterdir()) if place else ():
        match = _SELECTED.match(path.stem)
        if match and path.suffix in images.IMAGE_SUFFIXES:
            paths[match.groups()] = path
    return paths
