"""A contact sheet: sparse points on the image, the neighbour warped by pose and depth, and depth histograms."""

import io
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import ndimage

from protodepth import geometry
from protodepth.data.arguments import open_domain
from protodepth.data.frame import SPLITS, Domain, Frame, FrameDataset, evenly
from protodepth.errors import DataError
from protodepth.storage.files import write_bytes

PANELS = 6  # points on the image, depth alone, neighbour, neighbour warped, difference, histogram
MOST_ROWS = 200  # of one sheet
WIDE = 1.9  # pictures wider than this share of their height are laid out in two rows


def preview(argument: str | Path, out_png: str | Path, *, rows: int = 4, split: str = "train", **options: Any) -> Path:
    """Write a PNG with ``rows`` frames of a data argument, evenly spread; returns its path.

    ``preview("my_recording", "sheet.png")``.  The warped neighbour should look like the image wherever there is depth;
    if it does not, units, poses or intrinsics are wrong.
    """
    out = Path(out_png)
    write_bytes(out, contact_sheet(open_domain(str(argument), **options), rows=rows, split=split))
    return out


def contact_sheet(domain: Domain, *, rows: int = 4, split: str = "train") -> bytes:
    """The same as a PNG, of data that is open already."""
    data = domain.split(split) if len(domain.split(split)) else domain.test
    if not len(data):
        raise DataError(f"{domain.name} has no frames to show in {split} or test")
    if not 1 <= rows <= MOST_ROWS:
        raise DataError(f"rows is {rows}, expected 1 to {MOST_ROWS} frames to show")
    return _sheet(domain, data, evenly(len(data), rows))


def _filled(depth: np.ndarray) -> np.ndarray:
    """The nearest known depth at every pixel: enough to warp a picture for the eye."""
    if not (depth > 0).any():
        return np.ones_like(depth)
    rows, columns = ndimage.distance_transform_edt(depth <= 0, return_distances=False, return_indices=True)
    return depth[rows, columns]


def warped_neighbour(frame: Frame) -> np.ndarray | None:
    """The first neighbour seen from the frame's camera (Eq. 2), from ground truth or sparse depth;
    None without a pose.
    """
    if not frame.poses:
        return None
    image = torch.from_numpy(np.ascontiguousarray(frame.neighbours[0])).permute(2, 0, 1)[None].float()
    depth = torch.from_numpy(_filled(_known_depth(frame)).astype(np.float32))[None, None]
    pose, K = (torch.from_numpy(np.asarray(a, np.float32))[None] for a in (frame.poses[0], frame.intrinsics))
    return geometry.warp(image, depth, pose, K)[0].permute(1, 2, 0).round().byte().numpy()


def _known_depth(frame: Frame) -> np.ndarray:
    """Ground truth where there is some, else the sparse points."""
    return frame.sparse_depth if frame.ground_truth is None else np.maximum(frame.sparse_depth, frame.ground_truth)


