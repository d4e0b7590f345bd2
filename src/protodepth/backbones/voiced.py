"""VOICED (Wong et al., RA-L 2020): VGG encoders of the image and of a linear scaffolding of the points."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from protodepth.backbones.base import Backbone, backbones, centre, official_range
from protodepth.backbones.layers import Decoder, VGGEncoder, fused_skips, paired_layers, paired_specs, without_finest
from protodepth.types import Batch, Depth, Float, Latents

VGG11 = (1, 1, 2, 2, 2)  # convolutions per level
FULL: dict[str, Any] = {
    "image_widths": (48, 96, 192, 384, 384),
    "depth_widths": (16, 32, 64, 128, 128),
    "decoder_widths": (256, 128, 128, 64),
}
SMALL: dict[str, Any] = {
    "image_widths": (12, 24, 48, 64, 64),
    "depth_widths": (8, 16, 24, 32, 32),
    "decoder_widths": (64, 48, 32, 24),
}


def scaffold_array(z: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """Dense depth of one frame: linear interpolation on the Delaunay triangles of the points, 0 outside their hull.

    With fewer than four points, or points on one line, every pixel takes the depth of its nearest point instead.
    Without any point the result is 0.

    >>> z = np.zeros((3, 3)); z[0, 0], z[0, 2], z[2, 0], z[2, 2] = 1, 3, 1, 3
    >>> scaffold_array(z)[1]
    array([1., 2., 3.], dtype=float32)
    >>> scaffold_array(np.diag([2.0, 0, 0]))[2, 1]
    np.float32(2.0)
    """
    from scipy.interpolate import LinearNDInterpolator
    from scipy.ndimage import distance_transform_edt
    from scipy.spatial import QhullError

    points = np.argwhere(z > 0)
    if len(points) == 0:
        return np.zeros(z.shape, np.float32)
    if len(points) >= 4:
        try:
            interpolate = LinearNDInterpolator(points, z[z > 0], fill_value=0.0)
            return interpolate(*np.indices(z.shape)).astype(np.float32)
        except QhullError:  # all points on one line
            pass
    rows, columns = distance_transform_edt(z <= 0, return_distances=False, return_indices=True)
    return z[rows, columns].astype(np.float32)


def scaffold(sparse_depth: Depth) -> Depth:
    """:func:`scaffold_array` of each frame, frames in parallel.  Runs on the CPU and has no gradient.

    >>> scaffold(torch.zeros(2, 1, 8, 9)).shape
    torch.Size([2, 1, 8, 9])
    """
    maps = [frame[0] for frame in sparse_depth.detach().cpu().numpy()]
    if len(maps) == 1 or maps[0].size < 65_536:  # a small frame takes less than a thread's start
        dense = [scaffold_array(z) for z in maps]
    else:  # Qhull and the look-up release the interpreter lock
        with ThreadPoolExecutor(min(len(maps), os.cpu_count() or 1)) as pool:
            dense = list(pool.map(scaffold_array, maps))
    return torch.from_numpy(np.stack(dense))[:, None].to(sparse_depth)


@backbones.register("voiced")
class VOICED(Backbone):
    """The published VOICED: 10,041,200 parameters.

    The scaffolding is a pre-processing step on the CPU; ``encode_scaffolded`` is the rest, made of tensor operations.

    >>> net = VOICED.from_preset("small")
    >>> image, z = torch.rand(1, 3, 33, 40), torch.ones(1, 1, 33, 40)
    >>> net(Batch(image=image, sparse_depth=z, intrinsics=torch.eye(3)[None])).shape
    torch.Size([1, 1, 33, 40])
    """

    name = "voiced"
    decoder_parts: ClassVar[tuple[str, ...]] = ("decoder",)
    encoder_parts: ClassVar[tuple[str, ...]] = ("encoder_image", "encoder_depth")
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "void": {**FULL, "depth_range": (0.1, 8.0)},
        "kitti": {**FULL, "depth_range": (1.5, 100.0)},
        "small": {**SMALL, "depth_range": (0.1, 8.0)},
    }
    default_reduction = "voiced"
    default_pose: ClassVar[dict[str, Any]] = {"kind": "posenet", "rotation": "euler", "activation": "leaky_relu"}
    official_keys: ClassVar[dict[str, str]] = {
        "encoder_image_state_dict": "encoder_image",
        "encoder_depth_state_dict": "encoder_depth",
        "decoder_state_dict": "decoder",
    }

    def __init__(
        self,
        image_widths: Sequence[int] = FULL["image_widths"],
        depth_widths: Sequence[int] = FULL["depth_widths"],
        decoder_widths: Sequence[int] = FULL["decoder_widths"],
        depth_range: Sequence[float] = (0.1, 8.0),
        centred: bool = False,
    ) -> None:
        super().__init__()
        self._config = {
            "image_widths": list(image_widths),
            "depth_widths": list(depth_widths),
            "decoder_widths": list(decoder_widths),
            "depth_range": list(depth_range),
        }
        if centred:
            self._config["centred"] = True
        self.depth_range = (float(depth_range[0]), float(depth_range[1]))
        self.offset = centre(self.depth_range) if centred else 0.0
        self.latent_specs = paired_specs(image_widths, depth_widths)
        self.default_layers = without_finest(self.latent_specs)
        self.encoder_image = VGGEncoder(3, image_widths, VGG11)
        self.encoder_depth = VGGEncoder(2, depth_widths, VGG11)
        skips = [image_widths[n] + depth_widths[n] for n in (3, 2, 1, 0)]
        self.decoder = Decoder(image_widths[4] + depth_widths[4], skips, decoder_widths)

    def config(self) -> dict[str, Any]:
        return dict(self._config)

    def encode(self, batch: Batch) -> Latents:
        return self.encode_scaffolded(batch, scaffold(batch.sparse_depth))

    def encode_scaffolded(self, batch: Batch, dense: Depth) -> Latents:
        """``encode`` with the scaffolding given: only tensor operations, so it can be exported."""
        valid = (batch.sparse_depth > 0).to(dense.dtype)
        image, depth = self.encoder_image(batch.image), self.encoder_depth(torch.cat([dense, valid], 1))
        return Latents(paired_layers(image, depth), {"size": batch.size, "scaffold": dense})

    def decode(self, latents: Latents) -> Depth:
        size = latents.context["size"]
        half: Tensor = self.decoder(latents.layers["latent"], fused_skips(latents.layers), size)
        half = torch.sigmoid(half + self.offset)
        value = F.interpolate(half, size=size, mode="bilinear", align_corners=False)
        return official_range(value, self.depth_range)
