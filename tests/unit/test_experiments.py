"""Cells, locks, plans, statistics and tables of the bench, without any training."""

import json
import os
import re
import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
import pytest

from protodepth.cli.main import run
from protodepth.errors import CheckpointError, ConfigError, DataError, UnknownNameError
from protodepth.experiments import (
    ablations,
    bench,
    catalogue,
    foundation,
    locks,
    main_tables,
    paper,
    scores,
    thin_things,
    trainings,
    tuning,
)
from protodepth.experiments.cells import Cell, Store, digest, ordered
from protodepth.experiments.planning import Options, Planner, Training, chosen_values, read_tuned
from protodepth.metrics import METRICS, ScoreMatrix, Scores
from protodepth.progress import Reporter
from protodepth.report import bench_page as page
from protodepth.report import bench_page as report_bench
from protodepth.report import tables
from protodepth.report.tables import Column, Line, Table, Value
from protodepth.training.sequence import SequenceResult


def cell(name: str, needs: tuple[Cell, ...] = (), **settings: object) -> Cell:
    return Cell(kind="errors", label={"name": name}, settings={"name": name, **settings}, needs=needs)


# --- cells ------------------------------------------------------------------------------------------------------------


def test_a_setting_of_a_needed_cell_changes_the_key_of_the_cell_itself():
    keys = {cell("b", needs=(cell("a", steps=n),)).key for n in (1, 2)}
    assert len(keys) == 2
    assert cell("b", needs=(cell("a", steps=1),)).key in keys


def test_the_label_is_for_reading_and_the_variant_is_not_part_of_the_key():
    plain = Cell(kind="sequence", label={"method": "protodepth", "variant": ""}, settings={"n": 10})
    named = Cell(kind="sequence", label={"method": "protodepth", "variant": "10/5"}, settings={"n": 10})
    assert plain.key == named.key


def test_the_hash_does_not_depend_on_the_order_of_the_settings():
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_cells_come_once_and_after_what_they_need():
    base = cell("base")
    one, two = cell("one", needs=(base,)), cell("two", needs=(base,))
    last = cell("last", needs=(two, one))
    assert [c.label["name"] for c in ordered([last, one, two])] == ["base", "two", "one", "last"]


def test_a_result_that_is_not_this_cells_is_refused(tmp_path):
    store, own = Store(tmp_path), cell("a", steps=1)
    store.write(own, {"x": 1.5})
    assert store.result(own) == {"x": 1.5}
    place = store.place(own) / "result.json"
    changed = json.loads(place.read_text())
    changed["identity"]["settings"]["steps"] = 2
    place.write_text(json.dumps(changed))
    with pytest.raises(CheckpointError, match="other settings"):
        store.result(own)


# --- locks ------------------------------------------------------------------------------------------------------------


def test_a_lock_is_held_by_one_and_free_again_afterwards(tmp_path):
    with locks.holding(tmp_path / "lock") as first, locks.holding(tmp_path / "lock") as second:
        assert first is not None
        assert second is None
    assert not (tmp_path / "lock").exists()
    with locks.holding(tmp_path / "lock") as third:
        assert third is not None


