"""One process at a time writes a folder."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest

from protodepth.errors import CheckpointError
from protodepth.storage import locks


def test_a_lock_is_held_by_one_and_free_again_afterwards(tmp_path):
    with locks.holding(tmp_path / "lock") as first, locks.holding(tmp_path / "lock") as second:
        assert first is not None
        assert second is None
    assert not (tmp_path / "lock").exists()
    with locks.holding(tmp_path / "lock") as third:
        assert third is not None


def test_the_lock_of_a_killed_process_is_taken_over_at_once(tmp_path):
    script = (
        "import sys, os; from pathlib import Path; from protodepth.storage import locks\n"
        f"locks.acquire(Path({str(tmp_path / 'lock')!r})); sys.stdout.write('held'); sys.stdout.flush(); os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "held", done.stderr
    assert (tmp_path / "lock").exists()
    with locks.holding(tmp_path / "lock") as lock:
        assert lock is not None
        lock.check()


def test_the_lock_of_another_machine_is_stale_only_after_its_heartbeat_has_stopped(tmp_path):
    path = tmp_path / "lock"
    path.write_text(json.dumps({"pid": 1, "birth": "1", "machine": "elsewhere", "token": "t"}))
    assert locks.acquire(path) is None
    old = time.time() - locks.STALE_AFTER - 60
    os.utime(path, (old, old))
    lock = locks.acquire(path)
    assert lock is not None
    lock.release()


@pytest.mark.parametrize("damaged", ["{", "[]", "[" * 100_000])
def test_a_half_written_lock_is_respected_while_it_is_fresh(tmp_path, damaged):
    (tmp_path / "lock").write_text(damaged)
    assert locks.acquire(tmp_path / "lock") is None


def test_a_holder_whose_lock_is_damaged_does_not_hold_it(tmp_path):
    lock = locks.acquire(tmp_path / "lock")
    lock.path.write_text("[" * 100_000)
    assert not lock.held()
    lock.release()


def test_breaking_a_lock_leaves_that_of_a_living_process_in_place(tmp_path):
    path = tmp_path / "lock"
    lock = locks.acquire(path)
    locks._break(path, "the token of a stale lock that is gone by now")
    assert lock.held()
    lock.release()


def test_a_holder_notices_that_its_lock_was_taken(tmp_path):
    path = tmp_path / "lock"
    lock = locks.acquire(path)
    path.write_text(json.dumps({"token": "another"}))
    with pytest.raises(CheckpointError, match="taken by another process"):
        lock.check()
    lock.release()
    assert path.exists()  # not ours to remove


COMPETE = """
import sys, time
from pathlib import Path
from protodepth.storage import locks
folder, name = Path(sys.argv[1]), sys.argv[2]
(folder / f"{name}.ready").touch()
while len(list(folder.glob("*.ready"))) < 3:
    time.sleep(0.01)
end = time.monotonic() + 1.0
with (folder / f"{name}.txt").open("w") as file:
    while time.monotonic() < end:
        with locks.holding(folder / "lock") as lock:
            if lock is not None:
                begun = time.monotonic_ns()
                time.sleep(0.002)
                print(begun, time.monotonic_ns(), file=file)
