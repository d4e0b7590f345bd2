"""The unsupervised objective (Eq. 1) and its terms: photometric (Eq. 2-3), sparse depth (Eq. 4), smoothness (Eq. 5).

The paper prints the terms in one way and the released networks compute them in two others; each way has a name:

``paper``     1 - SSIM, every sum divided by the number of pixels |Omega|
``kbnet``     clamp((1 - SSIM)/2, 0, 1) on the inner pixels, divided by the sum of weights;
              sparse term by the number of points
``voiced``    the same SSIM distance with reflected borders, mean over pixels;
              VOICED weights pixels by absence of a sparse point
``relative``  as kbnet, with sparse errors relative to the depth and smoothness of log depth:
              one set of weights for rooms and streets
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protodepth import distributed
from protodepth.errors import ConfigError
from protodepth.geometry import outlier_free, reproject, sample
from protodepth.types import Batch, Depth, Float, Image, LossTerms, Mask

ReductionName = Literal["paper", "kbnet", "voiced", "relative"]


def box_mean(x: Tensor) -> Tensor:
    """3x3 mean, stride 1, no padding; sums of slices are faster on a CPU than average pooling."""
    rows = x[..., :-2, :] + x[..., 1:-1, :] + x[..., 2:, :]
    return (rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]) / 9


def ssim(a: Image, b: Image) -> Tensor:
    r"""Structural similarity over 3x3 windows, on the (h-2) x (w-2) inner pixels; C1 = 0.01², C2 = 0.03².

    :math:`\frac{(2\mu_a\mu_b + C_1)(2\sigma_{ab} + C_2)}{(\mu_a^2 + \mu_b^2 + C_1)(\sigma_a^2 + \sigma_b^2 + C_2)}`

    >>> a = torch.rand(1, 3, 5, 5)
    >>> torch.allclose(ssim(a, a), torch.ones(1, 3, 3, 3))
    True
    """
    c1, c2 = 0.01**2, 0.03**2
    mu_a, mu_b, aa, bb, ab = box_mean(torch.stack([a, b, a * a, b * b, a * b]))
    var_a, var_b, cov = aa - mu_a**2, bb - mu_b**2, ab - mu_a * mu_b
    return ((2 * mu_a * mu_b + c1) * (2 * cov + c2)) / ((mu_a**2 + mu_b**2 + c1) * (var_a + var_b + c2))


def ssim_distance(a: Image, b: Image) -> Tensor:
    """The structural term of two images, pixel by pixel: clamp((1 - SSIM)/2, 0, 1)"""
    return ((1 - ssim(a, b)) / 2).clamp(0, 1)


def reflected(a: Image) -> Float[Tensor, "b 3 h+2 w+2"]:
    """An image with one more pixel at each side, mirrored: for windows of 3 x 3 at the border."""
    return F.pad(a, (1, 1, 1, 1), mode="reflect")


def weighted_mean(value: Tensor, weight: Mask) -> Float[Tensor, ""]:
    """Per sample: sum over channels and pixels of w·value, divided by the sum of w; then the batch mean."""
    w = weight.expand(value.shape[0], 1, *value.shape[-2:])
    total = w.sum(dim=(1, 2, 3)).clamp(min=1e-8)
    return ((w * value).sum(dim=(1, 2, 3)) / total).mean()


def _pixel_mean(value: Tensor, weight: Mask) -> Float[Tensor, ""]:
    """Mean over samples and pixels of the sum over channels of w·value: divided by |Omega|, whatever the weights."""
    return (weight * value).sum(dim=1).mean()


def _gradients(x: Tensor) -> tuple[Tensor, Tensor]:
    """Forward differences along x and y."""
    return x[..., :, 1:] - x[..., :, :-1], x[..., 1:, :] - x[..., :-1, :]


def _edge_weights(image: Image) -> tuple[Tensor, Tensor]:
    r""":math:`\lambda_X = e^{-|\partial_X I|}`, :math:`\lambda_Y = e^{-|\partial_Y I|}`, mean over channels."""
    gx, gy = _gradients(image)
    return torch.exp(-gx.abs().mean(1, keepdim=True)), torch.exp(-gy.abs().mean(1, keepdim=True))


def smoothness(depth: Depth, image: Image) -> Float[Tensor, ""]:
    r"""Edge-aware smoothness (Eq. 5): mean of :math:`\lambda_X|\partial_X d|` plus mean of
    :math:`\lambda_Y|\partial_Y d|`.
    """
    (dx, dy), (wx, wy) = _gradients(depth), _edge_weights(image)
    return (wx * dx.abs()).mean() + (wy * dy.abs()).mean()


def pose_distance(
    depth: Depth, learned: Float[Tensor, "b 4 4"], given: Float[Tensor, "b 4 4"], K: Float[Tensor, "b 3 3"]
) -> Float[Tensor, ""]:
    r"""How far apart two motions put a pixel:
    mean of :math:`|\pi g K^{-1} \bar x d - \pi \bar g K^{-1} \bar x d|_1`, in tenths of the width.

    A pose network learns from given poses by it.  The photometric loss, which it has to live on without them, has its
    valley within a pixel or two of the right motion:
    on drawn streets (motions of up to eight pixels) a network that starts at rest never finds it.
    """
    (a, _), (b, _) = reproject(depth, learned, K), reproject(depth, given, K)
    width = depth.shape[-1]
    return (10 / width) * (a - b).abs().clamp(max=width / 5).mean()


def pose_consistency(forward: Float[Tensor, "b 4 4"], backward: Float[Tensor, "b 4 4"]) -> Float[Tensor, ""]:
    r"""VOICED: mean square of :math:`g_{01} g_{10} - I`."""
    eye = torch.eye(4, dtype=forward.dtype, device=forward.device)
    return ((forward @ backward - eye) ** 2).mean()


def prior_depth(depth: Depth, prior: Depth, error: Tensor, prior_error: Tensor) -> Float[Tensor, ""]:
    """FusionNet: L1 to ScaffNet's depth where that depth reconstructs the image at least as well, over those pixels.

    The errors are per pixel (b 1 h w).  Samples are not mixed (the published code mixes them for batches over one).
    """
    better = (prior_error <= error).to(depth.dtype)
    return weighted_mean((depth - prior).abs(), better)


@dataclass(frozen=True, slots=True)
class Reduction:
    """One way to turn the four differences into numbers."""

    color: Callable[[Image, Image, Mask], Tensor]
    structure: Callable[[Image, Image, Mask], Tensor]
    sparse: Callable[[Depth, Depth, Mask], Tensor]
    smooth: Callable[[Depth, Image], Tensor]


def _color_weighted(a: Image, b: Image, w: Mask) -> Tensor:
    return weighted_mean((a - b).abs(), w)


def _structure_weighted(a: Image, b: Image, w: Mask) -> Tensor:
    distance = F.interpolate(ssim_distance(a, b), size=a.shape[-2:], mode="nearest")
    return weighted_mean(distance, w)


def _structure_inner(a: Image, b: Image, w: Mask) -> Tensor:
    return weighted_mean(ssim_distance(a, b), w[..., 1:-1, 1:-1])


def _color_pixels(a: Image, b: Image, w: Mask) -> Tensor:
    return _pixel_mean((a - b).abs(), w)


def _structure_pixels(a: Image, b: Image, w: Mask) -> Tensor:
    return _pixel_mean(ssim_distance(reflected(a), reflected(b)), w)


def _structure_paper(a: Image, b: Image, w: Mask) -> Tensor:
    return _pixel_mean(1 - ssim(reflected(a), reflected(b)), w)


def _sparse_points(d: Depth, z: Depth, m: Mask) -> Tensor:
    return weighted_mean((d - z).abs(), m)


def _sparse_pixels(d: Depth, z: Depth, m: Mask) -> Tensor:
    return _pixel_mean((d - z).abs(), m)


def _sparse_relative(d: Depth, z: Depth, m: Mask) -> Tensor:
    return weighted_mean((d - z).abs() / z.clamp(min=1e-3), m)


def _smooth_paper(d: Depth, image: Image) -> Tensor:
    (dx, dy), (wx, wy) = _gradients(d), _edge_weights(image)
    pixels = d.shape[0] * d.shape[-2] * d.shape[-1]
    return ((wx * dx.abs()).sum() + (wy * dy.abs()).sum()) / pixels


def _smooth_log(d: Depth, image: Image) -> Tensor:
    return smoothness(d.log(), image)


REDUCTIONS: dict[str, Reduction] = {
    "paper": Reduction(_color_pixels, _structure_paper, _sparse_pixels, _smooth_paper),
    "kbnet": Reduction(_color_weighted, _structure_weighted, _sparse_points, smoothness),
    "voiced": Reduction(_color_pixels, _structure_pixels, _sparse_points, smoothness),
    "relative": Reduction(_color_weighted, _structure_inner, _sparse_relative, _smooth_log),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveConfig:
    """Weights and choices of the objective.  ``kbnet``'s weights are those of the published indoor training."""

    reduction: ReductionName | None = None  # None = the network's ``default_reduction``; without a network kbnet
    color: float = 0.15  # w_ph w_co
    structure: float = 0.95  # w_ph w_st
    sparse: float = 2.0  # w_sz
    smooth: float = 2.0  # w_sm
    pose_consistency: float = 0.0  # VOICED
    prior: float = 0.0  # FusionNet
    prior_threshold: float = 0.3
    clamp_sparse: bool = True  # sparse target clamped to the network's maximum, as KBNet and FusionNet do
    weight_by_absence: bool = False  # VOICED: pixels with a sparse point do not count photometrically
    mask_outside: bool = False  # with given poses, pixels that leave the neighbour's image do not count
    outlier_size: int = (
        7  # local outliers among the sparse points: window in pixels, margin in metres and as a share of depth
    )
    outlier_threshold: float = 1.5
    outlier_relative: float = 0.0
    poses: Literal["auto", "given", "network"] = "auto"  # auto: given where the data has them
    learn_pose: bool = (
        True  # with given poses, the pose network learns from them (its gradient does not reach the depth)
    )

    def __post_init__(self) -> None:
        if self.reduction not in (None, *REDUCTIONS):
            raise ConfigError(f"unknown reduction {self.reduction!r}; choose one of: {', '.join(REDUCTIONS)}")


