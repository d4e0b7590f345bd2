"""A user's own recording: a folder of images, depth and intrinsics becomes a Domain.

my_recording/
  image/<id>.{png,jpg}                    any size
  sparse/<id>.{png,npy}                   or depth/ (dense), with holes or thinned by a sampler
  intrinsics.txt                          or .json, .yaml (ROS camera_info), .npy, or intrinsics/<id>.* per frame
  poses.txt                               optional: camera-to-world, 16 numbers a line
  ground_truth/<id>.{png,npy}             optional
  recording.toml                          optional: every field of ``Settings``
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data.arguments import datasets, split_query
from protodepth.data.entries import Entry, EntryFrames, EntryTable, FrameReader, digest
from protodepth.data.files import cameras
from protodepth.data.files import images as image_files
from protodepth.data.frame import Domain, EvalRules, Frame, evenly, time_blocks
from protodepth.data.recording import motion
from protodepth.data.recording.layout import Layout, find_faults, find_layout, find_unit
from protodepth.data.recording.settings import Settings, read_settings
from protodepth.errors import DataError
from protodepth.registry import Registry

logger = logging.getLogger("protodepth")

DEFAULT_SAMPLER = "holes"  # what a depth camera leaves to do
SPARSE_DENSITY = 0.15  # fewer pixels with a value than this: a depth map is sparse


@dataclass(frozen=True, slots=True)
class Recording:
    """An opened recording: its files, its settings with nothing left open, and what was decided on the way.

    ``len`` and ``[i]`` give every usable frame in the order of time, without neighbours; ``domain()`` splits it.
    """

    layout: Layout
    settings: Settings
    stride: int
    still: np.ndarray  # per frame: no parallax to either neighbour
    notes: tuple[str, ...]
    reader: FrameReader
    unit: str  # that depth was read in: fractions are metres, whatever is declared of whole numbers
    _listed: list[EntryFrames] = field(default_factory=list)  # made when somebody asks for a frame

    @classmethod
    def open(cls, path: str | Path, *, depth_range: tuple[float, float] | None = None, **given: Any) -> "Recording":
        """Open a folder.  ``given`` are fields of Settings and win over ``folder?field=value`` and recording.toml."""
        place, query = split_query(str(path))
        folder = Path(place)
        given = {**query, **{k: v for k, v in given.items() if v is not None}}
        settings = read_settings(folder, **given)
        return cls.from_layout(find_layout(folder, settings), settings, depth_range=depth_range)

    @classmethod
    def from_layout(
        cls, layout: Layout, settings: Settings, *, depth_range: tuple[float, float] | None = None
    ) -> "Recording":
        """Decide what the settings leave open: bad frames, unit, sampler, stride, frames that stand still."""
        layout = find_faults(layout, settings.exclude)
        usable = [i for i in layout.ids if i not in layout.faults]
        if not usable:
            raise DataError(f"{layout.root}: every frame is excluded: look at exclude in recording.toml")
        _check_calibration(layout, usable[0])
        summary = image_files.summarise([layout.depths[usable[i]] for i in evenly(len(usable), 8)])
        layout, density_notes = _sparse_or_dense(layout, settings, summary.density)
        notes = [*layout.notes, *density_notes]
        settings, more = _settle(layout, settings, summary, depth_range)
        unit = "metres" if summary.floating else settings.depth_unit or "metres"
        stride, still, how = decide_motion(layout, settings, summary.middle / image_files.unit_scale(unit))
        reader = FrameReader(
            root=layout.root,
            unit=settings.depth_unit or "metres",
            truth_unit=settings.truth_unit,
            sampler=settings.sampler,
            seed=settings.seed,
            withhold=settings.withhold,
            truth_without_input=layout.dense,
            without_largest=True,
        )
        return cls(layout, settings, stride, still, (*notes, *more, how), reader, unit)

    @property
    def everything(self) -> EntryFrames:
        """Every usable frame."""
        if not self._listed:
            ids = [i for i in self.layout.ids if i not in self.layout.faults]
            self._listed.append(EntryFrames(EntryTable.pack(_entry(self.layout, i) for i in ids), self.reader))
        return self._listed[0]

    def __len__(self) -> int:
        return len(self.layout.ids) - sum(i in self.layout.faults for i in self.layout.ids)

    def __getitem__(self, index: int) -> Frame:
        return self.everything[index]

    def whole(self) -> EntryFrames:
        """Every usable frame with all of its measured depth: as it is completed, not as it is judged."""
        layout = replace(self.layout, dense=False)
        ids = [i for i in layout.ids if i not in layout.faults]
        return EntryFrames(EntryTable.pack(_entry(layout, i) for i in ids), self.reader)

    def domain(self) -> Domain:
        """Blocks of time for train, val and test with a gap between them, so that no view is in two of them."""
        blocks, split = self._blocks()
        reader = self.reader
        train = EntryFrames(EntryTable.pack(self._training(blocks[0])), reader)
        val, test = (EntryFrames(EntryTable.pack(self._plain(block)), reader) for block in blocks[1:])
        return Domain(
            name=self.settings.name or self.layout.root.resolve().name,
            train=train,
            val=val,
            test=test,
            rules=EvalRules(min_depth=self.settings.min_depth, max_depth=self.settings.max_depth),
            identity={
                "dataset": "recording",
                **reader.describe(),
                "unit": self.unit,
                "stride": self.stride,
                "frames": {"all": len(self.layout.ids), "train": len(train), "val": len(val), "test": len(test)},
                "skipped": {"bad": len(self.layout.faults), "still": int(self.still[blocks[0]].sum())},
                "split": split,
                "entries": digest(train, val, test),
                "notes": self.notes,
            },
        )

    def _blocks(self) -> tuple[list[range], str]:
        count = len(self.layout.ids)
        if count < 10:
            logger.warning(
                "%s has %d frames, too few to split: train, val and test share them", self.layout.root, count
            )
            return [range(count)] * 3, "none (fewer than 10 frames)"
        shares = np.cumsum(self.settings.splits) / sum(self.settings.splits)
        gap = self.settings.gap
        gap = max(2 * self.stride, round(0.02 * count)) if gap is None else gap
        blocks = list(time_blocks(count, gap, shares.tolist()).values())
        return blocks, f"time blocks {self.settings.splits}, gap {gap} frames"

    def _plain(self, block: range) -> list[Entry]:
        ids = [self.layout.ids[i] for i in block]
        return [_entry(self.layout, i) for i in ids if i not in self.layout.faults]

    def _training(self, block: range) -> list[Entry]:
        entries = []
        for i in block:
            trio = [i - self.stride, i, i + self.stride]
            usable = trio[0] in block and trio[2] in block and not (self.settings.skip_static and self.still[i])
            if usable and not self.layout.faults.keys() & {self.layout.ids[j] for j in trio}:
                entry = self._with_neighbours(i, trio)
                entries += [entry] if entry else []
        return entries

    def _with_neighbours(self, i: int, trio: Sequence[int]) -> Entry | None:
        around = (trio[0], trio[2])
        images = [_relative(self.layout.images[self.layout.ids[j]], self.layout.root) for j in around]
        entry = {**_entry(self.layout, self.layout.ids[i]), "neighbours": images}
        poses = self.layout.poses
        if poses is not None:
            if not np.isfinite(poses[list(trio)]).all():
                return None
            entry["poses"] = [cameras.relative_pose(poses[i], poses[j]).ravel().tolist() for j in around]
        return entry


def _relative(path: Path, root: Path) -> str:
    """From the recording's folder; recording.toml may also name folders elsewhere."""
    text, inside = str(path), f"{root}{os.sep}"
    if text.startswith(inside):  # the usual case, for each of thousands of files
        return text.removeprefix(inside).replace(os.sep, "/")
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path.resolve())


