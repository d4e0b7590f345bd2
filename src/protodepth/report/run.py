"""The files of a run's report: results.json, samples, Markdown, HTML; the table for the terminal; merging of runs."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protodepth.errors import CheckpointError, DataError
from protodepth.metrics import METRICS, UNITS
from protodepth.report.results import (
    METRIC_NAMES,
    SCORES,
    Document,
    about_run,
    display_name,
    duration,
    left_out,
    marks,
    merge,
    results_document,
    row_key,
    row_name,
    written,
)
from protodepth.report.run_page import Part, curve_chart, page
from protodepth.report.samples import Sample, add_predictions, collect, load_samples, save_samples
from protodepth.storage import claims, files
from protodepth.storage.card import plain
from protodepth.storage.paths import check_inside

if TYPE_CHECKING:
    from rich.table import Table

TITLE = "Learning new domains without forgetting old ones"
SHORT = {"forgetting": "forgetting", "performance": "performance", "spto": "SPTO"}
MARKED = re.compile(r"(\*\*|<u>)?[-–.\d]*(\*\*|</u>)?")  # a number, best or second best
EARLIER = (  # entries of a results.json of versions that wrote no checksum
    *("rows", "matrix", "selection_accuracy", "seconds", "domains", "confusion", "chosen_names", "curves"),
    *("training_seconds", "skipped_steps", "bad_frames", "extra_parameters", "extra_bytes", "about"),
)
RUN_FILES = ("results.json", "samples.npz", "report.md", "report.html")
WIDE = 132  # columns that the table with all twelve numbers needs


# --- text -------------------------------------------------------------------------------------------------------------


def _columns(metrics: Sequence[str]) -> list[tuple[str, str, str]]:
    return [(s, m, "%" if s == "forgetting" else UNITS[m]) for s in SCORES for m in metrics]


def terminal_table(document: Document, *, width: int | None = None) -> "Table":
    """For the terminal: bold is best, underlined second best.
    All four metrics where the width (of the terminal, if not given) allows.
    """
    from rich import box
    from rich.table import Table

    wide = (width or shutil.get_terminal_size((WIDE, 24)).columns) >= WIDE
    columns = _columns(METRICS if wide else METRICS[:2])
    caption = "lower is better; bold: best, underlined: second best of the methods that learn in sequence"
    out = Table(title=" -> ".join(document.get("domains", [])), caption=caption, box=box.SIMPLE_HEAD)
    out.add_column("\n\nmethod", no_wrap=True)
    for score, metric, unit in columns:
        group = SHORT[score] if metric == METRICS[0] else ""
        out.add_column(f"{group}\n{METRIC_NAMES[metric]}\n{unit}", justify="right", no_wrap=True)
    styles = {"best": "[bold]{}[/bold]", "second": "[underline]{}[/underline]", "": "{}"}
    marked = {(s, m): marks(document["rows"], s, m) for s, m, _ in columns}
    for n, row in enumerate(document["rows"]):
        cells = [styles[marked[s, m][n]].format(written(s, m, row[s][m])) for s, m, _ in columns]
        out.add_row(row_name(row), *cells)
    return out


def markdown(document: Document, title: str = TITLE) -> str:
    """The scores, the matrices (MAE) and the run facts as Markdown."""
    columns = _columns(METRICS)
    head = ["method", *(f"{SHORT[s]} {METRIC_NAMES[m]} ({u})" for s, m, u in columns)]
    marked = {(s, m): marks(document["rows"], s, m) for s, m, _ in columns}
    styles = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
    body = [
        [row_name(row), *(styles[marked[s, m][n]].format(written(s, m, row[s][m])) for s, m, _ in columns)]
        for n, row in enumerate(document["rows"])
    ]
    accuracy = document.get("selection_accuracy")
    lines = [
        f"# {plain(title)}",
        "",
        f"Sequence: {plain(' -> '.join(document.get('domains', [])))}. Lower is better; "
        "bold best, underlined second best.",
    ]
    lines += ["", *_pipes(head, body), ""]
    lines += [f"Domain chosen rightly: {100 * accuracy:.1f} % of the test frames.", ""] if accuracy is not None else []
    lines += _markdown_matrices(document)
    missed = left_out(document)
    lines += ["## Left out", "", *(f"- {plain(text, 500)}" for text in missed), ""] if missed else []
    lines += [
        "## Run",
        "",
        *(f"- {plain(str(k))}: {plain(str(v), 2000)}" for k, v in document.get("about", {}).items()),
    ]
    return "\n".join([*lines, f"- whole run: {duration(document['seconds'])}", ""])


def _pipes(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return [
        f"| {' | '.join(cell if MARKED.fullmatch(cell) else plain(cell) for cell in row)} |"
        for row in (head, rule, *body)
    ]


def _markdown_matrices(document: Document) -> list[str]:
    names, lines = document.get("domains", []), ["## Error after each stage (MAE, mm)", ""]
    for key, by_setting in document["matrix"].items():
        for setting in dict.fromkeys(r["setting"] for r in document["rows"] if row_key(r) == key):
            rows = [
                [f"after {name}", *(written("performance", "mae", v) for v in values)]
                for name, values in zip(names, by_setting[setting]["mae"], strict=True)
            ]
            lines += [plain(f"{key}, {setting}:"), "", *_pipes(["", *names], rows), ""]
    return lines


def html(document: Document, samples: Sequence[Sample] = (), title: str = TITLE) -> str:
    """One self-contained page."""
    return page([Part("", document, samples)], title)


# --- files ------------------------------------------------------------------------------------------------------------


def write_run(folder: str | Path, document: Document, samples: Sequence[Sample] = (), title: str = TITLE) -> Path:
    """Write results.json, samples.npz, report.md and report.html; returns the path of the page."""
    folder = Path(folder)
    stored = {"samples.npz": save_samples(folder / "samples.npz", samples)}
    files.write_sealed(folder / "results.json", {**document, "files": stored})
    files.write_bytes(folder / "report.md", markdown(document, title).encode())
    files.write_bytes(folder / "report.html", html(document, samples, title).encode())
    return folder / "report.html"


def check_run_free(folder: Path, mark: str) -> None:
    """Refuse a folder in which ``write_run`` would write over files of somebody else, or over another kind of run.

    ``mark``: an entry that only the results of this kind have; those of an earlier one are replaced.
    """
    try:
        ours = mark in read_run(folder)[0]
    except DataError:
        ours = False
    claims.check_free((folder / name for name in RUN_FILES), ours)


def read_run(folder: str | Path) -> tuple[Document, list[Sample]]:
    folder = Path(folder)
    path = folder / "results.json"
    if not path.is_file():
        raise DataError(
            f"{folder} has no results.json: give a folder that 'protodepth demo' or 'protodepth train' wrote and "
            "finished"
        )
    try:
        document = files.read_sealed(path, earlier=(*EARLIER, "experiments"))
        listed = document.pop("files", {})
        for name, sha256 in listed.items() if isinstance(listed, dict) else ():
            files.check_file(check_inside(folder / name, folder), sha256)
    except CheckpointError as error:
        raise DataError(str(error)) from None
    _check(document, path)
    stored = folder / "samples.npz"
    return document, load_samples(stored) if stored.is_file() else []


def _check(document: Document, path: Path) -> None:
    needed = ("rows", "matrix", "seconds", "domains")
    lacks = [key for key in needed if key not in document]
    rows = document["rows"] if isinstance(document.get("rows"), list) else []
    rows = [row if isinstance(row, dict) else {} for row in rows]
    lacks += [f"{key} in a row" for key in ("method", "setting", *SCORES) if not all(key in row for row in rows)]
    lacks += [] if rows else ["any row"]
    if lacks:
        raise DataError(
            f"{path} has no {', '.join(dict.fromkeys(lacks))}: it is not a result of protodepth, "
            "or of an older version; run it again"
        )


def report_from_runs(folders: Sequence[str | Path], out: str | Path, title: str = TITLE) -> list[Path]:
    """Merge run folders into one report: ``out`` (.html) and beside it the same as .md and .json.
    Returns the three paths.

    Runs on the same sequence of domains share their tables; each other sequence gets its own part.
    """
    out = Path(out)
    if out.is_dir():
        raise DataError(f"{out} is a folder: give the name of the report to write, as {out / 'report.html'}")
    if not folders:
        raise DataError("no run folder was given: expected at least one folder with a results.json")
    runs = {name: read_run(folder) for name, folder in _names(folders).items()}
    try:
        return _write_report(runs, out, title)
    except (LookupError, TypeError, ValueError, AttributeError, ZeroDivisionError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]  # of files without a seal, which anything may be in
        names = ", ".join(str(Path(folder) / "results.json") for folder in folders)
        raise DataError(f"{names}: not a result of protodepth or damaged ({reason}); run it again") from None


def _write_report(runs: dict[str, tuple[Document, list[Sample]]], out: Path, title: str) -> list[Path]:
    groups: dict[tuple[str, ...], dict[str, tuple[Document, list[Sample]]]] = {}
    for name, run in runs.items():
        groups.setdefault(tuple(run[0].get("domains", [])), {})[name] = run
    parts = [
        Part(" → ".join(k), merge({n: d for n, (d, _) in g.items()}), merge_samples({n: s for n, (_, s) in g.items()}))
        for k, g in groups.items()
    ]
    stem = out.with_suffix("") if out.suffix in (".html", ".md", ".json") else out
    paths = [stem.with_name(stem.name + ending) for ending in (".html", ".md", ".json")]
    claims.check_free(paths[1:], ours=paths[0].exists())  # these two were not named
    combined: Any = parts[0].document if len(parts) == 1 else {"parts": [{"name": p.name, **p.document} for p in parts]}
    texts = page(parts, title), "\n".join(markdown(p.document, p.name or title) for p in parts)
    for path, text in zip(paths, texts, strict=False):
        files.write_bytes(path, text.encode(errors="replace"))
    files.write_json(paths[2], combined)
    return paths


def _names(folders: Sequence[str | Path]) -> dict[str, Path]:
    """Short names that tell the folders apart: the last part, or the whole path where that is not enough."""
    paths = [Path(f) for f in folders]
    last = [p.resolve().name for p in paths]
    return {name if last.count(name) == 1 else str(p): p for name, p in zip(last, paths, strict=True)}


def merge_samples(runs: dict[str, list[Sample]]) -> list[Sample]:
    """The same frame of several runs becomes one sample; a label that several runs use gets the run's name."""
    labels = [label for samples in runs.values() for label in {label for s in samples for label in s.predictions}]
    merged: dict[tuple[str, str, bytes], Sample] = {}
    for run, samples in runs.items():
        for s in samples:
            own = {f"{k} ({run})" if labels.count(k) > 1 else k: v for k, v in s.predictions.items()}
            key = (s.domain, s.name, s.image.tobytes())
            first = merged.get(key, replace(s, predictions={}))
            chooser = first if first.chosen else s
            merged[key] = replace(
                first, predictions={**first.predictions, **own}, chosen=chooser.chosen, similarity=chooser.similarity
            )
    return list(merged.values())


def print_table(document: dict[str, Any]) -> None:
    """Print the table of a run's scores on the terminal, as wide as that is."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width: all twelve numbers
        console = Console(width=140)
    console.print(terminal_table(document, width=console.width))


__all__ = [
    "Document",
    "Sample",
    "about_run",
    "add_predictions",
    "collect",
    "curve_chart",
    "display_name",
    "html",
    "load_samples",
    "markdown",
    "read_run",
    "report_from_runs",
    "results_document",
    "save_samples",
    "terminal_table",
    "write_run",
]
