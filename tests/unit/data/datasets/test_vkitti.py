"""Virtual KITTI, written from a known scene and read back."""

from pathlib import Path

import numpy as np
import pytest

from helpers.data_scene import Shot, assert_frame_is, assert_neighbours_are, walk
from helpers.dataset_writers import JPEG_LOSS, write_vkitti2
from protodepth.data.arguments import open_domain
from protodepth.data.files import images
from protodepth.data.manifest import prepare
from protodepth.errors import UnknownNameError


def test_vkitti2_gives_the_scene_with_the_sky_empty_and_poses_from_the_camera(tmp_path: Path) -> None:
    shots = walk(4, size=(60, 90), world="street", step=0.8)
    assert (shots[0].depth == 0).any(), "the test needs sky"
    write_vkitti2(tmp_path, shots, "Scene01", "fog")
    write_vkitti2(tmp_path, shots, "Scene02", "fog")
    domain = open_domain(f"vkitti:{tmp_path}", conditions="fog", poses=True, val_share=0.0)
    assert (len(domain.train), len(domain.test)) == (4, 8)
    frame = domain.train[1]
    assert_frame_is(frame, shots[2], quantum=0.01, loss=JPEG_LOSS)
    assert_neighbours_are(frame, shots[2], [shots[1], shots[3]], loss=JPEG_LOSS)
    assert frame.sparse_depth.max() < 255
    assert domain.identity["counts"]["test frames"]["published"] == 466


def test_vkitti_drops_neighbours_without_parallax_and_unknown_conditions(tmp_path: Path) -> None:
    write_vkitti2(tmp_path, walk(4, size=(30, 40), world="street", step=0.05), "Scene01", "clone")
    write_vkitti2(tmp_path, walk(4, size=(30, 40), world="street", step=0.05), "Scene02", "clone")
    assert len(open_domain(f"vkitti:{tmp_path}", val_share=0.0).train) == 0
    with pytest.raises(UnknownNameError, match="15-deg-left"):
        open_domain(f"vkitti:{tmp_path}", conditions="snow")


def test_vkitti_as_the_published_script_has_a_wall_of_sky_and_keeps_every_triplet(tmp_path: Path) -> None:
    shots = walk(4, size=(32, 48), world="street", step=0.02)
    sky = shots[1].depth == 0
    assert sky.any()
    write_vkitti2(tmp_path, shots, "Scene01", "fog")
    write_vkitti2(tmp_path, shots, "Scene02", "fog")
    options = "conditions=fog&sampler=uniform:1500&val_share=0"
    assert len(open_domain(f"vkitti:{tmp_path}?{options}").train) == 0  # 2 cm are no motion
    domain = open_domain(f"vkitti:{tmp_path}?{options}&official=protodepth")
    assert len(domain.train) == 4
    frame = domain.train[0]
    given = frame.sparse_depth > 0
    assert np.allclose(frame.sparse_depth[sky & given], 65535 / 256)
    assert (sky & given).sum() > 10
    assert np.allclose(frame.ground_truth[~sky], shots[1].depth[~sky], atol=0.006)
    prepare(
        "vkitti", tmp_path, tmp_path / "out", options={"conditions": "fog", "official": "protodepth", "val_share": 0.0}
    )


def test_vkitti_version_1_is_read_from_its_own_folders(tmp_path: Path) -> None:
    shots = [Shot(s.image, s.depth, s.K, s.pose) for s in walk(3, size=(40, 60), world="street", step=0.8)]
    lines = "frame r1,1 ...\n"
    for i, shot in enumerate(shots):
        images.write_image(tmp_path / "vkitti_1.3.1_rgb/0001/clone" / f"{i:05d}.png", shot.image)
        depth = np.where(shot.depth > 0, shot.depth, 655.35)
        images.write_depth(tmp_path / "vkitti_1.3.1_depthgt/0001/clone" / f"{i:05d}.png", depth, "cm")
        lines += f"{i} " + " ".join(str(v) for v in np.linalg.inv(shot.pose).ravel()) + "\n"
    (tmp_path / "vkitti_1.3.1_extrinsicsgt").mkdir()
    (tmp_path / "vkitti_1.3.1_extrinsicsgt/0001_clone.txt").write_text(lines)
    frame = open_domain(f"vkitti:{tmp_path}", poses=True, val_share=0.0).train[0]
    assert np.abs(frame.ground_truth - shots[1].depth).max() <= 0.005 + 1e-4
    assert frame.intrinsics[0, 0] == 725
    assert_neighbours_are(frame, shots[1], [shots[0], shots[2]])


def test_a_real_scan_pattern_is_transferred_to_vkitti(tmp_path: Path) -> None:
    shots = walk(3, size=(60, 90), world="street", step=0.8)
    write_vkitti2(tmp_path, shots, "Scene02", "clone")
    scan = np.zeros((30, 45))
    scan[20, 10] = scan[25, 30] = 7.0
    images.write_depth(tmp_path / "patterns" / "0000000000.png", scan)
    frame = open_domain(f"vkitti:{tmp_path}", patterns=tmp_path / "patterns").test[0]
    assert np.argwhere(frame.sparse_depth > 0).tolist() == [[40, 20], [50, 60]]
    assert frame.sparse_depth[40, 20] == pytest.approx(shots[0].depth[40, 20], abs=0.006)
