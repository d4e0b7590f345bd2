"""VOID: indoor sequences of a RealSense D435i, sparse points of visual-inertial odometry at three densities.

Layout: ``void_{150,500,1500}/data/<sequence>/{image,sparse_depth,ground_truth}/<time>.png``, ``K.txt``,
``absolute_pose/<time>.txt``; ``void_1500/{train,test}_image.txt`` name the frames.  Depth is value/256.  "1500" is an
upper bound: fewer points are normal.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from protodepth.data.entries import Entry, FrameReader
from protodepth.data.files import cameras
from protodepth.data.files.names import natural_key
from protodepth.data.files.text import read_text
from protodepth.data.manifest import INDOOR, Scan, held_out, register_scan, triplets
from protodepth.errors import DataError, UnknownNameError

DENSITIES = (150, 500, 1500)
NEIGHBOURS = 10  # frames to each side
SEQUENCES = {"train": 48, "test": 8}
FIRST, LAST = 30, 40  # ends of a training sequence that are not used


@register_scan("void")
def scan_void(root: Path, *, density: int = 1500, val_share: float = 0.1, neighbours: int = NEIGHBOURS) -> Scan:
    """VOID at one density.  Test: the official list (800 frames); val: whole training sequences, drawn by name."""
    if density not in DENSITIES:
        raise UnknownNameError("VOID density", density, DENSITIES)
    base = _find(root, density)
    lists = {split: _official(base, split) for split in ("train", "test")}
    splits = {
        "train": partial(_train, base, lists["train"], val_share, neighbours),
        "val": partial(_single, base, [r for r in lists["train"] if held_out(_sequence(r), val_share)]),
        "test": partial(_single, base, lists["test"]),
    }
    return Scan(
        name="void",
        reader=FrameReader(root=base.parent, unit="kitti"),
        rules=INDOOR,
        splits=splits,
        expected={"test": 800},
        tally=lambda: {
            f"{split} sequences": (len({_sequence(r) for r in lists[split]}), n) for split, n in SEQUENCES.items()
        },
        options={"density": density, "val_share": val_share, "neighbours": neighbours},
    )


def _find(root: Path, density: int) -> Path:
    name = f"void_{density}"
    for candidate in (root / name, root / "void_release" / name, root):
        if candidate.name == name and (candidate / "data").is_dir():
            return candidate
    raise DataError(f"{root} has no {name}/data: unpack void_{density}.zip there (docs/datasets.md)")


def _official(base: Path, split: str) -> list[str]:
    """The image paths of an official list, relative to the folder that holds void_1500."""
    path = base / f"{split}_image.txt"
    if not path.is_file():
        raise DataError(
            f"{path} is missing: the release holds it beside data/ and it says which sequences are for {split}"
        )
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]


def _sequence(ref: str) -> str:
    return Path(ref).parent.parent.name


def _entry(base: Path, ref: str, K: list[float]) -> Entry:
    sequence, name = _sequence(ref), Path(ref).name
    place = f"{base.name}/data/{sequence}"
    return {
        "id": f"{sequence}/{Path(ref).stem}",
        "image": f"{place}/image/{name}",
        "sparse": f"{place}/sparse_depth/{name}",
        "truth": f"{place}/ground_truth/{name}",
        "K": K,
    }


def _calibration(base: Path, sequence: str) -> list[float]:
    return cameras.read_intrinsics(base / "data" / sequence / "K.txt").ravel().tolist()


def _single(base: Path, refs: list[str]) -> Iterator[Entry]:
    calibrations: dict[str, list[float]] = {}
    for ref in refs:
        sequence = _sequence(ref)
        if sequence not in calibrations:
            calibrations[sequence] = _calibration(base, sequence)
        yield _entry(base, ref, calibrations[sequence])


def _train(base: Path, refs: list[str], val_share: float, step: int) -> Iterator[Entry]:
    """Triplets within each training sequence, for the frames that the official list names."""
    wanted = {(_sequence(r), Path(r).name) for r in refs}
    for sequence in dict.fromkeys(_sequence(r) for r in refs):
        if held_out(sequence, val_share):
            continue
        folder = base / "data" / sequence / "image"
        names = sorted((p.name for p in folder.glob("*.png")), key=natural_key)
        K = _calibration(base, sequence)
        place = f"{base.name}/data/{sequence}/image"
        for i, around in triplets(names, step, FIRST, LAST):
            if (sequence, names[i]) in wanted:
                entry = _entry(base, f"{place}/{names[i]}", K)
                yield {**entry, "neighbours": [f"{place}/{n}" for n in around]}
