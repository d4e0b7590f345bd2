"""benchmarks/real_sequence.py on drawn recordings that stand in for the three real ones."""

import json
import sys
from pathlib import Path

import pytest

from helpers.documents import ROOT, load_benchmark
from protodepth.data.example import write_example
from protodepth.errors import ConfigError


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("real")
    for name, world in (("sevenscenes", "room"), ("hololens", "warehouse"), ("kitti_raw", "street_dusk")):
        write_example(place / name, world, frames=30, size=(48, 64))
        kept = "sparse" if name == "kitti_raw" else "ground_truth"
        (place / name / kept).rename(place / name / "depth")
        other = {"sparse", "ground_truth"} - {kept}
        (place / name / other.pop()).rename(place / name / "unused")
    (place / "kitti_raw" / "poses.txt").rename(place / "kitti_raw" / "poses_estimated.txt")
    return place


def test_the_table_has_forgetting_and_interpolation_beside_every_method(
    recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = load_benchmark("real_sequence")
    words = ["real_sequence.py", str(recordings), "--out", str(tmp_path / "out"), "--model", "worlds-tiny-mixed"]
    words += ["--world", "worlds:street?size=48x64&train=4&val=2&test=2", "--methods", "pretrained", "finetune"]
    words += ["protodepth", "--steps", "2", "--crop", "32", "48", "--test-frames", "2", "--select-every", "1"]
    kept, page = tmp_path / "kept.json", tmp_path / "page.md"
    page.write_text("before\n{}\nold\n{}\nafter\n".format(*script.MARKS))
    words += ["--keep", str(kept), "--write", str(page)]
    monkeypatch.setattr(sys, "argv", words)
    script.main()
    table = (tmp_path / "out" / "table.md").read_text()
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in table.splitlines() if " | " in line}
    for name in ("linear interpolation", "nearest interpolation", "Pretrained", "Finetuned", "ProtoDepth-A"):
        assert len(rows[name]) == 6
    assert rows["ProtoDepth"][0] == "0.000"
    assert float(rows["Finetuned"][0]) != 0
    assert "ProtoDepth" in capsys.readouterr().out
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert document["domains"] == ["street", "sevenscenes", "hololens", "kitti_raw"]

    assert script.markdown(script.beside(json.loads(kept.read_text()))) == table
    assert page.read_text() == f"before\n{script.MARKS[0]}\n{table}{script.MARKS[1]}\nafter\n"
    page.write_text("no marks")
    for more, sentence in (([], "no place"), (["--select-every", "0"], "1 or more")):  # before anything is learned
        monkeypatch.setattr(sys, "argv", [*words, *more])
        with pytest.raises(ConfigError, match=sentence):
            script.main()
    monkeypatch.setattr(sys, "argv", words)

    page.write_text("{}\n{}\n".format(*script.MARKS))
    monkeypatch.setattr(script, "learn_sequence", None)  # nothing is learned twice
    script.main()
    monkeypatch.setattr(sys, "argv", [*words, "--split", "test"])
    with pytest.raises(ConfigError, match="other settings"):
        script.main()


def test_points_are_hidden_from_all_methods_alike_unless_the_paper_s_objective_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, recordings: Path
) -> None:
    script = load_benchmark("real_sequence")
    for kind, hidden in (("hidden", True), ("paper", False)):
        words = ["real_sequence.py", str(recordings), "--objective", kind, "--test-frames", "1"]
        monkeypatch.setattr(sys, "argv", [*words, "--world", "worlds:street?size=48x64&train=1&val=1&test=1"])
        options = script.arguments()
        recipe = script.recipe_for(options, script.PrototypeConfig())
        for method in ("finetune", "protodepth"):
            schedules = [recipe.schedule_for(name, method) for name in script.RECORDINGS]
            assert all(s.augment.remove_patterns == hidden for s in schedules)
        assert (recipe.objective.color == 0) == hidden
        room = script.open_all(options, script.ProtoDepth.from_pretrained("any-sensor"), script.Reporter())[
            1
        ]  # learned from as the sensor gave it; frames that judge show corners
        shares = [float((frames[0].sparse_depth > 0).mean()) for frames in (room.train, room.test)]
        assert (shares[0] > 0.8) == hidden
        assert shares[1] < 0.5


def test_the_table_of_the_document_is_that_of_the_kept_numbers() -> None:
    script = load_benchmark("real_sequence")
    document = json.loads((ROOT / "benchmarks" / "real_sequence.json").read_text())
    text = (ROOT / "docs" / "reproducing.md").read_text()
    assert script.written(text, script.markdown(script.beside(document))) == text

    rows = {script.row_name(row): row for row in document["rows"]}
    recordings, best = document["domains"][1:], {}
    for d in recordings:
        best[d] = min(errors[d]["mae"] for errors in document["floor"].values())
    ends = {n: document["matrix"][script.row_key(r)][r["setting"]]["mae"][-1][1:] for n, r in rows.items()}
    shares = {n: sum(e / best[d] for e, d in zip(end, recordings, strict=True)) / 3 for n, end in ends.items()}
    assert f"{shares['ProtoDepth']:.3f} of the best interpolation (ProtoDepth-A {shares['ProtoDepth-A']:.3f}" in text
    baselines = {n: share for n, share in shares.items() if not n.startswith(("ProtoDepth", "Pretrained"))}
    least = min(baselines, key=lambda n: baselines[n])
    assert f"{least} with {baselines[least]:.3f}, is the untouched base ({shares['Pretrained']:.3f})" in text
    assert max(shares["ProtoDepth"], shares["ProtoDepth-A"]) < baselines[least]
    assert rows["ProtoDepth"]["forgetting"]["mae"] == 0
