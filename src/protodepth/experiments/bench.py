"""Run experiments in a folder: resumable, shared by several processes,
refused where the folder belongs to something else.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from protodepth import cluster, config
from protodepth._version import made_with
from protodepth.data.arguments import open_domain
from protodepth.errors import CheckpointError, ConfigError, ProcessLost, ProtoDepthError
from protodepth.experiments import sections
from protodepth.experiments.catalogue import EXPERIMENTS, get, restricted, shared_settings
from protodepth.experiments.cells import Cell, Store, digest, ordered
from protodepth.experiments.classical import run as run_errors
from protodepth.experiments.estimates import costs_text
from protodepth.experiments.experiment import Experiment
from protodepth.experiments.foundation import run as run_outside
from protodepth.experiments.jobs import Job
from protodepth.experiments.planning import Options, Planner
from protodepth.experiments.qualitative import run as run_pictures
from protodepth.experiments.training_time import run as run_timing
from protodepth.experiments.trainings import run_base, run_training
from protodepth.experiments.tsne import run as run_descriptors
from protodepth.experiments.zero_shot import run as run_unseen
from protodepth.progress import Reporter
from protodepth.report import bench_page as page
from protodepth.report import overview as overview_page
from protodepth.report.results import about_run, plain
from protodepth.storage import claims, files
from protodepth.storage.locks import holding, sweep_folder, sweep_lock
from protodepth.storage.shared import sharing
from protodepth.training.sequence import check_names

WORKERS: dict[str, Callable[[Job], dict[str, Any]]] = {
    "base": run_base,
    "sequence": run_training,
    "timing": run_timing,
    "errors": run_errors,
    "unseen": run_unseen,
    "outside": run_outside,
    "descriptors": run_descriptors,
    "pictures": run_pictures,
}
Workers = Mapping[str, Callable[[Job], dict[str, Any]]]
MARK = "bench.json"
PAUSE = 3.0  # seconds between looks at cells that other processes work on


def bench(
    names: Sequence[str],
    out: Path,
    options: Options,
    *,
    reporter: Reporter | None = None,
    command: str = "",
    device: str | torch.device = "cpu",
    on: cluster.On = "here",
    workers: int = 1,
) -> list[Path]:
    """Run the experiments and write report.html, report.md and results.json into ``out``; returns their paths.

    Everything is planned and checked before anything runs.  Cells that are finished are not repeated; cells that
    another process works on are left to it and waited for.  ``workers`` processes run cells at once, or a Ray cluster.
    """
    cluster.check_workers(on, workers)
    reporter = reporter or Reporter(quiet=True)
    cells, store = ordered(plan(names, options)), Store(out, device)
    check_data(cells, store)
    with sharing_bench(out):
        claim_experiments(out, names, options)
        with cluster.pool(on, workers, seen=out / MARK, gpus=int(store.device.type == "cuda")) as pool:
            failed = run_cells(cells, store, reporter) if pool is None else share_cells(cells, store, reporter, pool)
        paths = _write_report(out, command)
    if failed:
        lines = "\n".join(f"  {title}: {message}" for title, message in failed.items())
        raise ProtoDepthError(f"{len(failed)} cell(s) failed, the others are in {paths[0]}:\n{lines}")
    return paths


def plan(names: Sequence[str], options: Options) -> list[Cell]:
    """All cells of the experiments; unknown names and pairs that do not fit are errors here."""
    chosen = [restricted(get(name), options) for name in names]
    return [cell for experiment in chosen for cell in experiment.cells(experiment, Planner(options))]


def check_data(cells: Sequence[Cell], store: Store) -> None:
    """Before a bench runs: data that cannot be opened and two domains of one name are errors now, not after hours.

    Finished cells need no data any more.
    """
    names: dict[str, str] = {}
    for cell in cells:
        if store.done(cell):
            continue
        recipe = cell.inputs.get("recipe", {})
        domains, single = recipe.get("domains", ()), (recipe.get("data"), cell.inputs.get("data"))
        for argument in (*domains, *(data for data in single if data)):
            if argument not in names:
                names[argument] = open_domain(argument).name
        check_names(domains, [names[argument] for argument in domains])


def overview(names: Sequence[str], out: Path, options: Options, device: str | torch.device = "cpu") -> list[str]:
    """What a bench would run, and what is done (``--dry-run``); with data of one's own also what it would cost here."""
    store, cells = Store(out), ordered(plan(names, options))
    if options.data:
        return costs_text(cells, store.done, torch.device(device))
    return [f"{'done   ' if store.done(cell) else 'to do  '} {cell.kind:<12} {cell.title}" for cell in cells]


def sharing_bench(out: Path) -> AbstractContextManager[None]:
    """Take part in a bench; the folder is new, empty or a bench's."""
    return sharing(out, MARK, "bench")


def claim_experiments(out: Path, names: Sequence[str], options: Options) -> None:
    """An experiment in a folder has one configuration (data, budget, recipes); rows and seeds may be added."""
    for name in names:
        experiment = restricted(get(name), options)
        for sequence in experiment.sequences:
            _claim_settings(out / "experiments" / name / f"{sequence}.json", experiment, sequence, options)
        request = config.to_dict(options)
        files.write_json(out / "experiments" / name / "requests" / f"{digest(request)[:16]}.json", request)


