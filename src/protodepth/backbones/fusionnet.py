"""FusionNet (Wong et al., RA-L 2021): keeps ScaffNet frozen inside and lets the image correct its depth by a multiplier
and a residual.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from protodepth.backbones.base import Backbone, backbones
from protodepth.backbones.layers import (
    Decoder,
    VGGEncoder,
    fused_skips,
    paired_layers,
    paired_specs,
    without_finest,
)
from protodepth.backbones.scaffnet import ScaffNet
from protodepth.geometry import outlier_free, window_max
from protodepth.types import Batch, Depth, Latents

FULL: dict[str, Any] = {
    "image_widths": (48, 96, 192, 384, 384),
    "depth_widths": (16, 32, 64, 128, 128),
    "decoder_widths": (256, 128, 128, 64, 32),
}
SMALL: dict[str, Any] = {
    "image_widths": (12, 24, 48, 64, 64),
    "depth_widths": (8, 16, 24, 32, 32),
    "decoder_widths": (64, 48, 32, 24, 12),
}
INDOOR, OUTDOOR = (0.1, 8.0), (1.5, 100.0)


def match_scale(dense: Depth, points: Depth, size: int = 5) -> Depth:
    r"""Dense depth times the largest ratio point / dense in each window; ratios over 2 and empty windows do not count.

    >>> match_scale(torch.ones(1, 1, 3, 3), torch.tensor([[[[1.5, 0, 0], [0, 0, 0], [0, 0, 0]]]]), size=3)[0, 0, 0]
    tensor([1.5000, 1.5000, 1.0000])
    """
    ratio = torch.where(points > 0, points / dense, torch.zeros_like(dense))
    ratio = window_max(torch.where(ratio > 2, torch.zeros_like(ratio), ratio), size)
    return torch.where(ratio > 0, ratio, torch.ones_like(ratio)) * dense


@backbones.register("fusionnet")
class FusionNet(Backbone):
    r"""The published FusionNet (6,751,088 parameters) with its ScaffNet inside (2,870,960 or 2,865,680).

    ScaffNet is frozen and in ``eval()`` whatever ``train()`` or ``requires_grad_()`` say.  Its own depth is
    ``context["prior"]``.  Output: :math:`d = (0.25 + 3.75\,\sigma(o_0))\, d_m + o_1`, cut to the range, where
    :math:`d_m` is ScaffNet's depth with its scale matched to the points.

    >>> net = FusionNet.from_preset("small")
    >>> image, z = torch.rand(1, 3, 33, 40), torch.ones(1, 1, 33, 40)
    >>> net(Batch(image=image, sparse_depth=z, intrinsics=torch.eye(3)[None])).shape
    torch.Size([1, 1, 33, 40])
    """

    name = "fusionnet"
    decoder_parts: ClassVar[tuple[str, ...]] = ("decoder",)
    encoder_parts: ClassVar[tuple[str, ...]] = ("encoder_image", "encoder_depth")  # ScaffNet never learns
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "void": {**FULL, "depth_range": INDOOR, "scaffnet": ScaffNet.presets["void"]},
        "kitti": {**FULL, "depth_range": OUTDOOR, "scaffnet": ScaffNet.presets["kitti"]},
        "void_nospp": {**FULL, "depth_range": INDOOR, "scaffnet": ScaffNet.presets["void_nospp"]},
        "kitti_nospp": {**FULL, "depth_range": OUTDOOR, "scaffnet": ScaffNet.presets["kitti_nospp"]},
        "small": {**SMALL, "depth_range": INDOOR, "scaffnet": ScaffNet.presets["small"]},
    }
    default_reduction = "voiced"
    default_pose: ClassVar[dict[str, Any]] = {"kind": "posenet", "rotation": "axis", "activation": "relu"}
    official_keys: ClassVar[dict[str, str]] = {
        **{theirs: f"scaffnet.{ours}" for theirs, ours in ScaffNet.official_keys.items()},
        "fusionnet_encoder_image_state_dict": "encoder_image",
        "fusionnet_encoder_depth_state_dict": "encoder_depth",
        "fusionnet_decoder_state_dict": "decoder",
    }

    def __init__(
        self,
        image_widths: Sequence[int] = FULL["image_widths"],
        depth_widths: Sequence[int] = FULL["depth_widths"],
        decoder_widths: Sequence[int] = FULL["decoder_widths"],
        depth_range: Sequence[float] = INDOOR,
        scaffnet: Mapping[str, Any] = ScaffNet.presets["void"],
    ) -> None:
        super().__init__()
        self.scaffnet = ScaffNet(**scaffnet).eval().requires_grad_(False)
        self._config = {
            "image_widths": list(image_widths),
            "depth_widths": list(depth_widths),
            "decoder_widths": list(decoder_widths),
            "depth_range": list(depth_range),
            "scaffnet": self.scaffnet.config(),
        }
        self.depth_range = (float(depth_range[0]), float(depth_range[1]))
        self.latent_specs = paired_specs(image_widths, depth_widths)
        self.default_layers = without_finest(self.latent_specs)
        self.encoder_image = VGGEncoder(3, image_widths)
        self.encoder_depth = VGGEncoder(2, depth_widths)
        skips = [image_widths[n] + depth_widths[n] for n in (3, 2, 1, 0)]
        self.decoder = Decoder(image_widths[4] + depth_widths[4], [*skips, 0], decoder_widths, (2, "linear"))

    def config(self) -> dict[str, Any]:
        return dict(self._config)

    def train(self, mode: bool = True) -> "FusionNet":
        super().train(mode)
        self.scaffnet.eval()
        return self

    def requires_grad_(self, requires_grad: bool = True) -> "FusionNet":
        super().requires_grad_(requires_grad)
        self.scaffnet.requires_grad_(False)
        return self

    def encode(self, batch: Batch) -> Latents:
        with torch.no_grad():
            prior = self.scaffnet(batch)  # sees all points
            inliers = batch.sparse_depth * outlier_free(batch.sparse_depth)
            points = inliers.clamp(max=self.depth_range[1])
            matched = match_scale(prior, points)
        image, depth = self.encoder_image(batch.image), self.encoder_depth(torch.cat([matched, points], 1))
        return Latents(paired_layers(image, depth), {"size": batch.size, "prior": prior, "matched": matched})

    def decode(self, latents: Latents) -> Depth:
        skips = [*fused_skips(latents.layers), None]
        output: Tensor = self.decoder(latents.layers["latent"], skips, latents.context["size"])
        multiplier = 0.25 + 3.75 * torch.sigmoid(output[:, :1])
        residual = output[:, 1:].clamp(-1000, 1000)
        return (multiplier * latents.context["matched"] + residual).clamp(*self.depth_range)
