"""The page's results as HTML: pictures and numbers inside, nothing fetched, no file left behind."""

from html import escape
from importlib import resources
from string import Template
from typing import Any

import numpy as np

from protodepth.app.answers import Answer, similarity_rows
from protodepth.report import pictures as picture_files
from protodepth.report.gallery import base64_text, script_json, uri
from protodepth.types import BASE, Float

CLOUD_POINTS = 40_000


def error_html(message: str) -> str:
    """An error message as a piece of the page's HTML."""
    return f'<div class="pd-error" role="alert">{escape(message)}</div>'


def result_html(answer: Answer) -> str:
    """Sparse points, dense depth with and without adapting on one colour scale, and the similarity to each domain."""
    low, high, scale = picture_files.limits([answer.adapted.depth, answer.base.depth])
    points = picture_files.sparse_overlay(answer.frame.image, answer.frame.sparse_depth, low, high, scale=scale)
    count = int((answer.frame.sparse_depth > 0).sum())
    shown = [_figure(picture_files.png(points), f"{count:,} sparse points", "sparse points on the image")]
    for prediction, error in zip((answer.adapted, answer.base), reversed(answer.errors or (None, None)), strict=True):
        name = "un-adapted network (base)" if prediction.domain == BASE else f"domain {prediction.domain}"
        picture = picture_files.png(_enlarged(picture_files.colorize(prediction.depth, low, high, scale=scale)))
        label = name if error is None else f"{name}: mean error {100 * error:.1f} cm"
        shown.append(_figure(picture, label, f"dense depth, {name}"))
    pictures = shown if answer.adapted.domain != BASE else shown[:2]
    grid = f'<div class="pd-pictures">{"".join(pictures)}</div>{_scale_bar(low, high, scale)}'
    return f'<div class="pd-result"><p>{_summary(answer)}</p>{grid}{bars(answer)}</div>'


def _enlarged(picture: np.ndarray) -> np.ndarray:
    """Small maps grow by whole factors, so that the browser does not blur their pixels."""
    return picture_files.enlarge(picture, max(1, round(384 / picture.shape[1])))


def _scale_bar(low: float, high: float, scale: picture_files.Scale) -> str:
    """The colours of the depth with their numbers."""
    strip = uri(picture_files.png(picture_files.palette()[1:][None]))
    marks = (
        (v, float(picture_files.share(np.array(v), low, high, scale))) for v in picture_files.ticks(low, high, scale)
    )
    labels = "".join(f'<span style="left:{100 * place:.1f}%">{value:g} m</span>' for value, place in marks)
    return f'<div class="pd-scale"><img src="{strip}" alt="colour scale of the depth"><div>{labels}</div></div>'


def _figure(data: bytes, caption: str, alt: str) -> str:
    return f'<figure><img src="{uri(data)}" alt="{escape(alt)}"><figcaption>{escape(caption)}</figcaption></figure>'


def _summary(answer: Answer) -> str:
    height, width = answer.adapted.depth.shape
    parts = [
        f"Domain <b>{escape(answer.adapted.domain)}</b>; {width} x {height} pixels in {1000 * answer.seconds:.0f} ms."
    ]
    if answer.adapted.unknown:
        parts.append("<b>Unknown:</b> this frame is unlike every domain that the model knows; adapt to this place.")
    if answer.note:
        parts.append(escape(answer.note[0].upper() + answer.note[1:]) + ".")
    return " ".join(parts)


def bars(answer: Answer) -> str:
    """Cosine of the image to each domain's descriptor; the chosen one in colour."""
    rows = similarity_rows(answer.adapted)
    if not rows:
        return ""
    lines = "".join(
        f'<div class="pd-bar{" pd-chosen" if name == answer.adapted.domain else ""}"><span>{escape(name)}</span>'
        f'<i><b style="width:{100 * max(0.0, min(1.0, value)):.1f}%"></b></i><span>{value:.3f}</span></div>'
        for name, value in rows.items()
    )
    return f'<div class="pd-bars"><p>Similarity to each domain (cosine of the descriptors)</p>{lines}</div>'


def cloud_html(answer: Answer) -> str:
    """Both point clouds in a frame of their own, which runs a script and may do nothing else."""
    page = Template(_asset("cloud.html")).substitute(data=script_json(cloud_data(answer)), script=_asset("cloud.js"))
    return (
        f'<iframe class="pd-cloud" title="point clouds" sandbox="allow-scripts" srcdoc="{escape(page, quote=True)}">'
        "</iframe>"
    )


def cloud_data(answer: Answer) -> dict[str, Any]:
    """What the script lifts into space: depth maps of 16 bits, the image, the camera."""
    frame, K = answer.frame, answer.frame.intrinsics
    maps = {f"domain {answer.adapted.domain}": answer.adapted.depth, "un-adapted network (base)": answer.base.depth}
    if answer.adapted.domain == BASE:
        maps.pop(f"domain {BASE}")
    size = (frame.image.shape[0], frame.image.shape[1])
    step = picture_files.stride_for(size, CLOUD_POINTS)
    cut = (slice(step // 2, None, step), slice(step // 2, None, step))
    kept = {label: np.where(picture_files.valid_depth(depth[cut]), depth[cut], 0) for label, depth in maps.items()}
    top = max(float(depth.max()) for depth in kept.values())
    low, high, _ = picture_files.limits(list(kept.values()))
    height, width = next(iter(kept.values())).shape
    return {
        "size": [width, height],
        "camera": [K[0, 0] / step, K[1, 1] / step, (K[0, 2] - step // 2) / step, (K[1, 2] - step // 2) / step],
        "middle": float(np.sqrt(low * high)),
        "top": top,
        "rgb": base64_text(picture_files.as_uint8(frame.image)[cut]),
        "maps": {label: base64_text(_sixteen(depth, top)) for label, depth in kept.items()},
    }


def _sixteen(depth: Float[np.ndarray, "h w"], top: float) -> np.ndarray:
    return np.rint(np.clip(depth / top, 0, 1) * 65535).astype("<u2")


def _asset(name: str) -> str:
    return (resources.files("protodepth.app") / "assets" / name).read_text(encoding="utf-8")


def style() -> str:
    """The style sheet (CSS) of the page's results."""
    return _asset("app.css")