def test_the_lock_of_a_killed_process_is_taken_over_at_once(tmp_path):
    script = (
        "import sys, os; from pathlib import Path; from protodepth.experiments import locks\n"
        f"locks.acquire(Path({str(tmp_path / 'lock')!r})); sys.stdout.write('held'); sys.stdout.flush(); os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "held", done.stderr
    assert (tmp_path / "lock").exists()
    with locks.holding(tmp_path / "lock") as lock:
        assert lock is not None
        lock.check()


def test_a_process_number_that_is_used_again_is_another_process(tmp_path):
    path = tmp_path / "lock"
    about = {"pid": os.getpid(), "birth": "1", "machine": locks.this_machine(), "token": "old"}
    path.write_text(json.dumps(about))
    assert locks.is_stale(path) == (locks.birth(os.getpid()) != "")  # where the system cannot tell, it is not stale
    path.write_text(json.dumps({**about, "birth": locks.birth(os.getpid())}))
    assert not locks.is_stale(path)


def test_the_lock_of_another_machine_is_stale_only_after_its_heartbeat_has_stopped(tmp_path):
    path = tmp_path / "lock"
    path.write_text(json.dumps({"pid": 1, "birth": "1", "machine": "elsewhere", "token": "t"}))
    assert locks.acquire(path) is None
    old = time.time() - locks.STALE_AFTER - 60
    os.utime(path, (old, old))
    lock = locks.acquire(path)
    assert lock is not None
    lock.release()


def test_a_half_written_lock_is_respected_while_it_is_fresh(tmp_path):
    (tmp_path / "lock").write_text("{")
    assert locks.acquire(tmp_path / "lock") is None


def test_breaking_a_lock_leaves_that_of_a_living_process_in_place(tmp_path):
    path = tmp_path / "lock"
    lock = locks.acquire(path)
    locks._break(path, "the token of a stale lock that is gone by now")
    assert lock.held()
    lock.release()


def test_a_holder_notices_that_its_lock_was_taken(tmp_path):
    path = tmp_path / "lock"
    lock = locks.acquire(path)
    path.write_text(json.dumps({"token": "another"}))
    with pytest.raises(CheckpointError, match="taken by another process"):
        lock.check()
    lock.release()
    assert path.exists()  # not ours to remove


COMPETE = """
import sys, time
from pathlib import Path
from protodepth.experiments import locks
folder, name = Path(sys.argv[1]), sys.argv[2]
(folder / f"{name}.ready").touch()
while len(list(folder.glob("*.ready"))) < 3:
    time.sleep(0.01)
end = time.monotonic() + 1.0
with (folder / f"{name}.txt").open("w") as file:
    while time.monotonic() < end:
        with locks.holding(folder / "lock") as lock:
            if lock is not None:
                begun = time.monotonic_ns()
                time.sleep(0.002)
                print(begun, time.monotonic_ns(), file=file)
"""


def test_of_three_processes_only_one_at_a_time_holds_a_lock(tmp_path):
    """Each takes the lock as often as it can and writes down when; two at once would overlap."""
    commands = [[sys.executable, "-c", COMPETE, str(tmp_path), str(n)] for n in range(3)]
    workers = [subprocess.Popen(command) for command in commands]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0, 0]
    texts = [line.split() for n in range(3) for line in (tmp_path / f"{n}.txt").read_text().splitlines()]
    spans = sorted((int(begun), int(ended)) for begun, ended in texts)
    assert len(spans) > 5
    assert all(ended <= begun for (_, ended), (begun, _) in pairwise(spans))


# --- the work loop ----------------------------------------------------------------------------------------------------


@pytest.fixture
def worker(monkeypatch):
    done: list[str] = []

    def run(job):
        name = job.cell.label["name"]
        done.append(name)
        if job.cell.settings.get("fails"):
            raise DataError(f"{name} is broken")
        return {"name": name}

    monkeypatch.setitem(bench.WORKERS, "errors", run)
    return done


def test_finished_cells_are_not_repeated(tmp_path, worker):
    cells, store = ordered([cell("b", needs=(cell("a"),)), cell("c")]), Store(tmp_path)
    assert bench.work(cells, store, Reporter(quiet=True)) == {}
    assert worker == ["a", "b", "c"]
    assert bench.work(cells, store, Reporter(quiet=True)) == {}
    assert worker == ["a", "b", "c"]
    assert not list(tmp_path.rglob("lock"))


def test_a_cell_that_fails_takes_down_only_what_needs_it(tmp_path, worker):
    bad = cell("bad", fails=True)
    failed = bench.work(ordered([cell("x", needs=(bad,)), cell("y")]), Store(tmp_path), Reporter(quiet=True))
    assert failed == {"bad": "bad is broken", "x": "needs a cell that failed"}
    assert worker == ["bad", "y"]


def test_a_cell_that_another_process_works_on_is_waited_for_and_not_run_twice(tmp_path, worker):
    store, own = Store(tmp_path), cell("a")
    other = store.lock_path(own)
    other.parent.mkdir(parents=True)
    other.write_text(json.dumps({"pid": 1, "birth": "1", "machine": "elsewhere", "token": "t"}))

    looks_taken = []

    def pause(seconds: float) -> None:  # while we wait, the other machine finishes
        looks_taken.append(seconds)
        store.write(own, {"name": "made elsewhere"})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.time, "sleep", pause)
        assert bench.work([own], store, Reporter(quiet=True), pause=7.0) == {}
    assert looks_taken == [7.0]
    assert worker == []
    assert store.result(own) == {"name": "made elsewhere"}


# --- plans ------------------------------------------------------------------------------------------------------------

TINY = Options(size=(32, 48), frames=4, steps=2, base_steps=2)


def labels(name: str, options: Options = TINY) -> list[dict]:
    return [c.label for c in bench.plan([name], options)]


@pytest.mark.parametrize("sequence", ["indoor", "outdoor", "mixed"])
def test_every_row_of_the_main_and_additional_tables_has_a_cell(sequence):
    planned = {(x["backbone"], x["method"]) for x in labels(sequence)}
    printed = {(r.backbone, r.method) for r in paper.score_rows(sequence)}
    assert printed <= planned


