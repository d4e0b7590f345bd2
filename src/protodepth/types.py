"""The shared nouns: what a batch, a latent layer and a prediction are."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Image = Float[Tensor, "b 3 h w"]
Depth = Float[Tensor, "b 1 h w"]  # metres, z-depth
Mask = Float[Tensor, "b 1 h w"]  # 1 = counts, 0 = does not
LossTerms = dict[str, Tensor]

BASE = "base"  # the name of the un-adapted network


class Shown:
    """A picture of itself: in a notebook as the last line of a cell, and anywhere by ``show()``.

    What draws stands above this file in the house, so it is looked up when asked.
    """

    __slots__ = ()

    def show(self) -> Any:
        """Draw with matplotlib, in a window or below the cell; returns the figure."""
        return import_module("protodepth.report.show").show(self)

    def _repr_html_(self) -> str:
        return str(import_module("protodepth.report.show").html(self))


class OneLine:
    """A network's part that says how many parameters each of its layers has: layers themselves take a hundred lines."""

    def __repr__(self) -> str:
        sizes: dict[str, int] = {}
        for name, values in cast(torch.nn.Module, self).named_parameters():
            layer = ".".join(name.split(".")[:2])
            sizes[layer] = sizes.get(layer, 0) + values.numel()
        layers = ", ".join(f"{layer} {size:,}" for layer, size in sizes.items())
        return f"{type(self).__name__}({sum(sizes.values()):,} parameters: {layers})"


@dataclass(frozen=True, slots=True)
class Share:
    """The rows of a batch that one of several processes has: ``start``, ``start + step``, ... below ``total``.

    A process without a row borrows the first: it is moved along with the others and counts nothing.

    >>> Share(1, 2, 5).count, Share(1, 2, 5).weight, list(range(5))[Share(1, 2, 5).rows]
    (2, 0.4, [1, 3])
    >>> Share(1, 2, 1).weight, [7][Share(1, 2, 1).rows]
    (0.0, [7])
    """

    start: int
    step: int
    total: int

    @property
    def count(self) -> int:
        return len(range(self.start, self.total, self.step))

    @property
    def weight(self) -> float:
        """What the mean over these rows counts in the mean over all."""
        return self.count / self.total

    @property
    def rows(self) -> slice:
        return slice(self.start, self.total, self.step) if self.count else slice(0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """b frames of one size.  Only ``image``, ``sparse_depth`` and ``intrinsics`` are needed to predict."""

    image: Image  # I_t in [0, 1]
    sparse_depth: Depth  # z; 0 where no point
    intrinsics: Float[Tensor, "b 3 3"]  # K, pixels; pixel centres at integers
    neighbours: tuple[Image, ...] = ()  # I_tau, training only
    poses: tuple[Float[Tensor, "b 4 4"], ...] = ()  # g_{tau t}: from camera t to camera tau
    ground_truth: Depth | None = None  # evaluation only; fit() never passes it to a Method
    hidden_depth: Depth | None = None  # sparse points that the network is not shown; its loss is judged by them
    domain: str | None = None  # metadata; the model never reads it
    share: Share | None = None  # which rows of a larger batch these are; None = all

    def __len__(self) -> int:
        return self.image.shape[0]

    @property
    def size(self) -> tuple[int, int]:
        """(h, w)"""
        return self.image.shape[-2], self.image.shape[-1]

    @property
    def total(self) -> int:
        """Frames of the whole batch, of which this process may have a share."""
        return len(self) if self.share is None else self.share.total

    def head(self, count: int) -> "Batch":
        """The first rows of the whole batch, as far as they are here."""
        if self.share is None:
            return self[:count]
        share = Share(self.share.start, self.share.step, count)
        return replace(self[: max(share.count, 1)], share=share)

    def map(self, f: Callable[[Tensor], Tensor]) -> "Batch":
        """The same batch with ``f`` applied to every tensor."""
        changed: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Tensor):
                changed[item.name] = f(value)
            elif isinstance(value, tuple):
                changed[item.name] = tuple(f(v) for v in value)
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> "Batch":
        """On another device."""
        return self.map(lambda t: t.to(device))

    def __getitem__(self, index: slice) -> "Batch":
        return self.map(lambda t: t[index])

    def singles(self) -> Iterator["Batch"]:
        """Each sample as a batch of one."""
        return (self[i : i + 1] for i in range(len(self)))

    def without_ground_truth(self) -> "Batch":
        """As a method that learns without labels may see it."""
        return replace(self, ground_truth=None)


class Modality(StrEnum):
    """Which sensor a latent layer carries; picks N_I or N_z.  FUSED uses N_I."""

    IMAGE = "image"
    DEPTH = "depth"
    FUSED = "fused"


@dataclass(frozen=True, slots=True)
class LatentSpec:
    """One latent layer: a skip connection or the bottleneck."""

    name: str  # e.g. "skip3_image"; letters, digits and underscores
    channels: int
    modality: Modality
    layout: Literal["bchw", "bnc"] = "bchw"  # CNN map or token list
    bottleneck: bool = False  # exactly one per backbone


@dataclass(frozen=True, slots=True)
class Latents:
    """What an encoder hands to its decoder."""

    layers: Mapping[str, Tensor]  # ordered like Backbone.latent_specs
    context: Mapping[str, Any] = field(default_factory=dict)  # what decode needs and nobody may adapt

    def with_layers(self, layers: Mapping[str, Tensor]) -> "Latents":
        return Latents({**self.layers, **layers}, self.context)


