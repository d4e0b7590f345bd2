"""What a bench page opens with: one picture for each sequence, and three sentences.

A point is a method with a network: its mean error (MAE) on the domains when each was learned against the one after
the last domain.  On the diagonal nothing is forgotten.  Everything is read from the tables of the page.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from protodepth.report.bench_page import Figure, Section
from protodepth.report.charts import Level, Spot, method_colour, plane_chart
from protodepth.report.results import METHOD_NAMES, UNRANKED
from protodepth.report.tables import Line, Table, Value

OURS = METHOD_NAMES["protodepth"]
KEYS = {name: key for key, name in METHOD_NAMES.items()}
READ = (
    "Each point is a method with a network: further left, its error (MAE, mean over the domains) just after learning is"
    " smaller; further down, its error after the last domain is; on the solid line nothing is forgotten."
)


@dataclass(frozen=True, slots=True)
class TwoErrors:
    """Where a method with a network stands, in mm."""

    network: str
    method: str
    learned: float
    end: float

    @property
    def lost(self) -> float:
        """How much the error has grown by the end, in per cent."""
        return 100 * (self.end / self.learned - 1)

    @property
    def ranked(self) -> bool:
        return KEYS.get(self.method) not in UNRANKED


def opening(sections: Sequence[Section]) -> Section | None:
    """The first section of the page, or None where no sequence was learned."""
    by_sequence = {s.name: places(s) for s in sections}
    by_sequence = {name: spots for name, spots in by_sequence.items() if spots}
    if not by_sequence:
        return None
    levels = {name: bounds(name, sections) for name in by_sequence}
    networks = tuple(dict.fromkeys(p.network for spots in by_sequence.values() for p in spots))
    figures = [
        Figure(
            f"overview-{name}",
            f"{name}: error when learned and at the end{_more_lines(name, levels[name])}",
            svg=_chart(spots, levels[name], networks),
        )
        for name, spots in by_sequence.items()
    ]
    forgotten = _forgetting_words([p for spots in by_sequence.values() for p in spots])
    lowest = "; ".join(_lowest_words(name, spots, levels[name]) for name, spots in by_sequence.items())
    sentences = [READ, *([forgotten] if forgotten else []), f"The lowest error at the end: {lowest}."]
    text = "\n\n".join(sentences)
    return Section(name="overview", title="At a glance", about=text, figures=figures, picture_first=True)


def places(section: Section) -> list[TwoErrors]:
    """The rows of the section's table of stages, as points."""
    table = _table(section, "stages")
    if table is None:
        return []
    spots = []
    for line in table.lines:
        learned = [_mean(line, n) for n, c in enumerate(table.columns) if c.title == "learned"]
        end = [_mean(line, n) for n, c in enumerate(table.columns) if c.title == "at the end"]
        end.append(learned[-1])  # of the last domain both are the same
        if np.isfinite([*learned, *end]).all():
            spots.append(TwoErrors(line.heads[0], line.heads[1], float(np.mean(learned)), float(np.mean(end))))
    return spots


def bounds(name: str, sections: Sequence[Section]) -> list[Level]:
    """The best interpolation and joint training on the same sequence, where the page has them."""
    own = next(s for s in sections if s.name == name)
    levels = []
    for section in sections:
        table = _table(section, name) if section.name == "classical" else None
        if table is not None:
            means = {
                line.heads[0]: float(np.mean([_mean(line, n) for n, c in enumerate(table.columns) if c.title == "MAE"]))
                for line in table.lines
                if not line.heads[0].endswith(", base")
            }
            best = min(means, key=lambda n: means[n])
            levels.append(Level(f"{best} interpolation", means[best]))
        joint = _table(section, "mean") if section.name == "joint" and _sequence(section) == _sequence(own) else None
        if joint is not None:
            levels += [
                Level(f"joint training, {line.heads[0]}", _mean(line, 0))
                for line in joint.lines
                if line.heads[1] == METHOD_NAMES["joint"]
            ]
    return [level for level in levels if np.isfinite(level.y)]


def _more_lines(name: str, levels: Sequence[Level]) -> str:
    """Which command draws the bounds that the picture has not."""
    shown = {"joint" if level.label.startswith("joint") else "classical" for level in levels}
    missing = {"classical": "interpolation", "joint": "joint training"}
    lines = " and ".join(words for key, words in missing.items() if key not in shown)
    experiments = " ".join(key for key in missing if key not in shown)
    return f" ('bench {name} {experiments} --sequence {name}' draws {lines}, too)" if lines else ""


def _sequence(section: Section) -> str:
    return section.about.partition("Sequence: ")[2]


def _table(section: Section, name: str) -> Table | None:
    return next((t for t in section.tables if t.name == name), None)


def _mean(line: Line, column: int) -> float:
    cell = line.cells[column]
    return cell.mean if isinstance(cell, Value) and cell.mean is not None else float("nan")


def _chart(spots: Sequence[TwoErrors], levels: Sequence[Level], networks: Sequence[str]) -> str:
    """SVG text; colour by method, shape by network, ProtoDepth-A hollow."""
    shapes = [
        Spot(
            p.learned,
            p.end,
            method_colour(KEYS.get(p.method.removesuffix("-A"), p.method)),
            p.method,
            p.network,
            hollow=p.method.endswith("-A"),
        )
        for p in spots
    ]
    labels = {"x_label": "error when learned (mm)", "y_label": "error at the end (mm)"}
    return plane_chart(shapes, levels, kinds=networks, **labels)


def _forgetting_words(spots: Sequence[TwoErrors]) -> str:
    """How much finetuning and ProtoDepth lose, over all networks and sequences."""
    parts = []
    for method in (METHOD_NAMES["finetune"], OURS, f"{OURS}-A"):
        lost = sorted(round(p.lost) for p in spots if p.method == method)
        if lost:
            ends = [f"{value:+d}".replace("+0", "0") for value in dict.fromkeys((lost[0], lost[-1]))]
            parts.append(f"{' to '.join(ends)} % with {method}")
    return f"By the end the error has changed by {', by '.join(parts)}." if parts else ""


def _lowest_words(name: str, spots: Sequence[TwoErrors], levels: Sequence[Level]) -> str:
    """Which method has the lowest error at the end, beside the bounds."""
    ranked = [p for p in spots if p.ranked] or list(spots)
    best = min(ranked, key=lambda p: p.end)
    beside = "".join(f"; {level.label} {level.y:.0f} mm" for level in levels)
    return f"{name} {best.method} on {best.network} ({best.end:.0f} mm{beside})"
