"""docs/reproducing.md says what was measured: its tables are those of the kept results."""

import json
from pathlib import Path
from types import ModuleType

import pytest

from helpers.documents import ROOT, load_benchmark

KEPT = ROOT / "benchmarks" / "worlds_results.json"
KEPT_FIRST = ROOT / "benchmarks" / "worlds_long_first_results.json"
KEPT_LONG = ROOT / "benchmarks" / "worlds_long_results.json"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_benchmark("reproducing")


@pytest.mark.parametrize(("place", "kept"), [("tables", KEPT), ("long", KEPT_LONG)])
def test_the_tables_of_the_document_are_those_of_the_kept_results(script: ModuleType, place: str, kept: Path) -> None:
    text = (ROOT / "docs" / "reproducing.md").read_text()
    _, tables, _ = script.split(text, place)
    assert tables == script.markdown(script.read(kept), place)


@pytest.mark.parametrize(
    ("row", "experiment", "network"), [("VOICED indoors", "indoor", "VOICED"), ("KBNet in `mixed`", "mixed", "KBNet")]
)
def test_the_document_shows_the_first_choice_beside_the_repeated_trials(
    row: str, experiment: str, network: str
) -> None:
    """What was tuned again after its test results were seen keeps its first result."""
    shown = []
    for kept in (KEPT_FIRST, KEPT_LONG):
        scores = json.loads(kept.read_text())["experiments"][experiment]["tables"]["scores"]
        means = {r["Method"]: r["SPTO MAE"]["mean"] for r in scores if r["Network"] == network}
        shown.append(f"{means['ProtoDepth']:.1f}, {means['Replay']:.1f} (Replay)")
    assert f"| {row} | {' | '.join(shown)} |" in (ROOT / "docs" / "reproducing.md").read_text()


def test_kept_scores_have_the_identities_of_the_protocol() -> None:
    """ProtoDepth forgets nothing with the domain given, and pretrained forgets nothing at all."""
    experiments = json.loads(KEPT.read_text())["experiments"]
    for name in ("indoor", "outdoor", "mixed"):
        for row in experiments[name]["tables"]["scores"]:
            if row["Method"] in ("ProtoDepth", "Pretrained"):
                assert row["Forgetting MAE"]["mean"] == 0, row


def test_the_best_learning_method_is_marked_and_pretrained_never_is(script: ModuleType) -> None:
    rows = [
        {"Method": "Pretrained", "x": {"mean": 1.0, "spread": None}},
        {"Method": "EWC", "x": {"mean": 3.0, "spread": 0.5}},
        {"Method": "ProtoDepth", "x": {"mean": 2.0, "spread": None}},
    ]
    assert script.marked(rows, "x", 1) == ["1.0", "3.0 ± 0.5", "**2.0**"]


def test_other_experiments_show_their_own_columns_and_the_papers_numbers(script: ModuleType) -> None:
    value = {"mean": 344.44, "spread": None, "paper": 14.59}
    row = {
        "Method": "ProtoDepth",
        "parameters a domain, M": value,
        "parameters a domain, %": value,
        "room MAE": value,
        "room iMAE": value,
    }
    found = {"title": "set-sizes-indoor: x", "tables": {"sizes": [row]}, "findings": ["A finding."], "missing": []}
    text = script.other_section("set-sizes-indoor", found)
    assert "| Method | parameters a domain, % | room MAE |" in text
    assert "| ProtoDepth | 344.4 [14.59] | 344.4 [14.59] |" in text
    assert "- A finding." in text