def _entry(layout: Layout, frame: str) -> Entry:
    entry: Entry = {"id": frame, "image": _relative(layout.images[frame], layout.root)}
    entry["K"] = layout.calibration(frame).ravel().tolist()
    entry["dense" if layout.dense else "sparse"] = _relative(layout.depths[frame], layout.root)
    if frame in layout.truths:
        entry["truth"] = _relative(layout.truths[frame], layout.root)
    return entry


def _check_calibration(layout: Layout, frame: str) -> None:
    fault = cameras.intrinsics_fault(layout.calibration(frame), image_files.image_size(layout.images[frame]))
    if fault:
        raise DataError(f"{layout.calibration_file(frame)}: {fault}")


def _sparse_or_dense(layout: Layout, settings: Settings, density: float) -> tuple[Layout, list[str]]:
    """A ``depth/`` folder of sparse maps (one LiDAR sweep) is input as it is, unless a sampler was asked for."""
    if not layout.dense or settings.sampler is not None or density >= SPARSE_DENSITY:
        return layout, []
    note = f"{settings.depth}/ has a value at {density:.1%} of the pixels and is read as sparse depth"
    logger.warning("%s: %s", layout.root, note)
    return replace(layout, dense=False), [note]


def _settle(
    layout: Layout, settings: Settings, summary: image_files.DepthSummary, depth_range: tuple[float, float] | None
) -> tuple[Settings, list[str]]:
    """Fill in the unit and the sampler where nothing was said, and say it aloud."""
    chosen: dict[str, Any] = {}
    notes = []
    if settings.depth_unit is None:
        chosen["depth_unit"], why = find_unit(layout, summary, depth_range)
        notes.append(f"depth unit not declared, read as {chosen['depth_unit']}: {why}")
    if layout.dense and settings.sampler is None:
        chosen["sampler"] = DEFAULT_SAMPLER
        notes.append(
            f"{settings.depth}/ is read as dense depth and completed where it has holes (more are cut into it to "
            "judge); "
            'sampler = "harris:1500" thins it to points instead'
        )
    for note in notes:
        logger.warning("%s: %s", layout.root, note)
    return (Settings(**{**asdict(settings), **chosen}) if chosen else settings), notes


