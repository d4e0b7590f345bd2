"""Inside the HTML reports: the samples' pictures (inputs, truth, predictions, errors) and the data of point clouds."""

import base64
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from protodepth.metrics import depth_errors
from protodepth.report import pictures as picture_files
from protodepth.report.pictures import Scale
from protodepth.report.samples import Sample
from protodepth.types import Float

PICTURE_PIXELS = 2_500_000  # of all pictures together: keeps the file below about 6 MB
CLOUD_POINTS = 800_000  # of all point clouds together
TRUTH = "Ground truth"
DEPTH_MAP, ERROR_MAP = picture_files.DEPTH_COLORMAP, picture_files.ERROR_COLORMAP


@dataclass(frozen=True, slots=True)
class Span:
    """The colours of one domain's pictures: depth from low to high, error from 0 to ``error``, in metres."""

    low: float
    high: float
    scale: Scale
    error: float


def span(samples: Sequence[Sample]) -> Span:
    """One scale for all pictures of a domain, so that they can be compared."""
    low, high, scale = picture_files.limits([s.ground_truth for s in samples] + [s.sparse_depth for s in samples])
    errors = [picture_files.absolute_error(p, s.ground_truth) for s in samples for p in s.predictions.values()]
    values = np.concatenate([error[known] for error, known in errors]) if errors else np.empty(0)
    top = float(np.percentile(values, 95)) if values.size else 1.0
    return Span(low, high, scale, _round_up(max(top, 1e-3)))


def _round_up(value: float) -> float:
    base = 10.0 ** math.floor(math.log10(value))
    return float(f"{next(m * base for m in (1, 1.5, 2, 3, 5, 7.5, 10) if m * base >= value * 0.999):.3g}")


def uri(data: bytes, kind: str = "png") -> str:
    """A picture of the report as a ``data:`` address."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def script_json(value: Any) -> str:
    """JSON for the point clouds' script element of the report, which it cannot end."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


# --- pictures ---------------------------------------------------------------------------------------------------------


def largest_side(samples: Sequence[Sample]) -> int:
    """Longest side of a picture in the report, so that all together stay within ``PICTURE_PIXELS``."""
    pictures = sum(3 + 2 * len(s.predictions) for s in samples)
    return max(96, int(math.sqrt(PICTURE_PIXELS / max(1, pictures) * 1.5)))


