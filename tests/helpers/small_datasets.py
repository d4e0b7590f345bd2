"""A small dataset of every kind that ``--data`` takes, as the tests of its reader write it, to be damaged."""

import importlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.data_scene import enlarge, walk
from helpers.dataset_writers import write_kitti, write_lists, write_sens, write_vkitti2, write_void
from helpers.lidar_writers import write_nuscenes, write_waymo
from helpers.recordings import write_recording
from protodepth.data.files import images
from protodepth.data.manifest import prepare

SHOTS = walk(8, size=(24, 32), step=0.03)
K = SHOTS[0].K
FOUR = f"{K[0, 0]},{K[1, 1]},{K[0, 2]},{K[1, 2]}"
Writer = Callable[[Path], str]


def _tests_of(reader: str) -> Any:
    """The module that tests a reader: it has its writer."""
    return importlib.import_module(f"unit.data.datasets.test_{reader}")


def _recording(root: Path) -> str:
    write_recording(root, SHOTS, toml='depth_unit = "mm"\nstride = 1\nsplits = [0.6, 0.2, 0.2]\ngap = 0\n')
    return str(root)


def _manifest(root: Path) -> str:
    write_lists(root, SHOTS)
    prepare("lists", root / "lists.toml", root / "prepared")
    return str(root / "prepared")


def _lists(root: Path) -> str:
    return f"lists:{write_lists(root, SHOTS)}"


def _kitti(root: Path) -> str:
    write_kitti(root, SHOTS, layout="official", size=(24, 32))
    return f"kitti:{root}?val_share=0"


def _vkitti(root: Path) -> str:
    for scene in ("Scene01", "Scene02"):
        write_vkitti2(root, SHOTS, scene, "clone")
    return f"vkitti:{root}?val_share=0&poses=true"


def _nuscenes(root: Path) -> str:
    write_nuscenes(root, SHOTS)
    return f"nuscenes:{root}?truth=keyframe"


def _waymo(root: Path) -> str:
    pytest.importorskip("pyarrow")
    for part in ("training", "validation"):
        write_waymo(root, walk(4, size=(24, 32), step=0.05), part)
    return f"waymo:{root}"


def _void(root: Path) -> str:
    write_void(root, SHOTS)
    return f"void:{root}?density=500&val_share=0"


def _scannet(root: Path) -> str:
    write_sens(root, [enlarge(s, 20) for s in walk(3, size=(24, 32))])
    return f"scannet:{root}?every=1&val_share=0&poses=true&sampler=uniform:200"


def _nyu(root: Path) -> str:
    h5py = pytest.importorskip("h5py")
    from scipy.io import savemat

    shots = [enlarge(s, 20) for s in walk(3, size=(24, 32))]
    with h5py.File(root / "nyu_depth_v2_labeled.mat", "w", userblock_size=512) as file:
        file["images"] = np.stack([s.image.transpose(2, 1, 0) for s in shots])
        file["depths"] = np.stack([s.depth.T.astype(np.float32) for s in shots])
    savemat(root / "splits.mat", {"trainNdxs": np.array([[2]]), "testNdxs": np.array([[1], [3]])})
    return f"nyu_v2:{root}?sampler=uniform:200"


def _argoverse(root: Path) -> str:
    tests = _tests_of("argoverse2")
    for part in ("train", "val"):
        tests.write_log(root / part / "log", walk(5, size=tests.SIZE, world="street", step=0.8))
    return f"argoverse2:{root}?val_share=0"


def _ddad(root: Path) -> str:
    tests = _tests_of("ddad")
    for name in ("000000", "000150"):
        tests.write_scene(root / name, walk(5, size=tests.SIZE, world="street", step=0.8))
    splits = {"0": {"filenames": ["000000/scene_1.json"]}, "1": {"filenames": ["000150/scene_1.json"]}}
    (root / "ddad.json").write_text(json.dumps({"scene_splits": splits}))
    return f"ddad:{root}?val_share=0"


def _kinect(root: Path) -> str:
    pytest.importorskip("cv2")
    tests = _tests_of("azure_kinect")
    tests.write(root / "output.mkv", tests.calibration())
    return f"azure_kinect:{root / 'output.mkv'}?long_side=64&stride=1"


