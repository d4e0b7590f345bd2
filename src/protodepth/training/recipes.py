"""Recipes: named settings of whole runs as frozen dataclasses; ``protodepth train --recipe NAME`` runs one."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from protodepth import config
from protodepth.backbones.lite import Lite
from protodepth.backbones.scaffnet import ScaffNet
from protodepth.data.augment import AugmentConfig
from protodepth.errors import UnknownNameError
from protodepth.losses import ObjectiveConfig
from protodepth.prototypes import PrototypeConfig
from protodepth.selection import Selection
from protodepth.training import published
from protodepth.training.drawn import DrawnRecipe
from protodepth.training.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecipe:
    """Part of a recipe: how one domain is learned, where datasets differ: crop, batch, rates, epochs, weights."""

    schedule: Schedule
    objective: ObjectiveConfig | None = None  # None = the recipe's


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointChoice:
    """Which checkpoint of a stage is kept: the best on ``split`` of the stage's own domain, looked at ``every`` so many
    steps and at the end."""

    split: Literal["val", "test"] = "val"
    every: int = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRecipe:
    """A recipe: how a base network learns D_1 from scratch."""

    name: str
    data: str  # a data argument, for example worlds:street
    backbone: str = "lite"
    preset: str = "indoor"
    backbone_options: dict[str, Any] = field(default_factory=dict)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    schedule: Schedule = field(default_factory=Schedule)
    prototypes: PrototypeConfig = field(default_factory=PrototypeConfig)  # what later domains get by default
    pose: bool = True  # also train the backbone's pose network
    supervised: bool = False  # ScaffNet alone: learns from the exact depth of a world that is in no sequence
    seed: int = 0
    select: CheckpointChoice | None = None  # None = the last checkpoint
    scale: float | None = None  # share of the published epochs, in a rehearsal


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRecipe:
    """A recipe: how methods learn D_2, D_3, ... from a base network: one budget for all of them."""

    name: str
    start: str  # a bundled model or a folder
    domains: tuple[str, ...]  # data arguments; the first is what the start has learned
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    schedule: Schedule = field(default_factory=Schedule)
    prototypes: PrototypeConfig = field(default_factory=PrototypeConfig)
    rates: dict[str, float] = field(
        default_factory=dict
    )  # learning rate by method, where it differs from the schedule's
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)  # configuration by method
    curve_every: int = 0
    seed: int = 0
    # Below, None is one way for all stages and is not written down: older recipe.toml files stay the same.
    stages: dict[str, StageRecipe] | None = None  # by the domain's name, where it differs from schedule and objective
    select: CheckpointChoice | None = None  # None = the last checkpoint of each stage
    selection: Selection | None = None  # how a domain is chosen where none is given; None = descriptor, the paper's
    augment: Literal["published", "base"] | None = None  # of later stages; None = the schedule's own
    scale: float | None = None  # share of the published epochs, in a rehearsal

    def schedule_for(self, domain: str, method: str) -> Schedule:
        """The schedule of a domain, with the method's own learning rate if it has one.

        >>> recipe = SequenceRecipe(name="r", start="worlds-tiny", domains=(), rates={"ewc": 1e-4})
        >>> recipe.schedule_for("void", "ewc").rate
        0.0001
        """
        stage = (self.stages or {}).get(domain)
        schedule = self.schedule if stage is None else stage.schedule
        if self.augment is not None:
            ways = {"published": AugmentConfig.published(), "base": BASE_AUGMENT}
            schedule = replace(schedule, augment=replace(ways[self.augment], crop=schedule.augment.crop))
        return replace(schedule, rate=self.rates.get(method, schedule.rate))

    def objective_for(self, domain: str) -> ObjectiveConfig:
        stage = (self.stages or {}).get(domain)
        return self.objective if stage is None or stage.objective is None else stage.objective


# At 64x96 a window of 7 pixels covers metres of road: local outliers are judged in 3x3 with a relative margin.
WORLDS_OBJECTIVE = ObjectiveConfig(
    reduction="relative",
    color=0.15,
    structure=0.95,
    sparse=0.6,
    smooth=0.02,
    mask_outside=True,
    outlier_size=3,
    outlier_relative=0.3,
    learn_pose=False,
)
BASE_OBJECTIVE = replace(WORLDS_OBJECTIVE, learn_pose=True)
INDOOR_PROTOTYPES = PrototypeConfig(image_size=10, depth_size=5)
OUTDOOR_PROTOTYPES = PrototypeConfig(image_size=25, depth_size=10)
# On val scenes of `highway` larger sets learned better:
# 2025, 2001, 1979 mm MAE for 10/5, 25/10, 60/30 (seed 0, 500 steps).
OUTDOOR_WORLDS_PROTOTYPES = PrototypeConfig(image_size=60, depth_size=30)
# What a base sees varies more than its world does: features that survive it can be adapted to other sensors and lenses.
BASE_AUGMENT = AugmentConfig(
    brightness=(0.7, 1.3),
    contrast=(0.7, 1.3),
    saturation=(0.7, 1.3),
    flip_horizontal=True,
    resize=(0.7, 1.15),
    remove_points=(0.0, 0.6),
    remove_rows=(0.0, 0.6),
)


def worlds_tiny() -> BaseRecipe:
    """The bundled indoor base: lite on `room`."""
    return BaseRecipe(
        name="worlds-tiny",
        data="worlds:room?train=1200",
        preset="indoor",
        objective=BASE_OBJECTIVE,
        schedule=Schedule(steps=6000, batch_size=2, rate=2e-3, augment=BASE_AUGMENT),
        prototypes=INDOOR_PROTOTYPES,
    )


def worlds_tiny_outdoor() -> BaseRecipe:
    """The bundled outdoor base: lite on `street`."""
    return BaseRecipe(
        name="worlds-tiny-outdoor",
        data="worlds:street?train=1200",
        preset="outdoor",
        objective=BASE_OBJECTIVE,
        schedule=Schedule(steps=6000, batch_size=2, rate=2e-3, augment=BASE_AUGMENT),
        prototypes=OUTDOOR_PROTOTYPES,
    )


def worlds_tiny_mixed() -> BaseRecipe:
    """As the outdoor base, with an output head of 0.1 to 100 m that rooms and streets share."""
    return replace(worlds_tiny_outdoor(), name="worlds-tiny-mixed", preset="mixed")


def scaffnet() -> BaseRecipe:
    """ScaffNet for rooms: learns from the exact depth of `office`, a world that is in no sequence."""
    return BaseRecipe(
        name="scaffnet",
        data="worlds:office?train=600",
        backbone="scaffnet",
        preset="small",
        schedule=Schedule(
            steps=2000, batch_size=4, rate=2e-3, augment=AugmentConfig(remove_points=(0.0, 0.6), remove_rows=(0.0, 0.6))
        ),
        pose=False,
        supervised=True,
    )


def scaffnet_outdoor() -> BaseRecipe:
    """ScaffNet for streets: as `scaffnet`, on `garden`."""
    options = {"depth_range": list(Lite.presets["outdoor"]["depth_range"])}
    return replace(scaffnet(), name="scaffnet-outdoor", data="worlds:garden?train=600", backbone_options=options)


# The paper keeps 64 frames of each dataset, about 0.1 %: of the 1200 frames that a base has learned from that is one,
# of a later domain less than one.  Four are the fewest from which CMP can choose; 64 would be joint training.
BUFFERS: dict[str, dict[str, Any]] = {"replay": {"size": 4}, "cmp": {"size": 4}}
# A later domain is one short recording: 500 steps of two frames see each of its 64 frames sixteen times,
# as the published scripts do (9 to 60).
LATER = "?train=64"


def outdoor() -> SequenceRecipe:
    """street -> street_dusk -> highway, from the bundled outdoor base."""
    return SequenceRecipe(
        name="outdoor",
        start="worlds-tiny-outdoor",
        domains=("worlds:street", f"worlds:street_dusk{LATER}", f"worlds:highway{LATER}"),
        objective=WORLDS_OBJECTIVE,
        schedule=Schedule(steps=500, batch_size=2, rate=1e-3, clip=math.inf),
        prototypes=OUTDOOR_WORLDS_PROTOTYPES,
        rates={"protodepth": 6e-2},
        settings=BUFFERS,
    )


def indoor() -> SequenceRecipe:
    """room -> warehouse -> corridor_night, from the bundled indoor base."""
    return SequenceRecipe(
        name="indoor",
        start="worlds-tiny",
        domains=("worlds:room", f"worlds:warehouse{LATER}", f"worlds:corridor_night{LATER}"),
        objective=WORLDS_OBJECTIVE,
        schedule=Schedule(steps=500, batch_size=2, rate=1e-3, clip=math.inf),
        prototypes=INDOOR_PROTOTYPES,
        rates={"protodepth": 6e-2},
        settings=BUFFERS,
    )


def mixed() -> SequenceRecipe:
    """street -> room -> street_dusk: outdoors, indoors and outdoors again, as the paper's KITTI -> NYUv2 -> Waymo."""
    return replace(
        outdoor(),
        name="mixed",
        start="worlds-tiny-mixed",
        domains=("worlds:street", f"worlds:room{LATER}", f"worlds:street_dusk{LATER}"),
    )


