"""ScanNet v2: handheld RGB-D scans of rooms, from the .sens files or from folders that their readers exported.

``scans/<scene>/<scene>.sens``; or ``<scene>[/export]`` with ``{color,depth,pose,intrinsic}/`` (SensReader in Python),
with ``frame-000000.{color.jpg,depth.pgm,pose.txt}`` and ``_info.txt`` (in C++), or with ``{color,depth,pose}/`` and
``intrinsics_color.txt`` (scannet_frames_25k, every hundredth frame); ``scans_test`` and ``scannet_frames_test``
likewise.  Colour is reduced to 640x480 and both are cut to 448x608 around the centre; depth is in millimetres.
"""

import contextlib
import io
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np

from protodepth.data.entries import Entry, FrameReader
from protodepth.data.files import cameras
from protodepth.data.files import images as image_files
from protodepth.data.files.text import read_text
from protodepth.data.manifest import INDOOR, Scan, held_out, register_scan
from protodepth.errors import DataError
from protodepth.types import Float

SIZE = (480, 640)
CROP = (16, 16, 448, 608)
TOPS = {"scans": ("scans", "scannet_frames_25k", "."), "scans_test": ("scans_test", "scannet_frames_test")}
APART = 20  # frames between the pictures of a selection that is no video
SCANS = {"scans": 1513, "scans_test": 100}
MIN_POINTS = {"train": 800, "val": 100, "test": 100}


@dataclass(frozen=True, slots=True)
class SensFrame:
    """Where one frame lies in a .sens file."""

    pose: np.ndarray
    colour: tuple[int, int]  # offset, bytes
    depth: tuple[int, int]


@dataclass(frozen=True, slots=True)
class SensFile:
    """The header of a .sens file (version 4) and the place of each frame; pixels are not read."""

    intrinsics: np.ndarray  # of the colour camera, for colour_size
    colour_size: tuple[int, int]  # height, width
    depth_size: tuple[int, int]
    depth_shift: float  # stored depth / shift = metres
    frames: tuple[SensFrame, ...]


def read_sens(path: Path) -> SensFile:
    """Walk through the file by its sizes.  Little endian throughout."""
    with path.open("rb") as file:
        try:
            return _read_sens(file, path)
        except (struct.error, OverflowError):
            raise DataError(f"{path} ends in the middle of a frame: the download is incomplete") from None


def _read_sens(file: BinaryIO, path: Path) -> SensFile:
    (version,) = _take(file, "<I")
    if version != 4:
        raise DataError(f"{path} has .sens version {version}, expected 4")
    (length,) = _take(file, "<Q")
    if length > path.stat().st_size:
        raise struct.error
    file.seek(length, io.SEEK_CUR)
    matrices = np.array(_take(file, "<64f")).reshape(4, 4, 4)  # colour K, colour extrinsic, depth K, depth extrinsic
    colour_codec, depth_codec, cw, ch, dw, dh = _take(file, "<iiIIII")
    if (colour_codec, depth_codec) != (2, 1):
        raise DataError(
            f"{path} has codecs {colour_codec}, {depth_codec}; only JPEG colour (2) and zlib depth (1) are read"
        )
    shift, count = _take(file, "<fQ")
    size = path.stat().st_size
    frames = tuple(_sens_frame(file, size) for _ in range(count))
    return SensFile(matrices[0, :3, :3], (ch, cw), (dh, dw), shift, frames)


def _sens_frame(file: BinaryIO, size: int) -> SensFrame:
    values = _take(file, "<16f4Q")
    colour, depth = values[18], values[19]
    start = file.tell()
    if start + colour + depth > size:
        raise struct.error
    file.seek(colour + depth, io.SEEK_CUR)
    return SensFrame(np.array(values[:16]).reshape(4, 4), (start, colour), (start + colour, depth))


