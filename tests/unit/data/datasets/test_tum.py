"""TUM RGB-D, written from a known scene and read back."""

from pathlib import Path

import numpy as np
import pytest

from helpers.data_scene import Shot, assert_neighbours_are, walk
from protodepth.data.arguments import open_domain
from protodepth.data.check import check
from protodepth.data.files import images
from protodepth.data.preview import preview
from protodepth.errors import DataError


def test_tum_joins_colour_depth_and_poses_by_time(tmp_path: Path) -> None:
    from scipy.spatial.transform import Rotation

    shots = [Shot(s.image, s.depth, s.K, s.pose) for s in walk(14, size=(48, 64), step=0.05)]
    folder = tmp_path / "rgbd_dataset_freiburg3_test"
    rgb, depth, truth = "# color images\n# file\n# timestamp filename\n", "# depth maps\n", "# ground truth\n"
    for i, shot in enumerate(shots):
        t = 1305031102.1 + i / 30
        images.write_image(folder / "rgb" / f"{t:.6f}.png", shot.image)
        images.write_depth(folder / "depth" / f"{t + 0.011:.6f}.png", shot.depth, "tum")
        rgb += f"{t:.6f} rgb/{t:.6f}.png\n"
        if i != 5:  # a frame without depth is left out
            depth += f"{t + 0.011:.6f} depth/{t + 0.011:.6f}.png\n"
        q = Rotation.from_matrix(shot.pose[:3, :3]).as_quat()
        truth += " ".join(f"{v:.7f}" for v in (t - 0.004, *shot.pose[:3, 3], *q)) + "\n"
    (folder / "rgb.txt").write_text(rgb)
    (folder / "depth.txt").write_text(depth)
    (folder / "groundtruth.txt").write_text(truth)
    K = shots[0].K
    text = f"{K[0, 0]},{K[1, 1]},{K[0, 2]},{K[1, 2]}"
    report = check(f"tum:{folder}?intrinsics={text}")
    assert report.ok, report.text()
    assert "depth as tum: " in report.text()
    assert preview(f"tum:{folder}?intrinsics={text}", tmp_path / "sheet.png", rows=1).stat().st_size > 1000
    domain = open_domain(f"tum:{folder}", intrinsics=text, sampler="uniform:200", stride=1)
    assert domain.identity["frames"]["all"] == 13
    frame = domain.train[0]
    assert_neighbours_are(frame, shots[1], [shots[0], shots[2]])
    assert np.abs(frame.ground_truth + frame.sparse_depth - shots[1].depth).max() <= 0.0001 + 1e-5
    asked = open_domain(f"tum:{folder}?intrinsics={text}&sampler=uniform:50&stride=2&skip_static=false")
    assert (asked.identity["stride"], asked.identity["sampler"]) == (2, "uniform:50")
    assert asked.name == folder.name
    assert_neighbours_are(asked.train[0], shots[2], [shots[0], shots[4]])
    with pytest.raises(DataError, match=r"tum:.*'strides'"):
        open_domain(f"tum:{folder}?intrinsics={text}&strides=2")
    with pytest.raises(DataError, match="principal point"):
        open_domain(f"tum:{folder}", sampler="uniform:200")  # freiburg3's own calibration is for 640x480


def test_a_folder_of_that_layout_that_is_not_of_freiburg_is_not_taken_for_tums_unit(tmp_path: Path) -> None:
    """A RealSense in millimetres, exported to rgb.txt and depth.txt: without poses the unit is asked for."""
    folder, shots = tmp_path / "my_realsense", walk(14, size=(48, 64), step=0.05)
    for i, shot in enumerate(shots):
        images.write_image(folder / "rgb" / f"{i}.png", shot.image)
        images.write_depth(folder / "depth" / f"{i}.png", shot.depth / 2, "mm")
    for kind in ("rgb", "depth"):
        (folder / f"{kind}.txt").write_text("".join(f"{i / 30:.6f} {kind}/{i}.png\n" for i in range(len(shots))))
    K = shots[0].K
    text = f"{K[0, 0]},{K[1, 1]},{K[0, 2]},{K[1, 2]}"
    with pytest.raises(DataError, match=r"(?s)as TUM \(value/5000\).*Say which it is"):
        open_domain(f"tum:{folder}?intrinsics={text}")
    assert check(f"tum:{folder}?intrinsics={text}").counts() == {"unit": 1}
    frame = open_domain(f"tum:{folder}?intrinsics={text}&depth_unit=mm&sampler=uniform:100").test[0]
    assert frame.sparse_depth.max() == pytest.approx(shots[-1].depth.max() / 2, rel=0.3)
