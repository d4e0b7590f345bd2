"""Samplers against loops and hand-made images, and those of the published preparations."""

from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from protodepth.data.files import images
from protodepth.data.sampling import (
    SAMPLERS,
    clustered,
    harris,
    harris_grid,
    harris_response,
    holes,
    luminance,
    parse_sampler,
    scan_lines,
    tof,
    uniform,
)
from protodepth.errors import DataError, UnknownNameError


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    """Dark squares on grey: corners and straight edges are both there."""
    picture = np.full((160, 200, 3), 120, np.uint8)
    for y in range(20, 140, 40):
        for x in range(20, 180, 40):
            picture[y : y + 20, x : x + 20] = 30
    return picture


def test_harris_uncle_takes_edges_and_harris_takes_corners() -> None:
    """Stripes (edges only) on the left half, small dots (corners) on the right."""
    pytest.importorskip("cv2")
    pytest.importorskip("sklearn")
    y, x = np.mgrid[:300, :400]
    board = np.where(x < 200, x // 5 % 2, (x % 20 < 3) & (y % 20 < 3) & (x > 215))
    picture = np.repeat((40 + 160 * board).astype(np.uint8)[..., None], 3, -1)
    depth = np.full(board.shape, 3.0, np.float32)
    corners = np.argwhere(parse_sampler("harris:80")(picture, depth, 0) > 0)
    published = np.argwhere(parse_sampler("harris_uncle:80")(picture, depth, 0) > 0)
    assert (corners[:, 1] > 190).all()
    assert len(published) > 70
    assert (published[:, 1] < 210).all()


def test_fast_keeps_the_count_has_depth_and_follows_the_seed(image: np.ndarray) -> None:
    pytest.importorskip("cv2")
    noisy = (image.astype(int) + np.random.default_rng(0).integers(-9, 9, image.shape)).astype(np.uint8)
    depth = np.full(image.shape[:2], 2.5, np.float32)
    depth[:, :100] = 0
    one, again, other = (parse_sampler("fast:150")(noisy, depth, seed) for seed in (1, 1, 2))
    assert (one > 0).sum() == 150
    assert not one[:, :100].any()
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_fast_protodepth_takes_every_nth_pixel_of_the_map_of_corners_as_opencv_reduces_it() -> None:
    cv2 = pytest.importorskip("cv2")
    large = np.random.default_rng(2).integers(0, 255, (90, 130, 3)).astype(np.uint8)
    depth = np.full((40, 52), 2.0, np.float32)
    depth[:, :6] = 0
    grey = cv2.cvtColor(large, cv2.COLOR_RGB2GRAY)
    mask = np.zeros(grey.shape, np.uint8)
    for corner in cv2.FastFeatureDetector_create(threshold=1, nonmaxSuppression=False).detect(grey):
        mask[int(corner.pt[1]), int(corner.pt[0])] = 1
    expected = cv2.resize(mask, (52, 40), interpolation=cv2.INTER_NEAREST)
    found = parse_sampler("fast_protodepth:100000")(large, depth, 0)
    assert expected[:, 6:].sum() > 50
    assert np.array_equal(found > 0, (expected > 0) & (depth > 0))
    few = parse_sampler("fast_protodepth:300")(large, depth, 0)
    assert 0 < (few > 0).sum() < (found > 0).sum()


def test_a_scan_pattern_is_drawn_by_the_seed_from_a_folder(tmp_path: Path, image: np.ndarray) -> None:
    for i in range(5):
        scan = np.zeros((16, 20))
        scan[3 * i, 4 * i] = 5
        images.write_depth(tmp_path / f"{i}.png", scan)
    depth = np.full(image.shape[:2], 7.0, np.float32)
    sampler = parse_sampler(f"lidar_pattern:{tmp_path}")
    places = {tuple(np.argwhere(sampler(image, depth, seed) > 0)[0].tolist()) for seed in range(30)}
    assert places <= {(30 * i, 40 * i) for i in range(5)}
    assert len(places) > 2
    with pytest.raises(DataError, match="no PNG files"):
        parse_sampler(f"lidar_pattern:{tmp_path / 'empty'}")


def test_an_unknown_sampler_lists_the_choices() -> None:
    with pytest.raises(UnknownNameError, match=r"harris_uncle.*scan_lines.*lidar_pattern"):
        parse_sampler("orb:100")


rng = np.random.default_rng


def squares() -> np.ndarray:
    """Two white squares on black: eight corners."""
    image = np.zeros((40, 60, 3), np.uint8)
    image[8:20, 10:25] = image[24:34, 35:52] = 255
    return image


def test_corner_strength_is_det_minus_k_trace_squared_of_the_smoothed_structure_tensor() -> None:
    grey = rng(0).random((12, 14))
    padded = np.pad(grey, 1, mode="symmetric")
    x, y = np.zeros_like(grey), np.zeros_like(grey)
    for i in range(12):
        for j in range(14):
            w = padded[i : i + 3, j : j + 3]
            x[i, j] = (w[:, 2] - w[:, 0]) @ [1, 2, 1] / 8
            y[i, j] = (w[2] - w[0]) @ [1, 2, 1] / 8
    taps = np.exp(-(np.arange(-4, 5) ** 2) / 2)
    taps /= taps.sum()

    def smooth(a: np.ndarray) -> np.ndarray:
        for axis in (0, 1):
            a = np.apply_along_axis(lambda v: np.convolve(np.pad(v, 4, mode="symmetric"), taps, "valid"), axis, a)
        return a

    xx, yy, xy = smooth(x * x), smooth(y * y), smooth(x * y)
    np.testing.assert_allclose(harris_response(grey), xx * yy - xy**2 - 0.04 * (xx + yy) ** 2, atol=1e-12)


def test_strength_is_positive_at_corners_negative_on_edges_zero_on_flats() -> None:
    strength = harris_response(luminance(squares()))
    assert strength[8, 10] > 1e-4
    assert strength[14, 10] < -1e-6
    assert abs(strength[2, 55]) < 1e-12


def test_harris_finds_the_eight_corners_of_two_squares() -> None:
    depth = np.full((40, 60), 2.5)
    rows, columns = np.nonzero(harris(squares(), depth, 8, rng(0)))
    corners = [(r, c) for r in (7.5, 19.5) for c in (9.5, 24.5)] + [(r, c) for r in (23.5, 33.5) for c in (34.5, 51.5)]
    assert len(rows) == 8
    for r, c in corners:
        assert min(np.hypot(rows - r, columns - c)) <= np.sqrt(4.5)


def test_harris_skips_pixels_without_depth_and_keeps_one_point_a_window() -> None:
    image, depth = rng(1).random((50, 60, 3)), np.ones((50, 60))
    depth[:, 30:] = 0
    sparse = harris(image, depth, 200, rng(0))
    assert not sparse[:, 30:].any()
    rows, columns = np.nonzero(sparse)
    distance = np.maximum(abs(rows[:, None] - rows), abs(columns[:, None] - columns)) + 9 * np.eye(len(rows))
    assert distance.min() >= 2


def test_harris_takes_the_strongest_first_and_a_flat_image_has_no_corner() -> None:
    image, depth = rng(2).random((40, 40, 3)), np.ones((40, 40))
    few, many = harris(image, depth, 10, rng(0)) > 0, harris(image, depth, 40, rng(0)) > 0
    assert few.sum() == 10
    assert many.sum() == 40
    assert (many | ~few).all()
    assert not harris(np.full((20, 20, 3), 0.4), np.ones((20, 20)), 10, rng(0)).any()


def test_the_grid_sampler_puts_one_point_in_each_cell() -> None:
    sparse = harris_grid(rng(3).random((40, 60, 3)), np.full((40, 60), 3.0), 24, rng(0)) > 0
    assert (sparse.reshape(4, 10, 6, 10).sum((1, 3)) == 1).all()


def test_uniform_points_are_spread_evenly_and_keep_the_depth() -> None:
    depth = rng(0).uniform(1, 5, (40, 60)).astype(np.float32)
    total = np.zeros_like(depth)
    for seed in range(200):
        sparse = uniform(None, depth, 60, rng(seed))
        assert (sparse > 0).sum() == 60
        np.testing.assert_array_equal(sparse[sparse > 0], depth[sparse > 0])
        total += sparse > 0
    quarter = total.reshape(2, 20, 2, 30).sum((1, 3)) / total.sum()
    np.testing.assert_allclose(quarter, 0.25, atol=0.02)


def test_fewer_known_pixels_than_asked_gives_all_of_them() -> None:
    depth = np.zeros((20, 20))
    depth[3, 4] = depth[7, 8] = 2
    np.testing.assert_array_equal(uniform(None, depth, 50, rng(0)), depth)


def test_scan_lines_lie_on_rows_with_the_asked_columns_and_dropout() -> None:
    depth = np.ones((64, 100))
    full = scan_lines(depth, 8, rng(0))
    assert sorted(set((full > 0).sum(1).tolist())) == [0, 100]
    assert len(np.nonzero(full.any(1))[0]) == 8
    assert np.ptp(np.diff(np.nonzero(full.any(1))[0])) == 0
    assert (scan_lines(depth, 8, rng(0), columns=25) > 0).sum() == 200
    kept = np.mean([(scan_lines(depth, 8, rng(s), dropout=0.3) > 0).sum() / 800 for s in range(20)])
    assert kept == pytest.approx(0.7, abs=0.02)


def test_holes_are_solid_about_a_tenth_of_the_width_and_leave_the_rest_as_it_was() -> None:
    depth = rng(0).uniform(1, 5, (240, 320)).astype(np.float32)
    for seed in range(20):
        left = holes(None, depth, 1, rng(seed))
        rows, columns = np.nonzero(left == 0)
        np.testing.assert_array_equal(left[left > 0], depth[left > 0])
        area = len(rows)
        assert np.pi * (0.6 * 16) ** 2 * 0.9 < area < 4 * (1.4 * 16) ** 2 * 1.1
        inner = (left == 0) & (ndimage.uniform_filter((left == 0).astype(float), 3, mode="nearest") > 0.99)
        assert inner.sum() > 0.6 * area  # one hole, not scattered pixels
        assert 0 < np.ptp(rows) < 64
        assert 0 < np.ptp(columns) < 64


def test_holes_lie_where_there_is_depth_and_never_take_more_than_half_of_it() -> None:
    depth = np.zeros((60, 80), np.float32)
    depth[20:40, 30:50] = 2
    for seed in range(10):
        left = holes(None, depth, 60, rng(seed))
        assert 0.5 * 400 <= (left > 0).sum() < 400
    assert not holes(None, np.zeros((6, 8)), 3, rng(0)).any()


def test_clustered_points_sit_on_strong_edges_and_leave_large_regions_empty() -> None:
    image = np.full((120, 160, 3), 0.3)
    image[:, 10::20] = 0.9  # bright lines everywhere
    image += rng(0).normal(0, 0.01, image.shape)
    depth = np.full((120, 160), 2.0)
    for seed in range(5):
        sparse = clustered(image, depth, 200, rng(seed)) > 0
        assert sparse.sum() == 200
        away = abs((np.nonzero(sparse)[1] - 10 + 10) % 20 - 10)
        assert (away <= 2).mean() > 0.95
        parts = sparse.reshape(3, 40, 4, 40).sum((1, 3))
        assert (parts == 0).sum() == 4


def test_tof_zones_are_square_and_take_the_known_pixel_nearest_to_their_centre() -> None:
    depth = rng(1).uniform(1, 3, (48, 64)).astype(np.float32)
    depth[:24, :32] = 0
    depth[10, 3] = 7.0  # all that its zone knows
    sparse = tof(None, depth, 8, rng(0))
    zones = (sparse > 0).reshape(6, 8, 8, 8).sum((1, 3))
    assert (zones[:3, :4] > 0).sum() == 1
    assert sparse[10, 3] == 7.0
    zones[:3, :4] = 1
    assert (zones == 1).all()


def test_a_share_is_of_the_pixels_that_have_depth() -> None:
    depth = np.zeros((20, 20), np.float32)
    depth[:10] = 3
    assert (parse_sampler("uniform:5%")(np.zeros((20, 20, 3)), depth, 0) > 0).sum() == 10
    for text in ("uniform:0%", "uniform:101%", "uniform:%", "uniform:x%", "uniform:nan%"):
        with pytest.raises(DataError, match="uniform:5%"):
            parse_sampler(text)


def test_holes_need_no_count() -> None:
    image, depth = np.zeros((60, 80, 3)), np.ones((60, 80), np.float32)
    np.testing.assert_array_equal(parse_sampler("holes")(image, depth, 4), parse_sampler("holes:12")(image, depth, 4))


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_parsed_sampler_is_a_function_of_the_seed_and_never_invents_depth(name: str) -> None:
    image, depth = rng(5).random((32, 48, 3)), rng(6).uniform(1, 9, (32, 48)).astype(np.float32)
    depth[:8] = 0
    sampler = parse_sampler(f"{name}:12")
    first = sampler(image, depth, 3)
    np.testing.assert_array_equal(first, sampler(image, depth, 3))
    assert first.any()
    np.testing.assert_array_equal(first[first > 0], depth[first > 0])
    assert first.shape == depth.shape
    assert first.dtype == np.float32


@pytest.mark.parametrize("text", ["harris", "harris:", "harris:0", "harris:-3", "harris:1.5", "harris:many"])
def test_a_badly_written_count_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(DataError, match="harris:1500"):
        parse_sampler(text)


def test_an_unknown_sampler_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="harris"):
        parse_sampler("sift:100")


def test_an_image_of_another_size_is_refused() -> None:
    with pytest.raises(DataError, match="same size"):
        harris(np.zeros((4, 4, 3)), np.ones((5, 5)), 3, rng(0))
