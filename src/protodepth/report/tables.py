"""Tables of numbers with spread and the paper's printed value beside them, as Markdown and HTML."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np


@dataclass(frozen=True, slots=True)
class Value:
    """A number over seeds: mean, standard deviation (None with one seed), and what the paper prints for it."""

    mean: float | None
    spread: float | None = None
    paper: float | None = None

    @classmethod
    def of(cls, values: Sequence[float | None], paper: float | None = None) -> "Value":
        """
        >>> Value.of([1.0, 3.0])
        Value(mean=2.0, spread=1.4142135623730951, paper=None)
        """
        known = [float(v) for v in values if v is not None and math.isfinite(v)]
        if not known:
            return cls(None, None, paper)
        return cls(float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else None, paper)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: title, unit, decimals, whether the best is marked."""

    title: str
    group: str = ""
    unit: str = ""
    decimals: int = 1
    ranked: bool = True  # lower is better, best and second best are marked
    floor: float | None = None  # values at or below it are equally good: nobody forgets less than nothing


@dataclass(frozen=True, slots=True)
class Line:
    """One row.  ``group``: rows that are compared with each other (one network); ``ranked`` False:
    stands outside of the comparison.
    """

    heads: tuple[str, ...]
    cells: tuple[Value | str, ...]
    group: str = ""
    ranked: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: columns, rows, title and note."""

    name: str
    title: str
    heads: tuple[str, ...]
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    note: str = ""


def _number(value: float | None, decimals: int) -> str:
    """
    >>> _number(1234.567, 1), _number(None, 2)
    ('1234.6', '–')
    """
    return "–" if value is None or not math.isfinite(value) else f"{value:.{decimals}f}"


def marks(table: Table, column: int) -> list[str]:
    """``best``, ``second`` or nothing for each line, within its group."""
    out = [""] * len(table.lines)
    if not table.columns[column].ranked:
        return out
    for group in dict.fromkeys(line.group for line in table.lines):
        means = {}
        for n, line in enumerate(table.lines):
            cell = line.cells[column]
            if line.group == group and line.ranked and isinstance(cell, Value) and cell.mean is not None:
                floor = table.columns[column].floor
                means[n] = cell.mean if floor is None else max(floor, cell.mean)
        order = sorted(set(means.values()))[:2]
        for n, value in means.items():
            if len(means) > 1 and value in order:
                out[n] = ("best", "second")[order.index(value)]
    return out


def markdown(table: Table) -> str:
    """A pipe table; ``[..]`` is what the paper prints."""
    titles = [f"{c.group} {c.title}".strip() + (f" ({c.unit})" if c.unit else "") for c in table.columns]
    marked = [marks(table, n) for n in range(len(table.columns))]
    styles = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
    rows = []
    for n, line in enumerate(table.lines):
        texts = [_markdown_cell(c, table.columns[i].decimals, styles[marked[i][n]]) for i, c in enumerate(line.cells)]
        rows.append([*line.heads, *texts])
    rule = ["---"] * len(table.heads) + ["---:"] * len(table.columns)
    lines = [f"| {' | '.join(row)} |" for row in ([*table.heads, *titles], rule, *rows)]
    return "\n".join([f"### {table.title}", "", *lines, "", *([table.note, ""] if table.note else [])])


def _markdown_cell(cell: Value | str, decimals: int, style: str) -> str:
    if isinstance(cell, str):
        return cell
    text = style.format(_number(cell.mean, decimals)) if cell.mean is not None else "–"
    text += f" ± {_number(cell.spread, decimals)}" if cell.spread is not None else ""
    return text + (f" [{cell.paper:g}]" if cell.paper is not None else "")


def html(table: Table) -> str:
    """A table of the report page: the paper's number small beneath ours."""
    groups: list[list[str | int]] = []
    for c in table.columns:
        if groups and groups[-1][0] == c.group:
            groups[-1][1] = int(groups[-1][1]) + 1
        else:
            groups.append([c.group, 1])
    top = "".join(f'<th colspan="{n}" scope="colgroup">{escape(str(g))}</th>' for g, n in groups)
    first = f'<tr><td colspan="{len(table.heads)}"></td>{top}</tr>' if any(c.group for c in table.columns) else ""
    heads = "".join(f'<th scope="col">{escape(h)}</th>' for h in table.heads)
    units = "".join(f'<th scope="col">{escape(c.title)}<small>{escape(c.unit)}</small></th>' for c in table.columns)
    marked = [marks(table, n) for n in range(len(table.columns))]
    body = ""
    for n, line in enumerate(table.lines):
        new = n and line.group != table.lines[n - 1].group
        kind = " ".join(k for k, on in (("quiet", not line.ranked), ("start", new)) if on)
        cells = "".join(_html_cell(c, table.columns[i].decimals, marked[i][n]) for i, c in enumerate(line.cells))
        names = "".join(f'<th scope="row">{escape(h)}</th>' for h in line.heads)
        body += f'<tr class="{kind}">{names}{cells}</tr>'
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<h3>{escape(table.title)}</h3><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{escape(table.title)}"><table class="scores bench"><thead>{first}<tr>{heads}{units}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )


def _html_cell(cell: Value | str, decimals: int, mark: str) -> str:
    if isinstance(cell, str):
        return f"<td>{escape(cell)}</td>"
    spread = f'<small class="spread">± {_number(cell.spread, decimals)}</small>' if cell.spread is not None else ""
    paper = f'<small class="paper">paper {cell.paper:g}</small>' if cell.paper is not None else ""
    return f'<td class="{mark}"><span>{_number(cell.mean, decimals)}</span>{spread}{paper}</td>'
