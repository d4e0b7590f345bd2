"""Damaged datasets: every reader turns bad bytes into one sentence, takes no memory that the file does not have,
and changes no file.

The mutants are drawn by seed.  A part runs within a time limit in every test run, all of them behind the slow marker.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from helpers.data_scene import walk
from helpers.dataset_writers import jpeg, sens_bytes, write_kitti, write_lists, write_vkitti2
from helpers.lidar_writers import write_nuscenes
from helpers.mutants import mutants
from helpers.recordings import write_recording
from protodepth.data.arguments import open_domain
from protodepth.data.datasets import kitti, nuscenes, scannet
from protodepth.data.files import cameras, images
from protodepth.data.manifest import prepare
from protodepth.errors import ProtoDepthError

SHOTS = walk(8, size=(24, 32), step=0.03)
FEW, MANY = 30, 1000  # mutants of each format
SECONDS = 2.0  # of computing, for each format in an ordinary test run
Reader = Callable[[], object]


def read_some(argument: str, **options: object) -> object:
    """Open and read a frame of each split, without any cache of an earlier reading."""
    kitti.calibration.cache_clear()
    nuscenes.read_tables.cache_clear()
    domain = open_domain(argument, **options)
    return [domain.split(s)[0] for s in ("train", "val", "test") if len(domain.split(s))]


def recording(root: Path) -> tuple[str, dict[str, object]]:
    write_recording(root, SHOTS, toml='depth_unit = "mm"\nstride = 1\nsplits = [0.6, 0.2, 0.2]\ngap = 0\n')
    return str(root), {}


def lists(root: Path) -> tuple[str, dict[str, object]]:
    return f"lists:{write_lists(root, SHOTS)}", {}


def vkitti(root: Path) -> tuple[str, dict[str, object]]:
    for scene in ("Scene01", "Scene02"):
        write_vkitti2(root, SHOTS, scene, "clone")
    return f"vkitti:{root}", {"val_share": 0.0, "poses": True}


def scenes(root: Path) -> tuple[str, dict[str, object]]:
    write_nuscenes(root, SHOTS)
    return f"nuscenes:{root}", {"truth": "keyframe"}


def manifest(root: Path) -> tuple[str, dict[str, object]]:
    write_lists(root, SHOTS)
    prepare("lists", root / "lists.toml", root / "prepared")
    return str(root / "prepared"), {}


def drives(root: Path) -> tuple[str, dict[str, object]]:
    write_kitti(root, SHOTS, layout="official", size=(24, 32))
    return f"kitti:{root}", {"val_share": 0.0}


# format -> (how a small dataset is written, the file that is damaged)
FORMATS: dict[str, tuple[Callable[[Path], tuple[str, dict[str, object]]], str]] = {
    "poses.txt": (recording, "poses.txt"),
    "intrinsics.txt": (recording, "intrinsics.txt"),
    "recording.toml": (recording, "recording.toml"),
    "lists.toml": (lists, "lists.toml"),
    "list": (lists, "image.txt"),
    "npy": (lists, "K.npy"),
    "vkitti table": (vkitti, "**/extrinsic.txt"),
    "nuscenes table": (scenes, "**/calibrated_sensor.json"),
    "nuscenes cloud": (scenes, "**/*.bin"),
    "kitti calibration": (drives, "**/calib_cam_to_cam.txt"),
    "manifest": (manifest, "prepared/manifest.json"),
    "manifest lines": (manifest, "prepared/train.jsonl"),
}


def attack(folder: Path, name: str, count: int, seed: int, seconds: float | None = None) -> dict[str, int]:
    """Read damaged copies of one file; any error but our own ends the test, and so does a changed file."""
    write, pattern = FORMATS[name]
    folder.mkdir()
    argument, options = write(folder)
    read_some(argument, **options)
    target = sorted(folder.glob(pattern))[0]
    good, others = target.read_bytes(), {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p != target}
    seen, said, end = {"tried": 0, "read": 0, "refused": 0}, [], time.process_time() + (seconds or 1e9)
    for bad in mutants(good, count, seed):
        if time.process_time() > end:
            break
        target.write_bytes(bad)
        seen["tried"] += 1
        try:
            read_some(argument, **options)
            seen["read"] += 1
        except ProtoDepthError as error:
            said.append(str(error))
            seen["refused"] += 1
        assert target.read_bytes() == bad
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p != target} == others
    assert all(said)
    shutil.rmtree(folder)
    return seen


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_datasets_are_one_sentence(tmp_path: Path, name: str) -> None:
    seen = attack(tmp_path / "d", name, FEW, 1, SECONDS)
    assert seen["refused"] > 0  # they reach the parser: some are refused by it


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_a_thousand_damaged_files_of_each_format(tmp_path: Path, name: str) -> None:
    print(name, attack(tmp_path / "d", name, MANY, 2))


# --- single files, read alone: faster, so more of them ----------------------------------------------------------------


def read_sens(path: Path) -> object:
    stored = scannet.read_sens(path)
    (offset, length), (height, width) = stored.frames[0].depth, stored.depth_size
    return scannet.CONTAINER.depth(path, f"{offset},{length},{height},{width},{stored.depth_shift}")


def camera_files(root: Path) -> dict[str, tuple[bytes, Callable[[Path], object]]]:
    """name -> (a good file, its reader)"""
    K = SHOTS[0].K
    np.save(root / "d.npy", SHOTS[0].depth)
    numbers = ", ".join(f"{v:g}" for v in K.ravel())
    images.write_depth(root / "d.png", SHOTS[0].depth)
    poses = "\n".join(" ".join(f"{v:.6f}" for v in s.pose.ravel()) for s in SHOTS).encode()
    return {
        "k.txt": (numbers.encode(), cameras.read_intrinsics),
        "k.json": (b'{"fx": 500, "fy": 500.5, "cx": 320, "cy": 240}', cameras.read_intrinsics),
        "m.json": (f'{{"K": [{numbers}]}}'.encode(), cameras.read_intrinsics),
        "k.yaml": (f"camera_matrix:\n  rows: 3\n  cols: 3\n  data: [{numbers}]\n".encode(), cameras.read_intrinsics),
        "f.yaml": (b"fx: 500.0\nfy: 500.0\ncx: 320\ncy: 240\n", cameras.read_intrinsics),
        "poses.txt": (poses, lambda path: cameras.read_poses(path, [str(i) for i in range(len(SHOTS))])),
        "d.npy": ((root / "d.npy").read_bytes(), lambda path: images.read_depth(path)),
        "d.png": ((root / "d.png").read_bytes(), lambda path: images.read_depth(path, "kitti")),
        "a.sens": (sens_bytes(SHOTS, [jpeg(s.image) for s in SHOTS], (24, 32)), read_sens),
        "cloud.bin": (np.arange(50, dtype="<f4").tobytes(), nuscenes.read_cloud),
    }


def attack_file(root: Path, name: str, count: int, seed: int) -> dict[str, int]:
    good, read = camera_files(root)[name]
    place, seen, said = root / name, {"read": 0, "refused": 0}, []
    for bad in mutants(good, count, seed):
        place.write_bytes(bad)
        try:
            read(place)
            seen["read"] += 1
        except ProtoDepthError as error:
            said.append(str(error))
            seen["refused"] += 1
    assert all(name in text for text in said)
    return seen


@pytest.mark.parametrize(
    "name", ["k.txt", "k.json", "m.json", "k.yaml", "f.yaml", "poses.txt", "d.npy", "d.png", "a.sens", "cloud.bin"]
)
def test_damaged_files_are_one_sentence_with_their_name(tmp_path: Path, name: str) -> None:
    seen = attack_file(tmp_path, name, 250, 3)
    assert seen["refused"] > 20


@pytest.mark.slow
def test_ten_thousand_damaged_files_are_one_sentence_with_their_name(tmp_path: Path) -> None:
    names = list(camera_files(tmp_path))
    print({name: attack_file(tmp_path, name, 10_000 // len(names) + 1, 4) for name in names})


def test_a_header_that_promises_more_than_the_file_has_takes_no_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((4, 5), np.float32))
    text = (tmp_path / "a.npy").read_bytes().replace(b"(4, 5), ", b"(2048, 2147483648), ")
    length = text.index(b"\n") + 1 - 10
    (tmp_path / "a.npy").write_bytes(text[:8] + length.to_bytes(2, "little") + text[10:])
    with pytest.raises(ProtoDepthError, match="promises float32 2048x2147483648"):
        images.read_depth(tmp_path / "a.npy")


def test_what_people_write_is_named_with_its_place(tmp_path: Path) -> None:
    def said(name: str, data: bytes) -> str:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ProtoDepthError) as caught:
            cameras.read_intrinsics(tmp_path / name)
        return str(caught.value)

    assert "k.txt, line 2: byte 0xff" in said("k.txt", b"500 500\n320 \xff240")
    assert "'1_0' is not a number" in said("k.txt", b"500, 500, 1_0, 240")
    assert "'1e' is not a number" in said("k.yaml", b"fx: 1e\nfy: 500\ncx: 320\ncy: 240\n")
    assert "not valid JSON" in said("k.json", b"[" * 100_000)
    assert "not numbers" in said("k.json", b'{"K": ["1_0", 0, 0, 0, 1, 0, 0, 0, 1]}')
    assert "no camera has" in said("k.txt", b"500 1e39 320 0 500 240 0 0 1")
    np.savez(tmp_path / "a.npz", a=np.eye(3))
    assert "archive of arrays" in said("k.npy", (tmp_path / "a.npz").read_bytes())
