"""A contact sheet: sparse points on the image, the neighbour warped by pose and depth, and depth histograms."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import ndimage

from protodepth import geometry
from protodepth.checkpoint import write_bytes
from protodepth.data.base import Domain, Frame, FrameDataset
from protodepth.data.open import open_domain
from protodepth.errors import DataError

COLUMNS = ("image and sparse points", "neighbour", "neighbour warped by pose and depth", "difference", "depth")


def preview(argument: str | Path, out_png: str | Path, *, rows: int = 4, split: str = "train", **options: Any) -> Path:
    """Write a PNG with ``rows`` frames of a data argument, evenly spread; returns its path.

    ``preview("my_recording", "sheet.png")``.  The warped neighbour should look like the image wherever there is depth; if it
    does not, units, poses or intrinsics are wrong.
    """
    domain = open_domain(str(argument), **options)
    data = domain.split(split) if len(domain.split(split)) else domain.test
    if not len(data):
        raise DataError(f"{argument} has no frames to show in {split} or test")
    numbers = np.unique(np.linspace(0, len(data) - 1, rows).astype(int))
    out = Path(out_png)
    write_bytes(out, _sheet(domain, data, numbers.tolist()))
    return out


def filled(depth: np.ndarray) -> np.ndarray:
    """The nearest known depth at every pixel: enough to warp a picture for the eye."""
    if not (depth > 0).any():
        return np.ones_like(depth)
    rows, columns = ndimage.distance_transform_edt(depth <= 0, return_distances=False, return_indices=True)
    return depth[rows, columns]


def warped_neighbour(frame: Frame) -> np.ndarray | None:
    """The first neighbour seen from the frame's camera (Eq. 2), from ground truth or sparse depth; None without a pose."""
    if not frame.poses:
        return None
    dense = (
        frame.ground_truth if frame.ground_truth is not None and (frame.ground_truth > 0).any() else frame.sparse_depth
    )
    known = np.maximum(frame.sparse_depth, dense)
    image = torch.from_numpy(np.ascontiguousarray(frame.neighbours[0])).permute(2, 0, 1)[None].float()
    depth = torch.from_numpy(filled(known).astype(np.float32))[None, None]
    pose, K = (torch.from_numpy(np.asarray(a, np.float32))[None] for a in (frame.poses[0], frame.intrinsics))
    return geometry.warp(image, depth, pose, K)[0].permute(1, 2, 0).round().byte().numpy()


def _sheet(domain: Domain, data: FrameDataset, numbers: list[int]) -> bytes:
    import io

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [data[n] for n in numbers]
    shape = shown[0].image.shape
    height = 3.4 * shape[0] / shape[1] + 0.45
    figure = Figure(figsize=(3.5 * len(COLUMNS), height * len(shown) + 0.6), dpi=80, layout="constrained")
    figure.suptitle(f"{domain.name}: {', '.join(f'{k} {v}' for k, v in _facts(domain).items())}", fontsize=9)
    for axes, frame in zip(figure.subplots(len(shown), len(COLUMNS), squeeze=False), shown, strict=True):
        _row(axes, frame)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _facts(domain: Domain) -> dict[str, Any]:
    keys = ("unit", "sampler", "stride", "withhold", "frames")
    return {k: domain.identity[k] for k in keys if domain.identity.get(k)}


def _row(axes: Any, frame: Frame) -> None:
    points = np.argwhere(frame.sparse_depth > 0)
    values = frame.sparse_depth[points[:, 0], points[:, 1]]
    axes[0].imshow(frame.image)
    if len(points):
        limits = np.percentile(values, [2, 98])
        size = max(0.4, min(9.0, 9000 / len(points)))
        axes[0].scatter(
            points[:, 1], points[:, 0], c=values, s=size, cmap="turbo", vmin=limits[0], vmax=limits[1], linewidths=0
        )
    axes[0].set_title(f"{frame.name}: {len(points)} points", fontsize=7)
    _neighbour(axes[1:4], frame)
    _histogram(axes[4], frame, values)
    for axis in axes[:4]:
        axis.set_axis_off()


def _neighbour(axes: Any, frame: Frame) -> None:
    if not frame.neighbours:
        axes[0].set_title("no neighbours in this split", fontsize=7)
        return
    axes[0].imshow(frame.neighbours[0])
    axes[0].set_title(COLUMNS[1], fontsize=7)
    warped = warped_neighbour(frame)
    if warped is None:
        axes[1].set_title("no poses: the pose network finds them", fontsize=7)
        return
    before, after = (np.abs(frame.image.astype(int) - other.astype(int)) for other in (frame.neighbours[0], warped))
    axes[1].imshow(warped)
    axes[1].set_title(COLUMNS[2], fontsize=7)
    axes[2].imshow(after.mean(-1), cmap="magma", vmin=0, vmax=80)
    axes[2].set_title(f"grey error {after.mean():.1f} (not warped {before.mean():.1f})", fontsize=7)


def _histogram(axis: Any, frame: Frame, sparse: np.ndarray) -> None:
    truth = frame.ground_truth[frame.ground_truth > 0] if frame.ground_truth is not None else np.empty(0)
    both = [(v, label) for v, label in ((sparse, "sparse"), (truth, "ground truth")) if v.size]
    if both:
        top = max(np.percentile(v, 99.5) for v, _ in both)
        for v, label in both:
            axis.hist(v, bins=40, range=(0, top), density=True, histtype="step", label=label)
        axis.legend(fontsize=6)
    axis.set_xlabel("depth (m)", fontsize=7)
    axis.tick_params(labelsize=6)