@pytest.mark.parametrize("sequence", ["indoor", "outdoor"])
def test_every_row_of_the_set_size_tables_has_a_cell(sequence):
    rows = paper.table(f"set-sizes-{sequence}")["rows"]
    printed = {f"{r['image_size']}/{r['depth_size']}" if "image_size" in r else "" for r in rows}
    assert {x["variant"] for x in labels(f"set-sizes-{sequence}")} == printed


def test_every_row_of_the_other_tables_has_a_cell():
    ablated = {x["variant"] for x in labels("ablations")}
    assert ablated == {r["variant"] for r in paper.table("ablations")["rows"]}
    timed = {(x["method"], "agnostic" if x["variant"] == "A" else "incremental") for x in labels("training-time")}
    assert {(r["method"], r["setting"]) for r in paper.table("training-time")["rows"]} <= timed
    for name in ("joint", "zero-shot"):
        assert {r["method"] for r in paper.table(name)["rows"]} <= {x["method"] for x in labels(name)}
    assert "protodepth" in {x.get("method") for x in labels("foundation")}


def test_every_experiment_of_the_list_can_be_planned_and_is_listed():
    names = [
        "indoor",
        "outdoor",
        "mixed",
        "set-sizes-indoor",
        "set-sizes-outdoor",
        "ablations",
        "training-time",
        "joint",
        "zero-shot",
        "foundation",
        "forgetting-curve",
        "tsne",
        "qualitative",
        "classical",
    ]
    assert list(catalogue.EXPERIMENTS) == names
    text = catalogue.listing()
    for name in names:
        assert bench.plan([name], TINY)
        assert f"\n{name} " in text


def test_the_best_set_size_is_the_training_of_the_main_table():
    main = {c.key for c in bench.plan(["indoor"], TINY) if c.label["method"] == "protodepth"}
    sizes = {c.label["variant"]: c.key for c in bench.plan(["set-sizes-indoor"], TINY)}
    assert sizes["10/5"] in main
    assert sizes["10/10"] not in main


def test_ablations_leave_out_exactly_the_layers_of_a_modality():
    found = ablations.ablations("kbnet", "small")
    sets = {name: set(found[name]["layers"]) for name in ("no-image", "no-depth", "no-bottleneck")}
    everything = set.union(*sets.values())
    assert everything - sets["no-bottleneck"] == {"latent"}
    assert all("image" in layer for layer in everything - sets["no-image"])
    assert all("depth" in layer for layer in everything - sets["no-depth"])
    assert len(everything) == 7  # as published: the finest pair of skips has none


def test_every_seed_of_a_row_has_its_own_cell_and_its_own_buffer():
    cells = bench.plan(
        ["indoor"], Options(**{**_plain(TINY), "seeds": (0, 1), "backbones": ("lite",), "methods": ("replay",)})
    )
    assert len({c.key for c in cells}) == 2
    assert [c.settings["recipe"]["seed"] for c in cells] == [0, 1]  # the buffer is drawn with it
    assert len({c.needs[0].key for c in cells}) == 1  # one base for all seeds


def test_values_for_any_network_hold_where_the_file_does_not_name_one():
    tuned = {"indoor": {"any": {"ewc": {"rate": 5e-4}}, "kbnet": {"ewc": {"rate": 2e-4}}}}
    rates = {}
    for backbone in ("lite", "kbnet"):
        (cell,) = bench.plan(["indoor"], change(tuned=tuned, backbones=(backbone,), methods=("ewc",)))
        rates[backbone] = cell.settings["recipe"]["rates"]["ewc"]
    assert rates == {"lite": 5e-4, "kbnet": 2e-4}


def _plain(options: Options) -> dict:
    return {name: getattr(options, name) for name in Options.__dataclass_fields__}


def change(**values: object) -> Options:
    return Options(**{**_plain(TINY), **values})


