"""The benchmark behind docs/choosing.md: how worlds differ follows from their definitions,
and the document holds its tables.
"""

import re
from pathlib import Path
from types import ModuleType

import pytest

from helpers.documents import ROOT, load_benchmark
from protodepth.data.worlds.worlds import WORLDS

DOCUMENT = ROOT / "docs" / "choosing.md"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    return load_benchmark("unknown_domains")


@pytest.mark.parametrize(
    ("known", "unseen", "expected"),
    [
        (["room"], "warehouse", "sensor"),  # corners picked in another way
        (["room"], "corridor_night", "sensor and light"),
        (["street"], "highway", "sensor"),  # 14 lines and 6, both in the sun
        (["street_dusk"], "highway", "light"),  # 7 lines and 6
        (["street", "street_dusk"], "highway", "sensor or light"),  # sensor from the first, light from the second
        (["highway"], "garden", "scenes only"),  # 6 lines and 8, by day
        (["room"], "street", "sensor and light"),  # another kind of sensor
    ],
)
def test_the_difference_of_worlds_is_read_off_their_definitions(benchmark, known, unseen, expected):
    assert benchmark.difference(known, unseen) == expected


def test_a_document_keeps_its_text_around_the_tables(benchmark, tmp_path: Path):
    (tmp_path / "a.md").write_text("before\n<!-- tables -->\nold\n<!-- end of tables -->\nafter\n")
    benchmark.write_into(tmp_path / "a.md", "new\n")
    assert (tmp_path / "a.md").read_text() == "before\n<!-- tables -->\nnew\n<!-- end of tables -->\nafter\n"


def test_the_document_has_every_pair_with_its_difference_and_means_that_fit(benchmark):
    text = DOCUMENT.read_text().split(benchmark.MARKS[0])[1].split(benchmark.MARKS[1])[0]
    rows = re.findall(r"^\| ([a-z_, ]+) \| (\w+) \| ([a-z ]+) \| ([\d.]+) \|", text, flags=re.M)
    scores: list[list[float]] = []
    for known in (names.split(",") for names in benchmark.DOCUMENTED.values()):
        sets = [known[:n] for n in (1, 2, 3)]
        expected = [(", ".join(s), n, benchmark.difference(s, n)) for s in sets for n in WORLDS if n not in s]
        found = {row[:3]: float(row[3]) for row in rows}
        assert set(expected) <= set(found)
        scores.append([found[key] for key in expected if key[2] != "scenes only"])
    means = [float(v) for v in re.findall(r"\*\*differ in sensor or light\*\* \| \d+ \| ([\d.]+)", text)]
    assert means == pytest.approx([sum(s) / len(s) for s in scores], abs=1.1e-3)
    assert min(means) >= 0.95
