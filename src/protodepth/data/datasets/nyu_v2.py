"""NYU Depth v2: Kinect video of rooms, in the three forms people have; no MATLAB.

- ``nyu_depth_v2_labeled.mat`` (HDF5) with ``splits.mat``: 654 test and 795 val frames.
- h5 folders of other repositories: ``{train,val}/<scene>/<n>.h5`` with ``rgb`` 3x480x640 and ``depth`` 480x640, metres.
- synchronised pictures: ``training/{images,depths}/raw_data/<scene>/*.png``, ``testing/{images,depths}/<n>.png``,
depth /256.

The unsynchronised raw dumps (``r-*.ppm``, ``d-*.pgm``) are not read: synchronise and project them with the official
toolbox. Frames are cut to 416x576 around the centre; sparse points are sampled from the depth map.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data.entries import Entry, FrameReader
from protodepth.data.files.matlab import read_arrays
from protodepth.data.files.names import natural_key
from protodepth.data.manifest import INDOOR, Scan, held_out, register_scan, triplets
from protodepth.errors import DamagedFileError, DataError
from protodepth.types import Float

CROP = (32, 32, 416, 576)
K = [518.8579, 0.0, 325.5824 - 32, 0.0, 519.4696, 253.7362 - 32, 0.0, 0.0, 1.0]
MIN_POINTS = 1100
LABELLED = 1449
MOST_NUMBERS = 2**28  # of one picture or depth map
Entries = Callable[[], Iterator[Entry]]


@dataclass(frozen=True, slots=True)
class HDF5:
    """Frames in .mat (v7.3) and .h5 files: ``labeled.mat#images/5``, ``00001.h5#rgb``."""

    def image_bytes(self, path: Path, inside: str) -> bytes:
        raise DataError(f"{path} holds arrays, not coded pictures: {inside} is read directly")

    def image(self, path: Path, inside: str) -> np.ndarray:
        array = _read_hdf5(path, inside)
        if path.suffix == ".mat":
            array = array.transpose(0, 2, 1)  # MATLAB stores columns first
        return np.ascontiguousarray(array.transpose(1, 2, 0))

    def depth(self, path: Path, inside: str) -> Float[np.ndarray, "h w"]:
        array = _read_hdf5(path, inside)
        depth = np.ascontiguousarray(array.T if path.suffix == ".mat" else array, dtype=np.float32)
        return np.nan_to_num(depth, nan=0.0, posinf=0.0, neginf=0.0)


CONTAINER = HDF5()


def _hdf5_library() -> Any:
    try:
        import h5py
    except ImportError:
        raise DataError("reading .mat and .h5 files needs h5py: pip install 'protodepth[data]'") from None
    return h5py


