"""protodepth predict"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Predict:
    """Dense depth for one image and its sparse depth map.

    Writes depth.png (16 bit, metres x 256), depth_color.png (with a colour bar), cloud.ply and prediction.json into --out.
    """

    image: Path
    """The picture (PNG, JPEG, ...)."""
    sparse: Path
    """Sparse depth of the same size: 16-bit PNG or .npy, 0 = no point."""
    intrinsics: str
    """fx,fy,cx,cy in pixels, or a file (3x3 text, JSON, camera_info YAML)."""
    out: Path
    """Folder for the results."""
    model: str = "worlds-tiny"
    """A model folder or a bundled name."""
    domain: str | None = None
    """Domain to use; "base" = the un-adapted network; not given = chosen by descriptor."""
    depth_unit: str | None = None
    """Unit of a PNG: kitti (value/256), mm, cm, metres; not given = guessed where the values leave no doubt."""

    def run(self) -> None:
        from protodepth.commands.options import load_model
        from protodepth.inference import predict_files

        model = load_model(self.model)
        for line in predict_files(
            model, self.image, self.sparse, self.intrinsics, self.out, domain=self.domain, depth_unit=self.depth_unit
        ):
            print(line)
