"""Prototypes: what is learned of a new domain while the network stays frozen (Eq. 6-8).

Legend   b samples, n positions (h*w or tokens), c channels, N prototypes, k domains
         X latent features   A global prototype   P local prototypes   W projection   K keys   B additive bias
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from protodepth.errors import ConfigError
from protodepth.types import Float, Int, LatentSpec, Modality, OneLine


def keys(P: Float[Tensor, "N c"], W: Float[Tensor, "c c"], *, stop_gradient: bool = True) -> Float[Tensor, "N c"]:
    r"""Keys :math:`K = \mathrm{StopGrad}(P) \times W` (Eq. 7): learned through W alone, decoupled from the bias."""
    return (P.detach() if stop_gradient else P) @ W


def bias(
    X: Float[Tensor, "b n c"],
    K: Float[Tensor, "*b N c"],
    P: Float[Tensor, "*b N c"],
    absent: Float[Tensor, "*b N"] | None = None,
) -> Float[Tensor, "b n c"]:
    r"""Local bias :math:`B = \mathrm{softmax}(X K^\top / \sqrt c)\, P` (Eq. 8); ``absent``: -inf for padding."""
    scores = X @ (K / math.sqrt(X.shape[-1])).transpose(-2, -1)  # scaling K, not the scores, is N/n of the work
    if absent is not None:
        scores = scores + absent.unsqueeze(-2)
    return torch.softmax(scores, dim=-1) @ P  # on a CPU faster than the fused attention for so few keys


def adapt(
    X: Float[Tensor, "b n c"],
    A: Float[Tensor, "*b c"],
    K: Float[Tensor, "*b N c"],
    P: Float[Tensor, "*b N c"],
    absent: Float[Tensor, "*b N"] | None = None,
) -> Float[Tensor, "b n c"]:
    r"""Adapted features :math:`\hat X = A \odot X + B` (Eq. 6), one domain for all or (leading b) one a sample.

    >>> X = torch.randn(2, 6, 4)
    >>> torch.equal(adapt(X, torch.ones(4), torch.randn(3, 4), torch.zeros(3, 4)), X)
    True
    """
    return A.unsqueeze(-2) * X + bias(X, K, P, absent)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrototypeConfig:
    """What a domain learns.  The defaults are the paper's indoor setting; the switches are its ablation table."""

    image_size: int = 10  # N_I, also of the bottleneck
    depth_size: int = 5  # N_z
    init: Literal["identity", "official"] = "identity"
    use_global: bool = True
    use_projection: bool = True  # False: free keys K instead of K = P W
    stop_gradient: bool = True
    layers: tuple[str, ...] | None = None  # None = Backbone.default_layers
    descriptor_weight: float = 1.0  # w_dr
    separation: float = 0.25  # 1/w_jk times the number of other domains
    learn_descriptor: bool = True
    projection_rank: int | None = None  # None = full c x c W, else W = U V of this rank
    parts: tuple[str, ...] = ()  # of the network, the domain's own copies or changes (extras.py); the paper has none
    factors: dict[str, float] | None = None  # of the learning rate by kind (A, P, W, parts ...); None: the method's

    def __post_init__(self) -> None:
        if not (1 <= self.image_size <= 65536 and 1 <= self.depth_size <= 65536):  # strangers' files name any number
            raise ConfigError(f"prototype set sizes are 1 to 65536, got {self.image_size} and {self.depth_size}")
        if self.projection_rank is not None and not 1 <= self.projection_rank <= 65536:
            raise ConfigError(f"projection_rank must be None or 1 to 65536, got {self.projection_rank}")

    def size(self, modality: Modality) -> int:
        return self.depth_size if modality is Modality.DEPTH else self.image_size


class Values(NamedTuple):
    """A, K, P of one layer, for one domain or (leading dimension) for each sample of a batch."""

    A: Tensor
    K: Tensor
    P: Tensor
    absent: Tensor | None = None


