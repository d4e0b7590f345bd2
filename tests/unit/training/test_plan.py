"""The plan: crops within the frame, steps within the time, and words that say so."""

from dataclasses import replace

import pytest

from protodepth.data.augment import AugmentConfig
from protodepth.training.plan import CROP, Costs, Plan, choose_crop, step_seconds, steps_for, total_seconds
from protodepth.training.schedule import Schedule


@pytest.mark.parametrize(
    "size", [(240, 320), (480, 640), (250, 828), (1280, 1920), (720, 200), (100, 2000), (180, 270)]
)
def test_a_crop_lies_within_the_frame_and_is_no_larger_than_allowed(size: tuple[int, int]):
    crop = choose_crop(size)
    if crop is None:
        assert size[0] * size[1] <= CROP[0] * CROP[1]
        return
    assert all(0 < c <= s for c, s in zip(crop, size, strict=True))
    assert crop[0] * crop[1] <= CROP[0] * CROP[1]
    assert crop[0] * crop[1] > 0.7 * CROP[0] * CROP[1]


def test_the_steps_that_are_planned_fit_into_the_time():
    costs = Costs(step=0.3, judging=2.5, rest=20.0)
    steps = steps_for(300, costs, judgings=10)
    assert total_seconds(steps, costs, judgings=10) <= 300 < total_seconds(steps + 1, costs, judgings=10)
    assert steps_for(10, costs, judgings=10) == 30


def test_the_time_of_a_step_leaves_out_the_first():
    import time

    def run(schedule: Schedule, each) -> None:
        for step in range(schedule.steps):
            time.sleep(0.2 if step == 0 else 0.02)
            each(step)

    assert 0.02 <= step_seconds(run, Schedule(steps=500)) < 0.15


def test_the_plan_says_frames_size_time_and_objective():
    plan = Plan(
        frames=114, available=182, judges=(24, 24), size=(240, 320), seconds=291, objective="points hidden",
        schedule=Schedule(steps=800, augment=AugmentConfig(crop=(192, 256))), notes=("stride 3 from the poses",),
        aside="40 are for testing, 28 stand still",
    )  # fmt: skip
    text = str(plan)
    assert text.startswith("800 steps on 114 frames would take about 4.8 min here")
    for words in (
        "114 of 182 are learned from",
        "crops of 192x256 from frames of 240x320",
        "points hidden",
        "stride 3",
        "the rest: 40 are for testing, 28 stand still",
    ):
        assert words in text
    assert [str(replace(plan, seconds=s)).split("about ")[1].split(" here")[0] for s in (119, 120)] == [
        "119 s",
        "2.0 min",
    ]
