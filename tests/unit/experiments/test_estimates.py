"""Estimates before a bench: exact steps and frames, memory and time in proportion."""

import pytest
import torch

from protodepth.experiments.bench import overview
from protodepth.experiments.cells import Cell
from protodepth.experiments.estimates import Estimator, StepCost
from protodepth.experiments.planning import Options

DATA = tuple(f"worlds:{w}?train=6&val=2&test=2&size=32x48" for w in ("room", "warehouse", "corridor_night"))


def test_a_dry_run_has_frames_steps_hours_and_memory(tmp_path) -> None:
    options = Options(
        data=DATA, backbones=("lite",), methods=("finetune", "replay", "protodepth"),
        changes=("schedule.epochs=3.0", "schedule.batch_size=2"), base_changes=("schedule.epochs=4.0",),
    )  # fmt: skip
    lines = overview(["indoor"], tmp_path, options)
    assert "room 6 frames 12 steps" in lines[0]
    assert all("warehouse 6 frames 9 steps, corridor_night 6 frames 9 steps" in line for line in lines[1:4])
    assert all(" GB" in line and " h" in line for line in lines[:4])
    assert lines[-1].startswith("4 cells to do, about")


class Fixed(Estimator):
    def step(self, base: Cell, every_weight: bool, crop: tuple[int, int]) -> StepCost:
        return StepCost(2e-6 if every_weight else 1e-6, 100.0, 0.0)


@pytest.mark.parametrize(("method", "ratio"), [("finetune", 1.0), ("replay", 2.0), ("protodepth", 0.5)])
def test_time_follows_the_method(method: str, ratio: float) -> None:
    from protodepth.experiments.planning import Planner, Training

    plan = Planner(Options(data=DATA, steps=5))
    cell = plan.training(Training(sequence="indoor", backbone="lite", method=method))
    cost = Fixed(torch.device("cpu")).cost(cell)
    assert cost is not None
    assert cost.seconds == pytest.approx(ratio * 2 * 5 * 2e-6 * 32 * 48 * 2)
    assert cost.memory == pytest.approx(max(ratio, 1.0) * 100 * 32 * 48 * 2)
