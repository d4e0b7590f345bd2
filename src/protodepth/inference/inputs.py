"""Frames to complete, wherever they are: one picture, a folder, a video, a recording or any dataset.

A frame that cannot be read becomes a ``Failure`` with its reason, so that one bad file does not stop the others.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data import arrays
from protodepth.data.files import cameras, images
from protodepth.data.files.names import by_number
from protodepth.data.frame import Frame, FrameDataset, evenly
from protodepth.errors import ConfigError, DataError, ProtoDepthError
from protodepth.inference.memory import check_size
from protodepth.types import Batch

VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg")


@dataclass(frozen=True, slots=True)
class Failure:
    """A frame to complete that could not be read, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Source:
    """Frames to complete, ``total`` of them, read one after the other; ``notes`` say what was decided on the way.

    ``items`` takes the numbers of the frames to read, without those before: several processes read a part each.
    """

    total: int
    notes: tuple[str, ...]
    items: Callable[[range], Iterator[Frame | Failure]]
    frames: FrameDataset | None = None  # of a recording, by number: to judge on some of them
    unit: str | None = None  # that a user's depth was read as; None: a dataset, whose reader knows it
    sequential: bool = False  # a video: what is in its middle is reached through all before

    def __iter__(self) -> Iterator[Frame | Failure]:
        return self.items(range(self.total))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFrame(Frame):
    """A frame whose arrays have passed every check, with the tensors that the checks made of them."""

    batch: Batch


def checked(frame: Frame) -> CheckedFrame:
    """A frame to complete with its arrays checked: it has its batch with it."""
    if isinstance(frame, CheckedFrame):
        return frame
    batch = arrays.to_batch(frame.image, frame.sparse_depth, frame.intrinsics)
    return CheckedFrame(**{f.name: getattr(frame, f.name) for f in fields(frame)}, batch=batch)


def _frame_or_failure(name: str, read: Callable[[], Frame]) -> CheckedFrame | Failure:
    try:
        return checked(read())
    except ProtoDepthError as error:
        return Failure(name, str(error))


def unit_of_files(
    paths: Sequence[Path], unit: str | None, depth_range: tuple[float, float]
) -> tuple[str, str, dict[Path, np.ndarray]]:
    """For ``predict``: the unit of sparse depth files, a line on how it is known, and the maps read for that."""
    if unit is not None:
        images.unit_scale(unit)
        return unit, f"sparse depth read as {unit}", {}
    maps: dict[Path, np.ndarray] = {}
    faults: list[DataError] = []
    for path in paths:
        try:
            maps[path] = images.raw_depth(path, check_size)
        except DataError as error:
            faults.append(error)  # reported when the frame's turn comes
    if not maps:
        raise faults[0]
    summary = images.summarise_maps(list(maps.values()), f"first: {next(iter(maps))}")
    guess, why = images.guess_unit(summary, depth_range)
    return guess, f"sparse depth read as {guess}: {why}", maps


class Calibration:
    """K for every frame: numbers, one file, or a folder with a file for each frame."""

    def __init__(self, text: str) -> None:
        self.table = images.files_by_id(Path(text), cameras.INTRINSICS_SUFFIXES) if Path(text).is_dir() else None
        self.matrix = cameras.parse_intrinsics(text) if self.table is None else None

    def __call__(self, name: str, size: tuple[int, int]) -> np.ndarray:
        if self.matrix is not None:
            K = self.matrix
        elif self.table is not None and name in self.table:
            K = cameras.read_intrinsics(self.table[name])
        else:
            raise DataError(f"there are no intrinsics for frame {name!r}")
        fault = cameras.intrinsics_fault(K, size)
        if fault:
            raise DataError(f"intrinsics: {fault}")
        return K


