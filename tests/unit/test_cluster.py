"""Work in pieces: the same order as in one process, few pieces under way, workers that die, Ray that is not there."""

import os
import sys
from concurrent.futures import Executor, Future
from copy import copy
from pathlib import Path

import pytest

from protodepth import cluster
from protodepth.cli import main
from protodepth.errors import ConfigError, ProcessLost, UnknownNameError


class Later(Executor):
    """Does the work when the result is asked for, and counts what waits."""

    def __init__(self) -> None:
        self.waiting = self.most = 0

    def submit(self, call, /, *args, **kwargs):
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        executor = self

        class Asked(Future):
            def result(self, timeout=None):
                executor.waiting -= 1
                return call(*args, **kwargs)

        return Asked()


def test_results_keep_their_order_and_few_pieces_are_under_way() -> None:
    executor = Later()
    assert list(cluster.in_order(executor, abs, iter(range(-100, 0)), ahead=5)) == list(range(100, 0, -1))
    assert executor.most == 5
    assert list(cluster.in_order(None, abs, [-3, 2])) == [3, 2]


def test_one_worker_here_is_this_process() -> None:
    with cluster.pool("here", 1) as executor:
        assert executor is None
    with pytest.raises(ConfigError, match="--workers must be at least 1, got 0"):
        cluster.check_workers("here", 0)


def test_processes_of_a_pool_have_one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with cluster.pool("here", 2) as executor:
        assert executor is not None
        assert executor.submit(os.getenv, "OMP_NUM_THREADS").result() == "1"
    assert "OMP_NUM_THREADS" not in os.environ


def test_a_worker_that_is_killed_is_said_and_not_waited_for() -> None:
    with cluster.pool("here", 2) as executor, pytest.raises(ProcessLost, match=r"a worker has gone .* Call again"):
        list(cluster.in_order(executor, os._exit, [9]))


def test_an_unknown_name_in_another_process_arrives_with_its_choices() -> None:
    error = copy(UnknownNameError("world", "rom", ("room", "street")))  # by what a pickle is made of, too
    assert isinstance(error, UnknownNameError)
    assert "did you mean room?" in str(error)


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "classical", "--out", "out"],
        ["predict", "--data", "worlds:room", "--out", "out"],
        ["data", "prepare", "vkitti", "raw", "out"],
    ],
)
def test_without_ray_the_command_says_how_to_get_it(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.chdir(tmp_path)
    assert main.run([*words, "--on", "ray"]) == 2
    assert "pip install 'protodepth[cluster]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
