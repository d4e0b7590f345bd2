"""The base class of networks: what one must offer so that prototypes can adapt it; depth range, parameter count."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from protodepth.losses import ReductionName
from protodepth.registry import Registry
from protodepth.types import Batch, Depth, Latents, LatentSpec

backbones: Registry[type["Backbone"]] = Registry("backbone")


class Backbone(nn.Module, ABC):
    """An encoder-decoder with a declared latent space.

    A subclass sets ``latent_specs`` (exactly one is the bottleneck), ``default_layers`` (those that get a prototype set
    unless told otherwise) and ``depth_range`` in its constructor, and offers named ``presets``.  Its constructor takes
    plain values only: ``config()`` returns them, so that ``backbones.get(name)(**config)`` builds the same network
    again.
    """

    name: ClassVar[str] = ""
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    default_reduction: ClassVar[ReductionName] = "kbnet"  # how its own training reduces the losses (losses.py)
    bounded: ClassVar[bool] = True  # every answer lies within depth_range; False: the range is what the network is for
    sizes_in_graph: ClassVar[bool] = (
        True  # an exported graph takes any size; False: the number of its levels depends on it
    )
    blocks_in_graph: bool = True  # export in the form that ONNX Runtime runs fastest, where a network has one
    decoder_parts: ClassVar[tuple[str, ...]] = ()  # submodules that only ``decode`` uses: a domain may have its own
    encoder_parts: ClassVar[tuple[str, ...]] = ()  # the same of ``encode``
    selection: ClassVar[Literal["descriptor", "gaussian"]] = "descriptor"  # what a Rule's "auto" means
    default_pose: ClassVar[dict[str, Any]] = {}  # arguments of the pose network that its training uses

    latent_specs: tuple[LatentSpec, ...]
    default_layers: tuple[str, ...]
    depth_range: tuple[float, float]

    @abstractmethod
    def encode(self, batch: Batch) -> Latents:
        """The features that prototypes adapt, and what the decoder needs besides."""

    @abstractmethod
    def decode(self, latents: Latents) -> Depth:
        """Dense depth in metres from (adapted) features."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able."""

    def forward(self, batch: Batch) -> Depth:
        return self.decode(self.encode(batch))

    def unfreeze(self) -> None:
        """Let every weight learn; networks with a part that never learns override this."""
        self.requires_grad_(True)

    @property
    def bottleneck(self) -> LatentSpec:
        """The layer whose average is the sample descriptor."""
        (spec,) = (s for s in self.latent_specs if s.bottleneck)
        return spec

    @classmethod
    def from_preset(cls, preset: str, **overrides: Any) -> "Backbone":
        """The network with named settings, some of them replaced."""
        from protodepth.errors import UnknownNameError

        if preset not in cls.presets:
            raise UnknownNameError(f"{cls.name} preset", preset, tuple(cls.presets))
        return cls(**{**cls.presets[preset], **overrides})


def count_parameters(module: nn.Module) -> int:
    """How many weights a network has."""
    return sum(p.numel() for p in module.parameters())


def official_range(value: Tensor, depth_range: tuple[float, float]) -> Tensor:
    r"""Sigmoid output to depth: :math:`d = d_{min} / (\sigma + d_{min}/d_{max})`, as KBNet, VOICED and ScaffNet do."""
    low, high = depth_range
    return low / (value + low / high)


def centre(depth_range: tuple[float, float]) -> float:
    r"""What to add before the sigmoid of :func:`official_range` so that 0 becomes :math:`\sqrt{d_{min} d_{max}}`.

    The published heads have no bias: an untrained network answers :math:`2 d_{min}`.  From 0.2 m the sparse loss is
    nearly flat, and what starts there learns slowly (600 steps in `room`: VOICED 513 mm, centred 281;
    KBNet 414 and 293) or never (KBNet with 0.1 to 100 m in `street`).

    >>> import torch
    >>> round(float(official_range(torch.sigmoid(torch.tensor(centre((0.1, 10.0)))), (0.1, 10.0))), 4)
    1.0
    """
    low, high = depth_range
    start = math.sqrt(low / high) - low / high
    return math.log(start / (1 - start))


def weight_bytes(build: Callable[[], nn.Module]) -> int:
    """What the weights of the network that ``build`` makes take, without taking it."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return sum(value.numel() * value.element_size() for value in build().state_dict().values())
