"""protodepth train"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Train:
    """Run a recipe: train a base network, or a method on a sequence of domains.  The output folder holds the model, the
    resolved recipe, a log of every 50th step and, for sequences, results and a report.

    Several processes share every batch: torchrun --nproc_per_node=2 -m protodepth train ...
    """

    recipe: str
    """any-sensor, worlds-tiny, worlds-tiny-outdoor, indoor, outdoor, or a .toml file written by an earlier run."""
    out: Path
    """Folder of the run."""
    method: str = "protodepth"
    """For sequences: the continual-learning method."""
    backbone: str | None = None
    """For base networks: the network (default: the recipe's)."""
    preset: str | None = None
    """Preset of that network (default: the recipe's)."""
    data: str | None = None
    """For base networks: a data argument or the folder of a recording (default: the recipe's)."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Change the recipe, for example --set schedule.steps=100; may be repeated (default: the recipe as it is)."""
    seed: int | None = None
    """Seed of the run (default: the recipe's)."""
    resume: bool = False
    """Go on with an interrupted run in --out."""
    device: str | None = None
    """cpu, cuda or cuda:1 (default: a GPU if there is one)."""

    def run(self) -> None:
        from protodepth.training.runs import train

        changes = {
            k: v
            for k, v in (("backbone", self.backbone), ("preset", self.preset), ("data", self.data), ("seed", self.seed))
            if v is not None
        }
        train(
            self.recipe,
            self.out,
            method=self.method,
            changes=changes,
            overrides=self.set,
            resume=self.resume,
            device=self.device,
        )
