"""What the bench page opens with is read from its tables: a point for each method and network, bounds as lines."""

import re
import xml.etree.ElementTree as ET

import pytest

from protodepth.report import overview
from protodepth.report.bench_page import Section, _html
from protodepth.report.charts import Level, Spot, plane_chart
from protodepth.report.tables import Column, Line, Table, Value

STAGES = (Column("learned", "a", "mm"), Column("at the end", "a", "mm"), Column("learned", "b", "mm"))


def stages(*rows: tuple[str, str, float, float, float]) -> Table:
    lines = tuple(Line((network, method), tuple(Value(v) for v in values)) for network, method, *values in rows)
    return Table(name="stages", title="Error", heads=("Network", "Method"), columns=STAGES, lines=lines)


def sections() -> list[Section]:
    main = stages(
        ("lite", "Pretrained", 100, 100, 900),
        ("lite", "Finetuned", 100, 200, 300),
        ("lite", "ProtoDepth", 100, 100, 320),
        ("KBNet", "Finetuned", 200, 260, 400),
        ("KBNet", "ProtoDepth", 200, 200, 400),
    )
    columns = (Column("MAE", "a", "mm"), Column("RMSE", "a", "mm"), Column("MAE", "b", "mm"))
    floor = Table(
        name="indoor",
        title="",
        heads=("Predictor",),
        columns=columns,
        lines=(
            Line(("nearest",), (Value(300.0), Value(1.0), Value(500.0))),
            Line(("linear",), (Value(200.0), Value(9.0), Value(400.0))),
            Line(("lite, base",), (Value(1.0), Value(1.0), Value(None))),
        ),
    )
    joint = Table(
        name="mean",
        title="",
        heads=("Network", "Method"),
        columns=(Column("MAE", "", "mm"),),
        lines=(Line(("lite", "Joint"), (Value(150.0),)), Line(("lite", "ProtoDepth"), (Value(210.0),))),
    )
    return [
        Section(name="indoor", title="indoor", about="Sequence: a → b.", tables=[main], findings=["a finding"]),
        Section(name="joint", title="joint", about="Sequence: a → b.", tables=[joint]),
        Section(name="classical", title="classical", about="", tables=[floor]),
    ]


def test_a_point_is_the_mean_error_when_learned_and_at_the_end():
    found = {(p.network, p.method): (p.learned, p.end) for p in overview.places(sections()[0])}
    assert found["lite", "Finetuned"] == (200, 250)
    assert found["lite", "ProtoDepth"] == (210, 210)
    assert len(found) == 5


def test_interpolation_and_joint_of_the_same_sequence_are_lines():
    assert overview.bounds("indoor", sections()) == [
        Level("joint training, lite", 150.0),
        Level("linear interpolation", 300.0),
    ]
    other = [sections()[0], Section(name="joint", title="", about="Sequence: c → d.", tables=sections()[1].tables)]
    assert overview.bounds("indoor", other) == []


def test_the_page_opens_with_the_picture_then_three_sentences_and_findings_stand_below_the_tables():
    first = overview.opening(sections())
    assert first is not None
    sentences = first.about.split("\n\n")
    assert len(sentences) == 3
    assert sentences[1] == "By the end the error has changed by +10 to +25 % with Finetuned, by 0 % with ProtoDepth."
    assert sentences[2] == (
        "The lowest error at the end: indoor ProtoDepth on lite "
        "(210 mm; joint training, lite 150 mm; linear interpolation 300 mm)."
    )
    page = _html([first, *sections()], {})
    places = [page.index(text) for text in ("At a glance", "<svg", "Each point is", 'id="indoor"', "a finding")]
    assert places == sorted(places)
    assert page.index("</table>", page.index('id="indoor"')) < page.index("a finding")


