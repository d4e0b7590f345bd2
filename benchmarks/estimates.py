"""What other machines would take for one frame: an estimate by operations and bytes, not a measurement.

    python benchmarks/estimates.py --speed benchmarks/speed.json --out benchmarks/estimates.json

Every operation of a frame in PyTorch is counted: multiplications and additions, and bytes read and written as if
nothing stayed in a cache.  The bound of a machine is the larger of operations by its peak and bytes by its bandwidth,
and for a GPU the time to start the operations.  This machine's own bound (a matrix product and a copy, both timed here)
by its time in speed.json says how near to its bound it comes; the estimate takes the others to come as near.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from protodepth import stopwatch
from protodepth.backbones.kbnet import KBNet
from protodepth.inference.engines.graph import random_batch
from protodepth.model import ProtoDepth
from protodepth.storage.files import write_json
from protodepth.types import BASE

START = 5e-6  # seconds that a GPU needs to start an operation from Python, at the least


@dataclass(frozen=True)
class Machine:
    """From the vendor's data sheet: float32 without tensor cores, memory; one thread or the whole machine."""

    name: str
    gflops: float
    gbytes: float  # a second
    starts: float = 0.0  # seconds for each operation


MACHINES = (
    Machine("A100 40 GB (19.5 TFLOPS, 1555 GB/s)", 19500, 1555, START),
    Machine("Jetson AGX Orin 64 GB (5.3 TFLOPS, 205 GB/s)", 5300, 204.8, START),
    Machine("Raspberry Pi 5, four cores (4 x 2.4 GHz x 16, 17 GB/s)", 153.6, 17),
)


@dataclass(frozen=True)
class Work:
    """What one frame takes."""

    gflop: float
    gbyte: float
    operations: int

    def bound(self, machine: Machine) -> float:
        """Seconds, at the least."""
        return max(self.gflop / machine.gflops, self.gbyte / machine.gbytes, self.operations * machine.starts)


class _Count(TorchDispatchMode):
    """Bytes that operations read and write; views move none."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
        made = [t for t in tree_flatten(out)[0] if isinstance(t, torch.Tensor)]
        known = {t.untyped_storage().data_ptr() for t in given}
        fresh = [t for t in made if t.untyped_storage().data_ptr() not in known]
        if fresh or str(func).endswith("_.default"):
            self.bytes += sum(t.numel() * t.element_size() for t in (*given, *made))
            self.operations += 1
        return out


def work_of(model: ProtoDepth, size: tuple[int, int]) -> Work:
    """Counted on one frame."""
    batch = random_batch(size, 1, model.backbone.depth_range)
    gflop = stopwatch.gflop(lambda: model.predict_batch(batch, BASE))
    with _Count() as count:
        model.predict_batch(batch, BASE)
    return Work(gflop, count.bytes / 1e9, count.operations)


def this_machine(turns: int = 7) -> Machine:
    """One thread: a large product, and a copy that does not fit into a cache (read and written)."""
    source = torch.rand(2**24)
    target = torch.empty_like(source)
    laps = stopwatch.in_turns({"product": stopwatch.product(), "copy": lambda: target.copy_(source)}, turns, 1)
    bandwidth = 2 * source.numel() * 4 / min(laps["copy"].cpu) / 1e9
    return Machine("this machine, one thread", stopwatch.peak_of(laps["product"]), bandwidth)


def table(document: dict[str, Any]) -> str:
    """Milliseconds by machine and network."""
    networks = {name: row for name, row in document.items() if isinstance(row, dict) and "near" in row}
    lines = [f"| estimate: one frame of 480x640, ms | {' | '.join(networks)} |", "|---" * (len(networks) + 1) + "|"]
    for machine in document["machines"]:
        name = machine["name"]
        cells = [f"{row['ms'][name]:.3g} (bound {row['bound_ms'][name]:.3g})" for row in networks.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    near = [f"{row['measured_ms']:.0f} (comes to {100 * row['near']:.0f} % of its bound)" for row in networks.values()]
    return "\n".join([*lines, f"| measured: {document['here']['name']} | {' | '.join(near)} |", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", type=Path, default=Path("benchmarks/speed.json"), help="what was measured here")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    measured, here, size = json.loads(options.speed.read_text()), this_machine(), (480, 640)
    models = {"any-sensor": ("default", "any-sensor"), "KBNet": ("inference", None)}
    document: dict[str, Any] = {"size": size, "here": asdict(here), "machines": [asdict(m) for m in MACHINES]}
    for name, (part, bundled) in models.items():
        model = ProtoDepth.from_pretrained(bundled) if bundled else ProtoDepth(KBNet.from_preset("void"))
        work, seconds = work_of(model, size), measured[part]["engines"]["eager"]["cpu_ms"] / 1000
        near = work.bound(here) / seconds
        times = {m.name: 1000 * work.bound(m) / near for m in MACHINES}
        bounds = {m.name: 1000 * work.bound(m) for m in MACHINES}
        document[name] = {**asdict(work), "measured_ms": 1000 * seconds, "near": near, "ms": times, "bound_ms": bounds}
    print(table(document))
    write_json(options.out, document)


if __name__ == "__main__":
    main()
