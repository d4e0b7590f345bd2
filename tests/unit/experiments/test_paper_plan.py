"""The paper's recipes are what a bench runs on the paper's datasets."""

import pytest

from helpers.bench_cells import change
from protodepth.errors import ConfigError
from protodepth.experiments.paper_plan import paper_training
from protodepth.experiments.planning import Options, Planner, Training
from protodepth.methods.protodepth import RATES

INDOOR = ("nyu_v2:/a", "scannet:/b", "void:/c")
OUTDOOR = ("kitti:/a", "waymo:/b", "vkitti:/c")


def recipe(backbone: str = "kbnet", method: str = "replay", sequence: str = "indoor", **values: object) -> dict:
    options = Options(**{"data": INDOOR, "preset": "paper", **values})  # type: ignore[arg-type]
    cell = Planner(options).training(Training(sequence=sequence, backbone=backbone, method=method))
    return cell.inputs["recipe"]


def test_the_papers_datasets_get_the_papers_recipe_and_others_the_worlds() -> None:
    paper = recipe()
    assert paper["name"] == "paper-indoor"
    assert paper["stages"]["scannet"]["schedule"]["epochs"] == 9
    assert paper["stages"]["void"]["schedule"]["augment"]["crop"] == [416, 576]
    assert paper["settings"] == {"replay": {"size": 64, "fixed_batch": False}}
    assert paper["objective"].get("reduction") is None
    drawn = Planner(change(data=("nyu_v2:/a", "scannet:/b", "worlds:room"))).recipe("indoor")
    assert (drawn.name, drawn.stages) == ("indoor", None)
    assert Planner(change(data=INDOOR, recipe="worlds")).recipe("indoor").objective.reduction == "relative"


def test_a_base_is_the_published_network_trained_by_its_own_script() -> None:
    plan = Planner(Options(data=OUTDOOR, preset="paper"))
    base = plan.base("outdoor", "voiced").inputs["recipe"]
    assert (base["preset"], base["data"], base["schedule"]["epochs"]) == ("kitti", "kitti:/a", 30)
    assert base["backbone_options"]["depth_range"] == [1.5, 100.0]
    assert base["pose"]
    fusion = plan.base("outdoor", "fusionnet").inputs
    assert fusion["scaffold"] == "vkitti:/c"
    assert fusion["scaffold_schedule"]["epochs"] == 10
    options = fusion["recipe"]["backbone_options"]  # ScaffNet's head has a range of its own
    assert (options["depth_range"], options["scaffnet"]["depth_range"]) == ([1.5, 100.0], [1.5, 80.0])
    own = Planner(Options(data=OUTDOOR, preset="paper", scaffold="worlds:garden"))
    assert own.base("outdoor", "fusionnet").inputs["scaffold"] == "worlds:garden"


def test_a_way_by_name_and_a_change_reach_every_stage() -> None:
    named = recipe(recipe="paper-indoor?crop=scripts&select=last")
    assert {tuple(s["schedule"]["augment"]["crop"]) for s in named["stages"].values()} == {(416, 512)}
    assert "select" not in named
    changed = recipe(changes=("schedule.batch_size=3", "stages.void.schedule.rate=0.5"))
    assert {s["schedule"]["batch_size"] for s in changed["stages"].values()} == {3}
    assert changed["stages"]["void"]["schedule"]["rate"] == 0.5
    assert changed["stages"]["scannet"]["schedule"]["rate"] == 1e-4
    short = recipe(steps=7)
    assert {(s["schedule"]["steps"], s["schedule"].get("epochs")) for s in short["stages"].values()} == {(7, None)}


def test_prototypes_are_of_the_papers_sizes() -> None:
    indoor, outdoor = recipe(method="protodepth"), recipe(method="protodepth", sequence="outdoor", data=OUTDOOR)
    sizes = [(r["prototypes"]["image_size"], r["prototypes"]["depth_size"]) for r in (indoor, outdoor)]
    assert sizes == [(10, 5), (25, 10)]


def test_prototypes_have_the_published_rate_and_separation_not_those_of_the_worlds() -> None:
    paper = recipe(method="protodepth")["prototypes"]
    assert (paper["separation"], set(paper["factors"].values())) == (0.5, {1.0})
    worlds = recipe(method="protodepth", recipe="paper-indoor?prototype_rates=worlds")["prototypes"]
    assert worlds["factors"] == {kind: RATES[kind] for kind in ("A", "W", "U", "V", "K")}


def test_a_recipe_of_another_sequence_or_without_data_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not fit the sequence indoor"):
        recipe(recipe="paper-outdoor")
    with pytest.raises(ConfigError, match="--data D1 D2 D3"):
        recipe(recipe="paper-indoor", data=())


def test_a_rehearsal_gives_each_process_two_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    def batch() -> int:
        return paper_training("paper-indoor", "kbnet", ["nyu_v2:/a"], None, None, 0.0005).schedule.batch_size

    assert batch() == 2
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert batch() == 4
