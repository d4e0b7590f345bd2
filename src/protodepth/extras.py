"""What a domain may keep beside its prototypes: where its picture lies, parts of the network of its own, and for which
densities of points it answers.

Nothing here is the paper's.  All of it is stored per domain and touches no other, so nothing old is forgotten by it.
A domain's own parts (``PrototypeConfig.parts``) are copies of named parts of the decoder or the encoder, or small
changes of every layer that it has no copy of: ``scales`` or ``lowrank-R``.
"""

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from protodepth import features
from protodepth.backbones.base import Backbone, count_parameters
from protodepth.errors import UnknownNameError
from protodepth.geometry import Registration, register
from protodepth.prototypes import DomainPrototypes
from protodepth.types import BASE, Batch, Depth, Latents, Overhead

Kept = Sequence[DomainPrototypes | None]  # of each sample; None: the network as it is
SCALES, LOW_RANK = "scales", "lowrank-"
M = TypeVar("M", bound=nn.Module)


def registered(batch: Batch, kept: Kept) -> Batch:
    """The pictures where their domains' depth sees them; the batch itself where nothing moves."""
    places = [None if domain is None else domain.registration for domain in kept]
    if all(place is None for place in places):
        return batch
    still = batch.image.new_tensor(Registration())
    rows = torch.stack([still if place is None else place for place in places])
    return replace(batch, image=register(batch.image, rows))


def answering(batch: Batch, domains: Sequence[str], held: Mapping[str, DomainPrototypes]) -> tuple[str, ...]:
    """Who answers for each sample: its domain or, beyond the densities of points that this one is for, the base."""
    gates = [None if name not in held else held[name].gate for name in domains]
    if all(gate is None for gate in gates):
        return tuple(domains)
    shares = (batch.sparse_depth > 0).float().mean((1, 2, 3)).tolist()
    rows = zip(domains, gates, shares, strict=True)
    return tuple(n if gate is None or float(gate[0]) <= share < float(gate[1]) else BASE for n, gate, share in rows)


