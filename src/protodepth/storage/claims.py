"""An output folder (a run's, a bench's) belongs to one request: one that holds another is refused, never mixed in."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from protodepth.errors import CheckpointError, ProtoDepthError


def holds(folder: Path, mark: str, what: str) -> bool:
    """Whether a folder holds a ``what``, which its file ``mark`` says; False where it is new or empty.

    A file in its place, or a folder with anything else in it, is refused.
    """
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file: give a folder for --out")
    if (folder / mark).exists():
        return True
    # another process may be writing the mark just now, under a temporary name
    others = [p for p in folder.iterdir() if not p.name.startswith(f".{mark}.")] if folder.is_dir() else []
    if others and not (folder / mark).exists():
        raise CheckpointError(f"{folder} is not empty and holds no {what}: give another --out, nothing was overwritten")
    return False


def check_free(paths: Iterable[Path], ours: bool) -> None:
    """Refuse to write where files or filled folders of somebody else are; ``ours``: they are known to be this
    program's.
    """
    there = [path for path in paths if path.is_file() or (path.is_dir() and any(path.iterdir()))]
    if there and not ours:
        raise CheckpointError(
            f"{there[0]} exists and was not written by an earlier run of this command: give another --out, "
            "nothing was overwritten"
        )


def check_same(
    folder: Path,
    what: str,
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    error: type[ProtoDepthError] = CheckpointError,
) -> None:
    """Refuse settings that are not those of ``what`` in the folder; the message names the first that differs."""
    difference = first_difference(before, now)
    if difference:
        where, old, new = difference
        raise error(
            f"{folder} holds {what} with other settings ({where} = {old!r}, this command has {new!r}): "
            "give another --out, or the same settings"
        )


def first_difference(a: Any, b: Any, where: str = "") -> tuple[str, Any, Any] | None:
    """The first setting in which two configurations differ: its name and both values.

    >>> first_difference({"x": {"steps": 5}}, {"x": {"steps": 6}})
    ('x.steps', 5, 6)
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in dict.fromkeys((*a, *b)):
            difference = first_difference(a.get(key), b.get(key), f"{where}.{key}" if where else str(key))
            if difference:
                return difference
        return None
    return None if a == b else (where, a, b)
