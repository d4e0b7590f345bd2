"""Run commands in processes that can be killed at any moment.

A server process imports everything once and forks for every command: it never computes itself, so that forking is safe,
and a command begins without the seconds that imports take.  All tests of a process share one server.
"""

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path
from types import TracebackType

# torch._dynamo and tyro: a first optimiser and a first command import them, which takes longer than these trainings
SERVER = """
import json, os, signal, sys
import torch._dynamo, tyro
import protodepth.cli.main, protodepth.training.runs, protodepth.training.adapt, protodepth.training.unfinished
import protodepth.data.recording.open, protodepth.data.worlds.worlds, protodepth.experiments.bench

def count_operations(at, file):
    # kill this process before its at-th operation on the disk; what is given back says how many there were
    done = [0]
    def wrapped(call):
        def run(*args, **options):
            done[0] += 1
            if done[0] == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)
        return run
    for name in ("fsync", "replace", "rename", "link", "unlink", "mkdir"):
        setattr(os, name, wrapped(getattr(os, name)))
    return lambda: open(file, "w").write(str(done[0]))

print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    if "wait" in job:
        print(os.waitstatus_to_exitcode(os.waitpid(job["wait"], 0)[1]), flush=True)
        continue
    child = os.fork()
    if child == 0:
        code = 1
        try:
            out = os.open(job["log"], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0); os.dup2(out, 1); os.dup2(out, 2)
            os.chdir(job["folder"])
            os.environ.update(job["environment"])
            say = count_operations(job["kill_at"], job["count"])
            code = protodepth.cli.main.run(job["argv"])
            say()
        finally:
            sys.stdout.flush(); sys.stderr.flush()
            os._exit(code)
    print(child, flush=True)
"""


class _Server:
    """Starts commands and waits for them, one question at a time."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        atexit.register(self.close)

    def ask(self, job: dict[str, object]) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended a moment before
        os.kill(process, signal.SIGKILL)


@cache
def _server() -> _Server:
    return _Server()


class Killer:
    """``with Killer(folder) as killer: killer.run("train ...", kill=0.4)``"""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "commands.log"

    def __enter__(self) -> "Killer":
        self.server = _server()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def start(
        self, argv: list[str], kill_at: int = 0, log: Path | None = None, environment: dict[str, str] | None = None
    ) -> int:
        """The id of a process that has begun this command; what it prints is added to the log."""
        job = {"argv": argv, "kill_at": kill_at, "folder": str(self.folder), "log": str(log or self.log)}
        return self.server.ask({**job, "count": str(self.folder / "operations"), "environment": environment or {}})

    def wait(self, process: int) -> int:
        """The exit code of a process that was started here, -9 if it was killed."""
        return self.server.ask({"wait": process})

    def run(self, argv: list[str], kill: float | None = None, kill_at: int = 0) -> tuple[int, float]:
        """(exit code, -9 if it was killed; seconds).  ``kill``: after seconds; ``kill_at``: before the n-th operation
        on the disk, so that saves are met as often as one likes.
        """
        begun, process = time.monotonic(), self.start(argv, kill_at)
        timer = threading.Timer(kill or 0, _kill, (process,))
        if kill is not None:
            timer.start()
        code = self.wait(process)
        timer.cancel()
        return code, time.monotonic() - begun

    def operations(self) -> int:
        """Of the last command that ended by itself."""
        return int((self.folder / "operations").read_text())

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""
