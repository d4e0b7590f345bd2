"""What int8 costs: the error of graphs whose learned convolutions are in eight bits by that in float32.

    python benchmarks/int8.py --data FOLDER --out benchmarks/int8.json

Both graphs are OpenVINO's, as ``protodepth export --precision int8`` writes them, calibrated on drawn frames.  The
error is that of docs/performance.md: 500 points, val blocks.  Times are CPU times of one thread, in turns.
"""

import argparse
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from protodepth import stopwatch
from protodepth._version import processor, versions
from protodepth.experiments.measure import MeasuredSource, measure, open_source, pattern
from protodepth.inference.engines import export, int8
from protodepth.inference.engines.graph import Graph, random_batch
from protodepth.inference.engines.runtimes import Engine
from protodepth.model import ProtoDepth
from protodepth.storage.files import write_json
from protodepth.types import BASE

WORLDS = tuple(f"worlds:{name}?size=240x320&train=1&val=8&test=1" for name in ("room", "street", "corridor_night"))
RECORDINGS = ("sevenscenes", "hololens", "kitti_raw")
KINDS = ("float32", "int8")


def engines(model: ProtoDepth, size: tuple[int, int], folder: Path) -> dict[str, Engine]:
    """One size, both precisions."""
    data, info = export.convert(Graph(model, BASE), model, size, "traced", "openvino")
    frames, _ = int8.int8_frames(None, size, model.backbone.depth_range)
    graphs = {"float32": data, "int8": int8.quantised(data, frames, scaffolded=info.scaffold)}
    opened = {}
    for name, written in graphs.items():
        (folder / name).mkdir()
        opened[name] = Engine.open(export._draft(folder / name, written, info, "openvino")[-1], threads=1)
    return opened


def sources(places: list[str], frames: int) -> dict[tuple[int, int], list[MeasuredSource]]:
    """By the size of their frames: each needs graphs of its own."""
    by_size: dict[tuple[int, int], list[MeasuredSource]] = {}
    for place in places:
        source = open_source(place, "val", frames)
        height, width = source.frames[0].image.shape[:2]
        by_size.setdefault((height, width), []).append(source)
    return by_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="any-sensor")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/real"), help="the folder of the recordings")
    parser.add_argument("--sources", nargs="*", default=(*WORLDS, *RECORDINGS), help="worlds, and names of recordings")
    parser.add_argument("--frames", type=int, default=4, help="of each source")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = ProtoDepth.from_pretrained(options.model)
    places = [str(options.data / name) if name in RECORDINGS else name for name in options.sources]
    document: dict[str, Any] = {"machine": processor(), "versions": versions("torch", "onnxruntime", "openvino")}
    document |= {"model": Path(options.model).name, "mae_mm": {}, "times": {}}
    for size, here in sources(places, options.frames).items():
        with TemporaryDirectory() as folder:
            pair = engines(model, size, Path(folder))
            for source in here:
                alike = [f for f in source.frames if f.image.shape[:2] == size]
                errors = {}
                for name, engine in pair.items():
                    means = measure(
                        lambda f, e=engine: e.predict(f.image, f.sparse_depth, f.intrinsics), alike, pattern("500")
                    )
                    errors[name] = means["mean"]["mae"]
                document["mae_mm"][source.name] = {"frames": len(alike), "size": size, **errors}
                print(source.name, document["mae_mm"][source.name], flush=True)
                write_json(options.out, document)
            batch = random_batch(size, 1, model.backbone.depth_range)
            runs = {name: partial(engine.predict_batch, batch) for name, engine in pair.items()}
            laps = stopwatch.in_turns(runs, options.turns, 1)
            document["times"]["x".join(map(str, size))] = {
                n: {"cpu_ms": 1000 * lap.median(), "ratio": stopwatch.ratio(lap, laps["float32"])}
                for n, lap in laps.items()
            }
        write_json(options.out, document)


def table(document: dict[str, Any]) -> str:
    """What the document shows."""
    lines = [f"| {document['model']}, 500 points | frames | size | MAE float32 | MAE int8 | int8 / float32 |"]
    lines += ["|---" * 6 + "|"]
    for name, row in document["mae_mm"].items():
        share = row["int8"] / row["float32"]
        size = "x".join(map(str, row["size"]))
        lines.append(f"| {name} | {row['frames']} | {size} | {row['float32']:.1f} | {row['int8']:.1f} | {share:.4f} |")
    for size, times in document["times"].items():
        both = ", ".join(f"{name} {times[name]['cpu_ms']:.0f} ms" for name in KINDS)
        lines += ["", f"{size}, OpenVINO, one thread: {both} ({times['int8']['ratio']:.2f})"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
