"""The experiments by name: which table or figure of the paper each one is, on which sequences and networks."""

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from protodepth import config
from protodepth.errors import ConfigError, UnknownNameError
from protodepth.experiments import (
    ablations,
    classical,
    forgetting_curve,
    foundation,
    joint,
    main_tables,
    qualitative,
    set_sizes,
    training_time,
    tsne,
    zero_shot,
)
from protodepth.experiments.experiment import CONVOLUTIONAL, PAIRS, Experiment
from protodepth.experiments.planning import Options, Planner, check_fit
from protodepth.training import recipes


def _table(
    name: str, paper: str, about: str, module: ModuleType, sequences: Sequence[str], backbones: Sequence[str]
) -> Experiment:
    """``module``: the file of the experiment, with its ``plan`` and ``show``."""
    return Experiment(
        name=name,
        paper=paper,
        about=about,
        cells=module.plan,
        show=module.show,
        sequences=tuple(sequences),
        backbones=tuple(backbones),
    )


# fmt: off
EXPERIMENTS: dict[str, Experiment] = {e.name: e for e in (
    _table("indoor", "main table, additional table (1, 2)", "all methods on three indoor domains", main_tables,
           ("indoor",), (*CONVOLUTIONAL, "uformer")),
    _table("outdoor", "main table, additional table (3)", "all methods on three outdoor domains", main_tables,
           ("outdoor",), CONVOLUTIONAL),
    _table("mixed", "additional table (4, 5)", "outdoors, indoors, outdoors again", main_tables, ("mixed",),
           ("lite", "kbnet", "uformer")),
    _table("set-sizes-indoor", "sensitivity study, indoor", "number of prototypes of image and depth layers", set_sizes,
           ("indoor",), ("kbnet",)),
    _table("set-sizes-outdoor", "sensitivity study, outdoor", "number of prototypes of image and depth layers",
           set_sizes, ("outdoor",), ("kbnet",)),
    _table("ablations", "both ablation tables", "ProtoDepth without each of its parts", ablations, PAIRS, ("kbnet",)),
    _table("training-time", "training times", "seconds of a step and minutes of an epoch by method", training_time,
           PAIRS, ("kbnet",)),
    _table("joint", "upper bound", "all domains at once against one after the other", joint, ("outdoor",),
           ("uformer",)),
    _table("zero-shot", "generalisation to nuScenes", "a domain that nobody has seen", zero_shot, ("outdoor",),
           ("kbnet",)),
    _table("foundation", "foundation models", "an outside model's predictions, scaled by the median", foundation,
           ("indoor",), ("kbnet",)),
    _table("forgetting-curve", "first figure", "the error on the first domain while later ones are learned",
           forgetting_curve, ("outdoor",), ("kbnet",)),
    _table("tsne", "figure of descriptors", "sample and domain descriptors in the plane", tsne, ("indoor",),
           ("kbnet",)),
    _table("qualitative", "qualitative figures", "depth and error maps on an old domain after a new one", qualitative,
           ("outdoor", "indoor"), ("voiced", "fusionnet")),
    _table("classical", "not in the paper", "interpolation: the floor that learning must beat", classical, PAIRS,
           CONVOLUTIONAL),
)}
# fmt: on


def get(name: str) -> Experiment:
    """An experiment by its name; an unknown one is refused with the list of all.

    >>> get("joint").backbones
    ('uformer',)
    """
    if name not in EXPERIMENTS:
        raise UnknownNameError("experiment", name, (*EXPERIMENTS, "list", "real", "all"))
    return EXPERIMENTS[name]


def listing() -> str:
    """All experiments by name with their place in the paper and their networks: what ``bench list`` prints."""
    rows = [("experiment", "in the paper", "networks", "what")]
    rows += [(e.name, e.paper, " ".join(e.backbones), e.about) for e in EXPERIMENTS.values()]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[3]]) for row in rows]
    return "\n".join([*lines, "", "protodepth bench real FOLDER ...: your recordings, see docs/real_sensors.md"])


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
            f"{experiment.name} runs on {' and '.join(experiment.sequences)}, --data names one sequence: "
            "say which with --sequence"
        )
    for backbone in experiment.networks(options):
        for method in options.methods:
            check_fit(method, backbone, options.preset)
    return experiment


def shared_settings(experiment: Experiment, options: Options) -> dict[str, Any]:
    """What everything of one experiment in one output folder has in common: the data, the budget and the recipes."""
    plan = Planner(options)
    sequences = {s: config.to_dict(plan.recipe(s)) for s in experiment.sequences}
    starts = {s: config.to_dict(plan.base_recipe(recipes.SEQUENCES[s]().start, "lite")) for s in experiment.sequences}
    tuned = {s: values for s, values in options.tuned.items() if s in experiment.sequences}  # of others: no matter here
    shared = {"sequences": sequences, "bases": starts, "tuned": tuned, "preset": options.preset}
    # what older folders have is not written down, so that they stay the same
    shared |= {} if options.scenes == "fixed" else {"scenes": options.scenes}
    return shared | ({} if options.budget == "steps" else {"budget": options.budget})
