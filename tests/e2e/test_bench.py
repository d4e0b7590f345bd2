"""protodepth bench and tune on tiny worlds: every experiment end to end, stopped and resumed, shared by processes."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from helpers.killing import Killer
from protodepth.cli import main
from protodepth.data.arguments import open_domain
from protodepth.experiments import bench, trainings
from protodepth.methods.base import methods
from protodepth.methods.protodepth import ProtoDepthMethod
from protodepth.model import ProtoDepth
from protodepth.training import stages
from protodepth.training.evaluate import evaluate

TINY = ["--size", "32x48", "--frames", "3", "--steps", "2", "--base-steps", "1"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for the whole file: experiments share bases and trainings."""
    return tmp_path_factory.mktemp("bench") / "out"


def run(out: Path, *words: str, code: int = 0) -> None:
    assert main.run(["bench", *words, "--out", str(out), *TINY]) == code


def results(out: Path, name: str) -> dict:
    return json.loads((out / "results.json").read_text())["experiments"][name]


def cells(out: Path, kind: str = "*") -> dict[str, float]:
    """Finished cells and when they were written."""
    found = (out / "cells").glob(f"{kind}/*/result.json")
    return {path.parent.name: path.stat().st_mtime_ns for path in found}


MAIN = ("--backbone", "lite", "--methods", "pretrained,finetune,protodepth")


def test_a_main_table_has_scores_gains_differences_costs_and_the_papers_numbers(out, capsys):
    run(out, "outdoor", *MAIN, "--seeds", "0,1")
    found = results(out, "outdoor")["tables"]
    ours = next(r for r in found["scores"] if r["Method"] == "ProtoDepth")
    assert ours["Forgetting MAE"]["mean"] == 0
    assert ours["Average performance MAE"]["spread"] is not None
    assert {r["Method"] for r in found["scores"]} == {"Pretrained", "Finetuned", "ProtoDepth", "ProtoDepth-A"}
    assert {"scores", "gain", "stages", "paired", "costs"} == set(found)
    assert next(r for r in found["gain"] if r["Method"] == "ProtoDepth-A")["Forgetting"]["paper"] == 53.21
    text = capsys.readouterr().out
    assert "Same numbers with and without the domain's name" in text
    page = (out / "report.html").read_text()
    assert "ProtoDepth-A" in page
    assert (out / "report.md").read_text().count("| lite |") > 10


def test_a_method_from_elsewhere_that_chooses_a_domain_has_both_rows_in_the_tables(tmp_path, monkeypatch):
    """It says ``chooses`` and has settings of its own; no file of the package knows its name."""
    monkeypatch.setattr(methods, "_items", dict(methods._items))

    @dataclass(frozen=True, slots=True, kw_only=True)
    class ElsewhereConfig:
        size: int = 2

    @methods.register("elsewhere")
    class Elsewhere(ProtoDepthMethod):
        name = "elsewhere"
        Config = ElsewhereConfig
        without_choosing: ClassVar[dict] = {}

        def __init__(self, model, objective, config=None):
            size = (config or ElsewhereConfig()).size
            super().__init__(model, objective, replace(model.config, image_size=size, depth_size=size))

    run(tmp_path, "outdoor", "--backbone", "lite", "--methods", "finetune,elsewhere,protodepth")
    run(tmp_path, "zero-shot", "--backbone", "lite", "--methods", "finetune,elsewhere")
    run(tmp_path, "training-time", "--backbone", "lite", "--sequence", "outdoor", "--methods", "elsewhere")
    run(tmp_path, "qualitative", "--backbone", "lite", "--sequence", "outdoor", "--methods", "elsewhere")
    tables = results(tmp_path, "outdoor")["tables"]
    assert [r["Method"] for r in tables["scores"]] == [
        "Finetuned",
        "elsewhere-A",
        "elsewhere",
        "ProtoDepth-A",
        "ProtoDepth",
    ]
    assert [r["Difference"] for r in tables["paired"] if "elsewhere" in r["Difference"]] == [
        "elsewhere-A minus ProtoDepth-A",
        "elsewhere minus ProtoDepth",
    ]
    assert [r["Method"] for r in tables["costs"]] == ["Finetuned", "elsewhere", "ProtoDepth"]
    assert {r["Method"] for r in results(tmp_path, "zero-shot")["tables"]["unseen"]} == {"Finetuned", "elsewhere-A"}
    assert "elsewhere-A" in {r["Method"] for r in results(tmp_path, "qualitative")["tables"]["outdoor-lite-distance"]}


