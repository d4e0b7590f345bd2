"""A stopwatch for a shared machine: everything in turns, CPU beside wall time and by section, counts beside both."""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

Timed = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Laps:
    """Seconds of one call over several turns: of the clock on the wall and of all threads of this process."""

    wall: tuple[float, ...]
    cpu: tuple[float, ...]
    first: float = 0.0  # CPU seconds of the very first call, which also allocates, compiles and fills caches

    def median(self) -> float:
        """CPU seconds.  Another program that takes the processor makes the wall's time longer and hardly this one."""
        return float(np.median(self.cpu))

    def wall_median(self) -> float:
        return float(np.median(self.wall))

    def p95(self) -> float:
        return float(np.percentile(self.cpu, 95))

    def wall_p95(self) -> float:
        return float(np.percentile(self.wall, 95))


FEWEST_RUNS = 3  # however long they take


def in_turns(calls: Mapping[str, Timed], runs: int, warmup: int, seconds: float = math.inf) -> dict[str, Laps]:
    """Times of each call, one of each in every round; each round starts with another.

    No round begins after so many ``seconds`` of the clock, except the first few.

    >>> len(in_turns({"a": lambda: 1, "b": lambda: 2}, runs=3, warmup=1)["a"].cpu)
    3
    """
    names = list(calls)
    laps: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    began = time.perf_counter()
    for turn in range(warmup + runs):
        if turn >= warmup + FEWEST_RUNS and time.perf_counter() - began > seconds:
            break
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            wall, cpu = time.perf_counter(), time.process_time()
            calls[name]()
            laps[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {
        name: Laps(tuple(w for w, _ in rows[warmup:]), tuple(c for _, c in rows[warmup:]), rows[0][1])
        for name, rows in laps.items()
    }


def ratio(laps: Laps, base: Laps) -> float:
    """Median over the turns of this call's CPU time by that of another one in the same turn.

    >>> ratio(Laps((), (2.0, 4.0, 90.0)), Laps((), (1.0, 2.0, 3.0)))
    2.0
    """
    return float(np.median([a / max(b, 1e-9) for a, b in zip(laps.cpu, base.cpu, strict=True)]))


def gflop(call: Timed) -> float:
    """Billions of multiplications and additions in convolutions and matrix products."""
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops() / 1e9


PRODUCT = 768  # side of the matrices by which the machine's peak is measured


def product(device: torch.device | str = "cpu", side: int = PRODUCT) -> Timed:
    """A large matrix product: what the machine can do at most, to be timed in turns with the rest."""
    a, b = (torch.rand(side, side, device=device) for _ in range(2))

    def run() -> None:
        torch.mm(a, b)
        wait(torch.device(device))

    return run


def peak_of(laps: Laps, side: int = PRODUCT) -> float:
    """GFLOP in a second of CPU time, of the best product."""
    return 2 * side**3 / max(min(laps.cpu), 1e-9) / 1e9


def wait(device: torch.device) -> None:
    """A GPU answers before it has computed."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory(call: Timed) -> float | None:
    """Largest resident memory of the process while the call runs, in MiB (Linux; on a GPU:
    what torch allocated there).
    """
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        call()
        if torch.cuda.max_memory_allocated():
            return torch.cuda.max_memory_allocated() / 2**20
    reset, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    if not os.access(reset, os.W_OK):
        call()
        return None
    reset.write_text("5")  # forget the largest value so far
    call()
    return _status(status, "VmHWM")


def memory_above(call: Timed) -> float | None:
    """What ``peak_memory`` is above the resident memory before the call, in MiB.

    Only the first call of a fresh process: later ones live in memory that earlier ones left behind.
    """
    status = Path("/proc/self/status")
    before = _status(status, "VmRSS") if status.exists() and not torch.cuda.is_available() else 0.0
    peak = peak_memory(call)
    return None if peak is None else peak - before


def _status(file: Path, name: str) -> float:
    """A number of the process's status, in MiB."""
    line = next(line for line in file.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


class Sections:
    """CPU seconds by part of a step: functions are replaced, for a while, by ones that note their time."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def watching(self, places: Sequence[tuple[object, str, str]]) -> Iterator[None]:
        """``places``: (owner, name of its function, section).  A function inside another one counts in both."""
        before = [(owner, name, vars(owner).get(name), getattr(owner, name)) for owner, name, _ in places]
        try:
            for (owner, name, section), (_, _, _, function) in zip(places, before, strict=True):
                setattr(owner, name, self._timed(function, section))
            yield
        finally:
            for owner, name, own, _ in before:
                if own is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, own)

    def _timed(self, function: Callable[..., object], section: str) -> Callable[..., object]:
        def run(*args: object, **options: object) -> object:
            started = time.process_time()
            try:
                return function(*args, **options)
            finally:
                self.seconds[section] = self.seconds.get(section, 0.0) + time.process_time() - started

        return run
