"""`scalefree` made wider without changing its answers: what a small network has learned, a larger one starts with.

Old channels keep their weights and see nothing of the new ones; new channels start at random and are listened to with
weights of zero, which learn from the first step on.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from protodepth.backbones.scalefree import ScaleFree
from protodepth.backbones.scalefree_graph import FEATURES
from protodepth.errors import ConfigError

Pieces = Sequence[int]  # channels that a layer reads, piece by piece as they are joined


def _inputs(network: ScaleFree) -> dict[str, Pieces]:
    """What each layer reads."""
    i, d, w = network.image_widths, network.depth_widths, network.decoder_widths
    out: dict[str, Pieces] = {"image_stages.0": (12,), "depth_stages.0": (FEATURES, i[0]), "last": w[:1], "head": w[:1]}
    for n in range(1, 5):
        out |= {f"image_stages.{n}.down": i[n - 1 : n], f"image_stages.{n}.mix": i[n : n + 1]}
        out |= {f"depth_stages.{n}.down": (d[n - 1], i[n - 1]), f"depth_stages.{n}.mix": d[n : n + 1]}
    for n in range(4):
        above = w[n + 1 : n + 2] if n < 3 else (i[4], d[4])
        out |= {f"merges.{n}.up": above, f"merges.{n}.join": (i[n], d[n]), f"merges.{n}.mix": w[n : n + 1]}
    return out


def _places(old: Pieces, new: Pieces) -> Tensor:
    """Where the old channels are among the new ones.

    >>> _places((2, 3), (4, 3)).tolist()
    [0, 1, 4, 5, 6]
    """
    begins = [sum(new[:k]) for k in range(len(new))]
    return torch.cat([torch.arange(begin, begin + width) for begin, width in zip(begins, old, strict=True)])


@torch.no_grad()
def widened(small: ScaleFree, large: ScaleFree) -> ScaleFree:
    """``large`` with the weights of ``small``: the same answers, and room to learn more."""
    pairs = [
        (getattr(small, name), getattr(large, name)) for name in ("image_widths", "depth_widths", "decoder_widths")
    ]
    if any(a > b for old, new in pairs for a, b in zip(old, new, strict=True)):
        raise ConfigError(f"a network cannot be made narrower: {small.config()} does not fit into {large.config()}")
    reads, is_read = _inputs(small), _inputs(large)
    for name, pieces in reads.items():
        old, new = small.get_submodule(name), large.get_submodule(name)
        assert isinstance(old, nn.Conv2d)
        assert isinstance(new, nn.Conv2d)
        assert old.bias is not None
        assert new.bias is not None
        outputs = old.weight.shape[0]
        new.weight[:outputs] = 0
        new.weight[:outputs, _places(pieces, is_read[name])] = old.weight
        new.bias[:outputs] = old.bias
    return large