def test_settings_reach_the_recipes_and_a_wrong_one_is_refused():
    plan = Planner(change(changes=("schedule.batch_size=8",), base_changes=("schedule.rate=0.5",)))
    row = Training(sequence="indoor", backbone="kbnet", method="ewc")
    assert plan.training(row).settings["recipe"]["schedule"]["batch_size"] == 8
    assert plan.base("indoor", "kbnet").settings["recipe"]["schedule"]["rate"] == 0.5
    with pytest.raises(UnknownNameError, match="batch_size"):
        Planner(change(changes=("schedule.batches=8",))).training(row)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("pach=4", r"unknown option of uformer 'pach'; choose one of: .*patch"),
        ("patch=0", r"patch=0.* must be positive"),
        ("patch=x", r"uformer cannot be built with .*'patch': 'x'"),
    ],
)
def test_an_impossible_option_of_a_base_is_refused_before_anything_runs(tmp_path, capsys, option, message):
    changed = ["--backbone", "uformer", "--set-base", f"backbone_options.{option}"]
    assert run(["bench", "indoor", *changed, "--out", str(tmp_path / "out")]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


def test_the_published_presets_can_be_asked_for_with_every_network():
    for backbone in ("lite", "kbnet", "voiced", "fusionnet", "uformer"):
        recipe = Planner(change(preset="kitti")).base("outdoor", backbone).settings["recipe"]
        assert recipe["preset"] == {"lite": "outdoor", "uformer": "full"}.get(backbone, "kitti")


def test_unknown_names_list_the_choices():
    with pytest.raises(UnknownNameError, match="forgetting-curve"):
        bench.plan(["tables"], TINY)
    with pytest.raises(UnknownNameError, match="protodepth"):
        bench.plan(["indoor"], change(methods=("sgd",)))
    with pytest.raises(UnknownNameError, match="kbnet"):
        bench.plan(["indoor"], change(backbones=("resnet",)))
    with pytest.raises(UnknownNameError, match="mixed"):
        bench.plan(["tsne"], change(sequences=("underwater",)))
    with pytest.raises(UnknownNameError, match="small"):
        bench.plan(["indoor"], change(backbones=("kbnet",), preset="huge"))


def test_l2p_on_a_convolutional_network_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match="uformer"):
        bench.bench(["indoor"], tmp_path / "out", change(backbones=("lite",), methods=("finetune", "l2p")))
    assert not (tmp_path / "out").exists()


def test_data_arguments_replace_the_worlds_and_two_are_too_few():
    plan = Planner(change(data=("worlds:office", "worlds:room", "worlds:warehouse", "worlds:garden")))
    domains = [d.partition("?")[0] for d in plan.domains("indoor")]
    assert domains == ["worlds:office", "worlds:room", "worlds:warehouse"]
    assert plan.unseen("outdoor").startswith("worlds:garden?size=32x48")
    assert plan.base("indoor", "lite").settings["recipe"]["data"].startswith("worlds:office")
    with pytest.raises(ConfigError, match="three domains"):
        bench.plan(["indoor"], change(data=("worlds:room", "worlds:office")))
    with pytest.raises(ConfigError, match="--sequence"):
        bench.plan(["ablations"], change(data=("worlds:room",) * 3))


def test_an_unseen_world_that_a_part_of_the_network_has_seen_is_refused():
    with pytest.raises(ConfigError, match="garden"):
        bench.plan(["zero-shot"], change(backbones=("fusionnet",)))


def test_size_and_frames_are_for_worlds_only():
    plan = Planner(TINY)
    assert plan.argument("worlds:room?train=1200") == "worlds:room?train=4&size=32x48&val=2&test=2"
    assert plan.argument("kitti:/data?x=1") == "kitti:/data?x=1"


def test_tuning_one_method_changes_its_cells_alone():
    tuned = {"indoor": {"lite": {"ewc": {"rate": 5e-4, "settings": {"strength": 7.0}}}}}

    def keys(options: Options) -> dict[str, str]:
        return {c.label["method"]: c.key for c in bench.plan(["indoor"], options) if c.label["backbone"] == "lite"}

    before, after = keys(TINY), keys(change(tuned=tuned))
    assert {m for m in before if before[m] != after[m]} == {"ewc"}
    (ewc,) = (c for c in bench.plan(["indoor"], change(tuned=tuned, backbones=("lite",), methods=("ewc",))))
    assert ewc.settings["recipe"]["rates"] == {"ewc": 5e-4}
    assert ewc.settings["recipe"]["settings"]["ewc"]["strength"] == 7.0


def test_a_mixed_base_has_a_head_for_rooms_and_streets():
    for backbone in ("kbnet", "uformer", "fusionnet"):
        settings = Planner(TINY).base("mixed", backbone).settings
        assert settings["recipe"]["backbone_options"]["depth_range"] == [0.1, 100.0]
    assert Planner(TINY).base("mixed", "lite").settings["recipe"]["preset"] == "mixed"


# --- the folder -------------------------------------------------------------------------------------------------------


