"""A disk that fails at its n-th operation under a folder, once or from then on."""

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES)
CALLS = ("open", "mkdir", "rename", "replace", "link", "unlink", "rmdir", "fsync", "truncate")


class FailingDisk:
    """Counts what changes files under ``root`` and fails at operation ``at`` (0: never), ``lasting`` ever after."""

    def __init__(self, root: Path, at: int = 0, code: int = errno.ENOSPC, *, lasting: bool = False) -> None:
        self.root, self.at, self.code, self.lasting = str(root), at, code, lasting
        self.count, self.kinds = 0, dict.fromkeys((*CALLS, "write"), 0)

    def step(self, kind: str) -> None:
        self.count += 1
        self.kinds[kind] += 1
        if self.at and (self.count == self.at or (self.lasting and self.count > self.at)):
            raise OSError(self.code, os.strerror(self.code))

    def concerns(self, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """Of files here; a descriptor, or a name in a folder that is open, can only be here."""
        if isinstance(args[0], int) or options.get("dir_fd") is not None:
            return True
        return str(args[0]).startswith(self.root)

    def wrapped(self, kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            if self.concerns(args, options):
                self.step(kind)
            return call(*args, **options)

        return run

    def opened(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """``open`` for writing gives a file whose every write counts; reading does not count."""
        disk = self

        class Buffered(io.BufferedWriter):
            def write(self, data: Any) -> int:
                disk.step("write")
                return super().write(data)

        def run(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if isinstance(file, int) or not str(file).startswith(disk.root) or not set(mode) & set("wax+"):
                return call(file, mode, *args, **options)
            disk.step("open")
            if "+" in mode:
                return call(file, mode, *args, **options)
            raw = Buffered(io.FileIO(file, mode.replace("b", "").replace("t", "")))
            return raw if "b" in mode else io.TextIOWrapper(raw, encoding="utf-8", write_through=True)

        return run


@contextmanager
def failing(disk: FailingDisk) -> Iterator[FailingDisk]:
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, disk.wrapped(name, getattr(os, name)))
        patch.setattr(io, "open", disk.opened(io.open))
        yield disk
