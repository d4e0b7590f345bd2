"""Waymo: rays cast into a known scene, stored as the dataset stores them, and read back."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from helpers.data_scene import Shot, walk
from helpers.lidar_writers import SCENE_FROM_CAR, SIZE, as_car, expected_map, without_occluded, write_waymo
from protodepth.data.arguments import open_domain
from protodepth.data.manifest import prepare
from protodepth.errors import DataError


@pytest.fixture(scope="module")
def shots() -> list[Shot]:
    return walk(4, size=SIZE, world="street", step=0.8)


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
        {"key.segment_context_name": "seg", "key.frame_timestamp_micros": 1_500_000 + 100_000 * i,
         "key.laser_object_id": "a", **values}
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


def test_files_of_waymos_first_version_are_named(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "segment-1_with_camera_labels.tfrecord").write_bytes(b"")
    with pytest.raises(DataError, match=r"segment-1_with_camera_labels\.tfrecord is of Waymo version 1.*version 2"):
        open_domain(f"waymo:{tmp_path}")
    with pytest.raises(DataError, match="version 1"):
        prepare("waymo", tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
