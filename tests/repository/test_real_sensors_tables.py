"""The tables of real sensors in the documents are those of the kept numbers, and what is said of them holds."""

import importlib.util
import json

from helpers.documents import ROOT

spec = importlib.util.spec_from_file_location("real_sensors", ROOT / "benchmarks" / "real_sensors.py")
assert spec is not None
assert spec.loader is not None
real_sensors = importlib.util.module_from_spec(spec)
spec.loader.exec_module(real_sensors)


def test_the_tables_of_the_documents_are_those_of_the_numbers() -> None:
    for name, wanted in real_sensors.PLACES.items():
        assert real_sensors.table(wanted) in (ROOT / name).read_text(), f"python benchmarks/real_sensors.py ({name})"


def test_the_sentences_below_the_table_hold() -> None:
    numbers = json.loads(real_sensors.NUMBERS.read_text())
    every = real_sensors.settings(numbers["rows"])
    text = (ROOT / "docs" / "real_sensors.md").read_text()
    mae, rmse = ([real_sensors.ratio(f, "any-sensor", e) for f in every.values()] for e in ("mae", "rmse"))
    holes = [real_sensors.ratio(f, "any-sensor", "mae") for (_, p), f in every.items() if p == "holes"]
    assert f"It is {sum(mae) / len(mae):.2f} and {sum(rmse) / len(rmse):.2f}" in text
    assert f"holes {sum(holes) / len(holes):.2f}" in text
    assert max(mae) < 1
    gains = [1 - f["any-sensor, adapted"]["mae"] / f["any-sensor"]["mae"] for f in every.values()]
    assert f"{100 * sum(gains) / len(gains):.1f} % on average" in text
    assert min(gains) > -1e-9
    assert "/" not in "".join(r["recording"] for r in numbers["rows"]), "names of recordings, no folders"
