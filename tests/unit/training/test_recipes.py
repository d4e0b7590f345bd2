"""Recipes of bases."""

from helpers.bench_cells import TINY, change
from protodepth.experiments.planning import Planner


def test_uformers_small_patches_are_for_the_worlds_and_real_images_have_the_published_ones() -> None:
    drawn = Planner(TINY).base_recipe("worlds-tiny-mixed", "uformer")
    real = Planner(change(data=("kitti:/a", "nyu_v2:/b", "waymo:/c"))).base_recipe("worlds-tiny-mixed", "uformer")
    assert drawn.backbone_options["patch"] == 4
    assert "patch" not in real.backbone_options
    assert real.backbone_options["depth_range"] == drawn.backbone_options["depth_range"]
