"""The folder of a run belongs to one recipe, whenever the run that made it was ended."""

from pathlib import Path

from protodepth.training import runs
from protodepth.training.recipes import read_recipe


def test_a_run_killed_before_its_recipe_was_written_writes_it_when_it_goes_on(tmp_path: Path) -> None:
    recipe = read_recipe("worlds-tiny")
    runs._claim_run(tmp_path / "whole", recipe, "", resume=False)
    runs._claim_run(tmp_path / "killed", recipe, "", resume=False)
    (tmp_path / "killed" / "recipe.toml").unlink()  # run.json was written, then the kill
    runs._claim_run(tmp_path / "killed", recipe, "", resume=True)
    assert (tmp_path / "killed" / "recipe.toml").read_bytes() == (tmp_path / "whole" / "recipe.toml").read_bytes()
