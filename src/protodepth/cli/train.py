"""protodepth train"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from protodepth.training.recipes import Recipe


@dataclass(frozen=True)
class Train:
    """Run a recipe: train a base network, or a method on a sequence of domains.  The output folder holds the model, the
    resolved recipe, a log of every 50th step and, for sequences, results and a report.

    Several processes share every batch: torchrun --nproc_per_node=2 -m protodepth train ...
    """

    recipe: str
    """any-sensor, worlds-tiny, worlds-tiny-outdoor, indoor, outdoor, a .toml file written by an earlier run; or the
    paper's: paper-indoor, paper-outdoor, paper-mixed (docs/recipes.md), which need --data.
    """
    out: Path
    """Folder of the run."""
    method: str = "protodepth"
    """For sequences: the continual-learning method."""
    backbone: str | None = None
    """For base networks: the network (default: the recipe's)."""
    preset: str | None = None
    """Preset of that network (default: the recipe's)."""
    data: tuple[str, ...] = ()
    """For base networks: a data argument or the folder of a recording (default: the recipe's).
    For the paper's recipes: D1, or D1 D2 D3.
    """
    model: str | None = None
    """For the paper's sequences: the model to start from, which has learned D1: a run's folder, a model's, or a
    converted one (default: none, D1 is learned from scratch).
    """
    scale: float | None = None
    """A rehearsal of the paper's recipes: share of the published epochs, as 0.0005 (default: all of them)."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Change the recipe, for example --set schedule.steps=100; 'recipe show' prints the names; may be repeated
    (default: the recipe as it is).
    """
    seed: int | None = None
    """Seed of the run (default: the recipe's)."""
    resume: bool = False
    """Go on with an interrupted run in --out."""
    device: str | None = None
    """cpu, cuda or cuda:1 (default: a GPU if there is one)."""

    def run(self) -> None:
        from protodepth.training.runs import train

        recipe, changes = self.chosen()
        train(
            recipe,
            self.out,
            method=self.method,
            changes=changes,
            overrides=self.set,
            resume=self.resume,
            device=self.device,
        )

    def chosen(self) -> "tuple[str | Recipe, dict[str, Any]]":
        """The recipe, or its name, and what the other options change in it."""
        from protodepth.cli.options import check_scale, model_folder, parse_data
        from protodepth.errors import ConfigError
        from protodepth.experiments.paper_plan import paper_training

        seed = {} if self.seed is None else {"seed": self.seed}
        if self.recipe.startswith("paper-") and not self.recipe.endswith(".toml"):
            share = check_scale(self.scale)
            data, start = parse_data(self.data), None if self.model is None else str(model_folder(self.model))
            return paper_training(self.recipe, self.backbone, data, start, self.preset, share), seed
        if self.model is not None or self.scale is not None or len(self.data) > 1:
            raise ConfigError(
                "--model, --scale and several --data are for the paper's recipes (paper-indoor); elsewhere change the "
                "recipe: --set start=MODEL"
            )
        values = {"backbone": self.backbone, "preset": self.preset, "data": self.data[0] if self.data else None}
        return self.recipe, {k: v for k, v in values.items() if v is not None} | seed
