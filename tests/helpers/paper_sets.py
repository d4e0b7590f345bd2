"""The paper's six datasets, a handful of frames each, written as their publishers store them."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from helpers.data_scene import Shot, enlarge, walk
from helpers.dataset_writers import write_kitti, write_sens, write_vkitti2, write_void
from helpers.lidar_writers import SIZE, write_waymo

NYU_K = np.array([[518.8579, 0, 325.5824], [0, 519.4696, 253.7362], [0, 0, 1]])


def _room(count: int) -> list[Shot]:
    return [enlarge(s, 10) for s in walk(count, size=(48, 64))]


def nyu_v2(root: Path) -> str:
    for split, folder in (("train", "kitchen_0001"), ("val", "official")):
        h5py = pytest.importorskip("h5py")
        for i, shot in enumerate(_room(3)):
            path = root / split / folder / f"{i + 1:05d}.h5"
            path.parent.mkdir(parents=True, exist_ok=True)
            with h5py.File(path, "w") as file:
                file["rgb"], file["depth"] = shot.image.transpose(2, 0, 1), shot.depth.astype(np.float32)
    return f"nyu_v2:{root}?sampler=uniform:300&val_share=0&neighbours=1"


def scannet(root: Path) -> str:
    write_sens(root, _room(3))
    write_sens(root, _room(3), "scans_test")
    return f"scannet:{root}?every=1&sampler=uniform:300&val_share=0"


def void(root: Path) -> str:
    write_void(root, walk(3, size=(64, 96)))
    return f"void:{root}?density=500&val_share=0"


def kitti(root: Path) -> str:
    write_kitti(root, walk(5, size=(64, 96), world="street"), layout="official", size=(64, 96))
    shutil.copytree(root / "train", root / "val")  # what test=val judges on
    return f"kitti:{root}?test=val&val_share=0"


def waymo(root: Path) -> str:
    for part in ("training", "validation"):
        write_waymo(root, walk(4, size=SIZE, world="street", step=0.8), part)
    return f"waymo:{root}?val_share=0"


def vkitti(root: Path) -> str:
    for scene in ("Scene01", "Scene02"):
        write_vkitti2(root, walk(4, size=(64, 96), world="street", step=0.8), scene, "rain")
    return f"vkitti:{root}?conditions=rain&sampler=uniform:90"


WRITERS = {
    "indoor": (nyu_v2, scannet, void), "outdoor": (kitti, waymo, vkitti), "mixed": (kitti, nyu_v2, waymo),
}  # fmt: skip


def write(root: Path, sequence: str) -> list[str]:
    """The data arguments of a sequence."""
    return [writer(root / writer.__name__) for writer in WRITERS[sequence]]
