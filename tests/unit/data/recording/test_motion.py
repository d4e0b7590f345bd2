"""The stride: parallax from translation, as long as neighbours still see the same things."""

import numpy as np
import pytest

from protodepth.data.recording.motion import BLOCK, MAX_STRIDE, OVERLAP, TARGET, choose_stride, overlap, parallax

FOCAL, ASPECT = 0.82, 0.75  # of a Kinect, in widths


def turning(count: int, degrees: float, step: float) -> np.ndarray:
    """A camera that turns to the right by so many degrees a frame and moves by ``step``."""
    poses = np.tile(np.eye(4), (count, 1, 1))
    for n, pose in enumerate(poses):
        a = np.deg2rad(degrees * n)
        pose[:3, :3] = [[np.cos(a), 0, np.sin(a)], [0, 1, 0], [-np.sin(a), 0, np.cos(a)]]
        pose[0, 3] = step * n
    return poses


def shared_by_a_loop(a: np.ndarray, b: np.ndarray, depth: float) -> float:
    seen = []
    for column in range(32):
        for row in range(24):
            x, y = (column + 0.5) / 32 - 0.5, ((row + 0.5) / 24 - 0.5) * ASPECT
            p = np.linalg.inv(b) @ a @ [x / FOCAL * depth, y / FOCAL * depth, depth, 1]
            seen.append(p[2] > 0 and abs(FOCAL * p[0] / p[2]) <= 0.5 and abs(FOCAL * p[1] / p[2]) <= ASPECT / 2)
    return float(np.mean(seen))


@pytest.mark.parametrize(("degrees", "step"), [(2.0, 0.0), (0.0, 0.3), (3.0, 0.2), (60.0, 0.0)])
def test_the_overlap_is_that_of_a_loop_over_rays(degrees: float, step: float):
    poses = turning(6, degrees, step)
    found = overlap(poses, 2, FOCAL, ASPECT, depth=2.0)
    assert found == pytest.approx([shared_by_a_loop(poses[i], poses[i + 2], 2.0) for i in range(4)])


def test_a_camera_that_moves_gets_the_smallest_stride_with_parallax():
    poses = turning(100, 0.0, 0.02)
    stride, shared = choose_stride(poses, FOCAL, 2.0, ASPECT)
    assert np.array_equal(shared, overlap(poses, stride, FOCAL, ASPECT, 2.0))
    assert np.median(parallax(poses[:, :3, 3], stride, FOCAL, 2.0)) >= TARGET
    assert np.median(parallax(poses[:, :3, 3], stride - 1, FOCAL, 2.0)) < TARGET


def test_a_camera_that_turns_keeps_its_neighbours_in_view():
    """Parallax alone would take stride 8, twelve degrees apart."""
    poses = turning(100, 1.5, 0.0065)
    assert np.median(parallax(poses[:, :3, 3], 8, FOCAL, 2.0)) >= TARGET
    stride, shared = choose_stride(poses, FOCAL, 2.0, ASPECT)
    assert np.array_equal(shared, overlap(poses, stride, FOCAL, ASPECT, 2.0))
    assert 1 <= stride < 8
    assert np.median(overlap(poses, stride, FOCAL, ASPECT, 2.0)) >= OVERLAP
    assert np.median(overlap(poses, stride + 1, FOCAL, ASPECT, 2.0)) < OVERLAP


def test_lost_poses_do_not_count_and_a_fast_turn_gets_the_next_frame():
    poses = turning(40, 0.0, 0.02)
    whole = choose_stride(poses, FOCAL, 2.0, ASPECT)[0]
    poses[5:9] = np.nan
    assert choose_stride(poses, FOCAL, 2.0, ASPECT)[0] == whole
    assert choose_stride(turning(40, 25.0, 0.0), FOCAL, 2.0, ASPECT)[0] == 1
    assert choose_stride(turning(200, 0.0, 0.0), FOCAL, 2.0, ASPECT)[0] == MAX_STRIDE


def test_many_pairs_share_what_each_pair_alone_shares() -> None:
    """Longer than a block: nothing is lost or doubled where blocks meet."""
    angles = np.linspace(0, 3, 2 * BLOCK + 7)
    poses = np.tile(np.eye(4), (len(angles), 1, 1))
    poses[:, 0, 0] = poses[:, 2, 2] = np.cos(angles)
    poses[:, 0, 2], poses[:, 2, 0] = np.sin(angles), -np.sin(angles)
    poses[:, 0, 3] = np.linspace(0, 9, len(angles)) ** 2
    shared = overlap(poses, 2, 0.9, 0.75, 5.0)
    alone = [overlap(poses[[i, i + 2]], 1, 0.9, 0.75, 5.0)[0] for i in range(len(poses) - 2)]
    np.testing.assert_allclose(shared, alone, atol=2 / 768)  # rays, of which rounding may move one over the edge
    assert len(np.unique(shared)) > 20
