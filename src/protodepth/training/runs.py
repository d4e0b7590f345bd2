"""Runs: train a base network or a method on a sequence, in a folder that can be resumed,
and report it (``protodepth train``).
"""

import copy
import dataclasses
import inspect
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protodepth import config, distributed
from protodepth._version import made_with
from protodepth.backbones.base import Backbone, backbones
from protodepth.backbones.posenet import PoseNet
from protodepth.backbones.scaffnet import ScaffNet, supervised_loss
from protodepth.data.arguments import open_domain
from protodepth.data.augment import augment, crop, generator
from protodepth.data.batches import collate
from protodepth.data.frame import Domain
from protodepth.errors import CheckpointError, ConfigError, DataError, ProcessLost, UnknownNameError
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import Method, build, methods
from protodepth.methods.statistics import describe
from protodepth.model import ProtoDepth
from protodepth.progress import Reporter, StepCount
from protodepth.prototypes import PrototypeConfig
from protodepth.report.results import about_run, display_name, results_document
from protodepth.report.run import terminal_table, write_run
from protodepth.report.samples import Sample, add_predictions, collect
from protodepth.storage import claims
from protodepth.storage.files import read_json, write_json
from protodepth.storage.folders import check_nothing_lost, resolve
from protodepth.storage.history import History
from protodepth.storage.locks import writing
from protodepth.training import recipes
from protodepth.training.drawn import MAY_CHANGE, DrawnRecipe, check_drawn, train_drawn
from protodepth.training.fit import FitRecord, JsonLines, Log, Schedule, check_processes, silent
from protodepth.training.recipes import BaseRecipe, SequenceRecipe
from protodepth.training.sequence import SequenceResult, run_sequence
from protodepth.training.stages import StageFit, fit_selected, resolved, total_steps

Report = Callable[[str], None]


def build_objective(model: ProtoDepth, config: ObjectiveConfig) -> Objective:
    return Objective(resolved(config, model.backbone), pose=model.pose, max_depth=model.backbone.depth_range[1])


def new_network(recipe: BaseRecipe) -> Backbone:
    """The recipe's network, untrained; options that it does not have, or cannot have, are refused."""
    kind = backbones.get(recipe.backbone)
    known = tuple(inspect.signature(kind).parameters)
    for name in recipe.backbone_options:
        if name not in known:
            raise UnknownNameError(f"option of {recipe.backbone}", name, known)
    try:
        return kind.from_preset(recipe.preset, **recipe.backbone_options)
    except TypeError as error:
        raise ConfigError(f"{recipe.backbone} cannot be built with {recipe.backbone_options}: {error}") from None


def train_base(
    recipe: BaseRecipe,
    *,
    folder: Path | None = None,
    log: Log = silent,
    report: Report = lambda t: None,
    prepare: Callable[[Backbone], None] = lambda network: None,
    device: torch.device | str = "cpu",
) -> ProtoDepth:
    """Train a network on its first domain, unsupervised, and describe that domain.

    ``prepare`` is called with the new network: for a part that is trained apart (FusionNet's ScaffNet).
    """
    torch.manual_seed(recipe.seed)
    network = new_network(recipe)
    prepare(network.to(device))
    pose = PoseNet(**network.default_pose) if recipe.pose and network.default_pose else None
    model = ProtoDepth(network, recipe.prototypes, pose=pose).to(device)
    domain = open_domain(recipe.data)
    domain = domain if recipe.scale is None else _rehearsal(domain)
    steps = recipe.schedule.counted(len(domain.train)).steps
    report(f"training {recipe.backbone} on {domain.name}: {len(domain.train)} frames, {steps} steps")
    if recipe.supervised:
        progress = train_scaffnet(network, domain, recipe.schedule, seed=recipe.seed, log=log)
    else:
        method = build("finetune", model, build_objective(model, recipe.objective))
        progress = fit_selected(
            method, domain, recipe.schedule, recipe.select, seed=recipe.seed, log=log, folder=folder
        )
    describe(model, domain.name, domain.train, domain.val)
    recipe = dataclasses.replace(recipe, objective=resolved(recipe.objective, network))
    model.history[domain.name] = History(
        recipe=config.to_dict(recipe),
        data=domain.identity,
        seconds=round(progress.seconds, 1),
        bad_frames=progress.bad_frames,
        versions=made_with(),
    )
    model.backbone.eval().requires_grad_(False)  # training had unfrozen it
    return model


