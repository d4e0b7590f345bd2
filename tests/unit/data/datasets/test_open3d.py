"""Folders of Open3D, and of frames as 7-Scenes has them: written from a known scene and read back."""

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


def write_open3d(folder: Path) -> Path:
    log = ""
    for i, shot in enumerate(SHOTS):
        images.write_image(folder / "color" / f"{i:05d}.jpg", shot.image)
        images.write_image(folder / "color" / f"{i:05d}.jpg", shot.image)
        images.write_depth(folder / "depth" / f"{2 * i:06d}.png", shot.depth, "mm")
        log += f"{i} {i} {i + 1}\n" + "\n".join(" ".join(f"{v:.9f}" for v in row) for row in shot.pose) + "\n"
    (folder / "trajectory.log").write_text(log)
    matrix = {"width": 64, "height": 48, "intrinsic_matrix": K.T.ravel().tolist()}
    (folder / "intrinsic.json").write_text(json.dumps(matrix))
    return folder


def test_a_folder_of_open3d_gives_back_the_scene(tmp_path: Path) -> None:
    """The matrix stands column by column in the JSON; depth maps have other names than pictures."""
    folder = write_open3d(tmp_path / "lounge")
    frame = open_domain(f"open3d:{folder}?stride=2&sampler=uniform:300").train[1]
    i = int(frame.name)
    assert np.allclose(frame.intrinsics, K)
    assert np.abs(frame.sparse_depth + frame.ground_truth - SHOTS[i].depth).max() <= 0.0005 + 1e-6
    assert_neighbours_are(frame, SHOTS[i], [SHOTS[i - 2], SHOTS[i + 2]], loss=6.0)
    report = check(f"open3d:{folder}")
    assert report.ok, report.text()
    assert "warp error by poses" in report.text()
    assert preview(f"open3d:{folder}", tmp_path / "sheet.png", rows=1).stat().st_size > 1000
    (folder / "trajectory.log").write_text("0 0 1\n1 0 0 0\n")
    with pytest.raises(DataError, match=r"has 7 numbers, expected 19 for each frame"):
        open_domain(f"open3d:{folder}")
    (folder / "intrinsic.json").unlink()
    with pytest.raises(DataError, match="give intrinsics="):
        open_domain(f"open3d:{folder}")


def test_frames_of_7_scenes_give_back_the_scene(tmp_path: Path) -> None:
    folder = tmp_path / "chess" / "seq-01"
    for i, shot in enumerate(SHOTS):
        images.write_image(folder / f"frame-{i:06d}.color.png", shot.image)
        depth = shot.depth.copy()
        depth[:4, :6] = 65.535  # no measurement
        images.write_depth(folder / f"frame-{i:06d}.depth.png", depth, "mm")
        np.savetxt(folder / f"frame-{i:06d}.pose.txt", shot.pose)
    text = f"{K[0, 0]},{K[1, 1]},{K[0, 2]},{K[1, 2]}"
    frame = open_domain(f"seven_scenes:{folder}?stride=2&sampler=uniform:300&intrinsics={text}").train[1]
    i = int(frame.name.removeprefix("frame-"))
    whole = frame.sparse_depth + frame.ground_truth
    assert not whole[:4, :6].any()
    assert np.abs(whole - SHOTS[i].depth)[4:].max() <= 0.0005 + 1e-6
    assert_neighbours_are(frame, SHOTS[i], [SHOTS[i - 2], SHOTS[i + 2]])
    report = check(f"seven_scenes:{folder}?intrinsics={text}")
    assert report.ok, report.text()
    assert "65535" in report.text()
    assert preview(f"seven_scenes:{folder}?intrinsics={text}", tmp_path / "sheet.png", rows=1).exists()
    with pytest.raises(DataError, match=r"no frame-000000\.color\.png"):
        open_domain(f"seven_scenes:{folder.parent}")
