"""Augmentation of the network's input only: the prediction is mapped back before the loss, which sees clean images."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from protodepth.data.hidden import HideConfig, choose_hidden
from protodepth.errors import ConfigError
from protodepth.geometry import pixel_grid, sample
from protodepth.types import Batch, Depth, Float, Image, Mask, View


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentConfig:
    """Ranges of the random changes; the defaults change nothing.  ``published()`` has the released networks' values."""

    brightness: tuple[float, float] = (1.0, 1.0)
    contrast: tuple[float, float] = (1.0, 1.0)
    saturation: tuple[float, float] = (1.0, 1.0)
    hue: float = 0.0  # +- turns
    flip_horizontal: bool = False
    flip_vertical: bool = False
    rotation: float = 0.0  # +- degrees
    resize: tuple[float, float] = (1.0, 1.0)  # below 1 pads, above 1 crops
    crop: tuple[int, int] | None = None  # (rows, columns) of the batch itself, neighbours and intrinsics included
    crop_bottom: bool = False  # rows from the bottom (driving), columns random
    remove_points: tuple[float, float] = (0.0, 0.0)  # share of sparse points hidden from the network
    remove_rows: tuple[float, float] = (
        0.0,
        0.0,
    )  # share of pixel rows whose points are hidden: a scanner with fewer lines
    remove_patterns: bool = False  # points hidden as data/hidden.py does: any density and pattern, blocks, holes
    remove_patches: tuple[float, float] = (0.0, 0.0)  # share of pixels whose 5x5 image patch is blacked out
    at_most: bool | None = None  # smaller frames than the crop stay whole instead of being refused
    crop_pad: tuple[float, float] | None = None  # share of each side that is kept and put anywhere; None = all

    def __post_init__(self) -> None:
        for name in (
            "brightness",
            "contrast",
            "saturation",
            "resize",
            "remove_points",
            "remove_rows",
            "remove_patches",
            "crop_pad",
        ):
            low, high = getattr(self, name) or (1.0, 1.0)
            if low > high or low < 0:
                raise ConfigError(
                    f"augmentation {name} must be a range low <= high of non-negative numbers, got ({low}, {high})"
                )

    @property
    def still(self) -> bool:
        """Every input stays as it is, every time.

        >>> AugmentConfig().still, AugmentConfig(flip_horizontal=True).still
        (True, False)
        """
        return replace(self, crop_bottom=False, at_most=None) == AugmentConfig()

    @classmethod
    def published(cls, setting: str = "methods") -> "AugmentConfig":
        """``base``: pretraining and finetuning scripts; ``methods``:
        the continual-learning scripts (NETWORKS section 8).
        """
        jitter = {"brightness": (0.5, 1.5), "contrast": (0.5, 1.5), "saturation": (0.5, 1.5), "hue": 0.1}
        if setting == "methods":
            return cls(**jitter, flip_horizontal=True, resize=(0.6, 1.0), crop_bottom=True)  # type: ignore[arg-type]
        return cls(
            **jitter,  # type: ignore[arg-type]
            flip_horizontal=True,
            flip_vertical=True,
            rotation=25.0,
            resize=(0.6, 1.1),
            remove_points=(0.6, 0.7),
            remove_patches=(0.001, 0.005),
            crop_pad=(0.9, 1.0),
        )


def generator(seed: int, step: int) -> torch.Generator:
    """Random numbers for the augmentation of one step: a resumed run draws the same ones."""
    return torch.Generator().manual_seed((seed * 1_000_003 + step) % 2**63)


@dataclass(frozen=True, slots=True)
class Draws:
    """Random numbers for the rows of a batch:
    always drawn on the CPU and for the whole batch, so that they are the same on any
    device and however many processes share it."""

    random: torch.Generator
    total: int
    rows: slice
    like: Tensor  # whose device and type they get

    @classmethod
    def of(cls, batch: Batch, random: torch.Generator) -> "Draws":
        return cls(random, batch.total, slice(None) if batch.share is None else batch.share.rows, batch.image)

    def rand(self, *shape: int) -> Tensor:
        """Uniform in [0, 1): (rows, *shape)."""
        return torch.rand(self.total, *shape, generator=self.random)[self.rows].to(self.like)

    def uniform(self, bounds: tuple[float, float]) -> Float[Tensor, "b 1 1 1"]:
        return bounds[0] + (bounds[1] - bounds[0]) * self.rand(1, 1, 1)


