"""Sparse depth that can be read and cannot be right stops, and the message names what would fit."""

import logging

import numpy as np
import pytest

from protodepth.data.doubt import check_points, fitting_units, reason_against
from protodepth.errors import DataError

INDOOR, ANY = (0.1, 8.0), (0.1, 200.0)


def points(low: float, high: float, share: float = 0.05, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random((60, 80)) < share, rng.uniform(low, high, (60, 80)), 0).astype(np.float32)


@pytest.mark.parametrize("depth_range", [INDOOR, ANY])
@pytest.mark.parametrize(("unit", "scale"), [("mm", 1000.0), ("kitti", 256.0), ("tum", 5000.0)])
def test_whole_steps_that_were_taken_for_metres_stop_with_their_unit(
    depth_range: tuple[float, float], unit: str, scale: float
) -> None:
    metres = points(1.0, 4.0)
    assert reason_against(metres, depth_range) is None
    with pytest.raises(DataError, match=rf"{unit}: 1\.\d\d to 3\.\d\d m.*force=True"):
        check_points(metres * scale, depth_range)
    check_points(metres * scale, depth_range, force=True)


def test_another_whole_unit_is_seen_through_the_one_that_was_said() -> None:
    mm_read_as_kitti = np.rint(points(2.5, 4.0) * 1000) / 256
    reason = reason_against(mm_read_as_kitti, INDOOR, "kitti")
    assert reason is not None
    assert "as kitti they go from" in reason
    assert "mm: 2.5" in reason
    twice = points(1.0, 4.0) / 1000
    assert any(text.startswith("metres: 1.") for text in fitting_units(twice[twice > 0].astype(float), INDOOR, "mm"))


def test_half_of_the_points_may_lie_outside_and_no_more() -> None:
    depth = np.zeros((10, 10), np.float32)
    depth[0] = 3.0
    depth[1] = 50.0
    assert reason_against(depth, INDOOR) is None
    depth[2, 0] = 50.0
    reason = reason_against(depth, INDOOR)
    assert reason is not None
    assert reason.startswith("only 47.6 % of the sparse points")
    assert reason_against(np.full((4, 4), np.nan), INDOOR) is None


def test_where_no_unit_fits_it_is_the_network() -> None:
    assert "network for such depths" in str(reason_against(points(9.0, 10.0) * 1e7, INDOOR))


@pytest.mark.parametrize("unit", ["mm", "kitti", "metres"])
def test_the_mark_of_a_sensor_is_no_measurement(unit: str) -> None:
    scale = {"mm": 1000.0, "kitti": 256.0, "metres": 1.0}[unit]
    depth = points(1.0, 4.0)
    depth[0, :40] = 65535 / scale
    assert "65535" in str(reason_against(depth, ANY, unit))
    depth[0, 1:40] = 0  # a single one may be a point
    assert reason_against(depth, ANY, unit) is None


def test_a_dense_map_is_said_where_points_are_expected(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    check_points(points(1, 4), INDOOR)
    check_points(points(1, 4, share=0.9), ANY, bounded=False)  # a depth camera's map with holes
    assert not caplog.text
    check_points(points(1, 4, share=0.9), INDOOR)
    assert "dense map" in caplog.text
    caplog.clear()
    check_points(points(1, 4, share=2), ANY, bounded=False)
    assert "100 %" in caplog.text
