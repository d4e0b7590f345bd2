"""Points into pictures: distortion, boxes, occlusion."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from protodepth.data import projection


def test_a_box_holds_its_own_corners_and_not_the_point_beyond() -> None:
    turn = Rotation.from_euler("z", 0.7).as_matrix()
    centre, size = np.array([5.0, 2.0, 1.0]), np.array([4.0, 2.0, 1.5])
    inside, outside = centre + turn @ (size / 2 * 0.99), centre + turn @ (size / 2 * 1.2)
    assert projection.in_box(np.stack([inside, outside]), centre, size, turn, margin=0.0).tolist() == [True, False]


def test_occluded_points_are_dropped() -> None:
    depth = np.zeros((9, 9), np.float32)
    depth[4, 4], depth[4, 6], depth[0, 0] = 5.0, 12.0, 12.0
    assert np.argwhere(projection.drop_occluded(depth) > 0).tolist() == [[0, 0], [4, 4]]


LENSES = [(-0.3, 0.1, 0.001, -0.002, 0.0), (0.9, -0.2, 3e-4, -2e-4, 0.1, 1.2, 0.1, 0.1)]


@pytest.mark.parametrize("lens", LENSES)
def test_a_lens_of_five_or_eight_numbers_is_opencvs(lens: tuple[float, ...]) -> None:
    cv2 = pytest.importorskip("cv2")
    x, y = np.random.default_rng(0).uniform(-0.7, 0.7, (2, 50))
    points = np.stack([x, y, np.ones(50)], 1)
    wanted = cv2.projectPoints(points, np.zeros(3), np.zeros(3), np.eye(3), np.array(lens))[0].reshape(-1, 2)
    seen = projection.distort(x, y, lens)
    assert np.allclose(np.stack(seen, 1), wanted, atol=1e-12)
    assert np.allclose(projection.undistort(*seen, lens), (x, y), atol=1e-9)


def test_what_no_lens_shows_has_no_direction() -> None:
    """With k1 = -0.3 nothing lies farther out than 0.7 of the focal length."""
    x, y = projection.undistort(np.array([0.3, 0.9]), np.array([0.0, 0.0]), LENSES[0][:1] + (0.0,) * 4)
    assert np.isfinite(x[0])
    assert np.isnan([x[1], y[1]]).all()
