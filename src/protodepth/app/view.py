"""The page's results as HTML: pictures and numbers inside, nothing fetched, no file left behind."""

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any

import numpy as np

from protodepth.app.answers import Answer, nearness
from protodepth.app.downloads import KINDS
from protodepth.app.examples import thumbnail
from protodepth.report import pictures as picture_files
from protodepth.report.gallery import base64_text, script_json, uri
from protodepth.types import Float

CLOUD_POINTS = 40_000
FEW = 0.9  # a smaller share of points in range makes one doubt the unit
DepthSpan = tuple[float, float, picture_files.Scale]
# The page's two scripts.  They stand in attributes: a script element that comes with a result would not run.
SLIDE = "this.closest('figure').style.setProperty('--at', this.value + '%')"
CHOOSE = (
    "[...this.closest('figure').querySelectorAll('.pd-left')]"
    ".forEach((image, n) => { image.hidden = n !== this.selectedIndex; })"
)


def error_html(message: str) -> str:
    """An error message as a piece of the page's HTML."""
    return f'<div class="pd-error" role="alert">{escape(message[:1].upper() + message[1:])}</div>'


def wait_html(name: str) -> str:
    """In place of the results of another question while the next one is computed."""
    return f'<div class="pd-wait" role="status">Completing {escape(name)} …</div>'


def examples_html(names: Sequence[str], chosen: str = "") -> str:
    """Small pictures that are buttons."""
    buttons = "".join(
        f'<button type="button" data-world="{escape(name)}" aria-pressed="{str(name == chosen).lower()}">'
        f'<img src="{uri(thumbnail(name), "jpeg")}" alt="" width="160" height="120">'
        f"<span>{escape(name.replace('_', ' '))}</span></button>"
        for name in names
    )
    return f'<div class="pd-examples" role="group" aria-label="Examples">{buttons}</div>'


def result_html(answer: Answer, key: str, colormap: str = picture_files.DEPTH_COLORMAP) -> str:
    """Image, sparse points, depth against what it is compared with on one colour scale, files, similarities."""
    span = picture_files.limits([answer.adapted.depth, answer.base.depth])
    image = picture_files.as_uint8(answer.frame.image)
    low, high, scale = span
    points = picture_files.sparse_overlay(image, answer.frame.sparse_depth, low, high, scale=scale, cmap=colormap)
    pictures = (
        _figure(picture_files.jpeg(image), "image", "the image"),
        _figure(picture_files.jpeg(points, 92), f"{answer.points:,} sparse points", "sparse points on the image"),
        _compare_html(answer, span, colormap),
    )
    grid = f'<div class="pd-pictures">{"".join(pictures)}</div>{_scale_bar(*span, colormap)}'
    about = f'class="pd-result" data-frame="{escape(answer.frame.name)}"'
    return f"<div {about}><p>{_summary(answer)}</p>{grid}{_downloads(key)}{bars(answer)}</div>"


def _compare_html(answer: Answer, span: DepthSpan, colormap: str) -> str:
    """Two depth maps in one place; a slider says where one ends and the other begins, a list what lies on the left."""
    (name, depth), *others = answer.maps.items()
    right = _map(depth, span, colormap, f"dense depth, {name}")
    left = "".join(
        _map(other, span, colormap, f"dense depth, {label}", f' class="pd-left"{" hidden" if n else ""}')
        for n, (label, other) in enumerate(others)
    )
    errors = answer.errors
    texts = {label: f"{label}{_error(errors, label)}" for label, _ in others}
    options = "".join(f"<option>{escape(text)}</option>" for text in texts.values())
    slider = f'<input type="range" value="50" oninput="{SLIDE}" aria-label="Where the two maps meet">'
    choice = f'<select onchange="{CHOOSE}" aria-label="Left of the slider">{options}</select>'
    answered = f"<b>{escape(name)}</b>{escape(_error(errors, name))}{' mean error' if errors else ''}"
    return (
        f'<figure class="pd-compare"><div class="pd-stack">{right}{left}<i></i>{slider}</div>'
        f'<figcaption><label>left: {choice}</label><span class="pd-answer">right: {answered}</span></figcaption>'
        "</figure>"
    )


