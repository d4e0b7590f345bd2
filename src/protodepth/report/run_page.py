"""The HTML page of a run's report, which needs no network: its parts, tables, charts, pictures and point clouds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template
from typing import Any

import numpy as np

from protodepth.metrics import METRICS, UNITS
from protodepth.report.charts import ChartLine, line_chart, method_colour
from protodepth.report.gallery import cloud_data, largest_side, pictures, script_json
from protodepth.report.results import (
    METRIC_NAMES,
    SCORES,
    UNRANKED,
    Document,
    Row,
    duration,
    left_out,
    marks,
    row_key,
    row_name,
    written,
)
from protodepth.report.samples import Sample

SCORE_TITLES = {
    "forgetting": "Average forgetting (%)",
    "performance": "Average performance",
    "spto": "Stability–plasticity trade-off",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a run's page: the results on one sequence of domains."""

    name: str
    document: Document
    samples: Sequence[Sample]


def page(parts: Sequence[Part], title: str) -> str:
    """The report of a run as the text of one whole HTML file."""
    assets = resources.files("protodepth.report") / "assets"
    samples = [s for part in parts for s in part.samples]
    fill = {
        "title": escape(title),
        "style": (assets / "report.css").read_text(encoding="utf-8"),
        "script": (assets / "report.js").read_text(encoding="utf-8"),
        "body": "".join(_part(part, n, len(parts) > 1, largest_side(samples)) for n, part in enumerate(parts)),
        "clouds": _clouds(samples),
        "data": script_json(cloud_data(samples)),
        "meanings": (assets / "meanings.html").read_text(encoding="utf-8"),
        "facts": "".join(_facts(part) for part in parts),
    }
    return Template((assets / "report.html").read_text(encoding="utf-8")).substitute(fill)


def _part(part: Part, number: int, several: bool, side: int) -> str:
    heading = f'<h2 class="part" id="part{number}">{escape(part.name)}</h2>' if several else ""
    sections = [heading, _summary(part.document), _score_table(part.document), _matrices(part.document)]
    sections += [_curves(part.document), _selection(part.document), _pictures(part, side)]
    text = "".join(sections)
    return text.replace('<section id="', f'<section id="part{number}-') if several else text


def _section(anchor: str, title: str, *content: str) -> str:
    return f'<section id="{anchor}"><h2>{escape(title)}</h2>{"".join(content)}</section>'


def _swatch(row: Row) -> str:
    return f'<i class="swatch{" dashed" if row["setting"] == "agnostic" else ""}" style="color:{_row_colour(row)}"></i>'


def _method_name(document: Document, key: str, setting: str = "incremental") -> str:
    """The displayed name of a key of the tables by method."""
    rows = [row for row in document["rows"] if row_key(row) == key]
    return next((row_name(row) for row in rows if row["setting"] == setting), row_name(rows[0]) if rows else key)


def _row_colour(row: Row) -> str:
    return method_colour(row["method"], row.get("variant", 0))


# --- summary and table ------------------------------------------------------------------------------------------------


def _summary(document: Document) -> str:
    names = [f"<b>{escape(d)}</b>" for d in document.get("domains", [])]
    first, later = (names[0], names[1:]) if names else ("one domain", [])
    story = f"A depth-completion network was trained on {first}"
    story += f", then learned {', then '.join(later)}" if later else ""
    story += (
        " from images and sparse depth alone, without ground truth. After each stage every method was tested on unseen "
        "scenes of every domain. <b>Forgetting</b> is how much the error on the domains learned before has grown since "
        "they were learned, on average; 0 % means that nothing was lost. Lower is better everywhere."
    )
    ranked = [row for row in document["rows"] if row["method"] not in UNRANKED]
    few = [row for row in ranked if row["method"] in ("finetune", "protodepth")] if len(ranked) > 4 else ranked
    tiles = "".join(_tile(row) for row in few[:4])
    return f'<p class="story">{story}</p><div class="tiles">{tiles}{_accuracy_tile(document)}</div>'


def _tile(row: Row) -> str:
    note = " (not told the domain)" if row["setting"] == "agnostic" else ""
    forgetting, performance = row["forgetting"]["mae"], row["performance"]["mae"]
    number = "–" if forgetting is None else f"{100 * forgetting:.1f} %"
    return (
        f'<div class="tile"><h3>{_swatch(row)}{escape(row_name(row))}</h3><p class="big">{number}</p>'
        f"<p>forgetting, MAE{note}<br>average performance {written('performance', 'mae', performance)} mm</p></div>"
    )


