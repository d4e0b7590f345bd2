"""Pinhole geometry against torch, kornia, roma and slow loops."""

import itertools
from pathlib import Path
from typing import Any

import kornia
import numpy as np
import pytest
import roma
import torch

from conftest import random_batch
from helpers.apart import attack_apart
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


def test_a_point_at_exactly_the_margin_stays() -> None:
    points = torch.zeros(1, 1, 9, 9)
    points[0, 0, 4, 4], points[0, 0, 4, 5] = 1.0, 2.5
    assert g.outlier_free(points).sum() == 2
    points[0, 0, 4, 5] = 2.75
    assert g.outlier_free(points)[0, 0, 4].tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert g.outlier_free(points, relative=1.0).sum() == 2  # nearer by less than the share of its depth


def test_an_image_of_one_pixel_has_one_value_everywhere() -> None:
    image = torch.tensor([[[[0.25]]]])
    assert torch.equal(g.sample(image, torch.tensor([[[[0.0, 3.0]], [[0.0, -2.0]]]])), torch.full((1, 1, 1, 2), 0.25))


def test_outliers_of_one_sample_do_not_depend_on_the_others() -> None:
    batch = random_batch(2, 16, 20)
    far = batch.sparse_depth * torch.tensor([1.0, 50.0])[:, None, None, None]
    assert torch.equal(g.outlier_free(far)[:1], g.outlier_free(far[:1]))
    assert g.outlier_free(torch.zeros(1, 1, 8, 8)).sum() == 0


def test_a_place_beyond_the_border_has_the_border_s_value_and_no_gradient_however_far_it_is() -> None:
    image = torch.rand(1, 3, 4, 5, requires_grad=True)
    near = torch.tensor([-3.0, 9.0, 2.0, -1.0]).reshape(1, 2, 1, 2).requires_grad_()
    far = torch.tensor([-3e30, torch.inf, 2.0, -1e38]).reshape(1, 2, 1, 2).requires_grad_()
    found = [g.sample(image, pixels) for pixels in (near, far)]
    assert torch.equal(*found)
    (found[0].sum() + found[1].sum()).backward()
    assert near.grad[0, 0].eq(0).all()
    assert far.grad[0, 0].eq(0).all()


def test_inside_the_image_the_look_up_is_the_library_s_own_bit_for_bit() -> None:
    image, pixels = torch.rand(2, 3, 6, 7), torch.rand(2, 2, 6, 7) * 8 - 1
    grid = torch.stack([2 * (pixels[:, 0] / 6 - 0.5), 2 * (pixels[:, 1] / 5 - 0.5)], -1)
    ours, theirs = pixels.requires_grad_(), grid.requires_grad_()
    found = g.sample(image, ours)
    expected = torch.nn.functional.grid_sample(image, theirs, padding_mode="border", align_corners=True)
    assert torch.equal(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    assert torch.equal(ours.grad[:, 0], theirs.grad[..., 0] * 2 / 6)


def warp_wildly(folder: Path, name: str, say: Any) -> None:
    """Forwards and backwards through every kind of number that a camera never has."""
    count = 0
    for value in (float("nan"), float("inf"), -float("inf"), 1e38, -1e38, 1e20, 3e9):
        for what, seed in itertools.product(("depth", "pose", "K", "turn"), range(5)):
            torch.manual_seed(seed)
            image = torch.rand(1, 3, 48, 64, requires_grad=True)
            depth, pose = torch.rand(1, 1, 48, 64) + 1, torch.eye(4)[None].clone()
            K = torch.tensor([[[50.0, 0, 32], [0, 50, 24], [0, 0, 1]]])
            if what == "depth":
                depth[0, 0, seed::7, ::3] = value
            if what == "pose":
                pose[0, seed % 3, 3] = value
            if what == "turn":
                pose[0, seed % 3, 0] = value
            if what == "K":
                K[0, 0, 1] = value
            out = g.warp(image, *(t.clone().requires_grad_() for t in (depth, pose, K)))
            out.nan_to_num().sum().backward()
            count += 1
    say.send({"count": count})


def test_no_number_in_depth_pose_or_camera_ends_the_process(tmp_path: Path) -> None:
    """In a process of its own: the library's backward pass wrote outside its memory."""
    assert attack_apart(warp_wildly, tmp_path / "apart", "warp") == {"count": 140}
