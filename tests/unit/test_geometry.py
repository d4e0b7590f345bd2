"""Pinhole geometry against torch, kornia, roma and slow loops."""

import kornia
import numpy as np
import pytest
import roma
import torch

from conftest import random_batch
from protodepth import geometry as g
from protodepth.backbones.posenet import axis_rotation, euler_rotation, exponential_rotation, motion


def cameras(b: int = 3) -> torch.Tensor:
    K = torch.eye(3).repeat(b, 1, 1)
    K[:, 0, 0], K[:, 1, 1] = 30 + 50 * torch.rand(b), 30 + 50 * torch.rand(b)
    K[:, 0, 1], K[:, 0, 2], K[:, 1, 2] = torch.rand(b), 40 * torch.rand(b), 30 * torch.rand(b)
    return K


def poses(b: int = 3, size: float = 0.3) -> torch.Tensor:
    return motion(size * torch.randn(b, 6).double(), "exponential")


def test_the_closed_form_inverse_is_the_inverse() -> None:
    K = cameras(20).double()
    torch.testing.assert_close(g.inverse_intrinsics(K), torch.linalg.inv(K), rtol=1e-10, atol=1e-12)


def test_rays_times_depth_are_the_points_of_kornia_and_project_back_to_their_pixels() -> None:
    K, depth = cameras(), 1 + 4 * torch.rand(3, 1, 6, 8)
    K[:, 0, 1] = 0  # kornia knows no skew
    points = g.rays(K, 6, 8) * depth
    grid = kornia.geometry.create_meshgrid(6, 8, normalized_coordinates=False)
    theirs = kornia.geometry.depth.depth_to_3d_v2(depth[:, 0], K).permute(0, 3, 1, 2)
    torch.testing.assert_close(points, theirs, rtol=1e-4, atol=1e-5)
    pixels, _ = g.reproject(depth, torch.eye(4).repeat(3, 1, 1), K)
    torch.testing.assert_close(pixels, grid.permute(0, 3, 1, 2).expand(3, 2, 6, 8), rtol=1e-4, atol=1e-3)


def test_reprojection_is_projection_of_the_moved_points() -> None:
    K, pose, depth = cameras().double(), poses(), 2 + 4 * torch.rand(3, 1, 6, 8).double()
    pixels, z = g.reproject(depth, pose, K)
    points = torch.linalg.solve(K, g.pixel_grid(6, 8, K).flatten(2).expand(3, 3, 48)) * depth.flatten(2)
    q = K @ (pose[:, :3, :3] @ points + pose[:, :3, 3:])
    torch.testing.assert_close(pixels.flatten(2), q[:, :2] / (q[:, 2:] + 1e-7), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(z.flatten(2), q[:, 2:])
    b, y, x = 1, 4, 5  # and one pixel by hand, from Eq. 2
    point = np.linalg.inv(K[b].numpy()) @ np.array([x, y, 1.0]) * float(depth[b, 0, y, x])
    q = K[b].numpy() @ (pose[b, :3, :3].numpy() @ point + pose[b, :3, 3].numpy())
    np.testing.assert_allclose(pixels[b, :, y, x], q[:2] / q[2], rtol=1e-6)


def test_looking_up_whole_pixels_returns_them_and_between_them_the_bilinear_mean() -> None:
    image = torch.rand(1, 2, 5, 7)
    grid = g.pixel_grid(5, 7, image)[:, :2]
    torch.testing.assert_close(g.sample(image, grid), image, atol=1e-5, rtol=0)
    half = g.sample(image, grid + torch.tensor([0.5, 0.0])[None, :, None, None])
    torch.testing.assert_close(half[..., :-1], (image[..., :-1] + image[..., 1:]) / 2, atol=1e-5, rtol=0)
    outside = g.sample(image, grid + 100)
    torch.testing.assert_close(outside, image[..., -1:, -1:].expand_as(image), atol=1e-5, rtol=0)


def test_warping_agrees_with_kornia() -> None:
    batch = random_batch(1, 24, 32)
    depth = 2 + torch.rand(1, 1, 24, 32)
    ours = g.warp(batch.neighbours[0], depth, batch.poses[0], batch.intrinsics)
    theirs = kornia.geometry.depth.warp_frame_depth(batch.neighbours[0], depth, batch.poses[0], batch.intrinsics)
    pixels, _ = g.reproject(depth, batch.poses[0], batch.intrinsics)
    x, y = pixels[:, :1], pixels[:, 1:]
    inner = ((x > 0) & (x < 31) & (y > 0) & (y < 23)).expand_as(ours)  # kornia fills with zeros outside
    assert inner.float().mean() > 0.8
    torch.testing.assert_close(ours[inner], theirs[inner], atol=1e-3, rtol=1e-3)


def test_rotations_agree_with_roma() -> None:
    r = torch.randn(50, 3).double().clamp(-3, 3)
    theirs = roma.rotvec_to_rotmat(r)
    torch.testing.assert_close(exponential_rotation(r), theirs, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(axis_rotation(r), theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(euler_rotation(r), roma.euler_to_rotmat("XYZ", r), rtol=1e-9, atol=1e-9)


def test_skew_is_the_cross_product() -> None:
    a, b = torch.randn(5, 3), torch.randn(5, 3)
    torch.testing.assert_close((g.skew(a) @ b[..., None])[..., 0], torch.linalg.cross(a, b))


@pytest.mark.parametrize("size", [1, 3, 5, 7, 17])
def test_separable_windows_equal_square_windows_bit_for_bit(size: int) -> None:
    x = torch.randn(2, 1, 11, 13)
    square = torch.nn.functional.max_pool2d(x, size, stride=1, padding=size // 2)
    assert torch.equal(g.window_max(x, size), square)
    assert torch.equal(g.window_min(x, size), -torch.nn.functional.max_pool2d(-x, size, stride=1, padding=size // 2))


@pytest.mark.parametrize("relative", [0.0, 0.3])
def test_outliers_are_points_with_a_much_nearer_point_in_their_window(relative: float) -> None:
    z = random_batch(2, 16, 20).sparse_depth * 2
    kept = g.outlier_free(z, 5, 1.5, relative)
    for b in range(2):
        for y in range(16):
            for x in range(20):
                here = float(z[b, 0, y, x])
                window = z[b, 0, max(0, y - 2) : y + 3, max(0, x - 2) : x + 3]
                margin = max(1.5, relative * here)
                nearer = bool(((window > 0) & (window < here - margin)).any())
                assert float(kept[b, 0, y, x]) == float(here > 0 and not nearer)


def test_outliers_of_one_sample_do_not_depend_on_the_others() -> None:
    batch = random_batch(2, 16, 20)
    far = batch.sparse_depth * torch.tensor([1.0, 50.0])[:, None, None, None]
    assert torch.equal(g.outlier_free(far)[:1], g.outlier_free(far[:1]))
    assert g.outlier_free(torch.zeros(1, 1, 8, 8)).sum() == 0