def test_a_folder_with_another_configuration_is_refused_and_names_the_difference(tmp_path):
    bench.claim(tmp_path / "out", ["indoor"], TINY)
    bench.claim(
        tmp_path / "out", ["indoor"], change(seeds=(3,), backbones=("lite",))
    )  # more rows and seeds are welcome
    with pytest.raises(CheckpointError, match=r"steps = 2, this command has 3"):
        bench.claim(tmp_path / "out", ["indoor"], change(steps=3))
    assert len(bench.requests(tmp_path / "out", "indoor")) == 2
    bench.claim(tmp_path / "out", ["outdoor"], change(steps=3))  # another experiment may have its own
    elsewhere = {"mixed": {"any": {"ewc": {"rate": 1e-3}}}}
    bench.claim(
        tmp_path / "out", ["indoor"], change(tuned=elsewhere)
    )  # values for another sequence change nothing here
    with pytest.raises(CheckpointError, match=r"tuned\.indoor"):
        bench.claim(tmp_path / "out", ["indoor"], change(tuned={"indoor": elsewhere["mixed"]}))


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("dear reader")
    with pytest.raises(CheckpointError, match="holds no bench"):
        bench.claim(tmp_path, ["indoor"], TINY)
    with pytest.raises(CheckpointError, match="is a file"):
        bench.claim(tmp_path / "thesis.tex", ["indoor"], TINY)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_requests_come_back_as_they_were(tmp_path):
    asked = change(seeds=(0, 2), methods=("ewc",), tuned={"indoor": {"lite": {"ewc": {"rate": 1e-3}}}})
    bench.claim(tmp_path / "out", ["indoor"], asked)
    assert bench.requests(tmp_path / "out", "indoor") == [asked]


# --- settings agree ---------------------------------------------------------------------------------------------------


def sequence_result(method: str, told: float, not_told: float) -> SequenceResult:
    def made(value: float) -> Scores:
        return Scores({m: ScoreMatrix(np.full((2, 2), value)) for m in METRICS})

    return SequenceResult(method, ("a", "b"), made(told), made(not_told), None, ())


def test_a_baseline_with_other_numbers_in_the_other_setting_is_an_error():
    trainings.check_settings_agree(sequence_result("ewc", 1.0, 1.0))
    trainings.check_settings_agree(sequence_result("protodepth", 1.0, 2.0))
    with pytest.raises(DataError, match="ewc"):
        trainings.check_settings_agree(sequence_result("ewc", 1.0, 1.0 + 1e-12))


# --- tables -----------------------------------------------------------------------------------------------------------


def document(method: str, told: list[list[float]], not_told: list[list[float]] | None = None) -> dict:
    return {
        "matrix": {
            method: {
                "incremental": dict.fromkeys(METRICS, told),
                "agnostic": dict.fromkeys(METRICS, not_told or told),
            }
        },
        "domains": ["a", "b"],
        "training_seconds": {method: [2.0]},
        "extra_parameters": {method: 50},
        "extra_bytes": {method: 200},
        "parameters": 1000,
        "selection_accuracy": None,
        "about": {},
    }


def row_cell(method: str, seed: int) -> Cell:
    label = {"sequence": "indoor", "backbone": "kbnet", "method": method, "variant": "", "seed": seed}
    return Cell(kind="sequence", label=label, settings={"m": method, "s": seed})


@pytest.fixture
def rows() -> list[scores.Group]:
    """Two seeds.  Baseline: D_1 10 -> 15 and 10 -> 13, D_2 8 and 6; ours: 10, 10 and 6, 6; without the name 10 -> 11."""
    finished = [
        (row_cell("finetune", 0), document("finetune", [[10, 99], [15, 8]])),
        (row_cell("finetune", 1), document("finetune", [[10, 99], [13, 6]])),
        (row_cell("protodepth", 0), document("protodepth", [[10, 99], [10, 6]], [[10, 99], [11, 6]])),
        (row_cell("protodepth", 1), document("protodepth", [[10, 99], [10, 6]], [[10, 99], [11, 6]])),
    ]
    return scores.groups(finished)


def find(table: Table, *heads: str) -> dict[str, Value | str]:
    (line,) = (line for line in table.lines if line.heads[-len(heads) :] == heads)
    names = [f"{c.group} {c.title}".strip() for c in table.columns]
    return dict(zip(names, line.cells, strict=True))


def test_scores_are_mean_and_spread_over_seeds_beside_the_printed_numbers(rows):
    table = main_tables.score_table(rows, "indoor", paper=True)
    fine = find(table, "Finetuned")["Forgetting MAE"]
    assert fine.mean == pytest.approx(40.0)  # 50 % and 30 %
    assert fine.spread == pytest.approx(np.std([50, 30], ddof=1))
    assert fine.paper == 16.08
    ours = find(table, "ProtoDepth")["Average performance MAE"]
    assert (ours.mean, ours.spread, ours.paper) == (pytest.approx(26 / 3), 0.0, 52.497)
    assert find(table, "ProtoDepth-A")["Forgetting MAE"].mean == pytest.approx(10.0)


