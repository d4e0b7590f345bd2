"""The samplers of the published preparations."""

from pathlib import Path

import numpy as np
import pytest

from protodepth.data.files import images
from protodepth.data.sampling import parse_sampler
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
