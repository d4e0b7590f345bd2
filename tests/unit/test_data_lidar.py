"""LiDAR datasets: a scanner's rays are cast into a known scene, stored as the dataset stores them, and read back."""

import json
from pathlib import Path

import numpy as np
import pytest
from data_scene import Shot, walk
from scipy.spatial.transform import Rotation
from test_data_formats import jpeg

from protodepth.data import projection
from protodepth.data.arguments import open_domain
from protodepth.data.manifest import prepare
from protodepth.data.worlds import raycast, shading, worlds
from protodepth.errors import DataError

SIZE = (48, 80)
# The scene has x right, y down, z forward; cars have x forward, y left, z up.
SCENE_FROM_CAR = np.array([[0.0, -1, 0], [0, 0, -1], [1, 0, 0]])


@pytest.fixture(scope="module")
def shots() -> list[Shot]:
    return walk(4, size=SIZE, world="street", step=0.8)


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


# --- Waymo ------------------------------------------------------------------------------------------------------------

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


def test_waymo_sparse_depth_falls_where_the_camera_sees_the_points(tmp_path: Path, shots: list[Shot]) -> None:
    seen, clouds = write_waymo(tmp_path, shots, "training")
    domain = open_domain(f"waymo:{tmp_path}", val_share=0.0)
    assert len(domain.train) == 2
    frame = domain.train[1]
    expected = expected_map(clouds[2], seen[2])
    assert (expected > 0).sum() > 150
    assert np.array_equal(frame.sparse_depth > 0, expected > 0)
    assert np.abs(frame.sparse_depth - expected).max() < 2e-3  # float32 pose angles over 75 m
    stated = seen[2].K + np.array([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])
    assert np.allclose(frame.intrinsics, stated, atol=1e-4)
    assert [
        np.abs(n.astype(int) - seen[j].image).mean() < 6 for n, j in zip(frame.neighbours, (1, 3), strict=True)
    ] == [True, True]
    assert domain.rules.crop == (768, 1920)


def test_waymo_depth_agrees_with_the_picture(tmp_path: Path, shots: list[Shot]) -> None:
    """Most points lie on what the camera's own ray hits: an axis or a rotation that is wrong would not."""
    seen, _ = write_waymo(tmp_path, shots, "training")
    frame = open_domain(f"waymo:{tmp_path}", val_share=0.0).train[0]
    hit = frame.sparse_depth > 0
    ratio = frame.sparse_depth[hit] / seen[1].depth[hit]
    assert np.median(np.abs(ratio - 1)) < 0.02


def test_waymo_ground_truth_holds_the_sweep_and_prepare_extracts_the_pictures(
    tmp_path: Path, shots: list[Shot]
) -> None:
    write_waymo(tmp_path / "raw", shots, "validation")
    done = prepare("waymo", tmp_path / "raw", tmp_path / "out", options={})
    assert done.counts == {"train": 0, "val": 0, "test": 4}
    direct, prepared = open_domain(f"waymo:{tmp_path / 'raw'}").test[2], open_domain(str(tmp_path / "out")).test[2]
    assert np.array_equal(direct.image, prepared.image)
    assert np.abs(direct.sparse_depth - prepared.sparse_depth).max() <= 0.5 / 256 + 1e-5
    assert direct.ground_truth is not None
    both = (direct.ground_truth > 0) & (direct.sparse_depth > 0)
    assert both.sum() > 200  # the 7 x 7 occlusion window is large in so small a picture
    assert np.median(np.abs(direct.ground_truth - direct.sparse_depth)[both]) < 0.01


BOX = {"center": [9.0, 1.5, -0.6], "size": [12.0, 3.0, 2.5], "heading": 0.3}  # in the car's frame, at every time


