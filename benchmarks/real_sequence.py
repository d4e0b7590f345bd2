"""A real check: from a base that has only seen drawn scenes to three recordings of three sensors, one after the other.

    python benchmarks/real_sequence.py FOLDER --out runs/real [--split test] [--methods finetune protodepth]

FOLDER holds ``sevenscenes`` (Kinect), ``hololens`` and ``kitti_raw`` (Velodyne), each with image/, depth/,
intrinsics.txt and poses.  Each recording is split into blocks of time with gaps.  Frames that judge show corners of
their depth map (of KITTI's sweep four fifths of the points), and the rest of the map is ground truth.  All methods
learn alike, from what the sensor says in the training block: most of it is hidden from the network in the ways that
`adapt` hides it (points of any density, corners, crowds, holes), and the error at all of it is the loss (``--objective
paper``: Eq. 1 with the points of frames that judge, every one shown).  Where hidden points of the training block say
that a picture does not lie on its depth, it is moved there for all methods, the untouched base included.  The table
has forgetting and the error on each recording at the end, interpolation of the same points beside it.  Methods that are
finished are not repeated; an interrupted one goes on.  With ``--select-every`` every method keeps of each stage the
step that was best on the val block, judged as test frames are, by depth that the sensor itself has.

``--split val`` (the default) is for choosing anything, ``--split test`` for the table alone.
"""

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from protodepth import config
from protodepth.data.arguments import open_domain
from protodepth.data.augment import AugmentConfig
from protodepth.data.frame import SPLITS, Domain, FrameDataset, Subset, evenly
from protodepth.data.interpolation import completions
from protodepth.data.recording.open import Recording
from protodepth.errors import ConfigError, ProtoDepthError
from protodepth.methods.statistics import describe
from protodepth.model import ProtoDepth
from protodepth.progress import Reporter
from protodepth.prototypes import PrototypeConfig
from protodepth.report.results import (
    SCORES,
    about_run,
    command_line,
    merge,
    plain,
    results_document,
    row_key,
    row_name,
)
from protodepth.report.run import print_table, write_run
from protodepth.report.tables import Column, Line, Table, Value, markdown
from protodepth.storage import files
from protodepth.storage.folders import bundled, resolve
from protodepth.training import recipes
from protodepth.training.evaluate import evaluate, interpolated
from protodepth.training.recipes import CheckpointChoice, SequenceRecipe
from protodepth.training.registration import Registered, find_place
from protodepth.training.schedule import Schedule
from protodepth.training.sequence import learn_sequence

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
MARKS = ("<!-- real sequence -->", "<!-- end of real sequence -->")  # around the table in a document
METHODS = ("pretrained", "finetune", "ewc", "lwf", "replay", "ancl", "cmp", "protodepth")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the three recordings are")
    parser.add_argument("--out", type=Path, default=Path("runs/real"))
    parser.add_argument("--model", default="any-sensor", help="the base: a bundled name or a model folder")
    parser.add_argument("--world", default="worlds:any?train=64&val=8&test=16", help="what the base has learned")
    parser.add_argument("--objective", choices=("hidden", "paper"), default="hidden", help="what all methods learn by")
    parser.add_argument("--split", choices=("val", "test"), default="val", help="the blocks that judge")
    parser.add_argument("--rate", type=float, default=3e-4, help="learning rate of methods that change the network")
    parser.add_argument("--prototype-rate", type=float, default=1e-2, help="learning rate of prototypes")
    parser.add_argument(
        "--own-parts",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="a domain of ProtoDepth learns parts of the network, too, as adapt does (the paper: prototypes alone)",
    )
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--steps", type=int, default=300, help="training steps on each recording")
    parser.add_argument("--batch", type=int, default=2, help="crops in a step")
    parser.add_argument("--crop", type=int, nargs=2, default=(128, 192), help="rows and columns of a training crop")
    parser.add_argument("--test-frames", type=int, default=16, help="test frames of each recording, evenly spaced")
    parser.add_argument(
        "--select-every",
        type=int,
        help="keep of each stage the step with the least error at points of the val block, looked at every N steps",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="write what the table is made of into this file")
    parser.add_argument("--write", type=Path, help="put the table between the marks of this document")
    return parser.parse_args()


