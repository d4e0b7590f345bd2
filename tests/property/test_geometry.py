"""Properties of cameras and motions."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import max_pool2d

from protodepth import geometry as g
from protodepth.backbones.posenet import motion

FEW = settings(max_examples=40, deadline=None)
NUMBER = st.floats(-2, 2)


@st.composite
def cameras(draw: st.DrawFn) -> Tensor:
    f, c = st.floats(5, 2000), st.floats(-50, 1500)
    fx, fy, cx, cy, skew = draw(f), draw(f), draw(c), draw(c), draw(st.floats(-5, 5))
    return torch.tensor([[[fx, skew, cx], [0, fy, cy], [0, 0, 1]]], dtype=torch.float64)


@st.composite
def motions(draw: st.DrawFn) -> Tensor:
    vector = torch.tensor([draw(st.lists(NUMBER, min_size=6, max_size=6))], dtype=torch.float64)
    return motion(vector, "exponential")


@FEW
@given(cameras())
def test_the_inverse_camera_undoes_the_camera(K: Tensor) -> None:
    eye = torch.eye(3, dtype=torch.float64)[None]
    torch.testing.assert_close(g.inverse_intrinsics(K) @ K, eye, rtol=1e-9, atol=1e-9)


@FEW
@given(cameras(), st.floats(0.1, 90))
def test_every_pixel_projects_back_to_itself(K: Tensor, depth: float) -> None:
    grid = g.pixel_grid(4, 5, K)[:, :2]
    still = torch.eye(4, dtype=torch.float64)[None]
    pixels, z = g.reproject(torch.full((1, 1, 4, 5), depth, dtype=torch.float64), still, K)
    torch.testing.assert_close(pixels, grid, rtol=1e-4, atol=1e-2)  # z is guarded by 1e-7
    torch.testing.assert_close(z, torch.full_like(z, depth))


@FEW
@given(motions())
def test_motions_are_rigid(a: Tensor) -> None:
    points = torch.randn(1, 3, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    moved = a[:, :3, :3] @ points + a[:, :3, 3:]
    torch.testing.assert_close(torch.cdist(moved.mT, moved.mT), torch.cdist(points.mT, points.mT))
    torch.testing.assert_close(torch.linalg.det(a[:, :3, :3]), torch.ones(1, dtype=torch.float64))


@FEW
@given(cameras(), st.integers(0, 2**31))
def test_standing_still_warps_an_image_onto_itself(K: Tensor, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    image = torch.rand(1, 3, 5, 6, dtype=torch.float64, generator=random)
    depth = 0.5 + 9 * torch.rand(1, 1, 5, 6, dtype=torch.float64, generator=random)
    still = torch.eye(4, dtype=torch.float64)[None]
    torch.testing.assert_close(g.warp(image, depth, still, K), image, rtol=0, atol=1e-3)


@FEW
@given(st.integers(1, 12), st.integers(1, 12), st.sampled_from([1, 3, 5, 7, 9, 15, 17]), st.integers(0, 2**31))
def test_separable_windows_are_the_square_ones(height: int, width: int, size: int, seed: int) -> None:
    x = torch.randn(1, 1, height, width, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(g.window_max(x, size), max_pool2d(x, size, stride=1, padding=size // 2))


@FEW
@given(st.integers(0, 2**31), st.floats(0.05, 0.6))
def test_the_nearest_point_of_a_frame_is_never_an_outlier(seed: int, share: float) -> None:
    random = torch.Generator().manual_seed(seed)
    z = (0.5 + 20 * torch.rand(1, 1, 9, 9, generator=random)) * (torch.rand(1, 1, 9, 9, generator=random) < share)
    kept = g.outlier_free(z)
    assert ((kept == 0) | (z > 0)).all()
    if (z > 0).any():
        nearest = torch.where(z > 0, z, torch.inf)
        assert float(kept.flatten()[nearest.argmin()]) == 1
