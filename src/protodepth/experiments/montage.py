"""The qualitative figure: one row for each method, with depth, error and both in a window on a thin thing."""

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from protodepth.metrics import depth_errors
from protodepth.report import pictures as picture_files
from protodepth.report.gallery import DEPTH_MAP, ERROR_MAP, span
from protodepth.report.samples import Sample
from protodepth.types import Float

GAP, TEXT = 6, 18


def montage(sample: Sample, box: Sequence[int]) -> Float[np.ndarray, "H W 3"]:
    """uint8.  Image and sparse points; ground truth and the colours; then a row for each prediction."""
    colours = span([sample])
    top, bottom, left, right = box
    height, width = sample.image.shape[:2]
    factor = max(1, math.ceil(320 / width))
    inside = factor * height / (bottom - top)

    def picture(depth: np.ndarray) -> np.ndarray:
        return picture_files.colorize(depth, colours.low, colours.high, DEPTH_MAP, scale=colours.scale)

    def error(depth: np.ndarray) -> np.ndarray:
        return picture_files.error_map(depth, sample.ground_truth, colours.error, ERROR_MAP)

    def cut(full: np.ndarray) -> Pillow.Image:
        part = Pillow.fromarray(np.ascontiguousarray(full[top:bottom, left:right]))
        return part.resize((round((right - left) * inside), factor * height), Pillow.Resampling.NEAREST)

    def whole(full: np.ndarray) -> Pillow.Image:
        image = Pillow.fromarray(picture_files.enlarge(full, factor))
        edges = [factor * v for v in (left, top, right, bottom)]
        ImageDraw.Draw(image).rectangle([edges[0], edges[1], edges[2] - 1, edges[3] - 1], outline=(255, 255, 255))
        return image

    overlay = picture_files.sparse_overlay(
        sample.image, sample.sparse_depth, colours.low, colours.high, scale=colours.scale
    )
    points = Pillow.fromarray(overlay).resize((factor * width, factor * height), Pillow.Resampling.NEAREST)
    image, truth = picture_files.as_uint8(sample.image), picture(sample.ground_truth)
    rows = [
        (
            "Image; sparse points; window of both",
            [whole(image), points, cut(image), _cut_like(points, box, factor, cut(image))],
        )
    ]
    bars = [
        _colour_bar("depth (m)", colours.low, colours.high, DEPTH_MAP, points.size, colours.scale),
        _colour_bar("error (m)", 0.0, colours.error, ERROR_MAP, cut(truth).size),
    ]
    rows.append(("Ground truth; colours of depth and error", [whole(truth), bars[0], cut(truth), bars[1]]))
    for label, depth in sample.predictions.items():
        mae = depth_errors(depth, sample.ground_truth, min_depth=sample.caps[0], max_depth=sample.caps[1])["mae"]
        shown, wrong = picture(depth), error(depth)
        rows.append((f"{label}: MAE {mae:.0f} mm", [whole(shown), whole(wrong), cut(shown), cut(wrong)]))
    return _stack(rows)


def _colour_bar(
    title: str, low: float, high: float, cmap: str, size: tuple[int, int], scale: picture_files.Scale = "linear"
) -> Pillow.Image:
    """A horizontal bar with round numbers, in the middle of a white picture of this size."""
    picture, font = Pillow.new("RGB", size, "white"), ImageFont.load_default(13)
    draw, margin, top = ImageDraw.Draw(picture), 20, size[1] // 2 - 24
    length = size[0] - 2 * margin
    draw.text((margin, top - TEXT), title, fill="black", font=font)
    colours = picture_files.palette(cmap)[1:][np.linspace(0, 254, length).round().astype(int)]
    picture.paste(Pillow.fromarray(np.repeat(colours[None], 16, 0)), (margin, top))
    for value in picture_files.ticks(low, high, scale, most=5):
        x = margin + length * float(picture_files.share(np.array(value), low, high, scale))
        draw.line([x, top + 16, x, top + 21], fill="black")
        draw.text((x, top + 22), f"{value:g}", fill="black", font=font, anchor="ma")
    return picture


def _cut_like(points: Pillow.Image, box: Sequence[int], factor: int, like: Pillow.Image) -> Pillow.Image:
    top, bottom, left, right = (factor * v for v in box)
    return points.crop((left, top, right, bottom)).resize(like.size, Pillow.Resampling.NEAREST)


def _stack(rows: Sequence[tuple[str, list[Pillow.Image]]]) -> np.ndarray:
    font = ImageFont.load_default(13)
    width = max(sum(p.width + GAP for p in pictures) for _, pictures in rows) + GAP
    height = sum(max(p.height for p in pictures) + TEXT + GAP for _, pictures in rows) + GAP
    canvas = Pillow.new("RGB", (width, height), "white")
    draw, y = ImageDraw.Draw(canvas), GAP
    for label, pictures in rows:
        draw.text((GAP, y), label, fill="black", font=font)
        x = GAP
        for picture in pictures:
            canvas.paste(picture, (x, y + TEXT))
            x += picture.width + GAP
        y += max(p.height for p in pictures) + TEXT + GAP
    return np.asarray(canvas)
