"""Argoverse 2 (sensor dataset): one ring camera and the LiDAR, from feather files, without its own library.

``[{train,val,test}/]<log>/sensors/{cameras/<camera>/<ns>.jpg,lidar/<ns>.feather}``, ``<log>/calibration/{intrinsics,
egovehicle_SE3_sensor}.feather``, ``<log>/city_SE3_egovehicle.feather``.  A sweep is in the car's frame at its own time:
it goes through the city's frame into the car's at the time of the picture, then into the camera.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data import projection
from protodepth.data.entries import DepthContainer, Entry, FrameReader
from protodepth.data.files import cameras
from protodepth.data.files.text import reading
from protodepth.data.frame import EvalRules
from protodepth.data.manifest import Scan, held_out, register_scan
from protodepth.errors import DataError, UnknownNameError
from protodepth.types import Float

CAMERAS = tuple(
    f"ring_{place}" for place in ("front_center", "front_left", "front_right", "side_left", "side_right", "rear_left")
)
CAMERAS += ("ring_rear_right", "stereo_front_left", "stereo_front_right")
PARTS = ("train", "val", "test")
APART = 30_000_000  # nanoseconds between a sweep and its picture, at most


@lru_cache(maxsize=64)
def _read_feather(path: Path) -> dict[str, np.ndarray]:
    """Columns of a feather file; kept for the small ones."""
    try:
        import pyarrow.feather
    except ImportError:
        raise DataError("reading Argoverse 2 needs pyarrow: pip install 'protodepth[data]'") from None
    with reading(path):
        table = pyarrow.feather.read_table(path)
        return {name: np.asarray(table[name].to_numpy()) for name in table.column_names}


def _pose(row: dict[str, Any]) -> Float[np.ndarray, "4 4"]:
    turn = cameras.quaternion_matrix([row["qx"], row["qy"], row["qz"], row["qw"]])
    return cameras.placed(cameras.rigid(turn, [row["tx_m"], row["ty_m"], row["tz_m"]]), "a row of Argoverse 2")


def _row(table: dict[str, np.ndarray], column: str, value: object, where: Path) -> dict[str, Any]:
    places = np.flatnonzero(table[column] == value)
    if not len(places):
        raise DataError(f"{where} has no row with {column} = {value}")
    return {name: values[places[0]] for name, values in table.items()}


@dataclass(frozen=True, slots=True)
class DriveLog:
    """One drive, seen by one camera."""

    folder: Path
    camera: str

    def intrinsics(self) -> tuple[np.ndarray, tuple[int, int], tuple[float, ...]]:
        """(K, (height, width), k1 k2 p1 p2 k3)."""
        path = self.folder / "calibration" / "intrinsics.feather"
        row = _row(_read_feather(path), "sensor_name", self.camera, path)
        K = cameras.intrinsics_matrix([row[f"{name}_px"] for name in ("fx", "fy", "cx", "cy")], str(path))
        lens = (float(row["k1"]), float(row["k2"]), 0.0, 0.0, float(row["k3"]))
        return K, (int(row["height_px"]), int(row["width_px"])), lens

    def camera_from_city(self, time: int) -> Float[np.ndarray, "4 4"]:
        path = self.folder / "calibration" / "egovehicle_SE3_sensor.feather"
        mounted = _pose(_row(_read_feather(path), "sensor_name", self.camera, path))
        return cameras.inverse(self.car(time) @ mounted)

    def car(self, time: int) -> Float[np.ndarray, "4 4"]:
        """Points of the car in the city, at the nearest time that is known."""
        path = self.folder / "city_SE3_egovehicle.feather"
        table = _read_feather(path)
        near = int(np.abs(table["timestamp_ns"].astype(np.int64) - time).argmin())
        return _pose({name: values[near] for name, values in table.items()})

    def pictures(self) -> np.ndarray:
        folder = self.folder / "sensors" / "cameras" / self.camera
        return np.array(sorted(int(p.stem) for p in folder.glob("*.jpg")), np.int64)

    def sweeps(self) -> list[int]:
        return sorted(int(p.stem) for p in (self.folder / "sensors" / "lidar").glob("*.feather"))

    def pairs(self) -> list[tuple[int, int]]:
        """(picture, sweep) times: to each sweep the nearest picture."""
        pictures = self.pictures()
        if not len(pictures):
            return []
        near = [(int(pictures[np.abs(pictures - sweep).argmin()]), sweep) for sweep in self.sweeps()]
        return [(picture, sweep) for picture, sweep in near if abs(picture - sweep) <= APART]

    def depth(self, picture: int, sweep: int) -> Float[np.ndarray, "h w"]:
        table = _read_feather.__wrapped__(self.folder / "sensors" / "lidar" / f"{sweep}.feather")
        points = np.stack([table[a].astype(np.float64) for a in "xyz"], 1)
        moved = projection.transform(points, self.camera_from_city(picture) @ self.car(sweep))
        K, size, lens = self.intrinsics()
        return projection.project(moved, K, size, near=1.0, distortion=lens)


@dataclass(frozen=True, slots=True)
class Sweeps(DepthContainer):
    """``log#camera,picture,sweep``: a sweep in a picture."""

    def depth(self, path: Path, inside: str) -> Float[np.ndarray, "h w"]:
        camera, picture, sweep = inside.split(",")
        return DriveLog(path, camera).depth(int(picture), int(sweep))


