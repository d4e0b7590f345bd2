"""The speed benchmark: its yardstick computes the same, its bars can fail, and the document shows its numbers."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from helpers.documents import ROOT
from protodepth.backbones.kbnet import KBNet
from protodepth.inference.engines.graph import random_batch

FILE = ROOT / "benchmarks" / "speed.json"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    return loaded("speed")


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_benchmark", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_yardstick_computes_the_same_depth_by_more_comparisons(benchmark: ModuleType) -> None:
    torch.manual_seed(0)
    network = KBNet.from_preset("small").eval()
    batch = random_batch((48, 64), 2, network.depth_range)

    def pools() -> int:
        with torch.no_grad(), torch.autograd.profiler.profile() as record:
            depths.append(network(batch))
        return sum(e.count for e in record.key_averages() if e.key == "aten::max_pool2d")

    depths: list[torch.Tensor] = []
    ours = pools()
    with benchmark.plain():
        theirs = pools()
    assert torch.equal(*depths)
    assert (ours, theirs) == (0, 6)  # two minima, three maxima, one for outliers


def test_a_bar_that_is_missed_says_so(benchmark: ModuleType) -> None:
    assert benchmark.Measured("step", 0.6, 0.55).reached is False
    assert benchmark.Measured("eager", 2.5, 2.0, ">=").reached is True
    assert "| step | 0.600 x | <= 0.55 x | not reached |" in benchmark.table([benchmark.Measured("step", 0.6, 0.55)])


def test_the_bound_by_convolutions_counts_the_encoder_once_and_the_decoder_twice(benchmark: ModuleType) -> None:
    bound = benchmark.convolution_bound(KBNet.from_preset("small"), (48, 64))
    assert 1 / 3 < bound < 2 / 3


def test_the_document_shows_the_numbers_of_the_committed_run(benchmark: ModuleType) -> None:
    document = json.loads(FILE.read_text())
    rows = [benchmark.Measured(**{k: v for k, v in bar.items() if k != "reached"}) for bar in document["bars"]]
    assert [row.reached for row in rows] == [bar["reached"] for bar in document["bars"]]
    text = (ROOT / "docs" / "performance.md").read_text()
    assert benchmark.table(rows) in text
    assert benchmark.details(document) in text


def test_the_document_shows_the_numbers_of_the_other_machine_and_what_int8_loses(benchmark: ModuleType) -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    document = json.loads((ROOT / "benchmarks" / "speed_xeon.json").read_text())
    rows = [benchmark.Measured(**{k: v for k, v in bar.items() if k != "reached"}) for bar in document["bars"]]
    assert [row.reached for row in rows] == [bar["reached"] for bar in document["bars"]]
    assert benchmark.table(rows) in text
    assert benchmark.details(document) in text
    errors = json.loads((ROOT / "benchmarks" / "int8.json").read_text())
    assert loaded("int8").table(errors) in text


def test_charts_of_growth_show_every_kind_of_it(benchmark: ModuleType) -> None:
    threads = {"1": {"cpu_ms": 5.0, "wall_ms": 6.0}, "2": {"cpu_ms": 7.0, "wall_ms": 4.0}}
    document = {
        "sizes": {"mib": {"60x80": 10.0, "120x160": 30.0}},
        "learning": {"seconds_by_steps": {"1": 1.0, "2": 2.0}, "seconds_by_frames": {"8": 2.0, "32": 2.1}},
        "cores": {"ms": {"eager": threads, "onnx": threads}},
    }
    charts = benchmark.growth_charts(document)
    assert set(charts) == {"memory", "steps", "frames", "threads"}
    assert "eager, wall" in charts["threads"]
    assert "onnx, cpu" in charts["threads"]


def test_of_two_files_the_later_says_how_a_part_and_its_bar_are(benchmark: ModuleType, tmp_path: Path) -> None:
    bars = [{"name": "a", "value": 1.0}, {"name": "b", "value": 2.0}]
    (tmp_path / "old.json").write_text(json.dumps({"bars": bars, "memory": 1, "growth": 1}))
    (tmp_path / "new.json").write_text(json.dumps({"bars": [{"name": "a", "value": 3.0}], "memory": 2}))
    whole = benchmark.joined([tmp_path / "old.json", tmp_path / "new.json"])
    assert whole == {"bars": [{"name": "a", "value": 3.0}, bars[1]], "memory": 2, "growth": 1}


def test_estimates_for_other_machines_are_those_of_the_committed_run_and_called_so() -> None:
    estimates = loaded("estimates")
    document = json.loads((ROOT / "benchmarks" / "estimates.json").read_text())
    text = (ROOT / "docs" / "performance.md").read_text()
    assert estimates.table(document) in text
    assert estimates.table(document).startswith("| estimate")


def test_a_bound_is_the_slower_of_operations_bytes_and_starts() -> None:
    estimates = loaded("estimates")
    machine = estimates.Machine("m", gflops=10, gbytes=5, starts=0.001)
    assert estimates.Work(gflop=20, gbyte=1, operations=1).bound(machine) == 2
    assert estimates.Work(gflop=1, gbyte=15, operations=1).bound(machine) == 3
    assert estimates.Work(gflop=1, gbyte=1, operations=4000).bound(machine) == 4