def test_finished_cells_are_not_repeated_and_seeds_can_be_added(out):
    run(out, "outdoor", *MAIN, "--seeds", "0", "1")
    before = cells(out)
    run(out, "outdoor", "--backbone", "lite", "--methods", "pretrained", "--seeds", "2")
    after = cells(out)
    assert {k: after[k] for k in before} == before
    assert len(after) == len(before) + 2  # the third seed has a base of its own
    assert results(out, "outdoor")["tables"]["paired"][0]["seeds"] == "2"


def test_another_configuration_in_the_same_folder_is_refused(out, capsys):
    run(out, "outdoor", *MAIN)
    before = cells(out)
    other = [w if w != "2" else "3" for w in TINY]
    assert main.run(["bench", "outdoor", *MAIN, "--out", str(out), *other]) == 2
    assert "schedule.steps = 2, this command has 3" in capsys.readouterr().err
    assert cells(out) == before


def test_scaffnet_is_trained_once_even_if_the_base_around_it_is_interrupted(tmp_path, monkeypatch):
    fitted, trained, depths = stages.fit, trainings.train_scaffnet, []

    def cut(*arguments, **named):
        raise KeyboardInterrupt

    def counted(network, *arguments, **named):
        found = trained(network, *arguments, **named)
        depths.append({k: v.clone() for k, v in network.state_dict().items()})
        return found

    monkeypatch.setattr(stages, "fit", cut)
    monkeypatch.setattr(trainings, "train_scaffnet", counted)
    words = ("indoor", "--backbone", "fusionnet", "--methods", "pretrained")
    run(tmp_path / "out", *words, code=130)
    monkeypatch.setattr(stages, "fit", fitted)
    run(tmp_path / "out", *words)
    assert len(depths) == 1
    (folder,) = (tmp_path / "out" / "cells" / "base").glob("*/model")
    stored = ProtoDepth.from_pretrained(folder).backbone.scaffnet.state_dict()
    assert all(torch.equal(stored[k], v) for k, v in depths[0].items())


def test_an_interrupted_bench_goes_on_and_ends_with_the_same_numbers(out, tmp_path, monkeypatch):
    run(out, "outdoor", *MAIN)
    fitted = stages.fit

    def cut(method, domain, *arguments, **named):
        if (method.name, domain.name) == ("protodepth", "highway"):
            raise KeyboardInterrupt
        return fitted(method, domain, *arguments, **named)

    monkeypatch.setattr(stages, "fit", cut)
    run(tmp_path / "out", "outdoor", *MAIN, code=130)
    done = cells(tmp_path / "out")
    assert done
    assert not list((tmp_path / "out").rglob("lock"))
    monkeypatch.setattr(stages, "fit", fitted)
    run(tmp_path / "out", "outdoor", *MAIN)
    assert {k: cells(tmp_path / "out")[k] for k in done} == done

    def numbers(folder: Path) -> dict:
        return {
            k: c["result"]["matrix"] for k, c in results(folder, "outdoor")["cells"].items() if k.endswith(tuple(keys))
        }

    keys = [key.rsplit("-", 1)[1] for key in cells(tmp_path / "out", "sequence")]
    assert numbers(out) == numbers(tmp_path / "out")


def test_two_processes_share_one_folder_and_no_cell_is_made_twice(tmp_path):
    own = ["--backbone", "lite", "--methods", "pretrained,finetune"]
    words = ["bench", "outdoor", *own, "--out", str(tmp_path / "out"), *TINY]
    logs = [tmp_path / "first.log", tmp_path / "second.log"]
    with Killer(tmp_path) as commands:
        both = [commands.start(words, log=log) for log in logs]
        codes = [commands.wait(process) for process in both]
    texts = [log.read_text() for log in logs]
    assert codes == [0, 0], texts
    begun = [line for text in texts for line in text.splitlines() if line.startswith("[")]
    made = [line.partition("] ")[2] for line in begun]
    assert sorted(made) == sorted(set(made))
    assert len(made) == 3
    assert results(tmp_path / "out", "outdoor")["missing"] == []


