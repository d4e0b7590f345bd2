"""Polycam's raw data, written from a known scene and read back."""

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.data_scene import assert_neighbours_are, walk
from protodepth.data.arguments import open_domain
from protodepth.data.check import check
from protodepth.data.files import images
from protodepth.data.preview import preview
from protodepth.errors import DataError

SHOTS = walk(14, size=(48, 64), step=0.05)
K = SHOTS[0].K
ARKIT = np.diag([1.0, -1.0, -1.0, 1.0])
LOW = np.zeros((12, 16), bool)
LOW[:, :5] = True


def write(folder: Path, *, corrected: bool = True, drift: float = 0.0) -> Path:
    """Depth of a quarter of the size, unsure on the left; ``drift`` makes the phone's own poses wrong."""
    keyframes = folder / "keyframes"
    for i, shot in enumerate(SHOTS):
        name = str(10_000_000 + 33_333 * i)
        images.write_depth(keyframes / "depth" / f"{name}.png", shot.depth[2::4, 2::4], "mm")
        confidence = np.where(LOW, 0, np.where(np.arange(16) < 8, 127, 255)).astype(np.uint8)
        images.write_image(keyframes / "confidence" / f"{name}.png", np.repeat(confidence[..., None], 3, -1))
        for prefix, off in (("", drift), *([("corrected_", 0.0)] if corrected else [])):
            images.write_image(keyframes / f"{prefix}images" / f"{name}.png", shot.image)
            pose = shot.pose @ ARKIT
            pose[0, 3] += off * i
            table = {"fx": K[0, 0] * 2, "fy": K[1, 1] * 2, "cx": K[0, 2] * 2, "cy": K[1, 2] * 2}
            table |= {"width": 128, "height": 96, "blur_score": 90.0}
            table |= {f"t_{r}{c}": float(pose[r, c]) for r in range(3) for c in range(4)}
            path = keyframes / f"{prefix}cameras" / f"{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(table))
    return folder


def number(name: str) -> int:
    return (int(name) - 10_000_000) // 33_333


def test_the_folder_gives_back_the_scene_without_the_unsure_depth(tmp_path: Path) -> None:
    write(tmp_path, drift=0.1)
    domain = open_domain(f"polycam:{tmp_path}?stride=2")
    first = domain.train[1]
    shot = SHOTS[number(first.name)]
    assert np.array_equal(first.image, shot.image)
    assert np.allclose(first.intrinsics, K, atol=1e-4)
    known = first.sparse_depth > 0
    assert known.sum() == 12 * 11
    assert np.abs(first.sparse_depth - shot.depth)[known].max() <= 0.0005 + 1e-6
    around = [SHOTS[number(first.name) + step] for step in (-2, 2)]
    assert_neighbours_are(first, shot, around)  # by the corrected poses: the phone's own drift
    assert domain.identity["options"]["corrected"] is True
    report = check(f"polycam:{tmp_path}")
    assert report.ok, report.text()
    assert preview(f"polycam:{tmp_path}", tmp_path / "sheet.png", rows=1).stat().st_size > 1000


@pytest.mark.parametrize(("confidence", "count"), [(0, 192), (2, 96)])
def test_how_sure_the_depth_must_be_is_an_option(tmp_path: Path, confidence: int, count: int) -> None:
    write(tmp_path, corrected=False)
    domain = open_domain(f"polycam:{tmp_path / 'keyframes'}?confidence={confidence}")
    assert (domain.test[0].sparse_depth > 0).sum() == count
    assert "lens distortion" in domain.identity["notes"][0]


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="developer mode"):
        open_domain(f"polycam:{tmp_path}")
    write(tmp_path, corrected=False)
    with pytest.raises(DataError, match="leave out corrected=true"):
        open_domain(f"polycam:{tmp_path}?corrected=true")
    first = sorted((tmp_path / "keyframes" / "cameras").iterdir())[0]
    table = json.loads(first.read_text())
    first.write_text(json.dumps({k: v for k, v in table.items() if k != "t_12"}))
    with pytest.raises(DataError, match="has no t_12"):
        open_domain(f"polycam:{tmp_path}")
    for path in (tmp_path / "keyframes" / "depth").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="no frame with images, cameras and depth"):
        open_domain(f"polycam:{tmp_path}")
