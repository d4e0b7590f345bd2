"""A real check: from a base that has only seen a drawn world to three recordings of three sensors, one after the other.

    python benchmarks/real_sequence.py FOLDER --out runs/real [--model MODEL --world worlds:street] [--methods finetune
    protodepth]

FOLDER holds ``sevenscenes`` (Kinect), ``hololens`` and ``kitti_raw`` (Velodyne), each with image/, depth/,
intrinsics.txt and poses.  Each recording is split into blocks of time with gaps; indoors the input is sampled at
corners and the rest of the depth map is ground truth, of KITTI's sweep a fifth of the points is held out.  The table is
that of the bench; interpolation on the same frames stands below it.  Methods that are finished are not repeated;
an interrupted one goes on.

The network must cover rooms and streets: the bundled base worlds-tiny-mixed has the range 0.1 to 100 m.
"""

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protodepth.data.arguments import open_domain
from protodepth.data.augment import AugmentConfig
from protodepth.data.frame import Domain
from protodepth.data.interpolation import completions
from protodepth.data.recording.open import Recording
from protodepth.errors import ConfigError, ProtoDepthError
from protodepth.experiments.trainings import plain_prediction
from protodepth.methods.statistics import describe
from protodepth.model import ProtoDepth
from protodepth.progress import Reporter
from protodepth.report.results import about_run, merge, results_document
from protodepth.report.run import write_run
from protodepth.storage import files
from protodepth.storage.folders import bundled, resolve
from protodepth.training import recipes
from protodepth.training.evaluate import evaluate
from protodepth.training.fit import Schedule
from protodepth.training.recipes import SequenceRecipe
from protodepth.training.runs import command_line, learn_sequence, print_table

RECORDINGS: dict[str, dict[str, Any]] = {
    "sevenscenes": {"depth_unit": "mm", "sample": "harris:800", "min_depth": 0.2, "max_depth": 5.0},
    "hololens": {"depth_unit": "mm", "sample": "harris:500", "min_depth": 0.2, "max_depth": 5.0},
    "kitti_raw": {
        "sparse": "depth",
        "depth_unit": "kitti",
        "poses": "poses_estimated.txt",
        "withhold": 0.2,
        "fps": 10,
        "min_depth": 0.001,
        "max_depth": 80.0,
    },
}
METHODS = ("pretrained", "finetune", "ewc", "lwf", "replay", "ancl", "cmp", "protodepth")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the three recordings are")
    parser.add_argument("--out", type=Path, default=Path("runs/real"))
    parser.add_argument("--model", default="worlds-tiny-mixed", help="the base: a bundled name or a model folder")
    parser.add_argument("--world", default="worlds:street", help="what the base has learned")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--steps", type=int, default=300, help="training steps on each recording")
    parser.add_argument("--crop", type=int, nargs=2, default=(128, 192), help="rows and columns of a training crop")
    parser.add_argument("--test-frames", type=int, default=16, help="test frames of each recording, evenly spaced")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def few(domain: Domain, most: int) -> Domain:
    """The same domain with at most so many test frames (they are large, and neighbours are alike)."""
    from protodepth.data.frame import Subset

    def thinned(data: Any) -> Any:
        chosen = sorted({int(i) for i in np.linspace(0, len(data) - 1, min(most, len(data)))})
        return Subset(data, tuple(chosen))

    return dataclasses.replace(domain, val=thinned(domain.val), test=thinned(domain.test))


def open_all(folder: Path, world: str, most: int) -> list[Domain]:
    missing = [name for name in RECORDINGS if not (folder / name).is_dir()]
    if missing:
        raise ConfigError(f"{folder} has no folder {missing[0]}: expected {', '.join(RECORDINGS)}")
    real = [Recording.open(folder / name, name=name, **settings).domain() for name, settings in RECORDINGS.items()]
    return [few(domain, most) for domain in (open_domain(world), *real)]


def recipe_for(options: argparse.Namespace) -> SequenceRecipe:
    base = recipes.mixed()
    rows, columns = options.crop
    schedule = Schedule(
        steps=options.steps, batch_size=2, rate=1e-3, augment=AugmentConfig(flip_horizontal=True, crop=(rows, columns))
    )
    return dataclasses.replace(
        base,
        name="real",
        start=options.model,
        domains=(options.world, *RECORDINGS),
        schedule=schedule,
        settings={**base.settings, "ewc": {"samples": 64}},
        seed=options.seed,
    )


def floor(domains: list[Domain]) -> dict[str, dict[str, dict[str, float]]]:
    """Interpolation on the same test frames."""

    def predictor(name: str) -> Any:
        complete = completions.get(name)
        return lambda batch: plain_prediction(
            torch.from_numpy(
                np.stack([complete(z) for z in batch.sparse_depth[:, 0].numpy()])[:, None].astype(np.float32)
            )
        )

    return {
        name: {d.name: evaluate(predictor(name), d.test, d.rules).mean for d in domains} for name in completions.names()
    }


def main() -> None:
    options = arguments()
    if not Path(options.model).is_dir() and options.model not in bundled():
        raise ConfigError(f"no model {options.model!r}: give a bundled name ({', '.join(bundled())}) or a model folder")
    reporter, recipe = Reporter(), recipe_for(options)
    domains = open_all(options.folder, options.world, options.test_frames)
    for domain in domains:
        reporter.line(
            f"{domain.name}: {len(domain.train)} train, {len(domain.val)} val, {len(domain.test)} test frames"
        )
    model = ProtoDepth.from_pretrained(resolve(options.model))
    if domains[0].name not in model.domains:
        describe(model, domains[0].name, domains[0].train, domains[0].val)
    documents = {name: learn(name, recipe, model, domains, options.out, reporter) for name in options.methods}
    document = merge(documents)
    document["floor"] = floor(domains)
    write_run(options.out, document, title="Real recordings, one after the other")
    print_table(document)
    for name, errors in document["floor"].items():
        print(f"{name:<14}" + "  ".join(f"{d} {e['mae']:.1f} mm" for d, e in errors.items()))
    print(f"wrote {options.out / 'report.html'} and {options.out / 'results.json'}")


def learn(
    name: str, recipe: SequenceRecipe, model: ProtoDepth, domains: list[Domain], out: Path, reporter: Reporter
) -> dict[str, Any]:
    """One method on the sequence, or its stored result."""
    place = out / "methods" / f"{name}.json"
    if place.exists():
        reporter.line(f"{name} is finished: {place}")
        return files.read_json(place)
    started = time.monotonic()
    with reporter.bar(name, recipe.schedule.steps * (len(domains) - 1)) as advance:
        done = [0]

        def each(step: int, record: dict[str, float]) -> None:
            done[0] += 1
            advance(done[0])

        result, _ = learn_sequence(
            name, recipe, model, domains, folder=out / "state" / name, log=each, report=reporter.line
        )
    about = about_run(command_line(), recipe.seed, model=recipe.start)
    document = results_document([result], seconds=time.monotonic() - started, about=about)
    files.write_json(place, document)
    return document


if __name__ == "__main__":
    try:
        main()
    except ProtoDepthError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