def test_figures_and_the_unseen_domain_come_from_the_trainings_that_are_there(out):
    run(out, "outdoor", *MAIN)
    before = cells(out, "sequence")
    few = ("--backbone", "lite", "--methods", "finetune,protodepth")
    run(out, "qualitative", "--sequence", "outdoor", *few)
    run(out, "zero-shot", *few)
    run(out, "tsne", "--sequence", "outdoor", "--backbone", "lite")
    assert cells(out, "sequence") == before
    assert results(out, "zero-shot")["tables"]["unseen"][0]["garden MAE"]["mean"] > 0
    figures = {p.name for p in (out / "figures").rglob("*.*")}
    assert {"outdoor-lite-0.png", "outdoor-lite-1.png", "outdoor-lite-distance.svg", "outdoor-lite.svg"} <= figures
    distance = results(out, "qualitative")["tables"]["outdoor-lite-distance"]
    assert [r["Method"] for r in distance] == ["Finetuned", "ProtoDepth", "ProtoDepth-A"]
    (points,) = (c["result"] for c in results(out, "tsne")["cells"].values())
    assert points["mark_labels"] == ["street", "street_dusk", "highway"]
    assert len(points["points"]) == 6


def test_the_last_state_of_a_training_predicts_what_its_table_says(out):
    """What zero-shot and the figures load is the network that was judged."""
    run(out, "outdoor", *MAIN)
    options = bench.requests(out, "outdoor")[0]
    store = bench.Store(out)
    for training in bench.plan(["outdoor"], options):
        if training.label["method"] in ("finetune", "protodepth"):
            domains = [open_domain(d) for d in training.inputs["recipe"]["domains"]]
            method = trainings.load_stage(store, training, domains, domains[-1].name)
            found = evaluate(lambda b, m=method: m.predict(b, None), domains[1].test, domains[1].rules).mean
            told = store.result(training)["matrix"][method.name]["agnostic"]["mae"][2][1]
            assert found["mae"] == pytest.approx(told, rel=1e-6)


def test_set_sizes_ablations_times_and_the_joint_bound_have_their_rows(out):
    run(out, "set-sizes-outdoor", "joint", "--backbone", "lite", "--sequence", "outdoor")
    timed = ("--methods", "finetune,replay,protodepth")
    run(out, "training-time", "--backbone", "lite", "--sequence", "outdoor", *timed)
    sizes = results(out, "set-sizes-outdoor")["tables"]["sizes"]
    assert [(r["N image"], r["N depth"]) for r in sizes] == [
        ("–", "–"),
        ("1", "1"),
        ("10", "10"),
        ("25", "10"),
        ("25", "25"),
        ("100", "100"),
    ]
    assert sizes[3]["street_dusk MAE"]["paper"] == 483.92
    rows = [r["Method"] for r in results(out, "training-time")["tables"]["outdoor"]]
    assert rows == ["Finetuned", "Replay", "ProtoDepth", "ProtoDepth-A"]
    assert results(out, "training-time")["tables"]["outdoor"][0]["highway times finetuning"]["mean"] == 1
    assert [r["Method"] for r in results(out, "joint")["tables"]["mean"]][1] == "Joint"


def test_ablations_have_a_row_for_every_part(out):
    run(out, "ablations", "--backbone", "lite", "--sequence", "outdoor")
    rows = results(out, "ablations")["tables"]["outdoor"]
    assert len(rows) == 7
    assert rows[0]["street_dusk MAE"]["paper"] == 505.01


def test_the_curve_and_the_floor(out):
    run(out, "forgetting-curve", "--backbone", "lite", "--methods", "finetune,protodepth")
    assert (out / "figures" / "forgetting-curve" / "lite-mae.svg").read_text().count("<path") == 3
    run(out, "classical", "--backbone", "lite", "--sequence", "outdoor")
    rows = {r["Predictor"]: r for r in results(out, "classical")["tables"]["outdoor"]}
    assert set(rows) == {"nearest", "linear", "morphological", "lite, base"}
    assert "base is" in results(out, "classical")["findings"][0]


