"""docs/reproducing.md says what was measured: its tables are those of the kept results."""

import json
import re
from types import ModuleType

import pytest

from helpers.documents import ROOT, load_benchmark
from protodepth.data.augment import AugmentConfig
from protodepth.experiments.findings import findings
from protodepth.experiments.scenes import base_number
from protodepth.training import recipes

KEPT = ROOT / "benchmarks" / "worlds_results.json"
KEPT_FIRST = ROOT / "benchmarks" / "worlds_long_first_results.json"
KEPT_FRESH = ROOT / "benchmarks" / "worlds_fresh_results.json"
KEPT_LONG = ROOT / "benchmarks" / "worlds_long_results.json"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_benchmark("reproducing")


@pytest.fixture(scope="module")
def merging() -> ModuleType:
    return load_benchmark("merging")


@pytest.mark.parametrize("place", ["tables", "long", "fresh", "holds", "parts"])
def test_every_measured_part_of_the_document_is_written_from_the_kept_results(script: ModuleType, place: str) -> None:
    _, text, _ = script.split((ROOT / "docs" / "reproducing.md").read_text(), place)
    assert text == script.text_of(place)


def test_kept_findings_of_fresh_scenes_follow_from_the_kept_matrices_and_scenes(merging: ModuleType) -> None:
    """Anybody can compute the sentences again: scores from the matrices, intervals from the scenes."""
    for name, experiment in json.loads(KEPT_FRESH.read_text())["experiments"].items():
        again = findings(merging.groups_of(experiment["cells"]), name)
        assert numbers(experiment["findings"]) == pytest.approx(numbers(again), abs=0.11)  # scenes are kept to 0.1 mm
        assert [line.rpartition(":")[2] for line in experiment["findings"]] == [
            line.rpartition(":")[2] for line in again
        ]


def numbers(lines: list[str]) -> list[float]:
    return [float(n) for line in lines for n in re.findall(r"[-+]?[0-9]+\.[0-9]+", line)]


@pytest.fixture(scope="module")
def holds() -> ModuleType:
    return load_benchmark("what_holds")


def fresh_run(*endings: str, network: str = "lite", method: str = "ProtoDepth") -> dict:
    """A kept run whose findings end with these verdicts, one for each score."""
    titles = ("Average performance", "SPTO", "Error at the end")
    findings = [
        f"{network}, {title} (MAE): {method} 250.0 mm, EWC 260.0 mm, difference +9.0 (+5.0 to +15.0), 3 seed(s): {end}."
        for title, end in zip(titles, endings, strict=False)
    ]
    scores = [{"Network": network, "Method": name} for name in ("Pretrained", "EWC", method)]
    cells = [{"label": {"backbone": network, "method": "ewc", "seed": seed}} for seed in (11, 12, 15)]
    return {"experiments": {"indoor": {"findings": findings, "tables": {"scores": scores}, "cells": cells}}}


def test_verdicts_are_counted_as_the_findings_end(holds: ModuleType) -> None:
    fresh = fresh_run("first", "not first", "undecided")
    assert (
        "3 are measured, against the methods that were run: ProtoDepth first in 1, not first in 1, undecided in 1."
        in holds.bar(fresh)
    )
    assert holds.bar({"experiments": {}}).endswith("0 are measured.")
    lines = holds.fresh_lines(fresh)
    assert lines[0].startswith("- `indoor`, seeds 11, 12, 15 (bases 0, 2 of 0, 1 and 2), among")
    assert "(EWC, ProtoDepth)" in lines[0]  # pretrained learns nothing
    assert len(lines) == 1 + 3


def test_the_headline_says_no_more_than_the_verdicts(holds: ModuleType) -> None:
    undecided = "which method leads on fresh drawn scenes is undecided so far"
    assert holds.headline({"experiments": {}}) == undecided
    assert holds.headline(fresh_run("undecided", "undecided", "undecided")) == undecided
    assert holds.headline(fresh_run("first", "not first", "first", method="ProtoDepth-own")) == (
        "fresh drawn scenes, lite indoor against EWC: ProtoDepth-own first in Average performance and "
        "Error at the end, not first in SPTO"
    )


def test_what_is_asked_for_is_judged_by_the_intervals(holds: ModuleType) -> None:
    choosing = "lite, ProtoDepth-A above ProtoDepth (MAE): Average performance {}, SPTO {}, Error at the end {}."
    gap = "lite, later domains when learned (MAE): ProtoDepth 6.0 mm, Finetuned 5.0 mm, {}: worse."
    lines = [
        choosing.format("+0.3 % (-0.1 to +0.7)", "+0.2 % (-0.1 to +0.9)", "+0.0 % (+0.0 to +0.0)"),
        choosing.format("+0.3 % (-0.1 to +0.7)", "+0.2 % (-0.1 to +1.9)", "+0.0 % (+0.0 to +0.0)"),
        gap.format("+11.4 % (+6.0 to +17.8)"),
        gap.format("+11.4 % (2 seed(s))"),
    ]
    told = list(holds.asked_for({"experiments": {"indoor": {"findings": lines}}}))
    assert [line.partition(": ")[2] for line in told] == [
        "yes (+0.2 %, up to +0.9).",
        "undecided (+0.2 %, -0.1 to +1.9).",
        "no (+11.4 %, at least +6.0).",
        "undecided (too few seeds).",
    ]
    assert told[0].startswith("lite indoor, ProtoDepth-A within 1 % of ProtoDepth in all three scores: ")


