"""torchrun -m protodepth train: one run of two processes, and what happens when one of them is killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import tyro

from helpers.documents import lines
from helpers.killing import Killer
from protodepth import config
from protodepth.cli.main import COMMANDS, run, split
from protodepth.data.worlds.worlds import world
from protodepth.training import recipes

STEPS = 110
ROOM = "worlds:room?size=32x48&train=6&val=2&test=3"
HALL = "worlds:warehouse?size=32x48&train=6&val=2&test=3"
NETWORK = "backbone_options={image_widths=[4,4,6,6,8],depth_widths=[2,2,4,4,4]}"
BASE = [
    "train", "--recipe", "worlds-tiny", "--data", ROOM, "--set", f"schedule.steps={STEPS}", "--set",
    "schedule.save_every=100000",
    "--set", "schedule.batch_size=2", "--set", NETWORK, "--device", "cpu",
]  # fmt: skip

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found in /proc")


@pytest.fixture(scope="module", autouse=True)
def drawn() -> None:
    """The frames are drawn before, into the cache of the tests: no process waits for another that draws."""
    room = world("room", size=(32, 48), train=6, val=2, test=3)
    _ = room.train[0], room.val[0], room.test[0]


def start(out: Path, *more: str, command: Sequence[str] = (*BASE, "--out")) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    words = [*torchrun, "-m", "protodepth", *command, str(out), *more]
    return subprocess.Popen(words, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class Pair:
    """The two processes without torchrun above them: forks of one that has imported everything, which is cheaper."""

    def __init__(self, out: Path, *more: str) -> None:
        self.folder = out.parent
        self.log = self.folder / f"{out.name}{''.join(more)}.log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        with Killer(self.folder) as self.killer:
            self.ranks = [
                self.killer.start(
                    [*BASE, "--out", str(out), *more],
                    log=self.log,
                    environment={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                )
                for rank in range(2)
            ]

    def poll(self) -> None:
        """Whether they have ended is known when they are waited for."""

    def communicate(self, timeout: float = 0) -> tuple[str, None]:
        self.returncode = max(abs(self.killer.wait(process)) for process in self.ranks)
        return self.log.read_text(), None


Started = subprocess.Popen[str] | Pair


def finish(process: Started, seconds: float = 120) -> tuple[int, str]:
    output, _ = process.communicate(timeout=seconds)
    return process.returncode, output


def child(run: Started, rank: int) -> int:
    """The process of a rank."""
    if isinstance(run, Pair):
        return run.ranks[rank]
    parent = run.pid
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            born_of = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            settings = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if born_of == parent and f"RANK={rank}".encode() in settings:
            return int(entry.name)
    raise AssertionError(f"torchrun has no process of rank {rank}")


def wait_for(file: Path, process: Started, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not file.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, f"{file} did not appear"
        time.sleep(0.01)


def weights(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.safetensors"))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """An uninterrupted run of two processes, and what it printed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    code, output = finish(start(out))
    assert code == 0, output
    return out, output


def test_the_commands_of_the_document_can_be_parsed() -> None:
    shown = [words for words in lines("docs/scale.md") if words[0] == "torchrun"]
    assert len(shown) >= 4
    for words in shown:
        name, rest = split(words[words.index("protodepth") + 1 :])
        module, kind, _ = COMMANDS[str(name)]
        tyro.cli(getattr(import_module(module), kind), args=rest)


def test_the_first_process_alone_prints_and_each_has_its_log(whole: tuple[Path, str]) -> None:
    out, output = whole
    lines = output.splitlines()
    assert sum(f"{STEPS}/{STEPS}" in line for line in lines) == 1
    assert sum(line.startswith("wrote ") for line in lines) == 1
    assert (out / "rank1.log").exists()
    logs = [
        [json.loads(line) for line in (out / name).read_text().splitlines()]
        for name in ("log.jsonl", "log.rank1.jsonl")
    ]
    assert [record["step"] for record in logs[0]] == [50, 100]
    assert logs[0] == logs[1]  # the terms of the whole batch, in both
    assert {record["domain"] for record in logs[0]} == {"room"}


@pytest.mark.parametrize(
    ("rank", "begin"),
    [(1, Pair), pytest.param(1, start, marks=pytest.mark.slow), pytest.param(0, start, marks=pytest.mark.slow)],
    ids=["1", "1-torchrun", "0-torchrun"],
)
def test_a_killed_process_ends_the_other_with_a_saved_state(
    rank: int, begin: Callable[..., Started], whole: tuple[Path, str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    process = begin(out)
    wait_for(out / "log.rank1.jsonl", process)
    os.kill(child(process, rank), signal.SIGKILL)
    killed = time.monotonic()
    code, output = finish(process, 60)
    assert code != 0
    assert time.monotonic() - killed < 40
    step = json.loads((out / "state" / "state.json").read_text())["step"]
    assert 50 <= step < STEPS
    assert not (out / "model").exists()
    if rank == 1:
        assert f"another process of this run is gone: step {step} was saved" in output
        code, output = finish(begin(out, "--resume"))
        assert code == 0, output
        assert weights(out / "model") == weights(whole[0] / "model")
        assert list((out / "state").glob(".rescue-*")) == []


@pytest.mark.slow
def test_a_process_that_is_told_to_stop_stops_all_and_one_process_can_go_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(out)
    wait_for(out / "log.rank1.jsonl", process)
    os.kill(child(process, 1), signal.SIGTERM)
    code, output = finish(process, 60)
    assert code != 0
    assert "interrupted" in output
    assert "gone" not in output
    assert json.loads((out / "state" / "state.json").read_text())["step"] < STEPS
    assert run([*BASE, "--out", str(out), "--resume"]) == 0
    assert (out / "model" / "config.json").exists()


@pytest.mark.slow
def test_bad_input_is_said_once_and_leaves_no_folder(tmp_path: Path) -> None:
    code, output = finish(start(tmp_path / "run", "--set", "schedule.batch_size=1"))
    assert code != 0
    assert output.count("a batch of 1 cannot be shared by 2 processes") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_sequence_of_two_processes_has_the_scores_of_one(whole: tuple[Path, str], tmp_path: Path) -> None:
    start_from = config.override(recipes.get("indoor"), (f"start={whole[0] / 'model'}", f"domains={[ROOM, HALL]}"))
    few = config.override(start_from, ("schedule.steps=4", "rates={}", "curve_every=2", "settings={replay={size=3}}"))
    config.write(few, tmp_path / "tiny.toml")
    command = ["train", "--recipe", str(tmp_path / "tiny.toml"), "--method", "replay", "--device", "cpu", "--out"]
    code, output = finish(start(tmp_path / "two", command=command))
    assert code == 0, output
    assert run([*command, str(tmp_path / "one")]) == 0
    one, two = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("one", "two"))
    for setting, metrics in one["matrix"]["replay"].items():
        for metric, matrix in metrics.items():
            np.testing.assert_allclose(two["matrix"]["replay"][setting][metric], matrix, rtol=1e-3)
    assert len(two["curves"]["replay"]) == len(one["curves"]["replay"]) > 0
    assert sorted(p.name for p in (tmp_path / "two").iterdir() if p.suffix == ".html") == ["report.html"]
