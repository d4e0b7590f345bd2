"""Waymo Open Dataset, version 2 (parquet), without TensorFlow: front camera and TOP LiDAR.

``{training,validation}/{camera_image,camera_calibration,lidar,lidar_calibration,lidar_camera_projection,lidar_pose,
vehicle_pose}/<segment>.parquet``; ``lidar_box`` as well for accumulated ground truth.  Sparse depth: first return of
TOP at the pixels of the dataset's own camera projection.  Images keep their (small) lens distortion; K ignores it.
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data import projection
from protodepth.data.entries import Entry, FrameReader
from protodepth.data.files import cameras, images
from protodepth.data.frame import EvalRules
from protodepth.data.manifest import Scan, held_out, register_scan
from protodepth.errors import DataError, UnknownNameError
from protodepth.types import Float

CAMERAS = {"front": 1, "front_left": 2, "front_right": 3, "side_left": 4, "side_right": 5}
TOP, LASERS = 1, (1, 2, 3, 4, 5)
TRUTHS = ("lidars", "accumulated")
SEGMENTS = {"training": 798, "validation": 202}
NEIGHBOUR_SWEEPS = 5  # to each side, for accumulated ground truth
# Waymo's cameras look along +x with y left and z up; ours along +z with x right and y down.
OPENCV_FROM_WAYMO = np.array([[0.0, -1, 0, 0], [0, 0, -1, 0], [1, 0, 0, 0], [0, 0, 0, 1]])
ParquetRow = Mapping[str, Any]
_reading = threading.Lock()  # the open file of a component is shared by all threads


# --- parquet ----------------------------------------------------------------------------------------------------------


def _parquet_library() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError("reading Waymo needs pyarrow: pip install 'protodepth[data]'") from None
    return pyarrow.parquet


@lru_cache(maxsize=32)
def _index(path: Path, second: str | None) -> tuple[Any, dict[tuple[int, int], tuple[int, int]]]:
    """(file, (time, camera or laser) -> (row group, row)): one pass over the key columns."""
    try:
        file = _parquet_library().ParquetFile(path)
    except OSError as error:
        reason = f"{error}".partition("\n")[0]
        raise DataError(f"{path} cannot be read as parquet ({reason})") from None
    keys = ["key.frame_timestamp_micros", *([second] if second else [])]
    places: dict[tuple[int, int], tuple[int, int]] = {}
    for group in range(file.num_row_groups):
        columns = file.read_row_group(group, columns=keys).to_pydict()
        names = columns[second] if second else [0] * len(columns[keys[0]])
        for row, key in enumerate(zip(columns[keys[0]], names, strict=True)):
            places[key] = (group, row)
    return file, places


@lru_cache(maxsize=8)
def _group(path: Path, second: str | None, group: int) -> Any:
    with _reading:
        return _index(path, second)[0].read_row_group(group)


def _read_row(path: Path, time: int, second: str | None = None, number: int = 0) -> ParquetRow:
    """One row as a mapping; the columns lose their ``[Component].`` prefix."""
    places = _index(path, second)[1]
    if (time, number) not in places:
        raise DataError(f"{path} has no row for time {time}" + (f" and {second} {number}" if second else ""))
    group, row = places[time, number]
    values = _group(path, second, group).slice(row, 1).to_pylist()[0]
    return {name.split("].", 1)[-1]: value for name, value in values.items()}


@lru_cache(maxsize=256)
def _only_row(path: Path, column: str, number: int) -> ParquetRow:
    """Calibration has one row for each camera or laser, without a time."""
    for values in _parquet_library().read_table(path).to_pylist():
        if values[column] == number:
            return {name.split("].", 1)[-1]: value for name, value in values.items()}
    raise DataError(f"{path} has no row with {column} = {number}")


# --- geometry ---------------------------------------------------------------------------------------------------------


def _matrix(values: Any) -> Float[np.ndarray, "4 4"]:
    return cameras.placed(np.asarray(values, np.float64).reshape(4, 4), "a row of Waymo")


def _image(row: ParquetRow, name: str) -> np.ndarray:
    return np.asarray(row[f"{name}.values"], np.float32).reshape(row[f"{name}.shape"])


def _inclinations(row: ParquetRow, height: int) -> Float[np.ndarray, "h"]:
    """Inclination of each row from top to bottom; the calibration counts from the bottom."""
    values = row.get("beam_inclination.values")
    if values is not None and len(values):
        return np.asarray(values, np.float64)[::-1]
    low, high = row["beam_inclination.min"], row["beam_inclination.max"]
    return (low + (np.arange(height) + 0.5) / height * (high - low))[::-1]


def _range_points(
    ranges: Float[np.ndarray, "h w"], inclination: Float[np.ndarray, "h"], extrinsic: Float[np.ndarray, "4 4"]
) -> Float[np.ndarray, "h w 3"]:
    r"""Points of a range image in the vehicle's frame.

    Column i of W has azimuth :math:`(2 (W - i - 1/2) / W - 1)\,\pi - \mathrm{atan2}(E_{10}, E_{00})`.
    """
    width = ranges.shape[1]
    azimuth = (2 * (width - np.arange(width) - 0.5) / width - 1) * np.pi - np.arctan2(extrinsic[1, 0], extrinsic[0, 0])
    flat, up = np.cos(inclination)[:, None], np.sin(inclination)[:, None]
    direction = np.stack(np.broadcast_arrays(flat * np.cos(azimuth), flat * np.sin(azimuth), up), -1)
    return (ranges[..., None] * direction) @ extrinsic[:3, :3].T + extrinsic[:3, 3]


def _euler(angles: Float[np.ndarray, "*n 3"]) -> Float[np.ndarray, "*n 3 3"]:
    """Rotation of roll, pitch, yaw: about z, after y, after x."""
    (cr, cp, cy), (sr, sp, sy) = np.moveaxis(np.cos(angles), -1, 0), np.moveaxis(np.sin(angles), -1, 0)
    rows = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    return np.stack([np.stack(r, -1) for r in rows], -2)


@dataclass(frozen=True, slots=True)
class Segment:
    """One drive: the files of its components."""

    folder: Path  # training or validation
    name: str

    def path(self, component: str) -> Path:
        return self.folder / component / f"{self.name}.parquet"

    def points(self, time: int, laser: int, which: str = "range_image_return1") -> tuple[np.ndarray, np.ndarray]:
        """(points in the world h w 3, where there is a return) of one sweep."""
        row = _read_row(self.path("lidar"), time, "key.laser_name", laser)
        if row.get(f"{which}.values") is None:
            return np.zeros((0, 1, 3)), np.zeros((0, 1), bool)
        ranges = _image(row, which)[..., 0]
        calibration = _only_row(self.path("lidar_calibration"), "key.laser_name", laser)
        points = _range_points(
            ranges, _inclinations(calibration, len(ranges)), _matrix(calibration["extrinsic.transform"])
        )
        vehicle = self.vehicle_pose(time)
        if laser != TOP:
            return points @ vehicle[:3, :3].T + vehicle[:3, 3], ranges > 0
        pose = _image(_read_row(self.path("lidar_pose"), time, "key.laser_name", laser), "range_image_return1")
        pose = pose.astype(np.float64)  # TOP turns while the car drives: each pixel has its own pose
        return np.einsum("hwij,hwj->hwi", _euler(pose[..., :3]), points) + pose[..., 3:], ranges > 0

    def vehicle_pose(self, time: int) -> Float[np.ndarray, "4 4"]:
        return _matrix(_read_row(self.path("vehicle_pose"), time)["world_from_vehicle.transform"])

    def calibration(self, camera: int) -> ParquetRow:
        return _only_row(self.path("camera_calibration"), "key.camera_name", camera)

    def camera_from_world(self, time: int, camera: int) -> Float[np.ndarray, "4 4"]:
        """World to OpenCV camera at the time of the picture."""
        vehicle = _matrix(_read_row(self.path("camera_image"), time, "key.camera_name", camera)["pose.transform"])
        return OPENCV_FROM_WAYMO @ cameras.inverse(vehicle @ _matrix(self.calibration(camera)["extrinsic.transform"]))


def _intrinsics(calibration: ParquetRow) -> tuple[np.ndarray, tuple[int, int]]:
    """(K as stated, (height, width)).  Its pixel 0 is the left EDGE of the first pixel, ours the centre:
    the half pixel is
    left in K, as every user of the calibration does, and taken out where points are put into pixels."""
    f_u, f_v, c_u, c_v = (calibration[f"intrinsic.{name}"] for name in ("f_u", "f_v", "c_u", "c_v"))
    return cameras.intrinsics_matrix([f_u, f_v, c_u, c_v]), (calibration["height"], calibration["width"])


def _sparse_depth(segment: Segment, time: int, camera: int) -> Float[np.ndarray, "h w"]:
    """First return of TOP at the pixels of the dataset's camera projection; the nearest where several fall together."""
    _, size = _intrinsics(segment.calibration(camera))
    points, hit = segment.points(time, TOP)
    seen = _image(
        _read_row(segment.path("lidar_camera_projection"), time, "key.laser_name", TOP), "range_image_return1"
    ).astype(np.int64)
    z = projection.transform(points.reshape(-1, 3), segment.camera_from_world(time, camera))[:, 2].reshape(hit.shape)
    parts = [(seen[..., i + 1], seen[..., i + 2], z, hit & (seen[..., i] == camera)) for i in (0, 3)]
    x, y, depth = (np.concatenate([p[i][p[3]] for p in parts]) for i in range(3))
    return projection.write_nearest(x, y, depth, size)


