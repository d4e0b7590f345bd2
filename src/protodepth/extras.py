"""What a domain may keep beside its prototypes: where its picture lies, and parts of the decoder of its own.

Nothing here is the paper's.  Both are stored per domain and touch no other, so nothing old is forgotten by them.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from protodepth.backbones.base import Backbone, count_parameters
from protodepth.errors import UnknownNameError
from protodepth.geometry import Registration, register
from protodepth.prototypes import DomainPrototypes
from protodepth.types import Batch, Depth, Latents, Overhead

Kept = Sequence[DomainPrototypes | None]  # of each sample; None: the network as it is


def registered(batch: Batch, kept: Kept) -> Batch:
    """The pictures where their domains' depth sees them; the batch itself where nothing moves."""
    places = [None if domain is None else domain.registration for domain in kept]
    if all(place is None for place in places):
        return batch
    still = batch.image.new_tensor(Registration())
    rows = torch.stack([still if place is None else place for place in places])
    return replace(batch, image=register(batch.image, rows))


class DecoderParts(nn.ModuleDict):
    """DecoderParts of a network that stay in ``eval()`` whatever ``train()`` says, as the network does."""

    def train(self, mode: bool = True) -> "DecoderParts":
        return super().train(False)


def copy_parts(backbone: Backbone, names: Sequence[str]) -> nn.ModuleDict:
    """Copies of the named parts of the decoder, to be learned for one domain."""
    for name in names:
        if name not in backbone.decoder_parts:
            raise UnknownNameError(f"part of {backbone.name}'s decoder", name, backbone.decoder_parts)
    children = dict(backbone.named_children())
    return DecoderParts({name: copy.deepcopy(children[name]) for name in names}).eval()


def with_parts(backbone: Backbone, parts: nn.Module) -> Backbone:
    """The network with these parts in place of its own; everything else is shared, and the network itself untouched."""
    own = copy.copy(backbone)
    own._modules = {**backbone._modules, **parts._modules}
    return own


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
