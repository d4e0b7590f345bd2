"""Every ratio of docs/performance.md beside its bar, measured in one run: all in turns, in CPU time, on one thread.

    python benchmarks/speed.py --quick                          # small frames: two minutes on an idle core
    python benchmarks/speed.py --out benchmarks/speed.json      # the full size; writes .json, .md and .svg

`plain` is the yardstick: the same network in its straightforward formulation, square windows by ``max_pool2d``, one for
each size, contiguous, eager.  ``--only`` runs some parts, ``--join`` puts their files together.
"""

import argparse
import copy
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor
from torch.nn import functional as F

from protodepth import geometry, stopwatch
from protodepth._version import processor, versions
from protodepth.backbones import kbnet, layers
from protodepth.backbones.kbnet import KBNet
from protodepth.backbones.posenet import PoseNet
from protodepth.data.arguments import open_domain
from protodepth.data.batches import training_batches
from protodepth.data.worlds.worlds import world
from protodepth.experiments.measure import measure, open_source, pattern
from protodepth.inference.engines import export
from protodepth.inference.engines import int8 as eight
from protodepth.inference.engines.graph import Graph, random_batch
from protodepth.inference.engines.runtimes import Engine
from protodepth.inference.speed import channels_last, engine_call, predicting
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import build
from protodepth.model import ProtoDepth
from protodepth.prototypes import apply
from protodepth.report.charts import Bar, ChartLine, bar_chart, line_chart
from protodepth.storage.files import write_bytes, write_json
from protodepth.training.fit import Learner, fit, train_step
from protodepth.training.schedule import Schedule
from protodepth.training.step_time import step_times
from protodepth.types import BASE, Batch


@dataclass(frozen=True)
class Measured:
    """A number, and the bar that it should reach."""

    name: str
    value: float
    bar: float
    sign: str = "<="  # or ">="
    unit: str = "x"

    @property
    def reached(self) -> bool:
        return self.value <= self.bar if self.sign == "<=" else self.value >= self.bar

    def __str__(self) -> str:
        mark = "reached" if self.reached else "NOT reached"
        return f"{self.name:<62}{self.value:8.3f} {self.unit:<3} {self.sign} {self.bar:<6g} {mark}"


