"""ANCL: auxiliary network continual learning (Kim 2023, the A-EWC form):
pulled to the old weights and to freely finetuned ones.
"""

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from protodepth.data.frame import Domain
from protodepth.errors import ConfigError
from protodepth.losses import Objective
from protodepth.methods.base import Fit, methods
from protodepth.methods.ewc import EWC, EWCConfig, Weights, fisher_diagonal, quadratic, snapshot
from protodepth.methods.finetune import Finetune
from protodepth.model import ProtoDepth
from protodepth.types import Batch, LossTerms, View


@dataclass(frozen=True, slots=True, kw_only=True)
class ANCLConfig(EWCConfig):
    """The original's strengths are 10 000 and 10, for classifiers.
    Here both are on EWC's scale, where 1e4 and less does nothing.
    """

    auxiliary_strength: float = 1e6
    alpha: float = 0.5  # share of the older domains in the fused Fisher, in place of gamma

    def __post_init__(self) -> None:
        EWCConfig.__post_init__(self)
        if self.auxiliary_strength < 0 or not 0 <= self.alpha <= 1:
            raise ConfigError(
                f"auxiliary_strength must not be negative and alpha within 0 and 1, got {self.auxiliary_strength}, "
                f"{self.alpha}"
            )


class Auxiliary(Finetune):
    """The copy that learns the new domain freely; a name of its own keeps its training state apart."""

    name: ClassVar[str] = "ancl-auxiliary"


@methods.register("ancl")
class ANCL(EWC):
    r"""EWC plus :math:`\frac{\lambda_a}2 \sum_i F^{aux}_i (\theta_i - \theta^{aux}_i)^2`,
    in two phases for each new domain.

    First a copy of the network (and of the pose network) is finetuned on the domain and its Fisher measured there; then
    the network itself learns with both pulls.  Kept between domains: F and theta*; during one also those of the copy.
    """

    name: ClassVar[str] = "ancl"
    Config: ClassVar[Any] = ANCLConfig
    only_to_learn: ClassVar[tuple[str, ...]] = (*EWC.only_to_learn, "auxiliary_")
    config: ANCLConfig  # type: ignore[assignment]

    def __init__(self, model: ProtoDepth, objective: Objective, config: ANCLConfig | None = None) -> None:
        super().__init__(model, objective, config)
        self.auxiliary_anchor: Weights = {}
        self.auxiliary_fisher: Weights = {}

    def trainings(self, stages: int) -> int:
        return 2 * stages

    def begin_domain(self, domain: Domain, fit: Fit) -> None:
        if not self.anchor:  # the first domain: nothing to protect
            return
        auxiliary = Auxiliary(ProtoDepth(copy.deepcopy(self.backbone)), copy.deepcopy(self.objective))
        fit(auxiliary, domain)
        self.auxiliary_anchor = snapshot(auxiliary.backbone)
        self.auxiliary_fisher = fisher_diagonal(auxiliary, domain.train, self.config)

    def loss(self, batch: Batch, view: View) -> LossTerms:
        terms = super().loss(batch, view)
        if self.auxiliary_anchor:
            pull = quadratic(self.backbone, self.auxiliary_anchor, self.auxiliary_fisher)
            terms["ancl"] = self.config.auxiliary_strength * pull
        return terms

    def shares(self) -> tuple[float, float]:
        return self.config.alpha, 1 - self.config.alpha

    def end_domain(self, domain: Domain) -> None:
        self.auxiliary_anchor, self.auxiliary_fisher = {}, {}
        super().end_domain(domain)

    def state(self) -> dict[str, Tensor]:
        kept = {"auxiliary_fisher": self.auxiliary_fisher, "auxiliary_anchor": self.auxiliary_anchor}
        return super().state() | {f"{kind}.{name}": t for kind, tensors in kept.items() for name, t in tensors.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        super().load_state(state)
        self.auxiliary_fisher = self.stored(state, "auxiliary_fisher.")
        self.auxiliary_anchor = self.stored(state, "auxiliary_anchor.")