def _true_depth(segment: Segment, time: int, camera: int, truth: str, times: list[int]) -> Float[np.ndarray, "h w"]:
    """``lidars``: all five, both returns, one sweep.  ``accumulated``:
    TOP of neighbouring sweeps, without moving boxes.
    """
    calibration = segment.calibration(camera)
    K, size = _intrinsics(calibration)
    if truth == "lidars":
        returns = [segment.points(time, laser, f"range_image_return{r}") for laser in LASERS for r in (1, 2)]
        clouds = [points[hit] for points, hit in returns]
    else:
        i = times.index(time)
        near = times[max(0, i - NEIGHBOUR_SWEEPS) : i + NEIGHBOUR_SWEEPS + 1]
        points, hit = segment.points(time, TOP)
        clouds = [points[hit], *(_static(segment, t) for t in near if t != time)]
    points = projection.transform(np.concatenate(clouds), segment.camera_from_world(time, camera))
    lens = tuple(float(calibration[f"intrinsic.{k}"]) for k in ("k1", "k2", "p1", "p2", "k3"))
    centred = K - np.array([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])
    return projection.drop_occluded(projection.project(points, centred, size, near=1.0, distortion=lens))


def _static(segment: Segment, time: int) -> Float[np.ndarray, "n 3"]:
    """World points of a sweep that lie in no labelled box."""
    points, hit = segment.points(time, TOP)
    cloud = points[hit]
    vehicle = segment.vehicle_pose(time)
    for box in _boxes(segment.path("lidar_box"), time):
        centre, size = ([box[f"box.{what}.{axis}"] for axis in "xyz"] for what in ("center", "size"))
        turn = _euler(np.array([0.0, 0.0, box["box.heading"]]))
        local = projection.transform(cloud, cameras.inverse(vehicle))
        cloud = cloud[~projection.in_box(local, np.array(centre), np.array(size), turn)]
    return cloud


