"""Augmentation: what the network sees changes, what the loss sees does not, and every prediction finds its way back."""

import math
from dataclasses import replace

import pytest
import torch

from conftest import random_batch
from protodepth.data.augment import AugmentConfig, Draws, augment, crop, generator, hide_points, turn_hue
from protodepth.errors import ConfigError
from protodepth.geometry import rays
from protodepth.types import Batch

FLIPPED = AugmentConfig(flip_horizontal=True)
COLOURS = AugmentConfig(brightness=(0.5, 1.5), contrast=(0.5, 1.5), saturation=(0.5, 1.5), hue=0.1)


def smooth_batch(b: int = 4, height: int = 32, width: int = 48) -> Batch:
    """A tilted plane as image and depth: linear, so that bilinear look-ups are exact wherever they stay inside."""
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    plane = (0.2 + 0.3 * x + 0.4 * y).expand(b, 1, height, width)
    return replace(random_batch(b, height, width), image=plane.repeat(1, 3, 1, 1), sparse_depth=2 * plane.clone())


def test_the_defaults_change_nothing(batch: Batch) -> None:
    view = augment(batch, AugmentConfig(), generator(0, 0))
    assert torch.equal(view.batch.image, batch.image)
    assert torch.equal(view.batch.sparse_depth, batch.sparse_depth)
    depth, mask = view.undo(batch.ground_truth)  # type: ignore[arg-type]
    assert torch.equal(depth, batch.ground_truth)
    assert mask.min() == 1


def test_colour_changes_reach_the_network_and_not_the_loss(batch: Batch) -> None:
    before = batch.map(torch.clone)
    view = augment(batch, COLOURS, generator(0, 0))
    assert not torch.equal(view.batch.image, batch.image)
    assert (view.batch.image >= 0).all()
    assert (view.batch.image <= 1).all()
    assert torch.equal(batch.image, before.image)
    assert all(torch.equal(a, b) for a, b in zip(view.batch.neighbours, before.neighbours, strict=True))
    assert torch.equal(view.batch.sparse_depth, before.sparse_depth)
    assert torch.equal(view.batch.intrinsics, before.intrinsics)


def test_brightness_alone_scales_each_image_by_its_own_factor() -> None:
    batch = replace(random_batch(6), image=torch.full((6, 3, 32, 48), 0.4))
    view = augment(batch, AugmentConfig(brightness=(0.5, 1.5)), generator(0, 0))
    factors = view.batch.image[:, 0, 0, 0] / 0.4
    assert len(factors.unique()) == 6
    assert (factors >= 0.5).all()
    assert (factors <= 1.5).all()
    assert torch.equal(view.batch.image, (0.4 * factors)[:, None, None, None].expand_as(view.batch.image))


def test_contrast_keeps_the_mean_luminance_and_saturation_keeps_grey() -> None:
    batch = replace(random_batch(), image=0.4 + 0.2 * torch.rand(2, 3, 32, 48))
    weights = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    low = augment(batch, AugmentConfig(contrast=(0.3, 0.3)), generator(0, 0)).batch.image
    torch.testing.assert_close((low * weights).sum(1).mean((1, 2)), (batch.image * weights).sum(1).mean((1, 2)))
    torch.testing.assert_close(low.std((1, 2, 3)), 0.3 * batch.image.std((1, 2, 3)), rtol=0.05, atol=0)
    grey = augment(batch, AugmentConfig(saturation=(0.0, 0.0)), generator(0, 0)).batch.image
    torch.testing.assert_close(grey, (batch.image * weights).sum(1, keepdim=True).expand_as(grey))


def test_a_third_of_a_turn_of_hue_exchanges_the_channels() -> None:
    image = torch.rand(2, 3, 4, 5)
    turned = turn_hue(image, torch.full((2, 1, 1, 1), 1 / 3))
    torch.testing.assert_close(turned, image[:, [2, 0, 1]])
    torch.testing.assert_close(turn_hue(image, torch.full((2, 1, 1, 1), 0.13)).sum(1), image.sum(1))


def test_hidden_points_lose_value_and_validity_together() -> None:
    sparse = 0.5 + torch.rand(3, 1, 40, 40)
    for share in ((0.6, 0.7), (1.0, 1.0), (0.0, 0.5)):
        draws = Draws(generator(0, 0), 3, slice(None), sparse)
        shown = hide_points(sparse, AugmentConfig(remove_points=share), draws)
        kept = shown > 0
        assert torch.equal(shown[kept], sparse[kept])
        gone = 1 - kept.float().mean((1, 2, 3))
        assert (gone >= share[0] - 0.05).all()
        assert (gone <= share[1] + 0.05).all()


def test_hidden_points_still_count_in_the_loss(batch: Batch) -> None:
    before = batch.sparse_depth.clone()
    view = augment(batch, AugmentConfig(remove_points=(0.5, 0.5)), generator(0, 0))
    assert (view.batch.sparse_depth > 0).sum() < (before > 0).sum()
    assert torch.equal(batch.sparse_depth, before)


