"""Dual-encoder Uformer: the transformer of the paper's supplement, for images of any size.

Two encoders of four transformer blocks (image; sparse depth) on a grid of 14 x 14 pixel patches, one decoder of four,
a skip from every encoder block to its matching decoder block.  The paper leaves much open; what is read into it here is
listed in docs/ambiguities.md.  b frames, n = h w patches, c channels, a patches along the side of a window.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protodepth.backbones.base import Backbone, backbones, centre, official_range
from protodepth.errors import ConfigError
from protodepth.types import Batch, Depth, Float, Latents, LatentSpec, Modality

BLOCKS = 4  # of each encoder and of the decoder
Grid = tuple[int, int]


def into_windows(x: Float[Tensor, "b h w c"], side: int, offset: Grid) -> Float[Tensor, "b m a c"]:
    """Cut a grid into m squares of ``side`` x ``side`` patches, row by row; zeros fill what sticks out.

    ``offset`` patches are added above and to the left: half a side gives the shifted windows of every other block.
    Cut and filled windows compute what Uformer's rolled grid with a mask computes.

    >>> into_windows(torch.ones(1, 9, 3, 2), 8, (0, 0)).shape
    torch.Size([1, 2, 64, 2])
    """
    b, h, w, c = x.shape
    top, left = offset
    x = F.pad(x, (0, 0, left, -(w + left) % side, top, -(h + top) % side))
    rows, columns = x.shape[1] // side, x.shape[2] // side
    x = x.reshape(b, rows, side, columns, side, c).transpose(2, 3)
    return x.reshape(b, rows * columns, side * side, c)


def from_windows(x: Float[Tensor, "b m a c"], grid: Grid, side: int, offset: Grid) -> Float[Tensor, "b h w c"]:
    """The inverse of :func:`into_windows`: back to ``grid``, the filling dropped."""
    (h, w), (top, left) = grid, offset
    rows, columns = (
        (h + top + side - 1) // side,
        (w + left + side - 1) // side,
    )  # of what is positive: ONNX rounds to zero
    x = x.reshape(x.shape[0], rows, columns, side, side, x.shape[-1]).transpose(2, 3)
    x = x.reshape(x.shape[0], rows * side, columns * side, x.shape[-1])
    return x[:, top : top + h, left : left + w]


def _relative_index(side: int) -> Tensor:
    """(a, a) places of the offset from one patch of a window to another in a table of (2 side - 1)^2."""
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    y, x = y.flatten(), x.flatten()
    return (y[:, None] - y + side - 1) * (2 * side - 1) + (x[:, None] - x + side - 1)


class WindowAttention(nn.Module):
    r"""Attention inside windows with a learned bias R of relative position:
    :math:`\mathrm{softmax}(QK^\top/\sqrt{d} + R)V`.

    A grid that fits into one window gets global attention, for it is then neither cut nor shifted.
    """

    index: Tensor

    def __init__(self, width: int, heads: int, side: int, *, shifted: bool, modulated: bool) -> None:
        super().__init__()
        self.heads, self.side, self.shifted = heads, side, shifted
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.position = nn.Parameter(torch.empty((2 * side - 1) ** 2, heads))
        self.modulator = nn.Parameter(torch.empty(side * side, width)) if modulated else None
        self.register_buffer("index", _relative_index(side), persistent=False)
        for table in (self.position, self.modulator):
            if table is not None:
                nn.init.trunc_normal_(table, std=0.02)

    def forward(
        self, x: Float[Tensor, "b n c"], grid: Grid, prompts: Float[Tensor, "b p c"] | None
    ) -> Float[Tensor, "b n c"]:
        """``prompts`` join the keys and values of every window, without position;
        they ask nothing, so none come out.
        """
        b, _, c = x.shape
        half = self.side // 2 if self.shifted else 0
        offset = (half if grid[0] > self.side else 0, half if grid[1] > self.side else 0)
        windows = into_windows(x.reshape(b, *grid, c), self.side, offset)
        if self.modulator is not None:
            windows = windows + self.modulator
        bias = self._bias(x, grid, offset)
        source = windows
        if prompts is not None:
            source = torch.cat([prompts[:, None].expand(-1, windows.shape[1], -1, -1), windows], 2)
            bias = F.pad(bias, (prompts.shape[1], 0))
        q = self._split(self.q(windows))
        k, v = (self._split(t) for t in self.kv(source).chunk(2, -1))
        weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]) + bias, -1)
        y = (weights @ v).transpose(2, 3).flatten(3)
        return self.out(from_windows(y, grid, self.side, offset).reshape(b, -1, c))

    def _split(self, x: Float[Tensor, "b m a c"]) -> Float[Tensor, "b m heads a d"]:
        return x.reshape(*x.shape[:-1], self.heads, -1).transpose(2, 3)

    def _bias(self, like: Tensor, grid: Grid, offset: Grid) -> Float[Tensor, "m heads a a"]:
        """Relative position of every pair, and -inf on keys that only fill a window (each window holds a real one)."""
        filled = into_windows(like.new_ones(1, *grid, 1), self.side, offset)[0, :, None, None, :, 0] == 0
        return self.position[self.index].permute(2, 0, 1).masked_fill(filled, -math.inf)


class LeFF(nn.Module):
    """Locally enhanced feed-forward: linear, GELU, depth-wise 3x3 on the h x w grid, GELU, linear."""

    def __init__(self, width: int, ratio: int = 4) -> None:
        super().__init__()
        hidden = ratio * width
        self.inner, self.outer = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.local = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)

    def forward(self, x: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b n c"]:
        y = F.gelu(self.inner(x)).mT.reshape(x.shape[0], -1, *grid)
        return self.outer(F.gelu(self.local(y)).flatten(2).mT)


class Block(nn.Module):
    """x + attention(LN x), then x + LeFF(LN x)."""

    def __init__(self, width: int, heads: int, side: int, *, shifted: bool, modulated: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = WindowAttention(width, heads, side, shifted=shifted, modulated=modulated)
        self.leff = LeFF(width)

    def forward(
        self, x: Float[Tensor, "b n c"], grid: Grid, prompts: Float[Tensor, "b p c"] | None = None
    ) -> Float[Tensor, "b n c"]:
        prompts = None if prompts is None else self.norm1(prompts)
        x = x + self.attention(self.norm1(x), grid, prompts)
        return x + self.leff(self.norm2(x), grid)


class Encoder(nn.Module):
    """Patches to n vectors of c channels, then four blocks; every block's output is a skip."""

    def __init__(self, channels: int, width: int, heads: int, patch: int, side: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, width, patch, patch)
        self.blocks = _blocks(width, heads, side, modulated=False)

    def forward(self, x: Float[Tensor, "b k H W"], prompts: Float[Tensor, "b p c"] | None) -> list[Tensor]:
        """Outputs of blocks 1-4; ``prompts`` reach block 1 only."""
        x = self.embed(x)
        grid = (x.shape[-2], x.shape[-1])
        y, outputs = x.flatten(2).mT, []
        for i, block in enumerate(self.blocks):
            y = block(y, grid, prompts if i == 0 else None)
            outputs.append(y)
        return outputs


