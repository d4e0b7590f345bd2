"""Every dataset that ``--data`` takes, every kind of file in it, damaged: one sentence, no crash, no file changed.

A file counts as one that is read if nonsense in its place is refused.  A mutant *reaches its parser* if the outer form
of the file is whole: JSON that parses, text in UTF-8, a binary file that begins as it should.  Each attack runs in a
process of its own, which may take 3 GB and 30 s of the processor for a file: a crash, a hang or an allocation is
counted, not survived.
"""

import importlib
import json
import math
import os
import re
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from helpers.apart import attack_apart
from helpers.mutants import mutants
from helpers.small_datasets import WRITERS
from protodepth.data.arguments import BUILT_IN, open_domain
from protodepth.errors import ProtoDepthError

FEW, MANY = 20, int(os.environ.get("PROTODEPTH_MUTANTS", "10000"))  # of each dataset
SEED = int(os.environ.get("PROTODEPTH_SEED", "22"))  # of the many: another one draws other damage
SECONDS = 2.0  # of computing, for each dataset in an ordinary test run
LEAST = 10  # however slow the machine is
MOST_BYTES, MOST_SECONDS = 3 << 30, 30
NONSENSE = b"\xff\x00nonsense\xfe" * 3 + b"\xff"
TEXT = (".txt", ".toml", ".json", ".jsonl", ".log", ".yaml", ".csv", "")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="attacks run in forked processes")


def forget() -> None:
    """What the readers keep of an earlier file."""
    for name in set(BUILT_IN.values()) | {"protodepth.data.datasets.ros_messages"}:
        for value in vars(sys.modules.get(name) or importlib.import_module(name)).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def read(argument: str) -> object:
    """Open it and read a frame of each split."""
    forget()
    domain = open_domain(argument)
    return [domain.split(s)[0] for s in ("train", "val", "test") if len(domain.split(s))]


def refused(argument: str, path: Path, bad: bytes) -> str | None:
    """The sentence, if there is one; the file has the bytes that it was given."""
    path.write_bytes(bad)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)  # of computing: a busy machine is no fault of a reader
    try:
        read(argument)
        said = None
    except ProtoDepthError as error:
        said = str(error) or "nothing"
    signal.setitimer(signal.ITIMER_PROF, 0)
    assert path.read_bytes() == bad
    return said


def kind(path: Path) -> str:
    """Frames of one folder are of one kind."""
    name = re.sub(r"\d+", "#", path.name)
    return f"{re.sub(r'[0-9]+', '#', path.parent.name)}/{name}"


def targets(folder: Path, argument: str) -> dict[str, Path]:
    """Of every kind of file one that is read: with nonsense in its place the dataset is refused."""
    found: dict[str, Path] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if kind(path) not in found:
            good = path.read_bytes()
            if refused(argument, path, NONSENSE) is not None:
                found[kind(path)] = path
            path.write_bytes(good)
    return found


def reaches(path: Path, good: bytes, bad: bytes) -> bool:
    if path.suffix not in TEXT:
        return bad[:4] == good[:4] and len(bad) > 16
    try:
        text = bad.decode()
        return path.suffix != ".json" or json.loads(text) is not None
    except (ValueError, RecursionError):
        return False


def attack(folder: Path, name: str, count: int, seed: int, seconds: float, say: Any) -> None:
    """In the child: what is not an error of ours is sent as it is, with the bytes kept beside, and ends the attack."""
    argument = WRITERS[name](folder)
    read(argument)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MOST_BYTES,) * 2)
    seen, attacked = {"tried": 0, "reached": 0, "refused": 0, "read": 0}, targets(folder, argument)
    whole = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    draws = {path: mutants(whole[path], count // len(attacked) + 1, seed) for path in attacked.values()}
    end = time.process_time() + seconds
    while draws and seen["tried"] < count and (time.process_time() < end or seen["tried"] < LEAST):
        path = list(draws)[seen["tried"] % len(draws)]
        bad = next(draws[path])
        try:
            said = refused(argument, path, bad)
        except BaseException as error:
            say.send(f"{type(error).__name__}: {error} for {kind(path)} = {bad[:3000]!r}, after {seen}")
            raise
        path.write_bytes(whole[path])
        seen["tried"] += 1
        seen["reached"] += reaches(path, whole[path], bad)
        seen["refused" if said else "read"] += 1
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == whole
    say.send({**seen, "kinds": len(attacked)})


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def test_every_reader_is_attacked() -> None:
    assert {name.split()[0] for name in WRITERS} == BUILT_IN.keys() - {"worlds"}  # worlds have no files


@pytest.mark.parametrize("name", WRITERS)
def test_damaged_files_of_every_reader_are_one_sentence(tmp_path: Path, name: str) -> None:
    seen = attack_apart(attack, tmp_path / "d", name, FEW, 21, SECONDS)
    print(name, seen)
    assert seen["kinds"] > 0
    assert seen["refused"] > 0
    assert seen["reached"] > seen["tried"] / 4


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_ten_thousand_damaged_files_of_every_reader(tmp_path: Path, name: str) -> None:
    print(name, attack_apart(attack, tmp_path / "d", name, MANY, SEED, math.inf))