def _accuracy_tile(document: Document) -> str:
    accuracy = document.get("selection_accuracy")
    if accuracy is None:
        return ""
    return (
        f'<div class="tile"><h3>Domain chosen rightly</h3><p class="big">{100 * accuracy:.1f} %</p>'
        "<p>of the test frames of all domains, by the image and its sparse depth alone</p></div>"
    )


def _score_table(document: Document) -> str:
    rows = document["rows"]
    groups = "".join(f'<th colspan="4" scope="colgroup">{SCORE_TITLES[s]}</th>' for s in SCORES)
    units = "".join(
        f'<th scope="col">{METRIC_NAMES[m]}<small>{"%" if s == "forgetting" else UNITS[m]}</small></th>'
        for s in SCORES
        for m in METRICS
    )
    columns = [(s, m, marks(rows, s, m)) for s in SCORES for m in METRICS]
    body = ""
    for n, row in enumerate(rows):
        cells = "".join(f'<td class="{mark[n]}">{written(s, m, row[s][m])}</td>' for s, m, mark in columns)
        quiet = ' class="quiet"' if row["method"] in UNRANKED else ""
        body += f'<tr{quiet}><th scope="row">{_swatch(row)}{escape(row_name(row))}</th>{cells}</tr>'
    note = (
        "<p class=note><b>Bold</b>: best; <u>underlined</u>: second best of the methods that learn one domain after "
        "the other (not Pretrained, which learns nothing, nor Joint, which sees all at once). "
        "ProtoDepth is told each frame's domain (incremental setting); ProtoDepth-A chooses it itself (agnostic "
        "setting). The other methods have one network, so both settings are the same.</p>"
    )
    head = f'<thead><tr><td></td>{groups}</tr><tr><th scope="col">Method</th>{units}</tr></thead>'
    table = (
        '<div class="scroll" tabindex="0" role="region" aria-label="Scores">'
        f'<table class="scores">{head}<tbody>{body}</tbody></table></div>'
    )
    return _section("scores", "Scores", table, note)


# --- matrices and curves ----------------------------------------------------------------------------------------------


def _switch() -> str:
    buttons = "".join(
        f'<button type="button" data-set-metric="{m}" '
        f'aria-pressed="{str(m == "mae").lower()}">{METRIC_NAMES[m]}</button>'
        for m in METRICS
    )
    return f'<div class="switch" role="group" aria-label="Metric">{buttons}</div>'


def _by_metric(blocks: Mapping[str, str], kind: str = "") -> str:
    return "".join(
        f'<div class="by-metric" data-metric="{m}"><div class="grid {kind}">{text}</div></div>'
        for m, text in blocks.items()
    )


def _matrices(document: Document) -> str:
    note = (
        "<p>Each row is a moment: just after learning that domain. Each column is a domain that is tested. "
        "Below the diagonal, the small number says how much the error has grown since the domain was learned. "
        "Above the diagonal (grey) the domain is not learned yet. The stronger the colour of a cell, "
        "the further its error is above the lowest one of that column in all these tables.</p>"
    )
    blocks = {m: "".join(_matrix(document, row, m) for row in document["rows"]) for m in METRICS}
    return _section("matrix", "Error after each stage", note, _switch(), _by_metric(blocks, "wide"))


def _matrix(document: Document, row: Row, metric: str) -> str:
    names = document["domains"]
    values = _numbers(document["matrix"][row_key(row)][row["setting"]][metric])
    all_of_them = [_numbers(m[s][metric]) for m in document["matrix"].values() for s in m]
    lowest = np.fmin.reduce(np.concatenate(all_of_them), axis=0)
    head = "".join(f'<th scope="col">{escape(n)}</th>' for n in names)
    body = ""
    for k, name in enumerate(names):
        cells = "".join(_cell(values, lowest, k, j, metric) for j in range(len(names)))
        body += f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'
    title = f"{_swatch(row)}{escape(row_name(row))} <small>{METRIC_NAMES[metric]}, {UNITS[metric]}</small>"
    return (
        f'<div class="card"><h3>{title}</h3><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{escape(row_name(row))}, {METRIC_NAMES[metric]}"><table class="heat"><thead><tr>'
        f'<th scope="col">learned ↓ tested →</th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></div>"
    )


def _numbers(rows: Any) -> np.ndarray:
    return np.array([[math.nan if v is None else v for v in row] for row in rows], np.float64)


