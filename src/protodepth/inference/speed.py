"""Time, memory, parameters and operations of a model: base, adapted, choosing, and by every engine, in turns."""

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal

import torch

from protodepth import stopwatch
from protodepth._version import processor, versions
from protodepth.errors import ConfigError
from protodepth.inference.engines.cache import engine_for
from protodepth.inference.engines.graph import random_batch
from protodepth.inference.engines.runtimes import Runtime
from protodepth.inference.memory import check_size
from protodepth.model import ProtoDepth
from protodepth.report.charts import Bar, bar_chart
from protodepth.stopwatch import Laps, Timed
from protodepth.types import BASE, Batch

EngineName = Literal["channels_last", "compiled", "onnx", "openvino", "int8"]
NEEDS = {"onnx": ("onnxscript", "onnxruntime"), "openvino": ("onnxscript", "onnxruntime", "openvino")}
NEEDS["int8"] = NEEDS["openvino"]
PRODUCT = "matrix product"


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """One way to run the model.  Times are of one frame, in milliseconds."""

    name: str
    cpu: float  # median over the turns; all threads together
    cpu_p95: float
    wall: float
    wall_p95: float
    warmup: float  # CPU time of the first frame
    over_base: float  # median over the turns of CPU time / that of the un-adapted network in PyTorch
    gflop: float  # multiplications and additions of convolutions and products
    share: float  # of the machine's peak, reached in the median
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
    peak: float  # GFLOP in a second of CPU time, by a large matrix product in the same turns
    backbone: str
    parameters: int
    per_domain: dict[str, int]
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """What the command prints."""
        heads = ("", "CPU", "p95", "wall", "p95", "first", "/ base", "GFLOP", "of peak", "memory")
        table = ["".join(f"{h:<20}" if n == 0 else f"{h:>10}" for n, h in enumerate(heads))]
        table += ["".join(f"{c:<20}" if n == 0 else f"{c:>10}" for n, c in enumerate(_cells(r))) for r in self.rows]
        return [self._head(), *table, *self._notes()]

    def markdown(self) -> str:
        """The same as a table for a document."""
        heads = ("", "CPU ms", "p95", "wall ms", "p95", "first", "/ base", "GFLOP", "of peak", "memory")
        rows = [heads, ("---",) * len(heads), *(_cells(row) for row in self.rows)]
        return "\n".join([self._head(), "", *(f"| {' | '.join(r)} |" for r in rows), "", *self._notes()]) + "\n"

    def chart(self) -> str:
        """CPU time of one frame by engine, as SVG text."""
        bars = [Bar(row.name, row.cpu, f"{row.cpu:.0f} ms") for row in self.rows]
        return bar_chart(bars, label=f"CPU time of one frame of {self.size[0]}x{self.size[1]}, ms")

    def _head(self) -> str:
        height, width = self.size
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return (
            f"{self.backbone}, one frame of {height}x{width}, {self.device}, {threads}, "
            f"{self.runs} runs in turns after {self.warmup}; times in ms"
        )

    def _notes(self) -> list[str]:
        extra = ", ".join(f"{n} {100 * c / self.parameters:.1f} %" for n, c in self.per_domain.items()) or "no domains"
        side = stopwatch.PRODUCT
        return [
            f"parameters: network {self.parameters:,}; domains add {extra}",
            f"peak: {self.peak:.0f} GFLOP in a second of CPU time, by products of {side} x {side} in the same turns",
        ]


def _cells(row: SpeedRow) -> tuple[str, ...]:
    times = (f"{t:.1f}" for t in (row.cpu, row.cpu_p95, row.wall, row.wall_p95, row.warmup))
    memory = "-" if row.memory is None else f"{row.memory:.0f} MiB"
    return row.name, *times, f"{row.over_base:.2f}", f"{row.gflop:.2f}", f"{100 * row.share:.0f} %", memory


def installed() -> tuple[EngineName, ...]:
    """The engines that can run here without a long preparation."""
    graphs: tuple[EngineName, ...] = ("onnx", "openvino")
    return ("channels_last", *(e for e in graphs if all(find_spec(module) for module in NEEDS[e])))