class PrototypeSet(nn.Module):
    """Prototypes of one latent layer for one domain: A (c), P (N, c), W (c, c)."""

    def __init__(self, channels: int, size: int, config: PrototypeConfig, generator: torch.Generator) -> None:
        super().__init__()
        c, identity = channels, config.init == "identity"
        std = math.sqrt((1 if identity else 2) / c)  # official: Kaiming

        def normal(*shape: int, std: float) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator) * std)

        if config.use_global:
            self.A = nn.Parameter(torch.ones(c)) if identity else normal(c, std=math.sqrt(2))
        else:
            self.register_buffer("A", torch.ones(c))
        self.P = normal(size, c, std=0.1 if identity else std)
        self.stop_gradient = config.stop_gradient
        if not config.use_projection:
            self.K = normal(size, c, std=std)
        elif config.projection_rank is None:
            self.W = normal(c, c, std=std)
        else:  # the product of the factors has the variance of the full W
            rank = min(config.projection_rank, c)
            self.U, self.V = normal(c, rank, std=math.sqrt(std)), normal(rank, c, std=math.sqrt(std / rank))

    def values(self) -> Values:
        """A, the keys (Eq. 7) and P as ``adapt`` takes them."""
        if hasattr(self, "K"):
            return Values(self.A, self.K, self.P)
        W = self.W if hasattr(self, "W") else self.U @ self.V
        return Values(self.A, keys(self.P, W, stop_gradient=self.stop_gradient), self.P)

    def forward(self, X: Float[Tensor, "b n c"]) -> Float[Tensor, "b n c"]:
        return adapt(X, *self.values())


class DomainPrototypes(OneLine, nn.Module):
    """All that is learned of one domain: a prototype set per latent layer and the descriptor r.

    The base domain D_1 (``base=True``) has only a descriptor: the network itself is its model.
    """

    def __init__(
        self, specs: Sequence[LatentSpec], channels: int, config: PrototypeConfig, *, base: bool = False, seed: int = 0
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.config, self.base = config, base
        self.parts = nn.ModuleDict()  # of the decoder, the domain's own (extras.py)
        self.registration: Tensor | None  # (s, x, y) of geometry.register, where the picture does not lie on its depth
        self.register_buffer("registration", None)
        self.gate: Tensor | None  # (least, most) share of pixels with points for which it answers; beyond: the base
        self.register_buffer("gate", None)
        self.sets = nn.ModuleDict()
        for spec in () if base else specs:
            self.sets[spec.name] = PrototypeSet(spec.channels, config.size(spec.modality), config, generator)
        self.descriptor = nn.Parameter(torch.randn(channels, generator=generator))

    def values(self) -> dict[str, Values]:
        return {name: s.values() for name, s in self.sets.items() if isinstance(s, PrototypeSet)}


def apply(
    latents: Mapping[str, Tensor], values: Mapping[str, Values], specs: Sequence[LatentSpec]
) -> dict[str, Tensor]:
    """Every adapted latent layer; layers without prototypes pass through."""
    adapted: dict[str, Tensor] = {}
    for spec in specs:
        X = latents[spec.name]
        if spec.name not in values:
            adapted[spec.name] = X
        elif spec.layout == "bnc":
            adapted[spec.name] = adapt(X, *values[spec.name])
        else:
            adapted[spec.name] = adapt(X.flatten(2).transpose(1, 2), *values[spec.name]).transpose(1, 2).reshape_as(X)
    return adapted


def gather(
    domains: Sequence[DomainPrototypes], index: Int[Tensor, "b"], specs: Sequence[LatentSpec]
) -> dict[str, Values]:
    """The values of domain ``index[i]`` for sample i: a mixed batch in one pass.

    Sets of different size are padded, and a domain that leaves a layer alone is the identity there (A = 1, P = 0).
    """
    tables = [d.values() for d in domains]
    gathered: dict[str, Values] = {}
    for spec in specs:
        rows = [t.get(spec.name) for t in tables]
        size = max((len(r.P) for r in rows if r is not None), default=0)
        if size:
            padded = [_padded(r, domains[0].descriptor.new_zeros(size, spec.channels)) for r in rows]
            gathered[spec.name] = Values(*(torch.stack(column)[index] for column in zip(*padded, strict=True)))
    return gathered


def _padded(values: Values | None, zeros: Float[Tensor, "N c"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if values is None:
        return torch.ones_like(zeros[0]), zeros, zeros, zeros[:, 0]
    K, P = (torch.cat([t, zeros[len(t) :]]) for t in (values.K, values.P))
    absent = torch.cat([zeros[: len(values.P), 0], torch.full_like(zeros[len(values.P) :, 0], -math.inf)])
    return values.A, K, P, absent
