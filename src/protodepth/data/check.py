"""Read every file of a recording, a list or a prepared dataset and report every fault at once."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data.arguments import load_source, open_domain, parse_argument, split_query
from protodepth.data.datasets.lists import read_lists
from protodepth.data.entries import EntryFrames
from protodepth.data.faults import CheckReport, Fault, Faults, in_threads, kind_of, readable
from protodepth.data.files import cameras
from protodepth.data.frame import SPLITS, Domain, EvalRules, Frame, FrameDataset, evenly
from protodepth.data.recording import motion
from protodepth.data.recording.check import check_layout, check_recording, write_fixes
from protodepth.data.recording.open import layouts, read_layout
from protodepth.errors import DataError, ProtoDepthError
from protodepth.progress import Progress


def check(path: str | Path, *, fix: bool = False, progress: Progress | None = None, **options: Any) -> CheckReport:
    """Check a recording folder, or any data argument such as ``lists:lists.toml`` or ``kitti:/data/kitti``.

    ``fix`` writes what is safe into the recording's recording.toml: the unit and the pose convention where the images
    prove them, and the frames to exclude.  No other file is touched;
    the old recording.toml is kept as recording.toml.bak.
    """
    argument = str(path)
    name, rest = parse_argument(argument)
    if name != "recording":
        return _check_source(argument, name, rest, progress, options)
    place, query = split_query(rest)
    options = {**query, **options}
    report = check_recording(Path(place), progress, options)
    return write_fixes(Path(place), report, options) if fix else report


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
        load_source(name)
        if name in layouts.names():
            return replace(check_layout(*read_layout(name, rest, **options), progress), path=argument)
        domain = open_domain(argument, **options)
    except DataError as error:
        return CheckReport(path=argument, frames=0, faults=(Fault("unreadable", argument, str(error)),))
    return _check_domain(domain, argument, progress)


def _check_domain(domain: Domain, path: str = "", progress: Progress | None = None) -> CheckReport:
    """Read every frame of every split."""
    faults: list[Fault] = []
    total = 0
    for split in SPLITS:
        data = domain.split(split)
        total += len(data)
        check_frame = partial(_check_number, data, split, domain.rules)
        for of_frame in in_threads(check_frame, range(len(data)), split, progress):
            faults += of_frame
    notes = [str(n) for n in domain.identity.get("notes", ())]
    pose_faults, pose_notes = _check_poses(domain)
    known = domain.identity.get("counts", {}).items()
    if known:
        listed = ", ".join(f"{what} {pair['found']} of {pair['published']}" for what, pair in known)
        pose_notes.append(f"found of published: {listed}")
    return CheckReport(
        path=path or domain.name, frames=total, faults=(*faults, *pose_faults), notes=(*notes, *pose_notes)
    )


def _check_number(data: FrameDataset, split: str, rules: EvalRules, number: int) -> list[Fault]:
    where, files = _place(data, split, number)
    try:
        return _check_frame(data[number], where, files, rules)
    except ProtoDepthError as error:
        return [Fault(kind_of(error), where, str(error))]


def _place(data: FrameDataset, split: str, number: int) -> tuple[str, dict[str, str]]:
    """(where a frame is listed, its files), for messages."""
    if not isinstance(data, EntryFrames):
        return f"{split} frame {number}", {}
    entry = data.table[number]
    files = {"image": entry["image"], "depth": entry.get("sparse") or entry.get("dense", "")}
    return f"{split} line {number + 1}, {entry['id']}", files


def _check_frame(
    frame: Frame, where: str = "", files: dict[str, str] | None = None, rules: EvalRules | None = None
) -> list[Fault]:
    """Faults that show in the arrays of one frame."""
    where, files = where or frame.name, files or {}
    depth, image = files.get("depth", "the sparse depth map"), files.get("image", "the image")
    faults = []
    points = frame.sparse_depth > 0
    if not points.any():
        faults.append(Fault("empty", where, f"{depth} has no point"))
    wrong = cameras.intrinsics_fault(frame.intrinsics.astype(np.float64), (frame.image.shape[0], frame.image.shape[1]))
    if wrong:
        faults.append(Fault("intrinsics", where, f"K of {image}: {wrong}"))
    unit = _unit_fault(frame, points, rules)
    if unit:
        faults.append(Fault("unit", where, f"{depth}: {unit}"))
    if frame.neighbours and all(_same(frame.image, n) for n in frame.neighbours):
        faults.append(Fault("static", where, f"{image}: all neighbours show the same picture"))
    return faults


def _unit_fault(frame: Frame, points: np.ndarray, rules: EvalRules | None) -> str | None:
    """Against the ground truth; without it, against the depth up to which the data is judged."""
    hint = "mm read as /256 is 3.91 times too far, /256 read as mm 3.91 times too near"
    if frame.ground_truth is not None:
        both = points & (frame.ground_truth > 0)
        ratio = float(np.median(frame.sparse_depth[both] / frame.ground_truth[both])) if both.sum() > 20 else 1.0
        return None if 0.5 < ratio < 2 else f"sparse depth is {ratio:.3g} times the ground truth: {hint}"
    middle = float(np.median(frame.sparse_depth[points])) if points.any() else 0.0
    if rules is not None and middle > rules.max_depth:
        return f"half of the points lie beyond {middle:.1f} m, judged up to {rules.max_depth:g} m: {hint}"
    return None


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    small = np.abs(a[::4, ::4].astype(np.float32) - b[::4, ::4].astype(np.float32))
    return bool(small.mean() < 255 * motion.STILL_GREY)


def _check_poses(domain: Domain) -> tuple[list[Fault], list[str]]:
    """Do given poses warp the neighbours onto the images, or would another reading of them?"""
    data = domain.train
    moving = [f for f in readable(data, Faults(20 * len(data) + 20), evenly(len(data), 6)) if f.poses]
    errors = motion.move_readings(
        [(f.image, f.neighbours[0], f.sparse_depth, f.poses[0].astype(np.float64), f.intrinsics) for f in moving]
    )
    if not errors:
        return [], []
    note = "warp error by poses (grey levels): " + ", ".join(f"{k} {255 * v:.1f}" for k, v in errors.items())
    best = min(errors, key=lambda k: errors[k])
    if best == "as given" or errors[best] > 0.85 * errors["as given"]:
        return [], [note]
    return [Fault("pose", f"{domain.name} train", f"the neighbours warp better with the poses {best}")], [note]
