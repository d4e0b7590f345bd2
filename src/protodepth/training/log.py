"""What a training writes down of each step: a log, and one that keeps JSON lines in a file."""

import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

logger = logging.getLogger("protodepth")


class Log(Protocol):
    """Receives one record for each step: method, domain, every loss term, their total, the rate."""

    def __call__(self, step: int, record: dict[str, Any]) -> None: ...


def silent(step: int, record: dict[str, Any]) -> None:
    """A log that keeps nothing."""


class JsonLines:
    """A log that appends one JSON line a record; readable with any tool.

    A run that goes on repeats the steps after its last saved state: what the log has of them already is not written
    again.  A line that a kill left unfinished is cut off.
    """

    def __init__(self, path: Path, **common: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.common = path, common
        self.known = Counter(self._kept())

    def _kept(self) -> Iterator[tuple[Any, ...]]:
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        if lines and not lines[-1].endswith(b"\n"):
            os.truncate(self.path, sum(map(len, lines[:-1])))
            del lines[-1]
        for line in lines:
            with suppress(ValueError, RecursionError, AttributeError, TypeError):  # damaged: no record of ours
                key = self._key(json.loads(line))
                hash(key)
                yield key

    @staticmethod
    def _key(record: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(record.get(name) for name in ("method", "domain", "step"))

    def __call__(self, step: int, record: dict[str, Any]) -> None:
        record = {**self.common, "step": step, **record}
        if self.known[self._key(record)]:
            self.known[self._key(record)] -= 1
            return
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")


def last_record(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """These entries of the last line of a log.  Nothing, with a word, if it is damaged: what is learned stays."""
    try:
        record = json.loads(path.read_text().splitlines()[-1])
        return {name: record[name] for name in names}
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        logger.warning("%s has no whole last line: what it says of the end is left out", path)
        return {}
