"""KBNet (Wong and Soatto, ICCV 2021): calibrated backprojection layers on a sparse-to-dense pool."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from protodepth.backbones.base import Backbone, backbones, centre, official_range
from protodepth.backbones.layers import (
    Conv,
    ConvBlock,
    Decoder,
    fused_skips,
    paired_specs,
    window_maxima,
    window_minima_of_points,
    without_finest,
)
from protodepth.errors import ConfigError
from protodepth.geometry import outlier_free, rays
from protodepth.types import Batch, Depth, Float, Image, Latents

Coordinates = Literal["per_level", "official"]

FULL: dict[str, Any] = {
    "image_widths": (48, 96, 192, 384, 384),
    "depth_widths": (16, 32, 64, 128, 128),
    "decoder_widths": (256, 128, 128, 64, 12),
}
SMALL: dict[str, Any] = {
    "image_widths": (12, 24, 48, 72, 72),
    "depth_widths": (8, 16, 24, 32, 32),
    "decoder_widths": (64, 48, 32, 24, 12),
}
VOID_POOLS = ((15, 17), (23, 27, 29))
KITTI_POOLS = ((5, 7, 9, 11, 13), (15, 17))


class SparseToDensePool(nn.Module):
    """Sparse depth to 8 dense channels: minima and maxima over several windows, mixed by 1x1 convolutions."""

    def __init__(self, min_sizes: Sequence[int], max_sizes: Sequence[int], width: int = 8) -> None:
        super().__init__()
        self.min_sizes, self.max_sizes = tuple(min_sizes), tuple(max_sizes)
        maps = len(self.min_sizes) + len(self.max_sizes)
        self.pool_convs = nn.Sequential(*(Conv(maps if i == 0 else width, width, 1) for i in range(3)))
        self.conv = Conv(width + 2, width)

    def forward(self, z: Depth, valid: Depth) -> Float[Tensor, "b c h w"]:
        pooled = window_minima_of_points(z, self.min_sizes) + window_maxima(z, self.max_sizes)
        return self.conv(torch.cat([self.pool_convs(torch.cat(pooled, 1)), z, valid], 1))


class CalibratedBackprojection(nn.Module):
    r"""One level: image and depth branches at half size, and a fused branch that sees 3-D points.

    With features I, D, coordinates C = :math:`K^{-1} \bar x` and the fused features F of the level above:
    image' = conv(I), depth' = conv([D, C]), fused' = conv1x1([I, C * proj(D), F]).
    """

    def __init__(self, c_in: tuple[int, int, int], c_out: tuple[int, int], image_output: bool = True) -> None:
        super().__init__()
        image, depth, fused = c_in
        self.conv_image = ConvBlock(image, c_out[0])
        self.conv_depth = ConvBlock(depth + 3, c_out[1])
        self.proj_depth = Conv(depth, 1, 1)
        self.conv_fused = Conv(image + 3 + fused, c_out[0], 1, 2)
        # The published network never reads the last level's image branch: its weights are kept so that checkpoints
        # load and counts agree, but it is not computed and not trained.
        self.image_output = image_output
        self.conv_image.requires_grad_(image_output)

    def forward(
        self, image: Tensor, depth: Tensor, coordinates: Tensor, fused: Tensor | None
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        xyz = coordinates * self.proj_depth(depth)
        parts = [image, xyz] if fused is None else [image, xyz, fused]
        next_image = self.conv_image(image) if self.image_output else None
        return next_image, self.conv_depth(torch.cat([depth, coordinates], 1)), self.conv_fused(torch.cat(parts, 1))


def level_intrinsics(
    K: Float[Tensor, "b 3 3"], level: int, size: tuple[int, int], coordinates: Coordinates
) -> Float[Tensor, "b 3 3"]:
    """K of the feature map at ``level``, whose pixel i lies on pixel i * 2**level of the ``size`` = (h, w) input.

    ``official`` reproduces the published networks: the ratio of level 1 at every level, and a skew that is not scaled.
    """
    if level == 0:
        return K
    if coordinates == "per_level":
        scale = 0.5**level
        return torch.stack([K[:, 0] * scale, K[:, 1] * scale, K[:, 2]], 1)
    height, width = size
    sx, sy = ((width + 1) // 2) / width, ((height + 1) // 2) / height
    x = torch.stack([K[:, 0, 0] * sx, K[:, 0, 1], K[:, 0, 2] * sx], 1)
    y = torch.stack([K[:, 1, 0], K[:, 1, 1] * sy, K[:, 1, 2] * sy], 1)
    return torch.stack([x, y, K[:, 2]], 1)


class KBNetEncoder(nn.Module):
    """Four calibrated backprojection levels and a plain one; skips are the fused and the depth branch of each level."""

    def __init__(self, image: Sequence[int], depth: Sequence[int], coordinates: Coordinates, c_pool: int = 8) -> None:
        super().__init__()
        self.coordinates = coordinates
        self.conv0_image = Conv(3, image[0])
        self.conv0_depth = Conv(c_pool, depth[0])
        for n in range(1, 5):
            i = max(n - 2, 0)
            block = CalibratedBackprojection(
                (image[i], depth[i], image[n - 2] if n > 1 else 0), (image[n - 1], depth[n - 1]), image_output=n < 4
            )
            setattr(self, f"calibrated_backprojection{n}", block)
        self.conv5_image = ConvBlock(image[3], image[4])
        self.conv5_depth = ConvBlock(depth[3], depth[4])

    def forward(self, image: Image, pooled: Tensor, K: Float[Tensor, "b 3 3"]) -> dict[str, Tensor]:
        size = (image.shape[-2], image.shape[-1])
        i, d, fused = self.conv0_image(image), self.conv0_depth(pooled), None
        layers: dict[str, Tensor] = {}
        for n in range(1, 5):
            coordinates = rays(level_intrinsics(K, n - 1, size, self.coordinates), d.shape[-2], d.shape[-1])
            i, d, fused = self.get_submodule(f"calibrated_backprojection{n}")(i, d, coordinates, fused)
            layers[f"skip{n}_image"], layers[f"skip{n}_depth"] = fused, d
        layers["latent"] = torch.cat([self.conv5_image(fused), self.conv5_depth(d)], 1)
        return layers


@backbones.register("kbnet")
class KBNet(Backbone):
    """The published KBNet: 6,957,764 parameters in the ``void`` preset, 6,957,780 in ``kitti``.

    ``pools`` are the (minimum, maximum) windows of the sparse-to-dense pool.  ``coordinates`` is ``per_level`` for
    networks trained here and ``official`` for published weights, whose K is scaled by 1/2 at levels 1, 2 and 3 alike.

    >>> net = KBNet.from_preset("small", depth_range=(0.2, 5.0))
    >>> image, z = torch.rand(1, 3, 33, 40), torch.ones(1, 1, 33, 40)
    >>> net(Batch(image=image, sparse_depth=z, intrinsics=torch.eye(3)[None])).shape
    torch.Size([1, 1, 33, 40])
    """

    name = "kbnet"
    decoder_parts: ClassVar[tuple[str, ...]] = ("decoder",)
    encoder_parts: ClassVar[tuple[str, ...]] = ("sparse_to_dense_pool", "encoder")
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "void": {**FULL, "pools": VOID_POOLS, "depth_range": (0.1, 8.0)},
        "void_train": {**FULL, "pools": ((15, 17, 19), (23, 27)), "depth_range": (0.1, 8.0)},
        "kitti": {**FULL, "pools": KITTI_POOLS, "depth_range": (1.5, 100.0)},
        "small": {**SMALL, "pools": ((5, 9), (13, 17, 25)), "depth_range": (0.1, 8.0)},
    }
    default_reduction = "kbnet"
    default_pose: ClassVar[dict[str, Any]] = {"kind": "resnet18", "rotation": "axis", "activation": "relu"}
    official_keys: ClassVar[dict[str, str]] = {
        "encoder_state_dict": "encoder",
        "decoder_state_dict": "decoder",
        "sparse_to_dense_pool_state_dict": "sparse_to_dense_pool",
    }

    def __init__(
        self,
        image_widths: Sequence[int] = FULL["image_widths"],
        depth_widths: Sequence[int] = FULL["depth_widths"],
        decoder_widths: Sequence[int] = FULL["decoder_widths"],
        pools: Sequence[Sequence[int]] = VOID_POOLS,
        depth_range: Sequence[float] = (0.1, 8.0),
        coordinates: Coordinates = "per_level",
        centred: bool = False,
    ) -> None:
        super().__init__()
        if coordinates not in ("per_level", "official"):
            raise ConfigError(
                f"coordinates is {coordinates!r}; choose per_level (new networks) or official (published weights)"
            )
        self._config = {
            "image_widths": list(image_widths),
            "depth_widths": list(depth_widths),
            "decoder_widths": list(decoder_widths),
            "pools": [list(sizes) for sizes in pools],
            "depth_range": list(depth_range),
            "coordinates": coordinates,
        }
        if centred:
            self._config["centred"] = True
        self.depth_range = (float(depth_range[0]), float(depth_range[1]))
        self.offset = centre(self.depth_range) if centred else 0.0
        self.latent_specs = paired_specs(image_widths, depth_widths)
        self.default_layers = without_finest(self.latent_specs)
        self.sparse_to_dense_pool = SparseToDensePool(pools[0], pools[1])
        self.encoder = KBNetEncoder(image_widths, depth_widths, coordinates)
        skips = [image_widths[n] + depth_widths[n] for n in (3, 2, 1, 0)]
        self.decoder = Decoder(image_widths[4] + depth_widths[4], [*skips, 0], decoder_widths)

    def config(self) -> dict[str, Any]:
        return dict(self._config)

    def pool(self, sparse_depth: Depth) -> Float[Tensor, "b c h w"]:
        """Input of the depth branch: the raw points, cut at the largest depth, with the validity of the inliers."""
        z = sparse_depth.clamp(max=self.depth_range[1])
        return self.sparse_to_dense_pool(z, outlier_free(sparse_depth))

    def encode(self, batch: Batch) -> Latents:
        layers = self.encoder(batch.image, self.pool(batch.sparse_depth), batch.intrinsics)
        return Latents(layers, {"size": batch.size})

    def decode(self, latents: Latents) -> Depth:
        skips = [*fused_skips(latents.layers), None]
        output = self.decoder(latents.layers["latent"], skips, latents.context["size"])
        return official_range(torch.sigmoid(output + self.offset), self.depth_range)
