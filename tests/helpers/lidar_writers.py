"""A known scene scanned by a lidar, and LiDAR datasets written from it."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from helpers.data_scene import Shot
from helpers.dataset_writers import jpeg
from protodepth.data.worlds import raycast, shading, worlds

SIZE = (48, 80)
# The scene has x right, y down, z forward; cars have x forward, y left, z up.
SCENE_FROM_CAR = np.array([[0.0, -1, 0], [0, 0, -1], [1, 0, 0]])


def scene() -> raycast.Scene:
    return worlds.LAYOUTS["street"](np.random.default_rng(3), (0.0, -1.4, 0.0))


def cast(origin: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Ranges along unit directions (h w 3, scene axes); 0 where nothing within 75 m."""
    t = raycast.cast(scene(), origin, np.ascontiguousarray(directions.transpose(2, 0, 1))).t
    return np.where(np.isfinite(t) & (t < 75), t, 0.0)


def as_car(pose: np.ndarray) -> np.ndarray:
    """A camera-to-scene pose as a car-to-world pose: the car's axes at the camera, the world in car axes."""
    out = np.eye(4)
    out[:3, :3] = SCENE_FROM_CAR.T @ pose[:3, :3] @ SCENE_FROM_CAR
    out[:3, 3] = SCENE_FROM_CAR.T @ pose[:3, 3]
    return out


def expected_map(points: np.ndarray, shot: Shot, near: float = 0.5) -> np.ndarray:
    """Points in the scene -> the nearest depth at each pixel, by a plain loop."""
    local = (points - shot.pose[:3, 3]) @ shot.pose[:3, :3]
    out = np.zeros(SIZE)
    for x, y, z in local[local[:, 2] > near]:
        u, v = round(shot.K[0, 0] * x / z + shot.K[0, 2]), round(shot.K[1, 1] * y / z + shot.K[1, 2])
        if 0 <= u < SIZE[1] and 0 <= v < SIZE[0] and (out[v, u] == 0 or z < out[v, u]):
            out[v, u] = z
    return out


HEIGHT, WIDTH = 24, 300
INCLINATIONS = np.linspace(-0.30, 0.05, HEIGHT)  # bottom to top, as stored
LIDAR = np.eye(4)
LIDAR[:3, :3] = Rotation.from_euler("z", 0.4).as_matrix()
LIDAR[:3, 3] = [0.2, 0.1, 0.3]
CAMERA = np.eye(4)
CAMERA[:3, :3] = Rotation.from_euler("zyx", [0.02, -0.01, 0.01]).as_matrix()
CAMERA[:3, 3] = [0.5, -0.1, 0.05]


def camera_shot(shot: Shot) -> Shot:
    """What the car's camera sees: the shot's pose is the car, the camera is mounted on it."""
    car = as_car(shot.pose) @ CAMERA
    pose = np.eye(4)
    pose[:3, :3] = SCENE_FROM_CAR @ car[:3, :3] @ SCENE_FROM_CAR.T
    pose[:3, 3] = SCENE_FROM_CAR @ car[:3, 3]
    camera = raycast.Camera(shot.K, pose[:3, :3], pose[:3, 3])
    image = (np.clip(shading.photograph(scene(), camera, SIZE), 0, 1) * 255 + 0.5).astype(np.uint8)
    return Shot(image, shading.depth_map(scene(), camera, SIZE), shot.K, pose)