def test_paired_differences_use_the_same_seed(rows):
    table = main_tables.paired_table(rows)
    cells = find(table, "Finetuned minus ProtoDepth")
    assert cells["Forgetting MAE"].mean == pytest.approx(40.0)
    assert cells["Average performance MAE"].mean == pytest.approx(((33 - 26) / 3 + (29 - 26) / 3) / 2)
    assert cells["performance MAE better"] == "2 of 2"
    assert find(table, "Finetuned minus ProtoDepth-A")["Forgetting MAE"].mean == pytest.approx(30.0)


def test_the_gain_is_that_of_the_paper_when_the_papers_rows_are_put_in(rows):
    table = main_tables.gain_table(rows, "indoor")
    cells = find(table, "ProtoDepth-A")
    assert cells["Forgetting"].mean == pytest.approx(75.0)  # 10 instead of 40
    assert cells["Forgetting"].paper == 52.22
    assert "52.22" in cells["the paper's text"]


def test_findings_say_zero_forgetting_and_where_agnostic_wins(rows):
    text = " ".join(main_tables.findings(rows, "indoor"))
    assert "at most 0.000000 %" in text
    assert "75.0 % below the best baseline's on average (over 4 cells of network and metric): less than half" in text
    assert "ProtoDepth-A beats ProtoDepth in: no cell." in text
    assert "In the paper it does in: VOICED" in text
    at_the_end = (
        "KBNet, mean of all domains at the end (MAE): best is ProtoDepth with 8.0 mm; ProtoDepth is number 1 of 3"
    )
    assert at_the_end in text  # ours (10 + 6) / 2, without the name 8.5; the baseline 11.5 and 9.5


def test_costs_leave_out_the_times_of_resumed_runs(rows):
    rows[0].documents[0]["about"] = {"resumed": True}
    rows[0].documents[0]["training_seconds"] = {"finetune": [100.0]}
    cells = find(main_tables.cost_table(rows), "Finetuned")
    assert cells["training"].mean == 2.0
    assert cells["parameters extra"].mean == pytest.approx(5.0)  # the last of two columns of that name: per cent


def make_table(*means: float | None) -> Table:
    lines = tuple(Line((f"m{n}",), (Value(v),), ranked=n > 0) for n, v in enumerate(means))
    return Table(name="t", title="T", heads=("Method",), columns=(Column("MAE", "", "mm"),), lines=lines)


def test_best_and_second_best_are_marked_among_the_ranked():
    assert tables.marks(make_table(1.0, 5.0, 3.0, 4.0, None), 0) == ["", "", "best", "second", ""]
    assert tables.marks(make_table(1.0, 3.0, 3.0, 4.0), 0) == ["", "best", "best", "second"]
    text = tables.markdown(make_table(1.0, 5.0, 3.0))
    assert "| m2 | **3.0** |" in text
    assert "| m1 | <u>5.0</u> |" in text


def test_a_table_shows_spread_and_the_printed_number_and_escapes_names():
    line = Line(("<b>",), (Value(1.26, 0.24, 16.08),))
    table = Table(name="t", title="T", heads=("Method",), columns=(Column("MAE", "", "mm"),), lines=(line,))
    assert "| 1.3 ± 0.2 [16.08] |" in tables.markdown(table)
    html = tables.html(table)
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "paper 16.08" in html


def test_the_report_is_written_three_times_with_its_figures(tmp_path):
    figure = page.Figure("curve", "a curve", svg="<svg></svg>")
    section = page.Section(
        name="x", title="x: y", about="z", tables=[make_table(1.0, 2.0, 3.0)], figures=[figure], findings=["found"]
    )
    html, text, data = page.write(tmp_path, [section], {"command": "c"})
    assert "found" in html.read_text()
    assert "<svg></svg>" in html.read_text()
    assert "http" not in html.read_text().split("<body", 1)[1].replace("http://www.w3.org/2000/svg", "")
    assert "![a curve](figures/x/curve.svg)" in text.read_text()
    assert (tmp_path / "figures" / "x" / "curve.svg").read_text() == "<svg></svg>"
    assert json.loads(data.read_text())["experiments"]["x"]["tables"]["t"][2]["MAE"]["mean"] == 3.0


# --- thin things ------------------------------------------------------------------------------------------------------


def street() -> np.ndarray:
    depth = np.full((64, 96), 30.0)
    depth[10:60, 20:22] = 6.0  # a pole
    depth[30:50, 60:90] = 5.0  # a lorry: not thin
    depth[5:9, 80:82] = 28.5  # hardly in front of its background
    return depth


