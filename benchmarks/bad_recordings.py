"""Recordings made wrong on purpose, held against ``protodepth data check``: what is caught, what is a false alarm.

    python benchmarks/bad_recordings.py                          # drawn recordings; some two minutes of one core
    python benchmarks/bad_recordings.py FOLDER[?field=value] ... # and your own, of which a copy is spoiled

Prints one row a recording: for each way of spoiling it the kinds of faults that were said.  The first column is the
recording as it is, where nothing must be said.
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from protodepth.data.check import check
from protodepth.data.example import write_example
from protodepth.data.faults import HARMLESS
from protodepth.data.files import images
from protodepth.data.recording.layout import find_layout
from protodepth.data.recording.settings import read_settings

WORLDS = ("room", "warehouse", "street", "garden")
FRAMES = 40
LATE, LAG = 5, 3  # frames
Maps = list[np.ndarray]  # metres
Spoil = Callable[[Maps, np.ndarray], Maps]


def late(maps: Maps, K: np.ndarray) -> Maps:
    return [maps[max(0, i - LATE)] for i in range(len(maps))]


def mirrored(maps: Maps, K: np.ndarray) -> Maps:
    return [m[:, ::-1] for m in maps]


def along_ray(maps: Maps, K: np.ndarray) -> Maps:
    v, u = np.indices(maps[0].shape)
    length = np.sqrt(1 + ((u - K[0, 2]) / K[0, 0]) ** 2 + ((v - K[1, 2]) / K[1, 1]) ** 2)
    return [m * length for m in maps]


def largest(maps: Maps, K: np.ndarray) -> Maps:
    """65535 (of millimetres) where nothing was measured, and in a band in which there is nothing to measure."""
    band = np.s_[: len(maps[0]) // 6]
    return [np.concatenate([np.full_like(m[band], 65.535), np.where(m > 0, m, 65.535)[len(m[band]) :]]) for m in maps]


def same(maps: Maps, K: np.ndarray) -> Maps:
    return maps


# name -> (what happens to depth, frames by which the poses lag, unit that is written, unit that is declared)
WAYS: dict[str, tuple[Spoil, int, str, str | None]] = {
    "as it is": (same, 0, "mm", "mm"),
    f"depth {LATE} frames late": (late, 0, "mm", "mm"),
    "mirrored": (mirrored, 0, "mm", "mm"),
    "along the ray": (along_ray, 0, "mm", "mm"),
    f"poses {LAG} frames late": (same, LAG, "mm", "mm"),
    "mm said to be kitti": (same, 0, "mm", "kitti"),
    "tum, not declared": (same, 0, "tum", None),
    "65535 for nothing": (largest, 0, "mm", "mm"),
}


def spoiled(source: str, to: Path, way: str) -> Path:
    """A copy of the first frames of a recording, spoiled in one way; pictures are linked."""
    spoil, lag, unit, declared = WAYS[way]
    place, _, query = source.partition("?")
    settings = read_settings(Path(place), **dict(pair.split("=") for pair in query.split("&") if pair))
    layout = find_layout(Path(place), settings)
    ids = layout.ids[:FRAMES]
    farthest = 65.5 if unit == "mm" else 13.1  # what 16 bits hold
    maps = [images.read_depth(layout.depths[i], settings.depth_unit) for i in ids]
    maps = [np.where(depth <= 0.8 * farthest, depth, 0) for depth in maps]  # along the ray it is up to a fifth more
    K = layout.calibration(ids[0])
    for i, depth in zip(ids, spoil(maps, K), strict=True):
        picture = layout.images[i].resolve()
        (to / "image").mkdir(parents=True, exist_ok=True)
        (to / "image" / picture.name).symlink_to(picture)
        images.write_depth(to / "depth" / f"{i}.png", depth, unit)
    np.savetxt(to / "intrinsics.txt", K)
    if layout.poses is not None:
        np.savetxt(to / "poses.txt", np.stack([layout.poses[max(0, n - lag)].ravel() for n in range(len(ids))]))
    said = f'depth_unit = "{declared}"\n' if declared else ""
    (to / "recording.toml").write_text(said + ("fps = 10\n" if layout.poses is None else ""))
    return to


def answer(folder: Path) -> str:
    """What ``data check`` says, in few words."""
    report = check(folder)
    kinds = [kind for kind in report.counts() if kind not in HARMLESS]
    notes = [note for note in report.notes if "WARNING" in note or "65535" in note]
    unit = next((n.split("read as ")[1].split(":")[0] for n in report.notes if "not declared" in n), "")
    words = [*kinds, *(["focal"] if any("focal" in n for n in notes) else [])]
    words += ["65535"] if any("65535" in n for n in notes) else []
    return ", ".join([*words, *([f"read as {unit}"] if unit else [])]) or "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="*", help="folders of recordings with a declared unit")
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS))
    options = parser.parse_args()
    print(f"| recording | {' | '.join(WAYS)} |\n|{'---|' * (len(WAYS) + 1)}", flush=True)
    with tempfile.TemporaryDirectory() as text:
        root = Path(text)
        for world in options.worlds:
            write_example(root / world, world, frames=FRAMES, size=(120, 160))
            shutil.rmtree(root / world / "sparse")
            (root / world / "ground_truth").rename(root / world / "depth")
        for source in [*(str(root / world) for world in options.worlds), *options.recordings]:
            name = Path(source.partition("?")[0]).name
            print(f"| {name} ", end="", flush=True)
            for number, way in enumerate(WAYS):
                print(f"| {answer(spoiled(source, root / f'{name}-{number}', way))} ", end="", flush=True)
                shutil.rmtree(root / f"{name}-{number}")
            print("|", flush=True)


if __name__ == "__main__":
    main()