CONTAINER = Sweeps()


@register_scan("argoverse2")
def scan_argoverse2(
    root: Path, *, camera: str = "ring_front_center", every: int = 1, neighbours: int = 1, val_share: float = 0.05
) -> Scan:
    """Argoverse 2.  Train: logs of ``train``; val: held-out ones; test: logs of ``val``.  A folder of logs itself is
    split by name: 20 % test.  ``neighbours``: sweeps (0.1 s) between neighbours.  Ground truth is not made: judge by
    ``withhold=0.2``.
    """
    if camera not in CAMERAS:
        raise UnknownNameError("Argoverse 2 camera", camera, CAMERAS)
    parts = {part: _logs(root / part) for part in PARTS}
    if not any(parts.values()):
        alone = _logs(root)
        parts = {"train": [x for x in alone if not held_out(x.name, 0.2)], "val": []}
        parts["val"] = [x for x in alone if x not in parts["train"]]
    held = [x for x in parts["train"] if held_out(x.name, val_share)]
    rule = (camera, every)
    return Scan(
        name="argoverse2",
        reader=FrameReader(root=root, container=CONTAINER),
        rules=EvalRules(min_depth=0.001, max_depth=100.0),
        splits={
            "train": partial(_entries, root, [x for x in parts["train"] if x not in held], rule, neighbours),
            "val": partial(_entries, root, held, rule, 0),
            "test": partial(_entries, root, parts["val"], rule, 0),
        },
        options={"camera": camera, "every": every, "neighbours": neighbours, "val_share": val_share},
        derive=("sparse",),
    )


def _logs(folder: Path) -> list[Path]:
    return sorted(p.parent for p in folder.glob("*/sensors")) if folder.is_dir() else []


def _entries(root: Path, logs: list[Path], rule: tuple[str, int], step: int) -> Iterator[Entry]:
    camera, every = rule
    for folder in logs:
        log = DriveLog(folder, camera)
        pairs, K = log.pairs(), log.intrinsics()[0].ravel().tolist()
        place = folder.relative_to(root).as_posix()
        names = [f"{place}/sensors/cameras/{camera}/{picture}.jpg" for picture, _ in pairs]
        for i in range(step, len(pairs) - step, every):
            picture, sweep = pairs[i]
            entry: Entry = {"id": f"{folder.name}/{picture}", "image": names[i], "K": K}
            entry["sparse"] = f"{place}#{camera},{picture},{sweep}"
            if step:
                around = (i - step, i + step)
                here = log.camera_from_city(picture)
                moves = [log.camera_from_city(pairs[j][0]) @ cameras.inverse(here) for j in around]
                entry |= {"neighbours": [names[j] for j in around], "poses": [m.ravel().tolist() for m in moves]}
            yield entry
