"""The paper's experiments on a handful of frames of its datasets, by the real recipes scaled down."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers import paper_sets
from protodepth.cli import main
from protodepth.data.arguments import open_domain
from protodepth.training import published

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
    for domain in map(open_domain, data):  # what recipes.md prints is what they are judged by
        caps, crop = (published.CAPS[domain.name][name].value for name in ("caps", "crop"))
        assert (domain.rules.min_depth, domain.rules.max_depth, domain.rules.crop) == (*caps, crop)


ROWS = {
    "lite": ("Pretrained", "Finetuned", "EWC", "LwF", "Replay", "ANCL", "CMP", "ProtoDepth-A", "ProtoDepth"),
    "KBNet": ("Pretrained", "Finetuned", "EWC", "LwF", "Replay", "ANCL", "CMP", "ProtoDepth-A", "ProtoDepth"),
    "VOICED": ("Pretrained", "Finetuned", "EWC", "LwF", "Replay", "ProtoDepth-A", "ProtoDepth"),
    "FusionNet": ("Pretrained", "Finetuned", "EWC", "LwF", "Replay", "ProtoDepth-A", "ProtoDepth"),
    "Uformer": ("Pretrained", "Finetuned", "L2P", "ProtoDepth-A", "ProtoDepth"),
}


@pytest.mark.slow
@pytest.mark.parametrize("sequence", ["indoor", "outdoor", "mixed"])
def test_all_networks_and_methods_reach_their_table(tmp_path: Path, sequence: str) -> None:
    """Five networks, nine methods; the cells of a run that was stopped are not trained again."""
    data = paper_sets.write(tmp_path, sequence)
    networks = NETWORKS if sequence == "indoor" else NETWORKS[:4]
    bench(tmp_path / "out", sequence, data, "--backbone", networks[0], "--methods", "finetune")
    cells = {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "cells").glob("*/*/result.json")}
    found = bench(tmp_path / "out", sequence, data, "--backbone", *networks)
    assert {p: p.stat().st_mtime_ns for p in cells} == cells
    rows = {(r["Network"], r["Method"]) for r in found["tables"]["scores"]}
    expected = {(network, m) for network, several in ROWS.items() for m in several}
    if sequence != "indoor":
        expected = {row for row in expected if row[0] != "Uformer"}
    assert expected <= rows
    assert not found["missing"]


def torchrun(*words: str) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "protodepth"]
    done = subprocess.run([*start, *words], env=environment, text=True, capture_output=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


def train(name: str, data: Sequence[str], out: Path, *words: str) -> list[str]:
    return ["train", "--recipe", name, "--data", *data, "--scale", "0.0005", "--out", str(out), *words]


@pytest.mark.slow
def test_two_processes_learn_the_papers_base_and_its_later_domains(tmp_path: Path) -> None:
    data = paper_sets.write(tmp_path, "indoor")
    base, out = tmp_path / "base", tmp_path / "later"
    torchrun(*train("paper-indoor", data[:1], base, "--backbone", "kbnet", "--preset", "small", "--device", "cpu"))
    assert (base / "rank1.log").exists()
    torchrun(*train("paper-indoor", data, out, "--model", str(base), "--method", "replay", "--device", "cpu"))
    found = json.loads((out / "results.json").read_text())
    assert found["domains"] == ["nyu_v2", "scannet", "void"]
    assert [row["method"] for row in found["rows"]] == ["replay"]


@pytest.mark.slow
def test_two_processes_share_the_cells_of_a_table(tmp_path: Path) -> None:
    data = paper_sets.write(tmp_path, "outdoor")
    words = ["--backbone", "lite", "--methods", "pretrained,finetune,protodepth", *SMALL, "--device", "cpu"]
    torchrun("bench", "outdoor", "--data", *data, *words, "--out", str(tmp_path / "out"))
    found = json.loads((tmp_path / "out" / "results.json").read_text())["experiments"]["outdoor"]
    assert not found["missing"]
    assert len(found["tables"]["scores"]) == 4


def test_train_runs_a_recipe_of_the_paper_in_its_two_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = paper_sets.write(tmp_path, "outdoor")
    base, out = tmp_path / "base", tmp_path / "later"
    assert main.run(train("paper-outdoor", data[:1], base, "--backbone", "lite", "--device", "cpu")) == 0
    assert main.run(train("paper-outdoor", data, out, "--model", str(base), "--device", "cpu")) == 0
    recipe = (out / "recipe.toml").read_text()
    assert "[stages.waymo.schedule]" in recipe
    assert json.loads((out / "results.json").read_text())["domains"] == ["kitti", "waymo", "vkitti"]
    capsys.readouterr()
    for words, message in (
        (train("paper-outdoor", data, out), "with --model MODEL"),
        (train("paper-outdoor", data[:2], out, "--model", str(base)), "got 2 dataset(s) and a start"),
        (train("paper-outdoor", data, out, "--model", str(base), "--backbone", "kbnet"), "is a lite"),
        (train("paper-outdoor", data[:1], out, "--backbone", "fusionnet"), "ScaffNet"),
        (train("worlds-tiny", data[:1], out), "are for the paper's recipes"),
    ):
        assert main.run(words) == 2
        assert message in capsys.readouterr().err
