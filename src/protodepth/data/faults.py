"""Faults: what can be wrong with data, where, what to do about it, and how many bad frames are too many."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protodepth.data.frame import Frame, FrameDataset
from protodepth.errors import (
    DamagedFileError,
    DataError,
    MissingFileError,
    NegativeDepthError,
    ProtoDepthError,
    ShallowDepthError,
    SizeError,
)
from protodepth.progress import Progress

logger = logging.getLogger("protodepth")
MAX_BAD = 0.05  # more than this share of bad frames stops
TRIPLET = 3  # frames that read one picture: its own, and those before and after it


def check_share(what: str, bad: Mapping[str, str], total: int, advice: str = "", count: int | None = None) -> None:
    """Frames that cannot be used, with their reasons: more than 5 % of all is an error.  ``count``: how many they
    count for (default: each for one).
    """
    if (len(bad) if count is None else count) > MAX_BAD * total:
        lines = [f"{frame}: {reason}" for frame, reason in list(bad.items())[:5]] + [advice] * bool(advice)
        head = f"{what}: {len(bad)} of {total} frames cannot be used (limit {MAX_BAD:.0%}):"
        raise DataError("\n  ".join([head, *lines]))


@contextmanager
def foreign(path: Path) -> Iterator[None]:
    """Around libraries that parse bags, HDF5 and parquet: of a damaged file they raise anything; one sentence instead.

    >>> with foreign(Path("a.bag")):
    ...     raise KeyError("chunk")
    Traceback (most recent call last):
    protodepth.errors.DamagedFileError: a.bag cannot be read (KeyError: 'chunk'): truncated or damaged, copy it again
    """
    try:
        yield
    except ProtoDepthError:
        raise
    except Exception as error:
        logger.debug("%s", path, exc_info=True)
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise DamagedFileError(f"{path} cannot be read ({reason}): truncated or damaged, copy it again") from None


@dataclass(slots=True)
class Faults:
    """Frames that turned out to be bad while they were read, and why.  More than 5 % of all of them is an error; those
    that share a bad picture with their neighbours count once.
    """

    total: int
    what: str = "the data"
    reasons: dict[str, str] = field(default_factory=dict)  # frame -> reason

    @property
    def most(self) -> int:
        """Bad frames that may be met before it is an error."""
        return TRIPLET * (int(MAX_BAD * self.total) + 1) - 1

    def add(self, name: str, reason: str) -> None:
        if name in self.reasons:
            return
        self.reasons[name] = reason
        pictures = sum(-(-n // TRIPLET) for n in Counter(self.reasons.values()).values())
        check_share(self.what, self.reasons, self.total, "protodepth data check lists them all", pictures)
        logger.warning("%s: a bad frame is left out (%s: %s)", self.what, name, reason)

    def merge(self, reasons: dict[str, str]) -> None:
        """Also count what another process met."""
        for name, reason in reasons.items():
            self.add(name, reason)


def readable(data: FrameDataset, faults: Faults, numbers: Iterable[int] | None = None) -> Iterator[Frame]:
    """The frames of the given numbers (all of them) without those that cannot be read, which are counted as faults."""
    for index in range(len(data)) if numbers is None else numbers:
        try:
            frame = data[index]
        except DataError as error:
            faults.add(f"frame {index}", str(error))
        else:
            yield frame


ADVICE = {
    "layout": "see docs/own_data.md for the folders of a recording",
    "lists": "make the four lists again from one loop; a list ends at its first empty line",
    "missing": "copy the file there, or prepare the data again without it",
    "unpaired": "every image needs a depth map with its name, or with its number: rgb_0007 and depth_0007",
    "truncated": "copy the file again",
    "8-bit depth": "export depth as 16-bit PNG or .npy; 256 levels cannot hold it",
    "size": "depth and picture must have one size",
    "empty": "the map has no point: is the projection right, is the sensor on?",
    "nan": "NaN and infinity count as no point",
    "negative": "depth must be metres along the view, 0 = no point",
    "intrinsics": "give K in pixels of the stored images",
    "unit": "declare depth_unit in recording.toml",
    "static": "left out of training: no parallax",
    "alignment": "depth must be of the picture's moment and the same way round: export both again with their times",
    "ray depth": "depth must be along the view (z): divide by sqrt(1 + x^2 + y^2) with x = (u - cx) / fx, likewise y",
    "pose": "poses must be camera-to-world with x right, y down, z forward, in metres",
    "unreadable": "see the message",
}
HARMLESS = ("static", "nan")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, where, and what ``--fix`` would write into recording.toml for it."""

    kind: str  # a key of ADVICE
    where: str
    message: str
    fix: tuple[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """All faults of a dataset, and what to do about them."""

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
            f"{self.path}: {self.frames} frames read, {len(self.faults)} fault{'s' * (len(self.faults) != 1)}"
            + ("" if self.faults else ": all good")
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


KINDS: dict[type[DataError], str] = {
    MissingFileError: "missing",
    DamagedFileError: "truncated",
    ShallowDepthError: "8-bit depth",
    SizeError: "size",
    NegativeDepthError: "negative",
}


def kind_of(error: ProtoDepthError) -> str:
    """The kind of fault (a key of ADVICE) that an error of reading is.

    >>> kind_of(SizeError("depth is 8x8, its image 9x9")), kind_of(DataError("/negative/a.png is no picture"))
    ('size', 'unreadable')
    """
    return next((kind for cls, kind in KINDS.items() if isinstance(error, cls)), "unreadable")


def error_of(kind: str) -> type[DataError]:
    """The error for a kind of fault that was written down: the inverse of :func:`kind_of`."""
    return next((cls for cls, known in KINDS.items() if known == kind), DataError)


def in_threads(
    check_item: Callable[[Any], list[Fault]], items: Sequence[Any], what: str, progress: Progress | None
) -> Iterator[list[Fault]]:
    """The faults of many items in their order; each item is checked in one of four threads."""
    with ThreadPoolExecutor(4) as pool:
        for n, faults in enumerate(pool.map(check_item, items), 1):
            if progress:
                progress(f"checking {what}", n, len(items))
            yield faults
