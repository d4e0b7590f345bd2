"""Checks of a recording: every file read, then what several frames together show; and the fixes that are safe."""

import itertools
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data.arrays import size_fault
from protodepth.data.faults import CheckReport, Fault, in_threads, kind_of
from protodepth.data.files import cameras, images
from protodepth.data.frame import evenly
from protodepth.data.recording import alignment, motion
from protodepth.data.recording.layout import (
    GUESSED,
    Layout,
    find_layout,
    find_unit,
    motion_pairs,
    motion_places,
    odd_sizes,
    stored_depth,
)
from protodepth.data.recording.open import decide_motion
from protodepth.data.recording.settings import Settings, read_settings
from protodepth.errors import DataError
from protodepth.progress import Progress
from protodepth.storage.files import write_bytes

MOMENTS = 8  # frames by which depth may be early or late
FARTHEST = 300.0  # metres that are common in the middle of no recording


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
    return check_layout(layout, settings, progress, unposed)


def check_layout(
    layout: Layout, settings: Settings, progress: Progress | None = None, known: Sequence[Fault] = ()
) -> CheckReport:
    """Read every file, then compare frames.  ``known``: faults that were met on the way here."""
    folder = layout.root
    layout = replace(layout, faults=dict.fromkeys(settings.exclude, "excluded in recording.toml"))
    ids = [i for i in layout.ids if i not in layout.faults]
    faults = [*known, *_unpaired(layout)]
    for of_frame in in_threads(partial(_check_files, layout), ids, folder.name, progress):
        faults += of_frame
    bad = {f.where for f in faults if f.kind != "nan"}
    odd = odd_sizes({i: images.image_size(layout.images[i]) for i in ids if i not in bad})
    faults += [Fault("size", i, f"{layout.images[i]}: {why}", ("exclude", i)) for i, why in odd.items()]
    bad = (bad | odd.keys()) & set(ids)
    layout = replace(layout, faults={**layout.faults, **dict.fromkeys(bad, "bad")})
    notes = [*layout.notes, *([f"{len(bad)} of {len(layout.ids)} frames are bad"] if bad else [])]
    if len(bad) == len(ids):  # leaving all of them out mends nothing
        faults = [replace(f, fix=None) if f.fix and f.fix[0] == "exclude" else f for f in faults]
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
    if raw.ndim != 2:
        return [Fault("size", frame, f"{path} has shape {raw.shape}, its picture {size}", exclude)]
    wrong = size_fault((raw.shape[0], raw.shape[1]), size)
    if wrong:
        return [Fault("size", frame, f"{path} {wrong}", exclude)]
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
    """What only several frames together show: the unit, the poses, the motion, whether depth and pictures belong
    together."""
    summary = images.summarise([layout.depths[good[i]] for i in evenly(len(good), 8)])
    stride = max(1, min(5, len(layout.ids) // 4))
    faults, notes, unit = _check_unit(layout, settings, summary)
    declared = settings.depth_unit
    if faults and declared and _check_lag(layout, settings, stride, images.unit_scale(declared)):
        faults, unit = [], declared  # poses that lag prove no unit
    scale = images.unit_scale(unit)
    misplaced = _check_alignment(layout, settings, good, scale)
    faults += misplaced
    pairs = motion_pairs(layout, stride)
    if pairs:
        errors = motion.pose_readings(pairs, scale)
        posed = _check_poses(layout.root / (settings.poses or "poses.txt"), settings, errors)
        if all(f.fix is None for f in posed):  # no other convention explains them: another moment may
            posed = _check_lag(layout, settings, stride, scale) or posed
        faults += posed
        if not misplaced and not any(f.kind == "pose" for f in faults):
            notes += _focal_note(layout, good[0], motion.better_focal(pairs, scale))
        notes.append("warp error by poses (grey levels): " + ", ".join(f"{k} {255 * v:.1f}" for k, v in errors.items()))
    faults += _check_still(layout, settings, summary.middle / scale)
    span = f"{summary.low / scale:.2f}-{summary.high / scale:.2f} m (1st to 99th percentile)"
    notes.append(f"depth as {unit}: {span}, {summary.density:.1%} of the pixels")
    if summary.largest:
        notes.append(f"{summary.largest:.1%} of the stored values are 65535, the largest of 16 bits: no measurement")
    return faults, notes


def _check_still(layout: Layout, settings: Settings, depth: float) -> list[Fault]:
    """Frames that show what their neighbours show: those that training would take, and those beside them exactly."""
    stride = decide_motion(layout, replace(settings, skip_static=False), depth)[0]
    small = motion.thumbnails([None if i in layout.faults else layout.images[i] for i in layout.ids])
    still = motion.still_by_image(small, stride)
    still[:stride] = still[len(still) - stride :] = False  # their neighbours are not there
    still |= motion.repeated(small)
    named = zip(layout.ids, still, strict=True)
    return [
        Fault("static", i, f"{layout.images[i]} shows the same picture as its neighbours ({stride} frames away)")
        for i, s in named
        if s and i not in layout.faults
    ]


def _check_alignment(layout: Layout, settings: Settings, good: list[str], scale: float) -> list[Fault]:
    """Is the depth of this picture, of this moment, the right way round, and along the view?"""
    numbers = {name: n for n, name in enumerate(layout.ids)}
    shifts = min(MOMENTS, (len(good) - 1) // 4)
    inner = good[shifts : len(good) - shifts] or good
    chosen = [inner[i] for i in evenly(len(inner), 8)]
    greys = {numbers[i]: motion.grey(images.read_image(layout.images[i]), 1.0) for i in chosen}

    @lru_cache(maxsize=256)
    def depth_of(number: int) -> np.ndarray | None:
        known = 0 <= number < len(layout.ids) and layout.ids[number] in good_names
        return stored_depth(layout, layout.ids[number]) / scale if known else None

    good_names = set(good)
    maps = {n: depth for n in greys if (depth := depth_of(n)) is not None}
    where = str(layout.root / (settings.depth if layout.dense else settings.sparse))
    flip = alignment.better_flip([(greys[n], depth) for n, depth in maps.items()])
    if flip:
        text = f"the depth maps fit their pictures better {flip[0]} ({flip[1]:.2f} against {flip[2]:.2f} of 1)"
        return [Fault("alignment", where, text)]
    moment = alignment.better_moment(greys, depth_of, shifts)
    if moment:
        side = "late" if moment[0] > 0 else "early"
        text = f"depth comes {abs(moment[0])} frames {side}: the maps of other frames fit the pictures better"
        return [Fault("alignment", where, f"{text} ({moment[1]:.2f} against {moment[2]:.2f} of 1)")]
    votes = [v for n, depth in maps.items() for v in alignment.ray_votes(depth, layout.calibration(layout.ids[n]))]
    if alignment.is_along_the_ray(votes):
        text = "depth is the distance along the ray: planes are planes only if it is divided by sqrt(1 + x^2 + y^2)"
        return [Fault("ray depth", where, text)]
    return []


def _check_lag(layout: Layout, settings: Settings, stride: int, scale: float) -> list[Fault]:
    """Do the poses of other frames fit better?"""
    places, pairs = motion_places(layout, stride, 12), motion_pairs(layout, stride, 12)
    if layout.poses is None:
        return []
    late = motion.pose_lag(pairs, places, layout.poses, scale)
    if late is None:
        return []
    side = "late" if late[0] > 0 else "early"
    text = f"the poses come {abs(late[0])} frames {side}: shifted, {late[1]:.0%} of the warp error is gone"
    return [Fault("pose", str(layout.root / (settings.poses or "poses.txt")), text)]


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
        far = f"fractions are metres, and {summary.middle:.0f} m are in the middle; if they are mm, divide by 1000"
        faults = [Fault("unit", where, far)] if summary.middle > FARTHEST else []
        return faults, ["stored as fractions: metres"], "metres"
    try:
        guess, why = find_unit(layout, summary)
    except DataError as error:
        return ([] if declared else [Fault("unit", where, str(error))]), [], declared or "mm"
    if declared is None:
        return [], [f"depth unit not declared, read as {guess}: {why}"], guess
    if declared != guess and {declared, guess} <= set(GUESSED):
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
        write_bytes(_free_name(folder / "recording.toml.bak"), before)
    write_bytes(path, tomli_w.dumps(changed).encode())
    done = tuple(f"{k} = {changed[k]!r}" for k in sorted({k for k, _ in fixes}))
    left = {k: v for k, v in options.items() if k not in changed}  # what was given is now in the file
    return replace(check_recording(folder, None, left), fixed=done)


def _free_name(path: Path) -> Path:
    """The path, or the first of path2, path3, ... that does not exist: an earlier copy stays."""
    numbered = (path.with_name(f"{path.name}{n}") for n in itertools.count(2))
    return next(p for p in itertools.chain([path], numbered) if not p.exists())
