"""How much is learned from a recording, and how long a step and the whole take here: crop, steps and judgings from
its frames and the time that the user gives.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from protodepth.training.schedule import Schedule

FEWEST_STEPS, MOST_STEPS = 30, 2000
JUDGINGS = 12  # how often the error at hidden points is measured
CROP = (128, 160)  # rows and columns of what is learned from at once, at most
BATCH = 8  # of them
MULTIPLE = 32  # their sides are multiples of this, as far as the frame allows


@dataclass(frozen=True, slots=True)
class Costs:
    """What a plan counts with, in seconds on this machine: a step, a judging, all that is done once besides."""

    step: float
    judging: float
    rest: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What adapting would do, and how long it would take here."""

    frames: int  # learned from
    available: int  # of the recording
    judges: tuple[int, int]  # cases that choose the step and that give the verdict
    size: tuple[int, int]  # rows and columns of a frame
    schedule: Schedule
    seconds: float
    objective: str  # what teaches, in words
    notes: tuple[str, ...] = ()  # how the data was read
    aside: str = ""  # why the other frames are not learned from

    @property
    def steps(self) -> int:
        return self.schedule.steps

    def __str__(self) -> str:
        crop = self.schedule.augment.crop or self.size
        time_left = f"{self.seconds:.0f} s" if self.seconds < 120 else f"{self.seconds / 60:.1f} min"
        timed = f" would take about {time_left} here (early stop may shorten it)" if math.isfinite(self.seconds) else ""
        lines = [
            f"{self.steps} steps on {self.frames} frames{timed}",
            f"  frames: {self.frames} of {self.available} are learned from; hidden points of others choose the step "
            f"({self.judges[0]} cases) and give the verdict ({self.judges[1]})"
            + (f"; the rest: {self.aside}" if self.aside else ""),
            (
                f"  size: batches of {self.schedule.batch_size} crops of {crop[0]}x{crop[1]} from frames of "
                f"{self.size[0]}x{self.size[1]}"
            ),
            f"  objective: {self.objective}",
            *(f"  {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def frames_aside(identity: Mapping[str, Any], frames: Mapping[str, int]) -> str:
    """What becomes of a recording's frames that are not learned from, in words; ``frames``: how many each part has.

    >>> identity = {"frames": {"all": 40}, "skipped": {"bad": 0, "still": 4}}
    >>> frames_aside(identity, {"learn": 16, "choose": 4, "val": 2, "test": 4})
    '4 choose, 2 judge, 4 are for testing, 4 stand still, 10 have no neighbour or keep the blocks apart'
    """
    skipped = identity.get("skipped", {})
    words = {
        "choose": frames["choose"],
        "judge": frames["val"],
        "are for testing": frames["test"],
        "stand still": int(skipped.get("still", 0)),
        "cannot be used": int(skipped.get("bad", 0)),
    }
    count = int(identity.get("frames", {}).get("all", 0))
    words["have no neighbour or keep the blocks apart"] = count - frames["learn"] - sum(words.values())
    return ", ".join(f"{number} {what}" for what, number in words.items() if number > 0)


def choose_crop(size: tuple[int, int], most: tuple[int, int] = CROP) -> tuple[int, int] | None:
    """A window of about the area of ``most`` in the frame's own proportions; None = the whole frame.

    >>> choose_crop((240, 320)), choose_crop((480, 640)), choose_crop((100, 828)), choose_crop((64, 96))
    ((128, 160), (128, 160), (96, 192), None)
    """
    if size[0] * size[1] <= most[0] * most[1]:
        return None
    rows, columns = (min(side, limit) for side, limit in zip(size, most, strict=True))
    if rows < most[0]:  # a low picture: as many pixels, wider
        columns = min(size[1], most[0] * most[1] // rows)
    if columns < most[1]:
        rows = min(size[0], most[0] * most[1] // columns)
    return tuple(s // MULTIPLE * MULTIPLE if s >= MULTIPLE else s for s in (rows, columns))  # type: ignore[return-value]


def steps_for(seconds: float, costs: Costs, judgings: int = JUDGINGS) -> int:
    """How many steps fit into the time beside the judgings and what is done once; at least 30, at most 2000.

    >>> [steps_for(seconds, Costs(0.25, 2.0, 26.0)) for seconds in (300, 1, 3000)]
    [1000, 30, 2000]
    """
    room = (seconds - costs.rest - judgings * costs.judging) / max(costs.step, 1e-6)
    return int(min(MOST_STEPS, max(FEWEST_STEPS, math.floor(room + 1e-9))))


def total_seconds(steps: int, costs: Costs, judgings: int = JUDGINGS) -> float:
    """How long adapting takes: its steps, its judgings, and what is done once."""
    return steps * costs.step + judgings * costs.judging + costs.rest


def timed(call: Callable[[], object]) -> float:
    """Seconds that a call takes, to plan with."""
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def step_seconds(run: Callable[[Schedule, Callable[[int], None]], object], schedule: Schedule, steps: int = 5) -> float:
    """How long a step of adapting takes here: the median of a few that are tried; the first one also warms up."""
    clock: list[float] = []
    run(replace(schedule, steps=steps), lambda step: clock.append(time.monotonic()))
    return float(np.median(np.diff(clock))) if len(clock) > 1 else 0.0
