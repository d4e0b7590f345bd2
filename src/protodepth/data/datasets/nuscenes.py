"""nuScenes (for zero-shot evaluation): front camera, LIDAR_TOP through both ego poses, accumulated ground truth.

``samples|sweeps/{CAM_FRONT,LIDAR_TOP}/...`` and the tables ``v1.0-*/*.json``.  Sparse: the key frame's sweep.  Ground
truth: key frames and the sweeps between them, 15 to each side, without points in boxes of vehicles and people; boxes of
sweeps between key frames are interpolated (the published script runs a detector there).
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from protodepth.data import projection
from protodepth.data.entries import DepthContainer, Entry, FrameReader
from protodepth.data.files import cameras
from protodepth.data.files.text import parse_json, read_text
from protodepth.data.frame import EvalRules
from protodepth.data.manifest import Scan, register_scan
from protodepth.errors import DamagedFileError, DataError, UnknownNameError
from protodepth.types import Float

TABLES = ("scene", "sample", "sample_data", "ego_pose", "calibrated_sensor", "sensor")
BOXES = ("sample_annotation", "instance", "category")
MOVING = ("vehicle.", "human.")
TRUTHS = ("accumulated", "keyframe")
SCENES = {"v1.0-trainval": 850, "v1.0-test": 150}  # 700 to train and 150 to validate; 150 to test
NEAR, BORDER, SWEEPS = 1.0, 1, 15
Record = dict[str, Any]
FARTHEST = 1e4  # metres; what a damaged file has beyond is no point


@dataclass(frozen=True, slots=True)
class Tables:
    """The JSON tables, by token, and what is asked of them."""

    rows: dict[str, dict[str, Record]]
    channel: dict[str, str]  # calibrated sensor -> CAM_FRONT, LIDAR_TOP, ...
    data: dict[tuple[str, str], list[Record]]  # (scene, channel) -> sample_data in order of time

    def key_frames(self, scene: str, channel: str) -> dict[str, Record]:
        """sample -> its key frame on a channel."""
        return {d["sample_token"]: d for d in self.data[scene, channel] if d["is_key_frame"]}

    def world_from_sensor(self, data: Record) -> Float[np.ndarray, "4 4"]:
        """Sensor to vehicle at its own time, vehicle to world at that time."""
        sensor = self.rows["calibrated_sensor"][data["calibrated_sensor_token"]]
        return _pose(self.rows["ego_pose"][data["ego_pose_token"]]) @ _pose(sensor)

    def intrinsics(self, data: Record) -> Float[np.ndarray, "3 3"]:
        sensor = self.rows["calibrated_sensor"][data["calibrated_sensor_token"]]
        return cameras.intrinsics_matrix(np.asarray(sensor["camera_intrinsic"]), f"camera {sensor['token']}")


def _pose(row: Record) -> Float[np.ndarray, "4 4"]:
    """4x4 of a translation and a quaternion w, x, y, z."""
    w, x, y, z = row["rotation"]
    pose = cameras.rigid(cameras.quaternion_matrix([x, y, z, w]), row["translation"])
    return cameras.placed(pose, f"the row {row['token']} of nuScenes")


def _load(folder: Path, name: str) -> dict[str, Record]:
    try:
        return {row["token"]: row for row in parse_json(read_text(folder / f"{name}.json"), name)}
    except (OSError, TypeError, KeyError) as error:
        raise DataError(f"{folder}/{name}.json cannot be read ({error}): unpack the metadata archive there") from None


@lru_cache(maxsize=2)
def read_tables(folder: Path) -> Tables:
    """Read the tables once per process (the full set takes about a minute)."""
    rows = {name: _load(folder, name) for name in TABLES}
    rows |= {name: _load(folder, name) if (folder / f"{name}.json").exists() else {} for name in BOXES}
    channel = {t: rows["sensor"][r["sensor_token"]]["channel"] for t, r in rows["calibrated_sensor"].items()}
    data: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for row in rows["sample_data"].values():
        kind = channel[row["calibrated_sensor_token"]]
        if kind in ("CAM_FRONT", "LIDAR_TOP"):
            data[rows["sample"][row["sample_token"]]["scene_token"], kind].append(row)
    for items in data.values():
        items.sort(key=lambda row: row["timestamp"])
    return Tables(rows, channel, data)


def read_cloud(path: Path) -> Float[np.ndarray, "n 3"]:
    """x, y, z of a .pcd.bin file: float32 x, y, z, intensity, ring."""
    try:
        values = np.fromfile(path, "<f4")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})") from None
    if values.size % 5:
        raise DamagedFileError(f"{path} has {values.size} numbers, expected five a point: the file is truncated")
    with np.errstate(invalid="ignore"):
        points = values.reshape(-1, 5)[:, :3].astype(np.float64)
    return points[(np.abs(points) < FARTHEST).all(1)]  # NaN is not less either


def _to_map(
    points: Float[np.ndarray, "n 3"], K: np.ndarray, size: tuple[int, int], *, last: bool = False
) -> Float[np.ndarray, "h w"]:
    """Points beyond 1 m as a depth map without its one-pixel border;
    where several fall together the nearest (or last) stays.
    """
    depth = projection.project(points, K, size, near=NEAR, last=last)
    inner = np.zeros_like(depth)
    inner[BORDER:-BORDER, BORDER:-BORDER] = depth[BORDER:-BORDER, BORDER:-BORDER]
    return inner


def _moving_boxes(tables: Tables, sample: str) -> dict[str, Record]:
    """instance -> its box at a key frame, for vehicles and people."""
    boxes = {}
    for row in _annotations(id(tables), tables).get(sample, ()):
        category = tables.rows["category"][tables.rows["instance"][row["instance_token"]]["category_token"]]["name"]
        if category.startswith(MOVING):
            boxes[row["instance_token"]] = row
    return boxes


_BY_SAMPLE: dict[int, dict[str, list[Record]]] = {}


def _annotations(key: int, tables: Tables) -> dict[str, list[Record]]:
    if key not in _BY_SAMPLE:
        _BY_SAMPLE.clear()
        grouped: dict[str, list[Record]] = defaultdict(list)
        for row in tables.rows["sample_annotation"].values():
            grouped[row["sample_token"]].append(row)
        _BY_SAMPLE[key] = grouped
    return _BY_SAMPLE[key]


def _boxes_at(tables: Tables, data: Record) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(centre, size along its axes, rotation) of moving things when a sweep was taken, between two key frames."""
    sample = tables.rows["sample"][data["sample_token"]]
    here = _moving_boxes(tables, sample["token"])
    later = tables.rows["sample"].get(sample["next"]) if data["timestamp"] > sample["timestamp"] else None
    earlier = tables.rows["sample"].get(sample["prev"]) if data["timestamp"] < sample["timestamp"] else None
    other = later or earlier
    there = _moving_boxes(tables, other["token"]) if other else {}
    span = other["timestamp"] - sample["timestamp"] if other else 1
    share = np.clip((data["timestamp"] - sample["timestamp"]) / span, 0, 1) if other else 0.0
    boxes = []
    for instance, row in here.items():
        centre = np.array(row["translation"], np.float64)
        if instance in there:
            centre = (1 - share) * centre + share * np.array(there[instance]["translation"])
        width, length, height = row["size"]
        boxes.append((centre, np.array([length, width, height]), _pose(row)[:3, :3]))
    return boxes