class ChannelScale(nn.Module):
    """A factor and a shift for every channel that a layer gives; they begin at 1 and 0, which changes no bit."""

    def __init__(self, layer: nn.Conv2d | nn.Linear) -> None:
        super().__init__()
        self.scale, self.shift = (nn.Parameter(f(len(layer.weight))) for f in (torch.ones, torch.zeros))

    def forward(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        own = weight * self.scale.view(-1, *(1 for _ in weight.shape[1:]))
        return own, self.shift if bias is None else bias * self.scale + self.shift


class LowRank(nn.Module):
    """A matrix of low rank that is added to a layer's weights; it begins as zero."""

    def __init__(self, layer: nn.Conv2d | nn.Linear, rank: int) -> None:
        super().__init__()
        outputs, inputs = len(layer.weight), layer.weight[0].numel()
        random = torch.Generator().manual_seed(inputs)
        self.up = nn.Parameter(torch.zeros(outputs, rank))
        self.down = nn.Parameter(torch.randn(rank, inputs, generator=random) / inputs**0.5)

    def forward(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return weight + (self.up @ self.down).view_as(weight), bias


class LayerChanges(nn.ModuleDict):
    """A change of each of many layers, by the layer's path with / for its dots."""


class DomainParts(nn.ModuleDict):
    """Parts of a network that stay in ``eval()`` whatever ``train()`` says, as the network does."""

    def train(self, mode: bool = True) -> "DomainParts":
        return super().train(False)


def copy_parts(backbone: Backbone, names: Sequence[str]) -> nn.ModuleDict:
    """What a domain learns of the named parts: copies as the network has them, or changes that begin as none."""
    copied = [name for name in names if name != SCALES and not re.fullmatch(LOW_RANK + "[0-9]{1,3}", name)]
    known = (*backbone.decoder_parts, *backbone.encoder_parts)
    for name in copied:
        if name not in known:
            raise UnknownNameError(f"part of {backbone.name}", name, (*known, SCALES, f"{LOW_RANK}4"))
    children, parts = dict(backbone.named_children()), DomainParts()
    for name in names:
        if name in copied:
            parts[name] = copy.deepcopy(children[name])
        else:
            rank = 0 if name == SCALES else int(name.removeprefix(LOW_RANK))
            parts[name] = _changes(backbone, [part for part in known if part not in copied], rank)
    return parts.requires_grad_(True).eval()


def _changes(backbone: Backbone, within: Sequence[str], rank: int) -> LayerChanges:
    """For every convolution and linear layer of these parts: factors and shifts, or (rank > 0) a matrix to add."""
    changes = LayerChanges()
    for path, layer in backbone.named_modules():
        if isinstance(layer, nn.Conv2d | nn.Linear) and path.split(".")[0] in within:
            changes[path.replace(".", "/")] = LowRank(layer, rank) if rank else ChannelScale(layer)
    return changes


def with_parts(backbone: Backbone, parts: nn.Module) -> Backbone:
    """The network with these parts in place of its own; everything else is shared, and the network itself untouched."""
    own = _branch(backbone)
    own.__dict__.pop("encode", None)  # latents of the network as it is (training/fast.py keeps them) are not this one's
    own._modules.update((n, p) for n, p in parts._modules.items() if not isinstance(p, LayerChanges))
    for part in parts._modules.values():
        for path, change in part._modules.items() if isinstance(part, LayerChanges) else ():
            _change_layer(own, path.split("/"), change)
    return own


def _branch(module: M) -> M:
    """The same module with places for its children of its own."""
    own = copy.copy(module)
    own._modules = dict(module._modules)
    return own


def _change_layer(network: nn.Module, path: Sequence[str], change: nn.Module | None) -> None:
    """Put a changed layer at a path, without changing anything that the network shares with others."""
    assert change is not None
    for key in path:
        child = network._modules[key]
        assert child is not None
        network._modules[key] = child = _branch(child)
        network = child
    weight, bias = change(network.weight, network.bias)
    network._parameters = {"weight": weight, "bias": bias}


def own_encoder(backbone: Backbone, parts: nn.Module) -> bool:
    """Whether these parts change what the encoder says."""
    return any(name not in backbone.decoder_parts for name in parts._modules)


def encode(backbone: Backbone, batch: Batch, latents: Latents, kept: Kept, *, chosen: bool = False) -> Latents:
    """Each sample by its domain's encoder, its picture where the domain's depth sees it.

    ``latents``: the network's own, for samples whose domain has none.  Where the domains were ``chosen``, they are of
    the pictures as they came, which is what is chosen by.
    """
    if chosen and (placed := registered(batch, kept)) is not batch:
        latents = backbone.encode(placed)
    for domain in {id(d): d for d in kept if d is not None and own_encoder(backbone, d.parts)}.values():
        own = with_parts(backbone, domain.parts).encode(registered(batch, kept))
        rows = [d is domain for d in kept]
        latents = own if all(rows) else features.choose_rows(torch.tensor(rows), own, latents)
    return latents


def decode(backbone: Backbone, latents: Latents, kept: Kept) -> Depth:
    """Each sample by its domain's decoder: one pass for all samples that share one, and rows of several otherwise."""
    owners = list({id(d): d for d in kept if d is not None and len(d.parts)}.values())
    if not owners:
        return backbone.decode(latents)
    own = [with_parts(backbone, d.parts).decode(latents) for d in owners]
    if len(owners) == 1 and all(d is owners[0] for d in kept):
        return own[0]
    plain = any(d is None or not len(d.parts) for d in kept)
    depth = backbone.decode(latents) if plain else own[0]
    for domain, other in zip(owners, own, strict=True):
        depth = torch.where(_rows([d is domain for d in kept], depth), other, depth)
    return depth


def overhead(backbone: Backbone, domains: Mapping[str, DomainPrototypes]) -> Overhead:
    """Exact counts of what each domain adds to the network, layer by layer and part by part."""
    learned = {name: (*d.sets.items(), *d.parts.items()) for name, d in domains.items()}
    layers = {name: {key: count_parameters(s) for key, s in items} for name, items in learned.items()}
    return Overhead(count_parameters(backbone), {n: d.descriptor.numel() for n, d in domains.items()}, layers)


def _rows(chosen: list[bool], like: Tensor) -> Tensor:
    return torch.tensor(chosen, device=like.device).view(-1, 1, 1, 1)