def train_scaffnet(network: Backbone, domain: Domain, schedule: Schedule, *, seed: int, log: Log = silent) -> FitRecord:
    """ScaffNet, the one network that learns from ground truth: dense from sparse depth on a synthetic world outside
    every sequence, as the published one does on SceneNet or Virtual KITTI.  It sees no image.
    """
    if not isinstance(network, ScaffNet):
        raise ConfigError(f"only scaffnet learns from ground truth, got {network.name}: leave supervised=false")
    started, schedule = time.monotonic(), schedule.counted(len(domain.train))
    for parameter in network.parameters():
        parameter.requires_grad = True
    network.train()
    optimiser = torch.optim.Adam(network.parameters(), lr=schedule.rate)
    for step in range(schedule.steps):
        chosen = np.random.default_rng((seed, step)).integers(len(domain.train), size=schedule.batch_size)
        batch = collate([domain.train[int(i)] for i in chosen], ground_truth=True)
        batch = batch.to(next(network.parameters()).device)
        if batch.ground_truth is None:
            raise DataError(f"ScaffNet needs ground truth: {domain.name} has none for its training frames")
        batch = crop(batch, schedule.augment, generator(seed, step), at_most=True)
        view = augment(batch.without_ground_truth(), schedule.augment, generator(seed, step)).batch
        optimiser.zero_grad()
        loss = supervised_loss(network(view), batch.ground_truth)  # type: ignore[arg-type]
        loss.backward()  # type: ignore[no-untyped-call]
        for group in optimiser.param_groups:
            group["lr"] = schedule.rate * schedule.factor(step)
        optimiser.step()
        log(step + 1, {"domain": domain.name, "supervised": float(loss.detach())})
    network.eval().requires_grad_(False)
    return FitRecord(steps=schedule.steps, seconds=time.monotonic() - started)


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
    return method


def learn_sequence(
    name: str,
    recipe: SequenceRecipe,
    model: ProtoDepth,
    domains: list[Domain],
    *,
    folder: Path | None = None,
    log: Log = silent,
    report: Report = lambda t: None,
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
    domains = [open_domain(argument) for argument in recipe.domains]
    if recipe.scale is not None:
        domains = [_rehearsal(domain) for domain in domains]
    check_names(recipe.domains, [domain.name for domain in domains])
    return domains


def _rehearsal(domain: Domain) -> Domain:
    """Judged without the crop: the frames of a rehearsal may be smaller than it."""
    return dataclasses.replace(domain, rules=dataclasses.replace(domain.rules, crop=None))


def check_names(arguments: Sequence[str], names: Sequence[str]) -> None:
    """A model knows its domains by their names."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            f"two domains are called {twice[0]!r}: {', '.join(arguments)}; a sequence needs different ones"
        )


Recipe = BaseRecipe | SequenceRecipe | DrawnRecipe


def read_recipe(name: str) -> Recipe:
    """A recipe by name, or from the recipe.toml of an earlier run."""
    if not name.endswith(".toml"):
        return recipes.get(name)
    if "domains" in config.read_values(Path(name)):
        return config.read(SequenceRecipe, Path(name))
    if "crops" in config.read_values(Path(name)):
        return config.read(DrawnRecipe, Path(name))
    return config.read(BaseRecipe, Path(name))


def train(
    name: str,
    out: Path,
    *,
    method: str,
    changes: dict[str, Any],
    overrides: tuple[str, ...],
    resume: bool,
    device: str | None = None,
) -> None:
    """Run a recipe with changes into a folder, alone or together with the other processes that torchrun started."""
    with distributed.together(device) as place, ExitStack() as stack:

        def begin_alone() -> Recipe:
            stack.enter_context(writing(out))
            return _begin(name, out, method, changes, overrides, resume)

        try:
            recipe = distributed.lead(begin_alone)
            if not distributed.leads():
                _divert(out / f"rank{distributed.rank()}.log")
            if isinstance(recipe, DrawnRecipe):
                _run_drawn(recipe, out)
            elif isinstance(recipe, BaseRecipe):
                _run_base(recipe, out, place)
            else:
                _run_method(recipe, method, out, place)
        except ProcessLost as error:
            Reporter().line(f"{error}; the rank*.log in {out} may say why")
            raise KeyboardInterrupt from error


def _begin(
    name: str, out: Path, method: str, changes: dict[str, Any], overrides: tuple[str, ...], resume: bool
) -> Recipe:
    """The resolved recipe, after every check that can be made before anything runs;
    the folder is its own from here on.
    """
    recipe = read_recipe(name)
    fields = {f.name for f in dataclasses.fields(recipe)}
    wrong = [key for key in changes if key not in fields]
    if wrong:
        raise ConfigError(f"recipe {name!r} has no setting {wrong[0]!r}: --{wrong[0]} is for recipes of base networks")
    recipe = config.override(dataclasses.replace(recipe, **changes), overrides)
    _check_recipe(recipe, method)
    _claim_run(out, recipe, method if isinstance(recipe, SequenceRecipe) else "", resume)
    return recipe


def _divert(file: Path) -> None:
    """From here on this process prints into a file: of several processes the first alone writes to the terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):  # also what libraries print
        os.dup2(handle, number)
    os.close(handle)


def _log_file(out: Path) -> Path:
    """Each process has its own."""
    return out / ("log.jsonl" if distributed.leads() else f"log.rank{distributed.rank()}.jsonl")


