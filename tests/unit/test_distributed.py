"""Two processes learn as one: the same gradients, the same decisions, the same errors, and every frame at its place."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from helpers import two_processes
from helpers.two_processes import NAMES, THRESHOLD
from protodepth import distributed
from protodepth.data.batches import training_batches
from protodepth.errors import ConfigError
from protodepth.types import Batch, Share

Results = dict[str, Any]


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Results]:
    """What the two processes found."""
    folder, port = tmp_path_factory.mktemp("two"), free_port()
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    shared["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, two_processes.__file__, str(folder)]
    started = [subprocess.Popen(command, env={**shared, "RANK": str(n), "LOCAL_RANK": str(n)}) for n in range(2)]
    assert [process.wait(timeout=240) for process in started] == [0, 0]
    first, second = (torch.load(folder / f"{n}.pt", weights_only=False) for n in range(2))
    return first, second


@pytest.fixture(scope="module")
def one() -> Results:
    """The same in one process."""
    return two_processes.everything()


def difference(a: list[torch.Tensor | None], b: list[torch.Tensor | None]) -> float:
    """Largest over the parameters of |a - b| / |b|; none may have a gradient in one list only."""
    assert [x is None for x in a] == [x is None for x in b]
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    return max(float((x - y).norm() / y.norm().clamp(min=1e-30)) for x, y in pairs)


@pytest.mark.parametrize("name", [*NAMES, "prior"])
def test_two_processes_have_the_gradients_of_one(name: str, one: Results, both: tuple[Results, Results]) -> None:
    """In double precision to the last digits: nothing is weighted by processes where it should be by frames."""
    whole = one[name]["torch.float64"]
    for half in (b[name]["torch.float64"] for b in both):
        assert difference(half["gradients"], whole["gradients"]) < 1e-9
        assert half["terms"] == pytest.approx(whole["terms"], rel=1e-9)
    assert sum(sum(b[name]["torch.float64"]["rows"]) for b in both) >= sum(whole["rows"])  # and borrowed ones


# Rows in another batch may take another kernel, whose last bits differ: 1e-7 in the depth is 2e-5 in the gradient
# of a small layer, and a frame that is weighted wrongly is 0.1.
# An untrained Uformer or FusionNet gives nearly flat depth, where rounding decides signs in the smoothness:
# double precision alone tells.
@pytest.mark.parametrize("name", [n for n in NAMES if n != "l2p"])
def test_in_single_precision_the_gradients_agree_to_1e_4(
    name: str, one: Results, both: tuple[Results, Results]
) -> None:
    for half in both:
        assert difference(half[name]["torch.float32"]["gradients"], one[name]["torch.float32"]["gradients"]) < 1e-4


def test_the_prior_is_judged_by_the_colours_of_the_whole_batch(one: Results, both: tuple[Results, Results]) -> None:
    alone = [b["prior"]["colors"][-1] < THRESHOLD for b in both]
    assert alone[0] != alone[1]  # each by itself would decide otherwise than the other
    assert one["prior"]["torch.float64"]["terms"]["prior"] > 0


def test_a_frame_that_is_not_finite_in_one_process_makes_both_skip_the_step(
    one: Results, both: tuple[Results, Results]
) -> None:
    assert 0 < one["skipped"]["skipped"] < 5
    for half in both:
        assert half["skipped"]["skipped"] == one["skipped"]["skipped"]
        for name, tensor in one["skipped"]["weights"].items():
            torch.testing.assert_close(half["skipped"]["weights"][name], tensor, rtol=1e-4, atol=1e-6)


def test_a_sequence_has_the_scores_and_the_curve_of_one_process(one: Results, both: tuple[Results, Results]) -> None:
    first, second = (b["sequence"] for b in both)
    assert all(torch.equal(first["weights"][n], second["weights"][n]) for n in first["weights"])
    for setting in ("incremental", "agnostic"):
        assert first[setting] == second[setting]
        for metric, matrix in one["sequence"][setting].items():
            torch.testing.assert_close(torch.tensor(first[setting][metric]), torch.tensor(matrix), rtol=1e-4, atol=0)
    place = [tuple(p[k] for k in ("stage", "step", "domain", "setting")) for p in one["sequence"]["curves"]]
    assert [tuple(p[k] for k in ("stage", "step", "domain", "setting")) for p in first["curves"]] == place


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_evaluation_is_shared_and_every_image_is_at_its_place(
    batch_size: int, one: Results, both: tuple[Results, Results]
) -> None:
    mean, images = one["evaluation"][batch_size]
    for half in both:
        found_mean, found_images = half["evaluation"][batch_size]
        assert found_mean == pytest.approx(mean, rel=1e-5)
        assert [row["name"] for row in found_images] == [row["name"] for row in images]
        assert [row["mae"] for row in found_images] == pytest.approx([row["mae"] for row in images], rel=1e-5)


def test_running_statistics_of_a_batch_norm_are_averaged(one: Results, both: tuple[Results, Results]) -> None:
    assert one["mean"].tolist() == [2.0]
    assert [b["mean"].tolist() for b in both] == [[7.0], [7.0]]


# --- shares -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def of_many(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Be one of several processes, as far as counting goes."""

    def be(rank: int, world: int) -> None:
        monkeypatch.setattr(distributed, "rank", lambda: rank)
        monkeypatch.setattr(distributed, "world", lambda: world)

    return be


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("turn", [0, 1])
def test_the_rows_of_all_processes_are_the_batch_of_one(
    room: Any, of_many: Callable[[int, int], None], world: int, turn: int
) -> None:
    whole = next(training_batches(room.train, 5, seed=1, start=3))
    found: dict[int, torch.Tensor] = {}
    for rank in range(world):
        of_many(rank, world)
        part = next(training_batches(room.train, 5, seed=1, start=3, turn=turn))
        assert part.share is not None
        assert part.total == 5
        for row, image in zip(range(5)[part.share.rows], part.image, strict=True):
            found[row] = image
    assert torch.equal(torch.stack([found[n] for n in range(5)]), whole.image)


