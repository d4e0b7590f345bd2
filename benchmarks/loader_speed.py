"""Frames a second that each data format delivers: ``python benchmarks/loader_speed.py [--size 480x640] [--frames 24]``.

Writes the same frames in each format to a temporary folder and times reading them back as training frames (image, two
neighbours, sparse depth).  Frames a second are those of a CPU second of one process, which other programs on the
machine hardly change; ``--workers 2`` also measures by the clock with worker processes, for an idle machine.  Times are
given as ratios, too: to PNG files, and to one training step of the bundled network on one core,
which says how far the loader is from being what training waits for.  Formats whose library is missing are skipped.
"""

import argparse
import importlib.util
import itertools
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from loader_speed_formats import FORMATS, material, write_files

from protodepth.data.batches import training_batches
from protodepth.data.frame import FrameDataset
from protodepth.methods.base import build
from protodepth.model import ProtoDepth
from protodepth.training.adapt import AdaptConfig
from protodepth.training.objective import build_objective
from protodepth.types import View


def reading(data: FrameDataset, seconds: float, workers: int) -> tuple[float, float]:
    """(wall, CPU of this process) seconds for a frame, after the first batches: workers start once in a run.

    The CPU time does not suffer from other programs on the machine.
    """
    stream = training_batches(data, 2, seed=0, workers=workers)
    for _ in range(2):
        next(stream)
    started, spent, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - started < seconds or count < 4:
        next(stream)
        count += 2
    wall, own = time.perf_counter() - started, time.process_time() - spent
    stream.close()
    return wall / count, own / count


def training(data: FrameDataset, steps: int = 3) -> float:
    """CPU seconds for a frame of one training step (prototypes, two neighbours, pose network) on one core."""
    torch.set_num_threads(1)
    model = ProtoDepth.from_pretrained("worlds-tiny")
    method = build("protodepth", model, build_objective(model, AdaptConfig().paper), model.config)
    model.add_domain("new")
    model.set_domain("new")
    batches = list(itertools.islice(training_batches(data, 2, seed=0), steps + 1))
    method.train(True)
    for n, batch in enumerate(batches):
        if n == 1:  # the first step warms up
            spent = time.process_time()
        sum(method.loss(batch, View.identity(batch)).values()).backward()  # type: ignore[union-attr]
    return (time.process_time() - spent) / (2 * steps)


def measure(size: tuple[int, int], count: int, seconds: float, workers: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        made = material(Path(name), count, size)
        write_files(made)
        step = 0.0
        more = f" frames/s, {workers} workers |" if workers else ""
        print(f"| format | ms a frame | frames/s | time, PNG = 1 | of a training step |{more}")
        print(f"|---|---|---|---|---|{'---|' if workers else ''}")
        for kind, (write, library) in FORMATS.items():
            if library and importlib.util.find_spec(library) is None:
                print(f"| {kind} | needs {library} |")
                continue
            data = write(made)
            step = step or training(data)
            own = reading(data, seconds, 0)[1]
            results[kind] = {"cpu_seconds": own, "frames_per_second": 1 / own}
            base = next(iter(results.values()))["cpu_seconds"]
            numbers = f"{1000 * own:.1f} | {1 / own:.0f} | {own / base:.2f} | {100 * own / step:.1f} %"
            if workers:
                results[kind]["with_workers"] = 1 / reading(data, seconds, workers)[0]
                numbers += f" | {results[kind]['with_workers']:.0f}"
            print(f"| {kind} | {numbers} |", flush=True)
    print(f"\none training step: {1000 * step:.0f} ms a frame on one core ({size[0]}x{size[1]}, worlds-tiny)")
    return {"size": f"{size[0]}x{size[1]}", "training_cpu_seconds": step, "formats": results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="480x640", help="HEIGHTxWIDTH")
    parser.add_argument("--frames", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each measurement")
    parser.add_argument("--workers", type=int, default=0, help="measure with so many worker processes as well")
    parser.add_argument("--json", type=Path, help="also write the numbers there")
    arguments = parser.parse_args()
    height, width = (int(v) for v in arguments.size.split("x"))
    results = measure((height, width), arguments.frames, arguments.seconds, arguments.workers)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