def _error(errors: Mapping[str, float], label: str) -> str:
    return f": {100 * errors[label]:.1f} cm" if label in errors else ""


def _map(depth: np.ndarray, span: DepthSpan, colormap: str, alt: str, more: str = "") -> str:
    low, high, scale = span
    rows = picture_files.levels(depth, picture_files.valid_depth(depth), low, high, scale)
    picture = picture_files.palette_png(_enlarged(rows), picture_files.palette(colormap))
    return f'<img src="{uri(picture)}" alt="{escape(alt)}"{more}>'


def _enlarged(picture: np.ndarray) -> np.ndarray:
    """Small maps grow by whole factors, so that the browser does not blur their pixels."""
    return picture_files.enlarge(picture, max(1, round(384 / picture.shape[1])))


def _scale_bar(low: float, high: float, scale: picture_files.Scale, colormap: str) -> str:
    """The colours of the depth with their numbers."""
    strip = uri(picture_files.png(picture_files.palette(colormap)[1:][None]))
    marks = (
        (v, float(picture_files.share(np.array(v), low, high, scale))) for v in picture_files.ticks(low, high, scale)
    )
    labels = "".join(f'<span style="left:{100 * place:.1f}%">{value:g} m</span>' for value, place in marks)
    return f'<div class="pd-scale"><img src="{strip}" alt="colour scale of the depth"><div>{labels}</div></div>'


def _figure(data: bytes, caption: str, alt: str) -> str:
    return (
        f'<figure><img src="{uri(data, "jpeg")}" alt="{escape(alt)}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _downloads(key: str) -> str:
    links = "".join(
        f'<a href="/download/{escape(key)}/{name}" download="{name}" title="{escape(text)}">{name}</a>'
        for name, (_, text) in KINDS.items()
    )
    return f'<p class="pd-files"><span>Take along:</span>{links}</p>'


def _summary(answer: Answer) -> str:
    height, width = answer.adapted.depth.shape
    low, high = answer.depth_range
    name = f"Domain <b>{escape(answer.adapted.domain)}</b>" if answer.learned else "<b>The network as it is</b>"
    share = f"{100 * answer.in_range:.0f} % of the points lie in its range of {low:g} to {high:g} m."
    parts = [f"{name}; {width} x {height} pixels in {answer.seconds:.1f} s; {share}"]
    if not answer.learned and not answer.adapted.similarity:
        parts.append("It has learned no place yet: <code>protodepth adapt</code> learns one from a recording.")
    if answer.note:
        parts.append(escape(answer.note[0].upper() + answer.note[1:]) + ".")
    if answer.in_range < FEW:
        parts.append("<b>Is the unit of the sparse depth right?</b>")
    if answer.adapted.unknown:
        parts.append("<b>Unknown:</b> this frame is unlike every domain that the model knows; adapt to this place.")
    return " ".join(parts)


def bars(answer: Answer) -> str:
    """How near the image is to each domain, by what chooses; the chosen one in colour."""
    rows = nearness(answer)
    if not rows:
        return ""
    lines = "".join(
        f'<div class="pd-bar{" pd-chosen" if name == answer.adapted.domain else ""}"><span>{escape(name)}</span>'
        f'<i><b style="width:{100 * length:.1f}%"></b></i><span>{value:.{2 if answer.by_distance else 3}f}</span></div>'
        for name, (length, value) in rows.items()
    )
    excess = answer.adapted.excess
    limit = "" if excess is None else f"; this image has {excess:.2f} of the distance at which it would be unknown"
    far = f"Distance to each domain (the least is chosen{limit})"
    what = far if answer.by_distance else "Similarity to each domain (cosine of the descriptors)"
    return f'<div class="pd-bars"><p>{what}</p>{lines}</div>'


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
    maps = dict(list(answer.maps.items())[:2])  # the answer and what the slider shows first
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


def on_example() -> str:
    """The script of the example buttons."""
    return _asset("examples.js")
