"""Run commands in processes that can be killed at any moment.

A server process imports everything once and forks for every command: it never computes itself, so that forking is safe,
and a command begins without the seconds that imports take.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

SERVER = """
import json, os, signal, sys, threading, time
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
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            out = os.open(job["log"], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            os.dup2(out, 1); os.dup2(out, 2)
            os.chdir(job["folder"])
            say = count_operations(job["kill_at"], job["count"])
            code = protodepth.cli.main.run(job["argv"])
            say()
        finally:
            sys.stdout.flush(); sys.stderr.flush()
            os._exit(code)
    if job["kill"] is not None:
        timer = threading.Timer(job["kill"], lambda: os.kill(child, signal.SIGKILL))
        timer.start()
    _, status = os.waitpid(child, 0)
    if job["kill"] is not None:
        timer.cancel()
    print(json.dumps({"code": os.waitstatus_to_exitcode(status), "seconds": time.monotonic() - begun}), flush=True)
"""


class Killer:
    """``with Killer(folder) as killer: killer.run("train ...", kill=0.4)``"""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "commands.log"

    def __enter__(self) -> "Killer":
        command = [sys.executable, "-c", SERVER]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.server.stdout is not None
        assert self.server.stdout.readline() == "ready\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait(60)

    def run(self, argv: list[str], kill: float | None = None, kill_at: int = 0) -> tuple[int, float]:
        """(exit code, -9 if it was killed; seconds).  ``kill``: after seconds; ``kill_at``: before the n-th operation
        on the disk, so that saves are met as often as one likes.
        """
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        job = {"argv": argv, "kill": kill, "kill_at": kill_at, "folder": str(self.folder), "log": str(self.log)}
        job["count"] = str(self.folder / "operations")
        self.server.stdin.write(json.dumps(job) + "\n")
        self.server.stdin.flush()
        found = json.loads(self.server.stdout.readline())
        return found["code"], found["seconds"]

    def operations(self) -> int:
        """Of the last command that ended by itself."""
        return int((self.folder / "operations").read_text())

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""