def test_trainings_and_bases_that_are_done_are_no_longer_to_run(holds: ModuleType) -> None:
    known = json.loads(KEPT.read_text())["experiments"]
    nothing, some = (holds.to_run(known, fresh) for fresh in ({"experiments": {}}, fresh_run("first")))
    assert "160 of the 160" in nothing
    assert "10 bases" in nothing  # three of each network and sequence, of which the first of lite is bundled
    assert "157 of the 160" in some
    assert "9 bases" in some  # seed 11 has base 2


def test_methods_without_fresh_scenes_are_named(holds: ModuleType) -> None:
    known = json.loads(KEPT.read_text())["experiments"]
    (line,) = holds.not_run(known, fresh_run("first"))
    assert line == (
        "lite indoor, not run on fresh scenes and so in no verdict: Finetuned, LwF, Replay, ANCL, CMP and ProtoDepth-A."
    )
    whole = {"experiments": {"indoor": known["indoor"]}}
    assert not list(holds.not_run(known, whole))


def test_what_the_document_says_of_fresh_scenes_is_what_was_run() -> None:
    """Its seeds and their base, and the rates that baselines were tried at before."""
    text = " ".join((ROOT / "docs" / "reproducing.md").read_text().split())
    seeds = {}
    for name, experiment in json.loads(KEPT_FRESH.read_text())["experiments"].items():
        seeds[name] = sorted({cell["label"]["seed"] for cell in experiment["cells"]})
    assert seeds == {"indoor": [12, 15, 18], "outdoor": [12]}
    assert {base_number(seed) for several in seeds.values() for seed in several} == {0}
    assert "Indoors three seeds were run, 12, 15 and 18, and outdoors one, 12: those that need no other base." in text
    trials = json.loads((ROOT / "benchmarks" / "worlds_trials.json").read_text())["trials"]
    for sequence in seeds:
        for method in ("finetune", "replay", "cmp"):
            row = (sequence, "lite", method)
            tried = {
                t["values"].get("rate", 0.001) for t in trials if (t["sequence"], t["backbone"], t["method"]) == row
            }
            assert tried == {0.00027, 0.00071, 0.001, 0.0019}


def test_readme_says_of_fresh_scenes_what_the_kept_results_say(holds: ModuleType) -> None:
    text = holds.headline(json.loads(KEPT_FRESH.read_text()))
    assert f"({text})" in " ".join((ROOT / "README.md").read_text().split())


def test_l2ps_forgetting_from_before_its_prompts_were_learned_earns_no_bold(script: ModuleType) -> None:
    value = {"mean": -1.4, "spread": None}
    rows = [
        {"Method": "L2P", "early": True, "Forgetting MAE": value},
        {"Method": "ProtoDepth", "Forgetting MAE": {"mean": 0.0, "spread": None}},
    ]
    assert script.marked(rows, "Forgetting MAE", 1) == ["-1.4 †", "**0.0**"]
    rows[0]["early"] = False
    assert script.marked(rows, "Forgetting MAE", 1) == ["**-1.4**", "0.0"]


def test_the_document_says_how_the_worlds_are_run() -> None:
    """Poses given, the relative objective, no augmentation in later stages: as the recipes are."""
    for make in (recipes.indoor, recipes.outdoor, recipes.mixed):
        recipe = make()
        assert recipe.objective.reduction == "relative"
        assert recipe.objective.poses == "auto"
        assert recipe.schedule.augment == AugmentConfig()


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


def test_what_the_document_says_of_a_domains_own_parts_is_in_the_kept_rows() -> None:
    rows = json.loads((ROOT / "benchmarks" / "worlds_own_parts.json").read_text())["rows"]
    errors = {row["way"]: row["mae"] for row in rows if row["world"] == "corridor_night"}
    kept = {row["way"]: row["parameters"] for row in rows if row["world"] == "corridor_night"}
    free, alone = min(v for way, v in errors.items() if way.startswith("finetune")), errors["protodepth@0.06"]
    everything = "protodepth@0.01?parts=merges+head+image_stages+depth_stages&factors=parts:0.2"
    scales = "protodepth@0.01?parts=scales&factors=scales:0.5"
    assert errors[everything] < 1.05 * free
    slow = errors["protodepth@0.01"]
    assert slow < alone
    assert 0.2 < (slow - errors[scales]) / (slow - free) < 0.3  # about a quarter of the gap
    assert kept[everything] - kept["protodepth@0.06"] == 389_041
    assert kept[scales] - kept["protodepth@0.06"] == 1_634