@dataclass(frozen=True, slots=True, kw_only=True)
class Maps:
    """Sparse depth files by frame, with their unit and calibration: what turns a picture into a Frame."""

    files: Mapping[str, Path]
    unit: str
    calibration: Calibration
    read: dict[Path, np.ndarray] = field(default_factory=dict)  # stored numbers of some, each handed out once

    def unit_of(self, path: Path) -> str:
        """What a file is read as: fractions in arrays are metres, whatever was said of the pictures."""
        return "metres" if path.suffix in images.ARRAY_SUFFIXES else self.unit

    def frame(self, name: str, picture: np.ndarray) -> Frame:
        if name not in self.files:
            raise DataError(f"there is no sparse depth for frame {name!r}")
        path = self.files[name]
        raw = self.read.pop(path) if path in self.read else images.raw_depth(path, check_size)
        points = images.read_depth(path, self.unit, raw=raw)
        size = (picture.shape[0], picture.shape[1])
        fault = arrays.size_fault((points.shape[0], points.shape[1]), size)
        if fault:  # said before the intrinsics, which would not fit such a picture either
            raise DataError(f"sparse depth {fault}")
        K = self.calibration(name, size)
        return Frame(image=picture, sparse_depth=points, intrinsics=K, name=name)


def open_files(
    image: Path, sparse: Path, intrinsics: str, *, unit: str | None, depth_range: tuple[float, float]
) -> Source:
    """A picture, a folder of pictures or a video, with a sparse map or a folder of them."""
    for path in (image, sparse):
        if not path.exists():
            raise DataError(f"{path} does not exist")
    calibration = Calibration(intrinsics)
    video = image.suffix.lower() in VIDEO_SUFFIXES
    if sparse.is_dir() != (image.is_dir() or video):
        raise DataError(
            f"--image {image} and --sparse {sparse}: give two files, two folders, or a video and a folder of maps"
        )
    if not sparse.is_dir():
        name = image.stem
        map_unit, why, read = unit_of_files([sparse], unit, depth_range)
        maps = Maps(files={name: sparse}, unit=map_unit, calibration=calibration, read=read)
        return Source(
            1,
            (why,),
            lambda numbers: (
                _frame_or_failure(name, lambda: maps.frame(name, images.read_image(image, check_size))) for _ in numbers
            ),
            unit=maps.unit_of(sparse),
        )
    files = images.files_by_id(sparse, images.DEPTH_SUFFIXES)
    if not files:
        raise DataError(f"{sparse} holds no depth maps: expected <frame>.png (16 bit) or <frame>.npy")
    some = [list(files.values())[i] for i in evenly(len(files), 8)]
    map_unit, why, read = unit_of_files(some, unit, depth_range)
    maps = Maps(files=files, unit=map_unit, calibration=calibration, read=read)
    return _open_video(image, maps, why) if video else _open_folder(image, maps, why)


def _open_folder(folder: Path, maps: Maps, why: str) -> Source:
    """Pictures and maps belong together by name."""
    pictures = images.files_by_id(folder, images.IMAGE_SUFFIXES)
    joined = by_number(maps.files, pictures)
    why += "; they are joined to the pictures by number" if joined.keys() != maps.files.keys() else ""
    maps = replace(maps, files=joined)
    both = pictures.keys() & maps.files.keys()
    if not both:
        raise DataError(
            f"no picture in {folder} ({len(pictures)} files) has a sparse map of its name ({len(maps.files)} files): "
            "frame 7.png belongs to 7.png or 7.npy, rgb_7.png to depth_7.png"
        )
    lonely = len(maps.files) - len(both)
    notes = (why, f"{lonely} sparse maps have no picture and are left out") if lonely else (why,)

    names = list(pictures)

    def items(numbers: range) -> Iterator[Frame | Failure]:
        for number in numbers:
            name = names[number]
            yield _frame_or_failure(name, lambda: maps.frame(name, images.read_image(pictures[name], check_size)))  # noqa: B023  called at once

    return Source(len(pictures), notes, items, unit=maps.unit_of(next(iter(maps.files.values()))))


def frame_numbers(names: Sequence[str]) -> dict[int, str]:
    """Which map belongs to which frame of a video: the last number in its name, counted from 0;
    without numbers their order.

    >>> frame_numbers(["f_0002", "f_0007"])
    {2: 'f_0002', 7: 'f_0007'}
    """
    digits = [re.findall(r"\d+", name) for name in names]
    numbers = [int(run[-1]) for run in digits if run]
    return dict(zip(numbers if len(set(numbers)) == len(names) else range(len(names)), names, strict=True))


