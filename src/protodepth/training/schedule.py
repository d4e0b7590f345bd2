"""How long and how fast a training goes: steps or epochs, batch, learning rates and their decay, precision."""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from protodepth.data.augment import AugmentConfig
from protodepth.errors import ConfigError

LARGEST_RATE = 1e3  # with larger ones a single step takes weights to infinity


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A training's schedule: how long, how fast, with what."""

    steps: int = 500
    batch_size: int = 2  # of all processes together
    rate: float = 1e-3
    pose_rate: float = 1e-3
    decay: Literal["cosine", "constant", "steps"] = "cosine"
    milestones: tuple[tuple[float, float], ...] = ()  # decay="steps": (share of the steps, factor) from that share on
    clip: float | None = 1.0  # largest gradient norm of each group of parameters; None or inf: no limit
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    workers: int = 0
    save_every: int = 200
    # Below, None is the plain way and is not written down:
    # recipes and bench folders from before these settings stay the same.
    precision: Literal["float32", "bfloat16", "float16"] | None = (
        None  # of the networks; losses and weights are float32
    )
    channels_last: bool | None = None  # layout of the network's weights and images
    epochs: float | None = None  # how often every frame is seen; given, ``steps`` follows from the domain
    views: int | None = None  # the random changes of the input repeat after so many steps; None = never
    cache: float | None = None  # GiB for the latents of a frozen network: what is seen again is not encoded again

    def __post_init__(self) -> None:
        if self.epochs is not None and not self.epochs > 0:
            raise ConfigError(f"epochs must be positive, got {self.epochs}")
        if self.views is not None and self.views < 1:
            raise ConfigError(f"views must be at least 1, got {self.views}")
        if self.cache is not None and not self.cache > 0:
            raise ConfigError(f"cache is memory in GiB and must be positive, got {self.cache}")
        if self.cache is not None and self.views is None and not self.augment.still:
            raise ConfigError(
                "cache keeps the latents of inputs that come again, and this augmentation changes every input: "
                "leave cache out, set augment to change nothing, or give views, after how many steps changes repeat"
            )
        if self.steps < 1 or self.batch_size < 1 or self.rate <= 0:
            raise ConfigError(
                f"steps, batch size and rate must be positive, got {self.steps}, {self.batch_size}, {self.rate}"
            )
        if not (self.rate <= LARGEST_RATE and 0 <= self.pose_rate <= LARGEST_RATE):
            raise ConfigError(
                f"rate and pose_rate must be numbers up to {LARGEST_RATE:g}, got {self.rate} and {self.pose_rate}"
            )
        if self.save_every < 1 or self.workers < 0 or (self.clip is not None and not self.clip > 0):
            raise ConfigError(
                "save_every must be at least 1, workers at least 0 and clip positive, "
                f"got {self.save_every}, {self.workers} and {self.clip}"
            )

    @property
    def half(self) -> torch.dtype | None:
        """The type that networks compute in, if it is not float32."""
        return {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(self.precision or "")

    def counted(self, frames: int) -> "Schedule":
        """With the steps that so many training frames make of the epochs; unchanged if none are given.

        >>> Schedule(epochs=2.0, batch_size=12).counted(100).steps
        17
        """
        if self.epochs is None:
            return self
        return replace(self, steps=max(1, math.ceil(self.epochs * frames / self.batch_size - 1e-9)), epochs=None)

    def factor(self, step: int) -> float:
        """Multiplier of the learning rates at a step."""
        share = step / self.steps
        if self.decay == "cosine":
            return 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))
        if self.decay == "steps":
            return next((f for start, f in reversed(self.milestones) if share >= start), 1.0)
        return 1.0