def _cell(values: np.ndarray, lowest: np.ndarray, k: int, j: int, metric: str) -> str:
    value, own = values[k, j], values[j, j]
    if not math.isfinite(value):
        return "<td>–</td>"
    excess = min(1.0, max(0.0, value / lowest[j] - 1)) if lowest[j] > 0 else 0.0
    grown = f"<small>{100 * (value / own - 1):+.1f} %</small>" if j < k and own > 0 else ""
    kind = "later" if j > k else "own" if j == k else ""
    return f'<td class="{kind}" style="--heat:{excess:.2f}">{written("performance", metric, value)}{grown}</td>'


def curve_lines(document: Document, domain: str, metric: str) -> tuple[list[ChartLine], list[tuple[float, str]]]:
    """The lines of one domain's forgetting curve over all training steps, and where each stage starts."""
    points = [p for curve in document["curves"].values() for p in curve]
    lengths = {s: max(p["step"] for p in points if p["stage"] == s) for s in sorted({p["stage"] for p in points})}
    starts = {s: sum(n for other, n in lengths.items() if other < s) for s in lengths}
    lines = []
    for row in document["rows"]:
        own = [
            p
            for p in document["curves"].get(row_key(row), [])
            if p["domain"] == domain and p["setting"] == row["setting"]
        ]
        places = [(float(starts[p["stage"]] + p["step"]), float(p[metric])) for p in own if p[metric] is not None]
        if places:
            lines.append(ChartLine(row_name(row), _row_colour(row), sorted(places), row["setting"] == "agnostic"))
    return lines, [(float(x), document["domains"][s]) for s, x in starts.items()]


def curve_chart(document: Document, domain: str, metric: str, *, legend: bool = True) -> str:
    """Chart of a run's page: the error on one domain's val frames while later ones are learned (the first figure)."""
    lines, stages = curve_lines(document, domain, metric)
    y_label = f"{METRIC_NAMES[metric]} on {domain} ({UNITS[metric]})"
    return line_chart(lines, x_label="training steps", y_label=y_label, boundaries=stages, legend=legend)


def _curves(document: Document) -> str:
    if not any(document.get("curves", {}).values()):
        return ""
    note = (
        "<p>The error on each domain's validation frames, evaluated during training, "
        "from the moment the domain is seen. Dashed: the domain is chosen, not told.</p>"
    )
    seen = [d for d in document["domains"] if curve_lines(document, d, "mae")[0]]
    blocks = {
        m: "".join(
            f'<figure class="card"><h3>{escape(d)}</h3>{curve_chart(document, d, m, legend=False)}</figure>'
            for d in seen
        )
        for m in METRICS
    }
    rows_with_curves = [row for row in document["rows"] if document["curves"].get(row_key(row))]
    legend = "".join(f"<span>{_swatch(row)}{escape(row_name(row))}</span>" for row in rows_with_curves)
    return _section(
        "curves", "Forgetting while learning", note, _switch(), f'<p class="legend">{legend}</p>', _by_metric(blocks)
    )


def _selection(document: Document) -> str:
    cards = "".join(_confusion(document, key) for key in document.get("confusion", {}))
    if not cards:
        return ""
    note = (
        "<p>Which prototype set ProtoDepth-A chose for the test frames of each domain after the last stage. "
        "The diagonal is right.</p>"
    )
    return _section("selection", "Which domain was chosen", note, f'<div class="grid limited">{cards}</div>')


def _confusion(document: Document, key: str) -> str:
    counts, used, domains = document["confusion"][key], document["chosen_names"][key], document["domains"]
    chosen = [*domains, *(name for name in used if name not in domains)]  # a column also for what was never chosen
    counts = np.array([[dict(zip(used, row, strict=True)).get(name, 0) for name in chosen] for row in counts])
    head = "".join(f'<th scope="col">{escape(n)}</th>' for n in chosen)
    body = ""
    for name, row in zip(domains, counts, strict=True):
        shares = row / max(1, row.sum())
        cells = "".join(
            f'<td class="{"own" if n == name else ""}" style="--cool:{s:.2f}">{c}<small>{100 * s:.1f} %</small></td>'
            for n, c, s in zip(chosen, row, shares, strict=True)
        )
        body += f'<tr><th scope="row">{escape(name)}</th>{cells}<td class="sum">{row.sum()}</td></tr>'
    return (
        f'<div class="card"><h3>{escape(_method_name(document, key, "agnostic"))}</h3><div class="scroll">'
        f'<table class="heat"><thead><tr><td></td><th colspan="{len(chosen)}" scope="colgroup">chosen</th>'
        f'<td></td></tr><tr><th scope="col">frames of</th>{head}<th scope="col">frames</th></tr></thead>'
        f"<tbody>{body}</tbody></table></div></div>"
    )


