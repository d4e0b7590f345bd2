"""The report of a bench with its sections: one HTML file, the same as Markdown and as JSON, figures as files."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from protodepth.report import tables
from protodepth.report.gallery import cloud_data, script_json, uri
from protodepth.report.results import duration, plain
from protodepth.report.tables import Table
from protodepth.storage import files

TITLE = "The paper's experiments"
STYLE = """
.scores.bench { min-width: 0; width: auto; }
.scroll + h3, .note + h3 { margin-top: 1.8rem; }
.scores.bench td, .scores.bench tbody th { vertical-align: top; }
.scores.bench tbody td:nth-of-type(4n+1), .scores.bench thead tr:last-child th:nth-child(4n+2) { border-left: 0; }
.scores.bench tr.start { border-top: 2px solid var(--line); }
.scores.bench td small { display: block; } .scores.bench th { text-align: left; }
.scores.bench td.best span { font-weight: 750; } .scores.bench td.second span { text-decoration: underline; }
.scores.bench td.best, .scores.bench td.second { font-weight: 400; text-decoration: none; }
.picture img { max-width: 100%; height: auto; image-rendering: auto; }
.picture svg { max-width: 720px; width: 100%; height: auto; }
#overview { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 4px 24px; }
#overview h2 { grid-column: 1 / -1; margin-bottom: 0; }
section > div > p { max-width: 80ch; }
#overview .picture { margin: 8px 0; }
#overview > * { min-width: 0; }
@media (max-width: 560px) { #overview svg text { font-size: 18px; } }
.scores.bench tbody th:last-of-type { position: sticky; left: 0; background: var(--paper); }
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture in the report of a bench: SVG text, PNG or JPEG bytes."""

    name: str
    title: str
    svg: str = ""
    png: bytes = b""
    jpeg: bytes = b""  # in place of png: photographs take a tenth of the space


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One experiment: what it is, its tables, figures, what they say, and its numbers for other programs."""

    name: str
    title: str
    about: str
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    findings: Sequence[str] = ()
    missing: Sequence[str] = ()  # what is not there yet, or how to get it
    data: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    picture_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What stands around a bench's tables: title, a sentence for all, what numbers mean (None: as in a run)."""

    title: str = TITLE
    intro: str = "Mean ± standard deviation over seeds; in brackets what the paper prints."
    meanings: Mapping[str, str] | None = None


def _markdown(sections: Sequence[Section], about: dict[str, Any], words: Words = Words()) -> str:
    lines = [f"# {words.title}", "", words.intro, ""]
    for s in sections:
        lines += [f"## {s.title}", "", s.about, ""]
        lines += [tables.markdown(t) for t in s.tables]
        lines += [f"![{f.title}](figures/{s.name}/{_file(f)})\n" for f in s.figures]
        lines += [f"- {text}" for text in (*s.findings, *s.missing)] + [""]
    lines += ["## Run", "", *(f"- {k}: {v}" for k, v in about.items())]
    lines += [f"- computing time of {s.name}: {duration(s.seconds)}" for s in sections if s.seconds]
    return "\n".join([*lines, ""])


def _file(figure: Figure) -> str:
    return figure.name + (".svg" if figure.svg else ".jpg" if figure.jpeg else ".png")


def _html(sections: Sequence[Section], about: dict[str, Any], words: Words = Words()) -> str:
    """One self-contained page, in the clothes of the run report."""
    assets = resources.files("protodepth.report") / "assets"
    facts = "".join(
        f"<tr><th scope='row'>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in about.items()
    )
    facts += "".join(
        f"<tr><th scope='row'>computing time of {escape(s.name)}</th><td>{duration(s.seconds)}</td></tr>"
        for s in sections
        if s.seconds
    )
    fill = {
        "title": escape(words.title),
        "style": (assets / "report.css").read_text(encoding="utf-8") + STYLE,
        "script": (assets / "report.js").read_text(encoding="utf-8"),
        "body": "".join(_section(s) for s in sections),
        "clouds": "",
        "meanings": _meanings(words.meanings),
        "data": script_json(cloud_data([])),
        "facts": f"<table class='facts'><tbody>{facts}</tbody></table>",
    }
    return Template((assets / "report.html").read_text(encoding="utf-8")).substitute(fill)


def _meanings(words: Mapping[str, str] | None = None) -> str:
    """The list under "What the numbers mean"; None: that of a sequence's scores."""
    if words is None:  # the file of the run report
        return (resources.files("protodepth.report") / "assets" / "meanings.html").read_text(encoding="utf-8")
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in words.items())


def _section(s: Section) -> str:
    """Tables and figures first: what they say in sentences, and what is missing, stands below them."""
    items = "".join(f"<li>{escape(text)}</li>" for text in (*s.findings, *s.missing))
    text = f"<div>{''.join(f'<p>{escape(part)}</p>' for part in s.about.split(chr(10) * 2))}</div>"
    figures = "".join(map(_picture, s.figures))
    shown = "".join(tables.html(t) for t in s.tables)
    body = figures + text + shown if s.picture_first else text + shown + figures
    body += f"<h3>Findings</h3><ul>{items}</ul>" if items else ""
    return f'<section id="{escape(s.name)}"><h2>{escape(s.title)}</h2>{body}</section>'


def _picture(f: Figure) -> str:
    source = uri(f.jpeg, "jpeg") if f.jpeg else uri(f.png)
    inner = f.svg or f'<img src="{source}" alt="{escape(f.title)}">'
    return f'<figure class="picture">{inner}<figcaption>{escape(f.title)}</figcaption></figure>'


def write(folder: Path, sections: Sequence[Section], about: dict[str, Any], words: Words = Words()) -> list[Path]:
    """The report of a bench: report.html, report.md, results.json and figures/ in a folder; returns the three paths."""
    for s in sections:
        for f in s.figures:
            files.write_bytes(folder / "figures" / s.name / _file(f), f.svg.encode() or f.jpeg or f.png)
    document = {"about": about, "experiments": {s.name: _json(s) for s in sections}}
    paths = [folder / name for name in ("report.html", "report.md", "results.json")]
    files.write_bytes(paths[0], _html(sections, about, words).encode())
    files.write_bytes(paths[1], _markdown(sections, about, words).encode())
    files.write_sealed(paths[2], plain(document))
    return paths


def _json(s: Section) -> dict[str, Any]:
    return {
        "title": s.title,
        "findings": list(s.findings),
        "missing": list(s.missing),
        "tables": {t.name: records(t) for t in s.tables},
        "seconds": s.seconds,
        **s.data,
    }


def records(table: Table) -> list[dict[str, Any]]:
    """The lines of a table as records: the heads by name, the columns as numbers with spread and the paper's value."""
    names = [f"{c.group} {c.title}".strip() for c in table.columns]
    names = [n if names.count(n) == 1 else f"{n}, {c.unit}" for n, c in zip(names, table.columns, strict=True)]
    rows = []
    for line in table.lines:
        cells = [c if isinstance(c, str) else asdict(c) for c in line.cells]
        rows.append({**dict(zip(table.heads, line.heads, strict=True)), **dict(zip(names, cells, strict=True))})
    return rows
