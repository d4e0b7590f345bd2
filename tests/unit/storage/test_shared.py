"""Several writers of one folder, and what the dead among them leave."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from protodepth.errors import CheckpointError
from protodepth.storage import locks, shared

DEAD = """
import os, sys
from pathlib import Path
from protodepth.storage import locks, shared
folder = Path(sys.argv[1])
with shared.sharing(folder, "bench.json", "bench"):
    locks.acquire(folder / "cells" / "a" / "lock")
    print("held", flush=True)
    os._exit(9)
"""


def names(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def leave_strays(folder: Path) -> None:
    """What a kill can leave at each place."""
    done = subprocess.run([sys.executable, "-c", DEAD, str(folder)], capture_output=True, text=True, check=False)
    assert done.stdout == "held\n", done.stderr
    for stray in (".bench.json.0123abcd.tmp", "cells/a/lock.0123abcd.stale", "cells/.clock.0123abcd",
                  ".bench.json.lock.0123abcd.tmp"):  # fmt: skip
        (folder / stray).write_text("half")
    (folder / ".bench.json.lock").write_bytes((folder / "cells" / "a" / "lock").read_bytes())  # killed in the gate
    (folder / "cells" / "a" / ".state.0123abcd.tmp").mkdir()
    (folder / "cells" / "a" / ".state.0123abcd.tmp" / ".w.0123abcd.tmp").write_text("half")
    for model in ("model", ".model.0123abcd.old", ".lost.0123abcd.old"):
        (folder / "cells" / "a" / model).mkdir()
        (folder / "cells" / "a" / model / "file").write_text(model)


KEPT = [
    "bench.json",
    "cells/a/.lost.0123abcd.old/file",
    "cells/a/model/file",
]  # the one set aside is all there is of it


def test_who_comes_alone_sweeps_what_the_dead_left(tmp_path: Path) -> None:
    leave_strays(tmp_path)
    with shared.sharing(tmp_path, "bench.json", "bench"):
        inside = [name for name in names(tmp_path) if name not in KEPT]
    assert len(inside) == 1  # that this process lives
    assert names(tmp_path) == KEPT


def test_who_goes_last_sweeps_too(tmp_path: Path) -> None:
    with shared.sharing(tmp_path, "bench.json", "bench"):
        leave_strays(tmp_path)
    assert names(tmp_path) == KEPT


def test_nothing_is_swept_while_another_lives(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir(parents=True)
    (tmp_path / "bench.json").write_text("{}")
    (tmp_path / "cells" / ".x.0123abcd.tmp").write_text("being written")
    with locks.holding(tmp_path / "cells" / "lock") as lock:
        assert lock is not None
        with shared.sharing(tmp_path, "bench.json", "bench"):
            assert (tmp_path / "cells" / ".x.0123abcd.tmp").exists()
        assert lock.held()
        assert (tmp_path / "cells" / ".x.0123abcd.tmp").exists()


def test_files_and_links_of_others_stay(tmp_path: Path) -> None:
    with shared.sharing(tmp_path / "b", "bench.json", "bench"):
        pass
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "thesis.tex").write_text("years")
    for name in ("notes.tmp", ".hidden", "lock", "my.lock", ".mine.tmp", "a.old"):
        (tmp_path / "b" / name).write_text("mine")
    (tmp_path / "b" / ".far.0123abcd.tmp").symlink_to(tmp_path / "far")
    (tmp_path / "b" / ".work.tmp").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with shared.sharing(tmp_path / "b", "bench.json", "bench"):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_of_others_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(CheckpointError, match="holds no bench"), shared.sharing(tmp_path, "bench.json", "bench"):
        pass
    assert names(tmp_path) == ["thesis.tex"]


def test_two_that_begin_together_take_turns(tmp_path: Path) -> None:
    inside, most, step = [0], [0], threading.Lock()

    def take_part() -> None:
        with shared.sharing(tmp_path / "b", "bench.json", "bench"):
            with step:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            time.sleep(0.2)
            with step:
                inside[0] -= 1

    threads = [threading.Thread(target=take_part) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] > 1
    assert names(tmp_path / "b") == ["bench.json"]


def test_a_gate_that_stays_shut_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "PATIENCE", 2)
    (tmp_path / "bench.json").write_text("{}")
    with locks.holding(tmp_path / ".bench.json.lock"):
        with pytest.raises(CheckpointError, match="held by another process"):
            shared.sharing(tmp_path, "bench.json", "bench").__enter__()
        assert json.loads((tmp_path / "bench.json").read_text()) == {}


def test_a_disk_that_fails_at_the_end_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def take_part() -> None:
        with shared.sharing(tmp_path, "bench.json", "bench"):
            monkeypatch.setattr(os, "link", broken)
            raise ValueError("the real reason")

    with pytest.raises(ValueError, match="the real reason"):
        take_part()


def test_a_half_written_lock_that_its_holder_sweeps_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ask for one lock; the one that has it sweeps while the other is about to link its own."""
    link = os.link

    def swept(source: Path, target: Path) -> None:
        source.unlink()
        link(source, target)

    monkeypatch.setattr(os, "link", swept)
    assert locks.acquire(tmp_path / "lock") is None

    def gone(source: Path, target: Path) -> None:
        source.unlink()
        tmp_path.joinpath("folder").rmdir()
        link(source, target)

    monkeypatch.setattr(os, "link", gone)
    with pytest.raises(FileNotFoundError):
        locks.acquire(tmp_path / "folder" / "lock")
