"""An unseen domain is unseen."""

import pytest

from conftest import tiny_model
from helpers.bench_cells import change
from protodepth.data.arguments import open_domain
from protodepth.errors import ConfigError
from protodepth.experiments import bench, zero_shot
from protodepth.experiments.cells import Cell
from protodepth.losses import Objective
from protodepth.methods.base import build
from protodepth.training.recipes import WORLDS_OBJECTIVE


def test_an_unseen_world_that_a_part_of_the_network_has_seen_is_refused():
    with pytest.raises(ConfigError, match="garden"):
        bench.plan(["zero-shot"], change(backbones=("fusionnet",)))


def test_ways_to_choose_a_set_are_compared_and_single_sets_are_no_way_to_choose():
    model = tiny_model()
    unseen = open_domain("worlds:garden?size=32x48&train=3&val=1&test=2")
    for name in ("first", "later"):
        model.add_domain(name, base=name == "first")
    method = build("protodepth", model, Objective(WORLDS_OBJECTIVE))
    ways = zero_shot._rules(method, unseen)
    assert set(ways) == {"chosen by descriptor", "chosen by reprojection", "set of base", "set of later"}
    assert model.rule.selection == "auto"  # as before
    best = min(ways["set of base"]["errors"]["mae"], ways["set of later"]["errors"]["mae"])
    assert sum(ways["chosen by reprojection"]["chosen"].values()) == 2
    assert ways["chosen by reprojection"]["errors"]["mae"] >= 0.5 * best
    label = {"backbone": "lite", "method": "protodepth", "variant": "", "sequence": "outdoor", "seed": 0}
    cell = Cell(kind="unseen", label=label, inputs={})
    table = zero_shot._rule_table([(cell, {"rules": ways})], "garden")
    ranked = {line.heads[-1]: line.ranked for line in table.lines}
    assert ranked["chosen by reprojection"]
    assert not ranked["set of base"]
