"""The stopwatch: fair turns, counts that can be checked by hand, numbers that fit together."""

import json
from pathlib import Path

import pytest
import torch

from protodepth.backbones.lite import Lite
from protodepth.cli import main
from protodepth.errors import ConfigError, UnknownNameError
from protodepth.inference import speed
from protodepth.inference.engines.graph import random_batch
from protodepth.inference.speed import measure_speed
from protodepth.model import ProtoDepth


@pytest.fixture(scope="module")
def model() -> ProtoDepth:
    torch.manual_seed(0)
    found = ProtoDepth(Lite((0.1, 8.0), (4, 6, 8, 10, 12), (4, 4, 6, 6, 8)))
    found.add_domain("room", base=True)
    found.add_domain("hall")
    return found


def test_rows_fit_together(model: ProtoDepth):
    result = measure_speed(model, size=(48, 64), engines=("channels_last",), runs=3, warmup=1)
    rows = {row.name: row for row in result.rows}
    assert list(rows) == ["base", "adapted (hall)", "choosing", "channels_last"]
    for row in result.rows:
        assert 0 < row.cpu <= row.cpu_p95
        assert 0 < row.wall <= row.wall_p95
        assert row.warmup > 0
        assert row.share == pytest.approx(row.gflop / (row.cpu / 1000) / result.peak)
    assert rows["base"].over_base == 1
    assert rows["adapted (hall)"].gflop > rows["base"].gflop  # the prototypes' products
    assert rows["channels_last"].gflop == rows["adapted (hall)"].gflop
    assert result.parameters == sum(p.numel() for p in model.backbone.parameters())
    assert result.per_domain["room"] == 0 < result.per_domain["hall"]
    assert json.loads(json.dumps(result.to_json()))["rows"][0]["name"] == "base"


def test_the_table_and_the_chart_show_every_row(model: ProtoDepth):
    result = measure_speed(model, size=(32, 48), runs=1, warmup=0)
    table = [line for line in result.markdown().splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(result.rows)
    assert {line.count("|") for line in table} == {11}
    assert result.chart().count("<rect") == len(result.rows)
    assert all(row.name in result.chart() for row in result.rows)


def test_another_layout_is_another_copy_that_answers_the_same(model: ProtoDepth):
    batch = random_batch((48, 64), 1, (0.1, 8.0))
    before = model.predict_batch(batch, "hall").depth
    outputs: list[torch.Tensor] = []
    with pytest.MonkeyPatch.context() as patch:
        original = ProtoDepth.predict_batch
        patch.setattr(ProtoDepth, "predict_batch", lambda *a, **k: outputs.append(original(*a, **k).depth))
        speed.engine_call(model, batch, "channels_last", "hall", 1)()
    torch.testing.assert_close(outputs[0], before, rtol=1e-5, atol=1e-6)
    assert all(p.is_contiguous() for p in model.backbone.parameters())


def test_engines_that_are_not_installed_are_left_out_of_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(speed, "find_spec", lambda name: None if name == "openvino" else name)
    assert speed.installed() == ("channels_last", "onnx")


def test_more_pixels_are_more_work_in_proportion(model: ProtoDepth):
    small, large = (measure_speed(model, size=size, runs=1, warmup=0).rows[0].gflop for size in ((32, 48), (64, 96)))
    assert large == pytest.approx(4 * small, rel=0.01)


def test_bad_requests_are_refused(model: ProtoDepth):
    with pytest.raises(ConfigError, match="at least 1"):
        measure_speed(model, runs=0)
    with pytest.raises(UnknownNameError, match="room, hall"):
        measure_speed(model, size=(32, 48), domain="cellar")


def test_the_command_prints_a_table_and_writes_its_numbers(model: ProtoDepth, tmp_path: Path, capsys):
    model.save_pretrained(tmp_path / "model")
    threads = torch.get_num_threads()
    words = [
        "speed",
        "--model",
        str(tmp_path / "model"),
        "--size",
        "32x48",
        "--runs",
        "2",
        "--warmup",
        "0",
        "--engine",
        "none",
    ]
    try:
        assert main.run([*words, "--threads", "1", "--json", str(tmp_path / "speed.json")]) == 0
    finally:
        torch.set_num_threads(threads)
    out = capsys.readouterr().out
    assert "adapted (hall)" in out
    assert "1 thread," in out
    numbers = json.loads((tmp_path / "speed.json").read_text())
    assert numbers["size"] == [32, 48]
    assert numbers["threads"] == 1
    assert (tmp_path / "speed.md").read_text().count("adapted (hall)") == 1
    assert (tmp_path / "speed.svg").read_text().startswith("<svg")
    assert main.run([*words[:4], "32", *words[5:]]) == 2
