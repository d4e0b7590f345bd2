"""EWC: elastic weight consolidation (Kirkpatrick 2017), a quadratic pull towards weights that mattered before."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from protodepth.data.batches import collate, groups
from protodepth.data.faults import Faults, readable
from protodepth.data.frame import Domain, FrameDataset
from protodepth.errors import ConfigError, TrainingDiverged
from protodepth.losses import Objective
from protodepth.methods.base import Method, methods, part
from protodepth.methods.finetune import Finetune
from protodepth.model import ProtoDepth
from protodepth.types import Batch, Float, LossTerms, View

Weights = dict[str, Tensor]  # one tensor for each learning weight of a network, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class EWCConfig:
    """Settings of elastic weight consolidation.

    ``strength`` is lambda.  The Fisher of an unsupervised loss is small (mean 3e-7 for `lite` on the worlds), so
    lambda is large: there 1e4 does nothing, 1e5 begins to hold, 1e6 holds and costs a third of the learning.
    """

    strength: float = 1e6
    samples: int = 256  # frames of a domain that its Fisher is measured on, at most
    gamma: float = 1.0  # what is left of the older domains' Fisher at each new one
    anchors: Literal["last", "each"] = "last"  # pull towards the last weights, or towards each domain's own
    fisher_mode: Literal["per_sample", "uncle"] = "per_sample"
    batch_size: int = 4  # of the mode "uncle", whose Fisher depends on it
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < 1 or self.batch_size < 1 or self.strength < 0 or not 0 <= self.gamma <= 1:
            raise ConfigError(
                f"samples and batch_size must be positive, strength not negative and gamma within 0 and 1; "
                f"got {self.samples}, {self.batch_size}, {self.strength}, {self.gamma}"
            )

    @classmethod
    def uncle(cls, strength: float = 1.0) -> "EWCConfig":
        """As the public scripts: squared gradients of batch means over the number of samples,
        the last domain's only.
        """
        return cls(strength=strength, fisher_mode="uncle", gamma=0.0)


def snapshot(module: nn.Module) -> Weights:
    """The trainable weights as they are now: what EWC pulls towards."""
    return {name: p.detach().clone() for name, p in module.named_parameters() if p.requires_grad}


def quadratic(module: nn.Module, anchor: Weights, fisher: Weights) -> Float[Tensor, ""]:
    r"""The penalty of EWC, :math:`\frac12 \sum_i F_i (\theta_i - \theta^*_i)^2`.

    >>> line = nn.Linear(1, 1, bias=False); _ = nn.init.constant_(line.weight, 3.0)
    >>> quadratic(line, {"weight": torch.tensor([[1.0]])}, {"weight": torch.tensor([[5.0]])}).item()
    10.0
    """
    weights = dict(module.named_parameters())
    return 0.5 * torch.stack([(fisher[n] * (weights[n] - anchor[n]).square()).sum() for n in anchor]).sum()


def fisher_diagonal(method: Method, data: FrameDataset, config: EWCConfig) -> Weights:
    r"""Diagonal Fisher :math:`F = \frac1n \sum_s (\partial\ell_s / \partial\theta)^2` of the plain unsupervised loss,
    at the weights as they are.

    Frames come as they are, one at a time; no augmentation, evaluation mode.  In the mode "uncle" :math:`s` runs over
    batches (means) and :math:`n` over frames, which makes F smaller by about the batch size.
    """
    order = np.random.default_rng(config.seed).permutation(len(data))[: config.samples]
    group = 1 if config.fisher_mode == "per_sample" else config.batch_size
    weights = {name: p for name, p in method.backbone.named_parameters() if p.requires_grad}
    fisher = {name: torch.zeros_like(p) for name, p in weights.items()}
    method.train(False)
    method.objective.eval()
    frames = 0
    for chosen in groups(readable(data, Faults(len(data)), order.tolist()), group):
        batch = collate(chosen).to(next(method.backbone.parameters()).device)
        terms = Method.loss(method, batch, View.identity(batch))  # of the base class: no penalty in the gradient
        gradients = torch.autograd.grad(
            torch.stack(list(terms.values())).sum(), list(weights.values()), allow_unused=True
        )
        if not all(bool(torch.isfinite(g).all()) for g in gradients if g is not None):
            raise TrainingDiverged(
                f"the loss of training frame {chosen[0].name!r} has no finite gradient, so there is no Fisher: "
                "check the data"
            )
        for name, gradient in zip(weights, gradients, strict=True):
            if gradient is not None:
                fisher[name] += gradient.square()
        frames += len(chosen)
    return {name: total / frames for name, total in fisher.items()}


@methods.register("ewc")
class EWC(Finetune):
    r"""Finetuning plus :math:`\frac\lambda2 \sum_i F_i (\theta_i - \theta^*_i)^2`, with one running F over the domains.

    Kept: F and theta*, twice the network.  The pose network is free to forget.
    """

    name: ClassVar[str] = "ewc"
    Config: ClassVar[Any] = EWCConfig
    only_to_learn: ClassVar[tuple[str, ...]] = ("fisher.", "anchor.")
    config: EWCConfig

    def __init__(self, model: ProtoDepth, objective: Objective, config: EWCConfig | None = None) -> None:
        super().__init__(model, objective, config)
        self.anchor: Weights = {}
        self.fisher: Weights = {}

    def loss(self, batch: Batch, view: View) -> LossTerms:
        terms = super().loss(batch, view)
        if self.anchor:
            terms["ewc"] = self.config.strength * quadratic(self.backbone, self.anchor, self.fisher)
        return terms

    def shares(self) -> tuple[float, float]:
        """What the old and the new Fisher count in the running one."""
        return self.config.gamma, 1.0

    def end_domain(self, domain: Domain) -> None:
        new, weights = fisher_diagonal(self, domain.train, self.config), snapshot(self.backbone)
        if not self.fisher:
            self.fisher, self.anchor = new, weights
            return
        a, b = self.shares()
        fisher = {name: a * self.fisher[name] + b * F for name, F in new.items()}
        if self.config.anchors == "each":
            # a sum of quadratics is one quadratic (and a constant) around the mean of the anchors,
            # weighted by their Fishers
            for name, F in new.items():
                centre = (a * self.fisher[name] * self.anchor[name] + b * F * weights[name]) / fisher[name]
                weights[name] = torch.where(fisher[name] > 0, centre, weights[name])
        self.fisher, self.anchor = fisher, weights

    def state(self) -> dict[str, Tensor]:
        kept = {"fisher": self.fisher, "anchor": self.anchor}
        return super().state() | {f"{kind}.{name}": t for kind, tensors in kept.items() for name, t in tensors.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        super().load_state(state)
        self.fisher, self.anchor = self.stored(state, "fisher."), self.stored(state, "anchor.")

    def stored(self, state: dict[str, Tensor], prefix: str) -> Weights:
        """Tensors of a file, where the network is."""
        device = next(self.backbone.parameters()).device
        return {name: t.to(device) for name, t in part(state, prefix).items()}

    def record(self) -> dict[str, Any]:
        flat = [t.flatten() for t in self.fisher.values()]
        return {"fisher_mean": float(torch.cat(flat).mean())} if flat else {}
