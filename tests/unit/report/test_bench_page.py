"""The report of a bench."""

import json

from helpers.bench_cells import make_table
from protodepth.report import bench_page as page
from protodepth.report import bench_page as report_bench
from protodepth.report.tables import Column, Line, Table, Value


def test_the_report_is_written_three_times_with_its_figures(tmp_path):
    figure = page.Figure("curve", "a curve", svg="<svg></svg>")
    section = page.Section(
        name="x", title="x: y", about="z", tables=[make_table(1.0, 2.0, 3.0)], figures=[figure], findings=["found"]
    )
    html, text, data = page.write(tmp_path, [section], {"command": "c"})
    assert "found" in html.read_text()
    assert "<svg></svg>" in html.read_text()
    assert "http" not in html.read_text().split("<body", 1)[1].replace("http://www.w3.org/2000/svg", "")
    assert "![a curve](figures/x/curve.svg)" in text.read_text()
    assert (tmp_path / "figures" / "x" / "curve.svg").read_text() == "<svg></svg>"
    assert json.loads(data.read_text())["experiments"]["x"]["tables"]["t"][2]["MAE"]["mean"] == 3.0


def test_two_columns_of_one_name_are_told_apart_by_their_unit_in_the_records():
    columns = (
        Column("parameters", "a domain", "M"),
        Column("parameters", "a domain", "%"),
        Column("MAE", "room", "mm"),
    )
    made = Table(
        name="t",
        title="",
        heads=("Method",),
        columns=columns,
        lines=(Line(("x",), (Value(1.0), Value(2.0), Value(3.0))),),
    )
    (row,) = report_bench.records(made)
    assert {k: v["mean"] for k, v in row.items() if k != "Method"} == {
        "a domain parameters, M": 1.0,
        "a domain parameters, %": 2.0,
        "room MAE": 3.0,
    }
