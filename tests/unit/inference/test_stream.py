"""Live frames: the same numbers as predict, from many threads, with nothing kept."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from protodepth.errors import DataError, UnknownNameError
from protodepth.inference.stream import Stream
from protodepth.model import ProtoDepth
from protodepth.selection import Rule, Statistics

K = (40.0, 42.0, 24.0, 16.0)


def frame(seed: int, size: tuple[int, int] = (32, 48)) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    depth = np.where(random.random(size) < 0.1, random.uniform(0.5, 5, size), 0).astype(np.float32)
    return random.integers(0, 255, (*size, 3), np.uint8), depth


def test_a_stream_gives_what_predict_gives(model: ProtoDepth):
    image, points = frame(0)
    for domain in ("night", "base", None):
        expected = model.predict(image, points, K, domain=domain)
        found = Stream(model, domain, intrinsics=K)(image, points)
        assert np.array_equal(found.depth, expected.depth)
        assert found.domain == expected.domain
        assert found.similarity == expected.similarity


def test_many_threads_with_frames_of_many_sizes_get_their_own_depth(model: ProtoDepth):
    frames = [frame(n, (32 + 4 * (n % 3), 48 + 8 * (n % 2))) for n in range(24)]
    domains = [("night", "warehouse", "base", None)[n % 4] for n in range(24)]
    expected = [model.predict(i, p, K, domain=d).depth for (i, p), d in zip(frames, domains, strict=True)]
    streams = {d: Stream(model, d, intrinsics=K) for d in set(domains)}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: streams[domains[n]](*frames[n]).depth, range(24)))
    for a, b in zip(found, expected, strict=True):
        assert np.array_equal(a, b)


def test_nothing_is_kept_of_a_frame(model: ProtoDepth):
    stream = Stream(model, intrinsics=K)
    before = set(vars(stream)), len(list(model.parameters()))
    traces = []
    for n in range(5):
        image, points = frame(n)
        out = stream(image, points)
        traces += [weakref.ref(image), weakref.ref(out.depth)]
    del image, points, out
    gc.collect()
    assert all(trace() is None for trace in traces)
    assert (set(vars(stream)), len(list(model.parameters()))) == before


def test_tensors_with_channels_first_or_last_and_arrays_give_the_same_depth(model: ProtoDepth):
    image, points = frame(1)
    stream = Stream(model, "night", intrinsics=K)
    expected = stream(image, points).depth
    pixels, z = torch.from_numpy(image), torch.from_numpy(points)
    for picture in (pixels, pixels.permute(2, 0, 1), (pixels.float() / 255).permute(2, 0, 1)):
        for depth in (z, z[None], z.nan_to_num() + torch.where(z > 0, 0.0, torch.nan)):
            assert np.allclose(stream(picture, depth, torch.tensor(K)).depth, expected, atol=1e-6)


def test_two_streams_may_use_one_model_with_different_rules(model: ProtoDepth):
    image, points = frame(2)
    s = model.predict(image, points, K)
    assert not s.unknown
    c = model.backbone.bottleneck.channels
    for name in model.domains:
        model.statistics[name] = Statistics.of(1000 + torch.randn(20, c), 1000 + torch.randn(20, c))
    nearest, base = (Stream(model, intrinsics=K, rule=Rule(unknown=what)) for what in ("nearest", "base"))
    assert base(image, points).domain == "base"
    assert nearest(image, points).domain != "base"
    assert nearest(image, points).unknown
    assert model.rule == Rule()


def test_a_wrong_name_is_refused_when_the_stream_is_made_and_missing_intrinsics_with_the_first_frame(model: ProtoDepth):
    with pytest.raises(UnknownNameError, match="warehouse"):
        Stream(model, "garage")
    with pytest.raises(DataError, match="give them once"):
        Stream(model)(*frame(0))


def test_a_stream_stops_at_millimetres_unless_it_is_told_to_go_on(model: ProtoDepth):
    image, points = frame(3)
    with pytest.raises(DataError, match=r"mm: .*Stream\(model, force=True\)"):
        Stream(model, intrinsics=K)(image, 1000 * points)
    assert Stream(model, intrinsics=K, force=True)(image, 1000 * points).depth.shape == (32, 48)
