"""A seed draws everything: training frames, test scenes, base, order and start."""

from helpers.bench_cells import change
from protodepth.experiments import bench
from protodepth.experiments.catalogue import get, shared_settings
from protodepth.experiments.experiment import Experiment
from protodepth.experiments.planning import Options, Planner, Training

ROW = Training(sequence="indoor", backbone="kbnet", method="ewc", seed=11)


def recipe(options: Options, **row: object) -> dict:
    from dataclasses import replace

    return Planner(options).training(replace(ROW, **row)).inputs["recipe"]


def test_a_seed_draws_training_and_test_scenes_of_every_domain() -> None:
    domains = recipe(Options())["domains"]
    assert domains == [
        "worlds:room?seed=11&test=128",
        "worlds:warehouse?train=64&seed=11&test=128",
        "worlds:corridor_night?train=64&seed=11&test=128",
    ]
    assert recipe(Options(), seed=12)["domains"] != domains


def test_fixed_scenes_are_the_cells_of_before() -> None:
    plain = recipe(Options(scenes="fixed"))
    assert plain["domains"] == ["worlds:room", "worlds:warehouse?train=64", "worlds:corridor_night?train=64"]
    assert plain["start"] == recipe(Options(scenes="fixed"), seed=12)["start"]


def test_three_bases_serve_all_seeds_and_the_bundled_one_is_number_zero() -> None:
    plan = Planner(Options())
    keys = {seed: plan.base("indoor", "kbnet", seed).key for seed in (11, 12, 13, 14, 15)}
    assert len(set(keys.values())) == 3
    assert keys[11] == keys[14]
    assert keys[12] == keys[15] == Planner(Options(scenes="fixed")).base("indoor", "kbnet").key
    assert plan.base("indoor", "lite", 12).where
    own = plan.base("indoor", "lite", 13)
    assert not own.where
    assert (own.inputs["recipe"]["seed"], own.inputs["recipe"]["data"]) == (1, "worlds:room?train=1200&seed=1")
    scaffold = plan.base("indoor", "fusionnet", 13).inputs["scaffold"]
    assert scaffold == "worlds:office?seed=1"


def test_other_data_have_one_base_and_their_own_frames() -> None:
    plan = Planner(change(data=("kitti:/a", "worlds:room?seed=5", "worlds:office"), recipe="worlds"))
    assert plan.base("outdoor", "kbnet", 13).key == plan.base("outdoor", "kbnet", 12).key
    domains = plan.domains("outdoor", seed=13)
    assert domains[0] == "kitti:/a"
    assert "seed=5" in domains[1]
    assert "seed=13" in domains[2]


def test_domains_that_a_change_names_are_fresh_too() -> None:
    changed = ('domains=["worlds:room", "worlds:office?train=8"]',)
    assert recipe(Options(changes=changed))["domains"][1] == "worlds:office?train=8&seed=11&test=128"


def test_a_folder_holds_one_way_to_draw_scenes() -> None:
    experiment: Experiment = get("indoor")
    fresh, fixed = (shared_settings(experiment, Options(scenes=s)) for s in ("fresh", "fixed"))
    assert fresh != fixed
    assert "scenes" not in fixed  # folders from before stay as they are


def test_the_unseen_world_is_drawn_by_the_seed_too() -> None:
    (cell,) = bench.plan(["zero-shot"], Options(backbones=("lite",), methods=("protodepth",), seeds=(11,)))
    assert cell.inputs["data"] == "worlds:garden?seed=11&test=128"
