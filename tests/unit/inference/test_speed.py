"""The stopwatch: fair turns, counts that can be checked by hand, numbers that fit together."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from protodepth.backbones.lite import Lite
from protodepth.cli import main
from protodepth.errors import ConfigError, UnknownNameError
from protodepth.inference.speed import gflop, in_turns, machine_peak, measure_speed, peak_memory
from protodepth.model import ProtoDepth


@pytest.fixture(scope="module")
def model() -> ProtoDepth:
    torch.manual_seed(0)
    found = ProtoDepth(Lite((0.1, 8.0), (4, 6, 8, 10, 12), (4, 4, 6, 6, 8)))
    found.add_domain("room", base=True)
    found.add_domain("hall")
    return found


def test_every_call_runs_once_a_round_and_rounds_start_with_different_ones():
    seen: list[str] = []
    calls = {name: (lambda name=name: seen.append(name)) for name in "abc"}
    times = in_turns(calls, runs=4, warmup=1)
    rounds = [seen[i : i + 3] for i in range(0, len(seen), 3)]
    assert [sorted(r) for r in rounds] == [["a", "b", "c"]] * 5
    assert len({r[0] for r in rounds[1:4]}) == 3
    assert {name: len(t) for name, t in times.items()} == {"a": 4, "b": 4, "c": 4}


def test_operations_are_those_counted_by_hand():
    conv = nn.Conv2d(3, 8, 3, padding=1)
    count = 2 * (3 * 3 * 3) * 8 * (16 * 20)  # multiply and add, for every weight and every pixel
    assert gflop(lambda: conv(torch.rand(1, 3, 16, 20))) * 1e9 == pytest.approx(count)


def test_rows_fit_together(model: ProtoDepth):
    result = measure_speed(model, size=(48, 64), runs=3, warmup=1)
    rows = {row.name: row for row in result.rows}
    assert list(rows) == ["base", "adapted (hall)", "choosing"]
    for row in result.rows:
        assert 0 < row.least <= row.median <= row.p95
        assert row.over_base == pytest.approx(row.median / rows["base"].median)
        assert row.share == pytest.approx(row.gflop / (row.median / 1000) / result.peak)
    assert rows["base"].over_base == 1
    assert rows["adapted (hall)"].gflop > rows["base"].gflop  # the prototypes' products
    assert result.parameters == sum(p.numel() for p in model.backbone.parameters())
    assert result.per_domain["room"] == 0 < result.per_domain["hall"]
    assert json.loads(json.dumps(result.to_json()))["rows"][0]["name"] == "base"


def test_more_pixels_are_more_work_in_proportion(model: ProtoDepth):
    small, large = (measure_speed(model, size=size, runs=1, warmup=0).rows[0].gflop for size in ((32, 48), (64, 96)))
    assert large == pytest.approx(4 * small, rel=0.01)


def test_peak_memory_sees_a_large_array_while_it_lives():
    before = peak_memory(lambda: None)
    if before is None:
        pytest.skip("the system does not tell the peak of a process")
    assert peak_memory(lambda: torch.ones(64, 2**20).sum()) > before + 200  # 256 MiB
    assert peak_memory(lambda: None) < before + 100


def test_the_peak_of_the_machine_is_a_plausible_number():
    assert 0.1 < machine_peak(torch.device("cpu"), side=256, runs=2) < 1e6


def test_bad_requests_are_refused(model: ProtoDepth):
    with pytest.raises(ConfigError, match="at least 1"):
        measure_speed(model, runs=0)
    with pytest.raises(UnknownNameError, match="room, hall"):
        measure_speed(model, size=(32, 48), domain="cellar")


def test_the_command_prints_a_table_and_writes_its_numbers(model: ProtoDepth, tmp_path: Path, capsys):
    model.save_pretrained(tmp_path / "model")
    threads = torch.get_num_threads()
    words = ["speed", "--model", str(tmp_path / "model"), "--size", "32x48", "--runs", "2", "--warmup", "0"]
    try:
        assert main.run([*words, "--threads", "1", "--json", str(tmp_path / "speed.json")]) == 0
    finally:
        torch.set_num_threads(threads)
    out = capsys.readouterr().out
    assert "adapted (hall)" in out
    assert "1 threads" in out
    numbers = json.loads((tmp_path / "speed.json").read_text())
    assert numbers["size"] == [32, 48]
    assert numbers["threads"] == 1
    assert main.run([*words[:4], "32", *words[5:]]) == 2
