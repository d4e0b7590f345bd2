"""The speed benchmark: its yardstick computes the same, its bars can fail, and the document shows its numbers."""

import importlib.util
import json
import sys
from types import ModuleType

import pytest
import torch

from helpers.documents import ROOT
from protodepth.backbones.kbnet import KBNet
from protodepth.inference.engines.graph import random_batch

FILE = ROOT / "benchmarks" / "speed.json"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("speed_benchmark", ROOT / "benchmarks" / "speed.py")
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
