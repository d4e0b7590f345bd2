"""The experiments by name: which table or figure of the paper each one is, and which cells it needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from protodepth import config, recipes
from protodepth.classical import completions
from protodepth.errors import ConfigError, UnknownNameError
from protodepth.experiments.cells import Cell
from protodepth.experiments.looks import outside_digest
from protodepth.experiments.planning import Options, Planner, Training, check_fit, layers_without
from protodepth.experiments.work import TIMED_STEPS
from protodepth.types import Modality

MAIN = ("pretrained", "finetune", "ewc", "lwf", "replay")
MORE = ("ancl", "cmp")
CONVOLUTIONAL = ("lite", "kbnet", "voiced", "fusionnet")
PAIRS = ("indoor", "outdoor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """``sequences``: what it runs on by default.  ``cells`` plans its cells for one request."""

    name: str
    paper: str
    about: str
    sequences: tuple[str, ...]
    backbones: tuple[str, ...]
    cells: Callable[["Experiment", Planner], list[Cell]]

    def networks(self, options: Options) -> tuple[str, ...]:
        return options.backbones or self.backbones


def methods_for(sequence: str, backbone: str, options: Options) -> tuple[str, ...]:
    """The rows of the paper's tables: ANCL and CMP with KBNet (and our own network), L2P with the transformer."""
    if options.methods:
        return options.methods
    if backbone == "uformer":
        return ("pretrained", "finetune", "l2p", "protodepth")
    more = MORE if backbone in ("lite", "kbnet") or sequence == "mixed" else ()
    return (*MAIN, *more, "protodepth")


def _main(experiment: Experiment, plan: Planner) -> list[Cell]:
    (sequence,) = experiment.sequences
    rows = [
        Training(sequence=sequence, backbone=backbone, method=method, seed=seed)
        for seed in plan.options.seeds  # every row once before any row twice
        for backbone in experiment.networks(plan.options)
        for method in methods_for(sequence, backbone, plan.options)
    ]
    return [plan.training(row) for row in rows]


SET_SIZES = {
    "indoor": ((1, 1), (5, 5), (10, 5), (10, 10), (100, 100)),
    "outdoor": ((1, 1), (10, 10), (25, 10), (25, 25), (100, 100)),
}


def _set_sizes(experiment: Experiment, plan: Planner) -> list[Cell]:
    (sequence,) = experiment.sequences
    rows = []
    for seed in plan.options.seeds:
        for backbone in experiment.networks(plan.options):
            own = Training(sequence=sequence, backbone=backbone, method="protodepth", seed=seed)
            rows.append(replace(own, method="pretrained"))
            for n, m in SET_SIZES[sequence]:
                changes = {"image_size": n, "depth_size": m}
                rows.append(replace(own, variant=f"{n}/{m}", changes=changes))
    return [plan.training(row) for row in rows]


def ablations(backbone: str, preset: str) -> dict[str, dict[str, Any]]:
    """Changes to the prototypes by variant, in the order of the paper's two tables."""
    return {
        "no-global": {"use_global": False},
        "no-projection": {"use_projection": False},
        "no-stop-gradient": {"stop_gradient": False},
        "no-image": {"layers": list(layers_without(backbone, preset, Modality.IMAGE))},
        "no-depth": {"layers": list(layers_without(backbone, preset, Modality.DEPTH))},
        "no-bottleneck": {"layers": list(layers_without(backbone, preset, Modality.FUSED))},
        "none": {},
    }


def _ablations(experiment: Experiment, plan: Planner) -> list[Cell]:
    """The second domain alone, as in the paper: prototype sets of different domains do not touch each other."""
    rows = [
        Training(
            sequence=sequence,
            backbone=backbone,
            method="protodepth",
            seed=seed,
            variant=variant,
            changes=changes,
            chosen=(0, 1),
        )
        for seed in plan.options.seeds
        for sequence in experiment.sequences
        for backbone in experiment.networks(plan.options)
        for variant, changes in ablations(backbone, plan.options.preset).items()
    ]
    return [plan.training(row) for row in rows]


def _timing(experiment: Experiment, plan: Planner) -> list[Cell]:
    """ProtoDepth twice: without and with the descriptor's loss."""
    cells = []
    steps = max(5, min(plan.options.steps or TIMED_STEPS, TIMED_STEPS))
    for sequence in experiment.sequences:
        for backbone in experiment.networks(plan.options):
            for method in plan.options.methods or (*MAIN[1:], "protodepth"):
                variants = {"": {}} if method != "protodepth" else {"": {"learn_descriptor": False}, "A": {}}
                for variant, changes in variants.items():
                    row = Training(
                        sequence=sequence, backbone=backbone, method=method, variant=variant, changes=changes
                    )
                    cells.append(as_timing(plan.training(row), steps))
    return cells


def as_timing(training: Cell, steps: int) -> Cell:
    return replace(training, kind="timing", settings={**training.settings, "timed_steps": steps})