def _boxes(path: Path, time: int) -> list[ParquetRow]:
    filters = [("key.frame_timestamp_micros", "=", time)]
    try:
        table = _parquet_library().read_table(path, filters=filters)
    except OSError as error:
        raise DataError(f"{path} is needed for accumulated ground truth ({error}); or take truth=lidars") from None
    return [{name.split("].", 1)[-1]: v for name, v in row.items()} for row in table.to_pylist()]


# --- the dataset ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parquet:
    """``.../camera_image/<segment>.parquet#camera,time`` and
    ``.../lidar/<segment>.parquet#sparse|truth,camera,time``.
    """

    def image_bytes(self, path: Path, inside: str) -> bytes:
        camera, time = inside.split(",")
        return bytes(_read_row(path, int(time), "key.camera_name", int(camera))["image"])

    def image(self, path: Path, inside: str) -> np.ndarray:
        import io

        data = io.BytesIO(self.image_bytes(path, inside))
        return images.rgb_array(images.open_picture(data, f"{path}#{inside}"), str(path))

    def depth(self, path: Path, inside: str) -> Float[np.ndarray, "h w"]:
        kind, camera, time = inside.split(",")
        segment = Segment(path.parent.parent, path.stem)
        if kind == "sparse":
            return _sparse_depth(segment, int(time), int(camera))
        return _true_depth(segment, int(time), int(camera), kind, _times(segment, int(camera)))