def sweep(shots: list[Shot], i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(range image, scene points h w 3, per-pixel pose): the car moves on while the scanner turns."""
    columns = np.arange(WIDTH)
    azimuth = (2 * (WIDTH - columns - 0.5) / WIDTH - 1) * np.pi - 0.4
    up = INCLINATIONS[::-1][:, None]
    local = np.stack(np.broadcast_arrays(np.cos(up) * np.cos(azimuth), np.cos(up) * np.sin(azimuth), np.sin(up)), -1)
    ranges, points, poses = np.zeros((HEIGHT, WIDTH)), np.zeros((HEIGHT, WIDTH, 3)), np.zeros((HEIGHT, WIDTH, 6))
    car = as_car(shots[i].pose)
    for part in np.array_split(columns, 10):
        moving = car.copy()
        moving[:3, 3] += car[:3, 0] * 0.05 * (part[0] / WIDTH - 0.5)
        lidar = moving @ LIDAR
        world = local[:, part] @ lidar[:3, :3].T
        origin = SCENE_FROM_CAR @ lidar[:3, 3]
        ranges[:, part] = cast(origin, world @ SCENE_FROM_CAR.T)
        points[:, part] = origin + ranges[:, part, None] * (world @ SCENE_FROM_CAR.T)
        poses[:, part, :3] = Rotation.from_matrix(moving[:3, :3]).as_euler("xyz")
        poses[:, part, 3:] = moving[:3, 3]
    return ranges, points, poses


def camera_projection(points: np.ndarray, ranges: np.ndarray, shot: Shot) -> np.ndarray:
    """First camera name, x, y (coordinate 0 is the left edge of the first pixel), second camera: none."""
    local = (points - shot.pose[:3, 3]) @ shot.pose[:3, :3]
    z = np.where(local[..., 2] > 0.5, local[..., 2], np.nan)
    u, v = (shot.K[i, i] * local[..., i] / z + shot.K[i, 2] + 0.5 for i in (0, 1))
    seen = (ranges > 0) & (u >= 0) & (u < SIZE[1]) & (v >= 0) & (v < SIZE[0])
    out = np.zeros((*ranges.shape, 6))
    out[seen, 0] = 1
    out[seen, 1], out[seen, 2] = np.floor(u[seen]), np.floor(v[seen])
    return out


def write_waymo(root: Path, shots: list[Shot], part: str) -> tuple[list[Shot], list[np.ndarray]]:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows: dict[str, list[dict[str, object]]] = {}
    seen, clouds = [camera_shot(s) for s in shots], []
    K = shots[0].K

    def add(component: str, keys: dict[str, object], values: dict[str, object], name: str) -> None:
        keyed = {f"key.{k}": v for k, v in {"segment_context_name": "seg", **keys}.items()}
        rows.setdefault(component, []).append({**keyed, **{f"[{name}].{k}": v for k, v in values.items()}})

    def image(name: str, array: np.ndarray) -> dict[str, object]:
        return {f"{name}.values": array.astype(np.float32).ravel().tolist(), f"{name}.shape": list(array.shape)}

    lens = dict.fromkeys(("k1", "k2", "p1", "p2", "k3"), 0.0)
    four = {"f_u": K[0, 0], "f_v": K[1, 1], "c_u": K[0, 2] + 0.5, "c_v": K[1, 2] + 0.5}
    values = {f"intrinsic.{k}": float(v) for k, v in {**four, **lens}.items()}
    values |= {"extrinsic.transform": CAMERA.ravel().tolist(), "width": SIZE[1], "height": SIZE[0]}
    add("camera_calibration", {"camera_name": 1}, values, "CameraCalibrationComponent")
    values = {"extrinsic.transform": LIDAR.ravel().tolist(), "beam_inclination.values": INCLINATIONS.tolist()}
    values |= {"beam_inclination.min": float(INCLINATIONS[0]), "beam_inclination.max": float(INCLINATIONS[-1])}
    for laser in (1, 2, 3, 4, 5):
        beams = {} if laser == 1 else {"beam_inclination.values": None}  # only TOP has a table
        add("lidar_calibration", {"laser_name": laser}, {**values, **beams}, "LiDARCalibrationComponent")
    for i, shot in enumerate(shots):
        time = {"frame_timestamp_micros": 1_500_000 + 100_000 * i}
        car = as_car(shot.pose).ravel().tolist()
        values = {"image": jpeg(seen[i].image), "pose.transform": car}
        add("camera_image", {**time, "camera_name": 1}, values, "CameraImageComponent")
        add("vehicle_pose", time, {"world_from_vehicle.transform": car}, "VehiclePoseComponent")
        ranges, points, poses = sweep(shots, i)
        clouds.append(points[ranges > 0])
        four_channels = np.stack([ranges, *[np.zeros_like(ranges)] * 3], -1)
        for laser in (1, 2, 3, 4, 5):
            first = four_channels if laser == 1 else np.zeros((2, 8, 4))
            both = {**image("range_image_return1", first), **image("range_image_return2", np.zeros_like(first))}
            add("lidar", {**time, "laser_name": laser}, both, "LiDARComponent")
        keys = {**time, "laser_name": 1}
        seen_by = camera_projection(points, ranges, seen[i])
        add("lidar_camera_projection", keys, image("range_image_return1", seen_by), "LiDARCameraProjectionComponent")
        add("lidar_pose", keys, image("range_image_return1", poses), "LiDARPoseComponent")
    for component, table in rows.items():
        path = root / part / component / "seg.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(table), path, row_group_size=3)
    return seen, clouds


def without_occluded(depth: np.ndarray) -> np.ndarray:
    """Drop what lies more than 1.5 m behind a point of its 7 x 7 window, by a plain loop."""
    out = depth.copy()
    for v, u in np.argwhere(depth > 0):
        window = depth[max(0, v - 3) : v + 4, max(0, u - 3) : u + 4]
        if window[window > 0].min() < depth[v, u] - 1.5:
            out[v, u] = 0
    return out


MOUNT_CAMERA = np.eye(4)
MOUNT_CAMERA[:3, :3] = Rotation.from_euler("zyx", [0.03, 0.0, -0.01]).as_matrix() @ SCENE_FROM_CAR.T
MOUNT_CAMERA[:3, 3] = [1.5, 0.05, 0.1]
MOUNT_LIDAR = np.eye(4)
MOUNT_LIDAR[:3, :3] = Rotation.from_euler("z", -1.2).as_matrix()
MOUNT_LIDAR[:3, 3] = [0.9, 0.0, 0.4]


def quaternion(R: np.ndarray) -> list[float]:
    x, y, z, w = Rotation.from_matrix(R).as_quat()
    return [w, x, y, z]


def scanned(car: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(points in the scanner's frame, the same in the scene)."""
    azimuth, up = np.linspace(-np.pi, np.pi, 400)[None, :], np.radians(np.linspace(-20, 5, 20))[:, None]
    local = np.stack(np.broadcast_arrays(np.cos(up) * np.cos(azimuth), np.cos(up) * np.sin(azimuth), np.sin(up)), -1)
    lidar = car @ MOUNT_LIDAR
    world = local @ lidar[:3, :3].T @ SCENE_FROM_CAR.T
    origin = SCENE_FROM_CAR @ lidar[:3, 3]
    ranges = cast(origin, world)
    hit = ranges > 0
    return (ranges[..., None] * local)[hit], (origin + ranges[..., None] * world)[hit]


def write_nuscenes(root: Path, shots: list[Shot]) -> tuple[list[Shot], list[np.ndarray]]:
    tables: dict[str, list[dict[str, object]]] = {
        "sample": [],
        "sample_data": [],
        "ego_pose": [],
        "sample_annotation": [],
    }
    tables["scene"] = [{"token": "sc", "name": "scene-0001", "first_sample_token": "s0"}]
    tables["sensor"] = [{"token": "cam", "channel": "CAM_FRONT"}, {"token": "lid", "channel": "LIDAR_TOP"}]
    tables["instance"], tables["category"] = [], []
    K = shots[0].K
    tables["calibrated_sensor"] = [
        {"token": "c1", "sensor_token": "cam", "translation": MOUNT_CAMERA[:3, 3].tolist(),
         "rotation": quaternion(MOUNT_CAMERA[:3, :3]), "camera_intrinsic": K.tolist()},
        {"token": "l1", "sensor_token": "lid", "translation": MOUNT_LIDAR[:3, 3].tolist(),
         "rotation": quaternion(MOUNT_LIDAR[:3, :3]), "camera_intrinsic": []},
    ]  # fmt: skip
    seen, clouds = [], []
    count = len(shots)
    for i, shot in enumerate(shots):
        car_at_camera = as_car(shot.pose)
        car_at_lidar = car_at_camera.copy()
        car_at_lidar[:3, 3] += car_at_camera[:3, 0] * 0.3  # the two sensors fire at different times
        camera = car_at_camera @ MOUNT_CAMERA
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = SCENE_FROM_CAR @ camera[:3, :3], SCENE_FROM_CAR @ camera[:3, 3]
        view = raycast.Camera(K, pose[:3, :3], pose[:3, 3])
        image = (np.clip(shading.photograph(scene(), view, SIZE), 0, 1) * 255 + 0.5).astype(np.uint8)
        seen.append(Shot(image, shading.depth_map(scene(), view, SIZE), K, pose))
        local, points = scanned(car_at_lidar)
        clouds.append(points)
        names = {"cam": f"samples/CAM_FRONT/{i}.jpg", "lid": f"samples/LIDAR_TOP/{i}.pcd.bin"}
        for name in names.values():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / names["cam"]).write_bytes(jpeg(image))
        (root / names["lid"]).write_bytes(np.hstack([local, np.zeros((len(local), 2))]).astype("<f4").tobytes())
        near = {"prev": f"s{i - 1}" if i else "", "next": f"s{i + 1}" if i + 1 < count else ""}
        tables["sample"].append({"token": f"s{i}", "scene_token": "sc", "timestamp": 500_000 * i, **near})
        for kind, car in (("cam", car_at_camera), ("lid", car_at_lidar)):
            tables["ego_pose"].append(
                {"token": f"e{kind}{i}", "translation": car[:3, 3].tolist(), "rotation": quaternion(car[:3, :3])}
            )
            tables["sample_data"].append(
                {"token": f"{kind}{i}", "sample_token": f"s{i}", "ego_pose_token": f"e{kind}{i}",
                 "calibrated_sensor_token": "c1" if kind == "cam" else "l1",
                 "timestamp": 500_000 * i + (kind == "lid") * 20_000,
                 "is_key_frame": True, "height": SIZE[0] if kind == "cam" else 0,
                 "width": SIZE[1] if kind == "cam" else 0,
                 "filename": names[kind], "prev": f"{kind}{i - 1}" if i else "",
                 "next": f"{kind}{i + 1}" if i + 1 < count else ""}
            )  # fmt: skip
    folder = root / "v1.0-mini"
    folder.mkdir()
    for name, rows in tables.items():
        (folder / f"{name}.json").write_text(json.dumps(rows))
    return seen, clouds
