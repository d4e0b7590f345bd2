"""Equal steps or equal compute: the costs are those that were measured."""

import json

import numpy as np
import pytest

from helpers.bench_cells import change
from helpers.documents import ROOT
from protodepth.experiments.budgets import STEP_COSTS, steps_of
from protodepth.experiments.planning import Planner, Training
from protodepth.report.results import METHOD_NAMES


def measured_own() -> float:
    """A copy of every part beside finetuning at the rate of the recipe."""
    rows = json.loads((ROOT / "benchmarks" / "worlds_own_parts.json").read_text())["rows"]
    seconds = {(r["world"], r["way"]): r["cpu_seconds"] for r in rows}
    copies = "protodepth@0.01?parts=merges+head+image_stages+depth_stages&factors=parts:0.2"
    worlds = ("corridor_night", "highway")
    return float(np.mean([seconds[world, copies] / seconds[world, "finetune@0.001"] for world in worlds]))


def measured(method: str) -> float:
    if method == "protodepth-own":
        return measured_own()
    experiments = json.loads((ROOT / "benchmarks" / "worlds_results.json").read_text())["experiments"]
    if method in ("ancl", "cmp", "l2p"):
        network, ratios = "Uformer" if method == "l2p" else "KBNet", []
        for name in ("indoor",) if method == "l2p" else ("indoor", "outdoor"):
            rows = [r for r in experiments[name]["tables"]["costs"] if r["Network"] == network]
            seconds = {r["Method"]: r["training"]["mean"] for r in rows}
            ratios.append(seconds[METHOD_NAMES[method]] / seconds["Finetuned"])
        return float(np.mean(ratios))
    name = METHOD_NAMES[method] + ("-A" if method == "protodepth" else "")
    tables = experiments["training-time"]["tables"].values()
    rows = [r for table in tables for r in table if r["Method"] == name]
    return float(np.mean([v["mean"] for r in rows for k, v in r.items() if k.endswith("times finetuning")]))


@pytest.mark.parametrize("method", STEP_COSTS)
def test_the_cost_of_a_step_is_the_measured_one(method: str) -> None:
    assert STEP_COSTS[method] == pytest.approx(measured(method), abs=0.006)


def test_with_equal_compute_dear_methods_have_fewer_steps_and_cheap_ones_more() -> None:
    plan = Planner(change(steps=500, budget="compute"))
    steps = {
        m: plan.training(Training(sequence="indoor", backbone="kbnet", method=m)).inputs["recipe"]["schedule"]["steps"]
        for m in ("finetune", "replay", "protodepth")
    }
    assert steps == {"finetune": 500, "replay": 243, "protodepth": 694}
    assert steps_of("replay", 500, "steps") == 500
    assert steps_of("replay", 1, "compute") == 1


def test_tuned_steps_are_the_methods_own_and_the_budget_counts_them() -> None:
    tuned = {"indoor": {"kbnet": {"replay": {"steps": 1000}}}}
    row = Training(sequence="indoor", backbone="kbnet", method="replay")
    steps = [
        Planner(change(steps=500, tuned=tuned, budget=budget)).training(row).inputs["recipe"]["schedule"]["steps"]
        for budget in ("steps", "compute")
    ]
    assert steps == [1000, 485]
