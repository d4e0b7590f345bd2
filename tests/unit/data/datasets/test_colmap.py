"""COLMAP models, written as its documentation has them, in text and in binary, and read back."""

import struct
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from helpers.data_scene import assert_neighbours_are, walk
from protodepth.data import projection
from protodepth.data.arguments import open_domain
from protodepth.data.check import check
from protodepth.data.datasets.colmap import read_model
from protodepth.data.files import images
from protodepth.data.preview import preview
from protodepth.errors import DataError

SIZE = (48, 64)
SHOTS = walk(14, size=SIZE, step=0.05)
K = SHOTS[0].K
UNIT = 0.25  # metres in a unit of the model
PARAMETERS = (K[0, 0], K[1, 1], K[0, 2] + 0.5, K[1, 2] + 0.5)


def seen() -> tuple[dict[int, np.ndarray], list[list[tuple[float, float, int]]]]:
    """(world points in units of the model, for each picture its features): every sixth pixel of each picture."""
    points: dict[int, np.ndarray] = {}
    features = []
    for shot in SHOTS:
        rows = [(3.25, 7.5, -1)]  # a feature without a point
        sparse = np.zeros(SIZE)
        sparse[3::6, 3::6] = shot.depth[3::6, 3::6]
        world = projection.transform(projection.lift(sparse, K), shot.pose) / UNIT
        for (v, u), place in zip(np.argwhere(sparse > 0), world, strict=True):
            number = 7 + 2 * len(points)
            points[number] = place
            rows.append((u + 0.5, v + 0.5, number))
        features.append(rows)
    return points, features


def seven(i: int) -> list[float]:
    back = np.linalg.inv(SHOTS[i].pose)
    x, y, z, w = Rotation.from_matrix(back[:3, :3]).as_quat()
    return [w, x, y, z, *(back[:3, 3] / UNIT)]


def write_text(folder: Path) -> None:
    points, features = seen()
    numbers = " ".join(f"{v:.12g}" for v in PARAMETERS)
    (folder / "cameras.txt").write_text(
        f"# Camera list\n# Number of cameras: 1\n1 PINHOLE {SIZE[1]} {SIZE[0]} {numbers}\n"
    )
    lines = ["# Image list with two lines of data per image:"]
    for i, rows in enumerate(features):
        lines.append(f"{i + 1} " + " ".join(f"{v:.12g}" for v in seven(i)) + f" 1 frame {i}.png")
        lines.append(" ".join(f"{x} {y} {p}" for x, y, p in rows))
    (folder / "images.txt").write_text("\n".join(lines) + "\n")
    rows = [f"{n} " + " ".join(f"{v:.12g}" for v in p) + " 10 20 30 0.5 1 0 2 3" for n, p in points.items()]
    (folder / "points3D.txt").write_text("# 3D point list\n" + "\n".join(rows) + "\n")


def write_binary(folder: Path) -> None:
    points, features = seen()
    head = struct.pack("<QiiQQ", 1, 1, 1, SIZE[1], SIZE[0])
    (folder / "cameras.bin").write_bytes(head + struct.pack("<4d", *PARAMETERS))
    data = struct.pack("<Q", len(features))
    for i, rows in enumerate(features):
        data += struct.pack("<i7di", i + 1, *seven(i), 1) + f"frame {i}.png".encode() + b"\0"
        data += struct.pack("<Q", len(rows)) + b"".join(struct.pack("<ddq", *row) for row in rows)
    (folder / "images.bin").write_bytes(data)
    data = struct.pack("<Q", len(points))
    for number, p in points.items():
        data += struct.pack("<Q3d3Bd", number, *p, 10, 20, 30, 0.5) + struct.pack("<Q4i", 2, 1, 0, 2, 3)
    (folder / "points3D.bin").write_bytes(data)


def reconstruction(root: Path, kind: str) -> Path:
    model = root / "sparse" / "0"
    model.mkdir(parents=True)
    write_text(model) if kind == "text" else write_binary(model)
    for i, shot in enumerate(SHOTS):
        images.write_image(root / "images" / f"frame {i}.png", shot.image)
    return root


@pytest.mark.parametrize("kind", ["text", "binary"])
def test_the_points_that_a_picture_sees_are_its_sparse_depth(tmp_path: Path, kind: str) -> None:
    root = reconstruction(tmp_path / kind, kind)
    domain = open_domain(f"colmap:{root}?scale={UNIT}&stride=2")
    frame = domain.train[1]
    i = int(frame.name.removeprefix("frame ").removesuffix(".png"))
    expected = np.zeros(SIZE)
    expected[3::6, 3::6] = SHOTS[i].depth[3::6, 3::6]
    assert np.abs(frame.sparse_depth - expected).max() < 1e-4
    assert np.array_equal(frame.image, SHOTS[i].image)
    assert np.allclose(frame.intrinsics, K, atol=1e-4)
    assert_neighbours_are(frame, SHOTS[i], [SHOTS[i - 2], SHOTS[i + 2]])
    report = check(f"colmap:{root}?scale={UNIT}")
    assert report.ok, report.text()
    assert preview(f"colmap:{root}?scale={UNIT}", tmp_path / "sheet.png", rows=1).stat().st_size > 1000


def test_a_model_without_a_scale_says_that_it_has_no_metres(tmp_path: Path) -> None:
    root = reconstruction(tmp_path, "binary")
    domain = open_domain(f"colmap:{root}")
    assert "has no metres" in " ".join(domain.identity["notes"])
    near = open_domain(f"colmap:{root}?scale={UNIT}").test[0].sparse_depth
    assert domain.test[0].sparse_depth.max() == pytest.approx(near.max() / UNIT, rel=1e-5)
    assert not open_domain(f"colmap:{root}?max_error=0.1").test[0].sparse_depth.any()


def test_a_cut_or_strange_model_is_an_error_with_its_place(tmp_path: Path) -> None:
    root = reconstruction(tmp_path, "binary")
    path = root / "sparse" / "0" / "images.bin"
    path.write_bytes(path.read_bytes()[:-30])
    read_model.cache_clear()
    with pytest.raises(DataError, match=r"sparse/0 cannot be read"):
        open_domain(f"colmap:{root}")
    with pytest.raises(DataError, match="no COLMAP model"):
        open_domain(f"colmap:{root / 'images'}")