def write_boxes(root: Path, part: str, count: int) -> None:
    """lidar_box: one labelled thing that drives along with the car."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    named = {f"box.{what}.{axis}": BOX[what][i] for what in ("center", "size") for i, axis in enumerate("xyz")}
    values = {f"[LiDARBoxComponent].{key}": float(v) for key, v in {**named, "box.heading": BOX["heading"]}.items()}
    rows = [
        {"key.segment_context_name": "seg", "key.frame_timestamp_micros": 1_500_000 + 100_000 * i, "key.laser_object_id": "a", **values}
        for i in range(count)
    ]  # fmt: skip
    (root / part / "lidar_box").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), root / part / "lidar_box" / "seg.parquet")


def outside_box(points: np.ndarray, car: np.ndarray) -> np.ndarray:
    """Scene points that are not in BOX (grown by 0.1 m) of a car at the given car-to-world pose."""
    homogeneous = np.column_stack([points @ SCENE_FROM_CAR, np.ones(len(points))])
    local = (np.linalg.inv(car) @ homogeneous.T)[:3].T - BOX["center"]
    turned = Rotation.from_euler("z", -BOX["heading"]).apply(local)
    return points[(np.abs(turned) > np.array(BOX["size"]) / 2 + 0.1).any(1)]


def without_occluded(depth: np.ndarray) -> np.ndarray:
    """Drop what lies more than 1.5 m behind a point of its 7 x 7 window, by a plain loop."""
    out = depth.copy()
    for v, u in np.argwhere(depth > 0):
        window = depth[max(0, v - 3) : v + 4, max(0, u - 3) : u + 4]
        if window[window > 0].min() < depth[v, u] - 1.5:
            out[v, u] = 0
    return out


def test_waymo_accumulated_truth_is_the_neighbouring_sweeps_without_what_moves(
    tmp_path: Path, shots: list[Shot]
) -> None:
    """All sweeps are moved with the car's poses into one camera; labelled boxes of the other sweeps are left out."""
    seen, clouds = write_waymo(tmp_path, shots, "validation")
    write_boxes(tmp_path, "validation", len(shots))
    frame = open_domain(f"waymo:{tmp_path}?truth=accumulated").test[1]
    others = [outside_box(clouds[i], as_car(shots[i].pose)) for i in (0, 2, 3)]
    assert sum(len(clouds[i]) for i in (0, 2, 3)) - sum(map(len, others)) > 100  # the box is not empty
    expected = without_occluded(expected_map(np.concatenate([clouds[1], *others]), seen[1], near=1.0))
    assert frame.ground_truth is not None
    close = np.abs(frame.ground_truth - expected) < 2e-3
    assert close.mean() > 0.995  # float32 pose angles put a few points into the next pixel
    wrong = without_occluded(expected_map(np.concatenate(clouds), seen[1], near=1.0))
    assert (np.abs(frame.ground_truth - wrong) > 0.1).sum() > 20  # and the box matters
    single = open_domain(f"waymo:{tmp_path}").test[1]
    assert single.ground_truth is not None
    assert (frame.ground_truth > 0).sum() > 1.3 * (single.ground_truth > 0).sum()
    known = frame.ground_truth > 0
    assert np.median(np.abs(frame.ground_truth[known] / seen[1].depth[known] - 1)) < 0.02


def test_waymo_accumulated_truth_without_boxes_says_what_is_needed(tmp_path: Path, shots: list[Shot]) -> None:
    write_waymo(tmp_path, shots, "validation")
    with pytest.raises(DataError, match=r"lidar_box.*is needed for accumulated ground truth.*truth=lidars"):
        open_domain(f"waymo:{tmp_path}?truth=accumulated").test[1]


# --- nuScenes ---------------------------------------------------------------------------------------------------------

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
                 "calibrated_sensor_token": "c1" if kind == "cam" else "l1", "timestamp": 500_000 * i + (kind == "lid") * 20_000,
                 "is_key_frame": True, "height": SIZE[0] if kind == "cam" else 0, "width": SIZE[1] if kind == "cam" else 0,
                 "filename": names[kind], "prev": f"{kind}{i - 1}" if i else "", "next": f"{kind}{i + 1}" if i + 1 < count else ""}
            )  # fmt: skip
    folder = root / "v1.0-mini"
    folder.mkdir()
    for name, rows in tables.items():
        (folder / f"{name}.json").write_text(json.dumps(rows))
    return seen, clouds


