"""What int8 would give: any-sensor's graph with its convolutions in eight bits, by its error and its time.

    python benchmarks/int8.py --data FOLDER --out int8.json

Static quantisation by ONNX Runtime (a scale for each channel of the weights, one for each map), calibrated on drawn
frames; everything that is no convolution stays float32: moments and planes have no eight bits to spare.  ``all``: every
convolution; ``wide``: those with at least 16 channels on both sides.  The error is that of docs/performance.md: 500
points, val blocks.  Times are CPU times of one thread, in turns.  The same file is run by OpenVINO.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import torch
from onnxruntime import quantization
from speed import PLACES, RECORDINGS

from protodepth import stopwatch
from protodepth._version import processor, versions
from protodepth.data.arrays import to_batch
from protodepth.data.frame import Frame
from protodepth.data.worlds.worlds import world
from protodepth.experiments.measure import measure, open_source, pattern
from protodepth.inference.engines import export
from protodepth.inference.engines.graph import Graph, random_batch
from protodepth.inference.engines.runtimes import Engine, Runtime, feed
from protodepth.model import ProtoDepth
from protodepth.storage.files import write_json
from protodepth.types import BASE

WIDE = 16  # channels; narrower convolutions are heads and first layers
KINDS = ("all", "wide")


class Frames(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Drawn frames with the points of their sensors, as a graph's inputs."""

    def __init__(self, names: Sequence[str], size: tuple[int, int], count: int) -> None:
        self.names, self.feeds = names, calibration(size, count)

    def get_next(self) -> dict[str, np.ndarray] | None:
        inputs = next(self.feeds, None)
        return None if inputs is None else {name: inputs[name] for name in self.names}


def calibration(size: tuple[int, int], count: int) -> Iterator[dict[str, np.ndarray]]:
    for name in ("room", "street"):
        frames = world(name, size=size, train=count, val=1, test=1).train
        for number in range(count):
            frame = frames[number]
            yield feed(to_batch(frame.image, frame.sparse_depth, frame.intrinsics), scaffolded=False)


def convolutions(file: Path, kind: str) -> list[str]:
    """Names of the nodes to quantise."""
    graph = onnx.load(str(file)).graph
    shapes = {w.name: tuple(w.dims) for w in graph.initializer}
    wanted = []
    for node in graph.node:
        if node.op_type == "Conv" and node.input[1] in shapes:
            out, into = shapes[node.input[1]][:2]
            if kind == "all" or min(out, into) >= WIDE:
                wanted.append(node.name)
    return wanted


def quantised(file: Path, size: tuple[int, int], kind: str, frames: int) -> tuple[Path, int]:
    """The graph in eight bits beside the other, and how many convolutions are."""
    names, out = convolutions(file, kind), file.with_name(f"{kind}.onnx")
    quantization.quantize_static(
        str(file),
        str(out),
        Frames([side.name for side in onnx.load(str(file)).graph.input], size, frames),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        nodes_to_quantize=names,
        op_types_to_quantize=["Conv"],
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        extra_options={"ActivationSymmetric": False},
    )
    proto, before = onnx.load(str(out)), onnx.load(str(file))
    del proto.metadata_props[:]
    proto.metadata_props.extend(before.metadata_props)
    onnx.save(proto, str(out))
    return out, len(names)


def graphs(
    model: ProtoDepth, size: tuple[int, int], folder: Path, frames: int, kinds: Sequence[str], runtime: Runtime
) -> tuple[dict[str, Path], dict[str, int]]:
    """Files of one size: float32, and eight bits by kind."""
    folder.mkdir()
    data, info = export.convert(Graph(model, BASE), model, size, "traced", runtime)
    plain = folder / "float32.onnx"
    plain.write_bytes(data)
    files, counts = {"float32": plain}, {}
    for kind in kinds:
        files[kind], counts[kind] = quantised(plain, size, kind, frames)
    if runtime == "openvino":
        for name, file in files.items():
            (folder / name).mkdir()
            files[name] = export._draft(folder / name, file.read_bytes(), info, runtime)[-1]
    return files, counts


def accuracy(engines: dict[str, Engine], frames: Sequence[Frame]) -> dict[str, float]:
    """MAE in mm by kind."""
    errors = {}
    for name, engine in engines.items():
        rows = measure(lambda f, e=engine: e.predict(f.image, f.sparse_depth, f.intrinsics), frames, pattern("500"))
        errors[name] = rows["mean"]["mae"]
    return errors


def times(model: ProtoDepth, files: dict[str, Path], size: tuple[int, int], turns: int) -> dict[str, Any]:
    """CPU ms by engine, one thread, in turns."""
    batch = random_batch(size, 1, model.backbone.depth_range)
    engines = {name: Engine.open(file, threads=1) for name, file in files.items()}
    runs = {name: (lambda engine=engine: engine.predict_batch(batch)) for name, engine in engines.items()}
    laps = stopwatch.in_turns(runs, turns, 1)
    first = laps["onnx, float32"]
    return {n: {"cpu_ms": 1000 * lap.median(), "ratio": stopwatch.ratio(lap, first)} for n, lap in laps.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/real"), help="the folder of the recordings")
    parser.add_argument("--sources", nargs="*", default=(*PLACES, *RECORDINGS), help="worlds, and names of recordings")
    parser.add_argument("--frames", type=int, default=3, help="of each source")
    parser.add_argument("--calibrate", type=int, default=4, help="drawn frames of each of two worlds")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = ProtoDepth.from_pretrained("any-sensor")
    places = [str(options.data / name) if name in RECORDINGS else name for name in options.sources]
    sources = [open_source(place, "val", options.frames) for place in places]
    sizes: dict[tuple[int, int], list[Any]] = {}
    for source in sources:
        sizes.setdefault(source.frames[0].image.shape[:2], []).append(source)
    document: dict[str, Any] = {"machine": processor(), "versions": versions("torch", "onnxruntime"), "mae_mm": {}}
    for size, here in sizes.items():
        with TemporaryDirectory() as folder:
            place = Path(folder)
            files, document["convolutions"] = graphs(model, size, place / "a", options.calibrate, KINDS, "onnx")
            engines = {name: Engine.open(file, threads=1) for name, file in files.items()}
            for source in here:
                alike = [f for f in source.frames if f.image.shape[:2] == size]
                document["mae_mm"][source.name] = {"frames": len(alike), **accuracy(engines, alike)}
                print(source.name, document["mae_mm"][source.name], flush=True)
            if "times" not in document:  # of the first size
                others, _ = graphs(model, size, place / "b", options.calibrate, KINDS[1:], "openvino")
                named = {f"onnx, {n}": f for n, f in files.items()} | {f"openvino, {n}": f for n, f in others.items()}
                document["times"] = {"size": size, **times(model, named, size, options.turns)}
                print(document["times"], flush=True)
        write_json(options.out, document)


if __name__ == "__main__":
    main()
