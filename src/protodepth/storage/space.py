"""Whether a disk holds what is about to be written, asked before hours are spent on it."""

import shutil
from pathlib import Path

from protodepth.errors import CheckpointError


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
            "make room, or give another --out; no step was made"
        )


def _size(count: int) -> str:
    """
    >>> _size(6_200_000), _size(90_000)
    ('6 MB', '90 kB')
    """
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