def _sheet(domain: Domain, data: FrameDataset, numbers: list[int]) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [data[n] for n in numbers]
    height, width = shown[0].image.shape[:2]
    across = 3 if width > WIDE * height else PANELS
    inches = 17.5 / across
    tall = inches * height / width + 0.35
    figure = Figure(figsize=(18, tall * (PANELS // across) * len(shown) + 0.9), dpi=90, layout="constrained")
    figure.suptitle(title(domain), fontsize=9)
    grid = figure.subplots(len(shown) * PANELS // across, across, squeeze=False).reshape(len(shown), PANELS)
    for axes, frame in zip(grid, shown, strict=True):
        _row(figure, axes, frame)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def title(domain: Domain) -> str:
    """What the data is, and what was decided about it."""
    known = domain.identity
    counts = ", ".join(f"{len(domain.split(s))} {s}" for s in SPLITS)
    parts = [f"{domain.name}: {counts} frames"]
    parts += [f"depth in {known['unit']}"] if known.get("unit") else []
    parts += [f"points by {known['sampler']}"] if known.get("sampler") else []
    parts += [f"stride {known['stride']}"] if known.get("stride") else []
    parts += [f"{known['withhold']:.0%} of the points withheld"] if known.get("withhold") else []
    bad = known.get("skipped", {}).get("bad", 0)
    parts += [f"{bad} bad frames left out"] if bad else []
    notes = [str(note) for note in known.get("notes", ())]
    return "\n".join(["; ".join(parts), *textwrap.wrap("; ".join(notes), 190)])


def _row(figure: Any, axes: Any, frame: Frame) -> None:
    for axis in axes[:-1]:
        axis.set_axis_off()
    points = np.argwhere(frame.sparse_depth > 0)
    values = frame.sparse_depth[points[:, 0], points[:, 1]]
    _points(figure, axes[0], frame.image, points, values)
    axes[0].set_title(f"{frame.name}: {len(points)} points", fontsize=8)
    _depth_alone(axes[1], frame)
    _neighbour(axes[2:5], frame)
    _histogram(axes[5], frame, values)


def _limits(values: np.ndarray) -> dict[str, float]:
    low, high = np.percentile(values, [2, 98])
    return {"vmin": float(low), "vmax": float(high)}


def _points(figure: Any, axis: Any, image: np.ndarray, points: np.ndarray, values: np.ndarray) -> None:
    """Points in colour on a paler picture, with their scale."""
    grey = image.mean(-1, keepdims=True).repeat(3, -1)
    axis.imshow((0.5 * image + 0.3 * grey + 0.2 * (255 if image.dtype == np.uint8 else 1)).astype(image.dtype))
    if len(points):
        area = 72**2 * axis.get_window_extent().width * axis.get_window_extent().height / figure.dpi**2
        size = float(np.clip(0.4 * area / len(points), 0.8, 9.0))
        dots = axis.scatter(
            points[:, 1], points[:, 0], c=values, s=size, cmap="viridis", linewidths=0, **_limits(values)
        )
        bar = figure.colorbar(dots, ax=axis, fraction=0.046, pad=0.02)
        bar.set_label("m", fontsize=7)
        bar.ax.tick_params(labelsize=6)


def _depth_alone(axis: Any, frame: Frame) -> None:
    """The known depth, each value as the cell that is nearest to it."""
    depth = _known_depth(frame)
    if (depth > 0).any():
        axis.imshow(_filled(depth), cmap="viridis", **_limits(depth[depth > 0]))
    what = "sparse depth" if frame.ground_truth is None else "ground truth"
    axis.set_title(f"{what}, nearest known value", fontsize=8)


def _neighbour(axes: Any, frame: Frame) -> None:
    if not frame.neighbours:
        axes[0].set_title("no neighbours in this split", fontsize=8)
        return
    axes[0].imshow(frame.neighbours[0])
    axes[0].set_title("neighbour", fontsize=8)
    warped = warped_neighbour(frame)
    if warped is None:
        axes[1].set_title("no poses: the pose network finds them", fontsize=8)
        return
    before, after = (np.abs(frame.image.astype(int) - x.astype(int)).mean(-1) for x in (frame.neighbours[0], warped))
    known = (_known_depth(frame) > 0) & (warped.sum(-1) > 0)
    axes[1].imshow(warped)
    axes[1].set_title("neighbour warped by pose and depth", fontsize=8)
    axes[2].imshow(after, cmap="magma", vmin=0, vmax=80)
    numbers = f": {after[known].mean():.1f} grey (not warped {before[known].mean():.1f})" if known.any() else ""
    axes[2].set_title(f"difference{numbers}", fontsize=8)


def _histogram(axis: Any, frame: Frame, sparse: np.ndarray) -> None:
    truth = frame.ground_truth[frame.ground_truth > 0] if frame.ground_truth is not None else np.empty(0)
    both = [(v, label) for v, label in ((sparse, "sparse"), (truth, "ground truth")) if v.size]
    if both:
        top = max(np.percentile(v, 99.5) for v, _ in both)
        for v, label in both:
            axis.hist(v, bins=40, range=(0, top), density=True, histtype="step", label=label)
        axis.legend(fontsize=7)
    axis.set_title("share of the points by depth (m)", fontsize=8)
    axis.set_yticks([])
    axis.tick_params(labelsize=7)
