"""Methods on a sequence of domains, one after the other: score matrices a_j^k in both settings from one run."""

import copy
import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protodepth import config, distributed
from protodepth.data.arguments import open_domain
from protodepth.data.batches import collate
from protodepth.data.faults import Faults, readable
from protodepth.data.frame import Domain
from protodepth.errors import CheckpointError, ConfigError
from protodepth.methods.base import Method, build, methods
from protodepth.metrics import Scores
from protodepth.model import ProtoDepth
from protodepth.prototypes import PrototypeConfig
from protodepth.storage import files
from protodepth.training.evaluate import Evaluation, evaluate, without_crop
from protodepth.training.fit import FitRecord
from protodepth.training.log import Log, silent
from protodepth.training.objective import build_objective
from protodepth.training.recipes import SequenceRecipe
from protodepth.training.stages import StageFit


@dataclass(slots=True)
class SequenceResult:
    """What one method did on a sequence of domains."""

    method: str
    domains: tuple[str, ...]
    incremental: Scores
    agnostic: Scores
    confusion: np.ndarray | None  # [true, chosen] counts on test frames after the last stage
    chosen_names: tuple[str, ...]
    curves: list[dict[str, Any]] = field(
        default_factory=list
    )  # stage, step, domain, setting, four errors on val frames
    seconds: list[float] = field(
        default_factory=list
    )  # training time of each stage, with the method's own extra work (auxiliary network, Fisher, buffer)
    skipped: int = 0
    extra_parameters: int = 0
    extra_bytes: int = 0
    scenes: dict[str, Any] = field(default_factory=dict)  # errors of every test frame, see _scene_errors
    record: dict[str, Any] = field(default_factory=dict)  # what the method says of itself

    @property
    def selection_accuracy(self) -> float | None:
        """Share of test frames for which the set of their own domain was chosen."""
        if self.confusion is None:
            return None
        hits = sum(
            self.confusion[i, self.chosen_names.index(d)] for i, d in enumerate(self.domains) if d in self.chosen_names
        )
        return float(hits / self.confusion.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Evaluates a method on every domain of a sequence."""

    method: Method
    domains: Sequence[Domain]
    split: str = "test"

    def errors(self, domain: Domain, *, agnostic: bool, split: str | None = None) -> Evaluation:
        name = None if agnostic else domain.name
        return evaluate(lambda b: self.method.predict(b, name), domain.split(split or self.split), domain.rules)

    def settings(self, domain: Domain, split: str | None = None) -> tuple[Evaluation, Evaluation]:
        """With the domain's name and without it; what does not choose is asked once, for both."""
        incremental = self.errors(domain, agnostic=False, split=split)
        return incremental, self.errors(domain, agnostic=True, split=split) if self.method.chooses else incremental

    def check(self) -> None:
        """A method that does not choose gives the same depth with and without the name: a frame of each domain is
        asked twice."""
        for domain in () if self.method.chooses else self.domains:
            data = domain.split(self.split)
            batch = collate([next(readable(data, Faults(len(data))))])
            given, chosen = (self.method.predict(batch, name).depth for name in (domain.name, None))
            if not torch.equal(given, chosen):
                raise ConfigError(
                    f"{self.method.name} gives other depth on {domain.name} without the domain's name: its class must "
                    "say chooses = True, or its predict must be deterministic"
                )


FitDomain = Callable[[Method, Domain, Callable[[int], None] | None], FitRecord]


class Curve:
    """Errors on val frames while a sequence is learned (the paper's first figure):
    every seen domain, each ``every`` steps.

    With a file the points survive a restart: a resumed run begins with them and measures those after its last saved
    step again.
    """

    def __init__(self, judge: Judge, every: int, file: Path | None = None) -> None:
        self.judge, self.every, self.file = judge, every, file
        self.seconds = 0.0  # spent on looking, which is not training time
        self._points: dict[tuple[Any, ...], dict[str, Any]] = {}
        if file is not None and file.exists():
            self._add_stored(file)

    @property
    def points(self) -> list[dict[str, Any]]:
        return list(self._points.values())

    def _add(self, points: Sequence[dict[str, Any]]) -> None:
        self._points |= {(p["stage"], p["step"], p["domain"], p["setting"]): p for p in points}

    def _add_stored(self, file: Path) -> None:
        try:
            self._add(files.read_sealed(file, earlier={"points"})["points"])
        except (LookupError, TypeError) as error:
            raise CheckpointError(f"{file} holds no curve ({error!r}): remove it, it is measured again") from None

    def look(self, stage: int, step: int, seen: Sequence[Domain]) -> None:
        begun = time.monotonic()
        self._add(curve_points(self.judge, stage, step, seen))
        if self.file is not None and distributed.leads():
            files.write_sealed(self.file, {"points": self.points})
        self.seconds += time.monotonic() - begun

    def during(self, stage: int, seen: Sequence[Domain]) -> Callable[[int], None] | None:
        """What ``fit`` calls after each step of a stage; None if there is no curve."""
        if not self.every:
            return None
        return lambda step: self.look(stage, step, seen) if step % self.every == 0 else None


def run_sequence(
    method: Method,
    domains: Sequence[Domain],
    fit: FitDomain,
    *,
    pretrained: bool = True,
    curve_every: int = 0,
    split: str = "test",
    report: Callable[[str], None] = lambda text: None,
    after_domain: Callable[[Domain], None] = lambda domain: None,
    folder: Path | None = None,
) -> SequenceResult:
    """Learn the domains in order and judge all of them after each: ``a_j^k`` in both settings.

    ``pretrained``: the model has learned ``domains[0]`` already.  ``curve_every`` > 0 also evaluates every seen domain
    on val frames each so many steps; ``folder`` keeps these points for a resumed run.  ``after_domain`` is called when
    the method has ended a domain: only then its state is whole (Fisher, buffer, statistics).
    """
    judge = Judge(method=method, domains=domains, split=split)
    curve = Curve(judge, curve_every, folder / f"curve-{method.name}.json" if folder else None)

    def auxiliary(other: Method, domain: Domain) -> None:
        fit(other, domain, None)

    incremental: list[list[dict[str, float]]] = []
    agnostic: list[list[dict[str, float]]] = []
    last: list[Evaluation] = []
    scenes: list[list[tuple[Evaluation, Evaluation]]] = []
    seconds, skipped, before = [], 0, 0.0
    bad: dict[str, dict[str, str]] = {}
    kept: dict[str, dict[str, Any]] = {}
    method.prepare(domains)
    for stage, domain in enumerate(domains):
        if stage or not pretrained:
            report(f"{method.name}: learning {domain.name}")
            if curve_every and method.trains:
                curve.look(stage, 0, domains[: max(stage, 1)])
            started, looked = time.monotonic(), curve.seconds
            method.begin_domain(domain, auxiliary)
            _agree(method)
            progress = fit(method, domain, curve.during(stage, domains[: stage + 1]))
            method.end_domain(domain)
            seconds.append(before + time.monotonic() - started - (curve.seconds - looked))
            before = 0.0
            skipped += progress.skipped
            bad |= {f"{domain.name} train": progress.bad_frames} if progress.bad_frames else {}
            kept |= {domain.name: progress.kept} if progress.kept else {}
        else:  # its prompts, Fisher, buffer or teacher are made now, and only then it is measured
            started = time.monotonic()
            method.learned_before(domain, auxiliary)
            before = time.monotonic() - started
            method.end_domain(domain)
        _agree(method)
        report(f"{method.name}: evaluating after {domain.name}")
        after_domain(domain)
        pairs = [judge.settings(d) for d in domains]
        scenes.append(pairs)
        judge.check()
        incremental.append([given.mean for given, _ in pairs])
        last = [not_told for _, not_told in pairs]
        agnostic.append([e.mean for e in last])
    bad |= {f"{d.name} {split}": e.bad_frames for d, e in zip(domains, last, strict=True) if e.bad_frames}
    names = _chosen_names(last, domains)
    return SequenceResult(
        method=method.name,
        domains=tuple(d.name for d in domains),
        incremental=Scores.from_errors(incremental),
        agnostic=Scores.from_errors(agnostic),
        confusion=np.array([[e.chosen.count(n) for n in names] for e in last]) if names != ("base",) else None,
        chosen_names=names,
        curves=curve.points,
        seconds=seconds,
        skipped=skipped,
        extra_parameters=method.extra_parameters(),
        extra_bytes=method.extra_bytes(),
        scenes=_scene_errors(scenes, agnostic=method.chooses),
        record=method.record() | ({"bad_frames": bad} if bad else {}) | ({"checkpoints": kept} if kept else {}),
    )


SCENE_METRICS = ("mae", "rmse")
SceneErrors = dict[str, Any]


def _scene_errors(stages: Sequence[Sequence[tuple[Evaluation, Evaluation]]], *, agnostic: bool) -> SceneErrors:
    """Errors of every test frame, so that others can resample them: ``[setting][metric][k][j][frame]``, j <= k, in mm
    to a hundredth; ``names``: of the frames of each domain.
    """
    errors: SceneErrors = {"names": [[row["name"] for row in given.images] for given, _ in stages[-1]]}
    for number, setting in enumerate(("incremental", "agnostic")[: 1 + agnostic]):
        errors[setting] = {
            m: [[[round(row[m], 2) for row in pair[number].images] for pair in pairs[: k + 1]]
                for k, pairs in enumerate(stages)]
            for m in SCENE_METRICS
        }  # fmt: skip
    return errors


def _agree(method: Method) -> None:
    """All processes go on with what the first one keeps:
    Fishers, buffers and statistics are taken by each for itself, and two
    machines need not round alike."""
    if distributed.world() > 1:
        method.load_state(distributed.from_first({name: t.cpu() for name, t in method.state().items()}))


def _chosen_names(last: Sequence[Evaluation], domains: Sequence[Domain]) -> tuple[str, ...]:
    """What was chosen at all: domains in their order, then anything else."""
    used, known = dict.fromkeys(c for e in last for c in e.chosen), [d.name for d in domains]
    return tuple(n for n in known if n in used) + tuple(n for n in used if n not in known)


def curve_points(judge: Judge, stage: int, step: int, seen: Sequence[Domain]) -> list[dict[str, Any]]:
    """Errors on the val frames of the domains seen so far, in both settings."""
    return [
        {"stage": stage, "step": step, "domain": d.name, "setting": setting, **judged.mean}
        for d in seen
        for setting, judged in zip(("incremental", "agnostic"), judge.settings(d, "val"), strict=True)
    ]


def build_method(name: str, model: ProtoDepth, recipe: SequenceRecipe) -> Method:
    """A method with its settings of the recipe, on its own copy of the start model."""
    cls = methods.get(name)
    start = copy.deepcopy(model)
    values: Any = recipe.prototypes if cls.Config is PrototypeConfig else None
    options = dict(recipe.settings.get(name, {}))
    kind = cls.Config
    if options and kind is None:
        raise ConfigError(f"method {name!r} has no settings, got {sorted(options)}")
    if kind is not None and "seed" in {f.name for f in dataclasses.fields(kind)}:
        options.setdefault("seed", recipe.seed)  # which frames a buffer keeps is part of the spread over seeds
    if values is None and kind is not None:
        values = config.from_dict(kind, options, f"settings of {name}")
    elif options:
        values = dataclasses.replace(recipe.prototypes, **options)
    method = build(name, start, build_objective(start, recipe.objective), values)
    method.seed = recipe.seed
    if recipe.selection is not None:
        start.rule = dataclasses.replace(start.rule, selection=recipe.selection)
    return method


def learn_sequence(
    name: str,
    recipe: SequenceRecipe,
    model: ProtoDepth,
    domains: list[Domain],
    *,
    folder: Path | None = None,
    log: Log = silent,
    report: Callable[[str], None] = lambda text: None,
    split: str = "test",
) -> tuple[SequenceResult, Method]:
    """One method on the recipe's sequence: its result, and the method for pictures and saving."""
    method = build_method(name, model, recipe)
    fit_domain = StageFit(recipe=recipe, name=name, log=log, folder=folder)
    result = run_sequence(
        method, domains, fit_domain, curve_every=recipe.curve_every, split=split, report=report, folder=folder
    )
    return result, method


def open_domains(recipe: SequenceRecipe) -> list[Domain]:
    """The domains of a sequence's recipe, opened; two of one name are refused."""
    domains = [open_domain(argument) for argument in recipe.domains]
    if recipe.scale is not None:
        domains = [without_crop(domain) for domain in domains]
    check_names(recipe.domains, [domain.name for domain in domains])
    return domains


def check_names(arguments: Sequence[str], names: Sequence[str]) -> None:
    """A sequence needs different domains: a model knows them by their names."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            f"two domains are called {twice[0]!r}: {', '.join(arguments)}; a sequence needs different ones"
        )