def _colmap(root: Path, kind: str) -> str:
    return f"colmap:{_tests_of('colmap').reconstruction(root, kind)}?scale=0.25&stride=2"


def _open3d(root: Path) -> str:
    return f"open3d:{_tests_of('open3d').write_open3d(root)}?stride=2&sampler=uniform:200"


def _polycam(root: Path) -> str:
    return f"polycam:{_tests_of('polycam').write(root)}?stride=2"


def _record3d(root: Path) -> str:
    conf = np.ones((_tests_of("record3d").SIZE[0] // 2, _tests_of("record3d").SIZE[1] // 2))
    shots = walk(8, size=_tests_of("record3d").SIZE, step=0.05)
    return f"record3d:{_tests_of('record3d').write_r3d(root / 'scan.r3d', shots, conf=conf)}?stride=1"


def _record3d_folder(root: Path) -> str:
    argument = _record3d(root)
    with zipfile.ZipFile(root / "scan.r3d") as file:
        file.extractall(root / "scan")
    (root / "scan.r3d").unlink()
    return argument.replace("scan.r3d", "scan")


def _bag(root: Path, ros: int) -> str:
    pytest.importorskip("rosbags")
    path = root / ("a.bag" if ros == 1 else "bag")
    tests = _tests_of("rosbag")
    size, tests.SIZE = tests.SIZE, (24, 32)
    try:
        tests.write_bag(path, walk(6, size=(24, 32), step=0.05), ros=ros, kind="depth")
    finally:
        tests.SIZE = size
    return f"rosbag:{path}"


def _seven_scenes(root: Path) -> str:
    for i, shot in enumerate(SHOTS):
        images.write_image(root / f"frame-{i:06d}.color.png", shot.image)
        images.write_depth(root / f"frame-{i:06d}.depth.png", shot.depth, "mm")
        np.savetxt(root / f"frame-{i:06d}.pose.txt", shot.pose)
    return f"seven_scenes:{root}?stride=2&sampler=uniform:200&intrinsics={FOUR}"


def _transforms(root: Path) -> str:
    tests = _tests_of("transforms")
    return f"transforms:{tests.write(root, tests.CAMERA, tests.with_depth())}?stride=2&sampler=uniform:200"


def _tum(root: Path) -> str:
    from scipy.spatial.transform import Rotation

    rgb, depth, truth = "# color images\n", "# depth maps\n", "# ground truth\n"
    for i, shot in enumerate(SHOTS):
        t = 1305031102.1 + i / 30
        images.write_image(root / "rgb" / f"{t:.6f}.png", shot.image)
        images.write_depth(root / "depth" / f"{t:.6f}.png", shot.depth, "tum")
        rgb, depth = rgb + f"{t:.6f} rgb/{t:.6f}.png\n", depth + f"{t:.6f} depth/{t:.6f}.png\n"
        q = Rotation.from_matrix(shot.pose[:3, :3]).as_quat()
        truth += " ".join(f"{v:.7f}" for v in (t, *shot.pose[:3, 3], *q)) + "\n"
    for name, text in (("rgb", rgb), ("depth", depth), ("groundtruth", truth)):
        (root / f"{name}.txt").write_text(text)
    return f"tum:{root}?intrinsics={FOUR}&sampler=uniform:200&stride=1"


WRITERS: dict[str, Writer] = {
    "argoverse2": _argoverse,
    "azure_kinect": _kinect,
    "colmap": lambda root: _colmap(root, "binary"),
    "colmap in text": lambda root: _colmap(root, "text"),
    "ddad": _ddad,
    "kitti": _kitti,
    "lists": _lists,
    "manifest": _manifest,
    "nuscenes": _nuscenes,
    "nyu_v2": _nyu,
    "open3d": _open3d,
    "polycam": _polycam,
    "record3d": _record3d,
    "record3d unpacked": _record3d_folder,
    "recording": _recording,
    "rosbag": lambda root: _bag(root, 1),
    "rosbag of ROS 2": lambda root: _bag(root, 2),
    "scannet": _scannet,
    "seven_scenes": _seven_scenes,
    "transforms": _transforms,
    "tum": _tum,
    "vkitti": _vkitti,
    "void": _void,
    "waymo": _waymo,
}
