"""Every dataset states the counts that are published and says what it found of them;
a part of a download is no error.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from helpers.data_scene import enlarge, walk
from helpers.dataset_writers import DATE, DRIVE, write_kitti, write_sens, write_vkitti2, write_void
from helpers.lidar_writers import SIZE, write_nuscenes, write_waymo
from protodepth.data.arguments import open_domain
from protodepth.data.check import check
from protodepth.data.files import images
from protodepth.data.manifest import prepare


def nyu(root: Path) -> str:
    (shot,) = walk(1, size=(48, 64))
    for i in range(2):
        images.write_image(root / "testing" / "images" / f"{i}.png", enlarge(shot, 10).image)
        images.write_depth(root / "testing" / "depths" / f"{i}.png", enlarge(shot, 10).depth)
    return f"nyu_v2:{root}?sampler=uniform:200"


def scannet(root: Path) -> str:
    write_sens(root, [enlarge(s, 10) for s in walk(3, size=(48, 64))])
    return f"scannet:{root}?every=1&sampler=uniform:200"


def void(root: Path) -> str:
    write_void(root, walk(3, size=(24, 32)))
    return f"void:{root}?density=500"


def kitti(root: Path) -> str:
    write_kitti(root, walk(5, size=(24, 80), world="street"), layout="official", size=(24, 80))
    (root / "static.txt").write_text(f"{DATE} {DRIVE} 0000000002\n")
    return f"kitti:{root}?static_list={root / 'static.txt'}"


def vkitti(root: Path) -> str:
    for scene in ("Scene01", "Scene02"):
        write_vkitti2(root, walk(5, size=(32, 48), world="street", step=0.8), scene, "rain")
    return f"vkitti:{root}?conditions=rain&sampler=uniform:90"


def waymo(root: Path) -> str:
    write_waymo(root, walk(3, size=SIZE, world="street", step=0.8), "training")
    return f"waymo:{root}"


def nuscenes(root: Path) -> str:
    write_nuscenes(root, walk(3, size=SIZE, world="street", step=0.8))
    (root / "v1.0-mini").rename(root / "v1.0-trainval")
    return f"nuscenes:{root}?truth=keyframe"


PUBLISHED = {
    nyu: {"test frames": (2, 654)},
    scannet: {"scans": (1, 1513), "test scans": (0, 100)},
    void: {"test frames": (3, 800), "train sequences": (1, 48), "test sequences": (1, 8)},
    kitti: {"test frames": (0, 1000), "annotated train frames": (6, 85_898), "annotated val frames": (0, 6852),
            "train drives": (1, 138), "static frames listed": (1, 8044)},
    vkitti: {"test frames": (10, 466), "frames of all scenes": (20, 4252)},
    waymo: {"training segments": (1, 798), "validation segments": (0, 202)},
    nuscenes: {"scenes": (1, 850)},
}  # fmt: skip


@pytest.mark.parametrize("write", list(PUBLISHED), ids=lambda f: f.__name__)
def test_a_dataset_says_what_it_found_of_what_is_published(
    tmp_path: Path, write: Callable[[Path], str], caplog: pytest.LogCaptureFixture
) -> None:
    argument = write(tmp_path)
    with caplog.at_level(logging.WARNING, "protodepth"):
        domain = open_domain(argument)
    counts = {what: (pair["found"], pair["published"]) for what, pair in domain.identity["counts"].items()}
    assert counts == PUBLISHED[write]
    for what, (found, published) in PUBLISHED[write].items():
        assert f"{found} of {published} {what}" in domain.identity["notes"][0]
        assert f"{found} of {published} {what}" in caplog.text


def test_labelled_nyu_frames_are_counted_for_val_too(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    from scipy.io import savemat

    (shot,) = walk(1, size=(48, 64))
    big = enlarge(shot, 10)
    with h5py.File(tmp_path / "nyu_depth_v2_labeled.mat", "w", userblock_size=512) as file:
        file["images"], file["depths"] = big.image.transpose(2, 1, 0)[None], big.depth.T.astype(np.float32)[None]
    savemat(tmp_path / "splits.mat", {"trainNdxs": np.ones((795, 1)), "testNdxs": np.ones((654, 1))})
    identity = open_domain(f"nyu_v2:{tmp_path}").identity
    assert identity["counts"] == {
        w: {"found": n, "published": n} for w, n in (("test frames", 654), ("val frames", 795))
    }
    assert identity["notes"] == ()


def test_check_and_a_prepared_folder_tell_the_counts_and_the_bad_frames(tmp_path: Path) -> None:
    void(tmp_path / "raw")
    place = tmp_path / "raw" / "void_500" / "data" / "copyroom1" / "sparse_depth"
    bad = sorted(place.iterdir())[31]
    bad.write_bytes(bad.read_bytes()[:60])
    done = prepare("void", tmp_path / "raw", tmp_path / "out", options={"density": 500, "val_share": 1.0})
    assert [name.split("/")[-1] for name in done.bad] == [bad.stem]
    prepared = open_domain(str(tmp_path / "out"))
    assert prepared.identity["counts"]["train sequences"] == {"found": 1, "published": 48}
    assert prepared.identity["skipped"] == {"bad": 1}
    report = check(tmp_path / "out")
    assert report.ok
    assert "found of published: test frames 3 of 800, train sequences 1 of 48, test sequences 1 of 8" in report.text()
