"""Base networks: built as a recipe says, they learn D_1 from scratch; ScaffNet learns from ground truth."""

import dataclasses
import inspect
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from protodepth import config
from protodepth._version import made_with
from protodepth.backbones.base import Backbone, backbones, weight_bytes
from protodepth.backbones.posenet import PoseNet
from protodepth.backbones.scaffnet import ScaffNet, supervised_loss
from protodepth.data.arguments import open_domain
from protodepth.data.augment import augment, crop, generator
from protodepth.data.batches import collate
from protodepth.data.frame import Domain
from protodepth.errors import ConfigError, DataError, TrainingDiverged, UnknownNameError
from protodepth.methods.base import build
from protodepth.methods.statistics import describe
from protodepth.model import ProtoDepth
from protodepth.storage.history import History
from protodepth.storage.space import check_memory
from protodepth.training.evaluate import without_crop
from protodepth.training.fit import MAX_BAD_STEPS, FitRecord
from protodepth.training.log import Log, silent
from protodepth.training.objective import build_objective, resolved
from protodepth.training.recipes import BaseRecipe
from protodepth.training.schedule import Schedule
from protodepth.training.stages import fit_selected

Report = Callable[[str], None]


def new_network(recipe: BaseRecipe) -> Backbone:
    """The recipe's network, untrained; options that it does not have, or cannot have, are refused."""
    kind = backbones.get(recipe.backbone)
    known = tuple(inspect.signature(kind).parameters)
    for name in recipe.backbone_options:
        if name not in known:
            raise UnknownNameError(f"option of {recipe.backbone}", name, known)
    make_network = partial(kind.from_preset, recipe.preset, **recipe.backbone_options)
    try:
        if recipe.backbone_options:  # with its gradients and what the optimiser keeps
            check_memory(4 * weight_bytes(make_network), f"training {recipe.backbone} of this size", "make it smaller")
        return make_network()
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
    domain = domain if recipe.scale is None else without_crop(domain)
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
    optimiser, bad, skipped = torch.optim.Adam(network.parameters(), lr=schedule.rate), 0, 0
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
        fine = bool(torch.isfinite(loss))
        if fine:
            loss.backward()  # type: ignore[no-untyped-call]
            fine = all(bool(torch.isfinite(p.grad).all()) for p in network.parameters() if p.grad is not None)
        bad, skipped = 0 if fine else bad + 1, skipped + (not fine)
        if bad >= MAX_BAD_STEPS:
            raise TrainingDiverged(
                f"the loss was not finite in {bad} steps in a row on {domain.name!r}: lower the rate {schedule.rate:g}"
            )
        for group in optimiser.param_groups:
            group["lr"] = schedule.rate * schedule.factor(step)
        if fine:
            optimiser.step()
        log(step + 1, {"domain": domain.name, "supervised": float(loss.detach())})
    network.eval().requires_grad_(False)
    return FitRecord(steps=schedule.steps, skipped=skipped, seconds=time.monotonic() - started)
