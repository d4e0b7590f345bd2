"""The tables of real sensors in the documents are those of the kept numbers, and what is said of them holds."""

import importlib.util
import itertools
import json
import math

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
    assert f"It is {sum(mae) / len(mae):.3f} and {sum(rmse) / len(rmse):.3f}" in text
    assert f"holes {sum(holes) / len(holes):.2f}" in text
    assert max(mae) < 1
    gains = [1 - f["any-sensor, adapted"]["mae"] / f["any-sensor"]["mae"] for f in every.values()]
    assert f"{100 * sum(gains) / len(gains):.1f} % off on average" in text
    assert "No setting is worse than the base" in text
    assert min(gains) >= 0
    assert f"the least gain is {100 * min(gains):.1f} %" in text
    adapted = [real_sensors.ratio(f, "any-sensor, adapted", "mae") for f in every.values()]
    assert f"({sum(adapted) / len(adapted):.3f} of the best interpolation" in text
    kinect = [g for (name, _), g in zip(every, gains, strict=True) if name == "sevenscenes"]
    assert f"7-Scenes {100 * min(kinect):.0f} to {100 * max(kinect):.0f} %" in text
    whole = [c for c in numbers["choices"] if c.get("pattern") in (None, "", "as the recording is")]
    assert all(c["right"] == 1.0 for c in whole)
    assert f"{sum(c['frames'] for c in whole)} of {sum(c['frames'] for c in whole)} as the recordings are" in text
    assert "/" not in "".join(r["recording"] for r in numbers["rows"]), "names of recordings, no folders"


def test_hidden_points_put_networks_and_interpolations_in_the_order_of_the_test_frames() -> None:
    """What ``adapt`` judges by, points hidden in frames of the val block, against all settings of the test block."""
    numbers = json.loads(real_sensors.NUMBERS.read_text())
    gains: list[tuple[float, float]] = []
    for adapted in numbers["adapted"]:
        rows = [row for row in numbers["rows"] if row["recording"] == adapted["recording"]]

        def test_error(predictor: str, rows: list[dict[str, float | str]] = rows) -> float:
            logs = [math.log(float(row["mae"])) for row in rows if row["predictor"] == predictor]
            return math.exp(sum(logs) / len(logs))

        hidden = {**adapted["interpolation"], "any-sensor": adapted["before"]}
        hidden["any-sensor, adapted"] = adapted["before"] * (1 - adapted["gain"])
        tested = {name: test_error(name) for name in hidden}
        pairs = [(a, b) for a, b in itertools.permutations(hidden, 2) if tested[a] < 0.98 * tested[b]]
        assert len(pairs) >= 9, "of ten pairs: what is nearly equal has no order"
        assert [(a, b) for a, b in pairs if hidden[a] >= hidden[b]] == []
        gains.append((adapted["gain"], 1 - tested["any-sensor, adapted"] / tested["any-sensor"]))
    ranked = sorted(gains, reverse=True)
    assert ranked == sorted(gains, key=lambda pair: -pair[1]), "the recording that gains more gains more by both"
    words = [", ".join(f"{100 * pair[side]:.1f}" for pair in ranked) for side in (0, 1)]
    sentence = f"by hidden points {words[0]} %, on the test frames {words[1]} %"
    assert sentence in (ROOT / "docs" / "real_sensors.md").read_text(), sentence