def test_points_hidden_by_patterns_are_a_part_of_the_points_and_the_loss_still_sees_all_of_them() -> None:
    batch = random_batch(6, 48, 64)
    batch = replace(batch, sparse_depth=1 + torch.rand(6, 1, 48, 64))
    before, config = batch.sparse_depth.clone(), AugmentConfig(remove_patterns=True)
    shown = augment(batch, config, generator(0, 0)).batch.sparse_depth
    kept = shown > 0
    assert torch.equal(shown[kept], before[kept])
    assert torch.equal(batch.sparse_depth, before)
    shares = kept.float().mean((1, 2, 3))
    assert (shares > 0).all()
    assert (shares < 1).all()
    assert len(set(shares.tolist())) == 6  # each image its own draw
    assert torch.equal(augment(batch, config, generator(0, 0)).batch.sparse_depth, shown)
    assert not config.still


def test_hidden_patches_are_black_squares_of_five_pixels() -> None:
    batch = replace(random_batch(1, 64, 64), image=torch.ones(1, 3, 64, 64))
    seen = augment(batch, AugmentConfig(remove_patches=(0.002, 0.002)), generator(3, 0)).batch.image
    assert set(seen.unique().tolist()) == {0.0, 1.0}
    black = seen[0, 0] == 0
    squares = torch.nn.functional.max_pool2d(
        -torch.nn.functional.max_pool2d(-black[None, None].float(), 5, stride=1, padding=2), 5, stride=1, padding=2
    )[0, 0]
    assert torch.equal(squares.bool()[4:-4, 4:-4], black[4:-4, 4:-4])  # an opening by 5x5 leaves a union of 5x5 squares


@pytest.mark.parametrize("change", [{"flip_horizontal": True}, {"flip_vertical": True}])
def test_flips_mirror_pictures_points_and_the_camera_and_come_back(change: dict[str, bool]) -> None:
    batch = random_batch(8)
    view = augment(batch, AugmentConfig(**change), generator(1, 0))
    axis, column = (-1, 0) if "flip_horizontal" in change else (-2, 1)
    size = batch.size[axis]
    flipped = [n for n in range(8) if torch.allclose(view.batch.image[n], batch.image[n].flip(axis), atol=1e-4)]
    assert 0 < len(flipped) < 8
    for n in range(8):
        on = n in flipped
        expected = batch.sparse_depth[n].flip(axis) if on else batch.sparse_depth[n]
        assert torch.equal(view.batch.sparse_depth[n], expected)
        c, d = float(batch.intrinsics[n, column, 2]), float(view.batch.intrinsics[n, column, 2])
        assert d == (size - 1 - c if on else c)
    depth = batch.ground_truth
    assert depth is not None
    seen = torch.stack([depth[n].flip(axis) if n in flipped else depth[n] for n in range(8)])
    back, mask = view.undo(seen)
    torch.testing.assert_close(back, depth, atol=1e-3, rtol=1e-4)
    assert mask.min() == 1


def test_a_flipped_view_shows_the_mirrored_world() -> None:
    """The mirrored points seen by the mirrored camera are the points with x turned around."""
    batch = random_batch(4)
    view = augment(batch, AugmentConfig(flip_horizontal=True), generator(1, 0))
    for n in range(4):
        ours, theirs = (
            rays(b.intrinsics[n : n + 1], *b.sparse_depth.shape[-2:]) * b.sparse_depth[n : n + 1]
            for b in (view.batch, batch)
        )
        if not torch.equal(view.batch.intrinsics[n], batch.intrinsics[n]):
            theirs = theirs.flip(-1) * torch.tensor([-1.0, 1.0, 1.0])[None, :, None, None]
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "change", [{"resize": (0.6, 1.1)}, {"rotation": 25.0}, {"resize": (0.7, 0.9), "rotation": 10.0}]
)
def test_what_the_network_would_see_right_comes_back_right(change: dict[str, object]) -> None:
    """If the network predicted exactly the moved depth, undoing the move gives the depth of the batch wherever it is
    valid.
    """
    batch = smooth_batch()
    config = AugmentConfig(**change)  # type: ignore[arg-type]
    view = augment(batch, config, generator(2, 0))
    seen = (
        augment(replace(batch, image=batch.sparse_depth.repeat(1, 3, 1, 1) / 2), config, generator(2, 0)).batch.image[
            :, :1
        ]
        * 2
    )
    depth, mask = view.undo(seen)
    inner = torch.nn.functional.max_pool2d(1 - mask, 3, stride=1, padding=1) == 0
    assert 0.2 < float(mask.mean()) <= 1
    error = (depth - batch.sparse_depth).abs()[inner]
    assert float(error.quantile(0.95)) < 0.02