def _open_video(path: Path, maps: Maps, why: str) -> Source:
    """Frames of a video that have a sparse map, in order; the others are passed over."""
    try:
        import cv2
    except ImportError:
        raise ConfigError("reading a video needs OpenCV: pip install 'protodepth[data]'") from None
    names = dict(sorted(frame_numbers(list(maps.files)).items()))
    capture = cv2.VideoCapture(str(path))
    count, opened = int(capture.get(cv2.CAP_PROP_FRAME_COUNT)), capture.isOpened()
    capture.release()
    if not opened:
        raise DataError(f"{path} cannot be opened as a video: is it complete, and its codec known to OpenCV?")
    note = f"{path.name}: {count} frames, {len(names)} of them with a sparse map (frames are counted from 0)"

    def items(numbers: range) -> Iterator[Frame | Failure]:
        left = dict(list(names.items())[numbers.start : numbers.stop])
        reader = cv2.VideoCapture(str(path))
        try:
            number = 0
            while left and reader.grab():
                if number in left:
                    name = left.pop(number)
                    fine, picture = reader.retrieve()
                    yield (
                        _frame_or_failure(name, lambda: maps.frame(name, np.ascontiguousarray(picture[..., ::-1])))  # noqa: B023
                        if fine
                        else Failure(name, f"{path}: frame {number} cannot be decoded")
                    )
                number += 1
            yield from (Failure(name, f"{path} ends before frame {n}") for n, name in left.items())
        finally:
            reader.release()

    unit = maps.unit_of(next(iter(maps.files.values())))
    return Source(len(names), (why, note), items, unit=unit, sequential=True)


def open_data(
    argument: str, *, split: str = "test", unit: str | None = None, depth_range: tuple[float, float] | None = None
) -> Source:
    """Frames to complete from data: all of a recording, or one split of another argument such as ``worlds:street``."""
    from protodepth.data.arguments import open_domain, parse_argument
    from protodepth.data.recording.open import DEFAULT_SAMPLER, Recording

    kind, rest = parse_argument(argument)
    if kind != "recording":
        data = open_domain(argument, **({"depth_unit": unit} if unit else {})).split(split)
        return Source(len(data), (), lambda numbers: _dataset(data, numbers))
    given: dict[str, Any] = {"depth_unit": unit} if unit else {}
    recording = Recording.open(rest, depth_range=depth_range, **given)
    faults = recording.layout.faults
    # The holes that judge are not cut where depth is wanted; a sampler that the user chose is his input.
    frames = recording.whole() if recording.settings.sampler == DEFAULT_SAMPLER else recording

    def items(numbers: range) -> Iterator[Frame | Failure]:
        yield from [Failure(name, reason) for name, reason in faults.items()][numbers.start : numbers.stop]
        first, last = (max(0, number - len(faults)) for number in (numbers.start, numbers.stop))
        yield from _dataset(frames, range(first, last))

    return Source(len(recording) + len(faults), recording.notes, items, frames, unit=recording.unit)


def _dataset(data: FrameDataset, numbers: range) -> Iterator[Frame | Failure]:
    for index in numbers:
        yield _frame_or_failure(f"frame {index}", lambda: data[index])  # noqa: B023  called at once


def in_batches(source: Source, size: int, numbers: range | None = None) -> Iterator[list[Frame] | Failure]:
    """Consecutive frames of one picture size, at most ``size`` together; failures in their place.

    A batch never reaches over a multiple of ``size``, so that processes which begin there make the same batches:
    a batch of another size may have other last bits.
    """
    numbers = range(source.total) if numbers is None else numbers
    group: list[Frame] = []
    for number, item in zip(numbers, source.items(numbers), strict=True):
        other = isinstance(item, Failure) or (group and item.image.shape[:2] != group[0].image.shape[:2])
        if group and (number % size == 0 or other):
            yield group
            group = []
        if isinstance(item, Failure):
            yield item
        else:
            group.append(item)
    if group:
        yield group
