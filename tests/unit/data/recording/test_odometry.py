"""Motion from sparse depth: found on a drawn scene whose motion is known, from rest and from a wrong start."""

import numpy as np
import pytest

from helpers.data_scene import Shot, relative, walk
from protodepth.data.recording.motion import warp_error
from protodepth.data.recording.odometry import estimate_pose, small_motion

SHOTS = walk(4, size=(96, 128), step=0.08)


def sparse(shot: Shot, share: float = 0.06) -> np.ndarray:
    return shot.depth * (np.random.default_rng(0).random(shot.depth.shape) < share)


@pytest.mark.parametrize("other", [1, 3])
def test_the_motion_of_a_drawn_camera_is_found_from_rest(other: int):
    here, there = SHOTS[0], SHOTS[other]
    true = relative(here, there)
    found = estimate_pose(here.image, there.image, sparse(here), here.K)
    assert np.linalg.norm(true[:3, 3]) > 0.08
    assert np.abs(found[:3, 3] - true[:3, 3]).max() < 0.02
    assert np.abs(found[:3, :3] - true[:3, :3]).max() < 0.01


def test_a_poor_pose_is_mended_and_a_good_one_kept():
    here, there = SHOTS[0], SHOTS[2]
    true, points = relative(here, there), sparse(here)
    poor = small_motion(np.array([0.05, -0.03, 0.02, 0.01, -0.01, 0.01])) @ true
    errors = [warp_error(here.image, there.image, points, g, here.K) for g in (np.eye(4), poor, true)]
    mended = estimate_pose(here.image, there.image, points, here.K, poor)
    kept = estimate_pose(here.image, there.image, points, here.K, true)
    assert errors[1] > 2 * errors[2]
    for pose in (mended, kept):
        assert warp_error(here.image, there.image, points, pose, here.K) < 1.1 * errors[2]


def test_another_exposure_does_not_move_the_camera():
    here, there = SHOTS[0], SHOTS[1]
    brighter = np.clip(there.image.astype(int) + 25, 0, 255).astype(np.uint8)
    found = estimate_pose(here.image, brighter, sparse(here), here.K)
    assert np.abs(found[:3, 3] - relative(here, there)[:3, 3]).max() < 0.03


def test_large_pictures_are_reduced_without_a_change_of_the_motion():
    here, there = SHOTS[0], SHOTS[1]
    large = [np.repeat(np.repeat(s.image, 5, 0), 5, 1) for s in (here, there)]
    depth = np.zeros((480, 640))
    depth[2::5, 2::5] = sparse(here)
    K = np.array([[5, 0, 2], [0, 5, 2], [0, 0, 1]]) @ here.K  # the centre of a pixel is that of its 5 x 5
    found = estimate_pose(*large, depth, K)
    assert np.abs(found[:3, 3] - relative(here, there)[:3, 3]).max() < 0.03


def test_with_too_few_points_the_start_is_the_answer():
    here, there = SHOTS[:2]
    few = np.zeros_like(here.depth)
    few[40, 40:60] = here.depth[40, 40:60]
    start = small_motion(np.array([0.1, 0, 0, 0, 0, 0]))
    assert np.array_equal(estimate_pose(here.image, there.image, few, here.K, start), start)
    assert np.array_equal(estimate_pose(here.image, there.image, few, here.K), np.eye(4))
