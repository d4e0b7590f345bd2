"""Whether disk and memory hold what is about to be made, asked before hours are spent on it or other programs fall."""

import re
import shutil
from pathlib import Path

from protodepth.errors import CheckpointError, ConfigError

UNKNOWN = 2.0**31  # bytes of memory where the system does not say how many are free
LARGE = 4_000_000  # pixels; fewer are not worth a question
LEAST, COMPLETED = 200.0, 1000.0  # bytes of a pixel that is completed: by any network, by a small one as a rule
FEW_WORKERS, _PROCESS = 2, 2.5e8  # bytes of a process that has imported torch
_MEMINFO, _CONTAINER = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def check_space(folder: Path, needed: int, what: str) -> None:
    """Refuse to begin where ``what`` (about ``needed`` bytes) does not fit.

    >>> check_space(Path("."), 1, "a training")
    """
    there = folder.resolve()
    while not there.is_dir():
        there = there.parent
    free = shutil.disk_usage(there).free
    if free < needed:
        raise CheckpointError(
            f"{what} needs about {_size(needed)} in {folder}, and {_size(free)} are free there: "
            "make room, or give another folder; nothing was done"
        )


def check_memory(needed: float, what: str, remedy: str) -> None:
    """Refuse what needs more memory than is free: the system would end this program, or another one.

    >>> check_memory(1, "a number", "take none")
    """
    free = free_memory()
    if needed > free:
        raise ConfigError(
            f"{what} needs about {_size(needed)} of memory, and {_size(free)} are free: {remedy}; nothing was done"
        )


def check_frames(size: tuple[int, int], frames: int = 1, each: float | None = None) -> None:
    """Refuse to complete frames of (height, width) that the memory does not hold.

    ``each``: bytes that a pixel takes; without it the least that any network does.

    >>> check_frames((480, 640))
    """
    pixels = frames * size[0] * size[1]
    if pixels > LARGE:
        what = f"{f'{frames} frames' if frames > 1 else 'a frame'} of {size[0]}x{size[1]}"
        remedy = "take smaller ones" if frames == 1 else "take fewer or smaller ones"
        check_memory(pixels * (each or LEAST), what, remedy)


def check_memory_of_workers(count: int) -> None:
    """Refuse a number of worker processes that the memory does not hold: each imports every library anew."""
    if count < 0:
        raise ConfigError(f"workers is {count}, expected 0 (no other process) or more")
    if count > FEW_WORKERS:
        check_memory(count * _PROCESS, f"{count} worker processes", "take fewer")


def free_memory() -> float:
    """Bytes that can be taken, of the machine and, in a container, of its share; a careful 2 GiB where nobody says."""
    limits = []
    match = re.search(r"MemAvailable:\s+(\d+) kB", _text(_MEMINFO))
    if match:
        limits.append(1024.0 * int(match[1]))
    most, taken = _text(_CONTAINER / "memory.max"), _text(_CONTAINER / "memory.current")
    if most.isdigit() and taken.isdigit():  # "max" where there is no limit
        limits.append(max(0.0, float(most) - float(taken)))
    return min(limits, default=UNKNOWN)


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _size(count: float) -> str:
    """
    >>> _size(6_200_000), _size(90_000), _size(19.2e9)
    ('6 MB', '90 kB', '19.2 GB')
    """
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
