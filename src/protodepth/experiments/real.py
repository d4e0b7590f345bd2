"""Real sensors: recordings through patterns of points, completed by interpolation, by networks and after adapting.

A cell is one predictor on one recording through one pattern; a recording is adapted to once for each model, one after
another in one model, so that the last one holds all domains and ProtoDepth-A chooses among them.  Frames come from one
block of time of each recording; adapting sees the blocks of train and val alone.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image as Pillow

from protodepth.data.frame import SPLITS, Frame, evenly
from protodepth.data.interpolation import completions
from protodepth.errors import ConfigError, ProtoDepthError, UnknownNameError
from protodepth.experiments.bench import run_cells, sharing_bench
from protodepth.experiments.cells import Cell, Store, digest, ordered
from protodepth.experiments.jobs import Job
from protodepth.experiments.measure import (
    PATTERNS,
    USUAL,
    MeasuredSource,
    PointPattern,
    PredictFrame,
    classical,
    measure,
    network,
    open_source,
    pattern,
    shown,
)
from protodepth.experiments.montage import montage
from protodepth.experiments.thin_things import thin_frames
from protodepth.model import ProtoDepth
from protodepth.progress import Reporter
from protodepth.report import real_page
from protodepth.report.bench_page import Figure
from protodepth.report.pictures import jpeg
from protodepth.report.results import about_run, plain
from protodepth.report.samples import Sample, load_samples, sample_of, save_samples
from protodepth.storage.files import read_description, read_json
from protodepth.storage.folders import resolve
from protodepth.training.adapt import adapt
from protodepth.training.sequence import check_names
from protodepth.types import BASE, Float

CHOICES = 48  # frames of a recording, as it is, for which ProtoDepth-A chooses
PICTURE_WIDTH = 1280  # pixels: twenty settings stay below 6 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class RealOptions:
    """What to measure.  ``adapt``: also after adapting each model to each recording, for ``minutes`` each."""

    data: tuple[str, ...]
    models: tuple[str, ...] = ("any-sensor",)
    patterns: tuple[str, ...] = USUAL
    split: str = "val"
    frames: int = 8
    seed: int = 0
    adapt: bool = True
    minutes: float | None = None  # None: what adapt takes by default
    steps: int | None = None  # in place of minutes: whatever else the machine does

    def __post_init__(self) -> None:
        if not self.data:
            raise ConfigError("bench real needs recordings: protodepth bench real FOLDER FOLDER ...")
        if self.split not in SPLITS:
            raise UnknownNameError("split", self.split, SPLITS)
        if self.frames < 1:
            raise ConfigError(f"--frames must be at least 1, got {self.frames}")


def patterns_of(options: RealOptions) -> list[PointPattern]:
    """The patterns that were asked for; ``all`` is every named one."""
    names = [name for text in options.patterns for name in (PATTERNS if text == "all" else (text,))]
    return [pattern(name) for name in dict.fromkeys(names)]


def domain_name(name: str) -> str:
    """A recording's name as a model may call its domain.

    >>> domain_name("desk (2nd try).v2")
    'desk-2nd-try-v2'
    """
    safe = re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:64]
    return f"recording-{safe}" if safe in ("", BASE) else safe


# --- plan -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RealPlan:
    """Everything of one command: the opened recordings, the models' folders, and the cells."""

    options: RealOptions
    sources: dict[str, MeasuredSource]
    arguments: dict[str, str]  # recording -> what the command called it
    models: dict[str, Path]  # name in the tables -> folder

    @classmethod
    def of(cls, options: RealOptions) -> "RealPlan":
        """Open the recordings; data, models and patterns that do not exist are errors here."""
        patterns_of(options)
        models = {Path(name).name: resolve(name) for name in dict.fromkeys(options.models)}
        opened = [open_source(a, options.split, options.frames) for a in options.data]
        names = [domain_name(s.name) for s in opened]
        check_names(options.data, names)
        sources = dict(zip(names, opened, strict=True))
        return cls(options, sources, dict(zip(names, options.data, strict=True)), models)

    def cells(self) -> list[Cell]:
        """What measures, in the order of the table, and the pictures; the adaptations are among their needs."""
        adapted = {m: self.adapted(m) for m in self.models} if self.options.adapt else {}
        cells: list[Cell] = []
        for recording, source in self.sources.items():
            for wanted in patterns_of(self.options):
                if source.fits(wanted):
                    cells += self.setting(recording, wanted, adapted)
        if len(self.sources) > 1:
            cells += [self.choice(model, r, tuple(chain.values())) for model, chain in adapted.items() for r in chain]
        return ordered(cells)

    def setting(self, recording: str, wanted: PointPattern, adapted: dict[str, dict[str, Cell]]) -> list[Cell]:
        """One recording through one pattern: a cell for each predictor, and the picture."""
        cell = partial(self.measured, recording, wanted)
        cells = [cell("classical", name) for name in completions.names()]
        for model in self.models:
            cells.append(cell("base", model))
            if model in adapted:
                cells.append(cell("adapted", model, (adapted[model][recording],)))
            if model in adapted and len(self.sources) > 1:
                cells.append(cell("agnostic", model, tuple(adapted[model].values())))
        needs = tuple(chain[recording] for chain in adapted.values())
        label = {"recording": recording, "pattern": wanted.name}
        inputs = {**self.identity(recording), "sampler": wanted.sampler, "models": self.weights()}
        return [*cells, Cell(kind="pictures", label=label, inputs=inputs, needs=needs)]

    def measured(
        self, recording: str, wanted: PointPattern, role: str, name: str, needs: tuple[Cell, ...] = ()
    ) -> Cell:
        label = {"recording": recording, "pattern": wanted.name, "role": role, "predictor": name}
        inputs = {**self.identity(recording), "sampler": wanted.sampler, "role": role}
        inputs |= {"predictor": name} if role == "classical" else {"model": self.weights()[name]}
        return Cell(kind="real", label=label, inputs=inputs, needs=needs)

    def adapted(self, model: str) -> dict[str, Cell]:
        """Adapting a model to every recording, each on top of the one before."""
        chain: dict[str, Cell] = {}
        for recording, source in self.sources.items():
            data = digest(plain(source.domain.identity))
            inputs = {"data": data, "model": self.weights()[model], "minutes": self.options.minutes}
            inputs |= {} if self.options.steps is None else {"steps": self.options.steps}
            label = {"model": model, "recording": recording}
            chain[recording] = Cell(kind="adapted", label=label, inputs=inputs, needs=tuple(list(chain.values())[-1:]))
        return chain

    def choice(self, model: str, recording: str, needs: tuple[Cell, ...]) -> Cell:
        label = {"model": model, "recording": recording}
        inputs = {"data": digest(plain(self.sources[recording].domain.identity)), "split": self.options.split}
        return Cell(kind="choice", label=label, inputs=inputs, needs=needs)

    def identity(self, recording: str) -> dict[str, Any]:
        """What a measured number depends on besides the predictor and the pattern."""
        source = self.sources[recording]
        data = {"data": digest(plain(source.domain.identity)), "frames": [f.name for f in source.frames]}
        return {**data, "split": self.options.split, "seed": self.options.seed}

    def weights(self) -> dict[str, Any]:
        """The models by what is in their files."""
        metas = {name: read_description(folder / "config.json", "model") for name, folder in self.models.items()}
        kept = ("sha256", "backbone_config", "domains")
        return {name: {key: meta.get(key) for key in kept} for name, meta in metas.items()}


