"""Several processes write one folder, each its own files in it; what killed ones left is swept by one that is alone."""

import contextlib
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from protodepth.errors import CheckpointError
from protodepth.storage.claims import holds
from protodepth.storage.files import write_json
from protodepth.storage.locks import acquire, holding, is_stale, read_holder, sweep_lock

PATIENCE = 600  # looks at the gate, a twentieth of a second each
STRAY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp|.+\.[0-9a-f]{8}\.stale|\.clock\.[0-9a-f]{8}")
SET_ASIDE = re.compile(r"\.(.+)\.[0-9a-f]{8}\.(tmp|old)")


@contextmanager
def sharing(folder: Path, mark: str, what: str) -> Iterator[None]:
    """Take part in writing a folder that holds a ``what``, which its file ``mark`` says; one of others is refused.

    A file in the folder says that this process lives.  Who comes or goes and finds no other removes what the dead left:
    meanwhile none can come.
    """
    holds(folder, mark, what)  # before anything is written
    gate = folder / f".{mark}.lock"  # not beside the folder, where its writer may not be allowed to write
    with _passing(gate):
        if not holds(folder, mark, what):
            write_json(folder / mark, {"kind": what, "format_version": 1})
        _sweep_if_alone(folder, gate)
        present = acquire(folder / f".{mark}.{uuid.uuid4().hex}.lock")
    assert present is not None  # nobody else knows its name
    try:
        yield
    finally:
        present.release()
        with contextlib.suppress(OSError, CheckpointError), _passing(gate):  # the next one sweeps
            _sweep_if_alone(folder, gate)


@contextmanager
def _passing(gate: Path) -> Iterator[None]:
    """One at a time, for moments."""
    for _ in range(PATIENCE):
        with holding(gate) as lock:
            if lock is not None:
                sweep_lock(gate, "tmp|stale")
                yield
                return
        time.sleep(0.05)
    raise CheckpointError(f"{gate} is held by another process: wait until it has ended, or give another --out")


def _sweep_if_alone(folder: Path, gate: Path) -> None:
    """Remove locks, half-written files and folders of processes that are dead; nothing while any other lives."""
    paths = sorted(p for p in folder.rglob("*") if p != gate)
    locks = [p for p in paths if (p.name == "lock" or p.name.endswith(".lock")) and read_holder(p)]
    if any(not is_stale(path) for path in locks):
        return
    for path in locks:
        path.unlink(missing_ok=True)
    for path in paths:
        aside = SET_ASIDE.fullmatch(path.name)
        if path.is_symlink() or not path.exists():  # in a folder that has just gone
            continue
        if path.is_dir() and aside and (aside[2] == "tmp" or path.with_name(aside[1]).exists()):  # else it is put back
            shutil.rmtree(path, ignore_errors=True)
        elif path.is_file() and STRAY.fullmatch(path.name):
            path.unlink(missing_ok=True)
