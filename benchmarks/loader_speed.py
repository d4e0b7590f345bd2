"""Frames a second that each data format delivers: ``python benchmarks/loader_speed.py [--size 480x640] [--frames 24]``.

Writes the same frames in each format to a temporary folder and times reading them back as training frames (image, two
neighbours, sparse depth), alone and with two worker processes, and prints a table.  Formats whose library is missing are skipped.
"""

import argparse
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from protodepth.data import frames
from protodepth.data.base import FrameDataset, training_batches
from protodepth.data.entries import EntryFrames, EntryTable, FrameReader
from protodepth.data.nyu_v2 import CONTAINER as HDF5
from protodepth.data.scannet import CONTAINER as SENS


def picture(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Smooth noise: compresses about like a photograph."""
    small = rng.integers(0, 255, (size[0] // 8, size[1] // 8, 3)).astype(np.uint8)
    large = np.repeat(np.repeat(small, 8, 0), 8, 1).astype(int) + rng.integers(-6, 7, (*size, 3))
    return np.clip(large, 0, 255).astype(np.uint8)


def make(folder: Path, count: int, size: tuple[int, int]) -> dict[str, FrameDataset]:
    """The same frames as files and in containers."""
    rng = np.random.default_rng(0)
    K = [size[1], 0, size[1] / 2, 0, size[1], size[0] / 2, 0, 0, 1]
    images = [picture(rng, size) for _ in range(count)]
    dense = [(2 + rng.random(size)).astype(np.float32) for _ in range(count)]
    sparse = [np.where(rng.random(size) < 0.01, d, 0) for d in dense]
    for i in range(count):
        frames.write_image(folder / f"{i}.png", images[i])
        frames.write_image(folder / f"{i}.jpg", images[i])
        frames.write_depth(folder / f"s{i}.png", sparse[i])
        frames.write_depth(folder / f"d{i}.png", dense[i], "mm")
        frames.write_image(folder / f"t{i}.png", np.concatenate([images[i]] * 3, 1))

    def dataset(entry: Callable[[int], dict[str, object]], **reader: object) -> FrameDataset:
        entries = [{"id": str(i), "K": K, **entry(i)} for i in range(1, count - 1)]
        return EntryFrames(EntryTable.pack(entries), FrameReader(root=folder, **reader))  # type: ignore[arg-type]

    def around(i: int, suffix: str) -> dict[str, object]:
        return {"image": f"{i}{suffix}", "neighbours": [f"{i - 1}{suffix}", f"{i + 1}{suffix}"]}

    made = {
        "PNG images, PNG sparse (VOID, KITTI)": dataset(lambda i: {**around(i, ".png"), "sparse": f"s{i}.png"}),
        "JPEG images, PNG sparse (recording, VKITTI prepared)": dataset(
            lambda i: {**around(i, ".jpg"), "sparse": f"s{i}.png"}
        ),
        "PNG triplet side by side (lists)": dataset(
            lambda i: {"image": f"t{i}.png", "triplet": True, "sparse": f"s{i}.png"}
        ),
        "JPEG images, dense PNG + harris:1500": dataset(
            lambda i: {**around(i, ".jpg"), "dense": f"d{i}.png"}, unit="mm", sampler="harris:1500"
        ),
        ".sens, uniform:1500 (ScanNet)": sens(folder, dense, dataset),
    }
    if importlib.util.find_spec("h5py"):
        made[".h5, uniform:1500 (NYUv2)"] = hdf5(folder, images, dense, dataset)
    return made


def sens(folder: Path, dense: list[np.ndarray], dataset: Callable[..., FrameDataset]) -> FrameDataset:
    import zlib

    places, data = [], b""
    for i, depth in enumerate(dense):
        colour = (folder / f"{i}.jpg").read_bytes()
        packed = zlib.compress(np.rint(depth * 1000).astype("<u2").tobytes())
        tail = f"{depth.shape[0]},{depth.shape[1]},1000"
        places.append((f"x.sens#{len(data)},{len(colour)}", f"x.sens#{len(data) + len(colour)},{len(packed)},{tail}"))
        data += colour + packed
    (folder / "x.sens").write_bytes(data)
    return dataset(
        lambda i: {"image": places[i][0], "neighbours": [places[i - 1][0], places[i + 1][0]], "dense": places[i][1]},
        sampler="uniform:1500",
        container=SENS,
    )


def hdf5(
    folder: Path, images: list[np.ndarray], dense: list[np.ndarray], dataset: Callable[..., FrameDataset]
) -> FrameDataset:
    import h5py

    for i, (image, depth) in enumerate(zip(images, dense, strict=True)):
        with h5py.File(folder / f"{i}.h5", "w") as file:
            file["rgb"], file["depth"] = image.transpose(2, 0, 1), depth
    return dataset(
        lambda i: {
            "image": f"{i}.h5#rgb",
            "neighbours": [f"{i - 1}.h5#rgb", f"{i + 1}.h5#rgb"],
            "dense": f"{i}.h5#depth",
        },
        sampler="uniform:1500",
        container=HDF5,
    )


def rate(data: FrameDataset, seconds: float, workers: int) -> tuple[float, float]:
    """Frames a second, and a CPU second of this process, after the first batches (workers start once in a run).

    The second number does not suffer from other programs on the machine.
    """
    stream = training_batches(data, 2, seed=0, workers=workers)
    for _ in range(2):
        next(stream)
    started, spent, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - started < seconds or count < 4:
        next(stream)
        count += 2
    return count / (time.perf_counter() - started), count / max(time.process_time() - spent, 1e-9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="480x640", help="HEIGHTxWIDTH")
    parser.add_argument("--frames", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each measurement")
    parser.add_argument("--json", type=Path, help="also write the numbers there")
    arguments = parser.parse_args()
    height, width = (int(v) for v in arguments.size.split("x"))
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        print(f"{'format':<54}{'frames/s':>10}{'a CPU second':>14}{'2 workers':>11}")
        for kind, data in make(Path(name), arguments.frames, (height, width)).items():
            (alone, cpu), (two, _) = (rate(data, arguments.seconds, workers) for workers in (0, 2))
            results[kind] = {"alone": alone, "per_cpu_second": cpu, "two_workers": two}
            print(f"{kind:<54}{alone:>10.1f}{cpu:>14.1f}{two:>11.1f}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"size": arguments.size, "frames_per_second": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
