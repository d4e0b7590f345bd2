"""DDAD, written as the DGP format has it from a known scene, and read back."""

import json
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
LIDAR = np.array([[0.0, -1, 0, 0.1], [0, 0, -1, -0.4], [1, 0, 0, 0.3], [0, 0, 0, 1]])  # LiDAR in the camera


def pose_of(matrix: np.ndarray) -> dict[str, dict[str, float]]:
    x, y, z, w = Rotation.from_matrix(matrix[:3, :3]).as_quat()
    shift = dict(zip("xyz", matrix[:3, 3], strict=True))
    return {"rotation": {"qw": w, "qx": x, "qy": y, "qz": z}, "translation": shift}


def sparse_of(shot: Shot) -> np.ndarray:
    sparse = np.zeros(SIZE)
    sparse[::4, ::4] = shot.depth[::4, ::4]
    return sparse


def write_scene(folder: Path, shots: list[Shot]) -> None:
    data, samples = [], []
    for i, shot in enumerate(shots):
        drift = np.eye(4)
        drift[:3, 3] = [0.2, 0.0, 0.1]  # the sweep was taken elsewhere
        at_sweep = drift @ shot.pose @ LIDAR
        world = projection.transform(projection.lift(sparse_of(shot), shot.K), shot.pose)
        points = projection.transform(world, np.linalg.inv(at_sweep))
        time = 15_616_458_249_936_530 + i * 100_000
        names = f"rgb/CAMERA_01/{time}.png", f"point_cloud/LIDAR/{time}.npz"
        images.write_image(folder / names[0], shot.image)
        (folder / names[1]).parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(folder / names[1], data=np.hstack([points, np.ones((len(points), 1))]).astype(np.float32))
        image = {"filename": names[0], "pose": pose_of(shot.pose)}
        data.append({"key": f"c{i}", "id": {"name": "CAMERA_01"}, "datum": {"image": image}})
        cloud = {"filename": names[1], "pose": pose_of(at_sweep)}
        data.append({"key": f"l{i}", "id": {"name": "LIDAR"}, "datum": {"point_cloud": cloud}})
        samples.append({"calibration_key": "abc", "datum_keys": [f"l{i}", f"c{i}"]})
    K = shots[0].K
    four = {"fx": K[0, 0], "fy": K[1, 1], "cx": K[0, 2], "cy": K[1, 2], "skew": 0.0}
    (folder / "calibration").mkdir()
    table = {"names": ["LIDAR", "CAMERA_01"], "intrinsics": [{}, four], "extrinsics": [{}, {}]}
    (folder / "calibration" / "abc.json").write_text(json.dumps(table))
    (folder / "scene_1.json").write_text(json.dumps({"name": folder.name, "samples": samples[::-1], "data": data}))


def test_a_sweep_falls_where_the_camera_sees_it(tmp_path: Path) -> None:
    shots = walk(5, size=SIZE, world="street", step=0.8)
    for name in ("000000", "000150"):
        write_scene(tmp_path / name, shots)
    splits = {"0": {"filenames": ["000000/scene_1.json"]}, "1": {"filenames": ["000150/scene_1.json"]}}
    (tmp_path / "ddad.json").write_text(json.dumps({"scene_splits": splits}))
    argument = f"ddad:{tmp_path}?val_share=0"
    domain = open_domain(argument)
    assert (len(domain.train), len(domain.test)) == (3, 5)
    frame = domain.train[1]
    expected = sparse_of(shots[2])
    expected[expected <= 1] = 0
    assert np.array_equal(frame.sparse_depth > 0, expected > 0)
    assert np.abs(frame.sparse_depth - expected).max() < 1e-3
    assert np.allclose(frame.intrinsics, shots[2].K, atol=1e-4)
    assert_neighbours_are(frame, shots[2], [shots[1], shots[3]])
    report = check(argument)
    assert report.ok, report.text()
    assert preview(argument, tmp_path / "sheet.png", rows=1).stat().st_size > 1000


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no frames of ddad"):
        open_domain(f"ddad:{tmp_path}")
    with pytest.raises(UnknownNameError, match="CAMERA_01"):
        open_domain(f"ddad:{tmp_path}?camera=front")
