"""Charts as SVG text: no library, no script; they follow the page's light or dark colours and stand alone as files."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from protodepth.report.pictures import ticks
from protodepth.types import Float

METHOD_COLOURS = {  # mid tones: readable on white and on near-black
    "pretrained": "#858b94",
    "finetune": "#d9483b",
    "ewc": "#e08a1e",
    "lwf": "#a98307",
    "replay": "#5c9a2f",
    "ancl": "#9b6bd8",
    "cmp": "#c75a9c",
    "l2p": "#9a6b4b",
    "joint": "#5f7484",
    "protodepth": "#2f7de1",
    "protodepth-own": "#1f9aa8",
}
OTHER_METHOD = "#8a6fdf"
DOMAIN_COLOURS = ("#2f7de1", "#e0701e", "#3f9a4f", "#9b6bd8", "#c7486b", "#7c8a1e")


def method_colour(method: str, variant: int = 0) -> str:
    """The colour of a method; further variants (runs) of it are lighter and darker.

    >>> method_colour("finetune"), method_colour("finetune", 1)
    ('#d9483b', '#e89189')
    """
    text = METHOD_COLOURS.get(method, OTHER_METHOD)
    towards = (0.0, 0.4, -0.35, 0.65, -0.6)[variant % 5]  # above 0: white, below: black
    parts = [int(text[i : i + 2], 16) for i in (1, 3, 5)]
    mixed = [round(v + (255 - v) * towards if towards > 0 else v * (1 + towards)) for v in parts]
    return "#{:02x}{:02x}{:02x}".format(*mixed)


INK, FAINT = "var(--ink, #1d2430)", "var(--line, #c9d0d9)"


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of a chart: label, colour, points."""

    label: str
    colour: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def _svg(width: int, height: int, label: str, parts: Iterable[str]) -> str:
    style = f"font-family:system-ui,sans-serif;font-size:12px;fill:{INK}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(label)}" style="{style}">'
    )
    return "".join([head, *parts, "</svg>"])


def _text(x: float, y: float, text: str, anchor: str = "middle", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(text)}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float, dash: str = "") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'style="stroke:{FAINT};stroke-dasharray:{dash or "none"}"/>'
    )


def line_chart(
    lines: Sequence[ChartLine],
    *,
    x_label: str,
    y_label: str,
    boundaries: Sequence[tuple[float, str]] = (),
    legend: bool = True,
) -> str:
    """SVG text of a line chart.  ``boundaries``: where a stage starts, and its name."""
    xs = [x for line in lines for x, _ in line.points] + [x for x, _ in boundaries if lines]
    ys = [y for line in lines for _, y in line.points]
    if not xs:
        return _svg(400, 60, y_label, [_text(200, 34, "no points were evaluated during training")])
    width, left, right, top, bottom = 400, 66, 382, 26, 230
    pad = 0.06 * (max(ys) - min(ys)) or 0.05 * abs(max(ys)) or 1.0
    low, high, first, last = min(ys) - pad, max(ys) + pad, min(xs), max(max(xs), min(xs) + 1)

    def at(x: float, y: float) -> tuple[float, float]:
        return left + (x - first) / (last - first) * (right - left), bottom - (y - low) / (high - low) * (bottom - top)

    parts = []
    for v in ticks(low, high):
        y = at(first, v)[1]
        parts += [_rule(left, y, right, y), _text(left - 7, y + 4, f"{v:,.6g}", "end")]
    for v in ticks(first, last, most=5):
        parts.append(_text(at(v, low)[0], bottom + 17, f"{v:,.6g}"))
    ends = [x for x, _ in boundaries[1:]] + [last] if boundaries else []  # without stages there is nothing to mark
    for (x, name), end in zip(boundaries, ends, strict=True):
        a, b = at(x, low)[0], at(end, low)[0]
        parts += [
            _rule(a, top - 16, a, bottom, "4 3"),
            _text((a + b) / 2, top - 8, f"learning {name}", extra=' font-size="11"'),
        ]
    parts += [_text((left + right) / 2, bottom + 36, x_label)]
    parts += [_text(0, 0, y_label, extra=f' transform="translate(14 {(top + bottom) / 2:.0f}) rotate(-90)"')]
    parts += [_path(line, at) for line in lines]
    height = bottom + 46
    if legend:
        parts += [part for n, line in enumerate(lines) for part in _legend_row(line, left, height + 12 + 18 * n)]
        height += 18 * len(lines) + 8
    return _svg(width, height, y_label, parts)


