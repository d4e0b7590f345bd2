"""The stopwatch: fair turns, counts that can be checked by hand, sections that are put back."""

import time

import pytest
import torch
from torch import nn

from protodepth.stopwatch import Laps, Sections, gflop, in_turns, peak_memory, peak_of, product, ratio


def test_every_call_runs_once_a_round_and_rounds_start_with_different_ones():
    seen: list[str] = []
    calls = {name: (lambda name=name: seen.append(name)) for name in "abc"}
    times = in_turns(calls, runs=4, warmup=1)
    rounds = [seen[i : i + 3] for i in range(0, len(seen), 3)]
    assert [sorted(r) for r in rounds] == [["a", "b", "c"]] * 5
    assert len({r[0] for r in rounds[0:3]}) == 3
    assert {name: len(t.cpu) for name, t in times.items()} == {"a": 4, "b": 4, "c": 4}


def test_operations_are_those_counted_by_hand():
    conv = nn.Conv2d(3, 8, 3, padding=1)
    count = 2 * (3 * 3 * 3) * 8 * (16 * 20)  # multiply and add, for every weight and every pixel
    assert gflop(lambda: conv(torch.rand(1, 3, 16, 20))) * 1e9 == pytest.approx(count)


def test_peak_memory_sees_a_large_array_while_it_lives():
    before = peak_memory(lambda: None)
    if before is None:
        pytest.skip("the system does not tell the peak of a process")
    assert peak_memory(lambda: torch.ones(64, 2**20).sum()) > before + 200  # 256 MiB
    assert peak_memory(lambda: None) < before + 100


def test_the_peak_of_the_machine_is_a_plausible_number() -> None:
    laps = in_turns({"product": product(side=256)}, runs=2, warmup=1)["product"]
    assert 0.1 < peak_of(laps, side=256) < 1e6


def test_cpu_time_does_not_count_waiting() -> None:
    lap = in_turns({"wait": lambda: time.sleep(0.05)}, runs=1, warmup=0)["wait"]
    assert lap.wall_median() >= 0.05
    assert lap.median() < 0.04


def test_a_ratio_compares_within_turns() -> None:
    """A turn in which the machine was slow for both counts like the others."""
    base = Laps((), (1.0, 100.0, 2.0))
    assert ratio(Laps((), (0.5, 50.0, 1.0)), base) == 0.5


def test_sections_add_up_and_leave_the_functions_as_they_were() -> None:
    class Network(nn.Module):
        def encode(self, x: int) -> int:
            return x + 1

    network, sections = Network(), Sections()
    with sections.watching([(network, "encode", "encoder"), (torch, "relu", "act")]):
        assert network.encode(1) == 2
        with pytest.raises(TypeError):
            torch.relu("no tensor")
    assert set(sections.seconds) == {"encoder", "act"}
    assert "encode" not in vars(network)
    assert torch.relu.__name__ == "relu"


def test_no_round_begins_when_the_time_is_over_but_three_are_made() -> None:
    calls = {"a": lambda: None, "b": lambda: None}
    assert len(in_turns(calls, runs=9, warmup=1, seconds=0.0)["b"].cpu) == 3
    assert len(in_turns(calls, runs=2, warmup=1, seconds=0.0)["a"].cpu) == 2
    assert len(in_turns(calls, runs=9, warmup=1, seconds=60.0)["a"].cpu) == 9