class PatchDecoder(nn.Module):
    """Four blocks; block i first merges its input with the skips of encoder block 5 - i."""

    def __init__(self, width: int, heads: int, side: int) -> None:
        super().__init__()
        self.join = nn.Linear(2 * width, width)
        self.merges = nn.ModuleList(nn.Linear(3 * width, width) for _ in range(BLOCKS))
        self.blocks = _blocks(width, heads, side, modulated=True)

    def forward(
        self, latent: Float[Tensor, "b n c2"], skips: Sequence[tuple[Tensor, Tensor]], grid: Grid
    ) -> Float[Tensor, "b n c"]:
        x = self.join(latent)
        for merge, block, (image, depth) in zip(self.merges, self.blocks, reversed(skips), strict=True):
            x = block(merge(torch.cat([x, image, depth], -1)), grid)
        return x


class Head(nn.Module):
    """c channels of a patch to its pixels (pixel shuffle), then two 3x3 convolutions over the seams between patches."""

    def __init__(self, width: int, patch: int, depth_range: tuple[float, float], pixel_width: int) -> None:
        super().__init__()
        self.depth_range = depth_range
        self.patch = patch
        self.pixels = nn.Linear(width, pixel_width * patch * patch)
        self.smooth = nn.Conv2d(pixel_width, pixel_width, 3, padding=1)
        self.output = nn.Conv2d(pixel_width, 1, 3, padding=1)
        assert self.output.bias is not None
        # Untrained, the network answers the middle of its range (on the log scale), not half the smallest depth.
        nn.init.constant_(self.output.bias, centre(depth_range))

    def forward(self, x: Float[Tensor, "b n c"], grid: Grid) -> Depth:
        y = F.pixel_shuffle(self.pixels(x).mT.reshape(x.shape[0], -1, *grid), self.patch)
        y = self.output(F.leaky_relu(self.smooth(F.leaky_relu(y, 0.2)), 0.2))
        return official_range(torch.sigmoid(y), self.depth_range)


