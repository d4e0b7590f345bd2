"""Tables in Markdown and HTML."""

from helpers.bench_cells import make_table
from protodepth.report import tables
from protodepth.report.tables import Column, Line, Table, Value


def test_best_and_second_best_are_marked_among_the_ranked():
    assert tables.marks(make_table(1.0, 5.0, 3.0, 4.0, None), 0) == ["", "", "best", "second", ""]
    assert tables.marks(make_table(1.0, 3.0, 3.0, 4.0), 0) == ["", "best", "best", "second"]
    text = tables.markdown(make_table(1.0, 5.0, 3.0))
    assert "| m2 | **3.0** |" in text
    assert "| m1 | <u>5.0</u> |" in text


def test_a_table_shows_spread_and_the_printed_number_and_escapes_names():
    line = Line(("<b>",), (Value(1.26, 0.24, 16.08),))
    table = Table(name="t", title="T", heads=("Method",), columns=(Column("MAE", "", "mm"),), lines=(line,))
    assert "| 1.3 ± 0.2 [16.08] |" in tables.markdown(table)
    html = tables.html(table)
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "paper 16.08" in html
