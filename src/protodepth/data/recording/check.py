"""Checks of a recording: every file read completely, then what only several frames together show."""

import tomllib
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data.faults import CheckReport, Fault, in_threads, kind_of
from protodepth.data.files import cameras, images
from protodepth.data.frame import evenly
from protodepth.data.recording import motion
from protodepth.data.recording.layout import Layout, find_layout, find_unit, motion_pairs, odd_sizes
from protodepth.data.recording.settings import Settings, read_settings
from protodepth.errors import DataError
from protodepth.progress import Progress
from protodepth.storage.files import write_bytes


def check_recording(folder: Path, progress: Progress | None, options: dict[str, Any]) -> CheckReport:
    """Every fault of a recording's folder: of its files one by one, and of several frames together."""
    try:
        settings = read_settings(folder, **options)
        layout = find_layout(folder, settings, with_poses=False)
    except DataError as error:
        return CheckReport(path=str(folder), frames=0, faults=(Fault("layout", str(folder), str(error)),))
    unposed: list[Fault] = []
    try:
        layout = find_layout(folder, settings)
    except DataError as error:  # the rest can be checked without the poses
        unposed = [Fault("pose", str(folder), str(error))]
    layout = replace(layout, faults=dict.fromkeys(settings.exclude, "excluded in recording.toml"))
    ids = [i for i in layout.ids if i not in layout.faults]
    faults = [*unposed, *_unpaired(layout)]
    for of_frame in in_threads(partial(_check_files, layout), ids, folder.name, progress):
        faults += of_frame
    bad = {f.where for f in faults if f.kind != "nan"}
    odd = odd_sizes({i: images.image_size(layout.images[i]) for i in ids if i not in bad})
    faults += [Fault("size", i, f"{layout.images[i]}: {why}", ("exclude", i)) for i, why in odd.items()]
    bad = (bad | odd.keys()) & set(ids)
    layout = replace(layout, faults={**layout.faults, **dict.fromkeys(bad, "bad")})
    notes = [f"{len(bad)} of {len(layout.ids)} frames are bad"] if bad else []
    good = [i for i in layout.ids if i not in layout.faults]
    if good:
        whole_faults, whole_notes = _check_whole(layout, settings, good)
        faults += whole_faults
        notes += whole_notes
    return CheckReport(path=str(folder), frames=len(ids), faults=tuple(faults), notes=tuple(notes))


def _unpaired(layout: Layout) -> Iterable[Fault]:
    for name in layout.depths:
        if name not in layout.images:
            yield Fault("unpaired", name, f"{layout.depths[name]} is a depth map without an image")
    for name in layout.truths:
        if name not in layout.images:
            yield Fault("unpaired", name, f"{layout.truths[name]} is a ground truth map without an image")


def _check_files(layout: Layout, frame: str) -> list[Fault]:
    """Read the image, the depth and the ground truth of one frame completely."""
    exclude = ("exclude", frame)
    image = layout.images[frame]
    if frame not in layout.depths:
        return [Fault("unpaired", frame, f"{image} has no depth map of its name", exclude)]
    faults = []
    try:
        size = images.read_image(image).shape[:2]
        wrong = cameras.intrinsics_fault(layout.calibration(frame), (size[0], size[1]))
        if wrong:
            faults.append(Fault("intrinsics", frame, f"{layout.calibration_file(frame)} for {image.name}: {wrong}"))
        for table in (layout.depths, layout.truths):
            if frame in table:
                faults += _check_map(frame, table[frame], (size[0], size[1]))
    except DataError as error:
        faults.append(Fault(kind_of(error), frame, str(error), exclude))
    except KeyError:
        faults.append(Fault("intrinsics", frame, f"{image} has no intrinsics file of its name", exclude))
    return faults


def _check_map(frame: str, path: Path, size: tuple[int, int]) -> list[Fault]:
    exclude = ("exclude", frame)
    raw = images.raw_depth(path)
    if raw.shape != size:
        text = f"{path} has shape {raw.shape}, its image {size}"
        return [Fault("size", frame, text, exclude)]
    faults = []
    if raw.dtype.kind == "f" and not np.isfinite(raw).all():
        faults.append(Fault("nan", frame, f"{path} has {int((~np.isfinite(raw)).sum())} NaN or infinite values"))
    values = np.nan_to_num(raw, nan=0.0, posinf=0.0, neginf=0.0)
    if (values < 0).any():
        faults.append(Fault("negative", frame, f"{path} goes down to {values.min():g}", exclude))
    if not (values > 0).any():
        faults.append(Fault("empty", frame, f"{path} has no value above 0", exclude))
    return faults