def _path(line: ChartLine, at: Callable[[float, float], tuple[float, float]]) -> str:
    places = [at(x, y) for x, y in line.points]
    way = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    dash = "6 4" if line.dashed else "none"
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" style="fill:{line.colour};stroke:transparent;stroke-width:12">'
        f"<title>{escape(line.label)}: {value:,.6g} at step {step:g}</title></circle>"
        for (x, y), (step, value) in zip(places, line.points, strict=True)
    )
    return f'<path d="{way}" style="fill:none;stroke:{line.colour};stroke-width:2;stroke-dasharray:{dash}"/>{dots}'


def _legend_row(line: ChartLine, x: float, y: float) -> list[str]:
    dash = "6 4" if line.dashed else "none"
    mark = (
        f'<line x1="{x}" y1="{y}" x2="{x + 28}" y2="{y}" '
        f'style="stroke:{line.colour};stroke-width:2.5;stroke-dasharray:{dash}"/>'
    )
    return [mark, _text(x + 36, y + 4, line.label, "start")]


def scatter_chart(
    points: Float[np.ndarray, "n 2"], labels: Sequence[str], marks: Float[np.ndarray, "k 2"], mark_labels: Sequence[str]
) -> str:
    """SVG text of points in the plane coloured by label, with named crosses (sample and domain descriptors)."""
    names = list(dict.fromkeys(labels))
    both = np.concatenate([points, marks]) if len(marks) else np.asarray(points)
    low, span = both.min(0), np.maximum(np.ptp(both, axis=0), 1e-9)
    places = 24 + (both - low) / span * np.array([412, 312])
    hue = {name: DOMAIN_COLOURS[n % len(DOMAIN_COLOURS)] for n, name in enumerate(names)}
    parts = [
        (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" style="fill:{hue[label]};fill-opacity:.75">'
            f"<title>{escape(label)}</title></circle>"
        )
        for (x, y), label in zip(places, labels, strict=False)
    ]
    for (x, y), label in zip(places[len(points) :], mark_labels, strict=True):
        parts += [f'<path d="M{x - 6:.1f} {y - 6:.1f} l12 12 m0 -12 l-12 12" style="stroke:{INK};stroke-width:3"/>']
        parts += [_text(x, y - 10, label, extra=' font-weight="700"')]
    for n, name in enumerate(names):
        parts += [f'<circle cx="{30 + 140 * (n % 3)}" cy="{372 + 18 * (n // 3)}" r="5" style="fill:{hue[name]}"/>']
        parts += [_text(40 + 140 * (n % 3), 376 + 18 * (n // 3), name, "start")]
    return _svg(460, 390 + 18 * ((len(names) - 1) // 3), "descriptors in two dimensions", parts)


# --- points in a plane of two errors ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spot:
    """A named point; ``kind`` decides its shape."""

    x: float
    y: float
    colour: str
    label: str
    kind: str
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class Level:
    """A value of y that is no point: a dashed line across."""

    label: str
    y: float


SHAPES = (  # of an area of about 40
    "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0Z",
    "M-3.2 -3.2H3.2V3.2H-3.2Z",
    "M0 -4.4L4.2 3.2H-4.2Z",
    "M0 -4.6L4.6 0L0 4.6L-4.6 0Z",
    "M-4.2 -3.2H4.2L0 4.4Z",
)


def plane_chart(
    spots: Sequence[Spot], levels: Sequence[Level], *, x_label: str, y_label: str, kinds: Sequence[str] = ()
) -> str:
    """SVG text: points above 0 on two logarithmic axes, the diagonal on which both are equal, and dashed lines."""
    xs = [s.x for s in spots]
    ys = [*xs, *(s.y for s in spots), *(level.y for level in levels)]  # with xs, the diagonal crosses the whole chart
    (x0, x1), (y0, y1) = ((min(values) / 1.06, max(values) * 1.06) for values in (xs, ys))
    left, right, top, bottom = 84, 590, 18, 330  # room for the letters of a phone, half as large again

    def at(x: float, y: float) -> tuple[float, float]:
        across, up = np.log(x / x0) / np.log(x1 / x0), np.log(y / y0) / np.log(y1 / y0)
        return float(left + across * (right - left)), float(bottom - up * (bottom - top))

    parts = []
    for v in _log_ticks(y0, y1):
        y = at(x0, v)[1]
        parts += [_rule(left, y, right, y), _text(left - 7, y + 4, f"{v:,.6g}", "end")]
    parts += [_text(at(v, y0)[0], bottom + 17, f"{v:,.6g}") for v in _log_ticks(x0, x1)]
    parts += [_text((left + right) / 2, bottom + 36, x_label)]
    parts += [_text(0, 0, y_label, extra=f' transform="translate(14 {(top + bottom) / 2:.0f}) rotate(-90)"')]
    (a, b), (c, d) = at(x0, x0), at(x1, x1)
    parts.append(f'<path d="M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" style="stroke:{INK};stroke-opacity:.5;fill:none"/>')
    for level in levels:
        y = at(x0, level.y)[1]
        style = f"stroke:{INK};stroke-dasharray:5 4"
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" style="{style}"/>')
        parts.append(_text(right - 4, y - 5, f"{level.label}, {level.y:,.0f}", "end", ' font-size="11"'))
    order = list(dict.fromkeys([*kinds, *(s.kind for s in spots)]))  # one shape a kind, in every chart of a page
    rings = sorted(spots, key=lambda s: s.hollow)  # around a point at the same place, and above it
    parts += [_spot(s, *at(s.x, s.y), order.index(s.kind), 2.3 if s.hollow else 1.25) for s in rings]
    legend, height = _plane_legend(spots, order, left, bottom + 58)
    return _svg(600, height, f"{y_label} against {x_label}", [*parts, *legend])


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5 times powers of ten where they are enough, round steps otherwise."""
    values = ticks(low, high, "log", most=7)
    return values if len(values) > 2 else ticks(low, high)


def _spot(s: Spot, x: float, y: float, shape: int, size: float = 1.25) -> str:
    fill = "none" if s.hollow else s.colour
    words = f"{s.label}, {s.kind}: {s.x:,.0f} mm when learned, {s.y:,.0f} mm at the end" if s.y else s.label
    return (
        f'<path transform="translate({x:.1f} {y:.1f}) scale({size})" d="{SHAPES[shape % len(SHAPES)]}" '
        f'style="fill:{fill};fill-opacity:.85;stroke:{s.colour};stroke-width:1.4"><title>{escape(words)}</title></path>'
    )


def _plane_legend(spots: Sequence[Spot], kinds: Sequence[str], x: float, y: float) -> tuple[list[str], int]:
    """Methods by colour, networks by shape; the line beneath is the diagonal's."""
    methods = {s.label: s for s in spots}
    entries = [Spot(0, 0, s.colour, s.label, s.label, s.hollow) for s in methods.values()]
    here = [k for k in kinds if any(s.kind == k for s in spots)]
    entries += [Spot(0, 0, "var(--soft, #5b6572)", k, k) for k in here if len(here) > 1]
    parts = []
    for n, entry in enumerate(entries):
        place = x + 175 * (n % 3), y + 22 * (n // 3)
        shape = kinds.index(entry.kind) if n >= len(methods) else 0
        parts += [_spot(entry, *place, shape), _text(place[0] + 11, place[1] + 4, entry.label, "start")]
    rows = -(-len(entries) // 3)
    parts.append(_text(x, y + 22 * rows + 4, "solid line: nothing is forgotten", "start", ' font-size="11"'))
    return parts, int(y + 22 * rows + 14)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a bar chart: its length, and what it says."""

    label: str
    value: float
    words: str  # what stands at its end
    limit: float | None = None  # a mark that the bar should not pass


def bar_chart(bars: Sequence[Bar], *, label: str, width: int = 640, left: int = 170) -> str:
    """SVG text of horizontal bars on one scale from 0.

    >>> bar_chart([Bar("eager", 2.0, "2 ms"), Bar("onnx", 1.0, "1 ms")], label="time").count("<rect")
    2
    """
    right, row = 80, 24
    most = max((max(b.value, b.limit or 0.0) for b in bars), default=0.0) or 1.0
    scale = (width - left - right) / most
    parts = [_text(left, 14, label, "start")]
    for n, bar in enumerate(bars):
        y, length = 24 + n * row, max(bar.value * scale, 1.0)
        colour = DOMAIN_COLOURS[0] if bar.limit is None or bar.value <= bar.limit else DOMAIN_COLOURS[1]
        parts.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{row - 8}" style="fill:{colour}"/>')
        parts.append(_text(left - 8, y + 12, bar.label, "end"))
        parts.append(_text(left + length + 6, y + 12, bar.words, "start"))
        if bar.limit is not None:
            x = left + bar.limit * scale
            parts.append(_rule(x, y - 3, x, y + row - 5))
    return _svg(width, 32 + len(bars) * row, label, parts)
