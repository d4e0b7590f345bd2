"""ScaffNet (Wong et al., RA-L 2021): dense depth from sparse depth alone,
learned with ground truth on synthetic scenes.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from protodepth.backbones.base import Backbone, backbones, official_range
from protodepth.backbones.layers import (
    Conv,
    Decoder,
    VGGEncoder,
    window_maxima,
    without_finest,
)
from protodepth.types import Batch, Depth, Float, Latents, LatentSpec, Modality

SCAFF_FULL: dict[str, Any] = {"encoder_widths": (16, 32, 64, 128, 256), "decoder_widths": (256, 128, 128, 64, 32)}
SCAFF_SMALL: dict[str, Any] = {"encoder_widths": (8, 16, 24, 32, 48), "decoder_widths": (48, 32, 24, 16, 12)}
POOLS = (13, 17, 19, 21, 25)


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
