"""The network with its prototypes as constants, in the form that is exported."""

from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn

from protodepth.descriptors import sample_descriptor, select, similarity
from protodepth.errors import ConfigError
from protodepth.extras import own_encoder, with_parts
from protodepth.features import choose_rows
from protodepth.geometry import Registration, register
from protodepth.model import ProtoDepth
from protodepth.prototypes import Values, apply, gather
from protodepth.types import BASE, Batch, Depth, Float, Int, Latents


class Graph(nn.Module):
    """The network with the prototypes of one domain, or of all of them and the choice, as constants."""

    descriptors: Tensor
    whiten: Tensor
    means: Tensor

    def __init__(self, model: ProtoDepth, domain: str | None) -> None:
        super().__init__()
        names, descriptors = model.descriptors()
        if domain is None and not names:
            domain = self._only(model)
        used = [None if n == BASE else model.domain(n) for n in (names if domain is None else (domain,))]
        self.backbone = deepcopy(model.backbone).cpu()
        self.own = nn.ModuleList([nn.ModuleDict() if d is None else deepcopy(d.parts).cpu() for d in used])
        self.scaffolded = hasattr(self.backbone, "encode_scaffolded")
        self.domain, self.names = domain, names if domain is None else ()
        if domain is None:
            rows = torch.arange(len(names), device=descriptors.device)
            values = gather([model.domain(n) for n in names], rows, model.backbone.latent_specs)
            self.register_buffer("descriptors", descriptors.detach().cpu().clone())
            gaussians = model.statistics.gaussians(names) if model.backbone.selection == "gaussian" else None
            self.register_buffer("whiten", None if gaussians is None else gaussians.whiten.clone())
            self.register_buffer("means", None if gaussians is None else gaussians.means.clone())
        else:
            values = {} if domain == BASE else model.domain(domain).values()
        self.places: Tensor | None
        places = [None if d is None else d.registration for d in used]
        moved = [torch.tensor(Registration()) if place is None else place.cpu() for place in places]
        self.register_buffer("places", None if all(p is None for p in places) else torch.stack(moved))
        gates = [None if d is None else d.gate for d in used]
        bounds = [torch.tensor([0.0, 2.0]) if gate is None else gate.cpu() for gate in gates]
        self.gates: Tensor | None
        self.register_buffer("gates", None if all(g is None for g in gates) else torch.stack(bounds))
        self.layers = tuple(values)
        for layer, parts in values.items():
            for part, tensor in parts._asdict().items():
                self.register_buffer(f"{layer}__{part}", None if tensor is None else tensor.detach().cpu().clone())

    @staticmethod
    def _only(model: ProtoDepth) -> str:
        if model.domains:
            raise ConfigError(f"no domain has a learned descriptor to choose by: give --domain, one of {model.domains}")
        return BASE

    def values(self, index: Int[Tensor, "b"] | None) -> dict[str, Values]:
        """The constants of each layer; with ``index`` a row for each sample."""
        table: dict[str, Values] = {}
        for layer in self.layers:
            parts = [getattr(self, f"{layer}__{part}") for part in Values._fields]
            table[layer] = Values(*(p if index is None or p is None else p[index] for p in parts))
        return table

    def encode(self, batch: Batch, scaffold: Tensor | None, parts: nn.Module | None = None) -> Latents:
        """By the network, or with these parts in it."""
        net = self.backbone if parts is None else with_parts(self.backbone, parts)
        return net.encode(batch) if scaffold is None else net.encode_scaffolded(batch, scaffold)  # type: ignore[no-any-return,operator]

    def _own_latents(self, batch: Batch, scaffold: Tensor | None, latents: Latents, index: Int[Tensor, "b"]) -> Latents:
        """Each sample by the encoder of domain ``index``; ``latents``: the network's, where a domain has none."""
        for n, parts in enumerate(self.own):
            if own_encoder(self.backbone, parts):
                latents = choose_rows(index == n, self.encode(batch, scaffold, parts), latents)
        return latents

    def _nearest(self, s: Float[Tensor, "b c"]) -> Int[Tensor, "b"]:
        """By the Mahalanobis distance, as selection.Gaussians does."""
        return ((s @ self.whiten.T)[:, None] - self.means[None]).square().sum(-1).argmin(-1)

    def decode(self, latents: Latents, index: Int[Tensor, "b"] | None) -> Depth:
        """By the one domain's decoder, or each sample by that of domain ``index``."""
        if index is None:
            return with_parts(self.backbone, self.own[0]).decode(latents)
        if not any(parts._modules for parts in self.own):
            return self.backbone.decode(latents)
        depths = torch.stack([with_parts(self.backbone, parts).decode(latents) for parts in self.own])
        return depths[index, torch.arange(index.shape[0])]

    def _gated(self, depth: Depth, batch: Batch, scaffold: Tensor | None, index: Int[Tensor, "b"] | None) -> Depth:
        """The domain's depth or, beyond the densities of points that it is for, the base's."""
        if self.gates is None:
            return depth
        least, most = (self.gates[:1] if index is None else self.gates[index]).unbind(-1)
        share = (batch.sparse_depth > 0).to(depth.dtype).mean((1, 2, 3))
        plain = self.backbone.decode(self.encode(batch, scaffold))
        return torch.where(((share >= least) & (share < most)).view(-1, 1, 1, 1), depth, plain)

    def forward(
        self, image: Tensor, sparse_depth: Tensor, intrinsics: Tensor, scaffold: Tensor | None = None
    ) -> Depth | tuple[Depth, Int[Tensor, "b"], Float[Tensor, "b k"]]:
        net, specs = self.backbone, self.backbone.latent_specs
        batch = Batch(image=image, sparse_depth=sparse_depth, intrinsics=intrinsics)
        placed = batch
        if self.domain is not None and self.places is not None:
            placed = replace(batch, image=register(image, self.places.expand(image.shape[0], 3)))
        if self.domain is not None:
            latents = self.encode(placed, scaffold, self.own[0])
            depth = self.decode(latents.with_layers(apply(latents.layers, self.values(None), specs)), None)
            return self._gated(depth, batch, scaffold, None)
        latents = self.encode(placed, scaffold)
        s = sample_descriptor(latents.layers[net.bottleneck.name], net.bottleneck.layout)
        cosines = similarity(s, self.descriptors)
        index = select(cosines) if self.whiten is None else self._nearest(s)
        if self.places is not None:  # a second look, with the pictures where their domains' depth sees them
            placed = replace(batch, image=register(image, self.places[index]))
            latents = self.encode(placed, scaffold)
        latents = self._own_latents(placed, scaffold, latents, index)
        depth = self.decode(latents.with_layers(apply(latents.layers, self.values(index), specs)), index)
        return self._gated(depth, batch, scaffold, index), index, cosines


def random_batch(
    size: tuple[int, int], count: int, depth_range: tuple[float, float], seed: int = 0, share: float = 0.05
) -> Batch:
    """A batch to try a graph on: noise as images, some pixels with a depth of the whole range, an ordinary camera.

    >>> random_batch((16, 24), 2, (0.1, 8.0)).size
    (16, 24)
    """
    random = torch.Generator().manual_seed(seed)
    height, width = size
    low, high = depth_range
    depth = low * (high / low) ** torch.rand(count, 1, height, width, generator=random)
    shown = torch.rand(count, 1, height, width, generator=random) < share
    shown[..., height // 2, width // 2] = True
    K = torch.tensor([[0.9 * width, 0, width / 2], [0, 0.9 * width, height / 2], [0, 0, 1]])
    return Batch(
        image=torch.rand(count, 3, height, width, generator=random),
        sparse_depth=depth * shown,
        intrinsics=K.expand(count, 3, 3).contiguous(),
    )