def _blocks(width: int, heads: int, side: int, *, modulated: bool) -> nn.ModuleList:
    return nn.ModuleList(Block(width, heads, side, shifted=bool(i % 2), modulated=modulated) for i in range(BLOCKS))


@backbones.register("uformer")
class Uformer(Backbone):
    """Uformer with an image and a sparse-depth encoder: 11.26 M parameters in ``full`` (c = 256), 0.88 M in ``small``.

    ``window`` at least as large as the grid of patches makes attention global.

    >>> net = Uformer.from_preset("small")
    >>> image, points = torch.rand(1, 3, 33, 40), torch.ones(1, 1, 33, 40)
    >>> batch = Batch(image=image, sparse_depth=points, intrinsics=torch.eye(3)[None])
    >>> net(batch).shape, net.encode(batch).layers["latent"].shape
    (torch.Size([1, 1, 33, 40]), torch.Size([1, 9, 128]))
    """

    name = "uformer"
    decoder_parts: ClassVar[tuple[str, ...]] = ("decoder", "head")
    encoder_parts: ClassVar[tuple[str, ...]] = ("image_encoder", "depth_encoder")
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "full": {"width": 256, "heads": 8},
        "small": {"width": 64, "heads": 4},
    }
    default_reduction = "kbnet"
    default_pose: ClassVar[dict[str, Any]] = {"kind": "resnet18", "rotation": "axis", "activation": "relu"}

    def __init__(
        self,
        width: int = 256,
        heads: int = 8,
        patch: int = 14,
        window: int = 8,
        depth_range: Sequence[float] = (0.1, 8.0),
        pixel_width: int = 8,
    ) -> None:
        super().__init__()
        if width % heads or min(width, heads, patch, window, pixel_width) < 1:
            given = f"width={width}, heads={heads}, patch={patch}, window={window}, pixel_width={pixel_width}"
            raise ConfigError(f"{given}: all sizes must be positive, width a multiple of heads")
        low, high = self.depth_range = (float(depth_range[0]), float(depth_range[1]))
        if not 0 < low < high:
            raise ConfigError(f"depth_range is {self.depth_range}, expected 0 < smallest < largest, in metres")
        self._config = {
            "width": width,
            "heads": heads,
            "patch": patch,
            "window": window,
            "depth_range": [low, high],
            "pixel_width": pixel_width,
        }
        self.patch, self.prompt_channels = patch, 2 * width
        self.latent_specs = _specs(width)
        self.default_layers = tuple(s.name for s in self.latent_specs)
        self.image_encoder = Encoder(3, width, heads, patch, window)
        self.depth_encoder = Encoder(2, width, heads, patch, window)
        self.decoder = PatchDecoder(width, heads, window)
        self.head = Head(width, patch, self.depth_range, pixel_width)
        _initialise(self)

    def config(self) -> dict[str, Any]:
        return dict(self._config)

    def points(self, sparse_depth: Depth) -> Float[Tensor, "b 2 h w"]:
        r"""Input of the depth encoder: log depth and validity.

        The value is :math:`2 \log(z / \sqrt{d_{min} d_{max}}) / \log(d_{max} / d_{min})`, in [-1, 1].  Pixels without a
        point take the mean of their patch, patches without a point the mean of the frame: most patches hold few points,
        and a linear embedding of a sum over few points could not tell depth from density.
        """
        low, high = self.depth_range
        valid = (sparse_depth > 0).to(sparse_depth.dtype)
        z = sparse_depth.clamp(low, high)
        value = 2 * torch.log(z / math.sqrt(low * high)) / math.log(high / low) * valid
        count, total = (F.avg_pool2d(t, self.patch) for t in (valid, value))  # of each patch, over its number of pixels
        tiny = 0.5 / self.patch**2  # less than one point
        frame = total.sum((2, 3), keepdim=True) / count.sum((2, 3), keepdim=True).clamp(min=tiny)
        mean = torch.where(count > tiny, total / count.clamp(min=tiny), frame)
        filled = torch.where(valid > 0, value, F.interpolate(mean, scale_factor=float(self.patch), mode="nearest"))
        return torch.cat([filled, valid], 1)

    def encode(self, batch: Batch, prompts: Float[Tensor, "b p c2"] | None = None) -> Latents:
        """Skips of both encoders and the bottleneck, their concatenation.

        ``prompts`` (b, p, ``prompt_channels``): p learned vectors for each frame, the first half of the channels for
        the image encoder, the second for the depth encoder.  They are prepended to the keys and values of every window
        of block 1 and are not part of its output.  The query that chooses prompts is the sample descriptor s of
        ``encode(batch)`` without prompts, the same that chooses prototypes.
        """
        pad = (0, -batch.size[1] % self.patch, 0, -batch.size[0] % self.patch)
        image = F.pad(batch.image, pad, mode="replicate")
        points = self.points(F.pad(batch.sparse_depth, pad))
        grid = (image.shape[-2] // self.patch, image.shape[-1] // self.patch)
        halves = self._prompt_halves(prompts, len(batch))
        image_skips, depth_skips = self.image_encoder(image, halves[0]), self.depth_encoder(points, halves[1])
        layers: dict[str, Tensor] = {}
        for i in range(BLOCKS):
            layers[f"skip{i + 1}_image"], layers[f"skip{i + 1}_depth"] = image_skips[i], depth_skips[i]
        layers["latent"] = torch.cat([image_skips[-1], depth_skips[-1]], -1)
        return Latents(layers, {"size": batch.size, "grid": grid})

    def decode(self, latents: Latents) -> Depth:
        layers, grid, (height, width) = latents.layers, latents.context["grid"], latents.context["size"]
        skips = [(layers[f"skip{i}_image"], layers[f"skip{i}_depth"]) for i in range(1, BLOCKS + 1)]
        return self.head(self.decoder(layers["latent"], skips, grid), grid)[..., :height, :width]

    def _prompt_halves(self, prompts: Tensor | None, size: int) -> tuple[Tensor | None, Tensor | None]:
        if prompts is None:
            return None, None
        if prompts.ndim != 3 or (prompts.shape[0], prompts.shape[2]) != (size, self.prompt_channels):
            raise ConfigError(
                f"prompts have shape {tuple(prompts.shape)}, expected ({size}, any number, {self.prompt_channels}): "
                "the image encoder's channels, then the depth encoder's"
            )
        image, depth = prompts.chunk(2, -1)
        return image, depth


def _specs(width: int) -> tuple[LatentSpec, ...]:
    specs = []
    for i in range(1, BLOCKS + 1):
        specs.append(LatentSpec(f"skip{i}_image", width, Modality.IMAGE, "bnc"))
        specs.append(LatentSpec(f"skip{i}_depth", width, Modality.DEPTH, "bnc"))
    return (*specs, LatentSpec("latent", 2 * width, Modality.FUSED, "bnc", bottleneck=True))


def _initialise(module: nn.Module) -> None:
    """Linear layers as in Uformer (truncated normal, 0.02; wider where the width is small); the rest as torch does."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.trunc_normal_(part.weight, std=max(0.02, 0.5 / math.sqrt(part.in_features)))
            nn.init.zeros_(part.bias)
