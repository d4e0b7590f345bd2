"""Argoverse 2, written as its documentation has it from a known scene, and read back."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from helpers.data_scene import Shot, assert_neighbours_are, walk
from protodepth.data import projection
from protodepth.data.arguments import open_domain
from protodepth.data.check import check
from protodepth.data.files import images
from protodepth.data.preview import preview
from protodepth.errors import DataError, UnknownNameError

SIZE = (32, 48)
START, TENTH = 315_966_253_572_412_000, 100_000_000
MOUNTED = np.array([[0.0, 0, 1, 1.6], [-1, 0, 0, 0.1], [0, -1, 0, 1.4], [0, 0, 0, 1]])  # camera in the car
LATE = 8_000_000  # the picture is taken so much after the sweep, and the car drives on


def quaternion(pose: np.ndarray) -> dict[str, float]:
    x, y, z, w = Rotation.from_matrix(pose[:3, :3]).as_quat()
    tx, ty, tz = pose[:3, 3]
    return {"qw": w, "qx": x, "qy": y, "qz": z, "tx_m": tx, "ty_m": ty, "tz_m": tz}


def feather(path: Path, rows: list[dict[str, object]]) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    import pyarrow.feather

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.feather.write_feather(pa.table({k: [r[k] for r in rows] for k in rows[0]}), path)


def sparse_of(shot: Shot) -> np.ndarray:
    sparse = np.zeros(SIZE)
    sparse[::4, ::4] = shot.depth[::4, ::4]
    return sparse


def write_log(folder: Path, shots: list[Shot]) -> None:
    K = shots[0].K
    camera = {
        "sensor_name": "ring_front_center",
        "fx_px": K[0, 0],
        "fy_px": K[1, 1],
        "cx_px": K[0, 2],
        "cy_px": K[1, 2],
    }
    camera |= {"k1": 0.0, "k2": 0.0, "k3": 0.0, "height_px": SIZE[0], "width_px": SIZE[1]}
    feather(folder / "calibration" / "intrinsics.feather", [camera])
    mounted = [{"sensor_name": "ring_front_center", **quaternion(MOUNTED)}]
    feather(folder / "calibration" / "egovehicle_SE3_sensor.feather", mounted)
    cars = []
    for i, shot in enumerate(shots):
        sweep, picture = START + i * TENTH, START + i * TENTH + LATE
        at_picture = shot.pose @ np.linalg.inv(MOUNTED)
        at_sweep = at_picture.copy()
        at_sweep[:3, 3] -= [0.3, 0.0, 0.1]
        cars += [{"timestamp_ns": sweep, **quaternion(at_sweep)}, {"timestamp_ns": picture, **quaternion(at_picture)}]
        world = projection.transform(projection.lift(sparse_of(shot), K), shot.pose)
        points = projection.transform(world, np.linalg.inv(at_sweep))
        rows = [{"x": x, "y": y, "z": z, "intensity": 1, "laser_number": 3, "offset_ns": 0} for x, y, z in points]
        feather(folder / "sensors" / "lidar" / f"{sweep}.feather", rows)
        path = folder / "sensors" / "cameras" / "ring_front_center" / f"{picture}.jpg"
        images.write_image(path, shot.image)
    feather(folder / "city_SE3_egovehicle.feather", cars)


def test_a_sweep_falls_where_the_camera_sees_it_though_the_car_drives_on(tmp_path: Path) -> None:
    shots = walk(5, size=SIZE, world="street", step=0.8)
    for part in ("train", "val"):
        write_log(tmp_path / part / f"log-{part}", shots)
    argument = f"argoverse2:{tmp_path}?val_share=0"
    domain = open_domain(argument)
    assert (len(domain.train), len(domain.test)) == (3, 5)
    frame = domain.train[1]
    expected = sparse_of(shots[2])
    expected[expected <= 1] = 0
    assert np.array_equal(frame.sparse_depth > 0, expected > 0)
    assert np.abs(frame.sparse_depth - expected).max() < 1e-3
    assert np.allclose(frame.intrinsics, shots[2].K, atol=1e-4)
    assert_neighbours_are(frame, shots[2], [shots[1], shots[3]], loss=8.0)
    report = check(argument)
    assert report.ok, report.text()
    assert preview(argument, tmp_path / "sheet.png", rows=1).stat().st_size > 1000


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no frames of argoverse2"):
        open_domain(f"argoverse2:{tmp_path}")
    with pytest.raises(UnknownNameError, match="ring_front_center"):
        open_domain(f"argoverse2:{tmp_path}?camera=front")
