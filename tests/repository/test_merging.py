"""Trainings of two runs make the tables, findings and intervals that one run with all of them would have made."""

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from helpers.bench_cells import document
from helpers.documents import ROOT, load_benchmark

KEPT = ROOT / "benchmarks" / "worlds_fresh_results.json"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_benchmark("reproducing")


@pytest.fixture(scope="module")
def merging() -> ModuleType:
    return load_benchmark("merging")


@pytest.fixture
def kept(script: ModuleType) -> dict[str, Any]:
    """The trainings indoors of the run with fresh scenes."""
    whole = script.read(KEPT)
    return {**whole, "experiments": {"indoor": whole["experiments"]["indoor"]}}


def part(kept: dict[str, Any], wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """A run that has some of the kept trainings and knows that the others are to come."""
    run = copy.deepcopy(kept)
    indoor = run["experiments"]["indoor"]
    cells = indoor["cells"]
    indoor["cells"] = [cell for cell in cells if wanted(cell["label"])]
    others = [cell["label"] for cell in cells if not wanted(cell["label"])]
    indoor["missing"] += [f"not finished yet: indoor {n['backbone']} {n['method']} seed {n['seed']}" for n in others]
    indoor["findings"], indoor["tables"] = [], {key: indoor["tables"][key] for key in ("stages", "costs")}
    return run


SPLITS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "by seed": lambda label: label["seed"] == 15,
    "by method": lambda label: label["method"] in ("ewc", "protodepth"),
    "across both": lambda label: (label["seed"] + len(label["method"])) % 2 == 0,
}


@pytest.mark.parametrize("wanted", SPLITS.values(), ids=SPLITS)
def test_two_parts_make_the_whole_again(
    script: ModuleType, merging: ModuleType, kept: dict[str, Any], wanted: Callable[[dict[str, Any]], bool]
) -> None:
    one, other = part(kept, wanted), part(kept, lambda label: not wanted(label))
    assert one["experiments"]["indoor"]["cells"]
    assert other["experiments"]["indoor"]["cells"]
    known = [cell.get("costs", {}).get("seconds", 0.0) for cell in other["experiments"]["indoor"]["cells"]]
    one["experiments"]["indoor"]["seconds"] -= sum(known)
    again = merging.merged(one, other)
    assert again["experiments"]["indoor"]["seconds"] == pytest.approx(kept["experiments"]["indoor"]["seconds"])
    again["experiments"]["indoor"]["seconds"] = kept["experiments"]["indoor"]["seconds"]
    assert again == kept
    assert script.markdown(again, "fresh") == script.markdown(kept, "fresh")


def test_a_run_merged_with_itself_stays_as_it_is(merging: ModuleType, kept: dict[str, Any]) -> None:
    assert merging.merged(kept, kept) == kept


def without(kept: dict[str, Any], method: str) -> dict[str, Any]:
    return part(kept, lambda label: label["method"] != method)


def rival(kept: dict[str, Any], method: str, factor: float) -> dict[str, Any]:
    """A run of another method that has EWC's errors times a factor once it has learned."""
    run = part(kept, lambda label: label["method"] == "ewc")
    run["experiments"]["indoor"]["missing"] = []
    for cell in run["experiments"]["indoor"]["cells"]:
        cell["label"]["method"] = method
        for matrix in cell["matrix"].values():
            for rows in matrix.values():
                rows[1:] = [[factor * error for error in row] for row in rows[1:]]
        for rows in cell["scenes"].values():
            rows[1:] = [[[factor * error for error in scenes] for scenes in row] for row in rows[1:]]
    return run


def test_a_method_that_comes_later_takes_part_in_every_verdict(merging: ModuleType, kept: dict[str, Any]) -> None:
    before, after = (merging.merged(without(kept, "l2p"), rival(kept, "l2p", factor)) for factor in (3.0, 0.3))
    place = "lite, SPTO (MAE): ProtoDepth-own "
    (worse,) = (line for line in before["experiments"]["indoor"]["findings"] if line.startswith(place))
    (better,) = (line for line in after["experiments"]["indoor"]["findings"] if line.startswith(place))
    assert "L2P" not in worse
    assert " L2P " in better
    assert better.endswith("3 seed(s): not first.")
    scores = {row["Method"]: row["SPTO MAE"]["mean"] for row in after["experiments"]["indoor"]["tables"]["scores"]}
    assert scores["L2P"] < 0.5 * scores["EWC"]
    paired = [row["Difference"] for row in after["experiments"]["indoor"]["tables"]["paired"]]
    assert "L2P minus ProtoDepth" in paired


def spoil(kept: dict[str, Any], **label: object) -> dict[str, Any]:
    run = copy.deepcopy(kept)
    (cell,) = (c for c in run["experiments"]["indoor"]["cells"] if label.items() <= c["label"].items())
    cell["matrix"]["incremental"]["mae"][0][0] += 1e-6
    return run