def measure_speed(
    model: ProtoDepth,
    *,
    size: tuple[int, int] = (480, 640),
    engines: Sequence[EngineName] = (),
    domain: str | None = None,
    runs: int = 10,
    warmup: int = 2,
    seconds: float = math.inf,
) -> Speed:
    """Time the model on random frames, every way of running it in turns, so that a busy machine hurts all alike.

    ``domain`` is the adapted row (default: the last domain that has prototypes); ``engines`` are other ways to run
    that domain, or the un-adapted network where there is none.  After so many ``seconds`` of turns there are no
    more runs, but at least three.
    """
    if runs < 1 or warmup < 0:
        raise ConfigError(f"runs must be at least 1 and warmup at least 0, got {runs} and {warmup}")
    device, threads = _device(model), torch.get_num_threads()
    check_size(size, model)
    batch = random_batch(size, 1, model.backbone.depth_range).to(device)
    ways = _torch_ways(model, domain)
    calls = {label: predicting(model, batch, name) for label, name in ways.items()}
    operations = {label: stopwatch.gflop(call) for label, call in calls.items()}
    adapted = next((name for label, name in ways.items() if label.startswith("adapted")), BASE)
    for engine in engines:
        calls[engine] = engine_call(model, batch, engine, adapted, threads)
        operations[engine] = operations[next(label for label, name in ways.items() if name == adapted)]
    memory = {name: stopwatch.peak_memory(call) for name, call in calls.items()}
    laps = stopwatch.in_turns({**calls, PRODUCT: stopwatch.product(device)}, runs, warmup, seconds)
    peak = stopwatch.peak_of(laps[PRODUCT])
    overhead = model.overhead()
    return Speed(
        rows=tuple(_row(n, laps[n], laps[BASE], operations[n], peak, memory[n]) for n in calls),
        size=size,
        runs=len(laps[BASE].cpu),
        warmup=warmup,
        threads=threads,
        device=_device_name(device),
        peak=peak,
        backbone=model.backbone.name,
        parameters=overhead.backbone,
        per_domain=overhead.domains,
        versions=versions("torch", *(NEEDS[e][-1] for e in engines if e in NEEDS)),
    )


def _row(name: str, laps: Laps, base: Laps, gflop: float, peak: float, memory: float | None) -> SpeedRow:
    share = gflop / max(laps.median(), 1e-9) / peak
    return SpeedRow(
        name=name,
        cpu=1000 * laps.median(),
        cpu_p95=1000 * laps.p95(),
        wall=1000 * laps.wall_median(),
        wall_p95=1000 * laps.wall_p95(),
        warmup=1000 * laps.first,
        over_base=stopwatch.ratio(laps, base),
        gflop=gflop,
        share=share,
        memory=memory,
    )


def _torch_ways(model: ProtoDepth, domain: str | None) -> dict[str, str | None]:
    """The un-adapted network, one domain, and the choice among all: label -> domain."""
    ways: dict[str, str | None] = {BASE: BASE}
    adapted = domain or next((n for n in reversed(model.domains) if not model.domain(n).base), None)
    if adapted is not None and adapted != BASE:
        model.domain(adapted)
        ways[f"adapted ({adapted})"] = adapted
    if model.descriptors()[0]:
        ways["choosing"] = None
    return ways


def predicting(model: ProtoDepth, batch: Batch, domain: str | None) -> Timed:
    def run() -> None:
        model.predict_batch(batch, domain)
        stopwatch.wait(batch.image.device)

    return run


def engine_call(model: ProtoDepth, batch: Batch, engine: EngineName, domain: str | None, threads: int) -> Timed:
    """Another way to predict the same frame, with as many threads as PyTorch has; graphs include pre-processing."""
    if engine in ("onnx", "openvino", "int8"):
        runtime: Runtime = "onnx" if engine == "onnx" else "openvino"
        precision: Literal["float32", "int8"] = "int8" if engine == "int8" else "float32"
        graph = engine_for(model, runtime, batch.size, domain=domain, threads=threads, precision=precision)
        return partial(graph.predict_batch, batch.to("cpu"))
    other = copy.deepcopy(model)
    if engine == "channels_last":
        other.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return predicting(other, batch.map(channels_last), domain)
    other.backbone.encode = torch.compile(other.backbone.encode)  # type: ignore[method-assign]
    other.backbone.decode = torch.compile(other.backbone.decode)  # type: ignore[method-assign]
    return predicting(other, batch, domain)


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor()


def _device(model: ProtoDepth) -> torch.device:
    return next((p.device for p in model.backbone.parameters()), torch.device("cpu"))
