"""CMP: which frames are chosen."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from helpers.methods_toy import Spoiled, SquaredError, toy_domain, toy_model
from helpers.replay_buffers import domain_of
from protodepth.errors import ConfigError
from protodepth.methods.cmp import CMP, CMPConfig, farthest_points


def greedy_by_loops(features, kept, size):
    """Farthest points written out: for every candidate the largest cosine to everything kept,
    the smallest of these wins.
    """
    chosen = []
    while len(chosen) < min(size, len(features)):
        best, winner = None, None
        for i, candidate in enumerate(features):
            if i in chosen:
                continue
            held = [*kept, *(features[j] for j in chosen)]
            score = max(float(candidate @ h) for h in held) if held else -float(candidate @ np.mean(features, 0))
            if best is None or score < best:
                best, winner = score, i
        chosen.append(winner)
    return chosen


@pytest.mark.parametrize("old", [0, 1, 5])
@pytest.mark.parametrize("seed", range(4))
def test_farthest_points_are_those_of_the_brute_force_search(seed, old):
    random = torch.Generator().manual_seed(seed)
    features = normalize(torch.randn(15, 3, generator=random, dtype=torch.float64), dim=-1)
    kept = normalize(torch.randn(old, 3, generator=random, dtype=torch.float64), dim=-1)
    expected = greedy_by_loops(list(features.numpy()), list(kept.numpy()), 7)
    assert farthest_points(features, kept, 7) == expected


def test_farthest_points_never_repeat_and_stop_when_all_are_taken():
    features = normalize(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), dim=-1)
    assert sorted(farthest_points(features, features[:0], 9)) == [0, 1, 2]


def test_cmp_keeps_the_odd_frames_where_a_random_choice_would_lose_them():
    points = [(0.5, 1.0)] * 50 + [(0.0, 1.0), (1.0, 1.0)]
    method = CMP(toy_model(), SquaredError(), CMPConfig(size=3))
    method.end_domain(toy_domain("a", points))
    assert sorted({float(f.image[0, 0, 0]) for f in method.buffers["a"]}) == [0.0, 0.5, 1.0]


def test_cmp_chooses_among_the_frames_that_can_be_read():
    points = [(0.5, 1.0)] * 20 + [(0.0, 1.0), (1.0, 1.0)]
    domain = toy_domain("a", points)
    method = CMP(toy_model(), SquaredError(), CMPConfig(size=3))
    method.end_domain(replace(domain, train=Spoiled(domain.train, 3)))
    assert sorted({float(f.image[0, 0, 0]) for f in method.buffers["a"]}) == [0.0, 0.5, 1.0]
    assert len(method.buffers["a"]) == len(method.features["a"]) == 3


def test_cmp_also_keeps_away_from_the_buffers_of_older_domains():
    method = CMP(toy_model(), SquaredError(), CMPConfig(size=1))
    method.end_domain(toy_domain("a", [(0.0, 1.0)]))
    method.end_domain(toy_domain("b", [(0.0, 2.0), (0.3, 2.0), (1.0, 2.0)]))
    assert float(method.buffers["b"][0].image[0, 0, 0]) == 1.0


def test_cmp_describes_with_the_network_of_the_first_domain():
    method = CMP(toy_model(), SquaredError(), CMPConfig(size=2))
    method.end_domain(domain_of("a", 4, 1.0))
    with torch.no_grad():
        method.backbone.slope.fill_(9.0)
    method.end_domain(domain_of("b", 4, 1.0))
    assert float(method.describer.slope) == 2.0
    lengths = torch.cat(list(method.features.values())).norm(dim=-1)
    assert torch.allclose(lengths, torch.ones(4))


def test_cmp_threshold_mode_draws_from_the_frames_below_the_threshold():
    config = CMPConfig(size=4, mode="threshold", threshold=0.9)
    method = CMP(toy_model(), SquaredError(), config)
    method.end_domain(toy_domain("a", [(0.0, 1.0)]))  # its descriptor is (0, 1)
    points = [
        (x, 1.0) for x in (0.0, 0.1, 0.2, 0.3, 0.6, 0.8, 1.0)
    ]  # cosine 1/sqrt(1 + x²) is below 0.9 from x = 0.48 on
    method.end_domain(toy_domain("b", points))
    assert [round(float(f.image[0, 0, 0]), 1) for f in method.buffers["b"]] == [0.6, 0.8, 1.0]
    with pytest.raises(ConfigError, match="raise the threshold"):
        method.end_domain(toy_domain("c", [(0.3, 1.0)]))
