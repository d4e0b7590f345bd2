r"""Objectives: the paper's for a model, and the one for recordings: hidden points, a cautious photometric term.

    loss = w_h hidden + w_z sparse + w_ph r robust photometric + w_sm smoothness

``hidden``       at sparse points that the network was not shown (data/hidden.py), mean over the images of
                 log L1(d - z) + 0.5 log L1(log d - log z) + 0.15 log RMS(d - z), errors over the mean depth:
                 a tenth off the error counts the same for a hundred points of a street and a dense map of a desk
``photometric``  the smallest reconstruction error over the neighbours (Eq. 2-3), at pixels that are seen by a
                 neighbour, that nothing hides there, and that warping explains better than standing still does
``r``            from 0 to 1: how well the poses warp, measured before learning (training/poses.py)

The paper's objective (losses.Objective) has no hidden points and believes every pixel.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from protodepth.backbones.base import Backbone
from protodepth.geometry import reproject, sample
from protodepth.losses import Objective, ObjectiveConfig, inside, reflected, ssim_distance, weighted_mean
from protodepth.model import ProtoDepth
from protodepth.types import Batch, Depth, Float, Image, LossTerms, Mask

LEAST = 5e-4  # added to an error before its logarithm: what is off by less is right
FEWEST = 3  # points that an image must show to teach: a crop may have none
CLEARLY = 1e-4  # by how much warping must be better than standing still: beyond rounding
BEHIND = 1.05  # a pixel is hidden in a neighbour if another one lands there and is nearer by 5 %


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenObjectiveConfig:
    """Weights of the objective for recordings."""

    hidden: float = 1.0
    sparse: float = 0.1  # at the points that are shown
    photometric: float = 0.1  # where the poses warp well; less where they do not
    smooth: float = 0.0
    logarithmic: float = 0.5  # share of the hidden points' error in log depth, beside that in metres
    square: float = 0.15  # share of its root mean square
    relative: float = (
        0.5  # at shown points: divided by depth^relative mean^(1 - relative): 1 relative, 0 in metres over the mean
    )


def point_error(depth: Depth, points: Depth, relative: float) -> Float[Tensor, ""]:
    r"""Mean of :math:`|d - z| / (z^p \bar z^{1-p})` over the points z, :math:`\bar z` their mean in each frame;
    0 without points.

    >>> z = torch.tensor([[[[1.0, 3.0, 0.0]]]])
    >>> [round(float(point_error(2 * torch.ones(1, 1, 1, 3), z, p)), 4) for p in (1.0, 0.0)]
    [0.6667, 0.5]
    """
    mask = (points > 0).to(depth.dtype)
    mean = points.sum((1, 2, 3), keepdim=True) / mask.sum((1, 2, 3), keepdim=True).clamp(min=1)
    scale = points.clamp(min=1e-6) ** relative * mean.clamp(min=1e-6) ** (1 - relative)
    return weighted_mean((depth - points).abs() / scale * mask, mask)


def _hidden_error(depth: Depth, batch: Batch, hidden: Depth, weights: HiddenObjectiveConfig) -> Float[Tensor, ""]:
    """The mean over images of the logarithm of each one's error at hidden points, as above; 0 if none can teach."""
    mask = (hidden > 0).to(depth.dtype)
    count = mask.sum((1, 2, 3))
    teaches = ((count > 0) & ((batch.sparse_depth > 0).sum((1, 2, 3)) >= FEWEST)).to(depth.dtype)
    z = torch.where(hidden > 0, hidden, torch.ones_like(hidden))
    middle = (hidden.sum((1, 2, 3)) / count.clamp(min=1)).clamp(min=1e-6).view(-1, 1, 1, 1)
    linear, off = (depth - z) / middle * mask, (depth.clamp(min=1e-6).log() - z.log()) * mask

    def size(error: Tensor) -> Tensor:
        return (error.sum((1, 2, 3)) / count.clamp(min=1) + LEAST).log()

    root = 0.5 * (linear.square().sum((1, 2, 3)) / count.clamp(min=1) + LEAST**2).log()
    total = size(linear.abs()) + weights.logarithmic * size(off.abs()) + weights.square * root
    return (total * teaches).sum() / teaches.sum().clamp(min=1)