def test_the_weights_of_all_shares_add_up_to_one_and_a_borrowed_row_weighs_nothing() -> None:
    for total in (1, 2, 3, 7):
        shares = [Share(n, 3, total) for n in range(3)]
        assert sum(s.weight for s in shares) == pytest.approx(1)
        assert sum(s.count for s in shares) == total
    assert (Share(2, 3, 1).count, Share(2, 3, 1).weight) == (0, 0.0)


def test_the_head_of_a_shared_batch_is_its_rows_below_the_count(batch: Batch) -> None:
    from dataclasses import replace

    from conftest import random_batch

    rows = replace(random_batch(2), share=Share(1, 2, 4))  # rows 1 and 3 of four
    head = rows.head(2)
    assert torch.equal(head.image, rows.image[:1])
    assert head.share == Share(1, 2, 2)
    assert rows.head(1).share.weight == 0  # type: ignore[union-attr]
    assert len(rows.head(1)) == 1


# --- devices ----------------------------------------------------------------------------------------------------------


def test_a_device_that_is_not_there_is_refused() -> None:
    for name in ("gpu7", "meta"):
        with pytest.raises(ConfigError, match=f"unknown device '{name}'"):
            distributed.device(name)
    if not torch.cuda.is_available():
        assert distributed.device() == torch.device("cpu")
        with pytest.raises(ConfigError, match="no CUDA"):
            distributed.device("cuda")


def test_every_process_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert distributed.device() == torch.device("cuda:0")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert distributed.device() == distributed.device("cuda") == torch.device("cuda:1")
    assert distributed.device("cuda:0") == torch.device("cuda:0")
    assert distributed.device("cpu") == torch.device("cpu")
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ConfigError, match="there are 2 GPUs"):
        distributed.device()


def test_a_command_for_one_process_is_refused_under_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed.alone("adapt")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ConfigError, match="torchrun started 2"):
        distributed.alone("adapt")
