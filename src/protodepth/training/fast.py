"""Faster ways to the same step: another layout of the memory, latents that are kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn

from protodepth.errors import ConfigError
from protodepth.features import GIB, FeatureCache
from protodepth.methods.base import Method


def check_layout(network: nn.Module, device: torch.device) -> None:
    """Refuse channels_last where it would destroy memory:
    oneDNN issue 6035, in the gradient of the weights of narrow 1x1 convolutions.
    """
    narrow = [
        name
        for name, m in network.named_modules()
        if isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1) and m.stride != (1, 1) and m.in_channels < 16
        if m.weight.requires_grad
    ]
    if narrow and device.type == "cpu":
        raise ConfigError(
            f"channels_last on a CPU: the gradient of {narrow[0]}, a 1x1 convolution with a stride and fewer than 16 "
            "channels, would write outside its memory (oneDNN issue 6035); leave channels_last out for this network, "
            "or use a GPU"
        )


@contextmanager
def kept_features(method: Method, limit: float | None) -> Iterator[FeatureCache | None]:
    """While a method learns on a frozen network, what the encoder says of an input that comes again is kept.

    A method that changes the network gets no cache: its latents differ from step to step.
    """
    frozen = not any(p.requires_grad for p in method.backbone.parameters())
    if limit is None or not frozen:
        yield None
        return
    network, cache = method.backbone, FeatureCache(int(limit * GIB))
    before = vars(network).get("encode")
    network.encode = partial(cache.encode, network.encode)  # type: ignore[method-assign]
    try:
        yield cache
    finally:
        if before is None:
            del network.encode
        else:
            network.encode = before  # type: ignore[method-assign]
