"""Read every file of a recording, a list or a prepared dataset and report every fault at once."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.checkpoint import write_bytes
from protodepth.data import cameras, frames, motion
from protodepth.data.base import Domain, Frame, FrameDataset, split_query
from protodepth.data.layout import Layout, Settings, find_layout, find_unit, motion_pairs, read_settings, some_of
from protodepth.data.lists import read_lists
from protodepth.data.open import open_domain, parse_argument
from protodepth.data.recording import recording_options
from protodepth.errors import DataError, ProtoDepthError

ADVICE = {
    "layout": "see docs/own_data.md for the folders of a recording",
    "lists": "make the four lists again from one loop; a list ends at its first empty line",
    "unpaired": "every image needs a depth map with the same name",
    "truncated": "copy the file again",
    "8-bit depth": "export depth as 16-bit PNG or .npy; 256 levels cannot hold it",
    "size": "project or export depth at the image's size",
    "empty": "the map has no point: is the projection right, is the sensor on?",
    "nan": "NaN and infinity count as no point",
    "negative": "depth must be metres along the view, 0 = no point",
    "intrinsics": "give K in pixels of the stored images",
    "unit": "declare depth_unit in recording.toml",
    "static": "left out of training: no parallax",
    "pose": "poses must be camera-to-world with x right, y down, z forward, in metres",
    "unreadable": "see the message",
}
HARMLESS = ("static", "nan")
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, where, and what ``--fix`` would write into recording.toml for it."""

    kind: str  # a key of ADVICE
    where: str
    message: str
    fix: tuple[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """All faults of a dataset."""

    path: str
    frames: int
    faults: tuple[Fault, ...]
    notes: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """No fault besides those that are dealt with by themselves (NaN, static frames)."""
        return all(f.kind in HARMLESS for f in self.faults)

    def counts(self) -> dict[str, int]:
        return dict(Counter(f.kind for f in self.faults))

    def text(self, limit: int = 5) -> str:
        """A readable report: counts by kind, the first places of each, the advice."""
        lines = [
            f"{self.path}: {self.frames} frames read, {len(self.faults)} faults" + ("" if self.faults else ": all good")
        ]
        for kind, count in self.counts().items():
            lines.append(f"  {kind}: {count}  ({ADVICE[kind]})")
            places = [f for f in self.faults if f.kind == kind]
            lines += [f"    {f.where}: {f.message}" for f in places[:limit]]
            lines += [f"    ... and {count - limit} more"] if count > limit else []
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  fixed: {text}" for text in self.fixed]
        if not self.fixed and any(f.fix for f in self.faults):
            lines.append(
                "  --fix would write into recording.toml: "
                + ", ".join(sorted({f.fix[0] for f in self.faults if f.fix}))
            )
        return "\n".join(lines)


def check(path: str | Path, *, fix: bool = False, progress: Progress | None = None, **options: Any) -> CheckReport:
    """Check a recording folder, or any data argument such as ``lists:lists.toml`` or ``kitti:/data/kitti``.

    ``fix`` writes what is safe into the recording's recording.toml: the unit and the pose convention where the images prove
    them, and the frames to exclude.  No other file is touched; the old recording.toml is kept as recording.toml.bak.
    """
    argument = str(path)
    name, rest = parse_argument(argument)
    if name != "recording":
        return _check_source(argument, name, rest, progress, options)
    place, query = split_query(rest)
    options = {**recording_options(query), **options}
    report = _check_recording(Path(place), progress, options)
    return _fixed(Path(place), report, options) if fix else report


# --- any dataset ------------------------------------------------------------------------------------------------------


def _check_source(
    argument: str, name: str, rest: str, progress: Progress | None, options: dict[str, Any]
) -> CheckReport:
    if name == "lists":
        path = Path(rest) / "lists.toml" if Path(rest).is_dir() else Path(rest)
        wrong = [Fault("lists", str(path), why) for part in read_lists(path)[1].values() if (why := part.fault())]
        if wrong:
            return CheckReport(path=argument, frames=0, faults=tuple(wrong))
    try:
        domain = open_domain(argument, **options)
    except DataError as error:
        return CheckReport(path=argument, frames=0, faults=(Fault("unreadable", argument, str(error)),))
    return check_domain(domain, argument, progress)


def check_domain(domain: Domain, path: str = "", progress: Progress | None = None) -> CheckReport:
    """Read every frame of every split."""
    faults: list[Fault] = []
    total = 0
    for split in ("train", "val", "test"):
        data = domain.split(split)
        total += len(data)
        for found in _in_threads(partial(_check_number, data, split), range(len(data)), split, progress):
            faults += found
    notes = tuple(str(n) for n in domain.identity.get("notes", ()))
    known = domain.identity.get("counts", {}).items()
    if known:
        listed = ", ".join(f"{what} {pair['found']} of {pair['published']}" for what, pair in known)
        notes = (*notes, f"found of published: {listed}")
    return CheckReport(path=path or domain.name, frames=total, faults=tuple(faults), notes=notes)


def _in_threads(
    work: Callable[[Any], list[Fault]], items: Sequence[Any], what: str, progress: Progress | None
) -> Iterator[list[Fault]]:
    with ThreadPoolExecutor(4) as pool:
        for n, found in enumerate(pool.map(work, items), 1):
            if progress:
                progress(f"checking {what}", n, len(items))
            yield found


def _check_number(data: FrameDataset, split: str, number: int) -> list[Fault]:
    try:
        return check_frame(data[number], split)
    except ProtoDepthError as error:
        return [Fault(_kind_of(str(error)), f"{split} {number}", str(error))]


def _kind_of(message: str) -> str:
    words = {"8-bit": "8-bit depth", "truncated": "truncated", "its image": "size", "negative": "negative"}
    words["not divisible by 3"] = "size"
    return next((kind for word, kind in words.items() if word in message), "unreadable")


def check_frame(frame: Frame, split: str = "") -> list[Fault]:
    """Faults that show in the arrays of one frame."""
    where = f"{split} {frame.name}".strip()
    faults = []
    points = frame.sparse_depth > 0
    if not points.any():
        faults.append(Fault("empty", where, "the sparse depth map has no point"))
    wrong = cameras.intrinsics_fault(frame.intrinsics.astype(np.float64), (frame.image.shape[0], frame.image.shape[1]))
    if wrong:
        faults.append(Fault("intrinsics", where, wrong))
    if frame.ground_truth is not None:
        both = points & (frame.ground_truth > 0)
        ratio = float(np.median(frame.sparse_depth[both] / frame.ground_truth[both])) if both.sum() > 20 else 1.0
        if not 0.5 < ratio < 2:
            text = (
                f"sparse depth is {ratio:.3g} times the ground truth: mm read as /256 is 3.91, /256 read as mm is 0.256"
            )
            faults.append(Fault("unit", where, text))
    if frame.neighbours and all(_same(frame.image, n) for n in frame.neighbours):
        faults.append(Fault("static", where, "all neighbours show the same picture"))
    return faults


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    small = np.abs(a[::4, ::4].astype(np.float32) - b[::4, ::4].astype(np.float32))
    return bool(small.mean() < 255 * motion.STILL_GREY)


# --- recordings -------------------------------------------------------------------------------------------------------


def _check_recording(folder: Path, progress: Progress | None, options: dict[str, Any]) -> CheckReport:
    try:
        settings = read_settings(folder, **options)
        layout = find_layout(folder, settings)
    except DataError as error:
        return CheckReport(path=str(folder), frames=0, faults=(Fault("layout", str(folder), str(error)),))
    layout = replace(layout, faults=dict.fromkeys(settings.exclude, "excluded in recording.toml"))
    ids = [i for i in layout.ids if i not in layout.faults]
    faults = list(_unpaired(layout))
    for found in _in_threads(partial(_check_files, layout), ids, folder.name, progress):
        faults += found
    bad = {f.where for f in faults if f.kind != "nan"}
    layout = replace(layout, faults={**layout.faults, **dict.fromkeys(bad, "bad")})
    notes = [f"{len(bad)} of {len(layout.ids)} frames are bad"] if bad else []
    good = [i for i in layout.ids if i not in layout.faults]
    if good:
        more, said = _check_whole(layout, settings, good)
        faults += more
        notes += said
    return CheckReport(path=str(folder), frames=len(ids), faults=tuple(faults), notes=tuple(notes))


def _unpaired(layout: Layout) -> Iterable[Fault]:
    for name in layout.depths:
        if name not in layout.images:
            yield Fault("unpaired", layout.depths[name].name, "is a depth map without an image")
    for name in layout.truths:
        if name not in layout.images:
            yield Fault("unpaired", layout.truths[name].name, "is a ground truth map without an image")


def _check_files(layout: Layout, frame: str) -> list[Fault]:
    """Read the image, the depth and the ground truth of one frame completely."""
    exclude = ("exclude", frame)
    if frame not in layout.depths:
        return [Fault("unpaired", frame, "has no depth map", exclude)]
    faults = []
    try:
        size = frames.read_image(layout.images[frame]).shape[:2]
        wrong = cameras.intrinsics_fault(layout.calibration(frame), (size[0], size[1]))
        if wrong:
            faults.append(Fault("intrinsics", frame, wrong))
        for what, table in (("depth", layout.depths), ("ground truth", layout.truths)):
            if frame in table:
                faults += _check_map(frame, what, frames.raw_depth(table[frame]), (size[0], size[1]))
    except DataError as error:
        faults.append(Fault(_kind_of(str(error)), frame, str(error), exclude))
    except KeyError:
        faults.append(Fault("intrinsics", frame, "has no intrinsics file", exclude))
    return faults


def _check_map(frame: str, what: str, raw: np.ndarray, size: tuple[int, int]) -> list[Fault]:
    exclude = ("exclude", frame)
    if raw.shape != size:
        text = f"{what} has shape {raw.shape}, its image {size}"
        return [Fault("size", frame, text, exclude)]
    faults = []
    if raw.dtype.kind == "f" and not np.isfinite(raw).all():
        faults.append(Fault("nan", frame, f"{what} has {int((~np.isfinite(raw)).sum())} NaN or infinite values"))
    values = np.nan_to_num(raw, nan=0.0, posinf=0.0, neginf=0.0)
    if (values < 0).any():
        faults.append(Fault("negative", frame, f"{what} goes down to {values.min():g}", exclude))
    if not (values > 0).any():
        faults.append(Fault("empty", frame, f"{what} has no value above 0", exclude))
    return faults


def _check_whole(layout: Layout, settings: Settings, good: list[str]) -> tuple[list[Fault], list[str]]:
    """What only several frames together show: the unit, the poses, the motion."""
    summary = frames.summarise([layout.depths[i] for i in some_of(good, 8)])
    faults, notes, unit = _check_unit(layout, settings, summary)
    pairs = motion_pairs(layout, max(1, min(5, len(layout.ids) // 4)))
    if pairs:
        errors = motion.pose_readings(pairs, frames.unit_scale(unit))
        faults += _check_poses(layout.root, settings, errors)
        notes.append("warp error by poses (grey levels): " + ", ".join(f"{k} {255 * v:.1f}" for k, v in errors.items()))
    small = motion.thumbnails([None if i in layout.faults else layout.images[i] for i in layout.ids])
    still = motion.still_by_image(small, 1)[1:-1]
    inside = zip(layout.ids[1:-1], still, strict=True)
    faults += [
        Fault("static", i, "shows the same picture as its neighbours")
        for i, s in inside
        if s and i not in layout.faults
    ]
    scale = frames.unit_scale(unit)
    span = f"{summary.low / scale:.2f}-{summary.high / scale:.2f} m (1st to 99th percentile)"
    notes.append(f"depth as {unit}: {span}, {summary.density:.1%} of the pixels")
    return faults, notes


def _check_unit(layout: Layout, settings: Settings, summary: frames.DepthSummary) -> tuple[list[Fault], list[str], str]:
    declared = settings.depth_unit
    where = str(layout.root)
    if summary.floating:
        return [], ["stored as fractions: metres"], "metres"
    try:
        found, why = find_unit(layout, summary)
    except DataError as error:
        return ([] if declared else [Fault("unit", where, str(error))]), [], declared or "mm"
    if declared is None:
        return [], [f"depth unit not declared, read as {found}: {why}"], found
    if declared != found and {declared, found} <= {"kitti", "mm"}:
        return (
            [Fault("unit", where, f"declared as {declared}, but looks like {found}: {why}", ("depth_unit", found))],
            [],
            found,
        )
    return [], [], declared


def _check_poses(root: Path, settings: Settings, errors: dict[str, float]) -> list[Fault]:
    """The poses were already turned as declared; is there a reading that warps clearly better?"""
    given = errors["camera_to_world"]
    best = min(errors, key=lambda k: errors[k])
    if best == "camera_to_world" or errors[best] > 0.85 * given:
        return []
    if best == "still":
        return [
            Fault(
                "pose",
                str(root),
                f"warping with the poses is worse than not moving at all ({255 * given:.1f} grey levels)",
            )
        ]
    fix = ("pose_convention", best) if settings.pose_convention == "camera_to_world" else None
    return [Fault("pose", str(root), f"the images warp better if the poses are read as {best}", fix)]


def _fixed(folder: Path, report: CheckReport, options: dict[str, Any]) -> CheckReport:
    """Write the safe fixes into recording.toml, and check again."""
    import tomllib

    import tomli_w

    fixes = [f.fix for f in report.faults if f.fix]
    if not fixes:
        return report
    path = folder / "recording.toml"
    before = path.read_bytes() if path.exists() else b""
    values = tomllib.loads(before.decode())
    excluded = sorted({*values.get("exclude", []), *(v for k, v in fixes if k == "exclude")})
    changed = {**values, **{k: v for k, v in fixes if k != "exclude"}, **({"exclude": excluded} if excluded else {})}
    if before:
        write_bytes(folder / "recording.toml.bak", before)
    write_bytes(path, tomli_w.dumps(changed).encode())
    done = tuple(f"{k} = {changed[k]!r}" for k in sorted({k for k, _ in fixes}))
    left = {k: v for k, v in options.items() if k not in changed}  # what was given is now in the file
    return replace(_check_recording(folder, None, left), fixed=done)