def test_an_error_that_fell_by_the_end_is_not_said_to_have_grown_by_less_than_nothing():
    spots = [overview.TwoErrors("lite", "Finetuned", 100.0, end) for end in (98.0, 104.0)]
    assert overview._forgetting_words(spots) == "By the end the error has changed by -2 to +4 % with Finetuned."


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((0, 1, 2), ""),
        ((0, 1), " ('bench indoor classical --sequence indoor' draws interpolation, too)"),
        ((0, 2), " ('bench indoor joint --sequence indoor' draws joint training, too)"),
        ((0,), " ('bench indoor classical joint --sequence indoor' draws interpolation and joint training, too)"),
    ],
)
def test_a_picture_without_its_lines_says_which_command_draws_them(parts: tuple[int, ...], words: str):
    first = overview.opening([sections()[n] for n in parts])
    assert first is not None
    assert first.figures[0].title == f"indoor: error when learned and at the end{words}"


def test_a_ring_at_the_place_of_a_point_goes_around_it():
    """ProtoDepth-A with every choice right stands where ProtoDepth stands."""
    both = [Spot(100, 100, "#1", "P-A", "n", hollow=True), Spot(100, 100, "#1", "P", "n")]
    text = plane_chart(both, [], x_label="x", y_label="y")
    drawn = re.findall(r"scale\(([\d.]+)\)[^>]*fill:(none|#1);[^>]*><title>[^<]*when learned", text)
    assert drawn == [("1.25", "#1"), ("2.3", "none")]


def test_a_page_without_a_sequence_has_no_opening():
    assert overview.opening(sections()[1:]) is None


def test_the_chart_has_every_point_at_its_place_and_names_it():
    spots = [Spot(100, 100, "#111111", "A", "n"), Spot(200, 400, "#222222", "B", "m", hollow=True)]
    drawing = ET.fromstring(plane_chart(spots, [Level("floor", 300)], x_label="x", y_label="y"))
    space = "{http://www.w3.org/2000/svg}"
    shapes = {
        p.findtext(f"{space}title"): p for p in drawing.iter(f"{space}path") if p.find(f"{space}title") is not None
    }
    first, second = (p for title, p in shapes.items() if title and "when learned" in title)
    (x1, y1), (x2, y2) = (
        map(float, re.findall(r"translate\(([\d.]+) ([\d.]+)\)", p.get("transform", ""))[0]) for p in (first, second)
    )
    assert x1 < x2
    assert y1 > y2
    assert "fill:none" in second.get("style", "")
    (line,) = [e for e in drawing.iter(f"{space}line") if "5 4" in e.get("style", "")]
    assert y2 < float(line.get("y1", "")) < y1
    texts = [e.text for e in drawing.iter(f"{space}text")]
    assert {"A", "B", "n", "m", "floor, 300"} <= set(texts)


@pytest.mark.parametrize("end", [80.0, 100.0, 300.0])
def test_the_line_of_nothing_forgotten_crosses_the_chart_wherever_the_points_are(end: float):
    text = plane_chart([Spot(100, end, "#111111", "A", "n")], [], x_label="x", y_label="y")
    lines = re.findall(r'd="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)"', text)
    assert len(lines) == 1
    left, low, right, high = map(float, lines[0])
    assert (left, right) == (84, 590)  # the sides of the chart
    assert 18 <= high < low <= 330


@pytest.mark.parametrize("values", [(-0.01, 0.0, 4.0), (0.0, -3.0, 4.0)])
def test_forgetting_below_zero_is_no_better_than_zero(values):
    from protodepth.report import results, tables

    rows = [{"method": f"m{n}", "forgetting": {"mae": v / 100}} for n, v in enumerate(values)]
    assert results.marks(rows, "forgetting", "mae") == ["best", "best", "second"]
    lines = tuple(Line((f"m{n}",), (Value(v),)) for n, v in enumerate(values))
    table = Table(name="t", title="", heads=("Method",), columns=(Column("MAE", floor=0.0),), lines=lines)
    assert tables.marks(table, 0) == ["best", "best", "second"]