def few(domain: Domain, most: int) -> Domain:
    """The same domain with at most so many frames that judge (they are large, and neighbours are alike)."""

    def thinned(data: FrameDataset) -> Subset:
        return Subset(data, tuple(evenly(len(data), most)))

    return dataclasses.replace(domain, val=thinned(domain.val), test=thinned(domain.test))


def open_real(folder: Path, settings: dict[str, Any], whole: bool) -> Domain:
    """A recording whose frames judge as the settings say; ``whole``: it is learned from as the sensor gave it."""
    domain = Recording.open(folder, name=folder.name, **settings).domain()
    if not whole or "sample" not in settings:
        return domain
    as_it_is = {key: value for key, value in settings.items() if key != "sample"}
    return dataclasses.replace(domain, train=Recording.open(folder, name=folder.name, **as_it_is).domain().train)


def registered(model: ProtoDepth, domain: Domain, reporter: Reporter) -> Domain:
    """The recording with its pictures on its depth, as hidden points of the training block alone say."""
    found = find_place(model, domain.train)
    if found is None:
        return domain
    reporter.line(f"{domain.name}: {found}")
    parts = {split: Registered(domain.split(split), found.place) for split in SPLITS}
    return dataclasses.replace(domain, **parts)


def open_all(options: argparse.Namespace, model: ProtoDepth, reporter: Reporter) -> list[Domain]:
    folder, whole = options.folder, options.objective == "hidden"
    missing = [name for name in RECORDINGS if not (folder / name).is_dir()]
    if missing:
        raise ConfigError(f"{folder} has no folder {missing[0]}: expected {', '.join(RECORDINGS)}")
    real = [open_real(folder / name, settings, whole) for name, settings in RECORDINGS.items()]
    if whole:
        real = [registered(model, domain, reporter) for domain in real]
    return [few(domain, options.test_frames) for domain in (open_domain(options.world), *real)]


def recipe_for(options: argparse.Namespace, prototypes: PrototypeConfig) -> SequenceRecipe:
    """One budget and one objective for all methods."""
    base, hidden, every = recipes.mixed(), options.objective == "hidden", options.select_every
    rows, columns = options.crop
    augment = AugmentConfig(flip_horizontal=True, crop=(rows, columns))
    schedule = Schedule(steps=options.steps, batch_size=options.batch, rate=options.rate, augment=augment)
    if hidden:
        schedule = dataclasses.replace(schedule, augment=dataclasses.replace(augment, remove_patterns=True))
    objective = base.objective
    if hidden:  # the network returns the points it is shown, so the error at all points is that of the hidden ones
        objective = dataclasses.replace(objective, color=0.0, structure=0.0, smooth=0.0, sparse=1.0)
    return dataclasses.replace(
        base,
        name="real",
        start=options.model,
        domains=(options.world, *RECORDINGS),
        objective=objective,
        prototypes=prototypes,
        schedule=schedule,
        rates={"protodepth": options.prototype_rate},
        select=None if every is None else CheckpointChoice(split="val", every=every),
        settings={**base.settings, "ewc": {"samples": 64}},
        seed=options.seed,
    )


def floor(domains: list[Domain], split: str) -> dict[str, dict[str, dict[str, float]]]:
    """Interpolation on the same frames."""
    return {
        name: {d.name: evaluate(interpolated(name), d.split(split), d.rules).mean for d in domains}
        for name in completions.names()
    }


def beside(document: dict[str, Any]) -> Table:
    """Forgetting, and the error on each domain at the end, of every method and of interpolation."""
    domains, lines = document["domains"], []
    best = {d: min(errors[d]["mae"] for errors in document["floor"].values()) for d in domains}
    for name, errors in document["floor"].items():
        cells = [Value(errors[d]["mae"]) for d in domains]
        lines.append(Line((f"{name} interpolation",), (Value(0.0), *cells, ratio(cells[1:], domains[1:], best))))
    for row in document["rows"]:
        matrix = document["matrix"][row_key(row)][row["setting"]]["mae"]
        cells = [Value(v) for v in matrix[-1]]
        forgotten = Value(100 * row["forgetting"]["mae"])
        lines.append(Line((row_name(row),), (forgotten, *cells, ratio(cells[1:], domains[1:], best))))
    columns = (
        Column("Forgetting", "", "%", 3, ranked=False),
        *(Column(d, "MAE at the end", "mm", 1) for d in domains),
        Column("of the best interpolation", "recordings, mean", "", 3),
    )
    return Table(
        name="real",
        title="At the end of the sequence",
        heads=("Method",),
        columns=columns,
        lines=tuple(lines),
        note="Forgetting: how much errors on earlier domains grew since they were learned; ProtoDepth's is 0.",
    )