def naive(x: Tensor, size: int) -> Tensor:
    return F.max_pool2d(x, size, stride=1, padding=size // 2)


@contextmanager
def plain() -> Iterator[None]:
    """The straightforward formulation of the windows."""
    maxima = patch.object(layers, "window_maxima", lambda x, sizes: [naive(x, s) for s in sizes])
    named = patch.object(kbnet, "window_maxima", lambda x, sizes: [naive(x, s) for s in sizes])
    with maxima, named, patch.object(geometry, "window_max", naive):
        yield


def with_domains(model: ProtoDepth, count: int) -> ProtoDepth:
    for n in range(count):
        model.add_domain(f"place{n}", seed=n)
    return model


HALF = "openvino, bfloat16"


def graphs(model: ProtoDepth, size: tuple[int, int], domain: str, folder: Path) -> dict[str, Engine]:
    """Both engines of one size, by the quick exporter, and the one that computes in bfloat16."""
    files = {}
    for runtime in ("openvino", "onnx"):  # in this order: the graph for OpenVINO is an ONNX file first
        data, info = export.convert(Graph(model, domain), model, size, "traced", runtime)
        files[runtime] = export._draft(folder, data, info, runtime)[-1]
    engines = {name: Engine.open(file, threads=1) for name, file in files.items()}
    return {**engines, HALF: Engine.open(files["openvino"], threads=1, precision="bfloat16")}


def kbnet_inference(size: tuple[int, int], turns: int) -> tuple[list[Measured], dict[str, Any]]:
    """KBNet at full width: every engine against the plain formulation."""
    torch.manual_seed(0)
    model = with_domains(ProtoDepth(KBNet.from_preset("void")), 1)
    batch = random_batch(size, 1, model.backbone.depth_range, share=0.02)
    other = copy.deepcopy(model)
    other.backbone.to(memory_format=torch.channels_last)
    eager = predicting(model, batch, BASE)

    def yardstick() -> None:
        with plain():
            eager()

    calls = {
        "plain": yardstick,
        "eager": eager,
        "adapted": predicting(model, batch, "place0"),
        "choosing": predicting(model, batch, None),
        "channels_last": predicting(other, batch.map(channels_last), BASE),
    }
    gflop = stopwatch.gflop(eager)
    with TemporaryDirectory() as folder:
        for name, engine in graphs(model, size, BASE, Path(folder)).items():
            calls[name] = lambda engine=engine: engine.predict_batch(batch)
        laps = stopwatch.in_turns({**calls, "product": stopwatch.product()}, turns, 1)
    peak = stopwatch.peak_of(laps["product"])
    to_plain = {n: 1 / stopwatch.ratio(laps[n], laps["plain"]) for n in calls}
    fastest = max(to_plain["onnx"], to_plain["openvino"])
    rows = [
        Measured(
            f"KBNet {size[0]}x{size[1]}: best eager layout against plain",
            max(to_plain["eager"], to_plain["channels_last"]),
            2.0,
            ">=",
        ),
        Measured(f"KBNet {size[0]}x{size[1]}: exported float32 against plain", fastest, 4.0, ">="),
        Measured(f"KBNet {size[0]}x{size[1]}: exported bfloat16 against plain", to_plain[HALF], 6.0, ">="),
        Measured(
            f"KBNet {size[0]}x{size[1]}: one domain against none", stopwatch.ratio(laps["adapted"], laps["eager"]), 1.02
        ),
        Measured(
            f"KBNet {size[0]}x{size[1]}: choosing against a given domain",
            stopwatch.ratio(laps["choosing"], laps["adapted"]),
            1.01,
        ),
    ]
    return rows, {"size": size, "gflop": gflop, "peak": peak, "engines": described(laps, calls, gflop, peak, to_plain)}


def described(
    laps: dict[str, stopwatch.Laps], calls: dict[str, Any], gflop: float, peak: float, speedup: dict[str, float]
) -> dict[str, Any]:
    """Milliseconds and shares by engine."""
    table = {}
    for name in calls:
        lap = laps[name]
        table[name] = {
            "cpu_ms": 1000 * lap.median(),
            "cpu_p95_ms": 1000 * lap.p95(),
            "wall_ms": 1000 * lap.wall_median(),
            "wall_p95_ms": 1000 * lap.wall_p95(),
            "first_ms": 1000 * lap.first,
            "share_of_peak": gflop / lap.median() / peak,
            "speedup": speedup[name],
        }
    return table


def default_model(size: tuple[int, int], turns: int) -> tuple[list[Measured], dict[str, Any]]:
    """What the commands use unless told otherwise."""
    model = ProtoDepth.from_pretrained("any-sensor")
    batch = random_batch(size, 1, model.backbone.depth_range)
    other = copy.deepcopy(model)
    other.backbone.to(memory_format=torch.channels_last)
    calls = {
        "eager": predicting(model, batch, BASE),
        "channels_last": predicting(other, batch.map(channels_last), BASE),
    }
    gflop = stopwatch.gflop(calls["eager"])
    with TemporaryDirectory() as folder:
        begun = time.process_time()
        engines = graphs(model, size, BASE, Path(folder))
        export.compare_with_torch(engines["onnx"], model)
        exporting = time.process_time() - begun
        for name, engine in engines.items():
            calls[name] = lambda engine=engine: engine.predict_batch(batch)
        laps = stopwatch.in_turns({**calls, "product": stopwatch.product()}, turns, 1)
    peak = stopwatch.peak_of(laps["product"])
    speedup = {n: 1 / stopwatch.ratio(laps[n], laps["eager"]) for n in calls}
    best = min(laps[n].median() for n in ("onnx", "openvino"))
    rows = [
        Measured(
            "any-sensor, 480x640, eager", min(laps[n].median() for n in ("eager", "channels_last")), 0.3, unit="s"
        ),
        Measured("any-sensor, 480x640, exported, float32", best, 0.15, unit="s"),
        Measured("any-sensor, 480x640, exported, bfloat16", laps[HALF].median(), 0.15, unit="s"),
        Measured("any-sensor: making and checking a graph", exporting, 20.0, unit="s"),
    ]
    return rows, {"size": size, "gflop": gflop, "peak": peak, "engines": described(laps, calls, gflop, peak, speedup)}


def many_domains(size: tuple[int, int], turns: int) -> tuple[list[Measured], dict[str, Any]]:
    """100 domains against one, and a batch of eight places against one place."""
    torch.manual_seed(0)
    one = with_domains(ProtoDepth(KBNet.from_preset("void")), 1)
    many = with_domains(ProtoDepth(one.backbone), 100)
    batch = random_batch(size, 8, one.backbone.depth_range, share=0.02)
    mixed = tuple(f"place{n}" for n in range(8))
    held = many._held()

    def eight(names: tuple[str, ...]) -> Callable[[], object]:
        def run() -> object:
            with torch.no_grad():
                latents = many.backbone.encode(batch)
                values = many._values(names, held)
                adapted = apply(latents.layers, values, many.backbone.latent_specs)
                return many.backbone.decode(latents.with_layers(adapted))

        return run

    calls = {
        "one": predicting(one, batch[:1], None),
        "hundred": predicting(many, batch[:1], None),
        "same": eight(("place0",) * 8),
        "mixed": eight(mixed),
    }
    laps = stopwatch.in_turns(calls, turns, 1)
    rows = [
        Measured(
            f"KBNet {size[0]}x{size[1]}: choosing among 100 domains against 1",
            stopwatch.ratio(laps["hundred"], laps["one"]),
            1.02,
        ),
        Measured(
            f"KBNet {size[0]}x{size[1]}: batch of 8 domains against one",
            stopwatch.ratio(laps["mixed"], laps["same"]),
            1.03,
        ),
    ]
    return rows, {"size": size, "cpu_ms": {n: 1000 * lap.median() for n, lap in laps.items()}}


def training(size: tuple[int, int], turns: int) -> tuple[list[Measured], dict[str, Any]]:
    """A step with given poses: finetuning, prototypes, prototypes on kept features."""
    ways = {"finetune": ("finetune", None), "protodepth": ("protodepth", None), KEPT: ("protodepth", 2.0)}
    table = steps(size, turns, "given", ways)
    rows = [
        Measured(
            f"KBNet 2 x {size[0]}x{size[1]}: step with prototypes, given poses", table["protodepth"]["ratio"], 0.55
        ),
        Measured(f"KBNet 2 x {size[0]}x{size[1]}: step with prototypes on kept features", table[KEPT]["ratio"], 0.40),
    ]
    bound = convolution_bound(KBNet.from_preset("void"), size)
    return rows, {"size": size, "batch": 2, "bound_by_convolutions": bound, "methods": table}


def memory(size: tuple[int, int]) -> tuple[list[Measured], dict[str, Any]]:
    """Peak of a first step above what the process held before it, each method in a process of its own."""
    mib = {name: fresh_process(memory_of_a_step, name, size) for name in ("finetune", "protodepth")}
    name = f"KBNet 2 x {size[0]}x{size[1]}: step with prototypes: memory above the floor"
    return [Measured(name, mib["protodepth"] / mib["finetune"], 0.55)], {"size": size, "mib": mib}


def pose_training(size: tuple[int, int], turns: int) -> tuple[list[Measured], dict[str, Any]]:
    """A step with the pose network, which learns beside both methods."""
    table = steps(size, turns, "network", {n: (n, None) for n in ("finetune", "protodepth")})
    rows = [
        Measured(
            f"KBNet 2 x {size[0]}x{size[1]}: step with prototypes, pose network", table["protodepth"]["ratio"], 0.62
        )
    ]
    return rows, {"size": size, "batch": 2, "methods": table}


KEPT = "protodepth, kept features"


def steps(
    size: tuple[int, int], turns: int, poses: str, ways: dict[str, tuple[str, float | None]]
) -> dict[str, dict[str, Any]]:
    """Two frames, so that the first step of the warm-up sees all that is kept."""
    domain = world("room", size=size, train=2, val=1, test=1)
    learners = {label: learner(name, domain, poses=poses, cache=cache) for label, (name, cache) in ways.items()}
    return {label: asdict(t) for label, t in step_times(learners, domain, turns=turns, warmup=2).items()}


def fresh_process(function: Callable[..., float], *args: Any) -> float:
    """In this one, what earlier calls left behind would hide what the call needs."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(function, args)


def memory_of_a_step(name: str, size: tuple[int, int]) -> float:
    """MiB of a first step above what the process held when all was built and the frames were read."""
    torch.set_num_threads(1)
    domain = world("room", size=size, train=2, val=1, test=1)
    one, batch = learner(name, domain, poses="given", cache=None), next(training_batches(domain.train, 2, seed=0))
    above = stopwatch.memory_above(lambda: train_step(one, batch, 0))
    return float("nan") if above is None else above


def learner(name: str, domain: Any, *, poses: str, cache: float | None) -> Learner:
    torch.manual_seed(0)
    model = ProtoDepth(KBNet.from_preset("void"), pose=PoseNet("resnet18") if poses == "network" else None)
    objective = Objective(ObjectiveConfig(poses=poses), pose=model.pose, max_depth=8.0)
    method = build(name, model, objective)
    method.begin_domain(domain, lambda other, new: None)
    return Learner.of(method, Schedule(batch_size=2, cache=cache), 0)


def convolution_bound(network: KBNet, size: tuple[int, int]) -> float:
    """(E + 2 D) / 3 (E + D): what a step takes if only convolutions count and all of them run equally well."""
    batch = random_batch(size, 1, network.depth_range)
    with torch.no_grad():
        latents = network.encode(batch)
        E, D = (stopwatch.gflop(f) for f in (lambda: network.encode(batch), lambda: network.decode(latents)))
    return (E + 2 * D) / (3 * (E + D))


PLACES = ("worlds:room?size=480x640&train=1&val=8&test=1", "worlds:street?size=480x640&train=1&val=8&test=1")
RECORDINGS = ("sevenscenes", "hololens", "kitti_raw")


def accuracy(frames: int, folder: Path) -> tuple[list[Measured], dict[str, Any]]:
    """Error of any-sensor's graph in bfloat16 by that in float32, 500 points: drawn worlds, recordings' val blocks."""
    model, rows, table = ProtoDepth.from_pretrained("any-sensor"), [], {}
    for place in (*PLACES, *(str(folder / name) for name in RECORDINGS)):
        source = open_source(place, "val", frames)
        size = source.frames[0].image.shape[:2]
        alike = [f for f in source.frames if f.image.shape[:2] == size]
        with TemporaryDirectory() as written:
            engines = graphs(model, size, BASE, Path(written))
            means = {}
            for name in ("onnx", HALF):
                engine = engines[name]
                errors = measure(
                    lambda f, e=engine: e.predict(f.image, f.sparse_depth, f.intrinsics), alike, pattern("500")
                )
                means[name] = {k: errors["mean"][k] for k in ("mae", "rmse")}
        table[source.name] = {"frames": len(alike), "size": size, **means}
        share = means[HALF]["mae"] / means["onnx"]["mae"]
        rows.append(Measured(f"any-sensor on {source.name}: MAE in bfloat16 by float32", share, 1.01))
    return rows, table


def opening(frames: int) -> tuple[list[Measured], dict[str, Any]]:
    """CPU seconds to open a recording whose pictures are one file under many names, and models of many domains."""
    with TemporaryDirectory() as place:
        folder = recording_of(Path(place) / "recording", frames)
        begun = time.process_time()
        domain = open_domain(str(folder))
        seconds = time.process_time() - begun
        assert sum(len(domain.split(split)) for split in ("train", "val", "test")) > frames // 2
        by_domains = {}
        for count in (1, 10, 100, 1000):
            model = with_domains(ProtoDepth.from_pretrained("worlds-tiny"), count)
            model.save_pretrained(Path(place) / str(count))
            begun = time.process_time()
            ProtoDepth.from_pretrained(Path(place) / str(count))
            by_domains[str(count)] = time.process_time() - begun
    rows = [Measured(f"opening a recording of {frames} frames", seconds, 2.0, unit="s")]
    return rows, {"frames": frames, "seconds": seconds, "seconds_to_load_by_domains": by_domains}


def recording_of(folder: Path, frames: int) -> Path:
    """image/, depth/, intrinsics.txt and poses.txt, as docs/own_data.md describes them."""
    for name in ("image", "depth"):
        (folder / name).mkdir(parents=True)
    pictures = {"image": np.full((48, 64, 3), 90, np.uint8), "depth": np.full((48, 64), 500, np.uint16)}
    for name, values in pictures.items():
        first = folder / name / "000000.png"
        Pillow.fromarray(values).save(first)
        for n in range(1, frames):
            os.link(first, folder / name / f"{n:06d}.png")
    (folder / "recording.toml").write_text('depth_unit = "mm"\n')
    np.savetxt(folder / "intrinsics.txt", [[50, 0, 32], [0, 50, 24], [0, 0, 1]])
    poses = np.tile(np.eye(4), (frames, 1, 1))
    poses[:, 0, 3] = 0.05 * np.arange(frames)
    np.savetxt(folder / "poses.txt", poses.reshape(frames, 16))
    return folder


def growth(turns: int) -> tuple[list[Measured], dict[str, Any]]:
    """The default model against pixels, frames in a batch and threads."""
    model = ProtoDepth.from_pretrained("any-sensor")

    def times(batches: dict[str, Batch]) -> dict[str, float]:
        calls = {name: predicting(model, batch, BASE) for name, batch in batches.items()}
        return {name: 1000 * lap.median() for name, lap in stopwatch.in_turns(calls, turns, 1).items()}

    low, high = model.backbone.depth_range
    sizes = {
        f"{h}x{w}": random_batch((h, w), 1, (low, high)) for h, w in ((60, 80), (120, 160), (240, 320), (480, 640))
    }
    batches = {str(n): random_batch((120, 160), n, (low, high)) for n in (1, 2, 4, 8)}
    return [], {"cpu_ms_by_size": times(sizes), "cpu_ms_by_batch_of_120x160": times(batches)}


def cores(size: tuple[int, int], turns: int) -> tuple[list[Measured], dict[str, Any]]:
    """The default model on one thread and on two: the clock says what a second one gives, CPU time what it costs."""
    model = ProtoDepth.from_pretrained("any-sensor")
    batch, table = random_batch(size, 1, model.backbone.depth_range), {}
    for count in (1, 2):
        torch.set_num_threads(count)
        calls = {
            "eager": predicting(model, batch, BASE),
            "onnx": engine_call(model, batch, "onnx", BASE, count),
        }
        laps = stopwatch.in_turns(calls, turns, 1)
        for name, lap in laps.items():
            table.setdefault(name, {})[str(count)] = {
                "cpu_ms": 1000 * lap.median(),
                "wall_ms": 1000 * lap.wall_median(),
                "least_wall_ms": 1000 * min(lap.wall),
            }
    torch.set_num_threads(1)
    return [], {"size": size, "load": os.getloadavg()[0], "ms": table}


def memory_by_size(sizes: Sequence[tuple[int, int]]) -> tuple[list[Measured], dict[str, Any]]:
    """MiB that the first prediction needs above what the process held, each size in a process of its own."""
    return [], {"mib": {f"{h}x{w}": fresh_process(memory_of_a_frame, (h, w)) for h, w in sizes}}


def memory_of_a_frame(size: tuple[int, int]) -> float:
    torch.set_num_threads(1)
    model = ProtoDepth.from_pretrained("any-sensor")
    batch = random_batch(size, 1, model.backbone.depth_range)
    above = stopwatch.memory_above(predicting(model, batch, BASE))
    return float("nan") if above is None else above


def learning(size: tuple[int, int], steps: int, frames: Sequence[int]) -> tuple[list[Measured], dict[str, Any]]:
    """CPU seconds of `fit` with prototypes on the default model against its steps, and against the frames."""
    by_steps: dict[str, float] = {}
    by_frames: dict[str, float] = {}
    for count in frames:
        domain = world("room", size=size, train=count, val=1, test=1)
        torch.manual_seed(0)
        model = ProtoDepth.from_pretrained("any-sensor")
        method = build("protodepth", model, Objective(ObjectiveConfig(poses="given"), max_depth=8.0))
        method.begin_domain(domain, lambda other, new: None)
        begun = time.process_time()
        clock: list[float] = []
        fit(method, domain, Schedule(steps=steps), seed=0, log=lambda *_, c=clock: c.append(time.process_time()))
        seconds = [moment - begun for moment in clock]
        by_frames[str(count)] = seconds[-1]
        if count == frames[0]:
            by_steps = {str(n): seconds[n - 1] for n in range(steps // 4, steps + 1, steps // 4)}
    return [], {"size": size, "seconds_by_steps": by_steps, "steps": steps, "seconds_by_frames": by_frames}


def int8(size: tuple[int, int], turns: int) -> tuple[list[Measured], dict[str, Any]]:
    """KBNet in eight bits against plain, in turns with float32."""
    torch.manual_seed(0)
    model = ProtoDepth(KBNet.from_preset("void"))
    batch = random_batch(size, 1, model.backbone.depth_range, share=0.02)
    eager = predicting(model, batch, BASE)

    def yardstick() -> None:
        with plain():
            eager()

    calls: dict[str, Any] = {"plain": yardstick, "eager": eager}
    with TemporaryDirectory() as folder:
        data, info = export.convert(Graph(model, BASE), model, size, "traced", "openvino")
        calibrating, _ = eight.int8_frames(None, size, model.backbone.depth_range)
        for name in ("openvino", "openvino, int8"):
            (place := Path(folder) / name).mkdir()
            if name != "openvino":
                data = eight.quantised(data, calibrating, scaffolded=False)
            engine = Engine.open(export._draft(place, data, info, "openvino")[-1], threads=1)
            calls[name] = lambda engine=engine: engine.predict_batch(batch)
        laps = stopwatch.in_turns({**calls, "product": stopwatch.product()}, turns, 1)
    gflop, peak = stopwatch.gflop(eager), stopwatch.peak_of(laps["product"])
    to_plain = {n: 1 / stopwatch.ratio(laps[n], laps["plain"]) for n in calls}
    name = f"KBNet {size[0]}x{size[1]}: exported int8 against plain"
    return [Measured(name, to_plain["openvino, int8"], 6.0, ">=")], {
        "size": size,
        "gflop": gflop,
        "peak": peak,
        "engines": described(laps, calls, gflop, peak, to_plain),
    }


REAL = Path("../shared/data/real")
PARTS: dict[str, Callable[[bool], tuple[list[Measured], dict[str, Any]]]] = {
    "default": lambda quick: default_model((480, 640), 4 if quick else 9),
    "inference": lambda quick: kbnet_inference((120, 160) if quick else (480, 640), 5 if quick else 3),
    "domains": lambda quick: many_domains((64, 96) if quick else (120, 160), 7 if quick else 9),
    "training": lambda quick: training((64, 96) if quick else (208, 288), 3 if quick else 5),
    "pose": lambda quick: pose_training((64, 96) if quick else (208, 288), 3 if quick else 5),
    "memory": lambda quick: memory((64, 96) if quick else (208, 288)),
    "growth": lambda quick: growth(3 if quick else 5),
    "cores": lambda quick: cores((120, 160) if quick else (480, 640), 3),
    "sizes": lambda quick: memory_by_size(((120, 160), (240, 320)) + (() if quick else ((480, 640),))),
    "learning": lambda quick: learning((48, 64) if quick else (96, 128), 8 if quick else 24, (8, 32, 128)),
    "int8": lambda quick: int8((120, 160) if quick else (240, 320), 3 if quick else 7),
    "accuracy": lambda quick: accuracy(2 if quick else 4, REAL),
    "opening": lambda quick: opening(1000 if quick else 10_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small frames: two minutes")
    parser.add_argument("--only", choices=list(PARTS), nargs="*", default=list(PARTS))
    parser.add_argument("--out", type=Path, default=None, help="FILE.json; a table and a chart are written beside it")
    parser.add_argument("--join", type=Path, nargs="*", default=(), help="only join these files into --out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.join:
        write(options.out, joined(options.join))
        return
    document: dict[str, Any] = {"machine": processor(), "versions": versions("torch", "onnxruntime", "openvino")}
    document |= {"threads": 1, "quick": options.quick, "bars": []}
    for part in options.only:
        rows, document[part] = PARTS[part](options.quick)
        document["bars"] += [{**asdict(row), "reached": row.reached} for row in rows]
        print(*rows, sep="\n", flush=True)
        if options.out is not None:
            write(options.out, document)


def joined(files: Sequence[Path]) -> dict[str, Any]:
    """Parts that were measured one by one, each in turns of its own; what is in two files is taken from the later."""
    documents = [json.loads(file.read_text()) for file in files]
    parts = {name: d[name] for name in PARTS for d in documents if name in d}
    bars = {bar["name"]: bar for d in documents for bar in d["bars"]}
    return {**documents[0], "bars": list(bars.values()), **parts}


def write(file: Path, document: dict[str, Any]) -> None:
    write_json(file, document)
    rows = [Measured(**{k: v for k, v in bar.items() if k != "reached"}) for bar in document["bars"]]
    write_bytes(file.with_suffix(".md"), (table(rows) + "\n" + details(document)).encode())
    bars = [Bar(r.name, r.value / r.bar if r.sign == "<=" else r.bar / r.value, f"{r.value:.2f}", 1.0) for r in rows]
    write_bytes(file.with_suffix(".svg"), bar_chart(bars, label="share of each bar (1 = the bar)", left=360).encode())
    for name, chart in growth_charts(document).items():
        write_bytes(file.with_name(f"{file.stem}_{name}.svg"), chart.encode())


def table(rows: list[Measured]) -> str:
    lines = ["| | measured | bar | |", "|---|---|---|---|"]
    for row in rows:
        mark = "reached" if row.reached else "not reached"
        lines.append(f"| {row.name} | {row.value:.3f} {row.unit} | {row.sign} {row.bar:g} {row.unit} | {mark} |")
    return "\n".join(lines) + "\n"


def details(document: dict[str, Any]) -> str:
    """What the parts measured, as tables: engines, steps by part, growth."""
    lines: list[str] = []
    for part in ("default", "inference", "int8"):
        if part in document:
            lines += engine_lines(document[part])
    for part in ("training", "pose"):
        if part in document:
            lines += step_lines(document[part], "pose network" if part == "pose" else "given poses")
    for name, row in document.get("growth", {}).items():
        title = name.removeprefix("cpu_ms_by_").replace("_", " ")
        lines += [f"| any-sensor by {title} | {' | '.join(row)} |", "|---" * (len(row) + 1) + "|"]
        lines += [f"| CPU ms | {' | '.join(f'{ms:.1f}' for ms in row.values())} |", ""]
    if "domains" in document:
        times = document["domains"]["cpu_ms"]
        size = "x".join(str(side) for side in document["domains"]["size"])
        lines += [f"| KBNet {size}, CPU ms | choosing among 1 | among 100 | 8 frames of one domain | of 8 domains |"]
        lines += ["|---|---|---|---|---|", f"| | {' | '.join(f'{ms:.0f}' for ms in times.values())} |", ""]
    lines += growth_lines(document)
    if "memory" in document:
        lines += ["| MiB of a step above the floor | finetune | protodepth |", "|---|---|---|"]
        lines += [f"| KBNet | {' | '.join(f'{v:.0f}' for v in document['memory']['mib'].values())} |", ""]
    if "accuracy" in document:
        lines += ["| any-sensor, 500 points, val | frames | MAE float32 | MAE bfloat16 |", "|---|---|---|---|"]
        for name, row in document["accuracy"].items():
            errors = " | ".join(f"{row[e]['mae']:.1f}" for e in ("onnx", HALF))
            lines.append(f"| {name} | {row['frames']} | {errors} |")
        lines.append("")
    if "opening" in document:
        row = document["opening"]["seconds_to_load_by_domains"]
        lines += [f"| a model of so many domains | {' | '.join(row)} |", "|---" * (len(row) + 1) + "|"]
        lines += [f"| CPU s to load | {' | '.join(f'{v:.2f}' for v in row.values())} |", ""]
    return "\n".join(lines).rstrip() + "\n"


def growth_lines(document: dict[str, Any]) -> list[str]:
    """Threads, memory by size, training by steps and frames, as tables."""
    lines: list[str] = []
    if "cores" in document:
        part = document["cores"]
        size = "x".join(str(side) for side in part["size"])
        lines += [f"| any-sensor {size}, CPU / wall ms | one thread | two |", "|---|---|---|"]
        for name, row in part["ms"].items():
            cells = [f"{t['cpu_ms']:.0f} / {t['wall_ms']:.0f}" for t in row.values()]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines += ["", f"Load of the machine at the end of it: {part['load']:.0f} on two cores", ""]
    if "sizes" in document:
        row = document["sizes"]["mib"]
        lines += [f"| any-sensor by size | {' | '.join(row)} |", "|---" * (len(row) + 1) + "|"]
        lines += [f"| MiB above the floor | {' | '.join(f'{v:.0f}' for v in row.values())} |", ""]
    if "learning" in document:
        part, size = document["learning"], "x".join(str(side) for side in document["learning"]["size"])
        for key, title in (("seconds_by_steps", "steps"), ("seconds_by_frames", f"frames, {part['steps']} steps")):
            row = part[key]
            lines += [f"| learning at 2 x {size}, by {title} | {' | '.join(row)} |", "|---" * (len(row) + 1) + "|"]
            lines += [f"| CPU s | {' | '.join(f'{v:.1f}' for v in row.values())} |", ""]
    return lines


def growth_charts(document: dict[str, Any]) -> dict[str, str]:
    """SVG by name: time against pixels, frames in a batch, domains."""
    charts = {}
    for name, row in document.get("growth", {}).items():
        points = [(float(np.prod([int(s) for s in x.split("x")])), ms) for x, ms in row.items()]
        kind = "pixels" if "size" in name else "batch"
        label = "pixels" if "size" in name else "frames in a batch of 120x160"
        charts[kind] = line_chart([line_of(points)], x_label=label, y_label="CPU ms, any-sensor", legend=False)
    if "opening" in document:
        row = document["opening"]["seconds_to_load_by_domains"]
        points = [(float(count), seconds) for count, seconds in row.items()]
        charts["domains"] = line_chart([line_of(points)], x_label="domains", y_label="CPU s to load", legend=False)
    if "sizes" in document:
        points = [(float(np.prod([int(s) for s in x.split("x")])), v) for x, v in document["sizes"]["mib"].items()]
        charts["memory"] = line_chart([line_of(points)], x_label="pixels", y_label="MiB above the floor", legend=False)
    if "learning" in document:
        for key, label in (("seconds_by_steps", "steps"), ("seconds_by_frames", "frames")):
            points = [(float(x), v) for x, v in document["learning"][key].items()]
            charts[label] = line_chart([line_of(points)], x_label=label, y_label="CPU s of training", legend=False)
    if "cores" in document:
        rows = document["cores"]["ms"]
        colours = ("#2563a8", "#e0701e")
        both = [
            ChartLine(f"{name}, {kind}", colour, [(float(n), t[f"{kind}_ms"]) for n, t in row.items()], kind == "cpu")
            for (name, row), colour in zip(rows.items(), colours, strict=True)
            for kind in ("wall", "cpu")
        ]
        charts["threads"] = line_chart(both, x_label="threads", y_label="ms, any-sensor (dashed: CPU)")
    return charts


def line_of(points: list[tuple[float, float]]) -> ChartLine:
    return ChartLine("", "#2563a8", points)


def engine_lines(part: dict[str, Any]) -> list[str]:
    height, width = part["size"]
    heads = (
        f"{height}x{width}, {part['gflop']:.1f} GFLOP",
        "CPU ms",
        "p95",
        "wall ms",
        "p95",
        "first",
        "of peak",
        "speed",
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, row in part["engines"].items():
        times = [f"{row[k]:.0f}" for k in ("cpu_ms", "cpu_p95_ms", "wall_ms", "wall_p95_ms", "first_ms")]
        cells = [name, *times, f"{100 * row['share_of_peak']:.0f} %", f"{row['speedup']:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def step_lines(part: dict[str, Any], poses: str) -> list[str]:
    height, width = part["size"]
    names = list(next(iter(part["methods"].values())).get("parts", {}))
    heads = (f"step of {part['batch']} x {height}x{width}, {poses}", "CPU ms", "of finetune", *names)
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, row in part["methods"].items():
        cells = [name, f"{row['cpu']:.0f}", f"{row['ratio']:.2f}", *(f"{row['parts'][n]:.0f}" for n in names)]
        lines.append(f"| {' | '.join(cells)} |")
    bound = part.get("bound_by_convolutions")
    return [*lines, "", *([] if bound is None else [f"Counting convolutions, (E + 2 D) / 3 (E + D): {bound:.2f}", ""])]


if __name__ == "__main__":
    main()
