"""Joint training: all domains at once, the upper bound that sequential methods are held against."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from protodepth.data.batches import training_batches
from protodepth.data.frame import Domain
from protodepth.errors import ConfigError
from protodepth.losses import Objective
from protodepth.methods.base import Fit, Step, methods
from protodepth.methods.finetune import Finetune
from protodepth.model import ProtoDepth
from protodepth.types import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class JointConfig:
    """``stages``: how many times a stage's steps the one training gets; None = as many as there are domains.

    ``sub_batch``: frames of each domain in a step; None = the batch size shared among the domains, at least one.
    """

    stages: int | None = None
    sub_batch: int | None = None

    def __post_init__(self) -> None:
        if any(value is not None and value < 1 for value in (self.stages, self.sub_batch)):
            raise ConfigError(f"stages and sub_batch must be positive, got {self.stages} and {self.sub_batch}")


@methods.register("joint")
class Joint(Finetune):
    """Finetuning on one balanced sub-batch of every domain a step; the losses are summed.

    It starts from the same network as the others and learns once, at the first stage that is trained; after that
    nothing changes, so all later rows of its score matrices are equal and only they mean something.  Kept: all data.
    """

    name: ClassVar[str] = "joint"
    Config: ClassVar[Any] = JointConfig
    config: JointConfig

    def __init__(self, model: ProtoDepth, objective: Objective, config: JointConfig | None = None) -> None:
        super().__init__(model, objective, config)
        self.domains: tuple[Domain, ...] = ()
        self.begun = False

    def prepare(self, domains: Sequence[Domain]) -> None:
        self.domains = tuple(domains)

    def begin_domain(self, domain: Domain, fit: Fit) -> None:
        if not self.domains:
            raise ConfigError(
                "joint training needs all domains of a sequence from the start: call prepare(domains), "
                "as run_sequence does"
            )
        self.begun = True

    def budget(self, steps: int) -> int:
        return steps * (self.config.stages or len(self.domains))

    def trainings(self, stages: int) -> int:
        return self.config.stages or stages + 1

    def batches(self, loader: Iterable[Batch], *, start: int, seed: int) -> Iterable[Step]:
        size = self.config.sub_batch or max(1, next(iter(loader)).total // len(self.domains))
        streams = (
            training_batches(d.train, size, seed=seed, start=start, domain=d.name, turn=n)
            for n, d in enumerate(self.domains)
        )
        return zip(*streams, strict=True)

    def end_domain(self, domain: Domain) -> None:
        self.trains = self.trains and not self.begun

    def state(self) -> dict[str, Tensor]:
        return super().state() | {"joint.trains": torch.tensor(self.trains)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        super().load_state(state)
        self.trains = bool(state["joint.trains"])

    def extra_bytes(self) -> int:
        """All training frames that it must have at hand."""
        return sum(_bytes(domain) for domain in self.domains)


def _bytes(domain: Domain) -> int:
    """Of a domain's training frames, taking the first for all."""
    frame = domain.train[0]
    arrays = (frame.image, frame.sparse_depth, frame.intrinsics, *frame.neighbours, *frame.poses)
    return len(domain.train) * sum(a.nbytes for a in arrays)