def test_foundation_says_what_is_missing_and_how_to_get_it_and_then_uses_it(out, tmp_path, capsys):
    own = ("--backbone", "lite")
    run(out, "foundation", *own)
    assert "--images FOLDER" in results(out, "foundation")["missing"][0]
    run(out, "foundation", "--images", str(tmp_path / "images"))
    names = sorted(p.stem for p in (tmp_path / "images").glob("*.png"))
    assert names
    (training,) = bench.plan(["foundation"], bench.requests(out, "foundation")[0])
    truth = {f.name: f.ground_truth for f in open_domain(training.inputs["recipe"]["domains"][1]).test}
    (tmp_path / "maps").mkdir()
    for name in names:
        np.save(tmp_path / "maps" / f"{name}.npy", 1 / (3 * truth[name]))
    maps = ("--predictions", str(tmp_path / "maps"), "--kind", "disparity")
    given = (*maps, "--scale-by", "truth", "--outside", "Oracle")
    run(out, "foundation", *own, *given)
    row = results(out, "foundation")["tables"]["errors"][0]
    assert row["Method"] == "Oracle (scaled at ground truth)"
    assert row["corridor_night MAE"]["mean"] == pytest.approx(0, abs=1e-2)
    assert results(out, "foundation")["missing"] == []


def test_tune_chooses_on_val_and_bench_uses_it(tmp_path):
    words = ["--sequence", "outdoor", "--methods", "finetune", "protodepth", "--trials", "2"]
    assert main.run(["tune", *words, "--out", str(tmp_path / "tuning"), *TINY]) == 0
    record = json.loads((tmp_path / "tuning" / "trials.json").read_text())
    assert record["split"] == "val"
    assert [t["method"] for t in record["trials"]] == ["finetune"] * 2 + ["protodepth"] * 2
    for method in ("finetune", "protodepth"):
        own = [t for t in record["trials"] if t["method"] == method]
        assert min(own, key=lambda t: t["score"])["chosen"]
    tuned = ("--tuned", str(tmp_path / "tuning" / "tuned.toml"))
    assert main.run(["bench", "outdoor", "--dry-run", *MAIN, *tuned, *TINY]) == 0
    again = ["--sequence", "outdoor", "--methods", "finetune", "--trials", "1"]  # known cells: nothing is trained
    assert main.run(["tune", *again, "--out", str(tmp_path / "tuning"), *TINY]) == 0
    kept = json.loads((tmp_path / "tuning" / "trials.json").read_text())["trials"]
    assert [t["method"] for t in kept] == ["protodepth"] * 2 + ["finetune"]  # the other method's record stays


def test_tune_on_given_data_and_all_three_domains(tmp_path):
    words = ["--sequence", "indoor", "--methods", "finetune", "--trials", "1", "--domains", "3", "--data"]
    worlds = ["worlds:office", "worlds:room", "worlds:garden"]
    assert main.run(["tune", *words, *worlds, "--out", str(tmp_path), *TINY]) == 0
    (cell,) = (tmp_path / "cells" / "sequence").iterdir()
    domains = json.loads((cell / "result.json").read_text())["identity"]["settings"]["recipe"]["domains"]
    assert [d.partition("?")[0] for d in domains] == worlds
    assert json.loads((tmp_path / "trials.json").read_text())["trials"][0]["domains"] == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "forgetting-curve"),
        (["indoor", "--methods", "sgd"], "protodepth"),
        (["indoor", "--backbone", "lite", "--methods", "l2p"], "uformer"),
        (["indoor", "--seeds", "one"], "whole numbers"),
        (["indoor", "--size", "32"], "HEIGHTxWIDTH"),
        (["indoor", "--data", "D1=worlds:room", "worlds:office"], "name all domains"),
        (["indoor", "--data", "D1=worlds:room", "D3=worlds:office"], "without a gap"),
        (["indoor", "--data", "worlds:room", "worlds:office", "worlds:moon"], "unknown world 'moon'"),
        (["indoor", "--data", "worlds:room", "nowhere", "worlds:office"], "nowhere"),
        (["indoor", "--data", "worlds:room", "worlds:office", "worlds:room?train=8"], "two domains are called 'room'"),
        (["zero-shot", "--data", "worlds:room", "worlds:office", "worlds:garden", "worlds:moon"], "'moon'"),
        (["indoor", "--base", "kbnet"], "NETWORK=FOLDER"),
        (["indoor", "--sequence", "outdoor"], "leave --sequence out"),
    ],
)
def test_bad_input_is_one_clear_line_and_nothing_is_written(words, message, tmp_path, capsys):
    assert main.run(["bench", *words, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_list_names_every_experiment(capsys):
    assert main.run(["bench", "list"]) == 0
    text = capsys.readouterr().out
    assert "set-sizes-outdoor" in text
    assert "qualitative" in text
