"""Hidden points: none is shown, blocks are blocks, densities vary, and the weights undo the crowding of corners."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from protodepth.data.hidden import (
    BINS,
    HEAVIEST,
    MOST,
    HideConfig,
    choose_hidden,
    distance_weights,
    hide_in_batch,
    hide_in_batches,
)
from protodepth.data.sampling import parse_sampler
from protodepth.errors import ConfigError
from protodepth.types import Batch


def scattered(seed: int = 0, share: float = 0.1, size: tuple[int, int] = (60, 80)) -> np.ndarray:
    return np.random.default_rng(seed).random(size) < share


def batch(rows: int = 3) -> Batch:
    points = np.stack([scattered(n) for n in range(rows)])[:, None]
    depth = torch.from_numpy(points * np.random.default_rng(9).uniform(1, 5, points.shape)).float()
    return Batch(image=torch.zeros(rows, 3, 60, 80), sparse_depth=depth, intrinsics=torch.eye(3).expand(rows, 3, 3))


def test_no_point_is_both_shown_and_hidden_and_none_is_lost():
    source = batch()
    made = hide_in_batch(source, HideConfig(), np.random.default_rng(0))
    shown, hidden = made.sparse_depth > 0, made.hidden_depth > 0
    assert not (shown & hidden).any()
    assert torch.equal(made.sparse_depth + made.hidden_depth, source.sparse_depth)
    for row in range(3):
        assert hidden[row].any()
        assert shown[row].any()


def test_the_shares_of_single_points_span_their_range():
    points, config = scattered(share=0.14), HideConfig(points=(0.2, 0.6), blocky=0.0, thinned=0.0, sparser=0.0)
    shares = [choose_hidden(points, config, np.random.default_rng(n)).sum() / points.sum() for n in range(200)]
    assert 0.19 < min(shares) < 0.25
    assert 0.55 < max(shares) < 0.61


def test_a_block_hides_every_point_in_it_and_no_other():
    points = np.ones((60, 80), bool)
    config = HideConfig(points=(0, 0), blocks=(1, 1), side=(0.3, 0.3), blocky=1.0, thinned=0.0, sparser=0.0)
    hidden = choose_hidden(points, config, np.random.default_rng(3))
    rows, columns = np.nonzero(hidden)
    assert hidden[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].all()
    assert 10 <= rows.max() - rows.min() + 1 <= 19  # 0.3 of 60; cut where the block leaves the image
    assert ndimage.label(hidden)[1] == 1


def test_a_point_in_the_middle_of_a_block_is_far_from_what_is_shown():
    points = scattered(share=0.12)
    single = choose_hidden(
        points, HideConfig(points=(0.2, 0.2), blocky=0.0, thinned=0.0, sparser=0.0), np.random.default_rng(0)
    )
    blocks = choose_hidden(
        points,
        HideConfig(points=(0, 0), blocks=(3, 3), side=(0.3, 0.4), blocky=1.0, thinned=0.0, sparser=0.0),
        np.random.default_rng(0),
    )
    reach = [ndimage.distance_transform_edt(~(points & ~h))[h].mean() for h in (single, blocks)]
    assert reach[1] > 2 * reach[0]


@pytest.mark.parametrize("seed", range(20))
def test_enough_points_stay_whatever_is_drawn(seed: int):
    points = scattered(seed)
    config = HideConfig(points=(0.5, 0.7), blocks=(6, 9), side=(0.3, 0.9), blocky=1.0, thinned=0.0, sparser=0.0)
    hidden = choose_hidden(points, config, np.random.default_rng(seed))
    assert 0 < hidden.sum() <= MOST * points.sum()
    assert not (hidden & ~points).any()


def test_of_a_single_point_nothing_can_be_hidden():
    points = np.zeros((8, 8), bool)
    assert not choose_hidden(points, HideConfig(), np.random.default_rng(0)).any()
    points[3, 4] = True
    assert not choose_hidden(points, HideConfig(), np.random.default_rng(0)).any()
    points[5, 4] = True
    assert choose_hidden(points, HideConfig(), np.random.default_rng(0)).sum() == 1


def test_each_step_hides_others_and_a_resumed_run_the_same():
    source = batch()
    whole = [b.hidden_depth for b in hide_in_batches([source] * 4, HideConfig(), start=0, seed=1)]
    later = [b.hidden_depth for b in hide_in_batches([source] * 2, HideConfig(), start=2, seed=1)]
    other = [b.hidden_depth for b in hide_in_batches([source] * 4, HideConfig(), start=0, seed=2)]
    assert torch.equal(whole[2], later[0])
    assert torch.equal(whole[3], later[1])
    assert not torch.equal(whole[0], whole[1])
    assert not torch.equal(whole[0], other[0])


def test_ranges_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match=r"hidden points must be a range within 0 to 0\.7, got \(0\.5, 0\.9\)"):
        HideConfig(points=(0.5, 0.9))
    with pytest.raises(ConfigError, match="blocks"):
        HideConfig(blocks=(3, 1))
    with pytest.raises(ConfigError, match="ways at least one"):
        HideConfig(ways=())
    with pytest.raises(ConfigError, match="holes one from 1 on"):
        HideConfig(holes=(0, 3))


def test_the_weights_are_those_of_a_loop_written_from_the_formula():
    points = scattered(5)
    hidden = choose_hidden(points, HideConfig(), np.random.default_rng(1))
    shown = points & ~hidden
    places = np.argwhere(shown)

    def bin_of(y: int, x: int) -> int:
        distance = np.sqrt(((places - (y, x)) ** 2).sum(1).min())
        return sum(distance >= edge for edge in BINS)

    unshown = [bin_of(y, x) for y, x in np.argwhere(~shown)]
    judged = {(y, x): bin_of(y, x) for y, x in np.argwhere(hidden)}
    raw = {}
    for place, k in judged.items():
        p, h = unshown.count(k) / len(unshown), list(judged.values()).count(k) / len(judged)
        raw[place] = min(p / h, HEAVIEST)
    weights = distance_weights(shown, hidden)
    assert weights.sum() == pytest.approx(1)
    for (y, x), value in raw.items():
        assert weights[y, x] == pytest.approx(value / sum(raw.values()))
    assert (weights[~hidden] == 0).all()


def test_what_judges_knows_the_error_of_crowded_input_better_than_points_drawn_at_random():
    """Points crowd in the left half, as corners do; the error of a pixel is its distance from the next point."""
    ratios = []
    judging = HideConfig(points=(0.2, 0.2), blocks=(4, 4), side=(0.1, 0.25), blocky=1.0, thinned=0.0, sparser=0.0)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        points = (rng.random((80, 120)) < 0.25) & (np.arange(120) < 50)
        points |= rng.random((80, 120)) < 0.005
        random = points & (rng.random(points.shape) < 0.2)
        hidden = choose_hidden(points, judging, rng)
        error = [ndimage.distance_transform_edt(~(points & ~h)) for h in (random, hidden)]
        judged = (error[1] * distance_weights(points & ~hidden, hidden)).sum()
        ratios.append((error[0][random].mean() / error[0][~points].mean(), judged / error[1][~points].mean()))
    plain, weighted = np.mean(ratios, 0)
    assert plain < 0.4
    assert 0.8 < weighted < 1.2


def test_of_a_dense_map_nearly_all_is_hidden_at_densities_that_span_their_range():
    points, rng = np.random.default_rng(0).random((60, 80)) < 0.8, np.random.default_rng(1)
    config = HideConfig(thinned=1.0, thinned_to=(0.005, 0.1), ways=("even",))
    shown = [(points & ~choose_hidden(points, config, rng)).sum() / points.sum() for _ in range(200)]
    assert 0.004 < min(shown) < 0.006
    assert 0.09 < max(shown) < 0.11
    assert 0.02 < np.median(shown) < 0.025  # evenly in the logarithm
    sparse = scattered()
    assert choose_hidden(sparse, config, rng).sum() <= MOST * sparse.sum()


def test_points_on_edges_lie_on_the_edges_of_the_image():
    image = np.zeros((60, 80, 3))
    image[:, 40:] = 1.0
    config = HideConfig(thinned=1.0, thinned_to=(0.02, 0.02), ways=("edges",))
    shown = ~choose_hidden(np.ones((60, 80), bool), config, np.random.default_rng(0), image)
    assert (abs(np.nonzero(shown)[1] - 39.5) < 3).mean() > 0.9
    without = ~choose_hidden(np.ones((60, 80), bool), config, np.random.default_rng(0))
    assert (abs(np.nonzero(without)[1] - 39.5) < 3).mean() < 0.2


@pytest.mark.parametrize(
    ("way", "sampler"), [("corners", "harris:96"), ("crowded", "clustered:96"), ("grid", "tof:11")]
)
def test_a_dense_map_is_thinned_as_sensors_and_trackers_are(way: str, sampler: str) -> None:
    image, points = np.random.default_rng(0).random((60, 80, 3)), np.ones((60, 80), bool)
    config = HideConfig(thinned=1.0, thinned_to=(0.02, 0.02), ways=(way,))
    shown = ~choose_hidden(points, config, np.random.default_rng(0), image)
    assert 80 <= shown.sum() <= 100
    if way == "grid":
        assert np.array_equal(shown, parse_sampler(sampler)(image, points.astype(np.float32), 0) > 0)
    if way == "corners":  # as strong as those of the sampler: equal strengths are not there
        assert np.array_equal(shown, parse_sampler(sampler)(image, points.astype(np.float32), 0) > 0)
    if way == "crowded":  # a third of 4 x 3 parts has none
        parts = shown.reshape(3, 20, 4, 20).sum((1, 3))
        assert (parts == 0).sum() >= 4


def test_a_wall_without_corners_is_thinned_evenly() -> None:
    config = HideConfig(thinned=1.0, thinned_to=(0.02, 0.02), ways=("corners",))
    shown = ~choose_hidden(np.ones((60, 80), bool), config, np.random.default_rng(0), np.zeros((60, 80, 3)))
    assert shown.sum() == 96


def test_a_dense_map_that_is_not_thinned_has_rectangles_or_holes_and_no_single_points() -> None:
    points = np.ones((60, 80), bool)
    for blocky, most in ((0.0, 3), (1.0, 1)):
        config = HideConfig(thinned=0.0, blocky=blocky, holes=(3, 3), blocks=(1, 1))
        hidden = choose_hidden(points, config, np.random.default_rng(0))
        labels, count = ndimage.label(hidden)
        assert 1 <= count <= most
        assert np.bincount(labels.ravel())[1:].min() >= 4
        (first, *_) = ndimage.find_objects(labels)
        assert hidden[first].all() == bool(blocky)


def test_a_scan_is_sometimes_thinned_to_a_few_of_its_points_and_a_handful_of_points_never_is() -> None:
    points = np.zeros((80, 160), bool)
    points[::8] = True  # 1600 points in lines
    config = HideConfig(sparser=1.0, sparser_to=(0.1, 0.1))
    hidden = choose_hidden(points, config, np.random.default_rng(0))
    assert (points & ~hidden).sum() == 160
    few = points & (np.arange(160) % 4 == 0)
    assert (few & ~choose_hidden(few, config, np.random.default_rng(0))).sum() >= 0.3 * few.sum()
    assert choose_hidden(points, HideConfig(sparser=0.0), np.random.default_rng(0)).sum() <= 0.7 * points.sum()