def _joint(experiment: Experiment, plan: Planner) -> list[Cell]:
    return [
        plan.training(Training(sequence=sequence, backbone=backbone, method=method, seed=seed))
        for seed in plan.options.seeds
        for sequence in experiment.sequences
        for backbone in experiment.networks(plan.options)
        for method in plan.options.methods or ("pretrained", "joint", "protodepth")
    ]


def _zero_shot(experiment: Experiment, plan: Planner) -> list[Cell]:
    chosen = plan.options.methods or ("pretrained", "joint", "ancl", "cmp", "protodepth")
    return [
        unseen_cell(plan, Training(sequence=sequence, backbone=backbone, method=method, seed=seed))
        for seed in plan.options.seeds
        for sequence in experiment.sequences
        for backbone in experiment.networks(plan.options)
        for method in chosen
    ]


def unseen_cell(plan: Planner, row: Training) -> Cell:
    training, data = plan.training(row), plan.unseen(row.sequence)
    scaffold = f"worlds:{recipes.SCAFFOLDS[recipes.SEQUENCES[row.sequence]().start]}"
    if row.backbone == "fusionnet" and data.partition("?")[0] == scaffold:
        raise ConfigError(f"FusionNet's ScaffNet has learned on {scaffold}, so it is not unseen: give a fourth --data")
    return Cell(kind="unseen", label=training.label, settings={"data": data}, needs=(training,))


def _foundation(experiment: Experiment, plan: Planner) -> list[Cell]:
    """NYUv2 -> VOID: the first and the third domain; an outside model where its predictions are given."""
    (sequence,) = experiment.sequences
    cells, options = [], plan.options
    if options.predictions:
        folder = Path(options.predictions)
        if not folder.is_dir():
            raise ConfigError(f"--predictions {folder} is not a folder: expected <frame>.npy or <frame>.png inside")
        if options.scale not in ("sparse", "truth"):
            raise ConfigError(f"--scale {options.scale!r}: choose sparse or truth")
        settings = {
            "data": plan.domains(sequence)[2],
            "kind": options.kind,
            "scale": options.scale,
            "predictions": outside_digest(folder),
        }
        label = {"sequence": sequence, "outside": options.outside, "scale": options.scale}
        cells.append(Cell(kind="outside", label=label, settings=settings, where=str(folder.resolve())))
    for seed in options.seeds:
        for backbone in experiment.networks(options):
            row = Training(sequence=sequence, backbone=backbone, method="protodepth", seed=seed, chosen=(0, 2))
            cells.append(plan.training(row))
    return cells


def _curve(experiment: Experiment, plan: Planner) -> list[Cell]:
    return [
        plan.training(Training(sequence=sequence, backbone=backbone, method=method, seed=seed, curve=True))
        for seed in plan.options.seeds[:1]
        for sequence in experiment.sequences
        for backbone in experiment.networks(plan.options)
        for method in plan.options.methods or (*MAIN[1:], "protodepth")
    ]


def _tsne(experiment: Experiment, plan: Planner) -> list[Cell]:
    cells = []
    for sequence in experiment.sequences:
        for backbone in experiment.networks(plan.options):
            row = Training(sequence=sequence, backbone=backbone, method="protodepth", seed=plan.options.seeds[0])
            training = plan.training(row)
            cells.append(Cell(kind="descriptors", label=training.label, settings={}, needs=(training,)))
    return cells


def _qualitative(experiment: Experiment, plan: Planner) -> list[Cell]:
    """The paper's figures: VOICED on KITTI after Waymo, FusionNet on NYUv2 after ScanNet."""
    default = {"outdoor": ("voiced",), "indoor": ("fusionnet",)}
    cells = []
    for sequence in experiment.sequences:
        for backbone in plan.options.backbones or default.get(sequence, ("lite",)):
            chosen = plan.options.methods or (*MAIN[1:], "protodepth")
            seed = plan.options.seeds[0]
            rows = [Training(sequence=sequence, backbone=backbone, method=m, seed=seed) for m in chosen]
            label = {"sequence": sequence, "backbone": backbone, "seed": seed}
            settings = {"old": 0, "new": 1, "frames": 2}
            needs = tuple(plan.training(row) for row in rows)
            cells.append(Cell(kind="pictures", label=label, settings=settings, needs=needs))
    return cells


def _classical(experiment: Experiment, plan: Planner) -> list[Cell]:
    """Interpolation on the test frames of every domain, and the networks that the sequences start from on their own."""
    cells = []
    for sequence in experiment.sequences:
        for data in plan.domains(sequence):
            for name in completions.names():
                label = {"sequence": sequence, "data": data.partition("?")[0], "predictor": name}
                cells.append(Cell(kind="errors", label=label, settings={"data": data, "predictor": name}))
        for backbone in experiment.networks(plan.options):
            base, data = plan.base(sequence, backbone), plan.domains(sequence)[0]
            label = {"sequence": sequence, "data": data.partition("?")[0], "predictor": backbone}
            settings = {"data": data, "predictor": backbone}
            cells.append(Cell(kind="errors", label=label, settings=settings, needs=(base,)))
    return cells


