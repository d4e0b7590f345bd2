"""Kept features: what comes again is not computed again, and gives what computing would give."""

from dataclasses import replace

import pytest
import torch

from protodepth.backbones.base import Backbone
from protodepth.backbones.kbnet import KBNet
from protodepth.backbones.lite import Lite
from protodepth.backbones.scalefree import ScaleFree
from protodepth.features import GIB, FeatureCache
from protodepth.inference.engines.graph import random_batch
from protodepth.types import Batch, Latents

NETWORKS = {
    "lite": lambda: Lite((0.1, 8.0), (4, 6, 8, 10, 12), (4, 4, 6, 6, 8)),
    "kbnet": lambda: KBNet.from_preset("small"),
    "scalefree": ScaleFree,
}


class Counting:
    """An encoder that counts the frames it sees."""

    def __init__(self, network: Backbone) -> None:
        self.network, self.frames = network.eval().requires_grad_(False), 0

    def __call__(self, batch: Batch) -> Latents:
        self.frames += len(batch)
        return self.network.encode(batch)


def reordered(batch: Batch, order: list[int]) -> Batch:
    return batch.map(lambda t: t[order])


@pytest.mark.parametrize("name", list(NETWORKS))
def test_features_that_were_kept_decode_to_what_computed_ones_do(name: str) -> None:
    torch.manual_seed(0)
    encode, cache = Counting(NETWORKS[name]()), FeatureCache(GIB)
    batch = random_batch((48, 64), 3, (0.1, 8.0))
    cache.encode(encode, batch)
    mixed = reordered(batch, [2, 0, 1])
    ours, theirs = cache.encode(encode, mixed), encode.network.encode(mixed)
    assert encode.frames == 3
    assert list(ours.layers) == list(theirs.layers)
    torch.testing.assert_close(encode.network.decode(ours), encode.network.decode(theirs), rtol=1e-5, atol=0)


def test_only_frames_that_are_not_known_are_computed() -> None:
    encode, cache = Counting(NETWORKS["lite"]()), FeatureCache(GIB)
    batch = random_batch((48, 64), 3, (0.1, 8.0))
    cache.encode(encode, batch[:2])
    joined = cache.encode(encode, batch)
    assert encode.frames == 3
    assert (cache.hits, cache.misses) == (2, 3)
    for layer, value in encode.network.encode(batch).layers.items():
        torch.testing.assert_close(joined.layers[layer], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("change", ["image", "sparse_depth", "intrinsics"])
def test_another_image_other_points_or_another_camera_are_another_frame(change: str) -> None:
    encode, cache = Counting(NETWORKS["lite"]()), FeatureCache(GIB)
    batch = random_batch((48, 64), 1, (0.1, 8.0))
    cache.encode(encode, batch)
    cache.encode(encode, replace(batch, **{change: getattr(batch, change) * 1.01}))
    assert cache.hits == 0


def test_what_is_kept_stays_within_the_limit_and_does_not_hold_the_batch() -> None:
    network = NETWORKS["lite"]()
    batch = random_batch((48, 64), 4, (0.1, 8.0))
    whole = FeatureCache(GIB)
    whole.encode(Counting(network), batch)
    one = whole.bytes // 4
    cache, encode = FeatureCache(2 * one + one // 2), Counting(network)
    for _ in range(2):
        cache.encode(encode, batch)
    assert cache.bytes == 2 * one
    assert cache.hits == 2
    kept = next(iter(cache._rows.values())).layers
    assert all(t.untyped_storage().nbytes() == t.nbytes for t in kept.values())


def test_an_encoder_that_hands_over_something_else_is_computed_every_time() -> None:
    batch, cache = random_batch((8, 8), 1, (0.1, 8.0)), FeatureCache(GIB)
    for _ in range(2):
        cache.encode(lambda b: Latents({"skip": b.image}, {"batch": b}), batch)
    assert (cache.hits, cache.bytes) == (0, 0)