def crop(batch: Batch, config: AugmentConfig, random: torch.Generator, *, at_most: bool = False) -> Batch:
    """Augmentation by a random window of the batch: images, depth, neighbours; the principal point moves along.

    ``at_most``: a smaller frame stays whole, as an old domain's among those that are replayed.
    """
    if config.crop is None:
        return batch
    (height, width), (rows, columns) = batch.size, config.crop
    if at_most or config.at_most:
        rows, columns = min(rows, height), min(columns, width)
    if rows > height or columns > width:
        raise ConfigError(f"crop {rows}x{columns} is larger than the frames {height}x{width}")
    top = height - rows if config.crop_bottom else int(torch.randint(height - rows + 1, (), generator=random))
    left = int(torch.randint(width - columns + 1, (), generator=random))

    def cut(t: Tensor) -> Tensor:
        return t[..., top : top + rows, left : left + columns] if t.shape[-2:] == (height, width) else t

    K = batch.intrinsics.clone()
    K[:, 0, 2] -= left
    K[:, 1, 2] -= top
    return replace(batch.map(cut), intrinsics=K)


def augment(batch: Batch, config: AugmentConfig, random: torch.Generator) -> View:
    """A view of the batch for the network, and the way back."""
    b, draws = len(batch), Draws.of(batch, random)
    image = _recolour(batch.image, config, draws)
    sparse = hide_points(batch.sparse_depth, config, draws)
    if config.remove_patterns:
        sparse = _hide_patterns(sparse, batch.image, draws)
    image = _hide_patches(image, config, draws)
    M, K = random_motion(batch, config, draws)
    if M is None:
        return View(batch=replace(batch, image=image, sparse_depth=sparse), undo=View.identity(batch).undo)
    there = torch.linalg.inv(M)  # pixels of the view -> pixels of the batch
    height, width = batch.size
    view = replace(
        batch,
        image=sample(image, _move(there, height, width)),
        sparse_depth=_move_points(sparse, M),
        intrinsics=K,
    )

    pixels = _move(M, height, width)  # here, not in undo: half precision would round the places

    def undo(depth: Depth) -> tuple[Depth, Mask]:
        x, y = pixels[:, :1], pixels[:, 1:]
        mask = (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)
        return sample(depth.to(pixels.dtype), pixels), mask.to(pixels.dtype).expand(b, 1, height, width)

    return View(batch=view, undo=undo)


def _recolour(image: Image, config: AugmentConfig, draws: Draws) -> Image:
    """Brightness, contrast, saturation and hue of each image by its own random amounts."""
    if config.brightness != (1, 1):
        image = image * draws.uniform(config.brightness)
    if config.contrast != (1, 1):
        mean = _luminance(image).mean((1, 2, 3), keepdim=True)
        image = (image - mean) * draws.uniform(config.contrast) + mean
    if config.saturation != (1, 1):
        grey = _luminance(image)
        image = (image - grey) * draws.uniform(config.saturation) + grey
    if config.hue:
        image = turn_hue(image, draws.uniform((-config.hue, config.hue)))
    return image.clamp(0, 1)


def _luminance(image: Image) -> Float[Tensor, "b 1 h w"]:
    weights = torch.tensor([0.299, 0.587, 0.114], dtype=image.dtype, device=image.device)
    return (image * weights[:, None, None]).sum(1, keepdim=True)


def turn_hue(image: Image, turns: Float[Tensor, "b 1 1 1"]) -> Image:
    """Rotate colours about the grey axis (Rodrigues on the RGB cube): keeps r + g + b."""
    angle = (2 * math.pi * turns)[:, 0, 0, 0]
    c, s, third = torch.cos(angle), torch.sin(angle), 1 / 3
    diagonal, plus, minus = c + (1 - c) * third, (1 - c) * third + s / math.sqrt(3), (1 - c) * third - s / math.sqrt(3)
    rows = torch.stack([diagonal, minus, plus, plus, diagonal, minus, minus, plus, diagonal], -1).reshape(-1, 3, 3)
    return torch.einsum("bij,bjhw->bihw", rows.to(image.dtype), image)


def hide_points(sparse: Depth, config: AugmentConfig, draws: Draws) -> Depth:
    """Hide a random share of the points, and of whole rows of them, from the network;
    value and validity go together.
    """
    height, width = sparse.shape[-2:]
    if config.remove_points != (0, 0):
        share = draws.uniform(config.remove_points)
        sparse = sparse * (draws.rand(1, height, width) >= share)
    if config.remove_rows != (0, 0):
        share = draws.uniform(config.remove_rows)
        sparse = sparse * (draws.rand(1, height, 1) >= share)
    return sparse