BASE_RATES = {"lite": 2e-3, "kbnet": 1e-3, "voiced": 1e-3, "fusionnet": 1e-3, "uformer": 1e-3}
BASE_RATES["worlds-tiny-outdoor-voiced"] = 1.5e-3  # in `room` it dies at this rate
# VOICED predicts at half the size and learns slower:
# with 6000 steps its outdoor base is no better than interpolation (1377 and 1368 mm MAE).
BASE_STEPS = {"voiced": 9000}
# A patch of 14 pixels is a fortieth of a published image's width, but a seventh of the worlds' 96 pixels;
# 4 are a twenty-fourth.
UFORMER_PATCH = 4
SCAFFOLDS = {"worlds-tiny": "office", "worlds-tiny-outdoor": "garden", "worlds-tiny-mixed": "garden"}


def base_for(start: str, backbone: str, preset: str = "small") -> BaseRecipe:
    """The recipe of a base with another network: the same data, views and depth range as the `lite` one.

    Poses are given on the worlds, so that no pose network has to learn beside it.
    """
    recipe = BASES[start]()
    if backbone == recipe.backbone:
        return recipe
    depth_range = Lite.presets[recipe.preset]["depth_range"]
    options: dict[str, Any] = {"depth_range": list(depth_range)}
    if backbone in ("kbnet", "voiced"):  # their heads have no bias: see backbones.base.centre
        options["centred"] = True
    if backbone == "uformer":
        options["patch"] = UFORMER_PATCH
    if backbone == "fusionnet":
        options["scaffnet"] = {**ScaffNet.presets.get(preset, ScaffNet.presets["small"]), "depth_range": depth_range}
    return replace(
        recipe,
        name=f"{start}-{backbone}",
        backbone=backbone,
        preset=preset,
        backbone_options=options,
        objective=replace(recipe.objective, learn_pose=False),
        schedule=replace(
            recipe.schedule,
            rate=BASE_RATES.get(f"{start}-{backbone}", BASE_RATES.get(backbone, 1e-3)),
            steps=BASE_STEPS.get(backbone, recipe.schedule.steps),
        ),
        pose=False,
    )


