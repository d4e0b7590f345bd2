"""Named settings of whole runs: functions that return frozen dataclasses.  ``protodepth train --recipe NAME`` runs one."""

from collections.abc import Callable
from dataclasses import replace

from protodepth.data.augment import AugmentConfig
from protodepth.errors import UnknownNameError
from protodepth.losses import ObjectiveConfig
from protodepth.prototypes import PrototypeConfig
from protodepth.runs import BaseRecipe, SequenceRecipe
from protodepth.training import Schedule

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


def outdoor() -> SequenceRecipe:
    """street -> street_dusk -> highway, from the bundled outdoor base."""
    return SequenceRecipe(
        name="outdoor",
        start="worlds-tiny-outdoor",
        domains=("worlds:street", "worlds:street_dusk", "worlds:highway"),
        objective=WORLDS_OBJECTIVE,
        schedule=Schedule(steps=500, batch_size=2, rate=1e-3),
        prototypes=OUTDOOR_PROTOTYPES,
        rates={"protodepth": 3e-2},
    )


def indoor() -> SequenceRecipe:
    """room -> warehouse -> corridor_night, from the bundled indoor base."""
    return SequenceRecipe(
        name="indoor",
        start="worlds-tiny",
        domains=("worlds:room", "worlds:warehouse", "worlds:corridor_night"),
        objective=WORLDS_OBJECTIVE,
        schedule=Schedule(steps=500, batch_size=2, rate=1e-3),
        prototypes=INDOOR_PROTOTYPES,
        rates={"protodepth": 3e-2},
    )


BASES: dict[str, Callable[[], BaseRecipe]] = {"worlds-tiny": worlds_tiny, "worlds-tiny-outdoor": worlds_tiny_outdoor}
SEQUENCES: dict[str, Callable[[], SequenceRecipe]] = {"outdoor": outdoor, "indoor": indoor}


def get(name: str) -> BaseRecipe | SequenceRecipe:
    """A recipe by name.

    >>> get("outdoor").start
    'worlds-tiny-outdoor'
    """
    found = BASES.get(name) or SEQUENCES.get(name)
    if found is None:
        raise UnknownNameError("recipe", name, (*BASES, *SEQUENCES))
    return found()
