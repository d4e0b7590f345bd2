"""From options to cells: what is asked for reaches the recipes, what cannot be is refused."""

import re

import pytest

from helpers.bench_cells import TINY, change
from protodepth.cli.main import run
from protodepth.errors import ConfigError, UnknownNameError
from protodepth.experiments import bench
from protodepth.experiments.planning import Options, Planner, Training


def test_values_for_any_network_hold_where_the_file_does_not_name_one():
    tuned = {"indoor": {"any": {"ewc": {"rate": 5e-4}}, "kbnet": {"ewc": {"rate": 2e-4}}}}
    rates = {}
    for backbone in ("lite", "kbnet"):
        (cell,) = bench.plan(["indoor"], change(tuned=tuned, backbones=(backbone,), methods=("ewc",)))
        rates[backbone] = cell.inputs["recipe"]["rates"]["ewc"]
    assert rates == {"lite": 5e-4, "kbnet": 2e-4}


def test_protodepth_chooses_by_gaussians_on_the_worlds_and_by_descriptor_where_asked_or_in_the_paper():
    def selection(options: Options, method: str = "protodepth") -> str | None:
        row = Training(sequence="indoor", backbone="kbnet", method=method)
        return Planner(options).training(row).inputs["recipe"].get("selection")

    assert selection(TINY) == "gaussian"
    assert selection(change(changes=("selection=descriptor",))) == "descriptor"
    assert selection(TINY, "ewc") is None  # the cells of the others do not change
    paper = Options(data=("nyu_v2:/a", "scannet:/b", "void:/c"), preset="paper")
    assert selection(paper) is None


def test_settings_reach_the_recipes_and_a_wrong_one_is_refused():
    plan = Planner(change(changes=("schedule.batch_size=8",), base_changes=("schedule.rate=0.5",)))
    row = Training(sequence="indoor", backbone="kbnet", method="ewc")
    assert plan.training(row).inputs["recipe"]["schedule"]["batch_size"] == 8
    assert plan.base("indoor", "kbnet").inputs["recipe"]["schedule"]["rate"] == 0.5
    with pytest.raises(UnknownNameError, match="batch_size"):
        Planner(change(changes=("schedule.batches=8",))).training(row)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("pach=4", r"unknown option of uformer 'pach'; did you mean patch"),
        ("patch=0", r"patch=0.* must be positive"),
        ("patch=x", r"uformer cannot be built with .*'patch': 'x'"),
    ],
)
def test_an_impossible_option_of_a_base_is_refused_before_anything_runs(tmp_path, capsys, option, message):
    changed = ["--backbone", "uformer", "--set-base", f"backbone_options.{option}"]
    assert run(["bench", "indoor", *changed, "--out", str(tmp_path / "out")]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


def test_the_published_presets_can_be_asked_for_with_every_network():
    for backbone in ("lite", "kbnet", "voiced", "fusionnet", "uformer"):
        recipe = Planner(change(preset="kitti")).base("outdoor", backbone).inputs["recipe"]
        assert recipe["preset"] == {"lite": "outdoor", "uformer": "full"}.get(backbone, "kitti")


def test_data_arguments_replace_the_worlds_and_two_are_too_few():
    plan = Planner(change(data=("worlds:office", "worlds:room", "worlds:warehouse", "worlds:garden")))
    domains = [d.partition("?")[0] for d in plan.domains("indoor")]
    assert domains == ["worlds:office", "worlds:room", "worlds:warehouse"]
    assert plan.unseen("outdoor").startswith("worlds:garden?size=32x48")
    assert plan.base("indoor", "lite").inputs["recipe"]["data"].startswith("worlds:office")
    with pytest.raises(ConfigError, match="three domains"):
        bench.plan(["indoor"], change(data=("worlds:room", "worlds:office")))
    with pytest.raises(ConfigError, match="--sequence"):
        bench.plan(["ablations"], change(data=("worlds:room",) * 3))


def test_size_and_frames_are_for_worlds_only():
    plan = Planner(TINY)
    assert plan.argument("worlds:room?train=1200") == "worlds:room?train=4&size=32x48&val=2&test=2"
    assert plan.argument("kitti:/data?x=1") == "kitti:/data?x=1"


def test_tuning_one_method_changes_its_cells_alone():
    tuned = {"indoor": {"lite": {"ewc": {"rate": 5e-4, "settings": {"strength": 7.0}}}}}

    def keys(options: Options) -> dict[str, str]:
        return {c.label["method"]: c.key for c in bench.plan(["indoor"], options) if c.label["backbone"] == "lite"}

    before, after = keys(TINY), keys(change(tuned=tuned))
    assert {m for m in before if before[m] != after[m]} == {"ewc"}
    (ewc,) = (c for c in bench.plan(["indoor"], change(tuned=tuned, backbones=("lite",), methods=("ewc",))))
    assert ewc.inputs["recipe"]["rates"] == {"ewc": 5e-4}
    assert ewc.inputs["recipe"]["settings"]["ewc"]["strength"] == 7.0


def test_a_mixed_base_has_a_head_for_rooms_and_streets():
    for backbone in ("kbnet", "uformer", "fusionnet"):
        settings = Planner(TINY).base("mixed", backbone).inputs
        assert settings["recipe"]["backbone_options"]["depth_range"] == [0.1, 100.0]
    assert Planner(TINY).base("mixed", "lite").inputs["recipe"]["preset"] == "mixed"