def _table(
    name: str,
    paper: str,
    about: str,
    cells: Callable[[Experiment, Planner], list[Cell]],
    sequences: Sequence[str],
    backbones: Sequence[str],
) -> Experiment:
    return Experiment(
        name=name, paper=paper, about=about, cells=cells, sequences=tuple(sequences), backbones=tuple(backbones)
    )


# fmt: off
EXPERIMENTS: dict[str, Experiment] = {e.name: e for e in (
    _table("indoor", "main table, additional table (1, 2)", "all methods on three indoor domains", _main, ("indoor",), (*CONVOLUTIONAL, "uformer")),
    _table("outdoor", "main table, additional table (3)", "all methods on three outdoor domains", _main, ("outdoor",), CONVOLUTIONAL),
    _table("mixed", "additional table (4, 5)", "outdoors, indoors, outdoors again", _main, ("mixed",), ("lite", "kbnet", "uformer")),
    _table("set-sizes-indoor", "sensitivity study, indoor", "number of prototypes of image and depth layers", _set_sizes, ("indoor",), ("kbnet",)),
    _table("set-sizes-outdoor", "sensitivity study, outdoor", "number of prototypes of image and depth layers", _set_sizes, ("outdoor",), ("kbnet",)),
    _table("ablations", "both ablation tables", "ProtoDepth without each of its parts", _ablations, PAIRS, ("kbnet",)),
    _table("training-time", "training times", "seconds of a step and minutes of an epoch by method", _timing, PAIRS, ("kbnet",)),
    _table("joint", "upper bound", "all domains at once against one after the other", _joint, ("outdoor",), ("uformer",)),
    _table("zero-shot", "generalisation to nuScenes", "a domain that nobody has seen", _zero_shot, ("outdoor",), ("kbnet",)),
    _table("foundation", "foundation models", "an outside model's predictions, scaled by the median", _foundation, ("indoor",), ("kbnet",)),
    _table("forgetting-curve", "first figure", "the error on the first domain while later ones are learned", _curve, ("outdoor",), ("kbnet",)),
    _table("tsne", "figure of descriptors", "sample and domain descriptors in the plane", _tsne, ("indoor",), ("kbnet",)),
    _table("qualitative", "qualitative figures", "depth and error maps on an old domain after a new one", _qualitative, ("outdoor", "indoor"), ("voiced", "fusionnet")),
    _table("classical", "not in the paper", "interpolation: the floor that learning must beat", _classical, PAIRS, CONVOLUTIONAL),
)}
# fmt: on


def get(name: str) -> Experiment:
    """
    >>> get("joint").backbones
    ('uformer',)
    """
    if name not in EXPERIMENTS:
        raise UnknownNameError("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]


def listing() -> str:
    """What ``bench list`` prints."""
    rows = [("experiment", "in the paper", "networks", "what")]
    rows += [(e.name, e.paper, " ".join(e.backbones), e.about) for e in EXPERIMENTS.values()]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join("  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[3]]) for row in rows)


FIXED = ("indoor", "outdoor", "mixed", "set-sizes-indoor", "set-sizes-outdoor")  # the name says the sequence


def restricted(experiment: Experiment, options: Options) -> Experiment:
    """The experiment on the sequences of the options, if they name any; everything is checked before anything runs."""
    for name in options.sequences:
        if name not in recipes.SEQUENCES:
            raise UnknownNameError("sequence", name, recipes.SEQUENCES)
    if options.sequences and experiment.name in FIXED and options.sequences != experiment.sequences:
        raise ConfigError(f"{experiment.name} runs on the sequence {experiment.sequences[0]}: leave --sequence out")
    experiment = replace(experiment, sequences=options.sequences or experiment.sequences)
    if options.data and len(experiment.sequences) > 1:
        raise ConfigError(
            f"{experiment.name} runs on {' and '.join(experiment.sequences)}, --data names one sequence: say which with --sequence"
        )
    for backbone in experiment.networks(options):
        for method in options.methods:
            check_fit(method, backbone, options.preset)
    return experiment


def shared_settings(experiment: Experiment, options: Options) -> dict[str, Any]:
    """What must be the same for everything of an experiment in one output folder: the data, the budget and the recipes."""
    plan = Planner(options)
    sequences = {s: config.to_dict(plan.recipe(s)) for s in experiment.sequences}
    starts = {s: config.to_dict(plan.base_recipe(recipes.SEQUENCES[s]().start, "lite")) for s in experiment.sequences}
    tuned = {s: values for s, values in options.tuned.items() if s in experiment.sequences}  # of others: no matter here
    return {"sequences": sequences, "bases": starts, "tuned": tuned, "preset": options.preset}