class Distances(Protocol):
    """How far each frame is from every domain; computed when it is first asked for (selection.py)."""

    @property
    def distance(self) -> Float[Tensor, "b k"]: ...

    @property
    def excess(self) -> Float[Tensor, "b"]: ...

    @property
    def unknown(self) -> Bool[Tensor, "b"]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPrediction:
    """What ``ProtoDepth.forward`` returns for b frames."""

    depth: Depth
    domains: tuple[str, ...]  # the prototype set used for each frame; "base" = the un-adapted network
    similarity: Float[Tensor, "b k"] | None  # cosine to each known descriptor, columns as in ``names``
    names: tuple[str, ...]  # domains that have a descriptor
    descriptor: Float[Tensor, "b c"]  # s, the sample descriptor
    context: Mapping[str, Any] = field(default_factory=dict)  # the encoder's context, for losses that need it
    distances: Distances | None = None  # how far the frames are from the known domains; None without statistics

    @property
    def distance(self) -> Float[Tensor, "b k"] | None:
        """Mahalanobis, columns as in ``names``."""
        return None if self.distances is None else self.distances.distance

    @property
    def excess(self) -> Float[Tensor, "b"] | None:
        """Smallest of distance / threshold; above 1 = unknown."""
        return None if self.distances is None else self.distances.excess

    @property
    def unknown(self) -> Bool[Tensor, "b"]:
        """Farther from every domain than its own frames are."""
        none = torch.zeros(len(self.domains), dtype=torch.bool, device=self.depth.device)
        return none if self.distances is None else self.distances.unknown

    def frame(self, index: int, batch: Batch | None = None) -> "Prediction":
        """One frame as arrays; with the batch it was made from it knows its image, points and camera."""

        def row(table: Tensor | None) -> dict[str, float]:
            return {} if table is None else dict(zip(self.names, table[index].tolist(), strict=True))

        return Prediction(
            depth=self.depth[index, 0].cpu().numpy(),
            domain=self.domains[index],
            similarity=row(self.similarity),
            unknown=bool(self.unknown[index]),
            distance=row(self.distance),
            excess=None if self.excess is None else float(self.excess[index]),
            image=None if batch is None else batch.image[index].permute(1, 2, 0).cpu().numpy(),
            sparse_depth=None if batch is None else batch.sparse_depth[index, 0].cpu().numpy(),
            intrinsics=None if batch is None else batch.intrinsics[index].cpu().numpy(),
        )


PredictBatch = Callable[[Batch], BatchPrediction]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Prediction(Shown):
    """One completed frame, as arrays.  A notebook shows its picture; ``show``, ``save`` and ``cloud`` do more.

    >>> Prediction(depth=np.full((2, 3), 1.5), domain="room", similarity={"room": 0.93})
    Prediction(2x3, 1.50 .. 1.50 m, domain room, similarity room 0.930)
    """

    depth: Float[np.ndarray, "h w"]  # metres
    domain: str
    similarity: dict[str, float]  # cosine to the descriptor of each domain
    unknown: bool = False  # unlike every known domain; see selection.Rule
    distance: dict[str, float] = field(default_factory=dict)  # Mahalanobis; empty where a domain has no statistics
    excess: float | None = (
        None  # smallest of distance / threshold: above 1 = unknown; average it over frames to be surer
    )
    image: Float[np.ndarray, "h w 3"] | None = None  # in [0, 1]; what it was made from, as the next two
    sparse_depth: Float[np.ndarray, "h w"] | None = None
    intrinsics: Float[np.ndarray, "3 3"] | None = None

    def __repr__(self) -> str:
        (h, w), low, high = self.depth.shape, float(self.depth.min()), float(self.depth.max())
        alike = ", ".join(f"{name} {value:.3f}" for name, value in self.similarity.items())
        words = [f"{h}x{w}", f"{low:.2f} .. {high:.2f} m", f"domain {self.domain}"]
        words += [f"similarity {alike}"] * bool(alike) + ["unknown"] * self.unknown
        return f"Prediction({', '.join(words)})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The depth, for whatever takes arrays: ``plt.imshow(p)``."""
        return np.array(self.depth, dtype=dtype, copy=True if copy is None else copy)

    def cloud(self, path: str | Path | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Points (n, 3) in metres, x right, y down, z forward, and their colours (n, 3); also as a file NAME.ply."""
        points, colours = import_module("protodepth.report.show").cloud(self, path)
        return points, colours

    def save(self, folder: str | Path) -> list[Path]:
        """Write depth.npy (metres), depth_color.png, prediction.json and cloud.ply; returns what was written."""
        return list(import_module("protodepth.report.show").save(self, folder))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the network sees of a batch (augmented), and the way back to the batch's own pixels."""

    batch: Batch
    undo: Callable[[Depth], tuple[Depth, Mask]]  # depth in the view -> (depth in the batch's frame, where it is valid)

    @classmethod
    def identity(cls, batch: Batch) -> "View":
        return cls(batch=batch, undo=lambda depth: (depth, torch.ones_like(depth)))


@dataclass(frozen=True, slots=True)
class Overhead:
    """Exact parameter counts of a model."""

    backbone: int
    descriptors: dict[str, int]  # of each domain
    layers: dict[str, dict[str, int]]  # domain -> layer -> A, P and W

    @property
    def domains(self) -> dict[str, int]:
        """Prototypes A, P, W of each domain, without its descriptor."""
        return {name: sum(counts.values()) for name, counts in self.layers.items()}

    @property
    def percent(self) -> dict[str, float]:
        """Prototype parameters of each domain in per cent of the backbone's."""
        return {name: 100 * count / self.backbone for name, count in self.domains.items()}


__all__ = [
    "BASE",
    "Batch",
    "BatchPrediction",
    "Bool",
    "Depth",
    "Distances",
    "Float",
    "Image",
    "Int",
    "LatentSpec",
    "Latents",
    "LossTerms",
    "Mask",
    "Modality",
    "Overhead",
    "Prediction",
    "Share",
    "View",
]