def test_the_window_is_on_the_pole_and_not_on_the_lorry():
    things = thin_things.thin_things(street())
    assert things
    (top, bottom), (left, right) = things[0].rows, things[0].columns
    assert top <= 10
    assert bottom >= 60
    assert left <= 20 < 22 <= right
    assert all(t.columns[1] <= 60 or t.score < things[0].score for t in things)
    assert len(things) == 1


def test_a_thing_before_the_sky_counts_and_an_empty_frame_has_none():
    depth = street()
    depth[:25] = np.where(depth[:25] > 20, 0, depth[:25])
    assert thin_things.thin_things(depth)[0].score > thin_things.thin_things(street())[0].score
    assert thin_things.thin_things(np.zeros((20, 30))) == []


def test_windows_stay_inside_the_image():
    for place in ((slice(0, 2), slice(0, 2)), (slice(60, 64), slice(94, 96)), (slice(0, 64), slice(5, 6))):
        rows, columns = thin_things.window(place, (64, 96))
        assert 0 <= rows[0] <= place[0].start
        assert place[0].stop <= rows[1] <= 64
        assert 0 <= columns[0] <= place[1].start
        assert place[1].stop <= columns[1] <= 96


def test_errors_by_distance_are_what_a_loop_over_pixels_finds():
    rng = np.random.default_rng(0)
    sparse = np.where(rng.random((20, 30)) < 0.02, 5.0, 0.0)
    error, counts = rng.random((20, 30)), rng.random((20, 30)) < 0.7
    expected = np.zeros((len(thin_things.DISTANCES) - 1, 2))
    points = np.argwhere(sparse > 0)
    for y, x in np.argwhere(counts):
        d = np.sqrt(((points - (y, x)) ** 2).sum(1).min())
        n = next(i for i in range(len(expected)) if thin_things.DISTANCES[i] <= d < thin_things.DISTANCES[i + 1])
        expected[n] += (error[y, x], 1)
    assert np.allclose(thin_things.by_distance(error, counts, sparse), expected)
    assert len(thin_things.bin_names()) == len(expected)


# --- an outside model -------------------------------------------------------------------------------------------------


def test_median_scaling_recovers_depth_from_any_scale_and_from_disparity():
    truth = np.random.default_rng(0).uniform(1, 5, (6, 8))
    sparse = np.where(np.random.default_rng(1).random(truth.shape) < 0.3, truth, 0)
    for kind, values in (("depth", 0.37 * truth), ("disparity", 12.0 / truth)):
        assert np.allclose(foundation.scaled(values, sparse, kind, "f"), truth)


def test_predictions_of_the_wrong_size_or_missing_or_without_a_point_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((4, 4)))
    with pytest.raises(DataError, match="own size"):
        foundation.read_outside(tmp_path, "a", (4, 5))
    with pytest.raises(DataError, match=r"no b\.npy"):
        foundation.read_outside(tmp_path, "b", (4, 4))
    with pytest.raises(DataError, match="scale by"):
        foundation.scaled(np.ones((2, 2)), np.zeros((2, 2)), "depth", "a")
    with pytest.raises(ConfigError, match="disparity"):
        foundation.scaled(np.ones((2, 2)), np.ones((2, 2)), "inverse", "a")
    with pytest.raises(ConfigError, match="not a folder"):
        bench.plan(["foundation"], change(predictions=str(tmp_path / "nowhere")))


# --- tuning -----------------------------------------------------------------------------------------------------------


def test_every_method_gets_the_same_number_of_trials_and_the_first_is_the_recipe():
    for method in tuning.SPACES:
        found = tuning.trials(method, 5)
        assert [t.number for t in found] == list(range(5))
        assert found[0].tuned({}) == {}
        assert len({json.dumps(t.values) for t in found}) == 5
        for trial in found[1:]:
            for name, low, high in tuning.SPACES[method]:
                assert 0.95 * low <= trial.values[name] <= 1.05 * high
    with pytest.raises(UnknownNameError, match="ewc"):
        tuning.trials("pretrained", 3)


def test_trials_are_judged_on_val_frames():
    trial = tuning.trials("ewc", 2)[1]
    planned = tuning.plan_trial(change(backbones=("lite",)), "indoor", "lite", trial)
    assert planned.settings["split"] == "val"
    assert planned.settings["recipe"]["rates"]["ewc"] == trial.values["rate"]
    assert planned.settings["recipe"]["settings"]["ewc"]["strength"] == trial.values["strength"]


