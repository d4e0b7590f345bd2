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