def _claim_settings(path: Path, experiment: Experiment, sequence: str, options: Options) -> None:
    wanted = plain(shared_settings(replace(experiment, sequences=(sequence,)), options))
    path.parent.mkdir(parents=True, exist_ok=True)
    while not path.exists():
        with holding(path.with_suffix(".lock")) as lock:
            if lock is not None and not path.exists():
                files.write_json(path, wanted)
        if lock is None:  # another process is writing its own at this moment
            time.sleep(0.05)
    claims.check_same(path.parent.parent.parent, experiment.name, files.read_json(path), wanted)


def run_cells(
    cells: Sequence[Cell], store: Store, reporter: Reporter, *, workers: Workers = WORKERS, pause: float = PAUSE
) -> dict[str, str]:
    """Run every cell of a bench that is not done, needs first; returns what failed by title."""
    failed: dict[str, str] = {}
    lost: set[str] = set()  # keys of cells that failed, or need one that did
    while True:
        waiting = [c for c in cells if not store.done(c) and c.key not in lost]
        if not waiting:
            return failed
        progress = False
        for cell in waiting:
            if any(need.key in lost for need in cell.needs):
                lost.add(cell.key)
                failed[cell.title] = "needs a cell that failed"
                progress = True
            elif all(store.done(need) for need in cell.needs):
                done = sum(store.done(c) for c in cells)
                try:
                    progress |= attempt(cell, store, reporter, f"[{done + 1}/{len(cells)}]", workers)
                except ProtoDepthError as error:
                    lost.add(cell.key)
                    failed[cell.title], progress = str(error), True
                    reporter.line(f"{cell.title}: {error}")
        if not progress:
            time.sleep(pause)


def share_cells(
    cells: Sequence[Cell], store: Store, reporter: Reporter, pool: Executor, *, pause: float = PAUSE
) -> dict[str, str]:
    """The same by a pool: every cell whose needs are done is given to it; returns what failed by title."""
    failed: dict[str, str] = {}
    lost: set[str] = set()
    running: dict[Future[bool], Cell] = {}
    while True:
        under_way = {cell.key for cell in running.values()}
        for cell in (c for c in cells if not store.done(c) and c.key not in lost | under_way):
            if any(need.key in lost for need in cell.needs):
                lost.add(cell.key)
                failed[cell.title] = "needs a cell that failed"
            elif all(store.done(need) for need in cell.needs):
                running[pool.submit(_run_alone, cell, store)] = cell
        if not running:
            return failed
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            cell = running.pop(future)
            why = _fault(future)
            if why:
                lost.add(cell.key)
                failed[cell.title] = why
            elif not future.result():  # another command works on it: it is given out again
                time.sleep(pause)
                continue
            done = sum(store.done(c) for c in cells)
            reporter.line(f"[{done}/{len(cells)}] {cell.kind} {cell.title}{f': {why}' if why else ''}")


def _fault(future: "Future[bool]") -> str:
    """Why a cell failed; a worker that has gone is no fault of the cell's."""
    try:
        cluster.result(future)
    except ProcessLost:
        raise
    except ProtoDepthError as error:
        return str(error)
    return ""


def _run_alone(cell: Cell, store: Store) -> bool:
    """A cell in a process of its own that says nothing; whether it was run, and not found to be another's."""
    return attempt(cell, store, Reporter(quiet=True), "")


def attempt(cell: Cell, store: Store, reporter: Reporter, count: str, workers: Workers = WORKERS) -> bool:
    """Run a cell unless another process holds it or has just finished it; whether it was run."""
    with holding(store.lock_path(cell)) as lock:
        if lock is None or store.done(cell):
            return False
        sweep_folder(store.place(cell))
        sweep_lock(store.lock_path(cell))
        reporter.line(f"{count} {cell.kind} {cell.title}")
        started = time.monotonic()
        result = workers[cell.kind](Job(cell, store, lock, reporter))
        lock.check()
        store.write(cell, result, wall_seconds=round(time.monotonic() - started, 1), versions=made_with())
    return True


def requests(out: Path, name: str) -> list[Options]:
    """Everything that was ever asked of an experiment in this folder, in the order of the asking."""
    paths = sorted((out / "experiments" / name / "requests").glob("*.json"), key=lambda p: p.stat().st_mtime)
    return [config.from_dict(Options, files.read_json(path), str(path)) for path in paths]


def _write_report(out: Path, command: str = "") -> list[Path]:
    """One report of all experiments of the folder, from the cells that are finished."""
    store, parts = Store(out), []
    for name in EXPERIMENTS:
        asked = requests(out, name)
        if not asked:
            continue
        cells = {c.key: c for options in asked for c in _planned_again(name, options)}
        used = tuple(dict.fromkeys(s for options in asked for s in restricted(get(name), options).sequences))
        experiment = replace(get(name), sequences=used)
        parts.append(sections.build_section(experiment, list(cells.values()), store, paper=True))
    seeds = sorted({s for name in EXPERIMENTS for options in requests(out, name) for s in options.seeds})
    about = about_run(command, 0)
    about["seed"] = ", ".join(str(s) for s in seeds)
    first = overview_page.opening(parts)
    return page.write(out, [*([first] if first else []), *parts], about)


def _planned_again(name: str, options: Options) -> list[Cell]:
    """The cells of an earlier request; none if what it started from (a model, a folder of predictions)
    has gone since.
    """
    try:
        return plan([name], options)
    except (ConfigError, CheckpointError):
        return []


__all__ = ["bench", "overview", "plan"]
