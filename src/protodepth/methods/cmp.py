"""CMP (Kang 2024), what of it transfers: replay whose buffer keeps frames that look different from each other."""

import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from protodepth.backbones.base import Backbone
from protodepth.data.batches import collate
from protodepth.data.faults import Faults, readable
from protodepth.data.frame import Domain, FrameDataset
from protodepth.descriptors import sample_descriptor
from protodepth.errors import ConfigError
from protodepth.losses import Objective
from protodepth.methods.base import methods, part
from protodepth.methods.replay import Replay, ReplayConfig
from protodepth.model import ProtoDepth
from protodepth.types import Float


@dataclass(frozen=True, slots=True, kw_only=True)
class CMPConfig(ReplayConfig):
    """``threshold``, as the public code but frame by frame:
    any frame whose cosine to the mean of the buffers is below it.
    """

    mode: Literal["farthest", "threshold"] = "farthest"
    threshold: float = 0.9935


def farthest_points(features: Float[Tensor, "n c"], kept: Float[Tensor, "m c"], size: int) -> list[int]:
    """Greedy: the next frame has the lowest largest cosine to all that is kept.  All rows have unit length.

    With nothing kept the first is the most typical frame, nearest to the mean.

    >>> farthest_points(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), torch.tensor([[1.0, 0.0]]), 2)
    [2, 1]
    """
    nearest = (features @ kept.T).amax(1) if len(kept) else -(features @ features.mean(0))
    chosen: list[int] = []
    for _ in range(min(size, len(features))):
        index = int(nearest.argmin())
        cosines = features @ features[index]
        nearest = torch.maximum(nearest, cosines) if len(kept) or chosen else cosines
        chosen.append(index)
        nearest[chosen] = torch.inf
    return chosen


@methods.register("cmp")
class CMP(Replay):
    """Replay; which frames are kept is decided by their descriptors in the network of the first domain,
    which stays frozen for it.

    Kept besides the buffers: that network and one descriptor a frame.  No other network has to be downloaded.
    """

    name: ClassVar[str] = "cmp"
    Config: ClassVar[Any] = CMPConfig
    only_to_learn: ClassVar[tuple[str, ...]] = (*Replay.only_to_learn, "describer.", "features.")
    config: CMPConfig  # type: ignore[assignment]

    def __init__(self, model: ProtoDepth, objective: Objective, config: CMPConfig | None = None) -> None:
        super().__init__(model, objective, config)
        self.describer: Backbone | None = None
        self.features: dict[str, Tensor] = {}

    @torch.no_grad()
    def describe(self, data: FrameDataset) -> tuple[list[int], Float[Tensor, "n c"]]:
        """Numbers and unit descriptors of all frames that can be read."""
        if self.describer is None:
            self.describer = copy.deepcopy(self.backbone).eval().requires_grad_(False)
        spec, device = self.describer.bottleneck, next(self.describer.parameters()).device
        faults, rows = Faults(len(data)), {}
        for number in range(len(data)):
            for frame in readable(data, faults, (number,)):
                layers = self.describer.encode(collate([frame]).to(device)).layers
                rows[number] = sample_descriptor(layers[spec.name], spec.layout)
        return list(rows), normalize(torch.cat(list(rows.values())), dim=-1).cpu()

    def choose(self, domain: Domain) -> list[int]:
        numbers, features = self.describe(domain.train)
        kept = torch.cat([features[:0], *self.features.values()])
        far = self.config.mode == "farthest"
        chosen = sorted(
            farthest_points(features, kept, self.config.size) if far else self._below(features, kept, domain.name)
        )
        self.features[domain.name] = features[chosen]
        return [numbers[i] for i in chosen]

    def _below(self, features: Tensor, kept: Tensor, name: str) -> list[int]:
        """Frames below the threshold, at random; for the first buffer there is nothing to compare with."""
        cosines = features @ normalize(kept.mean(0), dim=0) if len(kept) else torch.full((len(features),), -1.0)
        candidates = torch.nonzero(cosines < self.config.threshold).flatten().numpy()
        if len(candidates) == 0:
            raise ConfigError(
                f"no frame of {name!r} has a cosine below {self.config.threshold} to the buffers (smallest "
                f"{float(cosines.min()):.4f}): raise the threshold, or use mode='farthest'"
            )
        return np.random.default_rng(self.config.seed).permutation(candidates)[: self.config.size].tolist()

    def state(self) -> dict[str, Tensor]:
        network = {} if self.describer is None else self.describer.state_dict()
        tensors = super().state() | {f"describer.{key}": t for key, t in network.items()}
        return tensors | {f"features.{name}": t for name, t in self.features.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        super().load_state(state)
        self.features, network = part(state, "features."), part(state, "describer.")
        self.describer = copy.deepcopy(self.backbone).eval().requires_grad_(False) if network else None
        if self.describer is not None:
            self.describer.load_state_dict(network)
