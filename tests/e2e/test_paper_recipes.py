"""The paper's experiments on a handful of frames of its datasets, by the real recipes scaled down."""

import json
from pathlib import Path

import pytest

from helpers import paper_sets
from protodepth.cli import main

SMALL = ["--scale", "0.0005", "--preset", "small"]
NETWORKS = ("lite", "kbnet", "voiced", "fusionnet", "uformer")


def bench(out: Path, sequence: str, data: list[str], *words: str) -> dict:
    assert main.run(["bench", sequence, "--data", *data, *SMALL, *words, "--out", str(out)]) == 0
    return json.loads((out / "results.json").read_text())["experiments"][sequence]


def test_the_outdoor_table_of_the_paper_runs_on_its_formats_and_is_not_repeated(tmp_path: Path) -> None:
    data = paper_sets.write(tmp_path, "outdoor")
    found = bench(tmp_path / "out", "outdoor", data, "--backbone", "lite", "--methods", "replay,protodepth")
    assert [r["Method"] for r in found["tables"]["scores"]] == ["Replay", "ProtoDepth-A", "ProtoDepth"]
    assert any("rehearsal with 0.0005 of the published epochs" in line for line in found["findings"])
    cells = {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "cells").glob("*/*/result.json")}
    bench(tmp_path / "out", "outdoor", data, "--backbone", "lite", "--methods", "replay,protodepth")
    assert {p: p.stat().st_mtime_ns for p in cells} == cells
    page = (tmp_path / "out" / "report.md").read_text()
    assert "for these very datasets" in page
    assert "other data" not in page


@pytest.mark.slow
@pytest.mark.parametrize("sequence", ["indoor", "outdoor", "mixed"])
def test_all_networks_and_methods_reach_their_table(tmp_path: Path, sequence: str) -> None:
    data = paper_sets.write(tmp_path, sequence)
    networks = NETWORKS if sequence == "indoor" else NETWORKS[:4]
    found = bench(tmp_path / "out", sequence, data, "--backbone", *networks)
    rows = {(r["Network"], r["Method"]) for r in found["tables"]["scores"]}
    for network in ("KBNet", "VOICED", "FusionNet", "lite"):
        assert {(network, m) for m in ("Pretrained", "Finetuned", "EWC", "LwF", "Replay", "ProtoDepth")} <= rows
    assert not found["missing"]
