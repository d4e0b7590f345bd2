"""L2P: learning to prompt (Wang 2022) on a transformer:
the network is frozen, each domain learns prompts and keys to find them.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from protodepth.data.frame import Domain
from protodepth.descriptors import sample_descriptor, similarity
from protodepth.errors import ConfigError
from protodepth.losses import Objective
from protodepth.methods.base import Fit, Method, methods, part, undo
from protodepth.model import ProtoDepth
from protodepth.types import Batch, BatchPrediction, Float, Latents, LossTerms, View


@dataclass(frozen=True, slots=True, kw_only=True)
class L2PConfig:
    """``first``: the domain that the network has learned before gets prompts too, with one stage's steps,
    before anything is measured on it.
    """

    prompts: int = 20  # a domain
    chosen: int = 5  # for each frame
    length: int = 5  # vectors of one prompt
    key_weight: float = 0.5
    first: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.chosen <= self.prompts or self.length < 1 or self.key_weight < 0:
            raise ConfigError(
                f"l2p chooses 1 to prompts={self.prompts} prompts of positive length with a key_weight of at least 0; "
                f"got chosen={self.chosen}, length={self.length}, key_weight={self.key_weight}"
            )


class Pool(nn.Module):
    """Prompts of one domain and the keys they are found by, uniform in (-1, 1) at first."""

    def __init__(self, config: L2PConfig, channels: int, query: int, seed: int) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.keys = nn.Parameter(2 * torch.rand(config.prompts, query, generator=random) - 1)
        self.prompts = nn.Parameter(2 * torch.rand(config.prompts, config.length, channels, generator=random) - 1)


@methods.register("l2p")
class L2P(Method):
    r"""Loss plus :math:`w \sum_{k \in top\,5} (1 - \cos(s, key_k))`,
    with the sample descriptor s of the frozen network as query.

    Each frame takes the prompts of the five keys nearest to it: of the new domain while learning, of all domains at
    test.  Nobody names a domain, so both settings are the same.
    """

    name: ClassVar[str] = "l2p"
    Config: ClassVar[Any] = L2PConfig
    config: L2PConfig

    def __init__(self, model: ProtoDepth, objective: Objective, config: L2PConfig | None = None) -> None:
        super().__init__(model, objective, config)
        self.pools: dict[str, Pool] = {}
        self.active = ""

    @classmethod
    def check(cls, model: ProtoDepth) -> None:
        if "prompts" not in inspect.signature(model.backbone.encode).parameters:
            name = model.backbone.name or type(model.backbone).__name__
            raise ConfigError(
                f"l2p needs a transformer whose encode takes prompts; {name} has no place for them: "
                "use the backbone uformer"
            )

    def trainings(self, stages: int) -> int:
        return stages + self.config.first

    def learned_before(self, domain: Domain, fit: Fit) -> None:
        if self.config.first:
            self.begin_domain(domain, fit)
            fit(self, domain)

    def begin_domain(self, domain: Domain, fit: Fit) -> None:
        self.active = domain.name
        self.add(self.active)

    def add(self, name: str) -> None:
        if name not in self.pools:
            channels, query = int(self.backbone.prompt_channels), self.backbone.bottleneck.channels  # type: ignore[arg-type]
            pool = Pool(self.config, channels, query, self.config.seed + len(self.pools))
            self.pools[name] = pool.to(next(self.backbone.parameters()).device)

    @torch.no_grad()
    def query(self, batch: Batch) -> Float[Tensor, "b c"]:
        spec = self.backbone.bottleneck
        return sample_descriptor(self.backbone.encode(batch).layers[spec.name], spec.layout)

    def prompted(self, batch: Batch, query: Tensor, pools: list[Pool]) -> tuple[Latents, Float[Tensor, "b k"]]:
        """Latents with the prompts of the nearest keys of all given pools, and the cosines of those keys."""
        keys, prompts = torch.cat([p.keys for p in pools]), torch.cat([p.prompts for p in pools])
        cosines, index = similarity(query, keys).topk(self.config.chosen, dim=-1)
        return self.backbone.encode(batch, prompts=prompts[index].flatten(1, 2)), cosines  # type: ignore[call-arg]

    def loss(self, batch: Batch, view: View) -> LossTerms:
        latents, cosines = self.prompted(view.batch, self.query(view.batch), [self.pools[self.active]])
        depth, mask, prior = undo(view, self.backbone.decode(latents), latents.context)
        terms = self.objective(batch, depth, mask=mask, prior=prior)
        terms["keys"] = self.config.key_weight * (1 - cosines).sum(-1).mean()
        return terms

    @torch.no_grad()
    def predict(self, batch: Batch, domain: str | None) -> BatchPrediction:
        plain = super().predict(batch, domain)
        if not self.pools:
            return plain
        latents, _ = self.prompted(batch.to(plain.depth.device), plain.descriptor, list(self.pools.values()))
        return BatchPrediction(
            depth=self.backbone.decode(latents),
            domains=plain.domains,
            similarity=None,
            names=(),
            descriptor=plain.descriptor,
        )

    def trainable_parameters(self) -> Iterator[nn.Parameter]:
        return self.pools[self.active].parameters()

    def parameter_groups(self) -> list[tuple[list[nn.Parameter], float]]:
        """Keys apart from prompts: their loss terms do not touch each other, so neither should the clipping."""
        return [([self.pools[self.active].prompts], 1.0), ([self.pools[self.active].keys], 1.0)]

    def train(self, mode: bool) -> None:
        self.model.train(mode)

    def state(self) -> dict[str, Tensor]:
        return {f"pool.{name}.{key}": t for name, pool in self.pools.items() for key, t in pool.state_dict().items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        kept = part(state, "pool.")
        for name in dict.fromkeys(key.rsplit(".", 1)[0] for key in kept):
            self.add(name)
            self.pools[name].load_state_dict(part(kept, f"{name}."))

    def extra_parameters(self) -> int:
        return sum(p.numel() for pool in self.pools.values() for p in pool.parameters())
