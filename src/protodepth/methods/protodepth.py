"""ProtoDepth: the network is frozen, each new domain gets prototypes and a descriptor (Eq. 6-11)."""

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from protodepth.data.base import Domain, FrameDataset, collate
from protodepth.descriptors import descriptor_loss
from protodepth.losses import Objective
from protodepth.methods.base import Fit, Method, methods
from protodepth.model import ProtoDepth
from protodepth.prototypes import PrototypeConfig
from protodepth.types import Batch, BatchPrediction, LossTerms, View


@methods.register("protodepth")
class ProtoDepthMethod(Method):
    """One training run gives both settings: the descriptor loss (Eq. 9) has no gradient on A, P and W."""

    name: ClassVar[str] = "protodepth"
    Config: ClassVar[type] = PrototypeConfig

    def __init__(self, model: ProtoDepth, objective: Objective, config: PrototypeConfig | None = None) -> None:
        super().__init__(model, objective, config or model.config)

    def begin_domain(self, domain: Domain, fit: Fit) -> None:
        if domain.name not in self.model.domains:
            self.model.add_domain(domain.name, config=self.config)
        self.model.set_domain(domain.name)

    def loss(self, batch: Batch, view: View) -> LossTerms:
        out = self.model(view.batch)
        depth, mask = view.undo(out.depth)
        terms = self.objective(batch, depth, mask=mask, prior=out.context.get("prior"))
        terms.update(self.descriptor_terms(out.descriptor))
        return terms

    def descriptor_terms(self, s: Tensor) -> LossTerms:
        active = self.model.domain(str(self.model.active))
        if not active.config.learn_descriptor:
            return {}
        names, R = self.model.descriptors()
        others = R[[i for i, name in enumerate(names) if name != self.model.active]]
        loss = descriptor_loss(s, active.descriptor, others, active.config.separation)
        return {"descriptor": active.config.descriptor_weight * loss}

    def end_domain(self, domain: Domain) -> None:
        self.model.set_domain(None)

    def predict(self, batch: Batch, domain: str | None) -> BatchPrediction:
        """Incremental with a known name; a name not learned yet is the base network, None chooses by descriptor."""
        if domain is not None and domain not in self.model.domains:
            domain = "base"
        return self.model.predict_batch(batch, domain)

    def trainable_parameters(self) -> Iterator[nn.Parameter]:
        return self.model.trainable_parameters()

    def parameter_groups(self) -> list[list[nn.Parameter]]:
        """The descriptor apart: in one norm with A, P and W it would change how far these are clipped."""
        r = self.model.domain(str(self.model.active)).descriptor
        every = list(self.trainable_parameters())
        groups = [[p for p in every if p is not r], [p for p in every if p is r]]
        return [group for group in groups if group]

    def train(self, mode: bool) -> None:
        self.model.train(mode)

    def state(self) -> dict[str, Tensor]:
        return {f"domain.{n}.{k}": v for n in self.model.domains for k, v in self.model.domain(n).state_dict().items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name in dict.fromkeys(key.split(".", 2)[1] for key in state if key.startswith("domain.")):
            if name not in self.model.domains:
                self.model.add_domain(name, config=self.config)
            prefix = f"domain.{name}."
            self.model.domain(name).load_state_dict(
                {k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)}
            )

    def extra_parameters(self) -> int:
        overhead = self.model.overhead()
        return sum(overhead.domains.values()) + sum(overhead.descriptors.values())

    def extra_bytes(self) -> int:
        return 4 * self.extra_parameters()


@torch.no_grad()
def describe(model: ProtoDepth, name: str, data: FrameDataset, *, frames: int = 256) -> None:
    """Give D_1 its descriptor: the mean of unit sample descriptors, which is the exact minimum of Eq. 9 with no other domain."""
    if name not in model.domains:
        model.add_domain(name, base=True)
    count = min(frames, len(data))
    rows = [model.complete(collate([data[i * len(data) // count]]), "base").descriptor for i in range(count)]
    direction = normalize(normalize(torch.cat(rows), dim=-1).mean(0), dim=0)
    model.domain(name).descriptor.copy_(direction * len(direction) ** 0.5)
