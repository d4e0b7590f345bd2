"""ProtoDepth: the network is frozen, each new domain gets prototypes and a descriptor (Eq. 6-11)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from protodepth.data.base import Domain, Faults, FrameDataset, collate, readable
from protodepth.descriptors import descriptor_loss, sample_descriptor
from protodepth.losses import Objective
from protodepth.methods.base import Fit, Method, methods, part
from protodepth.model import ProtoDepth
from protodepth.prototypes import PrototypeConfig
from protodepth.selection import Statistics
from protodepth.types import Batch, BatchPrediction, Float, LossTerms, View

# Factors of the learning rate, chosen on val scenes of the worlds: A acts on every pixel at once, while keys move only through W.
RATES = {"A": 0.5, "W": 3.3, "U": 3.3, "V": 3.3, "K": 3.3}


@methods.register("protodepth")
class ProtoDepthMethod(Method):
    """One training run gives both settings: the descriptor loss (Eq. 9) has no gradient on A, P and W."""

    name: ClassVar[str] = "protodepth"
    Config: ClassVar[type] = PrototypeConfig

    def __init__(self, model: ProtoDepth, objective: Objective, config: PrototypeConfig | None = None) -> None:
        super().__init__(model, objective, config or model.config)

    def begin_domain(self, domain: Domain, fit: Fit) -> None:
        if domain.name not in self.model.domains:
            self.model.add_domain(domain.name, config=self.config, seed=self.seed)
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
        """The statistics of a domain are taken once, when it has been learned, and never again."""
        self.model.set_domain(None)
        name = domain.name
        if name in self.model.descriptors()[0] and name not in self.model.statistics and len(domain.train) >= FEWEST:
            self.model.statistics[name] = collect_statistics(self.model, domain.train, domain.val)

    def predict(self, batch: Batch, domain: str | None) -> BatchPrediction:
        """Incremental with a known name; a name not learned yet is the base network, None chooses by descriptor."""
        if domain is not None and domain not in self.model.domains:
            domain = "base"
        return self.model.predict_batch(batch, domain)

    def trainable_parameters(self) -> Iterator[nn.Parameter]:
        return self.model.trainable_parameters()

    def parameter_groups(self) -> list[tuple[list[nn.Parameter], float]]:
        """A, P, the projection and r apart, each with its factor of the learning rate."""
        trainable = {id(p) for p in self.trainable_parameters()}
        groups: dict[str, list[nn.Parameter]] = {}
        for name, parameter in self.model.domain(str(self.model.active)).named_parameters():
            if id(parameter) in trainable:
                groups.setdefault(name.rsplit(".", 1)[-1], []).append(parameter)
        return [(parameters, RATES.get(kind, 1.0)) for kind, parameters in groups.items()]

    def train(self, mode: bool) -> None:
        self.model.train(mode)

    def state(self) -> dict[str, Tensor]:
        model = self.model
        state = {f"domain.{n}.{k}": v for n in model.domains for k, v in model.domain(n).state_dict().items()}
        return state | {f"statistics.{n}.{k}": v for n, s in model.statistics.items() for k, v in s.tensors().items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name in dict.fromkeys(key.split(".", 2)[1] for key in state if key.startswith("domain.")):
            if name not in self.model.domains:
                self.model.add_domain(name, config=self.config)
            self.model.domain(name).load_state_dict(part(state, f"domain.{name}."))
        channels = self.model.backbone.bottleneck.channels
        for name in dict.fromkeys(key.split(".", 2)[1] for key in state if key.startswith("statistics.")):
            self.model.statistics[name] = Statistics.from_tensors(part(state, f"statistics.{name}."), channels)

    def extra_parameters(self) -> int:
        overhead = self.model.overhead()
        return sum(overhead.domains.values()) + sum(overhead.descriptors.values())

    def extra_bytes(self) -> int:
        return 4 * self.extra_parameters() + sum(s.nbytes for s in self.model.statistics.values())


FRAMES = 256  # as many frames at most describe a domain
FEWEST = 3  # frames that statistics need
ENOUGH = 19  # left-out frames of which the largest distance is exceeded by 5 % of new ones


@torch.no_grad()
def sample_descriptors(model: ProtoDepth, data: FrameDataset, *, frames: int = FRAMES) -> Float[Tensor, "n c"]:
    """s of frames spread evenly over a dataset, as the un-adapted encoder gives them."""
    count, bottleneck = min(frames, len(data)), model.backbone.bottleneck
    rows = []
    for found in readable(data, Faults(len(data)), (i * len(data) // count for i in range(count))):
        frame = replace(found, neighbours=(), poses=())
        latents = model.backbone.encode(collate([frame]).to(model.descriptors()[1].device))
        rows.append(sample_descriptor(latents.layers[bottleneck.name], bottleneck.layout))
    return torch.cat(rows) if rows else torch.empty(0, bottleneck.channels)


def collect_statistics(model: ProtoDepth, train: FrameDataset, val: FrameDataset | None = None) -> Statistics:
    """Mean and scatter of the train frames' descriptors; the left-out samples come from ``val`` and, if these are few, from the last
    quarter of ``train``.  Consecutive frames are alike, so the left-out ones must not lie between those that are fitted.
    """
    return _statistics(model, sample_descriptors(model, train), train, val)


def _statistics(model: ProtoDepth, fitted: Tensor, train: FrameDataset, val: FrameDataset | None) -> Statistics:
    later = fitted[:0]
    if val is not None and len(val) and not share_frames(train, val):
        later = sample_descriptors(model, val)
    cut = len(fitted) if len(later) >= ENOUGH else len(fitted) - max(1, len(fitted) // 4)
    return Statistics.of(fitted[:cut], torch.cat([fitted[cut:], later]))


def share_frames(train: FrameDataset, val: FrameDataset) -> bool:
    """Whether the splits share frames, as those of a recording of less than ten do."""
    names = [{f.name for f in readable(d, Faults(len(d)), range(min(10, len(d))))} for d in (train, val)]
    return bool(names[0] & names[1])


@torch.no_grad()
def describe(model: ProtoDepth, name: str, data: FrameDataset, val: FrameDataset | None = None) -> None:
    """Give D_1 its descriptor: the mean of unit sample descriptors, which is the exact minimum of Eq. 9 with no other domain.

    With three frames or more also its statistics, so that unknown places can be told from it.
    """
    if name not in model.domains:
        model.add_domain(name, base=True)
    rows = sample_descriptors(model, data)
    direction = normalize(normalize(rows, dim=-1).mean(0), dim=0)
    model.domain(name).descriptor.copy_(direction * len(direction) ** 0.5)
    if len(data) >= FEWEST:
        model.statistics[name] = _statistics(model, rows, data, val)
