"""For every n the n-th write, flush, rename, open, mkdir or unlink of every writer fails, once or from then on:
what was there or what was to be there is read afterwards, the message is one line, and the next start leaves nothing.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import tiny_model
from helpers import report_fakes
from helpers.bench_cells import cell
from helpers.failing_disk import ERRORS, FailingDisk, failing
from protodepth.errors import ProtoDepthError
from protodepth.experiments.cells import Store
from protodepth.model import ProtoDepth
from protodepth.report import run
from protodepth.storage import files, locks
from protodepth.storage.locks import writing
from protodepth.training.log import JsonLines
from protodepth.training.schedule import Schedule
from protodepth.training.state import read_state_tensors, write_state
from protodepth.training.unfinished import Unfinished


@dataclass(frozen=True)
class Writer:
    """``write`` puts version 1 or 2 into a folder, ``read`` says which is there (0: none)."""

    write: Callable[[Path, int], None]
    read: Callable[[Path], int]


def sealed(folder: Path, version: int) -> None:
    files.write_sealed(folder / "a.json", {"version": version})


def read_sealed(folder: Path) -> int:
    return int(files.read_sealed(folder / "a.json", ())["version"]) if (folder / "a.json").exists() else 0


def state(folder: Path, version: int) -> None:
    write_state(folder, version, {"w": torch.full((3,), float(version))}, {"seed": 0})


def read_state(folder: Path) -> int:
    if not (folder / "state.json").exists():
        return 0
    facts = files.read_sealed(folder / "state.json", ())
    assert float(read_state_tensors(folder, facts)["w"][0]) == facts["step"]
    return int(facts["step"])


MODELS: dict[int, ProtoDepth] = {}


def version_of_model(version: int) -> ProtoDepth:
    if version not in MODELS:
        MODELS[version] = tiny_model(seed=version)
        MODELS[version].add_domain("hall", seed=version)
    return MODELS[version]


def save_model(folder: Path, version: int) -> None:
    version_of_model(version).save_pretrained(folder / "m")


def read_model(folder: Path) -> int:
    if not (folder / "m").exists() and not list(folder.glob(".m.*.old")):
        return 0
    prints = {version_of_model(version).fingerprint(): version for version in (1, 2)}
    return prints[ProtoDepth.from_pretrained(folder / "m").fingerprint()]


def save_domain(folder: Path, version: int) -> None:
    version_of_model(version).save_domain("hall", folder / "d")


def read_domain(folder: Path) -> int:
    if not (folder / "d").exists() and not list(folder.glob(".d.*.old")):
        return 0
    meta = (folder / "d" / "meta.json") if (folder / "d").exists() else next(folder.glob(".d.*.old")) / "meta.json"
    stated = json.loads(meta.read_text())["backbone_sha256"]
    version = next(v for v in (1, 2) if version_of_model(v).fingerprint() == stated)
    other = tiny_model(seed=version)
    other.load_domain(folder / "d")
    return version


OWN = cell("own", steps=1)


def save_cell(folder: Path, version: int) -> None:
    files.write_bytes(Store(folder).place(OWN) / "samples.npz", b"the same")
    Store(folder).write(OWN, {"version": version})


def read_cell(folder: Path) -> int:
    store = Store(folder)
    if not store.done(OWN):
        return 0
    assert store.file(OWN, "samples.npz").read_bytes() == b"the same"
    return int(store.result(OWN)["version"])


def save_log(folder: Path, version: int) -> None:
    log = JsonLines(folder / "log.jsonl")
    for step in range(1, version + 1):
        log(step, {"loss": 0.5})


def read_log(folder: Path) -> int:
    if not (folder / "log.jsonl").exists():
        return 0
    whole = [line for line in (folder / "log.jsonl").read_text().splitlines(keepends=True) if line.endswith("\n")]
    steps = [json.loads(line)["step"] for line in whole]
    assert steps == list(range(1, len(steps) + 1))
    return len(steps)


def save_plan(folder: Path, version: int) -> None:
    plan = Unfinished.beside(folder / "m", "den", {"version": version})
    plan.schedule()
    plan.begin(Schedule(steps=version))


def read_plan(folder: Path) -> int:
    file = folder / ".m.den.adapting" / "plan.json"
    return int(files.read_sealed(file, ())["schedule"]["steps"]) if file.exists() else 0


def save_run(folder: Path, version: int) -> None:
    document = report_fakes.document()
    run.write_run(folder, {**document, "seconds": version}, ())


def read_run(folder: Path) -> int:
    return int(run.read_run(folder)[0]["seconds"]) if (folder / "results.json").exists() else 0


WRITERS = {
    "sealed file": Writer(sealed, read_sealed),
    "training state": Writer(state, read_state),
    "model": Writer(save_model, read_model),
    "domain": Writer(save_domain, read_domain),
    "cell of a bench": Writer(save_cell, read_cell),
    "log": Writer(save_log, read_log),
    "plan of adapt": Writer(save_plan, read_plan),
    "results": Writer(save_run, read_run),
}


def strays(folder: Path) -> list[str]:
    endings = (".tmp", ".old", ".stale", ".lock")
    return [p.name for p in folder.rglob("*") if p.name.endswith(endings)]


def write_alone(writer: Writer, folder: Path, version: int) -> None:
    """As a command does: under the lock of its folder, which sweeps first."""
    with writing(folder):
        writer.write(folder, version)


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """After a call, every lock that is there was left by a process that has ended."""
    lives = [0]
    monkeypatch.setattr(locks, "birth", lambda pid: f"life {lives[0]}")

    def end() -> None:
        lives[0] += 1

    return end


def attack(writer: Writer, root: Path, dead: Callable[[], None], cases: list[tuple[int, bool]], every: int = 1) -> int:
    """Fail at every n-th operation; the number of failures that were met."""
    pristine, out = root / "pristine", root / "disk" / "out"
    write_alone(writer, pristine, 1)
    shutil.copytree(pristine, out)
    with failing(FailingDisk(root / "disk")) as disk:
        write_alone(writer, out, 2)
    total, met = disk.count, 0
    assert total > 5
    assert writer.read(out) == 2
    for code, lasting in cases:
        for n in range(1, total + 1, every):
            shutil.rmtree(root / "disk")
            shutil.copytree(pristine, out)
            met += fail_once(writer, out, FailingDisk(root / "disk", n, code, lasting=lasting), dead)
    return met


def fail_once(writer: Writer, out: Path, disk: FailingDisk, dead: Callable[[], None]) -> bool:
    failed: Any = None
    try:
        with failing(disk):
            write_alone(writer, out, 2)
    except (OSError, ProtoDepthError) as error:
        failed = error
    dead()
    where = f"operation {disk.at} of {disk.count}, {failed!r}"
    assert "\n" not in str(failed), where
    there = writer.read(out)
    assert there in ((1, 2) if writer.read is not read_plan else (0, 1, 2)), where  # an old plan goes before a new one
    assert failed is not None or there == 2, where
    write_alone(writer, out, 2)
    assert writer.read(out) == 2, where
    assert strays(out.parent) == [], where
    return True


@pytest.mark.parametrize("name", WRITERS)
def test_a_failing_disk_leaves_the_old_or_the_new(name: str, tmp_path: Path, dead: Callable[[], None]) -> None:
    every = 4 if name in ("model", "domain") else 1
    met = attack(WRITERS[name], tmp_path, dead, [(ERRORS[0], False), (ERRORS[1], True)], every)
    print(name, met, "failures")
    assert met >= 10


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_every_failure_of_every_writer(name: str, tmp_path: Path, dead: Callable[[], None]) -> None:
    met = attack(WRITERS[name], tmp_path, dead, [(code, lasting) for code in ERRORS for lasting in (False, True)])
    print(name, met, "failures")