def decide_motion(layout: Layout, settings: Settings, depth: float) -> tuple[int, np.ndarray, str]:
    """(stride, which frames stand still, how the stride was chosen) of a scene about ``depth`` metres away."""
    first = next(i for i in layout.ids if i not in layout.faults)
    height, width = image_files.image_size(layout.images[first])
    focal = layout.calibration(first)[0, 0] / width
    poses = layout.poses
    if poses is not None:
        if settings.stride:
            stride, shares = settings.stride, motion.overlap(poses, settings.stride, focal, height / width, depth)
        else:
            stride, shares = motion.choose_stride(poses, focal, depth, height / width)
        known = [share for share in shares if np.isfinite(share)]
        how = "given" if settings.stride else f"from the poses, for {motion.TARGET:.0%} of the width parallax"
        shared = f"; neighbours share {np.median(known):.0%} of their view" if known else ""
        note = f"stride {stride} {how}{shared}"
        return stride, motion.still_by_pose(poses, stride, focal, depth), note
    asked = settings.stride or (max(1, round(settings.fps / 10)) if settings.fps else None)
    if asked and not settings.skip_static:
        return asked, np.zeros(len(layout.ids), bool), f"stride {asked} given"
    pictures = motion.thumbnails([None if i in layout.faults else layout.images[i] for i in layout.ids])
    stride = asked or motion.stride_by_image(pictures)
    how = "given" if settings.stride else "from fps (0.1 s)" if settings.fps else "from the pictures (no poses, no fps)"
    still = motion.still_by_image(pictures, stride) if settings.skip_static else np.zeros(len(layout.ids), bool)
    return stride, still, f"stride {stride} {how}"


def load_recording(
    path: str | Path,
    *,
    depth_unit: str | None = None,
    sampler: str | None = None,
    stride: int | None = None,
    withhold: float | None = None,
    depth_range: tuple[float, float] | None = None,
) -> Domain:
    """A recording folder as a Domain: train frames with neighbours (and poses if given),
    val and test from later blocks.

    ``depth_unit``: kitti | mm | cm | tum | metres; None = recording.toml, else guessed and said aloud (an error where
    the guess is not safe).  ``sampler``: for dense ``depth/``, e.g. "harris:1500".  ``stride``: frames between
    neighbours.  ``withhold``: seeded share of the sparse points taken out of the input and given as ground truth where
    a frame has none.  ``depth_range``: the model's, which helps the guess.  ``domain.identity`` holds every decision
    and the counts of frames left out.
    """
    given = {"depth_unit": depth_unit, "sampler": sampler, "stride": stride, "withhold": withhold}
    return Recording.open(path, depth_range=depth_range, **given).domain()


@datasets.register("recording")
def _source(argument: str, **options: Any) -> Domain:
    return load_recording(argument, **options)


LayoutReader = Callable[[Path, Mapping[str, Any]], tuple[Layout, Settings]]
layouts: Registry[LayoutReader] = Registry("layout")


def register_layout(name: str) -> Callable[[LayoutReader], LayoutReader]:
    """Register ``read(folder, values)`` of another layout of a recording's files: as the data source
    ``name:folder?field=value``, and for ``data check``, which looks at it as at a recording.
    """

    def add(read: LayoutReader) -> LayoutReader:
        layouts.register(name)(read)
        datasets.register(name)(partial(_open_layout, name))
        return read

    return add


def read_layout(name: str, argument: str, **options: Any) -> tuple[Layout, Settings]:
    """The files and settings that ``name:argument`` means."""
    place, query = split_query(argument)
    folder = Path(place)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: give the folder of one {name} sequence")
    given = {k: v for k, v in options.items() if v is not None}
    return layouts.get(name)(folder, {**query, **given})


def _open_layout(name: str, argument: str, **options: Any) -> Domain:
    return Recording.from_layout(*read_layout(name, argument, **options)).domain()
