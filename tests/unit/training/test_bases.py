"""What a base network's record says of its training."""

from protodepth import config
from protodepth.training import recipes
from protodepth.training.bases import train_base
from protodepth.training.schedule import Schedule

TINY = "worlds:warehouse?size=32x48&train=8&val=2&test=2"


def test_the_record_of_a_base_says_which_reduction_was_used() -> None:
    recipe = recipes.BaseRecipe(name="tiny", data=TINY, schedule=Schedule(steps=1, batch_size=1), pose=False)
    assert "reduction" not in config.to_dict(recipe)["objective"]
    assert train_base(recipe).history["warehouse"].recipe["objective"]["reduction"] == "relative"