def test_nuscenes_points_go_through_both_ego_poses_into_the_camera(tmp_path: Path, shots: list[Shot]) -> None:
    seen, clouds = write_nuscenes(tmp_path, shots)
    domain = open_domain(f"nuscenes:{tmp_path}", truth="keyframe")
    assert len(domain.test) == 4
    frame = domain.test[1]
    expected = expected_map(clouds[1], seen[1])
    expected[:1] = expected[-1:] = 0
    expected[:, :1] = expected[:, -1:] = 0
    expected[expected < 1] = 0
    assert (expected > 0).sum() > 150
    assert np.array_equal(frame.sparse_depth > 0, expected > 0)
    assert np.abs(frame.sparse_depth - expected).max() < 1e-3
    assert np.allclose(frame.intrinsics, seen[1].K, atol=1e-4)
    assert domain.rules.crop == (540, 1600)


def test_nuscenes_can_keep_the_last_point_of_a_pixel_as_the_published_script(tmp_path: Path, shots: list[Shot]) -> None:
    seen, clouds = write_nuscenes(tmp_path, shots)
    nearest, last = (
        open_domain(f"nuscenes:{tmp_path}?truth=keyframe&official={name}").test[1].sparse_depth
        for name in ("", "protodepth")
    )
    assert np.array_equal(nearest > 0, last > 0)
    assert (last >= nearest).all()
    assert (last > nearest).sum() > 5
    expected = np.zeros(SIZE)
    for x, y, z in (clouds[1] - seen[1].pose[:3, 3]) @ seen[1].pose[:3, :3]:
        u, v = (round(seen[1].K[i, i] * a / z + seen[1].K[i, 2]) if z > 1 else -1 for i, a in ((0, x), (1, y)))
        if 1 <= u < SIZE[1] - 1 and 1 <= v < SIZE[0] - 1:
            expected[v, u] = z
    assert np.abs(last - expected).max() < 1e-3


def test_nuscenes_accumulated_truth_is_denser_and_lies_on_the_scene(tmp_path: Path, shots: list[Shot]) -> None:
    seen, _ = write_nuscenes(tmp_path, shots)
    domain = open_domain(f"nuscenes:{tmp_path}")
    frame = domain.test[2]
    assert frame.ground_truth is not None
    hit = frame.ground_truth > 0
    assert (hit & (frame.sparse_depth == 0)).sum() > 100
    assert np.median(np.abs(frame.ground_truth[hit] / seen[2].depth[hit] - 1)) < 0.03


def add_sweeps(root: Path, shots: list[Shot]) -> list[np.ndarray]:
    """Sweeps half-way between the key frames, each listed under the key frame before it."""
    folder = root / "v1.0-mini"
    tables = {name: json.loads((folder / f"{name}.json").read_text()) for name in ("sample_data", "ego_pose")}
    (root / "sweeps" / "LIDAR_TOP").mkdir(parents=True)
    clouds = []
    for i in range(len(shots) - 1):
        car = as_car(shots[i].pose)
        car[:3, 3] = (car[:3, 3] + as_car(shots[i + 1].pose)[:3, 3]) / 2
        local, points = scanned(car)
        clouds.append(points)
        name = f"sweeps/LIDAR_TOP/{i}.pcd.bin"
        (root / name).write_bytes(np.hstack([local, np.zeros((len(local), 2))]).astype("<f4").tobytes())
        pose = {"token": f"es{i}", "translation": car[:3, 3].tolist(), "rotation": quaternion(car[:3, :3])}
        tables["ego_pose"].append(pose)
        tables["sample_data"].append(
            {"token": f"sw{i}", "sample_token": f"s{i}", "ego_pose_token": f"es{i}", "calibrated_sensor_token": "l1",
             "timestamp": 500_000 * i + 250_000, "is_key_frame": False, "height": 0, "width": 0, "filename": name, "prev": "", "next": ""}
        )  # fmt: skip
    for name, rows in tables.items():
        (folder / f"{name}.json").write_text(json.dumps(rows))
    return clouds


def test_nuscenes_accumulated_truth_holds_the_sweeps_between_key_frames(tmp_path: Path, shots: list[Shot]) -> None:
    seen, clouds = write_nuscenes(tmp_path, shots)
    clouds += add_sweeps(tmp_path, shots)
    truth = open_domain(f"nuscenes:{tmp_path}").test[1].ground_truth
    expected = expected_map(np.concatenate(clouds), seen[1], near=1.0)
    expected[[0, -1]] = 0
    expected[:, [0, -1]] = 0
    assert np.abs(truth - without_occluded(expected)).max() < 1e-3