def _static_cloud(root: Path, tables: Tables, data: Record) -> Float[np.ndarray, "n 3"]:
    """World points of a sweep that lie in no box of a vehicle or a person."""
    points = projection.transform(read_cloud(root / data["filename"]), tables.world_from_sensor(data))
    for centre, size, rotation in _boxes_at(tables, data):
        points = points[~projection.in_box(points, centre, size, rotation)]
    return points


def accumulated(root: Path, tables: Tables, camera: Record, K: np.ndarray) -> Float[np.ndarray, "h w"]:
    """Sweeps of 15 key frames to each side and those between, in the camera of this key frame."""
    scene = tables.rows["sample"][camera["sample_token"]]["scene_token"]
    sweeps = tables.data[scene, "LIDAR_TOP"]
    keys = [i for i, d in enumerate(sweeps) if d["is_key_frame"]]
    middle = next(n for n, i in enumerate(keys) if sweeps[i]["sample_token"] == camera["sample_token"])
    first, last = keys[max(0, middle - SWEEPS)], keys[min(len(keys) - 1, middle + SWEEPS)]
    world = np.concatenate([_static_cloud(root, tables, d) for d in sweeps[first : last + 1]])
    points = projection.transform(world, cameras.inverse(tables.world_from_sensor(camera)))
    return projection.drop_occluded(_to_map(points, K, (camera["height"], camera["width"])))


