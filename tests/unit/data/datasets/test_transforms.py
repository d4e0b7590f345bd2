"""transforms.json of nerfstudio, Polycam, NeRFCapture: written from a known scene and read back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.data_scene import Shot, assert_neighbours_are, walk
from protodepth.data.arguments import open_domain
from protodepth.data.check import check
from protodepth.data.files import images
from protodepth.data.preview import preview
from protodepth.errors import DataError

SHOTS = walk(14, size=(48, 64), step=0.05)
K = SHOTS[0].K
OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])
CAMERA = {"fl_x": K[0, 0], "fl_y": K[1, 1], "cx": K[0, 2] + 0.5, "cy": K[1, 2] + 0.5, "w": 64, "h": 48}


def write(
    folder: Path, table: dict[str, Any], frames: list[dict[str, Any]], steps: float = 1000, every: int = 1
) -> Path:
    for i, shot in enumerate(SHOTS):
        images.write_image(folder / "images" / f"frame_{i}.png", shot.image)
        depth = shot.depth[every // 2 :: every, every // 2 :: every]
        images.write_depth(folder / "depth" / f"frame_{i}.png", depth, str(steps))
    (folder / "transforms.json").write_text(json.dumps({**table, "frames": frames[::-1]}))
    return folder


def frame(i: int, shot: Shot, **more: Any) -> dict[str, Any]:
    pose = (shot.pose @ OPENGL).tolist()
    return {"file_path": f"images/frame_{i}.png", "transform_matrix": pose, **more}


def with_depth(key: str = "depth_file_path", **more: Any) -> list[dict[str, Any]]:
    return [frame(i, s, **{key: f"depth/frame_{i}.png"}, **more) for i, s in enumerate(SHOTS)]


def test_a_folder_of_nerfstudio_gives_back_the_scene(tmp_path: Path) -> None:
    write(tmp_path, CAMERA, with_depth())
    domain = open_domain(f"transforms:{tmp_path}?stride=2&sampler=uniform:300")
    first = domain.train[1]
    i = int(first.name.removeprefix("frame_"))
    assert np.array_equal(first.image, SHOTS[i].image)
    assert np.allclose(first.intrinsics, K, atol=1e-4)
    assert np.abs(first.sparse_depth + first.ground_truth - SHOTS[i].depth).max() <= 0.0005 + 1e-6
    assert_neighbours_are(first, SHOTS[i], [SHOTS[i - 2], SHOTS[i + 2]])
    report = check(f"transforms:{tmp_path}")
    assert report.ok, report.text()
    assert preview(f"transforms:{tmp_path}", tmp_path / "sheet.png", rows=1).stat().st_size > 1000


def test_small_depth_maps_of_a_phone_become_points_and_each_frame_has_its_camera(tmp_path: Path) -> None:
    """As Polycam: intrinsics in every frame, depth of a quarter of the size."""
    write(tmp_path, {}, with_depth(**CAMERA), every=4)
    one = open_domain(f"transforms:{tmp_path / 'transforms.json'}").test[0]
    i = int(one.name.removeprefix("frame_"))
    assert (one.sparse_depth > 0).sum() == 12 * 16
    known = one.sparse_depth > 0
    assert np.abs(one.sparse_depth - SHOTS[i].depth)[known].max() <= 0.0005 + 1e-6
    assert np.allclose(one.intrinsics, K, atol=1e-4)


def test_the_depth_of_nerfcapture_has_its_own_steps_and_names(tmp_path: Path) -> None:
    frames = with_depth("depth_path")
    for one in frames:
        one["file_path"] = one["file_path"].removesuffix(".png")
    write(tmp_path, {**CAMERA, "integer_depth_scale": 10 / 65535}, frames, steps=6553.5)
    one = open_domain(f"transforms:{tmp_path}?sampler=uniform:300").test[0]
    i = int(one.name.removeprefix("frame_"))
    assert np.abs(one.sparse_depth + one.ground_truth - SHOTS[i].depth).max() < 1e-4


def test_a_field_of_view_is_a_focal_length(tmp_path: Path) -> None:
    angle = 2 * np.arctan(32 / K[0, 0])
    write(tmp_path, {"camera_angle_x": angle}, with_depth())
    one = open_domain(f"transforms:{tmp_path}").test[0]
    assert np.allclose(one.intrinsics, [[K[0, 0], 0, 31.5], [0, K[0, 0], 23.5], [0, 0, 1]], atol=1e-3)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    write(tmp_path, CAMERA, [frame(i, s) for i, s in enumerate(SHOTS)])
    with pytest.raises(DataError, match=r"no frame has both.*no depth_file_path.*colmap:FOLDER"):
        open_domain(f"transforms:{tmp_path}")
    write(tmp_path, {}, with_depth())
    with pytest.raises(DataError, match="neither fl_x nor camera_angle_x"):
        open_domain(f"transforms:{tmp_path}")
    (tmp_path / "transforms.json").write_text('{"frames": 3}')
    with pytest.raises(DataError, match="no list of frames"):
        open_domain(f"transforms:{tmp_path}")
    write(tmp_path, {**CAMERA, "k1": 0.1}, [*with_depth()[:-2], frame(99, SHOTS[0])])
    notes = " ".join(open_domain(f"transforms:{tmp_path}").identity["notes"])
    assert "1 of 13 frames are left out (images/frame_99.png is not there)" in notes
    assert "lens distortion" in notes
