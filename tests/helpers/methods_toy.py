"""A straight line as a depth network: every gradient, Fisher and penalty can be worked out by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from protodepth.backbones.base import Backbone
from protodepth.data.frame import Domain, EvalRules, Frame
from protodepth.errors import DataError
from protodepth.model import ProtoDepth
from protodepth.types import Batch, Latents, LatentSpec, LossTerms, Modality


class Line(Backbone):
    """depth = slope · x + offset, with x the grey value of a pixel.  The bottleneck is (x, 1)."""

    name = "line"

    def __init__(self, slope: float = 2.0, offset: float = 1.0) -> None:
        super().__init__()
        self.slope, self.offset = nn.Parameter(torch.tensor(slope)), nn.Parameter(torch.tensor(offset))
        self.latent_specs = (LatentSpec("latent", 2, Modality.FUSED, bottleneck=True),)
        self.default_layers, self.depth_range = ("latent",), (0.1, 100.0)

    def encode(self, batch: Batch) -> Latents:
        x = batch.image.mean(1, keepdim=True)
        return Latents({"latent": torch.cat([x, torch.ones_like(x)], 1)})

    def decode(self, latents: Latents) -> Tensor:
        return self.slope * latents.layers["latent"][:, :1] + self.offset

    def config(self) -> dict[str, Any]:
        return {}


class SquaredError(nn.Module):
    """Mean of (depth - sparse depth)² over pixels and samples, in place of the real objective."""

    def __init__(self, pose: nn.Module | None = None) -> None:
        super().__init__()
        self.pose = pose

    def forward(self, batch: Batch, depth: Tensor, *, mask: Tensor | None = None, prior: Any = None) -> LossTerms:
        return {"square": (depth - batch.sparse_depth).square().mean()}


def grey_frame(x: float, z: float, name: str = "") -> Frame:
    """2x2 pixels of grey value x with depth z everywhere."""
    picture = np.full((2, 2, 3), x, np.float32)
    depth = np.full((2, 2), z, np.float32)
    return Frame(
        image=picture,
        sparse_depth=depth,
        intrinsics=np.eye(3),
        neighbours=(picture, picture),
        poses=(np.eye(4), np.eye(4)),
        ground_truth=depth,
        name=name or f"{x:g}-{z:g}",
    )


def toy_domain(name: str, points: Sequence[tuple[float, float]]) -> Domain:
    frames = [grey_frame(x, z) for x, z in points]
    return Domain(name=name, train=frames, val=frames, test=frames, rules=EvalRules(min_depth=0.01, max_depth=100.0))


def toy_model(slope: float = 2.0, offset: float = 1.0) -> ProtoDepth:
    return ProtoDepth(Line(slope, offset))


def no_fit(method: Any, domain: Domain, /) -> None:
    raise AssertionError("this method trains no auxiliary network")


class Spoiled:
    """A dataset in which one frame cannot be read."""

    def __init__(self, data, bad):
        self.data, self.bad = data, bad

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        if index == self.bad:
            raise DataError(f"frame {index}: the file ends early")
        return self.data[index]