def _check_recipe(recipe: Recipe, method: str) -> None:
    """What can be known to fail fails before a folder is made."""
    if isinstance(recipe, DrawnRecipe):
        check_drawn(recipe)
        return
    stages = (recipe.stages or {}) if isinstance(recipe, SequenceRecipe) else {}
    for schedule in (recipe.schedule, *(stage.schedule for stage in stages.values())):
        check_processes(schedule)
    if isinstance(recipe, BaseRecipe):
        if recipe.supervised and distributed.world() > 1:
            raise ConfigError(
                f"recipe {recipe.name!r} learns from ground truth in a loop of its own: call it without torchrun"
            )
        new_network(recipe)
        open_domain(recipe.data)
    else:
        methods.get(method)
        resolve(recipe.start)
        open_domains(recipe)


def _claim_run(out: Path, recipe: Recipe, method: str, resume: bool) -> None:
    """An output folder belongs to one configuration; another one is refused, not mixed in."""
    values = config.to_dict(recipe)
    if isinstance(recipe, DrawnRecipe):  # more steps are the same run, longer
        values = {k: v for k, v in values.items() if k not in MAY_CHANGE}
    about = {"kind": "run", "recipe": values, "method": method}
    if claims.holds(out, "run.json", "run"):
        known = read_json(out / "run.json")
        claims.check_same(out, "a run", {k: known.get(k) for k in about}, config.to_dict(about))
        if not resume:
            raise CheckpointError(f"{out} holds this run already: --resume to go on, or another --out")
    else:
        write_json(out / "run.json", config.to_dict(about))
        config.write(recipe, out / "recipe.toml")


def command_line() -> str:
    """The command as typed, without the path of the program."""
    return shlex.join(["protodepth", *sys.argv[1:]])


def print_table(document: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width: all twelve numbers
        console = Console(width=140)
    console.print(terminal_table(document, width=console.width))


def picture(samples: list[Sample], method: Method) -> list[Sample]:
    """The samples with the method's predictions under its displayed names."""
    agnostic = display_name(method.name, "agnostic") if method.chooses else None
    return add_predictions(samples, method.predict, display_name(method.name), agnostic)


def _run_base(recipe: BaseRecipe, out: Path, device: torch.device) -> None:
    reporter = Reporter(quiet=not distributed.leads())
    if (out / "model" / "config.json").exists():
        reporter.line(f"{out / 'model'} is complete: nothing to do")
        return
    log = JsonLines(_log_file(out))
    with reporter.bar(f"training {recipe.name}", recipe.schedule.steps) as advance:

        def each(step: int, record: dict[str, Any]) -> None:
            advance(step)
            if step % 50 == 0:
                log(step, record)

        model = train_base(recipe, folder=out / "state", log=each, report=reporter.line, device=device)
    if not distributed.leads():
        return
    notes = {"recipe": config.to_dict(recipe), "command": command_line()}
    model.save_pretrained(out / "model", notes=notes)
    print(f"wrote {out / 'model'}: protodepth evaluate --model {out} --data {recipe.data.split('?')[0]}")


def _run_drawn(recipe: DrawnRecipe, out: Path) -> None:
    """The base for any sensor: a model without domains."""
    from protodepth.model import ProtoDepth

    network = train_drawn(recipe, out / "state", report=Reporter().line)
    curve = [json.loads(line) for line in (out / "state" / "curve.jsonl").read_text().splitlines()]
    notes = {
        "recipe": config.to_dict(recipe),
        "command": command_line(),
        "supervision": "exact depth of drawn scenes that are in no sequence; domains are learned without labels",
        "held_out": {k: curve[-1][k] for k in ("step", "mae", "rmse")},
    }
    ProtoDepth(network).save_pretrained(out / "model", notes=notes)
    print(f"wrote {out / 'model'}: protodepth evaluate --model {out} --data worlds:any")


def _run_method(recipe: SequenceRecipe, name: str, out: Path, device: torch.device) -> None:
    """One method on the sequence: results, report and the final model."""
    from protodepth.model import ProtoDepth

    reporter, log = Reporter(quiet=not distributed.leads()), JsonLines(_log_file(out))
    model = ProtoDepth.from_pretrained(resolve(recipe.start)).to(device)
    domains = open_domains(recipe)
    check_nothing_lost(out / "model", {*model.domains, *(domain.name for domain in domains)})
    total = total_steps(recipe, name, build_method(name, model, recipe), domains)
    with reporter.bar(f"{name} on {recipe.name}", total) as advance:
        count = StepCount(advance)

        def each(step: int, record: dict[str, Any]) -> None:
            count(step)
            if step % 50 == 0:
                log(step, record)

        result, method = learn_sequence(
            name, recipe, model, domains, folder=out / "state", log=each, report=reporter.line
        )
    if not distributed.leads():
        return
    document = results_document([result], seconds=sum(result.seconds), about=about_run(command_line(), recipe.seed))
    samples = picture(collect(domains), method)
    write_run(out, document, samples)
    method.model.save_pretrained(
        out / "model", notes={"recipe": config.to_dict(recipe), "method": name, "command": command_line()}
    )
    print_table(document)
    print(f"wrote {out / 'report.html'}, {out / 'results.json'} and {out / 'model'}")
