"""Who works on a cell: a lock file with a heartbeat, so that several processes and machines can share one folder.

A lock is created with O_EXCL and says who holds it.  Its file time is renewed while the holder works.  It is stale when
the holder is a dead process of this machine, or when it has not been renewed for ``STALE_AFTER`` seconds.
"""

import contextlib
import json
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from protodepth.errors import CheckpointError

HEARTBEAT = 15.0  # seconds
STALE_AFTER = 180.0  # many heartbeats: a machine under load or a slow network drive must not look dead


def this_machine() -> str:
    """Process numbers mean something only within one of these:
    a host, and there one namespace of processes (a container).
    """
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return f"{socket.gethostname()} {space}".strip()


def birth(pid: int) -> str | None:
    """When a process began, as the system writes it: a number that is used again belongs to another process.  None:
    no such process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        fields = []
    if fields:
        return None if fields[0] == "Z" else fields[19]
    if Path("/proc/self/stat").exists():
        return None
    try:  # no /proc on this system: only whether the process exists
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return ""


def _server_time(folder: Path) -> float:
    """Now, by the clock that stamps files in this folder: the clocks of a cluster differ."""
    probe = folder / f".clock.{uuid.uuid4().hex[:8]}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


def read_holder(path: Path) -> dict[str, Any]:
    """What a lock file says; empty if it is gone or half written."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def is_stale(path: Path) -> bool:
    """Whether the holder of an existing lock is certainly or very probably gone."""
    holder = read_holder(path)
    if holder.get("machine") == this_machine() and isinstance(holder.get("pid"), int):
        return birth(holder["pid"]) != holder.get("birth")
    try:
        return _server_time(path.parent) - path.stat().st_mtime > STALE_AFTER
    except OSError:
        return False


def _break(path: Path, token: object) -> None:
    """Remove a stale lock, and only that one: another process may have broken it and hold a new one by now."""
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.stale")
    try:
        path.rename(aside)
    except OSError:
        return
    if read_holder(aside).get("token") != token:
        with contextlib.suppress(OSError):
            os.link(aside, path)  # fails if a third one has come in between; the holder notices at its next step
    aside.unlink(missing_ok=True)


class Lock:
    """A held lock; ``check`` raises if someone else has taken it meanwhile (a machine that slept, for example)."""

    def __init__(self, path: Path, token: str) -> None:
        self.path, self.token = path, token
        self._done = threading.Event()
        self._beat = threading.Thread(target=self._renew, daemon=True)
        self._beat.start()

    def _renew(self) -> None:
        while not self._done.wait(HEARTBEAT):
            with contextlib.suppress(OSError):
                if self.held():
                    os.utime(self.path)

    def held(self) -> bool:
        return read_holder(self.path).get("token") == self.token

    def check(self) -> None:
        if not self.held():
            raise CheckpointError(
                f"{self.path} was taken by another process: this one stops here, nothing was overwritten"
            )

    def release(self) -> None:
        self._done.set()
        self._beat.join()
        if self.held():
            self.path.unlink(missing_ok=True)


def acquire(path: Path) -> Lock | None:
    """The lock, or None if a living process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    token = uuid.uuid4().hex
    for _ in range(2):  # the second time a stale lock is out of the way
        if _create(path, token):
            return Lock(path, token)
        seen = read_holder(path).get("token")
        if not is_stale(path):
            return None
        _break(path, seen)
    return None


def _create(path: Path, token: str) -> bool:
    pid = os.getpid()
    about = {"pid": pid, "birth": birth(pid), "machine": this_machine(), "token": token}
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w") as file:
        file.write(json.dumps(about))
    return True


@contextmanager
def holding(path: Path) -> Iterator[Lock | None]:
    """``with holding(path) as lock:``; None if a living process holds it."""
    lock = acquire(path)
    try:
        yield lock
    finally:
        if lock is not None:
            lock.release()
