"""ProtoDepth: the network is frozen, each new domain gets prototypes and a descriptor (Eq. 6-11)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor, nn

from protodepth.data.frame import Domain
from protodepth.descriptors import descriptor_loss
from protodepth.errors import ConfigError
from protodepth.extras import LOW_RANK, SCALES
from protodepth.losses import Objective
from protodepth.methods.base import Fit, Method, methods, part, undo
from protodepth.methods.statistics import FEWEST, collect_statistics
from protodepth.model import ProtoDepth
from protodepth.prototypes import PrototypeConfig
from protodepth.selection import Statistics
from protodepth.types import Batch, BatchPrediction, LossTerms, View

# Factors of the learning rate, chosen on val scenes of the worlds:
# A acts on every pixel at once, while keys move only through W; parts of the decoder move as in finetuning.
RATES = {"A": 0.5, "W": 3.3, "U": 3.3, "V": 3.3, "K": 3.3, "parts": 0.04, "scales": 0.2, "lowrank": 0.1}
# With a network of its own: the rate is that of the network, as in finetuning.
OWN_RATES = {"A": 2.5, "P": 5.0, "W": 16.0, "U": 16.0, "V": 16.0, "K": 16.0, "descriptor": 30.0}


def _kind(name: str) -> str:
    """Which factor of the learning rate a domain's parameter has.

    >>> _kind("sets.latent.A"), _kind("parts.head.bias"), _kind("parts.lowrank-4.head.up")
    ('A', 'parts', 'lowrank')
    """
    if not name.startswith("parts."):
        return name.rsplit(".", 1)[-1]
    own = name.split(".")[1]
    return own if own == SCALES else LOW_RANK.rstrip("-") if own.startswith(LOW_RANK) else "parts"


@methods.register("protodepth")
class ProtoDepthMethod(Method):
    """One training run gives both settings: the descriptor loss (Eq. 9) has no gradient on A, P and W."""

    name: ClassVar[str] = "protodepth"
    Config: ClassVar[type] = PrototypeConfig
    chooses: ClassVar[bool] = True
    without_choosing: ClassVar[dict[str, Any]] = {"learn_descriptor": False}
    rates: ClassVar[dict[str, float]] = RATES

    def __init__(self, model: ProtoDepth, objective: Objective, config: PrototypeConfig | None = None) -> None:
        super().__init__(model, objective, config or model.config)

    def begin_domain(self, domain: Domain, fit: Fit) -> None:
        if domain.name not in self.model.domains:
            self.model.add_domain(domain.name, config=self.config, seed=self.seed)
        self.model.set_domain(domain.name)

    def loss(self, batch: Batch, view: View) -> LossTerms:
        out = self.model(view.batch)
        depth, mask, prior = undo(view, out.depth, out.context)
        terms = self.objective(batch, depth, mask=mask, prior=prior)
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
        rule = self.model.rule
        if rule.selection == "gaussian" and self.model.statistics.missing(self.model.descriptors()[0]):
            rule = replace(rule, selection="descriptor")  # a domain that is being learned has no statistics yet
        return self.model.predict_batch(batch, domain, rule)

    def trainable_parameters(self) -> Iterator[nn.Parameter]:
        return self.model.trainable_parameters()

    def parameter_groups(self) -> list[tuple[list[nn.Parameter], float]]:
        """A, P, the projection and r apart, each with its factor of the learning rate."""
        trainable = {id(p) for p in self.trainable_parameters()}
        groups: dict[str, list[nn.Parameter]] = {}
        for name, parameter in self.model.domain(str(self.model.active)).named_parameters():
            if id(parameter) in trainable:
                groups.setdefault(_kind(name), []).append(parameter)
        factors = {**self.rates, **(self.config.factors or {})}
        return [(parameters, factors.get(kind, 1.0)) for kind, parameters in groups.items()]

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


@methods.register("protodepth-own")
class OwnNetwork(ProtoDepthMethod):
    """Not the paper's: a domain also learns a copy of every part of the network, and is chosen by what the frozen one
    says.  It forgets nothing, at the price of a network for each domain.  ``parts`` names fewer of them.
    """

    name: ClassVar[str] = "protodepth-own"
    rates: ClassVar[dict[str, float]] = OWN_RATES

    def __init__(self, model: ProtoDepth, objective: Objective, config: PrototypeConfig | None = None) -> None:
        config, network = config or model.config, model.backbone
        every = (*network.decoder_parts, *network.encoder_parts)
        super().__init__(model, objective, replace(config, parts=config.parts or every))

    @classmethod
    def check(cls, model: ProtoDepth) -> None:
        if not model.backbone.encoder_parts:
            raise ConfigError(
                f"protodepth-own copies the parts of a network, and {model.backbone.name} names none: "
                "use protodepth, or say decoder_parts and encoder_parts in its class"
            )
