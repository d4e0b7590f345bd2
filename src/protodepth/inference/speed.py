"""Latency, memory, parameters and operations of a model: base, adapted, choosing, and exported, measured in turns."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from protodepth._version import processor, versions
from protodepth.errors import ConfigError
from protodepth.inference.engines.cache import engine_for
from protodepth.inference.engines.graph import random_batch
from protodepth.inference.engines.runtimes import Runtime
from protodepth.model import ProtoDepth
from protodepth.types import BASE, Batch

Calls = Mapping[str, Callable[[], object]]


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """One way to run the model.  Times are of one frame, in milliseconds."""

    name: str
    median: float
    p95: float
    least: float
    over_base: float  # median / median of the un-adapted network in PyTorch
    gflop: float | None  # multiplications and additions of convolutions and products; None where they are not counted
    share: float | None  # of the machine's peak, reached in the median
    memory: float | None  # peak resident memory while it runs, MiB; None where the system does not tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What was measured, on what."""

    rows: tuple[SpeedRow, ...]
    size: tuple[int, int]
    runs: int
    warmup: int
    threads: int
    device: str
    peak: float  # GFLOP/s of a large matrix product with the same threads
    backbone: str
    parameters: int
    per_domain: dict[str, int]
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        height, width = self.size
        head = (
            f"{self.backbone}, one frame of {height}x{width}, {self.device}, {self.threads} threads, "
            f"{self.runs} runs in turns after {self.warmup}"
        )
        table = [f"{'':<20}{'median':>10}{'p95':>10}{'least':>10}{'/ base':>8}{'GFLOP':>8}{'of peak':>9}{'memory':>11}"]
        table += [_line(row) for row in self.rows]
        extra = ", ".join(f"{n} {100 * c / self.parameters:.1f} %" for n, c in self.per_domain.items()) or "no domains"
        return [
            head,
            *table,
            f"parameters: network {self.parameters:,}; domains add {extra}",
            f"peak: {self.peak:.0f} GFLOP/s in a matrix product of 1024 x 1024",
        ]


def _line(row: SpeedRow) -> str:
    gflop = "-" if row.gflop is None else f"{row.gflop:.2f}"
    share = "-" if row.share is None else f"{100 * row.share:.0f} %"
    memory = "-" if row.memory is None else f"{row.memory:.0f} MiB"
    times = "".join(f"{t:>7.1f} ms" for t in (row.median, row.p95, row.least))
    return f"{row.name:<20}{times}{row.over_base:>8.2f}{gflop:>8}{share:>9}{memory:>11}"


def measure_speed(
    model: ProtoDepth,
    *,
    size: tuple[int, int] = (480, 640),
    engines: Sequence[Runtime] = (),
    domain: str | None = None,
    runs: int = 20,
    warmup: int = 3,
) -> Speed:
    """Time the model on random frames, every way of running it in turns, so that a busy machine hurts all alike.

    ``domain`` is the adapted row (default: the last domain that has prototypes);
    ``engines`` are exported graphs to compare with.
    """
    if runs < 1 or warmup < 0:
        raise ConfigError(f"runs must be at least 1 and warmup at least 0, got {runs} and {warmup}")
    threads = torch.get_num_threads()
    batch = random_batch(size, 1, model.backbone.depth_range).to(_device(model))
    calls = {**_torch_calls(model, batch, domain), **_engine_calls(model, batch, engines, threads)}
    memory = {name: peak_memory(call) for name, call in calls.items()}
    times = in_turns(calls, runs, warmup)
    gflops = {name: gflop(call) for name, call in _torch_calls(model, batch, domain).items()}
    peak = machine_peak(_device(model))
    base = float(np.median(times[BASE]))
    rows = tuple(_row(name, times[name], base, gflops.get(name), peak, memory[name]) for name in calls)
    overhead = model.overhead()
    return Speed(
        rows=rows,
        size=size,
        runs=runs,
        warmup=warmup,
        threads=threads,
        device=_device_name(_device(model)),
        peak=peak,
        backbone=model.backbone.name,
        parameters=overhead.backbone,
        per_domain=overhead.domains,
        versions=_versions(engines),
    )


def _row(
    name: str, seconds: Sequence[float], base: float, gflops: float | None, peak: float, memory: float | None
) -> SpeedRow:
    ms = 1000 * np.asarray(seconds)
    median = float(np.median(ms))
    share = None if gflops is None else gflops / (median / 1000) / peak
    p95, least = float(np.percentile(ms, 95)), float(ms.min())
    return SpeedRow(name, median, p95, least, median / (1000 * base), gflops, share, memory)


def _torch_calls(model: ProtoDepth, batch: Batch, domain: str | None) -> dict[str, Callable[[], object]]:
    """The un-adapted network, one domain, and the choice among all, as functions without arguments."""
    ways: dict[str, str | None] = {BASE: BASE}
    adapted = domain or next((n for n in reversed(model.domains) if not model.domain(n).base), None)
    if adapted is not None and adapted != BASE:
        model.domain(adapted)
        ways[f"adapted ({adapted})"] = adapted
    if model.descriptors()[0]:
        ways["choosing"] = None

    def call(name: str | None) -> Callable[[], object]:
        def run() -> object:
            out = model.predict_batch(batch, name)
            _wait(batch.image.device)
            return out

        return run

    return {label: call(name) for label, name in ways.items()}


def _engine_calls(
    model: ProtoDepth, batch: Batch, engines: Sequence[Runtime], threads: int
) -> dict[str, Callable[[], object]]:
    """Exported graphs on the same frame, pre-processing included, with as many threads as PyTorch has."""
    frame = batch.to("cpu")
    opened = {f"{runtime} engine": engine_for(model, runtime, batch.size, threads=threads) for runtime in engines}
    return {name: partial(engine.predict_batch, frame) for name, engine in opened.items()}


def in_turns(calls: Calls, runs: int, warmup: int) -> dict[str, list[float]]:
    """Seconds of each call, one of each in every round; each round starts with another.

    >>> sorted(in_turns({"a": lambda: 1, "b": lambda: 2}, runs=3, warmup=0)["a"])[0] >= 0
    True
    """
    names = list(calls)
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(-warmup, runs):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            started = time.perf_counter()
            calls[name]()
            if turn >= 0:
                times[name].append(time.perf_counter() - started)
    return times


def _wait(device: torch.device) -> None:
    """A GPU answers before it has computed."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def gflop(call: Callable[[], object]) -> float:
    """Billions of multiplications and additions in convolutions and matrix products."""
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops() / 1e9


def machine_peak(device: torch.device, side: int = 1024, runs: int = 8) -> float:
    """GFLOP/s of the best of some large matrix products."""
    a, b = (torch.rand(side, side, device=device) for _ in range(2))

    def product() -> None:
        torch.mm(a, b)
        _wait(device)

    return 2 * side**3 / min(in_turns({"product": product}, runs, 1)["product"]) / 1e9


def peak_memory(call: Callable[[], object]) -> float | None:
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
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor()


def _device(model: ProtoDepth) -> torch.device:
    return next((p.device for p in model.backbone.parameters()), torch.device("cpu"))


def _versions(engines: Sequence[Runtime]) -> dict[str, str]:
    packages = {"onnx": "onnxruntime", "openvino": "openvino"}
    return versions("torch", *(packages[e] for e in engines))