def test_resizing_scales_the_camera_with_the_picture() -> None:
    batch = smooth_batch()
    view = augment(batch, AugmentConfig(resize=(0.6, 0.6)), generator(0, 0))
    torch.testing.assert_close(view.batch.intrinsics[:, 0, 0], 0.6 * batch.intrinsics[:, 0, 0])
    torch.testing.assert_close(view.batch.intrinsics[:, 1, 1], 0.6 * batch.intrinsics[:, 1, 1])
    points = torch.zeros(1, 1, 32, 48)
    points[0, 0, 12, 20] = 3.0
    one = replace(random_batch(1), sparse_depth=points)
    moved = augment(one, AugmentConfig(resize=(0.6, 0.6)), generator(0, 0)).batch
    (y, x) = (int(v) for v in moved.sparse_depth[0, 0].nonzero()[0])
    ray = (20 - one.intrinsics[0, 0, 2]) / one.intrinsics[0, 0, 0]
    assert float((x - moved.intrinsics[0, 0, 2]) / moved.intrinsics[0, 0, 0]) == pytest.approx(float(ray), abs=0.03)
    ray = (12 - one.intrinsics[0, 1, 2]) / one.intrinsics[0, 1, 1]
    assert float((y - moved.intrinsics[0, 1, 2]) / moved.intrinsics[0, 1, 1]) == pytest.approx(float(ray), abs=0.03)
    assert float(moved.sparse_depth.sum()) == 3.0


def test_of_two_points_that_fall_on_one_pixel_the_nearer_stays() -> None:
    full = 1 + torch.rand(1, 1, 32, 48)
    view = augment(replace(random_batch(1), sparse_depth=full), AugmentConfig(resize=(0.5, 0.5)), generator(0, 0))
    values = view.batch.sparse_depth
    assert set(values[values > 0].tolist()) <= set(full.flatten().tolist())
    assert float(values[values > 0].mean()) < float(full.mean())


def test_a_crop_cuts_everything_and_moves_the_principal_point() -> None:
    batch = random_batch()
    cut = crop(batch, AugmentConfig(crop=(16, 20)), generator(4, 0))
    top, left = (int(batch.intrinsics[0, r, 2] - cut.intrinsics[0, r, 2]) for r in (1, 0))
    for a, b in zip(
        (cut.image, cut.sparse_depth, *cut.neighbours),
        (batch.image, batch.sparse_depth, *batch.neighbours),
        strict=True,
    ):
        assert torch.equal(a, b[..., top : top + 16, left : left + 20])
    assert torch.equal(cut.poses[0], batch.poses[0])
    bottom = crop(batch, AugmentConfig(crop=(16, 20), crop_bottom=True), generator(4, 0))
    assert float(batch.intrinsics[0, 1, 2] - bottom.intrinsics[0, 1, 2]) == 16
    with pytest.raises(ConfigError, match="larger than the frames"):
        crop(batch, AugmentConfig(crop=(64, 20)), generator(4, 0))


def test_one_step_of_one_seed_is_always_the_same_view(batch: Batch) -> None:
    config = replace(AugmentConfig.published("base"), crop=None)
    views = [
        augment(batch, config, generator(seed, step)).batch.image for seed, step in ((7, 3), (7, 3), (7, 4), (8, 3))
    ]
    assert torch.equal(views[0], views[1])
    assert not torch.equal(views[0], views[2])
    assert not torch.equal(views[0], views[3])


@pytest.mark.parametrize("wrong", [{"brightness": (1.5, 0.5)}, {"remove_points": (-0.1, 0.5)}, {"resize": (-1.0, 1.0)}])
def test_impossible_ranges_are_refused(wrong: dict[str, tuple[float, float]]) -> None:
    with pytest.raises(ConfigError, match="low <= high"):
        AugmentConfig(**wrong)  # type: ignore[arg-type]


def test_published_settings_rotate_only_the_base_training() -> None:
    assert AugmentConfig.published("base").rotation == 25.0
    assert AugmentConfig.published("methods").rotation == 0.0
    assert math.isclose(AugmentConfig.published("methods").resize[0], 0.6)


def test_crop_and_pad_is_a_shift_by_at_most_what_is_cut_and_undo_says_what_left() -> None:
    batch = Batch(
        image=torch.rand(8, 3, 20, 40), sparse_depth=torch.ones(8, 1, 20, 40), intrinsics=torch.eye(3).repeat(8, 1, 1)
    )
    view = augment(batch, AugmentConfig(crop_pad=(0.8, 0.8)), generator(0, 0))
    moved = view.batch.intrinsics[:, :2, 2] - batch.intrinsics[:, :2, 2]
    assert (moved[:, 0].abs() <= 0.2 * 39 + 1e-4).all()
    assert (moved[:, 1].abs() <= 0.2 * 19 + 1e-4).all()
    assert moved.abs().max() > 1
    _, mask = view.undo(view.batch.sparse_depth)
    kept = (40 - moved[:, 0].abs().ceil()) * (20 - moved[:, 1].abs().ceil())
    assert torch.equal(mask.sum((1, 2, 3)), kept)


def test_the_way_back_is_as_exact_in_half_precision() -> None:
    batch = smooth_batch(4, 32, 300)
    view = augment(batch, FLIPPED, generator(0, 3))
    depth = torch.rand(4, 1, 32, 300)
    expected, _ = view.undo(depth)
    assert not torch.equal(expected, depth)
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = view.undo(depth)
    assert torch.equal(found, expected)
