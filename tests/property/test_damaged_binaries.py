"""Damaged EXR, HDF5, parquet and bag files, which libraries of others parse: one sentence, no crash, no file changed.

Each attack runs in a process of its own, so that a crash of a library is counted and does not end the tests.
A mutant *reaches the parser* if it begins as its format does.
"""

import importlib.util
import math
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from helpers.apart import attack_apart
from helpers.data_scene import walk
from helpers.lidar_writers import write_waymo
from helpers.mutants import mutants
from protodepth.data.arguments import open_domain
from protodepth.data.datasets import nyu_v2, ros_messages, waymo
from protodepth.data.files import images
from protodepth.errors import ProtoDepthError

SECONDS = 3.0  # of computing, for each format in an ordinary test run
Attacked = tuple[Path, Callable[[], object]]


def clear() -> None:
    """What the readers keep of an earlier file."""
    for function in (ros_messages.open_bag, ros_messages.times, waymo._index, waymo._group, waymo._only_row):
        function.cache_clear()


def read_frames(argument: str, **options: object) -> list[object]:
    clear()
    domain = open_domain(argument, **options)
    return [domain.split(s)[0] for s in ("train", "val", "test") if len(domain.split(s))]


def exr(root: Path) -> Attacked:
    OpenEXR = pytest.importorskip("OpenEXR")
    pixels = walk(1, size=(24, 32))[0].depth.astype(np.float32)
    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    OpenEXR.File(header, {"R": pixels}).write(str(root / "d.exr"))
    return root / "d.exr", lambda: images.read_depth(root / "d.exr")


def hdf5(root: Path) -> Attacked:
    h5py = pytest.importorskip("h5py")
    with h5py.File(root / "d.h5", "w") as file:
        file.create_dataset("depth", data=walk(1, size=(24, 32))[0].depth, compression="gzip")
        file["rgb"] = np.zeros((3, 24, 32), np.uint8)
    return root / "d.h5", lambda: nyu_v2.CONTAINER.depth(root / "d.h5", "depth")


def parquet(root: Path) -> Attacked:
    pytest.importorskip("pyarrow")
    for part in ("training", "validation"):
        write_waymo(root, walk(4, size=(24, 32), step=0.05), part)
    target = sorted(root.glob("**/lidar/*.parquet"))[0]
    return target, lambda: read_frames(f"waymo:{root}")


def bag_writer() -> ModuleType:
    """The writer of the tests of bags."""
    path = Path(__file__).parents[1] / "unit" / "data" / "datasets" / "test_rosbag.py"
    spec = importlib.util.spec_from_file_location("test_rosbag_writer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.SIZE = (24, 32)  # type: ignore[attr-defined]
    return module


def bag(root: Path, ros: int) -> Attacked:
    pytest.importorskip("rosbags")
    path = root / ("a.bag" if ros == 1 else "bag")
    bag_writer().write_bag(path, walk(6, size=(24, 32), step=0.05), ros=ros, kind="depth")
    target = path if ros == 1 else next(path.glob("*.db3"))
    return target, lambda: read_frames(f"rosbag:{path}")


FORMATS: dict[str, Callable[[Path], Attacked]] = {
    "EXR": exr,
    "HDF5": hdf5,
    "parquet": parquet,
    "ROS 1 bag": lambda root: bag(root, 1),
    "ROS 2 bag": lambda root: bag(root, 2),
}


def attack(folder: Path, name: str, count: int, seed: int, seconds: float, say: object) -> None:
    """In the child: read mutants; what is not an error of ours is sent as it is and ends the attack."""
    target, read = FORMATS[name](folder)
    read()
    good, others = target.read_bytes(), {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p != target}
    seen, said, end = {"tried": 0, "read": 0, "refused": 0, "reached": 0}, [], time.process_time() + seconds
    for bad in mutants(good, count, seed):
        if time.process_time() > end:
            break
        target.write_bytes(bad)
        seen["tried"] += 1
        seen["reached"] += bad[:4] == good[:4] and len(bad) > 16
        try:
            read()
            seen["read"] += 1
        except ProtoDepthError as error:
            said.append(str(error))
            seen["refused"] += 1
        except Exception as error:
            say.send(f"{type(error).__name__}: {error} in {seen}")  # type: ignore[attr-defined]
            return
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p != target} == others
    assert not any("\n" in text for text in said)
    say.send(seen)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_binaries_are_one_sentence(tmp_path: Path, name: str) -> None:
    seen = attack_apart(attack, tmp_path / "d", name, 30, 1, SECONDS)
    print(name, seen)
    assert seen["refused"] > 0
    assert seen["reached"] > seen["tried"] / 2


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_two_thousand_damaged_binaries_of_each_format(tmp_path: Path, name: str) -> None:
    print(name, attack_apart(attack, tmp_path / "d", name, 2000, 2, math.inf))


def test_an_exr_that_promises_more_pixels_than_a_camera_has_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    path, read = exr(tmp_path)
    data = path.read_bytes()
    start = data.index(b"dataWindow\0box2i\0") + len(b"dataWindow\0box2i\0") + 4
    for window in ((0, 0, 99_999, 99_999), (0, 0, -9, -9), (5, 5, 2**31 - 1, 2**31 - 1)):  # the first: 40 GB
        path.write_bytes(data[:start] + np.array(window, "<i4").tobytes() + data[start + 16 :])
        with pytest.raises(ProtoDepthError, match=r"d\.exr (says that it has|cannot be read)"):
            read()


def test_an_hdf5_array_that_promises_more_numbers_than_a_picture_has_is_refused(tmp_path: Path) -> None:
    """An array whose parts were never written takes no bytes of the file, and 40 GB when it is read."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file.create_dataset("depth", (100_000, 100_000), "f4", chunks=(100, 100))
        file.create_dataset("rows", (3, 100_000, 100_000), "f4", chunks=(1, 100, 100))
        file.create_group("folder")
    assert (tmp_path / "d.h5").stat().st_size < 100_000
    for inside in ("depth", "rows/1"):
        with pytest.raises(ProtoDepthError, match="promises"):
            nyu_v2.CONTAINER.depth(tmp_path / "d.h5", inside)
    with pytest.raises(ProtoDepthError, match="cannot be read as HDF5"):
        nyu_v2.CONTAINER.depth(tmp_path / "d.h5", "folder")
