"""Cells that are done, fail or wait; whose an output folder is."""

import json
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor

import pytest

from helpers.bench_cells import TINY, cell, change
from protodepth.errors import CheckpointError, DataError, ProcessLost
from protodepth.experiments import bench, cells
from protodepth.experiments.cells import Store, digest, ordered
from protodepth.progress import Reporter


@pytest.fixture
def worker(monkeypatch):
    done: list[str] = []

    def run(job):
        name = job.cell.label["name"]
        done.append(name)
        if job.cell.inputs.get("fails"):
            raise DataError(f"{name} is broken")
        return {"name": name}

    monkeypatch.setitem(bench.WORKERS, "errors", run)
    return done


def test_finished_cells_are_not_repeated(tmp_path, worker):
    cells, store = ordered([cell("b", needs=(cell("a"),)), cell("c")]), Store(tmp_path)
    assert bench.run_cells(cells, store, Reporter(quiet=True)) == {}
    assert worker == ["a", "b", "c"]
    assert bench.run_cells(cells, store, Reporter(quiet=True)) == {}
    assert worker == ["a", "b", "c"]
    assert not list(tmp_path.rglob("lock"))


def test_a_cell_that_fails_takes_down_only_what_needs_it(tmp_path, worker):
    bad = cell("bad", fails=True)
    failed = bench.run_cells(ordered([cell("x", needs=(bad,)), cell("y")]), Store(tmp_path), Reporter(quiet=True))
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
        assert bench.run_cells([own], store, Reporter(quiet=True), pause=7.0) == {}
    assert looks_taken == [7.0]
    assert worker == []
    assert store.result(own) == {"name": "made elsewhere"}


def test_a_pool_runs_cells_after_what_they_need_and_a_failure_takes_down_only_what_needs_it(tmp_path, worker):
    bad, store = cell("bad", fails=True), Store(tmp_path)
    cells = ordered([cell("x", needs=(bad,)), cell("b", needs=(cell("a"),)), cell("y")])
    with ThreadPoolExecutor(2) as pool:
        failed = bench.share_cells(cells, store, Reporter(quiet=True), pool)
        assert failed == {"bad": "bad is broken", "x": "needs a cell that failed"}
        assert sorted(worker) == ["a", "b", "bad", "y"]
        assert worker.index("a") < worker.index("b")
        again = [c for c in cells if store.done(c)]
        assert bench.share_cells(again, store, Reporter(quiet=True), pool) == {}
    assert len(worker) == 4  # nothing was repeated
    assert not list(tmp_path.rglob("lock"))


def test_a_pool_waits_for_a_cell_of_another_command_and_a_lost_worker_ends_the_bench(tmp_path, worker, monkeypatch):
    store, own = Store(tmp_path), cell("a")
    other = store.lock_path(own)
    other.parent.mkdir(parents=True)
    other.write_text(json.dumps({"pid": 1, "birth": "1", "machine": "elsewhere", "token": "t"}))
    monkeypatch.setattr(bench.time, "sleep", lambda seconds: store.write(own, {"name": "made elsewhere"}))
    with ThreadPoolExecutor(1) as pool:
        assert bench.share_cells([own], store, Reporter(quiet=True), pool) == {}
        assert worker == []

        def killed(*args):
            raise BrokenExecutor("killed")

        monkeypatch.setattr(bench, "_run_alone", killed)
        with pytest.raises(ProcessLost, match="a worker has gone"):
            bench.share_cells([cell("b")], store, Reporter(quiet=True), pool)


def test_a_folder_with_another_configuration_is_refused_and_names_the_difference(tmp_path):
    bench.claim_experiments(tmp_path / "out", ["indoor"], TINY)
    bench.claim_experiments(
        tmp_path / "out", ["indoor"], change(seeds=(3,), backbones=("lite",))
    )  # more rows and seeds are welcome
    with pytest.raises(CheckpointError, match=r"steps = 2, this command has 3"):
        bench.claim_experiments(tmp_path / "out", ["indoor"], change(steps=3))
    assert len(bench.requests(tmp_path / "out", "indoor")) == 2
    bench.claim_experiments(tmp_path / "out", ["outdoor"], change(steps=3))  # another experiment may have its own
    elsewhere = {"mixed": {"any": {"ewc": {"rate": 1e-3}}}}
    bench.claim_experiments(
        tmp_path / "out", ["indoor"], change(tuned=elsewhere)
    )  # values for another sequence change nothing here
    with pytest.raises(CheckpointError, match=r"tuned\.indoor"):
        bench.claim_experiments(tmp_path / "out", ["indoor"], change(tuned={"indoor": elsewhere["mixed"]}))


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("dear reader")
    with pytest.raises(CheckpointError, match="holds no bench"):
        bench.bench(["indoor"], tmp_path, TINY)
    with pytest.raises(CheckpointError, match="is a file"):
        bench.bench(["indoor"], tmp_path / "thesis.tex", TINY)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_requests_come_back_as_they_were(tmp_path):
    asked = change(seeds=(0, 2), methods=("ewc",), tuned={"indoor": {"lite": {"ewc": {"rate": 1e-3}}}})
    bench.claim_experiments(tmp_path / "out", ["indoor"], asked)
    assert bench.requests(tmp_path / "out", "indoor") == [asked]


def test_the_key_of_a_cell_is_computed_once(tmp_path, monkeypatch):
    """Planning, ordering, checking, running: three cells, three keys; a base is one cell for all that start from it."""
    calls = []
    monkeypatch.setattr(cells, "digest", lambda value: calls.append(1) or digest(value))
    for kind in ("base", "sequence"):
        monkeypatch.setitem(bench.WORKERS, kind, lambda job: {})
    every = ordered(bench.plan(["indoor"], change(backbones=("lite",), methods=("pretrained", "finetune"))))
    assert [c.kind for c in every] == ["base", "sequence", "sequence"]
    bench.check_data(every, Store(tmp_path))
    assert not bench.run_cells(every, Store(tmp_path), Reporter(quiet=True))
    assert [Store(tmp_path).result(c) for c in every] == [{}, {}, {}]
    assert len(calls) == 3
