"""LwF: learning without forgetting (Li and Hoiem 2017), the network as it was teaches the network as it becomes."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from protodepth.backbones.base import Backbone
from protodepth.data.frame import Domain
from protodepth.errors import ConfigError
from protodepth.losses import Objective, weighted_mean
from protodepth.methods.base import methods, part, undo
from protodepth.methods.finetune import Finetune
from protodepth.model import ProtoDepth
from protodepth.types import Batch, Depth, Float, LossTerms, Mask, View

SPACES: dict[str, Callable[[Tensor], Tensor]] = {"depth": lambda d: d, "log": torch.log, "inverse": torch.reciprocal}


@dataclass(frozen=True, slots=True, kw_only=True)
class LwFConfig:
    """``space``: metres as the public code has it (far pixels dominate outdoors), or log depth, or 1/m."""

    weight: float = 1.0
    space: Literal["depth", "log", "inverse"] = "depth"

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise ConfigError(f"the weight of lwf must not be negative, got {self.weight}")


def distillation(student: Depth, teacher: Depth, mask: Mask, space: str = "depth") -> Float[Tensor, ""]:
    r"""Mean over the valid pixels of :math:`(f(d) - f(\bar d))^2`, with f the identity, log or 1/d.

    >>> student, teacher = torch.full((1, 1, 2, 2), 3.0), torch.ones(1, 1, 2, 2)
    >>> float(distillation(student, teacher, torch.ones(1, 1, 2, 2)))
    4.0
    """
    f = SPACES[space]
    return weighted_mean((f(student) - f(teacher)).square(), mask)


@methods.register("lwf")
class LwF(Finetune):
    """Finetuning plus the distance to the depth that the last domain's network gives for the same frames.

    The teacher sees the frames as they are; the student's depth comes back from the augmented view and counts where
    that covers the frame.  Kept: the teacher, once the network.
    """

    name: ClassVar[str] = "lwf"
    Config: ClassVar[Any] = LwFConfig
    only_to_learn: ClassVar[tuple[str, ...]] = ("teacher.",)
    config: LwFConfig

    def __init__(self, model: ProtoDepth, objective: Objective, config: LwFConfig | None = None) -> None:
        super().__init__(model, objective, config)
        self.teacher: Backbone | None = None

    def loss(self, batch: Batch, view: View) -> LossTerms:
        latents = self.backbone.encode(view.batch)
        depth, mask, prior = undo(view, self.backbone.decode(latents), latents.context)
        terms = self.objective(batch, depth, mask=mask, prior=prior)
        if self.teacher is not None:
            with torch.no_grad():
                target = self.teacher(batch)
            terms["lwf"] = self.config.weight * distillation(depth, target, mask, self.config.space)
        return terms

    def end_domain(self, domain: Domain) -> None:
        self.teacher = copy.deepcopy(self.backbone).eval().requires_grad_(False)

    def state(self) -> dict[str, Tensor]:
        kept = {} if self.teacher is None else self.teacher.state_dict()
        return super().state() | {f"teacher.{name}": t for name, t in kept.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        super().load_state(state)
        kept = part(state, "teacher.")
        self.teacher = copy.deepcopy(self.backbone).eval().requires_grad_(False) if kept else None
        if self.teacher is not None:
            self.teacher.load_state_dict(kept)