def _hide_patterns(sparse: Depth, image: Image, draws: Draws) -> Depth:
    """Leave what some sensor would see of the points: random ones, corners, a grid, all but blocks or holes."""
    seeds = (2**31 * draws.rand(1)[:, 0].double()).long().tolist()
    points, pictures = (sparse[:, 0] > 0).cpu().numpy(), image.permute(0, 2, 3, 1).cpu().numpy()
    hidden = [
        choose_hidden(known, HideConfig(), np.random.default_rng(seed), picture)
        for known, picture, seed in zip(points, pictures, seeds, strict=True)
    ]
    return sparse * torch.from_numpy(~np.stack(hidden)[:, None]).to(sparse)


def _hide_patches(image: Image, config: AugmentConfig, draws: Draws) -> Image:
    if config.remove_patches == (0, 0):
        return image
    height, width = image.shape[-2:]
    seeds = (draws.rand(1, height, width) < draws.uniform(config.remove_patches)).float()
    return image * (1 - F.max_pool2d(seeds, 5, stride=1, padding=2))


def random_motion(
    batch: Batch, config: AugmentConfig, draws: Draws
) -> tuple[Float[Tensor, "b 3 3"] | None, Float[Tensor, "b 3 3"]]:
    """M (pixels of the batch -> pixels of the view) and the view's intrinsics; None if nothing moves.

    A flip mirrors the principal point (a mirrored world, focal lengths stay positive); a rotation leaves K as it is.
    """
    (height, width), K = batch.size, batch.intrinsics.clone()
    eye = torch.eye(3).to(K).repeat(len(batch), 1, 1)
    M = eye
    moved = False
    for flip, axis, side in ((config.flip_horizontal, 0, width), (config.flip_vertical, 1, height)):
        if flip:
            on = draws.rand() < 0.5
            M = torch.where(on[:, None, None], _mirror(axis, side).to(M) @ M, M)
            K[:, axis, 2] = torch.where(on, side - 1 - K[:, axis, 2], K[:, axis, 2])
            moved = True
    if config.resize != (1, 1):
        scale = draws.uniform(config.resize)[:, 0, 0, 0]
        room = torch.tensor([width - 1.0, height - 1.0]).to(K) * (1 - scale[:, None])
        shift = draws.rand(2) * room  # a smaller image anywhere inside, a larger one cut anywhere
        S = eye.clone()
        S[:, 0, 0], S[:, 1, 1], S[:, :2, 2] = scale, scale, shift
        M, K, moved = S @ M, S @ K, True
    if config.crop_pad is not None:
        lost = torch.tensor([width - 1.0, height - 1.0]).to(K) * (1 - draws.uniform(config.crop_pad)[:, 0, 0, :])
        T = eye.clone()
        T[:, :2, 2] = (draws.rand(2) - draws.rand(2)) * lost  # from anywhere to anywhere: a shift
        M, K, moved = T @ M, T @ K, True
    if config.rotation:
        M, moved = (
            _rotation(draws.uniform((-config.rotation, config.rotation))[:, 0, 0, 0], height, width) @ M,
            True,
        )
    return (M if moved else None), K


def _mirror(axis: int, side: int) -> Float[Tensor, "3 3"]:
    m = torch.eye(3)
    m[axis, axis], m[axis, 2] = -1.0, side - 1.0
    return m


def _rotation(degrees: Float[Tensor, "b"], height: int, width: int) -> Float[Tensor, "b 3 3"]:
    """About the image's centre."""
    c, s = torch.cos(torch.deg2rad(degrees)), torch.sin(torch.deg2rad(degrees))
    x, y = (width - 1) / 2, (height - 1) / 2
    zero, one = torch.zeros_like(c), torch.ones_like(c)
    rows = [c, -s, x - c * x + s * y, s, c, y - s * x - c * y, zero, zero, one]
    return torch.stack(rows, -1).reshape(-1, 3, 3)


def _move(M: Float[Tensor, "b 3 3"], height: int, width: int) -> Float[Tensor, "b 2 h w"]:
    grid = pixel_grid(height, width, M).flatten(2)
    return (M @ grid)[:, :2].reshape(-1, 2, height, width)


def _move_points(sparse: Depth, M: Float[Tensor, "b 3 3"]) -> Depth:
    """Sparse points at their new nearest pixels; points that leave the image are gone, the nearer of two wins."""
    b, _, height, width = sparse.shape
    target = _move(M, height, width).round().long()
    x, y = target[:, 0], target[:, 1]
    ok = (x >= 0) & (x < width) & (y >= 0) & (y < height) & (sparse[:, 0] > 0)
    n = torch.arange(b, device=x.device)[:, None, None].expand_as(x)
    flat = (n * height + y) * width + x
    out = torch.full((b * height * width,), math.inf).to(sparse)
    out.scatter_reduce_(0, flat[ok], sparse[:, 0][ok], reduce="amin")
    return torch.where(out.isinf(), torch.zeros_like(out), out).reshape(sparse.shape)
