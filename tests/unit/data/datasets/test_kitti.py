"""KITTI, written from a known scene and read back."""

from pathlib import Path

import numpy as np
import pytest

from helpers.data_scene import assert_frame_is, enlarge, thin, walk
from helpers.dataset_writers import DATE, DRIVE, cut, names, write_kitti
from protodepth.data.arguments import open_domain
from protodepth.data.files import images


@pytest.mark.parametrize("layout", ["sorted", "official"])
def test_kitti_is_read_in_both_layouts_and_cut_to_the_bottom(tmp_path: Path, layout: str) -> None:
    size = (360, 1240)
    shots = [enlarge(s, 10) for s in walk(4, size=(36, 124), world="street", step=0.8)]
    write_kitti(tmp_path, shots, layout=layout, size=size)
    domain = open_domain(f"kitti:{tmp_path}", val_share=0.0)
    assert names(domain, "train") == [f"{DRIVE}/{c}/{i:010d}" for c in ("image_02", "image_03") for i in (1, 2)]
    box = (8, 12, 352, 1216)
    frame = domain.train[1]
    assert_frame_is(frame, cut(shots[2], *box), quantum=1 / 256)
    expected = [cut(s, *box).image for s in (shots[1], shots[3])]
    assert all(np.array_equal(a, b) for a, b in zip(frame.neighbours, expected, strict=True))
    assert domain.rules.crop == (240, 1216)


def test_kitti_leaves_out_static_frames_of_both_cameras(tmp_path: Path) -> None:
    write_kitti(tmp_path, walk(5, size=(24, 80), world="street"), layout="official", size=(24, 80))
    (tmp_path / "static.txt").write_text(f"{DATE} {DRIVE} 0000000002\n")
    domain = open_domain(f"kitti:{tmp_path}", val_share=0.0, static_list=tmp_path / "static.txt")
    assert [n[-1] for n in names(domain, "train")] == ["1", "3", "1", "3"]
    assert domain.identity["counts"]["static frames listed"] == {"found": 1, "published": 8044}


@pytest.mark.parametrize(
    ("folder", "sparse", "truth"),
    [
        ("depth_selection/val_selection_cropped", "velodyne_raw", "groundtruth_depth"),
        ("validation", "sparse_depth", "ground_truth"),
    ],
)
def test_kitti_selection_is_joined_by_drive_frame_and_camera(
    tmp_path: Path, folder: str, sparse: str, truth: str
) -> None:
    shots = walk(2, size=(32, 96), world="street")
    top = tmp_path / folder
    for i, shot in enumerate(shots):
        for place, kind in (("image", "image"), (sparse, "velodyne_raw"), (truth, "groundtruth_depth")):
            path = top / place / f"{DRIVE}_{kind}_{i:010d}_image_03.png"
            depth = thin(shot.depth) if kind == "velodyne_raw" else shot.depth
            images.write_image(path, shot.image) if kind == "image" else images.write_depth(path, depth)
        (top / "intrinsics").mkdir(exist_ok=True)
        np.savetxt(top / "intrinsics" / f"{DRIVE}_image_{i:010d}_image_03.txt", shot.K.reshape(1, 9))
    domain = open_domain(f"kitti:{tmp_path}")
    assert names(domain, "test")[1] == f"{DRIVE}/0000000001/image_03"
    assert_frame_is(domain.test[1], shots[1], quantum=1 / 256)
    assert np.abs(domain.test[1].sparse_depth - thin(shots[1].depth)).max() <= 0.5 / 256 + 1e-5
