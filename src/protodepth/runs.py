"""Whole runs: train a base network on its first domain, or a method on a sequence.  Resumable, recorded, all-or-nothing."""

import copy
import dataclasses
import inspect
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protodepth import config as configuration
from protodepth._version import __version__
from protodepth.backbones.base import Backbone, backbones
from protodepth.backbones.fusionnet import ScaffNet, supervised_loss
from protodepth.backbones.posenet import PoseNet
from protodepth.checkpoint import write_json
from protodepth.data.augment import augment, generator
from protodepth.data.base import Domain, FrameDataset, collate
from protodepth.data.open import open_domain
from protodepth.errors import ConfigError, DataError, UnknownNameError
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import Method, build, methods
from protodepth.methods.protodepth import describe
from protodepth.model import ProtoDepth
from protodepth.protocol import SequenceResult, run_sequence
from protodepth.prototypes import PrototypeConfig
from protodepth.training import Log, Progress, Schedule, fit, silent

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRecipe:
    """How a base network learns D_1 from scratch."""

    name: str
    data: str  # a data argument, for example worlds:street
    backbone: str = "lite"
    preset: str = "indoor"
    backbone_options: dict[str, Any] = field(default_factory=dict)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    schedule: Schedule = field(default_factory=Schedule)
    prototypes: PrototypeConfig = field(default_factory=PrototypeConfig)  # what later domains get by default
    pose: bool = True  # also train the backbone's pose network
    supervised: bool = False  # ScaffNet alone: learns from the exact depth of a world that is in no sequence
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRecipe:
    """How methods learn D_2, D_3, ... from a base network: one budget for all of them."""

    name: str
    start: str  # a bundled model or a folder
    domains: tuple[str, ...]  # data arguments; the first is what the start has learned
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    schedule: Schedule = field(default_factory=Schedule)
    prototypes: PrototypeConfig = field(default_factory=PrototypeConfig)
    rates: dict[str, float] = field(
        default_factory=dict
    )  # learning rate by method, where it differs from the schedule's
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)  # configuration by method
    curve_every: int = 0
    seed: int = 0


def build_objective(model: ProtoDepth, config: ObjectiveConfig) -> Objective:
    return Objective(config, pose=model.pose, max_depth=model.backbone.depth_range[1])


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
    report(f"training {recipe.backbone} on {domain.name}: {len(domain.train)} frames, {recipe.schedule.steps} steps")
    if recipe.supervised:
        progress = train_scaffnet(network, domain, recipe.schedule, seed=recipe.seed, log=log)
    else:
        method = build("finetune", model, build_objective(model, recipe.objective))
        progress = fit(method, domain, recipe.schedule, seed=recipe.seed, log=log, folder=folder)
    describe(model, domain.name, domain.train, domain.val)
    model.history[domain.name] = {
        "recipe": configuration.to_dict(recipe),
        "data": domain.identity,
        "seconds": round(progress.seconds, 1),
        "bad_frames": progress.bad_frames,
        **versions(),
    }
    model.backbone.eval().requires_grad_(False)  # training had unfrozen it
    return model


def train_scaffnet(network: Backbone, domain: Domain, schedule: Schedule, *, seed: int, log: Log = silent) -> Progress:
    """ScaffNet, the one network that learns from ground truth: dense from sparse depth on a synthetic world outside every sequence,
    as the published one does on SceneNet or Virtual KITTI.  It sees no image.
    """
    if not isinstance(network, ScaffNet):
        raise ConfigError(f"only scaffnet learns from ground truth, got {network.name}: leave supervised=false")
    started = time.monotonic()
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
        view = augment(batch.without_ground_truth(), schedule.augment, generator(seed, step)).batch
        optimiser.zero_grad()
        loss = supervised_loss(network(view), batch.ground_truth)
        loss.backward()  # type: ignore[no-untyped-call]
        for group in optimiser.param_groups:
            group["lr"] = schedule.rate * schedule.factor(step)
        optimiser.step()
        log(step + 1, {"domain": domain.name, "supervised": float(loss.detach())})
    network.eval().requires_grad_(False)
    return Progress(steps=schedule.steps, seconds=time.monotonic() - started)


def build_method(name: str, model: ProtoDepth, recipe: SequenceRecipe) -> Method:
    """A method with its settings of the recipe, on its own copy of the start model."""
    cls = methods.get(name)
    start = copy.deepcopy(model)
    values: Any = recipe.prototypes if name == "protodepth" else None
    settings = dict(recipe.settings.get(name, {}))
    kind = getattr(cls, "Config", None)
    if settings and kind is None:
        raise ConfigError(f"method {name!r} has no settings, got {sorted(settings)}")
    if kind is not None and "seed" in {f.name for f in dataclasses.fields(kind)}:
        settings.setdefault("seed", recipe.seed)  # which frames a buffer keeps is part of the spread over seeds
    if name != "protodepth" and kind is not None:
        values = configuration.from_dict(kind, settings, f"settings of {name}")
    elif settings:
        values = dataclasses.replace(recipe.prototypes, **settings)
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
    schedule = dataclasses.replace(recipe.schedule, rate=recipe.rates.get(name, recipe.schedule.rate))

    def fit_domain(method: Method, domain: Domain, each_step: Callable[[int], None] | None) -> Progress:
        place = folder / f"{method.name}-{domain.name}" if folder else None
        return fit(method, domain, schedule, seed=recipe.seed, log=log, folder=place, each_step=each_step)

    result = run_sequence(
        method, domains, fit_domain, curve_every=recipe.curve_every, split=split, report=report, folder=folder
    )
    return result, method


def open_domains(recipe: SequenceRecipe) -> list[Domain]:
    domains = [open_domain(argument) for argument in recipe.domains]
    check_names(recipe.domains, [domain.name for domain in domains])
    return domains


def check_names(arguments: Sequence[str], names: Sequence[str]) -> None:
    """A model knows its domains by their names."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            f"two domains are called {twice[0]!r}: {', '.join(arguments)}; a sequence needs different ones"
        )


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    return {
        "protodepth": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
    }


def save_run(folder: Path, recipe: Any, record: dict[str, Any]) -> None:
    """The resolved recipe and a record of what happened, beside the results."""
    folder.mkdir(parents=True, exist_ok=True)
    configuration.write(recipe, folder / "recipe.toml")
    write_json(folder / "run.json", {**record, **versions()})


def pick(data: FrameDataset, count: int) -> list[int]:
    """Frame numbers spread evenly over a dataset: pictures are chosen by rule, not by look."""
    return [int(i) for i in np.linspace(0, len(data) - 1, num=min(count, len(data)) + 2)[1:-1]] if len(data) else []