"""


def test_of_three_processes_only_one_at_a_time_holds_a_lock(tmp_path):
    """Each takes the lock as often as it can and writes down when; two at once would overlap."""
    commands = [[sys.executable, "-c", COMPETE, str(tmp_path), str(n)] for n in range(3)]
    workers = [subprocess.Popen(command) for command in commands]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0, 0]
    texts = [line.split() for n in range(3) for line in (tmp_path / f"{n}.txt").read_text().splitlines()]
    spans = sorted((int(begun), int(ended)) for begun, ended in texts)
    assert len(spans) > 5
    assert all(ended <= begun for (_, ended), (begun, _) in pairwise(spans))


def test_a_process_number_that_is_used_again_is_another_process(tmp_path):
    path = tmp_path / "lock"
    about = {"pid": os.getpid(), "birth": "1", "machine": locks.this_machine(), "token": "old"}
    path.write_text(json.dumps(about))
    assert locks.is_stale(path) == (locks.birth(os.getpid()) != "")  # where the system cannot tell, it is not stale
    path.write_text(json.dumps({**about, "birth": locks.birth(os.getpid())}))
    assert not locks.is_stale(path)


def test_a_folder_has_one_writer_and_its_name_is_said(tmp_path):
    target = tmp_path / "runs" / "m"
    script = (
        "import sys, time; from pathlib import Path; from protodepth.storage import locks\n"
        f"with locks.writing(Path({str(target)!r})): print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "held\n"
            assert locks.busy(target)
            with pytest.raises(CheckpointError, match=f"being written by process {other.pid}"), locks.writing(target):
                pass
        finally:
            other.kill()
    assert not locks.busy(target)
    with locks.writing(target), locks.writing(target):  # taken over from the dead, and may be nested
        assert not locks.busy(target)
    assert list(target.parent.iterdir()) == []


def test_another_thread_of_the_same_process_is_another_writer(tmp_path):
    seen = []

    def other():
        try:
            with locks.writing(tmp_path / "m"):
                seen.append("written")
        except CheckpointError:
            seen.append("refused")

    with locks.writing(tmp_path / "m"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    other()
    assert seen == ["refused", "written"]


def test_folders_that_were_made_for_the_lock_alone_go_again(tmp_path):
    with locks.writing(tmp_path / "a" / "b" / "m"):
        pass
    assert list(tmp_path.iterdir()) == []
    with locks.writing(tmp_path / "a" / "b" / "m"):
        (tmp_path / "a" / "b" / "m").mkdir()
    assert (tmp_path / "a" / "b" / "m").is_dir()


def test_strays_of_killed_lockers_are_swept_and_nothing_else(tmp_path):
    for name in (".m.lock.0123abcd.tmp", ".m.lock.0123abcd.stale", ".m2.lock.0123abcd.tmp", "m.lock.txt"):
        (tmp_path / name).write_text("")
    with locks.writing(tmp_path / "m"):
        assert {p.name for p in tmp_path.iterdir()} == {".m.lock", ".m2.lock.0123abcd.tmp", "m.lock.txt"}


def test_a_disk_without_second_names_has_locks_too(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with locks.holding(tmp_path / "lock") as first, locks.holding(tmp_path / "lock") as second:
        assert first is not None
        assert second is None
    assert list(tmp_path.iterdir()) == []


def test_a_writer_whose_lock_was_taken_says_so(tmp_path):
    def write():
        with locks.writing(tmp_path / "m"):
            locks.lock_path(tmp_path / "m").write_text(json.dumps({"token": "another"}))

    with pytest.raises(CheckpointError, match="taken by another process"):
        write()


def test_half_written_files_of_a_killed_writer_are_swept_and_files_of_others_stay(tmp_path):
    inside = tmp_path / "m" / "state"
    inside.mkdir(parents=True)
    for name in (".state.json.0123abcd.tmp", "notes.tmp", ".notes.tmp", ".a.0123abcd.tmp.txt"):
        (inside / name).write_text("")
    (inside / ".folder.0123abcd.tmp").mkdir()
    with locks.writing(tmp_path / "m"):
        pass
    assert not (inside / ".state.json.0123abcd.tmp").exists()
    assert len(list(inside.iterdir())) == 4


def test_a_system_without_proc_says_only_whether_a_process_exists(tmp_path, monkeypatch):
    def nothing(path, *args):
        raise FileNotFoundError

    monkeypatch.setattr(locks.Path, "read_text", nothing)
    monkeypatch.setattr(locks.Path, "readlink", nothing)
    monkeypatch.setattr(locks.Path, "exists", lambda path: False)
    assert " " not in locks.this_machine()
    assert locks.birth(os.getpid()) == ""
    for error, expected in ((ProcessLookupError, None), (PermissionError, "")):

        def refuse(pid, number, error=error):
            raise error

        monkeypatch.setattr(os, "kill", refuse)
        assert locks.birth(1) == expected


def test_a_lock_that_goes_while_it_is_looked_at_is_neither_stale_nor_broken(tmp_path):
    assert not locks.is_stale(tmp_path / "gone")
    locks._break(tmp_path / "gone", "token")
    assert list(tmp_path.iterdir()) == []


def test_the_heart_beats_while_the_lock_is_held_and_only_then(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "HEARTBEAT", 0.01)
    lock = locks.acquire(tmp_path / "lock")
    os.utime(lock.path, (1, 1))
    while lock.path.stat().st_mtime == 1:
        time.sleep(0.01)
    whose = lock.path.read_text()
    lock.path.write_text(json.dumps({"token": "another's"}))
    os.utime(lock.path, (1, 1))
    time.sleep(0.1)
    assert lock.path.stat().st_mtime == 1
    lock.path.write_text("[]")
    assert not lock.held()
    lock.path.write_text(whose)
    lock.release()
    assert not lock.path.exists()


def test_a_disk_that_cannot_be_read_at_the_end_does_not_keep_the_lock(tmp_path, monkeypatch):
    lock = locks.acquire(tmp_path / "lock")

    def broken() -> bool:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(lock, "held", broken)
    lock.release()
    assert not lock.path.exists()


def test_a_stale_lock_that_cannot_be_moved_is_left_to_its_disk(tmp_path, monkeypatch):
    (tmp_path / "lock").write_text(json.dumps({"token": "t"}))
    monkeypatch.setattr(locks, "is_stale", lambda path: True)
    monkeypatch.setattr(locks, "_break", lambda path, token: None)
    assert locks.acquire(tmp_path / "lock") is None