CONTAINER = Parquet()


def _times(segment: Segment, camera: int) -> list[int]:
    places = _index(segment.path("camera_image"), "key.camera_name")[1]
    return sorted(time for time, name in places if name == camera)


@register_scan("waymo")
def scan_waymo(
    root: Path,
    *,
    camera: str = "front",
    truth: str = "lidars",
    every: int = 1,
    neighbours: int = 1,
    val_share: float = 0.05,
) -> Scan:
    """Waymo.  Train: ``training`` segments with both neighbours; val: held-out ones; test: ``validation`` segments.

    ``truth``: "lidars" (all five, both returns) or "accumulated" (11 sweeps of TOP without labelled boxes; needs
    lidar_box).  ``every``: take every n-th frame.  No list was published;
    798 training and 202 validation segments are known.
    """
    if camera not in CAMERAS or truth not in TRUTHS:
        raise UnknownNameError("Waymo camera or truth", f"{camera}, {truth}", (*CAMERAS, *TRUTHS))
    training, validation = _segments(root, "training"), _segments(root, "validation")
    rule = (CAMERAS[camera], truth, every)
    kept = [s for s in training if not held_out(s.name, val_share)]
    splits = {
        "train": partial(_entries, root, kept, rule, neighbours),
        "val": partial(_entries, root, [s for s in training if held_out(s.name, val_share)], rule, 0),
        "test": partial(_entries, root, validation, rule, 0),
    }
    options = {"camera": camera, "truth": truth, "every": every, "neighbours": neighbours, "val_share": val_share}
    return Scan(
        name="waymo",
        reader=FrameReader(root=root, container=CONTAINER),
        rules=EvalRules(min_depth=0.001, max_depth=80.0, crop=(768, 1920)),
        splits=splits,
        tally=lambda: {
            f"{part} segments": (len(segments), SEGMENTS[part])
            for part, segments in (("training", training), ("validation", validation))
        },
        options=options,
        derive=("image", "sparse", "truth"),
        notes=_first_version(root),
    )


def _first_version(root: Path) -> tuple[str, ...]:
    """Files of version 1, which look alike to whoever downloads them and are another format."""
    for part in (root, *(root / name for name in SEGMENTS)):
        old = next(part.glob("*.tfrecord"), None) if part.is_dir() else None
        if old is not None:
            return (
                f"{old} is of Waymo version 1 (tfrecord), which is not read: download version 2 (parquet, "
                "waymo_open_dataset_v_2_0_1), the same drives",
            )
    return ()


def _segments(root: Path, part: str) -> list[Segment]:
    return [Segment(root / part, p.stem) for p in sorted((root / part / "camera_image").glob("*.parquet"))]


def _entries(root: Path, segments: list[Segment], rule: tuple[int, str, int], step: int) -> Iterator[Entry]:
    camera, truth, every = rule
    for segment in segments:
        K = _intrinsics(segment.calibration(camera))[0].ravel().tolist()
        times = _times(segment, camera)
        pictures = segment.path("camera_image").relative_to(root).as_posix()
        lidar = segment.path("lidar").relative_to(root).as_posix()
        for i in range(step, len(times) - step, every):
            entry: Entry = {"id": f"{segment.name}/{times[i]}", "image": f"{pictures}#{camera},{times[i]}", "K": K}
            entry["sparse"] = f"{lidar}#sparse,{camera},{times[i]}"
            entry["truth"] = f"{lidar}#{truth},{camera},{times[i]}"
            if step:
                entry["neighbours"] = [f"{pictures}#{camera},{times[j]}" for j in (i - step, i + step)]
            yield entry
