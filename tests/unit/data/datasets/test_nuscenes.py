"""nuScenes: rays cast into a known scene, stored as the dataset stores them, and read back."""

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.data_scene import Shot, walk
from helpers.lidar_writers import (
    SCENE_FROM_CAR,
    SIZE,
    as_car,
    expected_map,
    quaternion,
    scanned,
    without_occluded,
    write_nuscenes,
)
from protodepth.data.arguments import open_domain


@pytest.fixture(scope="module")
def shots() -> list[Shot]:
    return walk(4, size=SIZE, world="street", step=0.8)


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
             "timestamp": 500_000 * i + 250_000, "is_key_frame": False, "height": 0, "width": 0, "filename": name,
             "prev": "", "next": ""}
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
