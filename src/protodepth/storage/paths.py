"""Names and paths from files that others wrote: they stay in their folder."""

import re
from pathlib import Path

from protodepth.errors import CheckpointError, DomainError
from protodepth.types import BASE


def is_name(name: object) -> bool:
    """Whether a text can name a domain, and so a folder.

    >>> is_name("warehouse"), is_name("../../secret"), is_name("/etc"), is_name(None)
    (True, False, False, False)
    """
    return isinstance(name, str) and name != BASE and bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name))


def check_name(name: object) -> str:
    """The text, if it can name a domain and so a folder."""
    if not is_name(name):
        raise DomainError(
            f"{name!r} cannot name a domain: use up to 64 letters, digits, '_' and '-' (and not {BASE!r})"
        )
    return str(name)


def is_outside(path: Path, folder: Path) -> bool:
    """Whether a path leads out of a folder, by itself or through a link on its way."""
    try:
        return not path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links in a circle
        return True


def check_inside(path: Path, folder: Path) -> Path:
    """The path, if it stays in the folder; a link that leaves it could show or change somebody else's files."""
    if is_outside(path, folder):
        raise CheckpointError(
            f"{path} leads out of {folder}, perhaps by a link: a folder must hold its own files; copy them into it"
        )
    return path