# --- run --------------------------------------------------------------------------------------------------------------


class RealWorkers:
    """The cells at work.  Models stay loaded while consecutive cells use them."""

    def __init__(self, plan: RealPlan) -> None:
        self.plan, self.loaded = plan, {}  # type: RealPlan, dict[str, ProtoDepth]

    def table(self) -> dict[str, Callable[[Job], dict[str, Any]]]:
        return {"real": self.measure, "adapted": self.adapt, "choice": self.choose, "pictures": self.draw}

    def model(self, store: Store, name: str, after: Sequence[Cell] = ()) -> ProtoDepth:
        """A model as it is, or as the last of the adaptations left it."""
        folder = store.place(after[-1]) / "model" if after else self.plan.models[name]
        if str(folder) not in self.loaded:
            self.loaded = dict(list(self.loaded.items())[-2:])  # the base, the last one and this one
            self.loaded[str(folder)] = ProtoDepth.from_pretrained(folder).to(store.device)
        return self.loaded[str(folder)]

    def predictor(self, job: Job) -> PredictFrame:
        label = job.cell.label
        if label["role"] == "classical":
            return classical(label["predictor"])
        model = self.model(job.store, label["predictor"], job.cell.needs)
        return network(model, {"base": BASE, "adapted": label["recording"], "agnostic": None}[label["role"]])

    def measure(self, job: Job) -> dict[str, Any]:
        """Errors of one predictor in one setting; of ProtoDepth-A also whom it chose and flagged."""
        label, source = job.cell.label, self.plan.sources[job.cell.label["recording"]]
        predict = self.predictor(job)
        wanted, seed = pattern(job.cell.inputs["sampler"]), self.plan.options.seed
        result = measure(predict, source.frames, wanted, seed=seed, rules=source.domain.rules)
        result["points"] = float(np.mean([row["points"] for row in result["frames"]]))
        result["seconds"] = float(np.median([row["seconds"] for row in result["frames"]]))
        if label["role"] == "agnostic":
            result["choice"] = chosen(label["recording"], result["frames"])
        return result

    def adapt(self, job: Job) -> dict[str, Any]:
        """Learn one recording on top of those before; the test block can play no part."""
        label, options = job.cell.label, self.plan.options
        before = job.store.place(job.cell.needs[-1]) / "model" if job.cell.needs else self.plan.models[label["model"]]
        model = ProtoDepth.from_pretrained(before).to(job.store.device)
        domain = self.plan.sources[label["recording"]].domain
        budget = {"minutes": options.minutes, "steps": options.steps}
        given: dict[str, Any] = {key: value for key, value in budget.items() if value is not None}
        given |= {"log": job.log(lambda step: None), "say": job.reporter.line}
        result = adapt(model, replace(domain, test=domain.val), name=label["recording"], **given)
        job.reporter.line(str(result))
        model.save_pretrained(job.place / "model")
        return {**asdict(result), "gain": result.gain, "helped": result.helped, "said": str(result)}

    def choose(self, job: Job) -> dict[str, Any]:
        """Whom ProtoDepth-A chooses for a recording as it is, and what it flags if it has never seen it."""
        label = job.cell.label
        data = self.plan.sources[label["recording"]].domain.split(self.plan.options.split)
        frames = [data[i] for i in evenly(len(data), CHOICES)]
        model = self.model(job.store, label["model"], job.cell.needs)
        choice = chosen(label["recording"], [_choice(model, frame) for frame in frames])
        stranger = ProtoDepth.from_pretrained(job.store.place(job.cell.needs[-1]) / "model").to(job.store.device)
        stranger.delete_domain(label["recording"])
        unseen = [_choice(stranger, frame)["unknown"] for frame in frames]
        return {**choice, "flagged_unseen": float(np.mean(unseen))}

    def draw(self, job: Job) -> dict[str, Any]:
        """One frame of the setting, completed by linear interpolation and by every model before and after adapting."""
        label, source = job.cell.label, self.plan.sources[job.cell.label["recording"]]
        (index,), (box,) = thin_frames(source.frames, 1)
        frame = shown(source.frames[index], pattern(job.cell.inputs["sampler"]), self.plan.options.seed)
        predictions = {"linear": classical("linear")(frame).depth}
        for name in self.plan.models:
            predictions[name] = network(self.model(job.store, name))(frame).depth
            after = [need for need in job.cell.needs if need.label["model"] == name]
            if after:
                adapted = network(self.model(job.store, name, after), label["recording"])
                predictions[f"{name}, adapted"] = adapted(frame).depth
        sample: Sample = replace(sample_of(source.domain, frame, index), predictions=predictions)
        save_samples(job.place / "samples.npz", [sample])
        return {"frame": frame.name, "box": box}


