"""COLMAP models: cameras, pictures and points, text or binary; the points that a picture sees are its sparse depth.

``sparse/0/{cameras,images,points3D}.{bin,txt}`` and ``images/``.  A model has no metres: ``scale`` says how many a unit
of it is.  Pictures should be undistorted (``colmap image_undistorter``); K leaves a lens out.  In the files, poses are
world-to-camera and the first pixel has its centre at (0.5, 0.5).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np

from protodepth.data import projection
from protodepth.data.datasets.video import video_scan
from protodepth.data.entries import DepthContainer, Entry, FrameReader
from protodepth.data.files import cameras
from protodepth.data.files.names import natural_key
from protodepth.data.files.text import read_text, reading
from protodepth.data.frame import EvalRules
from protodepth.data.manifest import Scan, register_scan
from protodepth.errors import DataError
from protodepth.types import Float

# number of a model in binary files -> (name, how many numbers it has)
MODELS = {
    **{0: ("SIMPLE_PINHOLE", 3), 1: ("PINHOLE", 4), 2: ("SIMPLE_RADIAL", 4), 3: ("RADIAL", 5), 4: ("OPENCV", 8)},
    **{5: ("OPENCV_FISHEYE", 8), 6: ("FULL_OPENCV", 12), 7: ("FOV", 5), 8: ("SIMPLE_RADIAL_FISHEYE", 4)},
    **{9: ("RADIAL_FISHEYE", 5), 10: ("THIN_PRISM_FISHEYE", 12)},
}
FILES = ("cameras", "images", "points3D")
MOST = 1 << 32  # a count beyond this is damage


@dataclass(frozen=True, slots=True)
class ColmapCamera:
    model: str
    size: tuple[int, int]  # height, width
    numbers: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ColmapImage:
    name: str
    camera: int
    pose: Float[np.ndarray, "4 4"]  # world-to-camera
    places: Float[np.ndarray, "n 2"]  # of the points that it sees, in pixels with centres at (0.5, 0.5)
    points: np.ndarray  # their numbers; -1 where a feature has none


@dataclass(frozen=True, slots=True)
class ColmapModel:
    cameras: dict[int, ColmapCamera]
    images: dict[int, ColmapImage]
    points: dict[int, tuple[Float[np.ndarray, "3"], float]]  # place in the world, reprojection error in pixels


# --- text -------------------------------------------------------------------------------------------------------------


def _lines(path: Path) -> list[str]:
    return [line for line in read_text(path).splitlines() if not line.startswith("#")]


def _text_cameras(path: Path) -> dict[int, ColmapCamera]:
    rows = [line.split() for line in _lines(path) if line.strip()]
    return {int(r[0]): ColmapCamera(r[1], (int(r[3]), int(r[2])), tuple(map(float, r[4:]))) for r in rows}


def _text_images(path: Path) -> dict[int, ColmapImage]:
    """Two lines an image; the second is empty where no point is seen."""
    lines = _lines(path)
    while lines and not lines[-1].strip() and len(lines) % 2:
        lines.pop()
    images = {}
    for head, seen in zip(lines[::2], [*lines[1::2], ""], strict=False):
        words = head.split(maxsplit=9)
        table = np.array(seen.split(), np.float64).reshape(-1, 3)
        if not (np.abs(table) < 2**53).all():  # numbers of points beyond it are not exact, and NaN is none
            raise ValueError(f"image {words[0]} sees a point without a number")
        pose = _pose([float(w) for w in words[1:8]])
        images[int(words[0])] = ColmapImage(words[9], int(words[8]), pose, table[:, :2], table[:, 2].astype(np.int64))
    return images


def _text_points(path: Path) -> dict[int, tuple[np.ndarray, float]]:
    rows = [line.split(maxsplit=8) for line in _lines(path) if line.strip()]
    return {int(r[0]): (np.array(r[1:4], np.float64), float(r[7])) for r in rows}


# --- binary, little endian --------------------------------------------------------------------------------------------


def _take(file: BinaryIO, layout: str) -> tuple[float, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


def _count(file: BinaryIO) -> int:
    (count,) = _take(file, "<Q")
    if count > MOST:
        raise ValueError(f"{count} entries")
    return int(count)


def _binary_cameras(path: Path) -> dict[int, ColmapCamera]:
    known = {}
    with path.open("rb") as file:
        for _ in range(_count(file)):
            number, model, width, height = _take(file, "<iiQQ")
            name, count = MODELS[int(model)]
            known[int(number)] = ColmapCamera(name, (int(height), int(width)), _take(file, f"<{count}d"))
    return known


def _binary_images(path: Path) -> dict[int, ColmapImage]:
    known = {}
    with path.open("rb") as file:
        for _ in range(_count(file)):
            number, *rest = _take(file, "<i7di")
            name = b"".join(iter(lambda: _letter(file), b"\0")).decode()
            count = _count(file)
            data = file.read(24 * count)
            if len(data) != 24 * count:
                raise ValueError("the file ends within an image")
            table = np.frombuffer(data, np.dtype([("place", "<f8", 2), ("point", "<i8")]))
            pose = _pose([float(v) for v in rest[:7]])
            known[int(number)] = ColmapImage(name, int(rest[7]), pose, table["place"], table["point"])
    return known


def _letter(file: BinaryIO) -> bytes:
    letter = file.read(1)
    if not letter:
        raise ValueError("the file ends within a name")
    return letter


def _binary_points(path: Path) -> dict[int, tuple[np.ndarray, float]]:
    known = {}
    with path.open("rb") as file:
        for _ in range(_count(file)):
            number, x, y, z, _, _, _, error = _take(file, "<Q3d3Bd")
            file.seek(8 * _count(file), 1)
            known[int(number)] = (np.array([x, y, z]), error)
    return known


def _pose(seven: list[float]) -> Float[np.ndarray, "4 4"]:
    """World-to-camera of qw qx qy qz tx ty tz."""
    w, x, y, z, *shift = seven
    return cameras.rigid(cameras.quaternion_matrix([x, y, z, w]), shift)


# --- the model --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def read_model(folder: Path) -> ColmapModel:
    """The model of a folder with three .bin or three .txt files."""
    suffix = next((s for s in (".bin", ".txt") if all((folder / f"{n}{s}").is_file() for n in FILES)), None)
    if suffix is None:
        raise DataError(f"{folder} has no {', '.join(FILES)} as .bin or .txt: give the folder of a COLMAP model")
    paths = [folder / f"{name}{suffix}" for name in FILES]
    with reading(folder):
        if suffix == ".bin":
            return ColmapModel(_binary_cameras(paths[0]), _binary_images(paths[1]), _binary_points(paths[2]))
        return ColmapModel(_text_cameras(paths[0]), _text_images(paths[1]), _text_points(paths[2]))


def sparse_depth(folder: Path, number: int, scale: float, max_error: float) -> Float[np.ndarray, "h w"]:
    """The points that a picture sees, at the pixels where it sees them; the nearest where two fall together."""
    model = read_model(folder)
    image = model.images[number]
    seen = [i for i, p in enumerate(image.points.tolist()) if p in model.points and model.points[p][1] <= max_error]
    size = model.cameras[image.camera].size
    if not seen:
        return np.zeros(size, np.float32)
    world = np.stack([model.points[int(image.points[i])][0] for i in seen])
    z = projection.transform(world, image.pose)[:, 2] * scale
    columns, rows = np.floor(image.places[seen]).astype(np.int64).T
    return projection.write_nearest(columns, rows, z, size)


@dataclass(frozen=True, slots=True)
class SeenPoints(DepthContainer):
    """``model#number,scale,largest error``: the sparse depth of a picture."""

    def depth(self, path: Path, inside: str) -> Float[np.ndarray, "h w"]:
        number, scale, error = inside.split(",")
        return sparse_depth(path, int(number), float(scale), float(error))