# --- pictures, points, facts ------------------------------------------------------------------------------------------


def _pictures(part: Part, side: int) -> str:
    if not part.samples:
        return ""
    last = part.document["domains"][-1] if part.document.get("domains") else "the last domain"
    note = (
        f"<p>Test frames after learning <b>{escape(last)}</b>, picked by position and not by result. "
        "The domains learned first are the interesting ones: what is left of them? Click a picture to enlarge it.</p>"
    )
    return _section("pictures", "Predictions after the last stage", note, pictures(part.samples, side))


def _clouds(samples: Sequence[Sample]) -> str:
    if not samples:
        return ""
    labels = list(dict.fromkeys(label for s in samples for label in ("Ground truth", *s.predictions)))
    right = "ProtoDepth" if "ProtoDepth" in labels else labels[-1]
    left = "Finetuned" if "Finetuned" in labels else labels[0]

    # sky is hidden, but where ground truth is itself sparse (LiDAR) hiding the rest would leave nothing to see
    dense = " checked" if np.mean([(s.ground_truth > 0).mean() for s in samples]) > 0.3 else ""

    def options(chosen: str) -> str:
        return "".join(f"<option{' selected' if label == chosen else ''}>{escape(label)}</option>" for label in labels)

    frames = "".join(
        f'<option value="{n}">{escape(s.domain)}: {escape(s.name)}</option>' for n, s in enumerate(samples)
    )
    controls = (
        f'<label>Frame <select id="cloud-sample">{frames}</select></label>'
        '<label>Colour <select id="cloud-colour"><option value="image">image</option>'
        '<option value="depth">depth</option><option value="error">error</option></select></label>'
        f'<label><input type="checkbox" id="cloud-known"{dense}> only where ground truth is known</label>'
        '<button type="button" id="cloud-reset">Reset view</button> <span id="cloud-scale" role="status"></span>'
    )
    views = "".join(
        f'<div class="view"><label>{side} <select id="cloud-{side.lower()}">{options(label)}</select></label>'
        f'<canvas id="canvas-{side.lower()}" tabindex="0" role="img" aria-label="Point cloud, {side.lower()}: '
        'arrow keys turn it, plus and minus zoom, 0 resets"></canvas></div>'
        for side, label in (("Left", left), ("Right", right))
    )
    note = "<p>Drag to turn, wheel or pinch to zoom, or use the arrow keys and + and −. Both views turn together.</p>"
    return _section(
        "points", "In three dimensions", note, f'<div class="controls">{controls}</div><div class="views">{views}</div>'
    )


def _facts(part: Part) -> str:
    document = part.document
    about = document.get("about", {})
    flat = [(k, v) for k, v in about.items() if not isinstance(v, dict)]
    flat += [(f"{k}: {inner}", value) for k, v in about.items() if isinstance(v, dict) for inner, value in v.items()]
    rows = "".join(f"<tr><th scope='row'>{escape(str(k))}</th><td>{escape(_words(v))}</td></tr>" for k, v in flat)
    rows += f"<tr><th scope='row'>whole run</th><td>{duration(document['seconds'])}</td></tr>"
    rows += "".join(f"<tr><th scope='row'>left out</th><td>{escape(text)}</td></tr>" for text in left_out(document))
    costs = "".join(
        f"<tr><th scope='row'>{escape(_method_name(document, key))}</th><td>{duration(sum(times))}</td>"
        f"<td>{document['extra_parameters'].get(key, 0):,}</td>"
        f"<td>{document['extra_bytes'].get(key, 0) / 1e6:.2f}</td></tr>"
        for key, times in document.get("training_seconds", {}).items()
    )
    table = (
        "<table class='facts'><thead><tr><th scope='col'>method</th><th scope='col'>training time</th>"
        "<th scope='col'>extra parameters</th><th scope='col'>extra memory (MB)</th></tr></thead>"
        f"<tbody>{costs}</tbody></table>"
    )
    return (
        f"<div class='grid'><div class='scroll'><table class='facts'><tbody>{rows}</tbody></table></div>"
        f"<div class='scroll'>{table}</div></div>"
    )


def _words(value: Any) -> str:
    return ", ".join(str(v) for v in value) if isinstance(value, list) else str(value)