def test_trials_see_two_domains_or_all_three():
    trial = tuning.trials("protodepth", 1)[0]
    seen = [
        tuning.plan_trial(change(), "indoor", "lite", trial, domains).settings["recipe"]["domains"]
        for domains in (2, 3)
    ]
    assert len(seen[0]) == 2
    assert len(seen[1]) == 3
    assert seen[1][:2] == seen[0]
    for wrong in (1, 4):
        with pytest.raises(ConfigError, match="must be 2 or 3"):
            tuning.plan_trial(change(), "indoor", "lite", trial, wrong)


def test_trials_may_start_from_chosen_values_and_change_only_their_own():
    start = {"indoor": {"any": {"protodepth": {"rate": 0.07, "settings": {"image_size": 60, "separation": 0.044}}}}}
    first, second = tuning.trials("protodepth", 2)
    kept = tuning.plan_trial(change(tuned=start), "indoor", "kbnet", first).settings["recipe"]
    assert (kept["rates"]["protodepth"], kept["prototypes"]["image_size"], kept["prototypes"]["separation"]) == (
        0.07,
        60,
        0.044,
    )
    changed = tuning.plan_trial(change(tuned=start), "indoor", "kbnet", second).settings["recipe"]
    assert changed["prototypes"]["image_size"] == 60
    assert changed["rates"]["protodepth"] == second.values["rate"] != 0.07
    assert changed["prototypes"]["separation"] == second.values["separation"] != 0.044


def test_a_network_without_values_of_its_own_takes_those_for_any_network_method_by_method():
    tuned = {"indoor": {"any": {"ewc": {"rate": 1e-3}, "lwf": {"rate": 2e-3}}, "kbnet": {"lwf": {"rate": 3e-3}}}}
    rates = {
        (b, m): chosen_values(tuned, "indoor", b, m).get("rate")
        for b in ("kbnet", "lite")
        for m in ("ewc", "lwf", "cmp")
    }
    assert list(rates.values()) == [1e-3, 3e-3, None, 1e-3, 2e-3, None]


def test_the_score_of_a_trial_is_the_geometric_mean_of_average_performance():
    assert tuning.score(document("ewc", [[10, 99], [15, 8]]), "ewc") == pytest.approx(11.0)
    both = document("protodepth", [[4, 99], [4, 4]], [[4, 99], [13, 10]])
    assert tuning.score(both, "protodepth") == pytest.approx(6.0)  # 4 told, 9 not told


def test_a_tuned_file_with_unknown_names_is_refused(tmp_path):
    (tmp_path / "t.toml").write_text("[indoor.lite.ewc]\nrate = 1e-3\n")
    assert read_tuned(tmp_path / "t.toml")["indoor"]["lite"]["ewc"]["rate"] == 1e-3
    (tmp_path / "t.toml").write_text("[indoors.lite.ewc]\nrate = 1e-3\n")
    with pytest.raises(UnknownNameError, match="outdoor"):
        read_tuned(tmp_path / "t.toml")
    (tmp_path / "t.toml").write_text('[indoor.lite.ewc]\nrate = "fast"\n')
    with pytest.raises(ConfigError, match=r"indoor\.lite\.ewc\.rate must be a positive number, got 'fast'"):
        read_tuned(tmp_path / "t.toml")
    (tmp_path / "t.toml").write_text("[indoor.lite.sgd]\nrate = 1e-3\n")
    with pytest.raises(UnknownNameError, match="ewc"):
        read_tuned(tmp_path / "t.toml")


def test_two_columns_of_one_name_are_told_apart_by_their_unit_in_the_records():
    columns = (
        Column("parameters", "a domain", "M"),
        Column("parameters", "a domain", "%"),
        Column("MAE", "room", "mm"),
    )
    made = Table(
        name="t",
        title="",
        heads=("Method",),
        columns=columns,
        lines=(Line(("x",), (Value(1.0), Value(2.0), Value(3.0))),),
    )
    (row,) = report_bench._rows(made)
    assert {k: v["mean"] for k, v in row.items() if k != "Method"} == {
        "a domain parameters, M": 1.0,
        "a domain parameters, %": 2.0,
        "room MAE": 3.0,
    }


def test_uformers_small_patches_are_for_the_worlds_and_real_images_have_the_published_ones() -> None:
    drawn = Planner(TINY).base_recipe("worlds-tiny-mixed", "uformer")
    real = Planner(change(data=("kitti:/a", "nyu_v2:/b", "waymo:/c"))).base_recipe("worlds-tiny-mixed", "uformer")
    assert drawn.backbone_options["patch"] == 4
    assert "patch" not in real.backbone_options
    assert real.backbone_options["depth_range"] == drawn.backbone_options["depth_range"]
