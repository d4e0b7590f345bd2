"""Points of a method's space of hyper-parameters: where trials begin, and where they go when the best is at an edge."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import qmc

from protodepth.errors import ConfigError, UnknownNameError


@dataclass(frozen=True, slots=True)
class LogRange:
    """A number on a logarithmic scale.  Trials begin between ``low`` and ``high`` and may leave them, but never
    ``least`` and ``most``: there the range ends, for every method alike."""

    name: str
    low: float
    high: float
    least: float = 0.0
    most: float = math.inf
    whole: int = 0  # rounded to a multiple of this

    def at(self, share: float) -> float | int:
        """
        >>> LogRange("rate", 1e-4, 1e-2).at(0.5), LogRange("steps", 250, 1000, whole=50).at(0.5)
        (0.001, 500)
        """
        return self.rounded(self.low * (self.high / self.low) ** share)

    def rounded(self, value: float) -> float | int:
        value = min(max(value, self.least), self.most)
        return self.whole * max(1, round(value / self.whole)) if self.whole else float(f"{value:.2g}")

    def ends(self, value: float) -> bool:
        """Whether nothing lies beyond."""
        return value <= self.least or value >= self.most


@dataclass(frozen=True, slots=True)
class Ways:
    """One of several values without an order."""

    name: str
    values: tuple[Any, ...]

    def at(self, share: float) -> Any:
        return self.values[min(int(share * len(self.values)), len(self.values) - 1)]


RATE = LogRange("rate", 1e-4, 5e-3)
# Steps on each later domain: what a method may spend is the same for all, so the range ends there.
STEPS = LogRange("steps", 250, 1500, least=100, most=1500, whole=50)
SPACES: Mapping[str, tuple[LogRange | Ways, ...]] = {
    "finetune": (RATE, STEPS),
    "ewc": (RATE, LogRange("strength", 1e4, 1e8), STEPS),
    "lwf": (RATE, LogRange("weight", 1e-2, 1e1), Ways("space", ("log", "depth")), STEPS),
    "replay": (RATE, STEPS),
    "ancl": (RATE, LogRange("strength", 1e4, 1e8), LogRange("auxiliary_strength", 1e3, 1e7), STEPS),
    "cmp": (RATE, STEPS),
    "l2p": (LogRange("rate", 3e-4, 1e-1), LogRange("key_weight", 5e-2, 2.0), STEPS),
    "joint": (RATE, STEPS),
    "protodepth": (
        LogRange("rate", 3e-3, 2e-1),
        LogRange("separation", 3e-2, 1.0),
        Ways("sizes", ((60, 30), (25, 10), (10, 5))),
        STEPS,
    ),
    "protodepth-own": (RATE, LogRange("separation", 3e-2, 1.0), STEPS),
}
REACH = 3.0  # an edge moves by this factor
FEWEST = 4  # with fewer trials there is no inside
EXTRA = 6  # more trials at most, where the best of the others is at an edge


@dataclass(frozen=True, slots=True)
class Trial:
    """One point of a method's space: {} is the start as it is (the recipe, or what the options have tuned already)."""

    method: str
    number: int
    values: dict[str, Any]

    def tuned(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """The start's values (as in a tuned file) with this trial's in their places.

        >>> Trial("protodepth", 1, {"rate": 0.02, "sizes": (25, 10), "steps": 500}).tuned({})
        {'rate': 0.02, 'steps': 500, 'settings': {'image_size': 25, 'depth_size': 10}}
        """
        own = dict(self.values)
        if "sizes" in own:
            own["image_size"], own["depth_size"] = own.pop("sizes")
        values = {**start.get("settings", {}), **{k: v for k, v in own.items() if k not in ("rate", "steps")}}
        outer = {k: own.get(k, start.get(k)) for k in ("rate", "steps")}
        tuned: dict[str, Any] = {k: v for k, v in outer.items() if v is not None}
        return tuned | ({"settings": values} if values else {})


JudgedTrial = tuple[Trial, dict[str, Any], float]  # a trial, all values that it ran with, and its error


def space_of(method: str, *, steps: bool = True) -> tuple[LogRange | Ways, ...]:
    """A method's space of hyper-parameters; ``steps`` False: their number is given, and the same for all."""
    if method not in SPACES:
        raise UnknownNameError("method with hyper-parameters", method, SPACES)
    return tuple(part for part in SPACES[method] if steps or part is not STEPS)


def trials(method: str, count: int, *, steps: bool = True) -> list[Trial]:
    """The start's own values, then ``count - 1`` points that fill the space evenly (a Halton sequence), the same
    every time.

    >>> [t.number for t in trials("finetune", 3)], trials("ewc", 3)[0].values
    ([0, 1, 2], {})
    """
    space = space_of(method, steps=steps)
    if count < 1:
        raise ConfigError(f"--trials must be at least 1, got {count}")
    points = qmc.Halton(len(space), scramble=False).random(count)[1:]  # the first is the corner
    return [
        Trial(method, 0, {}),
        *(
            Trial(method, n, {part.name: part.at(share) for part, share in zip(space, point, strict=True)})
            for n, point in enumerate(points, start=1)
        ),
    ]


def best_of(judged: Sequence[JudgedTrial]) -> JudgedTrial:
    """The trial with the lowest score among those that were judged."""
    return min(judged, key=lambda row: row[2])


def edge_of(judged: Sequence[JudgedTrial]) -> tuple[LogRange, int] | None:
    """The first number of the best trial that no other trial surrounds, and on which side: -1 below, 1 above.  None:
    the best is inside, or where the range ends.
    """
    best = best_of(judged)
    for part in space_of(best[0].method, steps="steps" in best[1]):
        if isinstance(part, Ways) or part.ends(best[1][part.name]):
            continue
        tried = [values[part.name] for _, values, _ in judged]
        for side, outermost in ((-1, min(tried)), (1, max(tried))):
            if best[1][part.name] == outermost:
                return part, side
    return None


def following(judged: Sequence[JudgedTrial], count: int) -> Trial | None:
    """The next trial, or None when a method has its trials.

    Half of the ``count`` trials fill the space.  Then, as long as the best is at an edge, the next trial goes beyond
    it; where it is inside, the next point fills the space again.  A best that is still at an edge after ``count``
    trials gets up to EXTRA more (with fewer than FEWEST there is no inside).  Every trial is distinct.
    """
    method, ran = judged[0][0].method, {key(values) for _, values, _ in judged}
    edge = edge_of(judged)
    if edge is not None and count >= FEWEST and len(judged) < count + EXTRA:
        part, side = edge
        best = best_of(judged)[1]
        beyond = {**best, part.name: part.rounded(best[part.name] * REACH**side)}
        if key(beyond) not in ran:
            return Trial(method, len(judged), beyond)
    if len(judged) >= count:
        return None
    planned = trials(method, 4 * count, steps="steps" in judged[0][1])[1:]
    return next((Trial(method, len(judged), t.values) for t in planned if key(t.values) not in ran), None)


def key(values: Mapping[str, Any]) -> str:
    return json.dumps({k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}, sort_keys=True)
