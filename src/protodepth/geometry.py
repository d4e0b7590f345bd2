"""Pinhole geometry as pure functions: K^-1, SE(3), projection, sampling, warping (Eq. 2); windows: maxima, outliers."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from protodepth.types import Depth, Float, Image


def pixel_grid(height: int, width: int, like: Tensor) -> Float[Tensor, "1 3 h w"]:
    """Homogeneous pixel coordinates (x, y, 1); pixel centres at 0..w-1 and 0..h-1."""
    y, x = torch.meshgrid(
        torch.arange(height, dtype=like.dtype, device=like.device),
        torch.arange(width, dtype=like.dtype, device=like.device),
        indexing="ij",
    )
    return torch.stack([x, y, torch.ones_like(x)])[None]


def inverse_intrinsics(K: Float[Tensor, "b 3 3"]) -> Float[Tensor, "b 3 3"]:
    r"""Inverse of an upper-triangular calibration matrix, in closed form (so that the graph exports).

    With focal lengths f_x, f_y, skew s and centre c_x, c_y:
    :math:`K^{-1} = [[1/f_x, -s/(f_x f_y), (s c_y - c_x f_y)/(f_x f_y)], [0, 1/f_y, -c_y/f_y], [0, 0, 1]]`.

    >>> K = torch.tensor([[[500.0, 0, 320], [0, 400, 240], [0, 0, 1]]])
    >>> torch.allclose(inverse_intrinsics(K) @ K, torch.eye(3), atol=1e-5)
    True
    """
    ix, iy = 1 / K[:, 0, 0], 1 / K[:, 1, 1]
    skew, cx, cy = K[:, 0, 1], K[:, 0, 2], K[:, 1, 2]
    zero, one = torch.zeros_like(ix), torch.ones_like(ix)
    shear = skew * ix * iy
    rows = [
        torch.stack([ix, -shear, shear * cy - cx * ix], -1),
        torch.stack([zero, iy, -(cy * iy)], -1),
        torch.stack([zero, zero, one], -1),
    ]
    return torch.stack(rows, -2)


def rays(K: Float[Tensor, "b 3 3"], height: int, width: int) -> Float[Tensor, "b 3 h w"]:
    r"""Calibrated directions :math:`K^{-1} \bar x` with z = 1."""
    grid, inverse = pixel_grid(height, width, K), inverse_intrinsics(K)[..., None, None]
    return inverse[:, :, 0] * grid[:, :1] + inverse[:, :, 1] * grid[:, 1:2] + inverse[:, :, 2]


def sample(image: Tensor, pixels: Float[Tensor, "b 2 h w"]) -> Tensor:
    """Bilinear look-up at pixel coordinates; the border is repeated outside, and what has no place is NaN.

    ``grid_sample`` writes outside its memory in the backward pass where a coordinate is NaN or huge, so it never sees
    one: beyond the border the value is the border's and the gradient zero however far it is.

    >>> sample(torch.ones(1, 1, 2, 2), torch.tensor([[[[0.0, float("nan")]], [[1e30, 0.0]]]]))
    tensor([[[[1., nan]]]])
    """
    height, width = image.shape[-2:]
    x = 2 * (pixels[:, 0] / max(width - 1, 1) - 0.5)
    y = 2 * (pixels[:, 1] / max(height - 1, 1) - 0.5)
    grid = torch.stack([x, y], -1)
    nowhere = torch.isnan(grid)
    safe = torch.where(nowhere, 0.0, grid).clamp(-2, 2)
    looked_up = F.grid_sample(image, safe, mode="bilinear", padding_mode="border", align_corners=True)
    return torch.where(nowhere.any(-1)[:, None], torch.nan, looked_up)


class Registration(NamedTuple):
    """Where a picture lies on its depth map: so many times too small, and shifted by shares of the width."""

    scale: float = 1.0
    x: float = 0.0
    y: float = 0.0


def register(image: Image, places: Float[Tensor, "b 3"]) -> Image:
    r"""The picture moved onto its depth, :math:`\hat I(x) = I(c + (x - c - w t) / s)`: s, t of each sample, c the
    centre and w the width of the picture; the border is repeated.

    >>> I = torch.arange(15.0).view(1, 1, 3, 5)
    >>> register(I, torch.tensor([[1.0, 0.2, 0.0]]))[0, 0, 0]
    tensor([0., 0., 1., 2., 3.])
    """
    height, width = image.shape[-2:]
    grid, s = pixel_grid(height, width, image)[:, :2], places[:, :1, None, None].to(image)
    centre = image.new_tensor([(width - 1) / 2, (height - 1) / 2]).view(1, 2, 1, 1)
    shift = width * places[:, 1:, None, None].to(image)
    return sample(image, centre + (grid - centre - shift) / s)


def reproject(
    depth: Depth, pose: Float[Tensor, "b 4 4"], K: Float[Tensor, "b 3 3"]
) -> tuple[Float[Tensor, "b 2 h w"], Depth]:
    r"""Where each pixel of camera t lands in camera tau, :math:`\pi g_{\tau t} K^{-1} \bar x d(x)`,
    and its depth there.
    """
    # Written out, and in this order: a matrix product rounds differently on each machine, and a pixel that falls on the
    # other side of an integer changes the gradient of the look-up.
    P, ray = (K @ pose[:, :3])[..., None, None], rays(K, depth.shape[-2], depth.shape[-1])
    x, y = ray[:, :1] * depth, ray[:, 1:2] * depth
    q = P[:, :, 0] * x + P[:, :, 1] * y + P[:, :, 2] * depth + P[:, :, 3]
    return q[:, :2] / (q[:, 2:] + 1e-7), q[:, 2:]


def warp(image: Image, depth: Depth, pose: Float[Tensor, "b 4 4"], K: Float[Tensor, "b 3 3"]) -> Image:
    r"""Reconstruction of I_t from a neighbour:
    :math:`\hat I_{t\tau}(x) = I_\tau(\pi g_{\tau t} K^{-1} \bar x\, d(x))` (Eq. 2).

    >>> I, d, K = torch.rand(1, 3, 4, 5), torch.ones(1, 1, 4, 5), torch.eye(3)[None]
    >>> torch.allclose(warp(I, d, torch.eye(4)[None], K), I, atol=1e-5)
    True
    """
    pixels, _ = reproject(depth, pose, K)
    return sample(image, pixels)


def skew(v: Float[Tensor, "b 3"]) -> Float[Tensor, "b 3 3"]:
    r"""The matrix of a cross product: :math:`[v]_\times u = v \times u`."""
    zero = torch.zeros_like(v[:, 0])
    x, y, z = v.unbind(-1)
    return torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).reshape(-1, 3, 3)


def pose_matrix(R: Float[Tensor, "b 3 3"], t: Float[Tensor, "b 3"]) -> Float[Tensor, "b 4 4"]:
    """4x4 of SE(3) from rotation R and translation t."""
    top = torch.cat([R, t[..., None]], -1)
    bottom = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=R.dtype, device=R.device).expand(R.shape[0], 1, 4)
    return torch.cat([top, bottom], -2)


def _running_max(x: Tensor, size: int, dim: int) -> Tensor:
    """Maxima of ``size`` neighbours along one side, by doubling: log2(size) passes instead of ``size``."""
    reached = 1
    while reached < size:
        step = min(reached, size - reached)
        # constants from either end, so that an exported graph of any size needs no arithmetic on it
        pair = (x[..., :-step, :], x[..., step:, :]) if dim == -2 else (x[..., :-step], x[..., step:])
        x = torch.maximum(*pair)
        reached += step
    return x


def window_max(x: Tensor, size: int) -> Tensor:
    """Stride-1 maximum over size x size (odd), rows then columns: exactly equal to the square window, and cheaper.

    Outside the image counts as minus infinity.

    >>> x = torch.rand(1, 1, 9, 11)
    >>> torch.equal(window_max(x, 7), F.max_pool2d(x, 7, stride=1, padding=3))
    True
    """
    r = size // 2
    x = _running_max(F.pad(x, (0, 0, r, r), value=float("-inf")), size, -2)
    return _running_max(F.pad(x, (r, r, 0, 0), value=float("-inf")), size, -1)


def window_min(x: Tensor, size: int) -> Tensor:
    return -window_max(-x, size)


def outlier_free(sparse_depth: Depth, size: int = 7, threshold: float = 1.5, relative: float = 0.0) -> Depth:
    """Validity (1 or 0) of sparse points without occluded returns.

    A point is dropped if a point in its size x size window is nearer by more than ``threshold`` metres and more than
    the share ``relative`` of its depth: a background point seen through the gap between two sensors.  The published
    networks use 7, 1.5 and 0; in small images a window of 7 covers metres of road,
    so that a relative margin is needed to keep far points.
    """
    valid = (sparse_depth > 0).to(sparse_depth.dtype)
    far = 10 * sparse_depth.amax((1, 2, 3), keepdim=True).clamp(min=1.0)
    filled = torch.where(sparse_depth > 0, sparse_depth, far)
    margin = (relative * sparse_depth).clamp(min=threshold)
    occluded = window_min(filled, size) < sparse_depth - margin
    return torch.where(occluded, torch.zeros_like(valid), valid)