BASES: dict[str, Callable[[], BaseRecipe]] = {
    "worlds-tiny": worlds_tiny,
    "worlds-tiny-outdoor": worlds_tiny_outdoor,
    "worlds-tiny-mixed": worlds_tiny_mixed,
    "scaffnet": scaffnet,
    "scaffnet-outdoor": scaffnet_outdoor,
}
SEQUENCES: dict[str, Callable[[], SequenceRecipe]] = {"outdoor": outdoor, "indoor": indoor, "mixed": mixed}


def any_sensor() -> DrawnRecipe:
    """The base for any sensor, at the width of the bundled one."""
    return DrawnRecipe(preset="medium")


DRAWN: dict[str, Callable[[], DrawnRecipe]] = {"any-sensor": any_sensor}


Recipe = BaseRecipe | SequenceRecipe | DrawnRecipe


def get(name: str) -> Recipe:
    """A recipe by name.

    >>> get("outdoor").start
    'worlds-tiny-outdoor'
    """
    every: dict[str, Callable[[], Recipe]] = {**BASES, **SEQUENCES, **DRAWN}
    if name not in every:
        raise UnknownNameError("recipe", name, (*every, *published.SEQUENCES))  # these: paper_recipes.py
    return every[name]()


def read_recipe(name: str) -> Recipe:
    """A recipe by name, or from the recipe.toml of an earlier run."""
    if not name.endswith(".toml"):
        return get(name)
    if "domains" in config.read_values(Path(name)):
        return config.read(SequenceRecipe, Path(name))
    if "crops" in config.read_values(Path(name)):
        return config.read(DrawnRecipe, Path(name))
    return config.read(BaseRecipe, Path(name))
