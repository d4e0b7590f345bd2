"""DDAD (TRI's DGP format): one camera and the LiDAR, from JSON and npz files, without its own library.

``<scene>/scene_*.json`` (samples, and data with the pose of each sensor in the world), ``calibration/<key>.json``
(names, intrinsics), ``rgb/<camera>/*.png``, ``point_cloud/LIDAR/*.npz`` (``data``: x, y, z, intensity in the LiDAR's
frame).  ``ddad.json`` says which scenes are for training ("0"), validation ("1") and testing ("2").
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data import projection
from protodepth.data.entries import DepthContainer, Entry, FrameReader
from protodepth.data.files import cameras
from protodepth.data.files import images as image_files
from protodepth.data.files.names import natural_key
from protodepth.data.files.text import parse_json, reading
from protodepth.data.frame import EvalRules
from protodepth.data.manifest import Scan, held_out, register_scan
from protodepth.errors import DataError, UnknownNameError
from protodepth.types import Float

CAMERAS = tuple(f"CAMERA_{n:02d}" for n in (1, 5, 6, 7, 8, 9))
LIDAR = "LIDAR"
SCENES = {"train": 150, "val": 50}


def _read_points(path: Path) -> Float[np.ndarray, "n 3"]:
    """x, y, z of a sweep: a table of numbers, or of named fields."""
    with reading(path), np.load(path, allow_pickle=False) as archive:
        data = archive["data"]
        if data.dtype.fields:
            return np.stack([np.ravel(data[name]).astype(np.float64) for name in "XYZ"], 1)
        return np.asarray(data[:, :3], np.float64)


def _pose(value: dict[str, Any]) -> Float[np.ndarray, "4 4"]:
    """Points of a sensor in the world (or the car)."""
    turn, shift = value["rotation"], value["translation"]
    rotation = cameras.quaternion_matrix([float(turn.get(k, 0.0)) for k in ("qx", "qy", "qz", "qw")])
    return cameras.placed(cameras.rigid(rotation, [float(shift.get(k, 0.0)) for k in "xyz"]), "a sensor of DDAD")


@dataclass(frozen=True, slots=True)
class DgpSample:
    """One moment: a picture and a sweep, each with its sensor's place in the world."""

    name: str
    image: str
    sweep: str
    camera: Float[np.ndarray, "4 4"]
    lidar: Float[np.ndarray, "4 4"]
    K: Float[np.ndarray, "3 3"]


def _read_scene(path: Path, camera: str) -> list[DgpSample]:
    """The samples of a scene that have both the camera and the LiDAR, in the order of time."""
    with reading(path):
        scene = parse_json(path.read_bytes(), path)
        data = {str(d["key"]): d for d in scene["data"]}
        samples = [_sample(path, camera, sample, data) for sample in scene["samples"]]
    return sorted((s for s in samples if s is not None), key=lambda s: natural_key(s.name))


def _sample(path: Path, camera: str, sample: dict[str, Any], data: dict[str, dict[str, Any]]) -> DgpSample | None:
    sensors = {str(data[k]["id"]["name"]).upper(): data[k]["datum"] for k in sample["datum_keys"] if k in data}
    if camera not in sensors or LIDAR not in sensors:
        return None
    picture, sweep = sensors[camera]["image"], sensors[LIDAR]["point_cloud"]
    K = _calibration(path.parent / "calibration" / f"{sample['calibration_key']}.json", camera)
    name = Path(picture["filename"]).stem
    return DgpSample(name, picture["filename"], sweep["filename"], _pose(picture["pose"]), _pose(sweep["pose"]), K)


def _calibration(path: Path, camera: str) -> Float[np.ndarray, "3 3"]:
    table = parse_json(path.read_bytes(), path)
    names = [str(n).upper() for n in table["names"]]
    if camera not in names:
        raise DataError(f"{path} has no camera {camera}, it has {', '.join(names)}")
    numbers = table["intrinsics"][names.index(camera)]
    return cameras.intrinsics_matrix([float(numbers[k]) for k in ("fx", "fy", "cx", "cy")], str(path))


@dataclass(frozen=True, slots=True)
class DgpSweeps(DepthContainer):
    """``sweep.npz#T;K;height,width``: a sweep in a picture."""

    def depth(self, path: Path, inside: str) -> Float[np.ndarray, "h w"]:
        pose, K, size = (np.array(part.split(","), np.float64) for part in inside.split(";"))
        points = projection.transform(_read_points(path), pose.reshape(4, 4))
        return projection.project(points, K.reshape(3, 3), (int(size[0]), int(size[1])), near=1.0)


CONTAINER = DgpSweeps()


@register_scan("ddad")
def scan_ddad(
    root: Path, *, camera: str = "CAMERA_01", every: int = 1, neighbours: int = 1, val_share: float = 0.05
) -> Scan:
    """DDAD.  Train: scenes of the training split; val: held-out ones; test: scenes of the validation split.  Without
    ddad.json every scene is for training.  Ground truth is not made: judge by ``withhold=0.2``.
    """
    if camera not in CAMERAS:
        raise UnknownNameError("DDAD camera", camera, CAMERAS)
    parts = _scenes(root)
    held = [p for p in parts["train"] if held_out(p.parent.name, val_share)]
    rule = (camera, every)
    return Scan(
        name="ddad",
        reader=FrameReader(root=root, container=CONTAINER),
        rules=EvalRules(min_depth=0.001, max_depth=200.0),
        splits={
            "train": partial(_entries, root, [p for p in parts["train"] if p not in held], rule, neighbours),
            "val": partial(_entries, root, held, rule, 0),
            "test": partial(_entries, root, parts["val"], rule, 0),
        },
        tally=lambda: {f"{part} scenes": (len(parts[part]), count) for part, count in SCENES.items()},
        options={"camera": camera, "every": every, "neighbours": neighbours, "val_share": val_share},
        derive=("sparse",),
    )


def _scenes(root: Path) -> dict[str, list[Path]]:
    """The scene files of the two parts."""
    listing = root / "ddad.json"
    everything = sorted(root.glob("*/scene_*.json"))
    if not listing.is_file():
        return {"train": everything, "val": []}
    with reading(listing):
        splits = parse_json(listing.read_bytes(), listing)["scene_splits"]
        named = {part: splits.get(number, {}).get("filenames", []) for part, number in (("train", "0"), ("val", "1"))}
    return {part: [root / name for name in names if (root / name).is_file()] for part, names in named.items()}


def _numbers(*arrays: Any) -> str:
    return ";".join(",".join(f"{v:.12g}" for v in np.ravel(a)) for a in arrays)


def _entries(root: Path, scenes: list[Path], rule: tuple[str, int], step: int) -> Iterator[Entry]:
    camera, every = rule
    for path in scenes:
        samples, place = _read_scene(path, camera), path.parent.relative_to(root).as_posix()
        size = image_files.image_size(path.parent / samples[0].image) if samples else (0, 0)
        for i in range(step, len(samples) - step, every):
            sample = samples[i]
            pose = cameras.inverse(sample.camera) @ sample.lidar
            entry: Entry = {"id": f"{path.parent.name}/{sample.name}", "image": f"{place}/{sample.image}"}
            entry["K"] = sample.K.ravel().tolist()
            entry["sparse"] = f"{place}/{sample.sweep}#{_numbers(pose, sample.K, size)}"
            if step:
                around = [samples[i - step], samples[i + step]]
                moves = [cameras.relative_pose(sample.camera, s.camera) for s in around]
                entry["neighbours"] = [f"{place}/{s.image}" for s in around]
                entry["poses"] = [m.ravel().tolist() for m in moves]
            yield entry