@dataclass(frozen=True, slots=True)
class LidarSweeps(DepthContainer):
    """``sweep.pcd.bin#T;K;height,width[;last]`` (16 and 9 numbers)
    and ``v1.0-mini#camera token`` for accumulated ground truth.
    """

    def depth(self, path: Path, inside: str) -> Float[np.ndarray, "h w"]:
        if path.is_dir():
            tables = read_tables(path)
            camera = tables.rows["sample_data"][inside]
            return accumulated(path.parent, tables, camera, tables.intrinsics(camera))
        numbers, last, _ = inside.partition(";last")
        motion, K, size = (np.array(part.split(","), np.float64) for part in numbers.split(";"))
        points = projection.transform(read_cloud(path), motion.reshape(4, 4))
        return _to_map(points, K.reshape(3, 3), (int(size[0]), int(size[1])), last=bool(last))


CONTAINER = LidarSweeps()


@register_scan("nuscenes")
def scan_nuscenes(
    root: Path,
    *,
    version: str = "",
    test_scenes: Path | None = None,
    truth: str = "accumulated",
    max_depth: float = 80.0,
    official: Literal["", "protodepth"] = "",
) -> Scan:
    """nuScenes, front camera.  Test: key frames of the scenes named in ``test_scenes`` (a text file), or of all scenes.

    With ``test_scenes`` the other scenes are training data, with the camera's previous and next pictures (12 Hz) as
    neighbours.  ``truth``: "accumulated" (slow: prepare it) or "keyframe" (the sweep itself).  The official splits have
    700, 150 and 150 scenes; the paper does not say which it evaluates.  ``official="protodepth"``: of several sparse
    points on a pixel the last one stays, as that script has it, not the nearest.
    """
    if truth not in TRUTHS:
        raise UnknownNameError("nuScenes truth", truth, TRUTHS)
    folder = root / version if version else next(iter(sorted(root.glob("v1.0-*"))), root / "v1.0-trainval")
    names = {line.strip() for line in read_text(test_scenes).splitlines() if line.strip()} if test_scenes else None
    reader = FrameReader(root=root, container=CONTAINER)
    rule = (truth, ";last" if official else "")
    splits = {part: partial(_entries, root, folder, names, part, rule) for part in ("train", "test")}
    return Scan(
        name="nuscenes",
        reader=reader,
        rules=EvalRules(min_depth=0.001, max_depth=max_depth, crop=(540, 1600)),
        splits=splits,
        tally=lambda: (
            {"scenes": (len(read_tables(folder).rows["scene"]), SCENES[folder.name])} if folder.name in SCENES else {}
        ),
        options={
            "version": folder.name,
            "test_scenes": str(test_scenes or "all"),
            "truth": truth,
            "official": official,
        },
        derive=("sparse", "truth"),
    )


TruthRule = tuple[str, str]  # which truth, and the end of a reference to a sweep


def _entries(root: Path, folder: Path, test: set[str] | None, part: str, rule: TruthRule) -> Iterator[Entry]:
    tables = read_tables(folder)
    for scene in sorted(tables.rows["scene"].values(), key=lambda s: s["name"]):
        testing = test is None or scene["name"] in test
        if testing == (part == "test"):
            yield from _scene(root, folder, scene, part, rule)


def _scene(root: Path, folder: Path, scene: Record, part: str, rule: TruthRule) -> Iterator[Entry]:
    tables, (truth, tail) = read_tables(folder), rule
    sweeps = tables.key_frames(scene["token"], "LIDAR_TOP")
    for sample, camera in tables.key_frames(scene["token"], "CAM_FRONT").items():
        if sample not in sweeps:
            raise DataError(f"{folder}: sample {sample} of {scene['name']} has no LIDAR_TOP key frame")
        K = tables.intrinsics(camera).ravel().tolist()
        to_camera = cameras.inverse(tables.world_from_sensor(camera)) @ tables.world_from_sensor(sweeps[sample])
        inside = ";".join(",".join(f"{v:.12g}" for v in part_) for part_ in (to_camera.ravel(), K))
        sparse = f"{sweeps[sample]['filename']}#{inside};{camera['height']},{camera['width']}{tail}"
        entry: Entry = {"id": f"{scene['name']}/{Path(camera['filename']).stem}", "image": camera["filename"], "K": K}
        entry["sparse"] = sparse
        entry["truth"] = sparse if truth == "keyframe" else f"{folder.name}#{camera['token']}"
        if part == "train":
            around = [tables.rows["sample_data"].get(camera[key]) for key in ("prev", "next")]
            if not all(around):
                continue
            entry["neighbours"] = [row["filename"] for row in around if row]
        yield entry
