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
            f"{what} needs about {needed / 1e6:.0f} MB in {folder}, and {free / 1e6:.0f} MB are free there: "
            "make room, or give another --out; nothing was written"
        )
