"""A wider `scalefree` answers as the narrow one did, and its new channels learn."""

import pytest
import torch

from protodepth.backbones.scalefree import ScaleFree
from protodepth.errors import ConfigError
from protodepth.training.wider import widened
from protodepth.types import Batch

NARROW = {"image_widths": (4, 6, 8, 8, 8), "depth_widths": (4, 6, 8, 8, 10), "decoder_widths": (6, 8, 8, 8)}
WIDE = {"image_widths": (6, 6, 12, 10, 9), "depth_widths": (4, 8, 10, 12, 11), "decoder_widths": (9, 8, 11, 12)}


def a_batch() -> Batch:
    chance = torch.Generator().manual_seed(3)
    depth = 1 + 4 * torch.rand(2, 1, 45, 70, generator=chance, dtype=torch.float64)
    points = depth * (torch.rand(2, 1, 45, 70, generator=chance) < 0.05)
    image = torch.rand(2, 3, 45, 70, generator=chance, dtype=torch.float64)
    return Batch(image=image, sparse_depth=points, intrinsics=torch.eye(3).expand(2, 3, 3))


def shaken(network: ScaleFree) -> ScaleFree:
    """Weights of no special form: at its start a network hides its layers behind zeros."""
    chance = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=chance))
    return network.double()


def test_a_widened_network_gives_the_same_depth() -> None:
    small, batch = shaken(ScaleFree(**NARROW)), a_batch()
    plain, large = ScaleFree(**WIDE).double(), widened(small, ScaleFree(**WIDE).double())
    with torch.no_grad():
        before, after, other = (n.decode(n.encode(batch)) for n in (small, large, plain))
    torch.testing.assert_close(after, before, rtol=1e-9, atol=0)  # double precision: the same sums in another order
    assert not torch.allclose(other, before, rtol=1e-2)


def test_new_channels_learn_from_the_first_step() -> None:
    large = widened(shaken(ScaleFree(**NARROW)), ScaleFree(**WIDE).double())
    large.decode(large.encode(a_batch())).log().square().mean().backward()
    listened = large.get_submodule("image_stages.1.down").weight.grad  # old channels are listened to, new ones are not
    assert listened is not None
    assert bool((large.get_submodule("image_stages.1.down").weight[:6, 4:] == 0).all())
    assert float(listened[:6, 4:].abs().max()) > 0


def test_a_network_is_not_made_narrower() -> None:
    with pytest.raises(ConfigError, match="narrower"):
        widened(ScaleFree(**WIDE), ScaleFree(**NARROW))
