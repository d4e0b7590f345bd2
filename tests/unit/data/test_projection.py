"""Points into pictures: distortion, boxes, occlusion."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from protodepth.data import projection


def test_distortion_agrees_with_opencv() -> None:
    cv2 = pytest.importorskip("cv2")
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.uniform(-0.4, 0.4, 50), rng.uniform(-0.3, 0.3, 50), np.ones(50)])
    lens = (0.04, -0.35, 0.001, -0.0005, 0.1)
    expected, _ = cv2.projectPoints(points, np.zeros(3), np.zeros(3), np.eye(3), np.array(lens))
    x, y = projection.distort(points[:, 0], points[:, 1], lens)
    assert np.allclose(np.column_stack([x, y]), expected[:, 0], atol=1e-9)


def test_a_box_holds_its_own_corners_and_not_the_point_beyond() -> None:
    turn = Rotation.from_euler("z", 0.7).as_matrix()
    centre, size = np.array([5.0, 2.0, 1.0]), np.array([4.0, 2.0, 1.5])
    inside, outside = centre + turn @ (size / 2 * 0.99), centre + turn @ (size / 2 * 1.2)
    assert projection.in_box(np.stack([inside, outside]), centre, size, turn, margin=0.0).tolist() == [True, False]


def test_occluded_points_are_dropped() -> None:
    depth = np.zeros((9, 9), np.float32)
    depth[4, 4], depth[4, 6], depth[0, 0] = 5.0, 12.0, 12.0
    assert np.argwhere(projection.drop_occluded(depth) > 0).tolist() == [[0, 0], [4, 4]]
