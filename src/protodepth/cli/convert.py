"""protodepth convert"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True)
class Convert:
    """Turn an official checkpoint (KBNet, VOICED, FusionNet, ScaffNet) into a model folder, and say what was loaded."""

    network: tyro.conf.Positional[str]
    """kbnet, voiced, fusionnet or scaffnet."""
    checkpoint: tyro.conf.Positional[Path]
    """The .pth file."""
    out: Path
    """Folder of the model."""
    preset: str = "void"
    """void (indoors) or kitti (outdoors); the file is checked against it."""
    pose: Path | None = None
    """Also read the pose network, from its checkpoint."""
    rotation: Literal["axis", "euler", "exponential"] | None = None
    """How the pose network writes rotations; for upstream VOICED exponential
    (default: as usual for the network)."""
    depth_range: tuple[float, float] | None = None
    """Nearest and farthest depth in metres that the network was trained with (default: the preset's)."""
    prototypes: Path | None = None
    """Also add the domains of an official prototype file."""

    def run(self) -> None:
        from protodepth.cli.options import check_empty
        from protodepth.progress import working
        from protodepth.storage.official.convert import convert_with_report

        check_empty(self.out)
        with working(f"converting {self.checkpoint}"):
            converted = convert_with_report(
                self.network,
                self.checkpoint,
                preset=self.preset,
                pose=self.pose,
                rotation=self.rotation,
                depth_range=self.depth_range,
            )
        model = converted.model
        for report in converted.reports:
            print(report)
        if self.prototypes is not None:
            names = model.load_official_prototypes(self.prototypes)
            print(f"domains: {', '.join(names)}")
        model.save_pretrained(self.out, notes={"converted_from": self.checkpoint.name, "preset": self.preset})
        print(f"wrote {self.out}")