def _take(file: BinaryIO, layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


@dataclass(frozen=True, slots=True)
class Sens:
    """Frames in .sens files: ``scene.sens#offset,bytes`` and ``scene.sens#offset,bytes,height,width,shift``."""

    def image_bytes(self, path: Path, inside: str) -> bytes:
        return _bytes(path, inside)

    def image(self, path: Path, inside: str) -> np.ndarray:
        data = _bytes(path, inside)
        return image_files.rgb_array(image_files.open_picture(io.BytesIO(data), f"{path}#{inside}"), str(path))

    def depth(self, path: Path, inside: str) -> Float[np.ndarray, "h w"]:
        _, _, height, width, shift = inside.split(",")
        try:
            most = 2 * int(height) * int(width)
            data = zlib.decompressobj().decompress(_bytes(path, inside), most + 1)  # not more than the picture has
            raw = np.frombuffer(data, "<u2").reshape(int(height), int(width))
        except (zlib.error, ValueError) as error:
            raise DataError(f"{path}#{inside}: depth cannot be unpacked ({error})") from None
        return raw.astype(np.float32) / np.float32(shift)


CONTAINER = Sens()


def _bytes(path: Path, inside: str) -> bytes:
    offset, length, *_ = inside.split(",")
    with path.open("rb") as file:
        file.seek(int(offset))
        return file.read(int(length))


@register_scan("scannet")
def scan_scannet(
    root: Path,
    *,
    sampler: str = "harris:1500",
    neighbours: int = 1,
    poses: bool = False,
    every: int = 10,
    val_share: float = 0.05,
    official: Literal["", "protodepth"] = "",
) -> Scan:
    """ScanNet.  Train: every 10th frame of ``scans``; test: every 10th of ``scans_test``; val: held-out rooms.

    ``sampler``: the paper says Harris, about 1500; UnCLe's script uses "fast:1500", ProtoDepth's
    "fast_protodepth:7500".  ``neighbours``: 1 frame of the 30 Hz video, as published, which is little parallax.
    ``poses``: give the scanner's poses and skip frames where it was lost; published runs use a pose network.
    ``official="protodepth"``: cy is scaled by the factor of x, about 1 px off, and training frames need 1100 points,
    as that script has it.
    """
    train, test = _scenes(root, "scans"), _scenes(root, "scans_test")
    rooms = {s: held_out(s.name.split("_")[0], val_share) for s in train}
    read = partial(_entries, root, slip=official == "protodepth")
    splits = {
        "train": partial(read, [s for s in train if not rooms[s]], every, neighbours, poses),
        "val": partial(read, [s for s in train if rooms[s]], every),
        "test": partial(read, test, every),
    }
    options: dict[str, object] = {
        "sampler": sampler,
        "neighbours": neighbours,
        "poses": poses,
        "every": every,
        "val_share": val_share,
    }
    options["official"] = official
    return Scan(
        name="scannet",
        reader=FrameReader(root=root, unit="mm", sampler=sampler, resize=SIZE, crop=CROP, container=CONTAINER),
        rules=INDOOR,
        splits=splits,
        tally=lambda: {"scans": (len(train), SCANS["scans"]), "test scans": (len(test), SCANS["scans_test"])},
        options=options,
        derive=("sparse",),
        min_points={**MIN_POINTS, **({"train": 1100} if official else {})},
        notes=_not_understood([*train, *test]),
    )


def _scenes(root: Path, name: str) -> list[Path]:
    """The scans of a part, below the first of its folders that is there; a folder of scans itself is training data."""
    tops = [root / top for top in TOPS[name] if any((root / top).glob("scene*"))]
    return sorted(p for p in tops[0].glob("scene*") if p.is_dir()) if tops else []


def _not_understood(scenes: list[Path]) -> tuple[str, ...]:
    """Scans that hold none of the forms, each with what it holds instead."""
    strange = [scene for scene in scenes if _form(scene) is None]
    if not strange:
        return ()
    names = [f"{s} ({', '.join(sorted(p.name for p in s.iterdir())[:4]) or 'empty'})" for s in strange[:5]]
    more = f" and {len(strange) - 5} more" if len(strange) > 5 else ""
    expected = "expected <scene>.sens, color/ and depth/, or frame-000000.color.jpg with _info.txt"
    return (f"{len(strange)} of {len(scenes)} scans are not understood: {', '.join(names)}{more}; {expected}",)


@dataclass(frozen=True, slots=True)
class _Video:
    """One scan as references: what the two forms have in common."""

    K: np.ndarray
    size: tuple[int, int]  # of the colour images
    names: list[str]
    images: list[str]
    depths: list[str]
    poses: list[np.ndarray]


def _scaled_calibration(K: np.ndarray, size: tuple[int, int], slip: bool = False) -> list[float]:
    """K after the resize to 640x480 and the crop: rows times the ratios of the sides, minus the corner.

    ``slip``: cy times the ratio of x, as in one published script.
    """
    factors = np.array([SIZE[1] / size[1], SIZE[0] / size[0], 1.0])[:, None]
    scaled = K * factors
    if slip:
        scaled[1, 2] = K[1, 2] * factors[0, 0]
    return (scaled - np.array([[0, 0, CROP[1]], [0, 0, CROP[0]], [0, 0, 0]])).ravel().tolist()


def _form(scene: Path) -> tuple[Literal["sens", "folders", "files"], Path] | None:
    """(which form a scan has, its file or folder)."""
    if (scene / f"{scene.name}.sens").exists():
        return "sens", scene / f"{scene.name}.sens"
    for folder in (scene, scene / "export", scene / "frames", scene / "sens"):
        if (folder / "color").is_dir() and (folder / "depth").is_dir():
            return "folders", folder
        if (folder / "_info.txt").is_file():
            return "files", folder
    return None


def _video(root: Path, scene: Path) -> _Video | None:
    form = _form(scene)
    if form is None:
        return None
    read = {"sens": _from_sens, "folders": _from_folder, "files": _from_files}
    return read[form[0]](root, form[1])


def _from_sens(root: Path, path: Path) -> _Video:
    s, ref = read_sens(path), path.relative_to(root).as_posix()
    tail = f"{s.depth_size[0]},{s.depth_size[1]},{s.depth_shift:g}"
    return _Video(
        s.intrinsics,
        s.colour_size,
        [str(i) for i in range(len(s.frames))],
        [f"{ref}#{f.colour[0]},{f.colour[1]}" for f in s.frames],
        [f"{ref}#{f.depth[0]},{f.depth[1]},{tail}" for f in s.frames],
        [f.pose for f in s.frames],
    )


def _from_folder(root: Path, folder: Path) -> _Video:
    colour = image_files.files_by_id(folder / "color", image_files.IMAGE_SUFFIXES)
    depth = image_files.files_by_id(folder / "depth", (".png",))
    names = [n for n in colour if n in depth]
    if not names:
        raise DataError(f"{folder} has no frame with both color/ and depth/")
    exported, selected = folder / "intrinsic" / "intrinsic_color.txt", folder / "intrinsics_color.txt"
    return _Video(
        cameras.read_intrinsics(selected if selected.exists() else exported),
        image_files.image_size(colour[names[0]]),
        names,
        [colour[n].relative_to(root).as_posix() for n in names],
        [depth[n].relative_to(root).as_posix() for n in names],
        [_pose(folder / "pose" / f"{n}.txt") for n in names],
    )


def _from_files(root: Path, folder: Path) -> _Video:
    """What the C++ reader writes: three files a frame, and the header of the .sens file as ``_info.txt``."""
    info = _read_info(folder / "_info.txt")
    shift = info["m_depthShift"][0]
    if shift != 1000:
        raise DataError(f"{folder}/_info.txt says {shift:g} steps a metre (m_depthShift), expected 1000")
    names = [p.name.removesuffix(".color.jpg") for p in sorted(folder.glob("frame-*.color.jpg"))]
    names = [n for n in names if (folder / f"{n}.depth.pgm").exists()]
    if not names:
        raise DataError(f"{folder} has no frame with both .color.jpg and .depth.pgm")
    inside = folder.relative_to(root).as_posix()
    return _Video(
        cameras.intrinsics_matrix(info["m_calibrationColorIntrinsic"], f"{folder}/_info.txt"),
        (int(info["m_colorHeight"][0]), int(info["m_colorWidth"][0])),
        [str(int(n.removeprefix("frame-"))) for n in names],
        [f"{inside}/{n}.color.jpg" for n in names],
        [f"{inside}/{n}.depth.pgm" for n in names],
        [_pose(folder / f"{n}.pose.txt") for n in names],
    )


def _read_info(path: Path) -> dict[str, list[float]]:
    """``name = numbers`` lines; those with words are left out."""
    pairs = [line.partition("=") for line in read_text(path).splitlines() if "=" in line]
    info: dict[str, list[float]] = {}
    for name, _, rest in pairs:
        with contextlib.suppress(DataError):
            info[name.strip()] = cameras.numbers_in(rest, str(path))
    wanted = ("m_depthShift", "m_calibrationColorIntrinsic", "m_colorHeight", "m_colorWidth")
    missing = [name for name in wanted if not info.get(name)]
    if missing:
        raise DataError(
            f"{path} has no {', '.join(missing)}: expected the header that the C++ reader of ScanNet writes"
        )
    return info


def _apart(names: list[str]) -> bool:
    """Whether the frames are a selection from a video, too far apart to be neighbours."""
    numbers = [int(n) for n in names if n.isdigit()]
    return len(numbers) > 1 and float(np.median(np.diff(sorted(numbers)))) >= APART


def _pose(path: Path) -> np.ndarray:
    """Camera-to-world; the tracker writes -inf when it is lost."""
    if not path.exists():
        return np.full((4, 4), np.nan)
    values = cameras.numbers_in(read_text(path), str(path))
    if len(values) != 16:
        raise DataError(f"{path} has {len(values)} numbers, expected 16 (4x4, row by row)")
    return np.reshape(values, (4, 4))


def _entries(
    root: Path, scenes: list[Path], thinning: int, neighbours: int = 0, poses: bool = False, *, slip: bool = False
) -> Iterator[Entry]:
    for scene in scenes:
        video = _video(root, scene)
        if video is None:
            continue
        K = _scaled_calibration(video.K, video.size, slip)
        apart = _apart(video.names)
        step, every = (0, 1) if apart else (neighbours, thinning)
        for i in range(step, len(video.names) - step, every):
            entry = {"id": f"{scene.name}/{video.names[i]}", "image": video.images[i], "dense": video.depths[i], "K": K}
            entry["truth"] = video.depths[i]
            around = (i - step, i + step)
            if poses and not all(cameras.pose_is_valid(video.poses[j]) for j in (i, *around)):
                continue
            if step:
                entry["neighbours"] = [video.images[j] for j in around]
            if step and poses:
                moves = [cameras.relative_pose(video.poses[i], video.poses[j]) for j in around]
                entry["poses"] = [m.ravel().tolist() for m in moves]
            yield entry