def _choice(model: ProtoDepth, frame: Frame) -> dict[str, Any]:
    out = model.predict(frame.image, frame.sparse_depth, frame.intrinsics)
    return {"domain": out.domain, "unknown": out.unknown}


def chosen(own: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How often the own domain was chosen, and a frame flagged unknown though its domain is known.

    >>> chosen("a", [{"domain": "a", "unknown": False}, {"domain": "b", "unknown": False}])["right"]
    0.5
    """
    names = [row["domain"] for row in rows]
    return {
        "frames": len(rows),
        "right": float(np.mean([name == own for name in names])),
        "flagged": float(np.mean([bool(row["unknown"]) for row in rows])),
        "chosen": {name: names.count(name) for name in dict.fromkeys(names)},
    }


# --- show -------------------------------------------------------------------------------------------------------------


def _document(plan: RealPlan, cells: Sequence[Cell], store: Store) -> dict[str, Any]:
    """All that was found, plain: the tables are made of nothing else."""
    rows, adapted, choices = [], [], []
    for cell, result in store.finished(cells):
        if cell.kind == "real":
            kept = ("mean", "points", "seconds", "choice", "frames")
            rows.append({**cell.label, **{k: result[k] for k in kept if k in result}})
        elif cell.kind == "adapted":
            adapted.append({**cell.label, **result})
        elif cell.kind == "choice":
            choices.append({**cell.label, **result})
    options = {k: v for k, v in asdict(plan.options).items() if k != "data"}
    return plain(
        {
            "options": options,
            "patterns": {p.name: p.about or p.sampler for p in patterns_of(plan.options)},
            "recordings": {n: _about(s) for n, s in plan.sources.items()},
            "rows": rows,
            "adapted": adapted,
            "choices": choices,
            "missing": [c.title for c in cells if not store.done(c)],
            "seconds": sum(_wall_seconds(store, c) for c in cells if store.done(c)),
        }
    )


def _wall_seconds(store: Store, cell: Cell) -> float:
    return float(read_json(store.place(cell) / "result.json").get("wall_seconds") or 0.0)


def _about(source: MeasuredSource) -> dict[str, Any]:
    first = source.frames[0]
    return {
        "size": list(first.sparse_depth.shape),
        "dense": source.dense,
        "measured": [f.name for f in source.frames],
        "frames": source.domain.identity.get("frames"),
        "split": source.domain.identity.get("split"),
    }


def narrow(picture: Float[np.ndarray, "h w 3"], width: int) -> Float[np.ndarray, "H W 3"]:
    """A picture of at most this width."""
    if picture.shape[1] <= width:
        return picture
    size = (width, round(picture.shape[0] * width / picture.shape[1]))
    return np.asarray(Pillow.fromarray(picture).resize(size, Pillow.Resampling.LANCZOS))


def _figures(cells: Sequence[Cell], store: Store) -> dict[str, list[Figure]]:
    """The drawn frames of each recording: depth, error and both in a window, with the colours."""
    out: dict[str, list[Figure]] = {}
    for cell, result in store.finished(c for c in cells if c.kind == "pictures"):
        recording, shown_as = cell.label["recording"], cell.label["pattern"]
        sample = load_samples(store.file(cell, "samples.npz"))[0]
        title = f"{recording}, {shown_as}, frame {sample.name}: depth, error, and both in the window"
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{recording}-{shown_as.replace('%', '-percent')}")
        picture = jpeg(narrow(montage(sample, result["box"]), PICTURE_WIDTH), quality=82)
        out.setdefault(recording, []).append(Figure(name, title, jpeg=picture))
    return out


def bench_real(
    options: RealOptions,
    out: Path,
    *,
    reporter: Reporter | None = None,
    command: str = "",
    device: str | torch.device = "cpu",
) -> list[Path]:
    """``bench real``: measure, and write report.html, report.md and results.json; returns their paths.

    What is finished in ``out`` is not measured again.
    """
    plan, store = RealPlan.of(options), Store(out, device)
    with sharing_bench(out):
        cells = plan.cells()
        failed = run_cells(cells, store, reporter or Reporter(quiet=True), workers=RealWorkers(plan).table())
        about = about_run(command, options.seed, threads=torch.get_num_threads(), split=options.split)
        results = _document(plan, cells, store)
        paths = real_page.write(out, results, about, _figures(cells, store))
    if failed:
        lines = "\n".join(f"  {title}: {message}" for title, message in failed.items())
        raise ProtoDepthError(f"{len(failed)} cell(s) failed, the others are in {paths[0]}:\n{lines}")
    return paths


__all__ = ["RealOptions", "bench_real", "measure"]
