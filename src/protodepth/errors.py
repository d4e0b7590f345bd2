"""Everything that can go wrong and is the caller's to fix.
A message says what was given, what was expected, what to do.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class ProtoDepthError(Exception):
    """Root of all errors that the command line reports in one line with exit code 2."""


class UnknownNameError(ProtoDepthError):
    """A name that no registry or model knows; the message lists the choices."""

    def __init__(self, kind: str, name: object, choices: Iterable[object] = (), meant: str = "") -> None:
        names = [str(c) for c in choices]
        self._given = (kind, name, names, meant)
        close = [meant] if meant else get_close_matches(str(name), names, 1)
        meant = f" did you mean {close[0]}?" if close else ""
        super().__init__(f"unknown {kind} {name!r};{meant} choose one of: {', '.join(names) or '(none)'}")

    def __reduce__(self) -> tuple[type["UnknownNameError"], tuple[str, object, list[str], str]]:
        return type(self), self._given  # it may come from another process


class DomainError(ProtoDepthError):
    """A domain cannot be added, used or loaded."""


def name_taken(name: str) -> DomainError:
    """A model has a domain of that name: the error, with the command that frees it."""
    command = f"protodepth domains remove --name {name} --model MODEL"
    return DomainError(f"domain {name!r} exists: choose another name, or remove it ({command})")


class DataError(ProtoDepthError):
    """A file, array or folder is not what was expected."""


class MissingFileError(DataError):
    """A file that was named does not exist."""


class DamagedFileError(DataError):
    """A file ends early or cannot be decoded."""


class ShallowDepthError(DataError):
    """A picture with too few bits to hold depth."""


class SizeError(DataError):
    """A map or picture has another size than what it belongs to."""


class NegativeDepthError(DataError):
    """Depth below zero in an array or file."""


class CheckpointError(ProtoDepthError):
    """A model, domain or training state cannot be read or does not belong here."""


class ConfigError(ProtoDepthError):
    """A setting is missing, of the wrong kind, or contradicts another."""


class TapError(ProtoDepthError):
    """A tap of a hooked network does not exist or does not matter to the output."""


class ProcessLost(ProtoDepthError):
    """Another process of the same run has gone; what this one knows was saved."""


class TrainingDiverged(ProtoDepthError):
    """The loss was not finite too often; the last good state was saved."""