def test_boxes_of_a_sweep_lie_between_those_of_its_key_frames(tmp_path: Path, shots: list[Shot]) -> None:
    write_nuscenes(tmp_path, shots)
    add_sweeps(tmp_path, shots)
    folder = tmp_path / "v1.0-mini"
    box = {"size": [2.0, 4.0, 1.5], "rotation": [1, 0, 0, 0], "instance_token": "i"}
    boxes = [{"token": f"a{i}", "sample_token": f"s{i}", "translation": [10.0 + i, 0, 0], **box} for i in range(4)]
    (folder / "sample_annotation.json").write_text(json.dumps(boxes))
    (folder / "instance.json").write_text(json.dumps([{"token": "i", "category_token": "v"}]))
    (folder / "category.json").write_text(json.dumps([{"token": "v", "name": "human.pedestrian.adult"}]))
    from protodepth.data.datasets import nuscenes

    tables = nuscenes.read_tables(folder)
    ((centre, size, _),) = nuscenes._boxes_at(tables, tables.rows["sample_data"]["sw1"])
    assert np.allclose(centre, [11.5, 0, 0])
    assert size.tolist() == [4.0, 2.0, 1.5]  # along its own axes: the table has width first


def test_nuscenes_drops_points_in_boxes_of_things_that_move(tmp_path: Path, shots: list[Shot]) -> None:
    _, clouds = write_nuscenes(tmp_path, shots)
    folder = tmp_path / "v1.0-mini"
    before = open_domain(f"nuscenes:{tmp_path}").test[1]
    centre = SCENE_FROM_CAR.T @ np.median(clouds[1], 0)
    box = {
        "translation": centre.tolist(),
        "size": [200.0, 200.0, 200.0],
        "rotation": [1, 0, 0, 0],
        "instance_token": "i",
    }
    boxes = [{"token": f"a{i}", "sample_token": f"s{i}", **box} for i in range(4)]
    (folder / "sample_annotation.json").write_text(json.dumps(boxes))
    (folder / "instance.json").write_text(json.dumps([{"token": "i", "category_token": "v"}]))
    (folder / "category.json").write_text(json.dumps([{"token": "v", "name": "vehicle.car"}]))
    from protodepth.data.datasets import nuscenes

    nuscenes.read_tables.cache_clear()
    after = open_domain(f"nuscenes:{tmp_path}").test[1]
    assert np.array_equal(after.sparse_depth, before.sparse_depth)
    assert (after.ground_truth > 0).sum() < 0.1 * (before.ground_truth > 0).sum()


# --- projection -------------------------------------------------------------------------------------------------------


def test_distortion_agrees_with_opencv() -> None:
    cv2 = pytest.importorskip("cv2")
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.uniform(-0.4, 0.4, 50), rng.uniform(-0.3, 0.3, 50), np.ones(50)])
    lens = (0.04, -0.35, 0.001, -0.0005, 0.1)
    expected, _ = cv2.projectPoints(points, np.zeros(3), np.zeros(3), np.eye(3), np.array(lens))
    x, y = projection.distort(points[:, 0], points[:, 1], lens)
    assert np.allclose(np.column_stack([x, y]), expected[:, 0], atol=1e-9)


def test_a_box_holds_its_own_corners_and_not_the_point_beyond() -> None:
    turn = Rotation.from_euler("z", 0.7).as_matrix()
    centre, size = np.array([5.0, 2.0, 1.0]), np.array([4.0, 2.0, 1.5])
    inside, outside = centre + turn @ (size / 2 * 0.99), centre + turn @ (size / 2 * 1.2)
    assert projection.in_box(np.stack([inside, outside]), centre, size, turn, margin=0.0).tolist() == [True, False]


def test_occluded_points_are_dropped() -> None:
    depth = np.zeros((9, 9), np.float32)
    depth[4, 4], depth[4, 6], depth[0, 0] = 5.0, 12.0, 12.0
    assert np.argwhere(projection.drop_occluded(depth) > 0).tolist() == [[0, 0], [4, 4]]