def test_a_training_that_both_runs_have_must_be_equal(merging: ModuleType, kept: dict[str, Any]) -> None:
    with pytest.raises(merging.Mismatch, match="lite ewc seed 15 has other numbers in the two runs"):
        merging.merged(kept, spoil(kept, method="ewc", seed=15))
    scenes = copy.deepcopy(kept)
    scenes["experiments"]["indoor"]["cells"][0]["scenes"]["incremental"][0][0][0] += 0.1
    with pytest.raises(merging.Mismatch, match="has other numbers in the two runs"):
        merging.merged(kept, scenes)


def test_another_base_or_other_test_scenes_are_refused(merging: ModuleType, kept: dict[str, Any]) -> None:
    other = part(spoil(kept, method="ewc", seed=15), lambda label: label["method"] == "ewc")
    with pytest.raises(merging.Mismatch, match="another base or had other test scenes"):
        merging.merged(without(kept, "ewc"), other)


def test_other_settings_are_refused_and_named(merging: ModuleType, kept: dict[str, Any]) -> None:
    one, other = without(kept, "ewc"), part(kept, lambda label: label["method"] == "ewc")
    one["experiments"]["indoor"]["configuration"] = {"tuned": {"ewc": {"rate": 0.1}}}
    other["experiments"]["indoor"]["configuration"] = {"tuned": {"ewc": {"rate": 0.2}}}
    with pytest.raises(merging.Mismatch, match=r"other settings \(tuned\.ewc\.rate = 0\.1 and 0\.2\)"):
        merging.merged(one, other)


def bench_folder(folder: Path, **methods: list[list[float]]) -> Path:
    """What a bench leaves of one seed, as far as it is read: two domains of two scenes."""
    cells = {}
    for method, matrix in methods.items():
        label = {"sequence": "indoor", "backbone": "lite", "method": method, "variant": "", "seed": 12}
        result = document(method, matrix) | {"seconds": 60.0}
        rows = [[[error - 1.0, error + 1.0] for error in row[: k + 1]] for k, row in enumerate(matrix)]
        result["scenes"] = {"names": [], "incremental": {"mae": rows}}
        stored = folder / "cells" / "sequence" / method / "result.json"
        stored.parent.mkdir(parents=True)
        stored.write_text(json.dumps({"label": label, "result": result}))
        cells[method] = {"label": label, "result": result}
    stages = [{"a learned": {"mean": 1.0}, "a at the end": {"mean": 1.0}, "b learned": {"mean": 1.0}}]
    found = {"title": "indoor: x", "findings": [], "missing": [], "tables": {"stages": stages}, "seconds": 60.0}
    about = {"command": f"protodepth bench indoor --methods {' '.join(methods)}", "seed": "12", "system": "Linux 6.1"}
    (folder / "results.json").write_text(
        json.dumps({"about": about, "experiments": {"indoor": {**found, "cells": cells}}})
    )
    configured = folder / "experiments" / "indoor" / "indoor.json"
    configured.parent.mkdir(parents=True)
    configured.write_text(json.dumps({"scenes": "fresh"}))
    return folder


def run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["reproducing.py", *map(str, words)])
    script.main()


def test_folders_of_two_benches_are_kept_in_one_file(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first = bench_folder(tmp_path / "first", ewc=[[10.0, 99.0], [15.0, 8.0]])
    second = bench_folder(tmp_path / "second", replay=[[10.0, 99.0], [12.0, 8.0]])
    kept = tmp_path / "kept.json"
    run(script, monkeypatch, first, "--with", first, "--between", "fresh", "--keep", kept)
    run(script, monkeypatch, second, "--with", kept, "--between", "fresh", "--keep", kept)
    assert "| lite | Replay | **20.0** | **10.0** |" in capsys.readouterr().out  # forgetting; mean of 10, 12 and 8
    there = json.loads(kept.read_text())
    indoor = there["experiments"]["indoor"]
    assert [cell["label"]["method"] for cell in indoor["cells"]] == ["ewc", "replay"]
    assert [cell["matrix"]["incremental"]["mae"][1][0] for cell in indoor["cells"]] == [15.0, 12.0]
    assert indoor["cells"][1]["scenes"]["incremental"][1] == [[11.0, 13.0], [7.0, 9.0]]
    assert indoor["configuration"] == {"scenes": "fresh"}
    assert indoor["seconds"] == 120.0
    assert [row["training"]["mean"] for row in indoor["tables"]["costs"]] == [2.0, 2.0]
    assert there["about"]["command"].count("protodepth bench") == 2
    assert there["about"]["system"] == "Linux"  # no name of a kernel


def test_what_does_not_belong_together_leaves_the_file_alone(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first = bench_folder(tmp_path / "first", ewc=[[10.0, 99.0], [15.0, 8.0]])
    second = bench_folder(tmp_path / "second", ewc=[[10.0, 99.0], [15.0, 8.5]])
    kept = tmp_path / "kept.json"
    run(script, monkeypatch, first, "--with", first, "--between", "fresh", "--keep", kept)
    before = kept.read_bytes()
    with pytest.raises(SystemExit):
        run(script, monkeypatch, second, "--with", kept, "--between", "fresh", "--keep", kept)
    assert "lite ewc seed 12 has other numbers in the two runs; nothing was written" in capsys.readouterr().err
    assert kept.read_bytes() == before
