"""What a continual-learning method is: named loss terms and what it keeps between domains.  The one loop in training.py steps."""

from abc import ABC
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from protodepth.data.base import Domain
from protodepth.errors import ConfigError
from protodepth.losses import Objective
from protodepth.model import ProtoDepth
from protodepth.registry import Registry
from protodepth.types import Batch, BatchPrediction, LossTerms, View

methods: Registry[type["Method"]] = Registry("method")


class Fit(Protocol):
    """Trains a method on a domain with the run's own schedule and seed: for methods that need an auxiliary network."""

    def __call__(self, method: "Method", domain: Domain) -> None: ...


class Method(ABC):
    """Hooks, in the order they are called for each domain; the default body of each is finetuning.

    ``begin_domain``  a snapshot, a new prototype set, an auxiliary network
    ``batches``       wraps the training batches (replay mixes its buffer in here)
    ``loss``          named terms for one batch; never steps an optimiser
    ``end_domain``    Fisher, buffer, freeze
    ``predict``       depth for a batch; ``domain`` None = not given
    ``state``         every tensor that must survive a restart

    ``model`` is the start: a pretrained backbone (and D_1's descriptor).  A method owns it; callers give each method its own copy.
    """

    name: ClassVar[str] = ""
    trains: ClassVar[bool] = True  # False: nothing is learned (pretrained)

    def __init__(self, model: ProtoDepth, objective: Objective, config: Any = None) -> None:
        self.model, self.objective, self.config = model, objective, config
        self.backbone = model.backbone

    @classmethod
    def check(cls, model: ProtoDepth) -> None:
        """Raise ConfigError, before anything runs, if the method cannot work with this network."""

    def begin_domain(self, domain: Domain, fit: Fit) -> None: ...

    def batches(self, loader: Iterable[Batch]) -> Iterable[Batch]:
        return loader

    def loss(self, batch: Batch, view: View) -> LossTerms:
        latents = self.backbone.encode(view.batch)
        depth, mask = view.undo(self.backbone.decode(latents))
        return self.objective(batch, depth, mask=mask, prior=latents.context.get("prior"))

    def end_domain(self, domain: Domain) -> None: ...

    def predict(self, batch: Batch, domain: str | None) -> BatchPrediction:
        """All methods but ProtoDepth have one network, so the domain's name changes nothing."""
        return self.model.predict_batch(batch, "base")

    def trainable_parameters(self) -> Iterator[nn.Parameter]:
        return (p for p in self.backbone.parameters() if p.requires_grad)

    def train(self, mode: bool) -> None:
        self.backbone.train(mode)

    def state(self) -> dict[str, Tensor]:
        return {f"backbone.{k}": v for k, v in self.backbone.state_dict().items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        prefix = "backbone."
        self.backbone.load_state_dict({k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)})

    def extra_parameters(self) -> int:
        """Parameters beyond the network that are kept for good."""
        return 0

    def extra_bytes(self) -> int:
        """Memory beyond the network that is kept between domains."""
        return 0


def build(name: str, model: ProtoDepth, objective: Objective, config: Any = None) -> Method:
    """A registered method on its model, refused at once where the two do not fit."""
    cls = methods.get(name)
    cls.check(model)
    if config is not None and not isinstance(config, getattr(cls, "Config", type(config))):
        raise ConfigError(f"method {name!r} takes {cls.Config.__name__}, got {type(config).__name__}")  # type: ignore[attr-defined]
    return cls(model, objective, config)
