"""The tables of ``bench real`` from hand-made rows: ratios, means, the worst setting, what a reader is told."""

import json
import math
from pathlib import Path

import pytest

from helpers.real_rows import document, row, rows
from protodepth.report import real_page, tables
from protodepth.report.bench_page import Figure
from protodepth.report.real_page import Measurements


def test_a_ratio_is_to_the_best_classical_method_of_the_same_setting() -> None:
    found = Measurements.of(rows())
    assert found.ratios("net") == {("desk", "500"): 0.75, ("desk", "holes"): 1.1, ("car", "lidar"): 0.75}
    assert found.ratios("nearest")["desk", "500"] == 1.25
    assert found.gains("net, adapted") == {("desk", "500"): 0.8, ("desk", "holes"): 1.0, ("car", "lidar"): 0.9}
    assert found.gains("net") == {}


def test_the_summary_has_means_the_worst_setting_and_how_many_lose() -> None:
    line = next(x for x in real_page.summary(Measurements.of(rows())).lines if x.heads == ("net",))
    mae, rmse, holes, worst, which, above, *_ = line.cells
    assert isinstance(mae, tables.Value)
    assert mae.mean == pytest.approx((0.75 + 1.1 + 0.75) / 3)
    assert rmse == mae
    assert holes == tables.Value(1.1)
    assert worst == tables.Value(1.1)
    assert which == "desk holes"
    assert above == "1 of 3"


def test_findings_speak_of_networks_alone_and_of_what_adapting_gave() -> None:
    base, adapted, agnostic = real_page.findings(Measurements.of(rows()))
    assert base.startswith("net: MAE 0.867")
    assert "desk holes (1.10), above 1.0 in 1 of 3" in base
    assert "its base's" not in base
    assert "0.900 of its base's MAE, at worst 1.000" in adapted
    assert agnostic.startswith("net, ProtoDepth-A: MAE 0.825")
    assert "1.100 of its base's" in agnostic


def test_a_prediction_that_is_no_depth_counts_as_lost_and_not_as_missing() -> None:
    broken = [r if r["role"] != "base" else row(r["recording"], r["pattern"], "base", "net", None) for r in rows()]
    assert math.isinf(Measurements.of(broken).ratios("net")["desk", "500"])
    line = next(x for x in real_page.summary(Measurements.of(broken)).lines if x.heads == ("net",))
    assert line.cells[5] == "3 of 3"


def test_the_table_of_choices_has_the_recording_as_it_is_first_and_each_pattern() -> None:
    table = real_page.choosing(rows(), document()["choices"])
    assert [line.heads for line in table.lines] == [("net", "desk", real_page.AS_IT_IS), ("net", "desk", "500")]
    assert table.lines[0].cells[3] == tables.Value(50.0)
    assert table.lines[1].cells[1] == tables.Value(75.0)
    assert table.lines[1].cells[-1] == "desk 3, car 1"


def test_the_page_is_made_of_the_stored_document_alone(tmp_path: Path) -> None:
    figure = Figure("desk-500", "desk & chair", jpeg=b"\xff\xd8picture")
    paths = real_page.write(tmp_path / "a", document(), {"command": "protodepth bench real"}, {"desk": [figure]})
    stored = json.loads(paths[2].read_text())["experiments"]["real"]
    assert stored["rows"] == rows()
    again = {**stored, "missing": stored["unfinished"]}
    other = real_page.write(tmp_path / "b", again, {"command": "protodepth bench real"}, {"desk": [figure]})
    assert paths[0].read_bytes() == other[0].read_bytes()
    assert paths[1].read_bytes() == other[1].read_bytes()
    html = paths[0].read_text()
    assert "data:image/jpeg;base64," in html
    assert "desk &amp; chair" in html
    assert "Average forgetting" not in html  # the words of a sequence's scores have no place here
    assert (tmp_path / "a" / "figures" / "recording-desk" / "desk-500.jpg").read_bytes() == b"\xff\xd8picture"


def test_what_is_not_finished_is_said(tmp_path: Path) -> None:
    paths = real_page.write(tmp_path, document() | {"missing": ["desk tof base net"]}, {}, {})
    assert "not finished yet: desk tof base net" in paths[1].read_text()
