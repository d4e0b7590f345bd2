"""Faster ways to the same step: another layout of the memory, half precision, latents and frames that are kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import nn

from protodepth.data.frame import Frame, FrameDataset
from protodepth.errors import ConfigError
from protodepth.features import GIB, FeatureCache
from protodepth.methods.base import Method

FEW_PIXELS = 2**15  # of a batch
FRAMES_KEPT = 512 * 2**20  # bytes of frames that are not read again


def half_if_fast(device: torch.device) -> Literal["bfloat16"] | None:
    """bfloat16 where the processor multiplies in it, which is half as fast again; else None, single precision."""
    return "bfloat16" if device.type == "cpu" and torch.cpu._is_avx512_bf16_supported() else None


@contextmanager
def threads_for(pixels: int) -> Iterator[int]:
    """One thread for small batches: two that wait for each other beside another busy program took four times the CPU.

    A fixed number of pixels, and no measurement at the start of each run: another number of threads may give other
    last bits, and a run should not depend on how busy the machine was.
    """
    before = torch.get_num_threads()
    if pixels >= FEW_PIXELS or before == 1:
        yield before
        return
    torch.set_num_threads(1)
    try:
        yield 1
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, slots=True)
class KeptFrames:
    """Frames that are read once, as far as the memory for them goes: a short recording is seen a hundred times."""

    data: FrameDataset
    most: int = FRAMES_KEPT
    kept: dict[int, Frame] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Frame:
        if index in self.kept:
            return self.kept[index]
        frame = self.data[index]
        arrays = (frame.image, frame.sparse_depth, *frame.neighbours)
        if (len(self.kept) + 1) * sum(a.nbytes for a in arrays) <= self.most:
            self.kept[index] = frame
        return frame


def check_memory_layout(network: nn.Module, device: torch.device) -> None:
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
