"""What a continual-learning method is: named loss terms and what it keeps between domains.
The one loop in training/fit.py steps.
"""

from abc import ABC
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from protodepth.data.frame import Domain
from protodepth.errors import ConfigError
from protodepth.losses import Objective
from protodepth.model import ProtoDepth
from protodepth.registry import Registry
from protodepth.types import Batch, BatchPrediction, Depth, LossTerms, Mask, View

methods: Registry[type["Method"]] = Registry("method")

Step = (
    Batch | tuple[Batch, ...]
)  # what one step learns from: a batch, or one from each of several sources, whose losses are summed


class Fit(Protocol):
    """Trains a method on a domain with the run's own schedule and seed: for methods that need an auxiliary network."""

    def __call__(self, method: "Method", domain: Domain, /) -> None: ...


class Method(ABC):
    """Hooks, in the order they are called for each domain; the default body of each is finetuning.

    ``prepare``       once, before everything: all domains of the sequence (only joint training may look at them)
    ``learned_before`` in place of ``begin_domain`` and training, for a first domain that the model has learned
    ``begin_domain``  a snapshot, a new prototype set, an auxiliary network
    ``budget``        how many steps a stage of ``steps`` gets
    ``trainings``     how many times a stage's steps a whole sequence takes, for progress bars
    ``batches``       wraps the training batches (replay adds its buffers here); the same for a resumed run
    ``loss``          named terms for one batch; never steps an optimiser
    ``end_domain``    Fisher, buffer, freeze; also called for a first domain that the model has learned before
    ``predict``       depth for a batch; ``domain`` None = not given
    ``state``         every tensor that must survive a restart
    ``stage_state``   the part of it that predicting needs: what is kept of a stage for those who want to look again

    ``model`` is the start: a pretrained backbone (and D_1's descriptor).  A method owns it;
    callers give each method its own copy.
    """

    name: ClassVar[str] = ""
    Config: ClassVar[Any] = None  # its frozen dataclass of settings; None = it has none
    chooses: ClassVar[bool] = False  # True: ``predict`` depends on the domain's name and chooses one where it is None
    without_choosing: ClassVar[dict[str, Any]] = {}  # changes to its settings that leave out what only choosing needs
    only_to_learn: ClassVar[tuple[str, ...]] = ()  # how names in ``state`` begin that predicting does not need
    trains: bool = True  # False: nothing is learned (pretrained)
    seed: int = 0  # of the run: what a method draws itself (the start of prototypes) is part of the spread over seeds

    def __init__(self, model: ProtoDepth, objective: Objective, config: Any = None) -> None:
        self.model, self.objective = model, objective
        self.config = self.Config() if config is None and self.Config is not None else config
        self.backbone = model.backbone

    @classmethod
    def check(cls, model: ProtoDepth) -> None:
        """Raise ConfigError, before anything runs, if the method cannot work with this network."""

    def prepare(self, domains: Sequence[Domain]) -> None:
        """Called once with all domains, before the first; most methods need nothing."""

    def learned_before(self, domain: Domain, fit: Fit) -> None:
        """Called in place of learning for a domain that was learned before the run: remember what it left."""

    def begin_domain(self, domain: Domain, fit: Fit) -> None:
        """Called before a domain is learned: make room for it, freeze what must stay."""

    def budget(self, steps: int) -> int:
        """How many of the steps that a domain is given this method takes."""
        return steps

    def trainings(self, stages: int) -> int:
        """How many times a stage's steps a sequence with ``stages`` new domains takes in all, for progress bars."""
        return stages

    def batches(self, loader: Iterable[Batch], *, start: int, seed: int) -> Iterable[Step]:
        """``loader`` begins at step ``start`` of the run's ``seed``:
        what is mixed in must depend on these two alone.
        """
        return loader

    def loss(self, batch: Batch, view: View) -> LossTerms:
        """Named terms of one training step; the loop sums and logs them."""
        latents = self.backbone.encode(view.batch)
        depth, mask, prior = undo(view, self.backbone.decode(latents), latents.context)
        return self.objective(batch, depth, mask=mask, prior=prior)

    def end_domain(self, domain: Domain) -> None:
        """Called after a domain is learned: remember what later ones must respect."""

    def predict(self, batch: Batch, domain: str | None) -> BatchPrediction:
        """One network, so the domain's name changes nothing; a method where it does says ``chooses``."""
        return self.model.predict_batch(batch, "base")

    def trainable_parameters(self) -> Iterator[nn.Parameter]:
        """What the optimizer moves."""
        return (p for p in self.backbone.parameters() if p.requires_grad)

    def parameter_groups(self) -> list[tuple[list[nn.Parameter], float]]:
        """The trainable parameters in groups, each with a factor of the learning rate;
        gradients are clipped by group.
        """
        return [(list(self.trainable_parameters()), 1.0)]

    def train(self, mode: bool) -> None:
        """Training or evaluation mode of the networks."""
        self.backbone.train(mode)

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs."""
        return {f"backbone.{k}": v for k, v in self.backbone.state_dict().items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """The inverse of ``state``."""
        self.backbone.load_state_dict(part(state, "backbone."))

    def stage_state(self) -> dict[str, Tensor]:
        """What of ``state`` belongs to a stage that is stored to be looked at: all that predicting needs."""
        return {name: t for name, t in self.state().items() if not name.startswith(self.only_to_learn)}

    def extra_parameters(self) -> int:
        """Parameters beyond the network that are kept for good."""
        return 0

    def extra_bytes(self) -> int:
        """Memory beyond the network that is kept between domains: whatever else is in ``state``."""
        return sum(t.nbytes for name, t in self.state().items() if not name.startswith("backbone."))

    def record(self) -> dict[str, Any]:
        """JSON-able facts for the run record: the mean Fisher, the hash of a buffer."""
        return {}


def undo(view: View, depth: Depth, context: Mapping[str, Any]) -> tuple[Depth, Mask, Depth | None]:
    """What a method compares, in the batch's own pixels: depth, where it is valid, and the prior if there is one."""
    prior = context.get("prior")
    return *view.undo(depth), None if prior is None else view.undo(prior)[0]


def part(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Of a method's state: the tensors whose name starts with ``prefix``, without it.

    >>> part({"fisher.w": 1, "anchor.w": 2}, "fisher.")
    {'w': 1}
    """
    return {name[len(prefix) :]: tensor for name, tensor in state.items() if name.startswith(prefix)}


def build(name: str, model: ProtoDepth, objective: Objective, config: Any = None) -> Method:
    """A registered method on its model, refused at once where the two do not fit."""
    cls = methods.get(name)
    cls.check(model)
    if config is not None and (cls.Config is None or not isinstance(config, cls.Config)):
        expected = "no settings" if cls.Config is None else cls.Config.__name__
        raise ConfigError(f"method {name!r} takes {expected}, got {type(config).__name__}")
    return cls(model, objective, config)