def difference(a: Image, b: Image) -> Float[Tensor, "b 1 h w"]:
    """0.15 |a - b| + 0.85 clamp((1 - SSIM)/2, 0, 1), mean over channels, at each pixel."""
    structure = ssim_distance(reflected(a), reflected(b))
    return (0.15 * (a - b).abs() + 0.85 * structure).mean(1, keepdim=True)


@torch.no_grad()
def unoccluded(pixels: Float[Tensor, "b 2 h w"], z: Depth) -> Mask:
    """1 where no other pixel lands on the same place of the neighbour and is nearer by 5 %."""
    b, _, height, width = pixels.shape
    x = pixels[:, 0].round().clamp(0, width - 1).long()
    y = pixels[:, 1].round().clamp(0, height - 1).long()
    place = (y * width + x).flatten(1)
    nearest = torch.full((b, height * width), torch.inf).to(z)
    front = torch.where((z > 0) & (inside(pixels, z) > 0), z, torch.full_like(z, torch.inf))
    nearest.scatter_reduce_(1, place, front.flatten(1), reduce="amin")
    return (z.flatten(1) <= BEHIND * nearest.gather(1, place)).to(z.dtype).view_as(z)


def robust_photometric(batch: Batch, depth: Depth, weight: Mask) -> Float[Tensor, ""]:
    """Mean over believed pixels of the smallest difference to a warped neighbour; 0 if there is none.

    A pixel is believed if some neighbour sees it unhidden, and if the best warped neighbour is closer to it than the
    best neighbour as it is.
    """
    warped, still, seen = [], [], []
    for neighbour, pose in zip(batch.neighbours, batch.poses, strict=True):
        pixels, z = reproject(depth, pose, batch.intrinsics)
        visible = inside(pixels, z) * unoccluded(pixels.detach(), z.detach())
        error = difference(sample(neighbour, pixels), batch.image)
        warped.append(torch.where(visible > 0, error, torch.full_like(error, 10.0)))
        still.append(difference(neighbour, batch.image))
        seen.append(visible)
    best = torch.stack(warped).amin(0)
    believed = (best.detach() + CLEARLY < torch.stack(still).amin(0)) & (torch.stack(seen).amax(0) > 0)
    return weighted_mean(best, weight * believed.to(depth.dtype))


def smoothness_of_log(depth: Depth, image: Image) -> Float[Tensor, ""]:
    """Second differences of log depth, less where the image has edges: a slope costs nothing."""
    log, grey = depth.log(), image.mean(1, keepdim=True)
    total = depth.new_zeros(())
    for d, i in ((log, grey), (log.mT, grey.mT)):
        bend = d[..., 2:] - 2 * d[..., 1:-1] + d[..., :-2]
        total = total + (bend.abs() * torch.exp(-10 * (i[..., 2:] - i[..., :-2]).abs())).mean()
    return total


class HiddenObjective(Objective):
    """Weighted terms by name; ``trust`` is how far the poses are believed, from 0 to 1."""

    def __init__(self, weights: HiddenObjectiveConfig = HiddenObjectiveConfig(), *, trust: float = 1.0) -> None:
        super().__init__(ObjectiveConfig(reduction="relative"))
        self.weights, self.trust = weights, trust

    def _terms(self, batch: Batch, depth: Depth, mask: Mask | None, prior: Depth | None) -> LossTerms:
        w = self.weights
        valid = torch.ones_like(depth) if mask is None else mask
        hidden = torch.zeros_like(depth) if batch.hidden_depth is None else batch.hidden_depth
        terms = {
            "hidden": w.hidden * _hidden_error(depth, batch, hidden * valid, w),
            "sparse": w.sparse * point_error(depth, batch.sparse_depth * valid, w.relative),
        }
        if w.photometric * self.trust > 0 and batch.neighbours and batch.poses:
            terms["photometric"] = w.photometric * self.trust * robust_photometric(batch, depth, valid)
        if w.smooth > 0:
            terms["smooth"] = w.smooth * smoothness_of_log(depth, batch.image)
        return terms


def resolved(config: ObjectiveConfig, network: Backbone) -> ObjectiveConfig:
    """An objective's configuration with the network's own reduction where it names none."""
    return replace(config, reduction=config.reduction or network.default_reduction)


def build_objective(model: ProtoDepth, config: ObjectiveConfig) -> Objective:
    """The paper's objective (Eq. 1) for a model: with its network's reduction and depth range and its pose network."""
    return Objective(resolved(config, model.backbone), pose=model.pose, max_depth=model.backbone.depth_range[1])
