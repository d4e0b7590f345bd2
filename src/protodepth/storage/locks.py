"""Who writes a folder: a lock file with a heartbeat, so that several processes and machines can share one disk.

A lock appears whole, says who holds it, and cannot appear twice.  Its file time is renewed while the holder works.
It is stale when the holder is a dead process of this machine, or when it has not been renewed for ``STALE_AFTER`` s.
"""

import contextlib
import errno
import json
import os
import re
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from protodepth.errors import CheckpointError

NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES)
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
        holder = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return holder if isinstance(holder, dict) else {}


def is_stale(path: Path) -> bool:
    """Whether the holder of an existing lock is certainly or very probably gone."""
    holder = read_holder(path)
    if holder.get("machine") == this_machine() and isinstance(holder.get("pid"), int) and os.name != "nt":
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
        """Whether the lock is this one's still; a disk that cannot be read says nothing about it: an error."""
        try:
            return json.loads(self.path.read_text()).get("token") == self.token
        except (FileNotFoundError, ValueError, AttributeError, RecursionError):
            return False

    def check(self) -> None:
        if not self.held():
            raise CheckpointError(
                f"{self.path} was taken by another process: this one stops here, nothing was overwritten"
            )

    def release(self) -> None:
        self._done.set()
        self._beat.join()
        try:
            mine = self.held()
        except OSError:
            mine = True
        if mine:
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
    whole = path.with_name(f".{path.name.lstrip('.')}.{token[:8]}.tmp")
    try:
        whole.write_text(json.dumps(about))
        os.link(whole, path)
    except FileExistsError:
        return False
    except FileNotFoundError:  # the present holder swept what was half written
        if path.parent.is_dir():
            return False
        raise
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return _create_in_place(path, about)
    finally:
        whole.unlink(missing_ok=True)
    return True


def _create_in_place(path: Path, about: dict[str, Any]) -> bool:
    """Where a file cannot have two names; a kill between the two lines leaves a lock that says nothing."""
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


_mine: dict[Path, int] = {}  # lock -> the thread of this process that holds it


def lock_path(target: Path) -> Path:
    """Beside the folder: what is in it may be replaced as a whole."""
    target = target.resolve()
    return target.with_name(f".{target.name}.lock")


def busy(target: Path) -> bool:
    """Whether another living process or thread writes this folder now."""
    path = lock_path(target)
    return path.exists() and _mine.get(path) != threading.get_ident() and not is_stale(path)


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """One writer for a folder: refused if another lives, taken over if it is dead.  May be nested.

    At the end the lock is looked at once more, so that nothing is said to be written that another process has replaced.
    """
    path = lock_path(target)
    if _mine.get(path) == threading.get_ident():
        yield
        return
    made = [folder for folder in path.parents if not folder.exists()]
    try:
        with _held(target, path) as lock:
            yield
            lock.check()
    finally:
        for folder in made:  # nothing was written after all
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextmanager
def _held(target: Path, path: Path) -> Iterator[Lock]:
    with holding(path) as lock:
        if lock is None:
            holder = read_holder(path)
            host, _, _ = str(holder.get("machine", "?")).partition(" ")
            raise CheckpointError(
                f"{target} is being written by process {holder.get('pid', '?')} on {host}: "
                "wait until it has ended, or give another --out; nothing was changed"
            )
        _mine[path] = threading.get_ident()
        try:
            sweep_lock(path, "tmp|stale")
            sweep_folder(target)
            yield lock
        finally:
            del _mine[path]


def sweep_folder(folder: Path) -> None:
    """Remove half-written files that a killed writer left in a folder; only for its present writer."""
    for stray in folder.rglob(".*.tmp") if folder.is_dir() else ():
        if re.fullmatch(r"\..+\.[0-9a-f]{8}\.tmp", stray.name) and stray.is_file():
            stray.unlink(missing_ok=True)


def sweep_lock(path: Path, kinds: str = "stale") -> None:
    """Remove what killed processes left of a lock; only for its present holder.  ``kinds``: "tmp|stale" also takes what
    another process that asks for the lock may be writing just now.
    """
    name = re.compile(rf"\.?{re.escape(path.name.lstrip('.'))}\.[0-9a-f]{{8}}\.({kinds})")
    for stray in path.parent.iterdir():
        if name.fullmatch(stray.name):
            stray.unlink(missing_ok=True)
