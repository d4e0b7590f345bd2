"""Rates over the steps, and schedules that cannot be."""

import math
from typing import Any

import pytest

from protodepth.errors import ConfigError
from protodepth.training.schedule import Schedule


def test_the_schedules_are_what_their_names_say() -> None:
    cosine = Schedule(steps=100)
    assert cosine.factor(0) == 1.0
    assert cosine.factor(50) == pytest.approx(0.5)
    assert cosine.factor(25) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert cosine.factor(100) == pytest.approx(0.0)
    steps = Schedule(steps=100, decay="steps", milestones=((0.5, 0.5), (0.8, 0.1)))
    assert [steps.factor(n) for n in (0, 49, 50, 79, 80, 99)] == [1, 1, 0.5, 0.5, 0.1, 0.1]
    assert Schedule(decay="constant").factor(499) == 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        *({"rate": math.nan}, {"rate": 1e38}, {"rate": math.inf}, {"pose_rate": math.nan}, {"pose_rate": -1.0}),
        *({"save_every": 0}, {"workers": -1}, {"clip": 0.0}, {"clip": math.nan}),
    ],
)
def test_values_that_would_take_weights_to_infinity_or_end_in_a_traceback_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"must be .*, got"):
        Schedule(**wrong)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"batch_size": 0}, {"rate": 0.0}])
def test_impossible_schedules_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="positive"):
        Schedule(**wrong)


def test_the_smallest_schedule_is_allowed_and_nothing_said_means_these_rates_and_this_limit() -> None:
    assert Schedule(steps=1, batch_size=1, rate=1e-9).factor(0) == 1.0
    usual = Schedule()
    assert (usual.rate, usual.pose_rate, usual.clip) == (1e-3, 1e-3, 1.0)


@pytest.mark.parametrize(
    ("epochs", "frames", "batch", "steps"),
    [(2.0, 100, 12, 17), (1.0, 96, 12, 8), (0.1, 30, 1, 3), (0.001, 10, 8, 1), (3.0, 10, 100, 1)],
)
def test_epochs_become_whole_steps_the_last_of_which_may_be_short(epochs, frames, batch, steps) -> None:
    counted = Schedule(epochs=epochs, batch_size=batch).counted(frames)
    assert (counted.steps, counted.epochs) == (steps, None)
    assert Schedule(steps=5, batch_size=batch).counted(frames).steps == 5