def _fit(array: np.ndarray, side: int) -> np.ndarray:
    """Every s-th row and column of a picture that is too large: no mixing of depths across edges."""
    step = max(1, math.ceil(max(array.shape[:2]) / side))
    return array[step // 2 :: step, step // 2 :: step]


def pictures(samples: Sequence[Sample], side: int) -> str:
    """HTML of all samples, by domain."""
    out = ""
    for domain in dict.fromkeys(s.domain for s in samples):
        own = [s for s in samples if s.domain == domain]
        colours = span(own)
        out += f"<h3>{escape(domain)}</h3><div class='bars'>{_bars(colours)}</div>"
        out += "".join(_sample(s, colours, side) for s in own)
    return out


def _sample(sample: Sample, colours: Span, side: int) -> str:
    image, truth = _fit(sample.image, side), _fit(sample.ground_truth, side)
    overlay = picture_files.sparse_overlay(
        sample.image, sample.sparse_depth, colours.low, colours.high, scale=colours.scale
    )
    points = int((sample.sparse_depth > 0).sum())
    cells = _cell(
        "Input",
        _figure(picture_files.jpeg(image, 92), "jpeg", "image", sample),
        _figure(picture_files.jpeg(_fit(overlay, 2 * side)), "jpeg", f"{points} sparse points", sample),
    )
    note = f"<p class='note'>{_choice(sample)}</p>"
    cells += _cell(TRUTH, _figure(_depth_png(truth, colours), "png", "depth", sample), note)
    for label, prediction in sample.predictions.items():
        depth = _figure(_depth_png(_fit(prediction, side), colours), "png", "depth", sample, label)
        shown = _error_png(_fit(prediction, side), truth, colours)
        error = _figure(shown, "png", f"error, {_mae(sample, prediction)}", sample, label)
        cells += _cell(label, depth, error)
    return f'<h4>{escape(sample.name)}</h4><div class="gallery">{cells}</div>'


def _cell(title: str, *content: str) -> str:
    return f'<div class="cell"><h5>{escape(title)}</h5>{"".join(content)}</div>'


def _figure(data: bytes, kind: str, caption: str, sample: Sample, label: str = "") -> str:
    alt = f"{label + ': ' if label else ''}{caption} of {sample.name} ({sample.domain})"
    height, width = sample.image.shape[:2]
    picture = f'<img src="{uri(data, kind)}" alt="{escape(alt)}" width="{width}" height="{height}" decoding="async">'
    return (
        f'<figure><button type="button" class="pic" aria-label="Enlarge: {escape(alt)}">{picture}</button>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _depth_png(depth: Float[np.ndarray, "h w"], c: Span) -> bytes:
    rows = picture_files.levels(depth, picture_files.valid_depth(depth), c.low, c.high, c.scale)
    return picture_files.palette_png(rows, picture_files.palette(DEPTH_MAP))


def _error_png(prediction: Float[np.ndarray, "h w"], truth: Float[np.ndarray, "h w"], c: Span) -> bytes:
    error, known = picture_files.absolute_error(prediction, truth)
    return picture_files.palette_png(picture_files.levels(error, known, 0, c.error), picture_files.palette(ERROR_MAP))


def _mae(sample: Sample, prediction: Float[np.ndarray, "h w"]) -> str:
    low, high = sample.caps
    error = depth_errors(prediction, sample.ground_truth, min_depth=low, max_depth=high)["mae"]
    return f"MAE {error:,.0f} mm" if math.isfinite(error) else "no ground truth"


def _choice(sample: Sample) -> str:
    if not sample.chosen:
        return ""
    right = "right" if sample.chosen == sample.domain else f"not {sample.domain}"
    cosines = "".join(f"<br>{escape(n)} {v:.3f}" for n, v in sample.similarity.items())
    return (
        f"ProtoDepth-A chose <b>{escape(sample.chosen)}</b> "
        f"({escape(right)}).{' Cosine to the descriptors:' if cosines else ''}{cosines}"
    )


def _bars(c: Span) -> str:
    depth = _bar(
        "Depth (m)" + (", logarithmic" if c.scale == "log" else ""),
        DEPTH_MAP,
        picture_files.ticks(c.low, c.high, c.scale),
        lambda v: float(picture_files.share(np.array(v), c.low, c.high, c.scale)),
    )
    error = _bar(
        "Absolute error (m), end colour: this or more",
        ERROR_MAP,
        picture_files.ticks(0, c.error, most=5),
        lambda v: v / c.error,
    )
    grey = "#{:02x}{:02x}{:02x}".format(*picture_files.NO_DEPTH)
    return (
        depth + error + f'<span class="none"><i style="background:{grey}"></i>no depth or no ground truth (sky)</span>'
    )


def _bar(title: str, cmap: str, values: Iterable[float], place: Any) -> str:
    strip = uri(picture_files.png(picture_files.palette(cmap)[1:][None]))
    labels = "".join(f'<span style="left:{100 * place(v):.1f}%">{v:g}</span>' for v in values)
    return (
        f'<div class="bar"><b>{title}</b><img src="{strip}" alt="colour scale"><div class="ticks">{labels}</div></div>'
    )


# --- point clouds -----------------------------------------------------------------------------------------------------


def cloud_data(samples: Sequence[Sample]) -> dict[str, Any]:
    """What the script needs to draw the clouds: depth maps of 16 bits, images, cameras, colours."""
    maps = sum(1 + len(s.predictions) for s in samples)
    most = min(20_000, CLOUD_POINTS // max(1, maps))
    spans = {d: span([s for s in samples if s.domain == d]) for d in dict.fromkeys(s.domain for s in samples)}
    luts = {
        "depth": base64_text(picture_files.palette(DEPTH_MAP)),
        "error": base64_text(picture_files.palette(ERROR_MAP)),
    }
    return {"luts": luts, "samples": [_cloud(s, spans[s.domain], most) for s in samples]}


def _cloud(sample: Sample, c: Span, most: int) -> dict[str, Any]:
    size = (sample.image.shape[0], sample.image.shape[1])
    step = picture_files.stride_for(size, most)
    cut = (slice(step // 2, None, step), slice(step // 2, None, step))
    K = sample.intrinsics
    maps = {TRUTH: sample.ground_truth, **sample.predictions}
    kept = {label: np.where(picture_files.valid_depth(m[cut]), m[cut], 0) for label, m in maps.items()}
    top = max(1e-3, min(4 * c.high, max(float(m.max()) for m in kept.values())))
    height, width = kept[TRUTH].shape
    return {
        "label": f"{sample.domain}: {sample.name}",
        "size": [width, height],
        "camera": [K[0, 0] / step, K[1, 1] / step, (K[0, 2] - step // 2) / step, (K[1, 2] - step // 2) / step],
        "rgb": base64_text(sample.image[cut]),
        "top": top,
        "span": [c.low, c.high, c.scale, c.error],
        "maps": {k: base64_text(np.rint(np.clip(m / top, 0, 1) * 65535).astype("<u2")) for k, m in kept.items()},
    }


def base64_text(array: np.ndarray) -> str:
    """The bytes of an array as text, for the point clouds of the report."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