def _read_hdf5(path: Path, inside: str) -> np.ndarray:
    """The array ``name`` or its row ``name/number``; only that row is read."""
    name, _, row = inside.partition("/")
    try:
        with _hdf5_library().File(path, "r") as file:
            if name not in file:
                raise DataError(f"{path} has no array {name!r}, it has: {', '.join(file)}")
            shape = file[name].shape[1:] if row else file[name].shape
            if math.prod(shape) > MOST_NUMBERS:  # an array without chunks has any shape and no bytes
                raise DataError(f"{path}: {name} promises {shape} numbers, more than any picture has")
            return np.asarray(file[name][int(row)] if row else file[name])
    except (
        OSError,
        RuntimeError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:
        reason = f"{error}".partition("\n")[0]
        raise DamagedFileError(f"{path} cannot be read as HDF5 ({reason}): truncated download?") from None


@register_scan("nyu_v2")
def scan_nyu(
    root: Path,
    *,
    sampler: str = "harris:1500",
    neighbours: int | None = None,
    subset: bool = False,
    val_share: float = 0.05,
) -> Scan:
    """NYUv2.  Train: video from pictures or h5 files; test: the 654 official frames; val:
    the 795 others or held-out scenes.

    ``sampler``: "harris:1500", or "harris_uncle:1500" for the points of the published lists.  ``neighbours``: 10 frames
    for pictures, 1 for h5 files (already thinned).  ``subset``: only the scenes that the published ``--subset`` keeps.
    """
    _refuse_raw_dumps(root)
    train, from_h5 = _training_scenes(root)
    scenes = {s: files for s, files in train.items() if not subset or _in_subset(s)}
    step = neighbours or (1 if from_h5 else 10)
    val, test = _labelled(root)
    share = 0.0 if val else val_share
    kept = {s: f for s, f in scenes.items() if not held_out(s, share)}
    rest = {s: f for s, f in scenes.items() if held_out(s, share)}
    return Scan(
        name="nyu_v2",
        reader=FrameReader(root=root, unit="kitti", sampler=sampler, crop=CROP, container=CONTAINER),
        rules=INDOOR,
        splits={"train": partial(_train, kept, step), "val": val or partial(_frames, rest), "test": test},
        expected={"test": 654, **({"val": 795} if val else {})},
        options={"sampler": sampler, "neighbours": step, "subset": subset, "val_share": share},
        derive=("sparse",),
        min_points={"train": MIN_POINTS},
    )


def _refuse_raw_dumps(root: Path) -> None:
    dump = next((p for pattern in ("*/r-*.ppm", "*/*/r-*.ppm") for p in root.glob(pattern)), None)
    if dump is not None:
        raise DataError(
            f"{dump} is an unsynchronised raw dump, which is not read: give nyu_depth_v2_labeled.mat with splits.mat, "
            "h5 folders, or synchronised PNG folders (docs/datasets.md)"
        )


Files = list[tuple[str, str]]  # (image reference, depth reference) in order of time


def _training_scenes(root: Path) -> tuple[dict[str, Files], bool]:
    """scene -> frames, and whether they are h5 files."""
    pictures = next((p for p in (root / "training", root / "nyu_v2" / "training") if (p / "images").is_dir()), None)
    if pictures is not None:
        images = pictures / "images"
        images = images / "raw_data" if (images / "raw_data").is_dir() else images
        return {s.name: _picture_files(root, s, pictures) for s in sorted(images.iterdir()) if s.is_dir()}, False
    h5 = next((p for p in (root / "train", root / "nyudepthv2" / "train") if p.is_dir()), None)
    if h5 is None:
        return {}, False
    return {s.name: _h5_files(root, s) for s in sorted(h5.iterdir()) if s.is_dir()}, True


def _picture_files(root: Path, scene: Path, top: Path) -> Files:
    names = sorted((p.relative_to(top / "images").as_posix() for p in scene.glob("*.png")), key=natural_key)
    base = top.relative_to(root).as_posix()
    return [(f"{base}/images/{n}", f"{base}/depths/{n}") for n in names if (top / "depths" / n).exists()]


def _h5_files(root: Path, scene: Path) -> Files:
    names = sorted((p.relative_to(root).as_posix() for p in scene.glob("*.h5")), key=natural_key)
    return [(f"{n}#rgb", f"{n}#depth") for n in names]


def _in_subset(scene: str) -> bool:
    """The published ``--subset``: names that end in _0000 ... _0014, _0001a-g, _0002a-d."""
    ends = {f"{n:04d}" for n in range(15)} | {f"0001{c}" for c in "abcdefg"} | {f"0002{c}" for c in "abcd"}
    return scene.rsplit("_", 1)[-1] in ends


def _entry(files: tuple[str, str]) -> Entry:
    image, depth = files
    name = image.split("#")[0] if not image.split("#")[0].endswith(".mat") else image.replace("#", "/")
    return {"id": Path(name).with_suffix("").as_posix(), "image": image, "dense": depth, "truth": depth, "K": K}


def _train(scenes: dict[str, Files], step: int) -> Iterator[Entry]:
    for files in scenes.values():
        for i, around in triplets([image for image, _ in files], step):
            yield {**_entry(files[i]), "neighbours": around}


def _frames(scenes: dict[str, Files]) -> Iterator[Entry]:
    return (_entry(pair) for files in scenes.values() for pair in files)


def _labelled(root: Path) -> tuple[Entries | None, Entries]:
    """(val, test): from the labelled file, else test from the folders."""
    mat = next((p for p in (root / "nyu_depth_v2_labeled.mat", root / "labeled.mat") if p.exists()), None)
    if mat is not None:
        splits = _read_splits(root / "splits.mat")
        return partial(_rows, mat.name, splits["trainNdxs"]), partial(_rows, mat.name, splits["testNdxs"])
    for top in (root / "testing", root / "nyu_v2" / "testing"):
        if (top / "images").is_dir():
            return None, partial(_frames, {"test": _picture_files(root, top / "images", top)})
    for top in (root / "val", root / "nyudepthv2" / "val"):
        if top.is_dir():
            return None, partial(_frames, {s.name: _h5_files(root, s) for s in sorted(top.iterdir()) if s.is_dir()})
    return None, partial(_frames, {})


def _read_splits(path: Path) -> dict[str, list[int]]:
    """Row numbers (from 0) of trainNdxs and testNdxs in splits.mat, which counts from 1."""
    try:
        stored = read_arrays(path)
        rows = {name: (stored[name].ravel().astype(int) - 1).tolist() for name in ("trainNdxs", "testNdxs")}
    except FileNotFoundError:
        raise DataError(
            f"{path} is missing: download splits.mat, it says which labelled frames are for testing"
        ) from None
    except KeyError as error:
        raise DataError(f"{path} is not the official splits.mat (it has no {error})") from None
    wrong = [row + 1 for numbers in rows.values() for row in numbers if not 0 <= row < LABELLED]
    if wrong:
        raise DataError(f"{path} is not the official splits.mat: it names frame {wrong[0]} of {LABELLED}")
    return rows


def _rows(name: str, rows: list[int]) -> Iterator[Entry]:
    return (_entry((f"{name}#images/{row}", f"{name}#depths/{row}")) for row in rows)