def _single_precision(device: str) -> AbstractContextManager[object]:
    """No autocast in this block: half precision is too coarse for the pixel that a point falls on."""
    half = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if half else nullcontext()


class Objective(nn.Module):
    r"""Eq. 1: :math:`w_{ph}\ell_{ph} + w_{sz}\ell_{sz} + w_{sm}\ell_{sm}`, as weighted terms by name;
    the caller sums them.

    ``pose`` maps two images to the motion from the first camera to the second; without it the batch must bring poses.
    """

    def __init__(
        self,
        config: ObjectiveConfig = ObjectiveConfig(),
        *,
        pose: nn.Module | None = None,
        max_depth: float | None = None,
    ) -> None:
        super().__init__()
        self.pose, self.max_depth = pose, max_depth
        self.use(config)

    def use(self, config: ObjectiveConfig) -> None:
        """From here on with other weights and choices: the stages of a sequence may differ."""
        self.config, self.reduction = config, REDUCTIONS[config.reduction or "kbnet"]

    def forward(self, batch: Batch, depth: Depth, *, mask: Mask | None = None, prior: Depth | None = None) -> LossTerms:
        """Terms for a prediction in the batch's own pixels; ``mask`` says where it is valid after augmentation."""
        with _single_precision(depth.device.type):
            return self._terms(batch, depth.to(batch.image.dtype), mask, prior)

    def _terms(self, batch: Batch, depth: Depth, mask: Mask | None, prior: Depth | None) -> LossTerms:
        config = self.config
        points = outlier_free(
            batch.sparse_depth, config.outlier_size, config.outlier_threshold, config.outlier_relative
        )
        weight = torch.ones_like(depth) if mask is None else mask
        if config.weight_by_absence:
            weight = weight * (1 - points)
        terms = self._photometric(batch, depth, weight, prior)
        target = batch.sparse_depth
        if config.clamp_sparse and self.max_depth is not None:
            target = target.clamp(max=self.max_depth)
        terms["sparse"] = config.sparse * self.reduction.sparse(depth, target, points)
        terms["smooth"] = config.smooth * self.reduction.smooth(depth, batch.image)
        return terms

    def _photometric(self, batch: Batch, depth: Depth, weight: Mask, prior: Depth | None) -> LossTerms:
        given = self._given(batch)
        learned = self._learned(batch)
        poses = given or learned
        color, structure = [], []
        masked = self.config.mask_outside and bool(given)
        for neighbour, pose in zip(batch.neighbours, poses, strict=True):
            c, s = self._reconstruct(batch, neighbour, depth, pose, weight, masked)
            color.append(c)
            structure.append(s)
        terms = {"color": self.config.color * sum(color), "structure": self.config.structure * sum(structure)}
        if given and learned:
            pairs = zip(learned, given, strict=True)
            terms["pose"] = sum(pose_distance(depth.detach(), a, b, batch.intrinsics) for a, b in pairs)
        if self.config.pose_consistency and learned and self.pose is not None:
            back = [self.pose(n, batch.image) for n in batch.neighbours]
            loops = [pose_consistency(a, b) for a, b in zip(learned, back, strict=True)]
            terms["pose_consistency"] = self.config.pose_consistency * sum(loops)
        if self.config.prior and prior is not None:
            terms["prior"] = self._prior_term(batch, depth, prior, poses[0], color[0])
        return terms  # type: ignore[return-value]

    def _reconstruct(
        self, batch: Batch, neighbour: Image, depth: Depth, pose: Tensor, weight: Mask, masked: bool = False
    ) -> tuple[Tensor, Tensor]:
        pixels, z = reproject(depth, pose, batch.intrinsics)
        warped = sample(neighbour, pixels)
        if masked:  # given poses only: a pose network would learn to look away, where nothing counts
            weight = weight * inside(pixels, z)
        return (
            self.reduction.color(warped, batch.image, weight),
            self.reduction.structure(warped, batch.image, weight),
        )

    def _prior_term(self, batch: Batch, depth: Depth, prior: Depth, pose: Tensor, color: Tensor) -> Tensor:
        """Only once the reconstruction is good enough to judge by:
        colour loss of the first neighbour below the threshold.
        """
        with torch.no_grad():
            errors = [
                (sample(batch.neighbours[0], reproject(d, pose, batch.intrinsics)[0]) - batch.image)
                .abs()
                .sum(1, keepdim=True)
                for d in (depth, prior)
            ]
        if batch.share is not None and batch.share.total < batch.share.step:
            raise ConfigError(
                f"the prior's loss needs a frame in every process: a batch of {batch.share.total} cannot be shared by "
                f"{batch.share.step}"
            )
        color = distributed.weighted(color, batch.share)  # the decision is one for the whole batch
        active = (color.detach() < self.config.prior_threshold).to(depth.dtype)
        return self.config.prior * active * prior_depth(depth, prior, errors[0], errors[1])

    def _given(self, batch: Batch) -> list[Tensor]:
        if not batch.neighbours:
            raise ConfigError("the objective needs neighbouring frames: this data has single images only")
        if self.config.poses != "network" and batch.poses:
            return list(batch.poses)
        if self.pose is None:
            raise ConfigError(
                "the data has no poses and the model no pose network: give poses.txt, or a model with a pose network"
            )
        if self.config.poses == "given":
            raise ConfigError("poses='given' but the data has none: use poses='network' or 'auto'")
        return []

    def _learned(self, batch: Batch) -> list[Tensor]:
        """Poses by the network, where they are needed or where the network is to learn beside given ones."""
        if self.pose is None or not (self.config.learn_pose or self.config.poses == "network" or not batch.poses):
            return []
        return [self.pose(batch.image, n) for n in batch.neighbours]


def inside(pixels: Float[Tensor, "b 2 h w"], z: Depth) -> Mask:
    """Mask of the photometric term: 1 where a reprojected pixel is in the neighbour's image and before the camera."""
    height, width = pixels.shape[-2:]
    x, y = pixels[:, :1], pixels[:, 1:]
    ok = (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1) & (z > 0)
    return ok.to(pixels.dtype)
