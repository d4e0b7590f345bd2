"""Drawn scenes of anywhere: what they promise to a network that learns from them."""

import numpy as np
import pytest

from protodepth.data.arguments import open_domain
from protodepth.data.worlds import anywhere
from protodepth.data.worlds.raycast import Camera, Light, Material, Scene, Shape, Solid
from protodepth.data.worlds.shading import depth_map

CAMERA = Camera(np.array([[40.0, 0, 23.5], [0, 40.0, 15.5], [0, 0, 1]]), np.eye(3), np.zeros(3))


def depth_of(*solids: Solid) -> np.ndarray:
    dark = Light(above=(1, 1, 1), below=(1, 1, 1))
    return depth_map(Scene(solids, dark), CAMERA, (32, 48))


def test_a_frame_is_the_same_whenever_it_is_drawn_and_another_for_another_seed() -> None:
    one, again, other = (anywhere.draw(3, (24, 32), seed) for seed in (0, 0, 1))
    assert np.array_equal(one[0], again[0])
    assert np.array_equal(one[1], again[1])
    assert not np.array_equal(one[1], other[1])


@pytest.mark.parametrize("pattern", [p for p, _ in anywhere.PATTERNS])
def test_every_pattern_of_points_leaves_something_to_fill_in(pattern: anywhere.Scatter) -> None:
    picture, depth = anywhere.draw(1, (48, 64))
    shares = [pattern(depth, picture / 255.0, np.random.default_rng(i)).mean() for i in range(12)]
    assert min(shares) < 1
    assert max(shares) > 0
    assert len(set(shares)) > 6


def test_a_sample_has_points_near_the_truth_and_truth_where_there_are_none() -> None:
    picture, depth = anywhere.draw(2, (64, 96))
    for i in range(30):
        image, sparse, truth = anywhere.sample(picture, depth, (48, 64), np.random.default_rng(i))
        assert image.shape == (3, 48, 64)
        assert 0 <= image.min() <= image.max() <= 1
        known = sparse > 0
        assert known.sum() >= 5
        assert (truth[~known] > 0).any()
        both = known & (truth > 0)
        if both.sum() < 50:  # a handful may all be wrong
            continue
        assert np.median(np.abs(sparse[both] / truth[both] - 1)) < 0.1


def test_seen_from_beside_near_things_move_more_than_far_ones_in_any_direction() -> None:
    depth = np.full((40, 40), 9.0)
    depth[16:24, 16:24] = 3.0
    ways = set()
    for i in range(20):
        moved = anywhere._from_beside(depth, np.random.default_rng(i))
        near = np.argwhere(moved == 3.0).mean(0) - 19.5
        assert np.abs(near).max() <= 9.5  # three pixels at the middle depth of 9 m are nine at 3 m
        ways.add(tuple(np.sign(np.round(near)).astype(int)))
    assert {abs(row) for row, _ in ways} == {0, 1} == {abs(column) for _, column in ways}


def test_a_picture_beside_its_depth_is_moved_or_of_another_size_about_its_middle() -> None:
    rows, columns = np.indices((60, 80), np.float32)
    picture = np.stack([rows, columns, np.zeros_like(rows)], 2)
    slopes = set()
    for i in range(12):
        beside = anywhere._beside(picture, np.random.default_rng(i))
        assert beside.shape == picture.shape
        assert abs(float(beside[30, 40, 0]) - 30) <= 8
        slopes.add(round(float((beside[45, 0, 0] - beside[15, 0, 0]) / 30), 1))
    assert len(slopes) > 1
    assert min(slopes) >= 0.8
    assert max(slopes) <= 1.2


def test_the_domain_any_has_triplets_of_any_scale_in_disjoint_splits() -> None:
    domain = open_domain("worlds:any?size=32x48&train=6&val=2&test=2")
    frames = [domain.train[i] for i in range(6)]
    middles = [float(np.median(f.ground_truth[f.ground_truth > 0])) for f in frames if f.ground_truth is not None]
    assert max(middles) > 10 * min(middles)
    assert all(len(f.neighbours) == len(f.poses) == 2 for f in frames)
    assert not np.array_equal(domain.val[0].image, domain.train[0].image)


def test_a_leaning_box_is_the_upright_one_seen_by_a_leaning_camera() -> None:
    """The oracle turns the other way round."""
    box = Material((1, 1, 1))
    angle = 0.4
    leaning = depth_of(Solid(Shape.BOX, (0, 0, 5), (1, 0.5, 0.7), box, tilt=(0.0, angle)))
    upright = Scene((Solid(Shape.BOX, (0, 0, 5), (1, 0.5, 0.7), box),), Light(above=(1, 1, 1), below=(1, 1, 1)))
    cos, sin = np.cos(angle), np.sin(angle)
    turned = Camera(CAMERA.intrinsics, np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1.0]]), CAMERA.origin)
    assert np.allclose(leaning, depth_map(upright, turned, (32, 48)), atol=1e-5)


def test_an_ellipsoid_with_equal_sizes_is_a_ball_and_a_flat_one_is_flat() -> None:
    look = Material((1, 1, 1))
    ball = depth_of(Solid(Shape.BALL, (0, 0, 4), (1, 1, 1), look))
    egg = depth_of(Solid(Shape.BALL, (0, 0, 4), (1, 1, 1 + 1e-9), look))
    flat = depth_of(Solid(Shape.BALL, (0, 0, 4), (1, 1, 0.2), look))
    middle = (15, 23)
    assert np.allclose(ball, egg, atol=1e-4)
    assert ball[middle] == pytest.approx(3.0, abs=0.01)
    assert flat[middle] == pytest.approx(3.8, abs=0.01)