def _check_whole(layout: Layout, settings: Settings, good: list[str]) -> tuple[list[Fault], list[str]]:
    """What only several frames together show: the unit, the poses, the motion."""
    summary = images.summarise([layout.depths[good[i]] for i in evenly(len(good), 8)])
    faults, notes, unit = _check_unit(layout, settings, summary)
    pairs = motion_pairs(layout, max(1, min(5, len(layout.ids) // 4)))
    if pairs:
        errors = motion.pose_readings(pairs, images.unit_scale(unit))
        faults += _check_poses(layout.root / (settings.poses or "poses.txt"), settings, errors)
        if not any(f.kind == "pose" for f in faults):
            notes += _focal_note(layout, good[0], motion.better_focal(pairs, images.unit_scale(unit)))
        notes.append("warp error by poses (grey levels): " + ", ".join(f"{k} {255 * v:.1f}" for k, v in errors.items()))
    small = motion.thumbnails([None if i in layout.faults else layout.images[i] for i in layout.ids])
    still = motion.still_by_image(small, 1)[1:-1]
    inside = zip(layout.ids[1:-1], still, strict=True)
    faults += [
        Fault("static", i, f"{layout.images[i]} shows the same picture as its neighbours")
        for i, s in inside
        if s and i not in layout.faults
    ]
    scale = images.unit_scale(unit)
    span = f"{summary.low / scale:.2f}-{summary.high / scale:.2f} m (1st to 99th percentile)"
    notes.append(f"depth as {unit}: {span}, {summary.density:.1%} of the pixels")
    return faults, notes


def _focal_note(layout: Layout, frame: str, better: tuple[float, float] | None) -> list[str]:
    if better is None:
        return []
    focal, (factor, gone) = layout.calibration(frame)[0, 0], better
    return [
        f"WARNING: neighbours warp {gone:.0%} better with a focal length near {factor * focal:.0f} px than with "
        f"{focal:.0f} px ({layout.calibration_file(frame)}): is K that of the colour camera, "
        "or the depth not registered to it?  Adapting suffers from it"
    ]


def _check_unit(layout: Layout, settings: Settings, summary: images.DepthSummary) -> tuple[list[Fault], list[str], str]:
    declared = settings.depth_unit
    where = str(layout.root)
    if summary.floating:
        return [], ["stored as fractions: metres"], "metres"
    try:
        guess, why = find_unit(layout, summary)
    except DataError as error:
        return ([] if declared else [Fault("unit", where, str(error))]), [], declared or "mm"
    if declared is None:
        return [], [f"depth unit not declared, read as {guess}: {why}"], guess
    if declared != guess and {declared, guess} <= {"kitti", "mm"}:
        return (
            [
                Fault(
                    "unit",
                    where,
                    f"depth_unit is declared as {declared}, but looks like {guess}: {why}",
                    ("depth_unit", guess),
                )
            ],
            [],
            guess,
        )
    return [], [], declared


def _check_poses(path: Path, settings: Settings, errors: dict[str, float]) -> list[Fault]:
    """The poses were already turned as declared; is there a reading that warps clearly better?"""
    given = errors["camera_to_world"]
    best = min(errors, key=lambda k: errors[k])
    if best == "camera_to_world" or errors[best] > 0.85 * given:
        return []
    if best == "still":
        return [
            Fault(
                "pose",
                str(path),
                f"warping with the poses is worse than not moving at all ({255 * given:.1f} grey levels)",
            )
        ]
    fix = ("pose_convention", best) if settings.pose_convention == "camera_to_world" else None
    return [Fault("pose", str(path), f"the images warp better if the poses are read as {best}", fix)]


def write_fixes(folder: Path, report: CheckReport, options: dict[str, Any]) -> CheckReport:
    """Write the safe fixes into recording.toml, and check again."""
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
    return replace(check_recording(folder, None, left), fixed=done)