def kept(document: dict[str, Any]) -> dict[str, Any]:
    """What the table needs: the MAE of every method on every domain after each of them, and interpolation's."""
    rows = [{**row, **{s: {"mae": row[s]["mae"]} for s in SCORES}} for row in document["rows"]]
    matrix = {m: {s: {"mae": t["mae"]} for s, t in by.items()} for m, by in document["matrix"].items()}
    floor = {name: {d: {"mae": e["mae"]} for d, e in errors.items()} for name, errors in document["floor"].items()}
    by_method = document["about"]
    about = {name: {key: by_method[name][key] for key in ("seed", "torch", "processor", "cores")} for name in by_method}
    return {"about": about, "domains": document["domains"], "floor": floor, "rows": rows, "matrix": matrix}


def written(text: str, table: str) -> str:
    """The document with the table between its marks."""
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    if not rest or not after:
        raise ConfigError(f"the document has no place for the table: expected {MARKS[0]} and {MARKS[1]}")
    return f"{before}{MARKS[0]}\n{table}{MARKS[1]}{after}"


def ratio(cells: list[Value], domains: list[str], best: dict[str, float]) -> Value:
    """Mean over the recordings of the error over the best interpolation's."""
    return Value(float(np.mean([(c.mean or np.nan) / best[d] for c, d in zip(cells, domains, strict=True)])))


def main() -> None:
    options = arguments()
    if not Path(options.model).is_dir() and options.model not in bundled():
        raise ConfigError(f"no model {options.model!r}: give a bundled name ({', '.join(bundled())}) or a model folder")
    if options.select_every is not None and options.select_every < 1:
        raise ConfigError(f"--select-every is {options.select_every}, expected a number of steps, 1 or more")
    if options.write:  # before the training, not after it
        written(options.write.read_text() if options.write.is_file() else "", "")
    reporter = Reporter()
    model = ProtoDepth.from_pretrained(resolve(options.model))
    domains = open_all(options, model, reporter)
    for domain in domains:
        reporter.line(
            f"{domain.name}: {len(domain.train)} train, {len(domain.val)} val, {len(domain.test)} test frames"
        )
    if domains[0].name not in model.domains:
        describe(model, domains[0].name, domains[0].train, domains[0].val)
    parts = (*model.backbone.encoder_parts, *model.backbone.decoder_parts) if options.own_parts else ()
    recipe = recipe_for(options, dataclasses.replace(model.config, parts=parts))
    claim_settings(options.out, recipe, {"split": options.split, "model": model.fingerprint()})
    learned = (learn(name, recipe, model, domains, options, reporter) for name in options.methods)
    document = merge(dict(zip(options.methods, learned, strict=True)))
    document["floor"] = floor(domains, options.split)
    write_run(options.out, document, title="Real recordings, one after the other")
    text = markdown(beside(document))
    files.write_bytes(options.out / "table.md", text.encode())
    if options.keep:
        files.write_json(options.keep, kept(document))
    if options.write:
        files.write_bytes(options.write, written(options.write.read_text(), text).encode())
    print_table(document)
    print(text)
    print(f"wrote table.md, report.html and results.json into {options.out}")


def claim_settings(out: Path, recipe: SequenceRecipe, more: dict[str, str]) -> None:
    """One folder holds one configuration: finished methods are not repeated."""
    place, wanted = out / "recipe.json", plain({**config.to_dict(recipe), **more})
    if place.exists() and files.read_json(place) != wanted:
        raise ConfigError(f"{out} holds a sequence with other settings: give another --out, or the same settings")
    files.write_json(place, wanted)


def learn(
    name: str,
    recipe: SequenceRecipe,
    model: ProtoDepth,
    domains: list[Domain],
    options: argparse.Namespace,
    reporter: Reporter,
) -> dict[str, Any]:
    """One method on the sequence, or its stored result."""
    out, place = options.out, options.out / "methods" / f"{name}.json"
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
            name,
            recipe,
            model,
            domains,
            folder=out / "state" / name,
            log=each,
            report=reporter.line,
            split=options.split,
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
