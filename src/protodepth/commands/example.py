"""protodepth data example"""

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Example:
    """Write a small recording drawn from a built-in world: images, sparse depth, intrinsics, poses and ground truth."""

    out: tyro.conf.Positional[Path]
    """Folder of the recording."""
    world: str = "street_dusk"
    """Name of the world."""
    frames: int = 40
    """Number of frames."""
    size: str = "96x144"
    """HEIGHTxWIDTH of the frames."""
    seed: int = 0
    """Another seed is another scene."""

    def run(self) -> None:
        from protodepth.commands.options import parse_size
        from protodepth.data.example import write_example

        count = write_example(self.out, self.world, frames=self.frames, size=parse_size(self.size), seed=self.seed)
        print(f"wrote {count} frames of {self.world} to {self.out}")