CONTAINER = SeenPoints()


def _find_model(root: Path) -> Path:
    for folder in (root, root / "sparse" / "0", root / "sparse", root / "colmap" / "sparse" / "0", root / "model"):
        if any((folder / f"images{s}").is_file() for s in (".bin", ".txt")):
            return folder
    raise DataError(f"{root} has no COLMAP model (images.bin or images.txt, also below sparse/0)")


@register_scan("colmap")
def scan_colmap(
    root: Path,
    *,
    images: str = "images",
    scale: float | None = None,
    max_error: float = 2.0,
    stride: int | None = None,
    fps: float = 10.0,
) -> Scan:
    """The folder of a reconstruction.  ``images``: its folder of pictures.  ``scale``: metres in a unit of the model.
    ``max_error``: points with a larger reprojection error (pixels) are left out.  Pictures in the order of their names.
    """
    folder = _find_model(root)
    model = read_model(folder)
    pictures = Path(images) if Path(images).is_absolute() else root / images
    numbers = sorted(model.images, key=lambda n: natural_key(model.images[n].name))
    there = [n for n in numbers if (pictures / model.images[n].name).is_file()]
    if not there:
        raise DataError(f"{pictures} holds none of the {len(numbers)} pictures of {folder}: say images=FOLDER")
    inside = folder.relative_to(root).as_posix()
    tail = f"{scale or 1.0:g},{max_error:g}"
    entries = [_entry(model, n, (root, pictures), f"{inside}#{n},{tail}") for n in there]
    poses = np.stack([cameras.inverse(model.images[n].pose) for n in there])
    poses[:, :3, 3] *= scale or 1.0
    return video_scan(
        "colmap",
        FrameReader(root=root, unit="metres", container=CONTAINER),
        entries,
        poses,
        rules=EvalRules(min_depth=1e-3, max_depth=1000.0),
        stride=stride,
        fps=fps,
        options={"scale": scale, "max_error": max_error},
        notes=tuple(_notes(model, len(numbers), len(there), scale)),
    )


def _entry(model: ColmapModel, number: int, places: tuple[Path, Path], ref: str) -> Entry:
    image = model.images[number]
    camera = model.cameras[image.camera]
    root, pictures = places
    path = pictures / image.name
    K = cameras.colmap_matrix(camera.model, camera.numbers, f"the camera of {image.name}")
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
    return {"id": image.name, "image": name, "sparse": ref, "K": K.ravel().tolist()}


def _notes(model: ColmapModel, all_of_them: int, there: int, scale: float | None) -> Iterator[str]:
    if scale is None:
        yield "a COLMAP model has no metres: depth is in its own unit (scale=METRES_PER_UNIT makes it metres)"
    if there < all_of_them:
        yield f"{all_of_them - there} of {all_of_them} pictures of the model are not there"
    bent = sorted({c.model for c in model.cameras.values()} - {"PINHOLE", "SIMPLE_PINHOLE"})
    if bent:
        yield f"the pictures have lens distortion ({', '.join(bent)}), which K leaves out: colmap image_undistorter"
