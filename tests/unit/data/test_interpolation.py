"""The floor: interpolation checked against formulas and brute force."""

import numpy as np
import pytest
from scipy.interpolate import LinearNDInterpolator

from protodepth.data.interpolation import completions, linear, morphological, nearest
from protodepth.data.worlds.worlds import world
from protodepth.errors import DataError, UnknownNameError

NAMES = completions.names()


def scattered(seed: int, shape: tuple[int, int] = (24, 31), count: int = 40) -> np.ndarray:
    rng = np.random.default_rng(seed)
    z = np.zeros(shape)
    z.flat[rng.permutation(z.size)[:count]] = rng.uniform(1, 50, count)
    return z


def test_nearest_is_what_a_search_over_all_points_finds():
    z = scattered(0)
    found = nearest(z)
    places = np.argwhere(z > 0)
    for y, x in np.ndindex(z.shape):
        distances = ((places - (y, x)) ** 2).sum(1)
        candidates = {z[tuple(p)] for p in places[distances == distances.min()]}
        assert found[y, x] in candidates


def test_linear_reproduces_a_plane_inside_the_points():
    y, x = np.mgrid[:20, :30]
    plane = 2 + 0.1 * x + 0.3 * y
    keep = np.random.default_rng(1).random(plane.shape) < 0.1
    keep[[0, 0, -1, -1], [0, -1, 0, -1]] = True  # the corners: no pixel lies outside of the triangles
    assert np.allclose(linear(np.where(keep, plane, 0)), plane)


@pytest.mark.parametrize("name", NAMES)
def test_the_result_is_dense_and_within_the_depths_of_the_points(name):
    for seed in range(3):
        z = scattered(seed)
        found = completions.get(name)(z)
        assert found.shape == z.shape
        assert (found >= z[z > 0].min() - 1e-9).all()
        assert (found <= z.max() + 1e-9).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", ["one point", "two points", "a line"])
def test_few_points_are_enough(name, case):
    z = np.zeros((16, 20))
    z[5, 5] = 4.0
    if case != "one point":
        z[5, 9] = 4.0
    if case == "a line":
        z[5, 13] = 4.0
    assert np.allclose(completions.get(name)(z), 4.0)


@pytest.mark.parametrize("name", NAMES)
def test_no_point_at_all_is_refused(name):
    with pytest.raises(DataError, match="no point"):
        completions.get(name)(np.zeros((8, 8)))
    with pytest.raises(DataError, match="two dimensions"):
        completions.get(name)(np.ones((1, 8, 8)))


def test_nan_is_no_point():
    z = scattered(2)
    assert np.array_equal(nearest(np.where(z > 0, z, np.nan)), nearest(z))


def test_where_surfaces_meet_the_nearer_one_wins():
    z = np.zeros((21, 21))
    z[::2, ::2] = 20.0
    z[8:13:2, 8:13:2] = 2.0  # a near thing with nine points on it
    found = morphological(z)
    assert (found < 11).sum() > 1.5 * (nearest(z) < 11).sum()
    assert found[0, 0] == pytest.approx(20.0, abs=1e-6)


def test_columns_are_extended_upwards():
    z = np.zeros((40, 9))
    z[20:, :] = 5.0
    z[20, :] = 7.0
    found = morphological(z)
    assert np.allclose(found[0], found[12], atol=1e-3)


def test_interpolation_is_better_than_one_depth_for_all_on_a_world():
    frame = world("street", size=(64, 96), train=1, val=1, test=1, cache=False).test[0]
    known = frame.ground_truth > 0
    plain = np.abs(np.median(frame.sparse_depth[frame.sparse_depth > 0]) - frame.ground_truth)[known].mean()
    for name in NAMES:
        assert np.abs(completions.get(name)(frame.sparse_depth) - frame.ground_truth)[known].mean() < 0.7 * plain


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match="morphological"):
        completions.get("bilinear")


def test_linear_on_a_dense_map_with_holes_is_what_all_its_points_give():
    """Points inside of dense regions are left out for speed: the interpolation over all of them is the oracle.

    Four points of a grid on one circle make triangles in two ways: single pixels may differ, the error may not.
    """
    rng = np.random.default_rng(3)
    y, x = np.mgrid[:120, :150]
    depth = 2 + 0.3 * np.sin(x / 4) + 0.2 * np.cos(y / 3)
    keep = np.ones(depth.shape, bool)
    for row, column in rng.integers(5, 100, (12, 2)):
        keep[row : row + 9, column : column + 11] = rng.random((9, 11)) < 0.1
    z = np.where(keep, depth, 0)
    expected = LinearNDInterpolator(np.argwhere(keep), z[keep])(*np.indices(z.shape))
    found, wrong = linear(z), np.abs(expected - depth)[~keep]
    assert np.array_equal(found[keep], z[keep])
    assert np.isclose(found, expected, atol=1e-9)[~keep].mean() > 0.6
    assert np.abs(found - depth)[~keep].mean() == pytest.approx(wrong.mean(), rel=0.03)
    plane = np.where(keep, 1 + 0.01 * x + 0.02 * y, 0)
    assert np.allclose(linear(plane), 1 + 0.01 * x + 0.02 * y)
