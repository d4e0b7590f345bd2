"""The list files of the published repositories: four parallel texts, one path a line.

    # lists.toml
    root = "/data"                        # what the paths in the lists start from
    remap = { "data/" = "" }              # optional: replace a prefix of every path
    [train]
    image = "training/void/void_train_image_1500.txt"        # three frames side by side, or single frames
    sparse_depth = "training/void/void_train_sparse_depth_1500.txt"
    intrinsics = "training/void/void_train_intrinsics_1500.txt"
    ground_truth = "..."                  # optional
    [test]                                # and [val], if there is one
    ...
    [rules]
    min_depth = 0.2
    max_depth = 5.0
    crop = [240, 1216]                    # optional

A list ends at its first empty line, as the published readers have it.
Paths of the list files are relative to lists.toml.
"""

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from protodepth.data.entries import Entry, FrameReader
from protodepth.data.faults import kind_of
from protodepth.data.files import cameras, images
from protodepth.data.frame import SPLITS, EvalRules
from protodepth.data.manifest import Scan, register_scan
from protodepth.errors import DataError

COLUMNS = ("image", "sparse_depth", "intrinsics", "ground_truth")


@dataclass(frozen=True, slots=True)
class Lists:
    """The parallel lists of one split."""

    split: str
    columns: dict[str, tuple[str, ...]]  # only those given
    files: dict[str, Path]

    def fault(self) -> str | None:
        """Why the lists cannot belong together, or None."""
        missing = [c for c in COLUMNS[:3] if c not in self.columns]
        if missing:
            return f"[{self.split}] does not name a list for {', '.join(missing)}"
        lengths = {str(self.files[c]): len(rows) for c, rows in self.columns.items()}
        if len(set(lengths.values())) != 1:
            text = ", ".join(f"{name} has {n} lines" for name, n in lengths.items())
            return f"the lists of [{self.split}] are unequal: {text} (a list ends at its first empty line)"
        return None


def _read_list(path: Path) -> tuple[str, ...]:
    """The lines up to the first empty one."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"list {path} cannot be read ({error})") from None
    return tuple(takewhile(bool, (line.strip() for line in lines)))


def read_lists(path: Path) -> tuple[dict[str, Any], dict[str, Lists]]:
    """(settings, lists of each split) of a lists.toml; no check yet."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a readable TOML file ({error})") from None
    unknown = set(settings) - {"root", "remap", "name", "unit", "rules", *SPLITS}
    if unknown:
        raise DataError(
            f"{path}: unknown field {sorted(unknown)}; known: root, remap, name, unit, rules, train, val, test"
        )
    return settings, {s: _one(path, s, settings[s]) for s in SPLITS if s in settings}


def _one(path: Path, split: str, names: dict[str, str]) -> Lists:
    unknown = set(names) - set(COLUMNS)
    if unknown:
        raise DataError(f"{path}: [{split}] has the unknown list {sorted(unknown)}; known: {', '.join(COLUMNS)}")
    files = {column: path.parent / name for column, name in names.items()}
    return Lists(split, {column: _read_list(file) for column, file in files.items()}, files)


@register_scan("lists")
def scan_lists(root: Path) -> Scan:
    """The frames that a lists.toml names; ``root`` is that file."""
    path = root / "lists.toml" if root.is_dir() else root
    settings, lists = read_lists(path)
    faults = [why for part in lists.values() if (why := part.fault())]
    if not lists or faults:
        raise DataError(
            f"{path}: " + ("; ".join(faults) if faults else "names no lists: write [train], [val] or [test]")
        )
    base = path.parent / settings.get("root", ".")
    remap = dict(settings.get("remap", {}))
    rules = {"min_depth": 0.001, "max_depth": 100.0, **settings.get("rules", {})}
    crop = rules.pop("crop", None)
    return Scan(
        name=settings.get("name", "lists"),
        reader=FrameReader(root=base, unit=settings.get("unit", "kitti")),
        rules=EvalRules(**rules, crop=tuple(crop) if crop else None),
        splits={s: partial(_entries, part, base, remap) for s, part in lists.items()},
        options={"lists": str(path)},
    )


def _remapped(path: str, remap: dict[str, str]) -> str:
    """The path with the first matching prefix replaced.

    >>> _remapped("data/void/a.png", {"data/": "/mnt/"})
    '/mnt/void/a.png'
    """
    for old, new in remap.items():
        if path.startswith(old):
            return new + path[len(old) :]
    return path


def _entries(part: Lists, base: Path, remap: dict[str, str]) -> Iterator[Entry]:
    """One entry a line.  If the first readable picture is three times as wide as its depth map,
    all hold three frames side by side.
    """

    def row(index: int) -> dict[str, str]:
        return {column: _remapped(lines[index], remap) for column, lines in part.columns.items()}

    count = len(part.columns["image"])
    triplet = _has_triplets(base, map(row, range(count)))
    calibrations: dict[str, list[float] | DataError] = {}
    for number, line in enumerate(map(row, range(count)), 1):
        K = line["intrinsics"]
        if K not in calibrations:
            calibrations[K] = _calibration(base / K)
        entry: Entry = {"id": line["sparse_depth"], "image": line["image"], "sparse": line["sparse_depth"]}
        calibration = calibrations[K]
        if isinstance(calibration, DataError):
            fault = f"{part.files['intrinsics']}, line {number}: {calibration}"
            entry |= {"fault": fault, "fault_kind": kind_of(calibration)}
        else:
            entry["K"] = calibration
        if "ground_truth" in line:
            entry["truth"] = line["ground_truth"]
        if triplet:
            entry["triplet"] = True
        yield entry


def _calibration(path: Path) -> list[float] | DataError:
    """Nine numbers, or why there are none: one bad file is one bad frame, not the end of the list."""
    try:
        return cameras.read_intrinsics(path).ravel().tolist()
    except DataError as error:
        return error


def _has_triplets(base: Path, rows: Iterable[dict[str, str]]) -> bool:
    """As the first frame that can be opened has it."""
    for row in rows:
        image, depth = base / row["image"], base / row["sparse_depth"]
        if not any(images.broken_tail(path) for path in (image, depth)):
            return _is_triplet(image, depth)
    return False


def _is_triplet(image: Path, depth: Path) -> bool:
    (height, width), (h, w) = images.image_size(image), images.image_size(depth)
    if height != h or width not in (w, 3 * w):
        raise DataError(
            f"{image} is {width}x{height} and {depth} {w}x{h}: expected the same size, or an image three times as wide"
        )
    return width == 3 * w
