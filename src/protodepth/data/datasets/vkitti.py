"""Virtual KITTI, versions 2 (2.0.3) and 1.3.1: rendered streets with exact depth in centimetres.

Version 2: ``Scene01/<condition>/frames/{rgb,depth}/Camera_{0,1}/{rgb_00000.jpg,depth_00000.png}`` and, in each
condition, ``intrinsic.txt`` and ``extrinsic.txt`` (world to camera).  Version 1:
``vkitti_1.3.1_{rgb,depthgt}/0001/<variation>/00000.png`` and ``vkitti_1.3.1_extrinsicsgt/0001_<variation>.txt``.
Sparse points follow the pattern of real KITTI scans.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from protodepth.data.entries import Entry, FrameReader
from protodepth.data.files import cameras
from protodepth.data.files.text import number, read_text
from protodepth.data.frame import SPLITS, EvalRules
from protodepth.data.manifest import Scan, register_scan
from protodepth.errors import DataError, UnknownNameError

CONDITIONS = (
    "15-deg-left",
    "15-deg-right",
    "30-deg-left",
    "30-deg-right",
    "clone",
    "fog",
    "morning",
    "overcast",
    "rain",
    "sunset",
)
FRAMES = {"01": 447, "02": 233, "06": 270, "18": 339, "20": 837}
TEST_SCENE = "02"
FAR = 255.0  # metres; beyond is sky (655.35 m) or more than a 16-bit /256 map can hold
MOST = 65535 / 256  # where a 16-bit /256 map ends
MOTION = (0.1, 5.0)  # metres between neighbours
K_V1 = np.array([[725.0, 0, 620.5], [0, 725.0, 187.0], [0, 0, 1]])


@dataclass(frozen=True, slots=True)
class _Video:
    """One camera on one drive through one condition."""

    scene: str
    name: str
    images: dict[int, str]
    depths: dict[int, str]
    K: dict[int, np.ndarray]
    poses: dict[int, np.ndarray]  # camera to world


@register_scan("vkitti")
def scan_vkitti(
    root: Path,
    *,
    conditions: str = "all",
    patterns: Path | None = None,
    sampler: str = "",
    poses: bool = False,
    val_share: float = 0.05,
    official: Literal["", "protodepth"] = "",
) -> Scan:
    """Virtual KITTI.  Test: Scene02; val: the last part of every other scene; train: frames with both neighbours.

    ``conditions``: comma-separated, default all ten.  ``patterns``: folder of KITTI ``velodyne_raw`` maps whose scan
    pattern is used; without it 64 scan lines.  Neighbours are kept if the camera moved 0.1-5 m.  ``poses``: give the
    exact poses; published runs use a pose network.  ``official="protodepth"``: as that script has it, the sky is a wall
    at 256 m that has sparse points, and no triplet is dropped for its motion.
    """
    wanted = CONDITIONS if conditions == "all" else tuple(c.strip() for c in conditions.split(","))
    unknown = [c for c in wanted if c not in CONDITIONS]
    if unknown:
        raise UnknownNameError("Virtual KITTI condition", unknown[0], CONDITIONS)
    sampler = sampler or (f"lidar_pattern:{patterns}" if patterns else "scan_lines:64")
    rule = (val_share, poses, (0.0, np.inf) if official else MOTION)
    splits = {part: partial(_split, root, wanted, part, rule) for part in SPLITS}
    version = _version(root)
    videos = len(wanted) * (2 if version == 2 else 1)  # of each scene: version 2 has two cameras
    options = {
        "version": version,
        "conditions": list(wanted),
        "sampler": sampler,
        "poses": poses,
        "val_share": val_share,
        "official": official,
    }
    return Scan(
        name="vkitti",
        reader=FrameReader(
            root=root,
            unit="cm",
            sampler=sampler,
            max_depth=MOST if official else FAR,
            far="clip" if official else "drop",
        ),
        rules=EvalRules(min_depth=0.001, max_depth=100.0, crop=(240, 1216)),
        splits=splits,
        expected={"test": FRAMES[TEST_SCENE] * videos},
        tally=lambda: {
            "frames of all scenes": (
                sum(len(video.images) for video in _videos(root, wanted)),
                sum(FRAMES.values()) * videos,
            )
        },
        options=options,
        derive=("sparse",),
    )


def _version(root: Path) -> int:
    if any(root.glob("Scene*")):
        return 2
    if any(root.glob("vkitti_1.3.1_rgb")):
        return 1
    raise DataError(f"{root} has neither Scene01 ... (version 2.0.3) nor vkitti_1.3.1_rgb: unpack the tars there")


SplitRule = tuple[
    float, bool, tuple[float, float]
]  # share of val, whether poses are given, motion of neighbours in metres


def _split(root: Path, conditions: tuple[str, ...], part: str, rule: SplitRule) -> Iterator[Entry]:
    val_share, poses, motion = rule
    for video in _videos(root, conditions):
        if (video.scene == TEST_SCENE) != (part == "test"):
            continue
        numbers = sorted(video.images)
        cut = len(numbers) - round(val_share * len(numbers)) if part != "test" else 0
        if part == "train":
            yield from _training(video, numbers[:cut], poses, motion)
        else:
            gap = 10 if part == "val" and cut < len(numbers) else 0
            yield from (_entry(video, n) for n in numbers[cut + gap :])


def _training(video: _Video, numbers: list[int], poses: bool, motion: tuple[float, float]) -> Iterator[Entry]:
    known = set(numbers)
    for n in numbers:
        around = (n - 1, n + 1)
        if not known.issuperset(around):
            continue
        moves = [cameras.relative_pose(video.poses[n], video.poses[m]) for m in around]
        if all(motion[0] <= np.linalg.norm(m[:3, 3]) <= motion[1] for m in moves):
            entry = {**_entry(video, n), "neighbours": [video.images[m] for m in around]}
            yield {**entry, "poses": [m.ravel().tolist() for m in moves]} if poses else entry


def _entry(video: _Video, n: int) -> Entry:
    K = video.K[n].ravel().tolist()
    return {
        "id": f"{video.name}/{n:05d}",
        "image": video.images[n],
        "dense": video.depths[n],
        "truth": video.depths[n],
        "K": K,
    }


def _videos(root: Path, conditions: tuple[str, ...]) -> Iterator[_Video]:
    if _version(root) == 1:
        yield from _videos_v1(root, conditions)
        return
    for scene in sorted(root.glob("Scene*")):
        for condition in conditions:
            folder = scene / condition
            if folder.is_dir():
                yield from (_video_v2(root, folder, camera) for camera in (0, 1))


def _video_v2(root: Path, folder: Path, camera: int) -> _Video:
    pictures = sorted((folder / "frames" / "rgb" / f"Camera_{camera}").glob("rgb_*.jpg"))
    numbers = [int(p.stem[4:]) for p in pictures]
    base = folder.relative_to(root).as_posix()
    calibration = {
        row[0]: cameras.intrinsics_matrix(row[2:6]) for row in _read_table(folder / "intrinsic.txt") if row[1] == camera
    }
    world = {row[0]: np.reshape(row[2:18], (4, 4)) for row in _read_table(folder / "extrinsic.txt") if row[1] == camera}
    missing = [n for n in numbers if n not in calibration or n not in world]
    if missing:
        raise DataError(f"{folder}: frame {missing[0]} of camera {camera} is not in intrinsic.txt or extrinsic.txt")
    return _Video(
        folder.parent.name[5:],
        f"{base}/Camera_{camera}",
        {n: f"{base}/frames/rgb/Camera_{camera}/rgb_{n:05d}.jpg" for n in numbers},
        {n: f"{base}/frames/depth/Camera_{camera}/depth_{n:05d}.png" for n in numbers},
        {n: calibration[n] for n in numbers},
        {n: cameras.inverse(cameras.placed(world[n], folder / "extrinsic.txt")) for n in numbers},
    )


def _videos_v1(root: Path, conditions: tuple[str, ...]) -> Iterator[_Video]:
    for world in sorted(p for p in (root / "vkitti_1.3.1_rgb").iterdir() if p.is_dir()):
        for condition in conditions:
            numbers = [int(p.stem) for p in sorted((world / condition).glob("*.png"))]
            if not numbers:
                continue
            place = f"{world.name}/{condition}"
            table = root / "vkitti_1.3.1_extrinsicsgt" / f"{world.name}_{condition}.txt"
            stored = {int(row[0]): np.reshape(row[1:17], (4, 4)) for row in _read_table(table)}
            poses = {n: cameras.inverse(cameras.placed(pose, table)) for n, pose in stored.items()}
            yield _Video(
                world.name[2:],
                place,
                {n: f"vkitti_1.3.1_rgb/{place}/{n:05d}.png" for n in numbers},
                {n: f"vkitti_1.3.1_depthgt/{place}/{n:05d}.png" for n in numbers},
                dict.fromkeys(numbers, K_V1),
                poses,
            )


def _read_table(path: Path) -> list[list[float]]:
    """The numbers of a text table with a header line."""
    try:
        lines = read_text(path).splitlines()[1:]
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): it comes in the textgt tar") from None
    try:
        return [[number(w) for w in line.split()] for line in lines if line.strip()]
    except ValueError as error:
        raise DataError(f"{path}: {error}") from None
