"""ScaffNet and FusionNet (Wong et al., RA-L 2021).

ScaffNet makes dense depth of sparse depth alone and is learned with ground truth on synthetic scenes.  FusionNet keeps
it frozen inside and lets the image correct its depth by a multiplier and a residual.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from protodepth.backbones.base import Backbone, backbones, official_range
from protodepth.backbones.layers import (
    Conv,
    Decoder,
    VGGEncoder,
    fused_skips,
    paired_layers,
    paired_specs,
    window_maxima,
    without_finest,
)
from protodepth.geometry import outlier_free, window_max
from protodepth.types import Batch, Depth, Float, Latents, LatentSpec, Modality

SCAFF_FULL: dict[str, Any] = {"encoder_widths": (16, 32, 64, 128, 256), "decoder_widths": (256, 128, 128, 64, 32)}
SCAFF_SMALL: dict[str, Any] = {"encoder_widths": (8, 16, 24, 32, 48), "decoder_widths": (48, 32, 24, 16, 12)}
POOLS = (13, 17, 19, 21, 25)
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


class SpatialPyramidPool(nn.Module):
    """Sparse depth and its maxima over several windows, mixed by 1x1 convolutions."""

    def __init__(self, sizes: Sequence[int], width: int = 8) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        self.convs = nn.Sequential(*(Conv(1 + len(sizes) if i == 0 else width, width, 1) for i in range(3)))

    def forward(self, z: Depth) -> Float[Tensor, "b c h w"]:
        return self.convs(torch.cat([z, *window_maxima(z, self.sizes)], 1))


@backbones.register("scaffnet")
class ScaffNet(Backbone):
    """The published ScaffNet: 2,870,960 parameters with its spatial pyramid pool, 2,865,680 without (``pools=()``).

    It sees the sparse points only, so what it learns on synthetic scenes carries over to real ones.  It has batch norm:
    train it in ``train()`` mode.

    >>> net = ScaffNet.from_preset("small").eval()
    >>> image, z = torch.rand(1, 3, 33, 40), torch.ones(1, 1, 33, 40)
    >>> net(Batch(image=image, sparse_depth=z, intrinsics=torch.eye(3)[None])).shape
    torch.Size([1, 1, 33, 40])
    """

    name = "scaffnet"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "void": {**SCAFF_FULL, "pools": POOLS, "depth_range": (0.1, 10.0)},
        "kitti": {**SCAFF_FULL, "pools": POOLS, "depth_range": (1.5, 80.0)},
        "void_nospp": {**SCAFF_FULL, "pools": (), "depth_range": (0.1, 10.0)},
        "kitti_nospp": {**SCAFF_FULL, "pools": (), "depth_range": (1.5, 80.0)},
        "small": {**SCAFF_SMALL, "pools": (5, 9, 13), "depth_range": (0.1, 10.0)},
    }
    default_reduction = "voiced"
    official_keys: ClassVar[dict[str, str]] = {
        "scaffnet_encoder_state_dict": "encoder",
        "scaffnet_decoder_depth_state_dict": "decoder",
        "spatial_pyramid_pool_state_dict": "spatial_pyramid_pool",
    }

    def __init__(
        self,
        encoder_widths: Sequence[int] = SCAFF_FULL["encoder_widths"],
        decoder_widths: Sequence[int] = SCAFF_FULL["decoder_widths"],
        pools: Sequence[int] = POOLS,
        depth_range: Sequence[float] = (0.1, 10.0),
    ) -> None:
        super().__init__()
        self._config = {
            "encoder_widths": list(encoder_widths),
            "decoder_widths": list(decoder_widths),
            "pools": list(pools),
            "depth_range": list(depth_range),
        }
        self.depth_range = (float(depth_range[0]), float(depth_range[1]))
        skips = [LatentSpec(f"skip{n + 1}_depth", encoder_widths[n], Modality.DEPTH) for n in range(4)]
        self.latent_specs = (*skips, LatentSpec("latent", encoder_widths[4], Modality.DEPTH, bottleneck=True))
        self.default_layers = without_finest(self.latent_specs)
        self.spatial_pyramid_pool = SpatialPyramidPool(pools) if pools else None
        c_input = 8 if pools else 1
        self.encoder = VGGEncoder(c_input, encoder_widths, norm=True)
        finest = c_input if pools else 0  # the pooled map is also the skip of the full resolution
        c_skips = [*(encoder_widths[n] for n in (3, 2, 1, 0)), finest]
        self.decoder = Decoder(encoder_widths[4], c_skips, decoder_widths, (1, "sigmoid"), norm=True)

    def config(self) -> dict[str, Any]:
        return dict(self._config)

    def encode(self, batch: Batch) -> Latents:
        z = batch.sparse_depth.clamp(max=self.depth_range[1])
        pooled = None if self.spatial_pyramid_pool is None else self.spatial_pyramid_pool(z)
        names = [spec.name for spec in self.latent_specs]
        layers = dict(zip(names, self.encoder(z if pooled is None else pooled), strict=True))
        return Latents(layers, {"size": batch.size, "pooled": pooled})

    def decode(self, latents: Latents) -> Depth:
        skips = [*(latents.layers[f"skip{n}_depth"] for n in (4, 3, 2, 1)), latents.context["pooled"]]
        value = self.decoder(latents.layers["latent"], skips, latents.context["size"])
        return official_range(value, self.depth_range)


def supervised_loss(depth: Depth, ground_truth: Depth) -> Float[Tensor, ""]:
    r"""ScaffNet's own objective: mean over all pixels of :math:`|d - d_{gt}| / d_{gt}`, 0 where nothing is known.

    >>> float(supervised_loss(torch.tensor([[[[3.0, 9.0]]]]), torch.tensor([[[[2.0, 0.0]]]])))
    0.25
    """
    known = ground_truth > 0
    safe = torch.where(known, ground_truth, torch.ones_like(ground_truth))
    return torch.where(known, (depth - ground_truth).abs() / safe, torch.zeros_like(depth)).mean()


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
