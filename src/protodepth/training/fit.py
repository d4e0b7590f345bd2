"""fit(): the one training loop.  Resumable at any step, and a step that goes wrong never reaches the weights.

Several processes (see ``distributed``) run the same loop: each computes the loss of its rows, and before the optimiser
steps all have the gradient of the whole batch.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from protodepth import distributed
from protodepth.data.augment import augment, crop, generator
from protodepth.data.batches import training_batches
from protodepth.data.frame import Domain
from protodepth.errors import ConfigError, ProcessLost, TrainingDiverged
from protodepth.methods.base import Method, Step
from protodepth.storage.space import COMPLETED, check_frames, check_memory
from protodepth.training.fast import check_memory_layout, kept_features, threads_for
from protodepth.training.log import Log, silent
from protodepth.training.schedule import Schedule
from protodepth.training.state import Keeper, TrainingState
from protodepth.types import Batch, LossTerms, View


@dataclass(slots=True)
class FitRecord:
    """What a run of ``fit`` reports when it is done."""

    steps: int = 0
    skipped: int = 0
    bad_frames: dict[str, str] = field(default_factory=dict)  # left out because they could not be read
    seconds: float = 0.0
    terms: dict[str, float] = field(default_factory=dict)  # of the last step
    kept: dict[str, Any] = field(default_factory=dict)  # which checkpoint, where one was selected


MAX_BAD_STEPS = 10
MANY = 64  # frames of a batch that may be too many


class StopTraining(Exception):
    """Raised by ``each_step`` to end a run of ``fit`` early; what was learned so far stays."""


@dataclass(frozen=True, slots=True)
class Learner:
    """Who learns and with what: a step changes the method's weights, the optimiser and the scaler, and nothing else."""

    method: Method
    optimiser: torch.optim.Optimizer
    schedule: Schedule
    seed: int
    # float16 gradients underflow, so that the loss is scaled; for other precisions this does nothing
    scaler: torch.amp.GradScaler = field(default_factory=lambda: torch.amp.GradScaler("cpu", enabled=False))

    @classmethod
    def of(cls, method: Method, schedule: Schedule, seed: int) -> "Learner":
        """A method in training mode with a fresh optimiser."""
        method.train(True)
        optimiser = build_optimiser(method, schedule)
        device = optimiser.param_groups[0]["params"][0].device
        if schedule.precision == "float16" and device.type != "cuda":
            raise ConfigError("precision float16 needs a GPU (--device cuda): use bfloat16 or float32 here")
        if schedule.channels_last:
            check_memory_layout(method.backbone, device)
            method.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        scaler = torch.amp.GradScaler(device.type, enabled=schedule.precision == "float16")
        return cls(method, optimiser, schedule, seed, scaler)

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [p for group in self.optimiser.param_groups for p in group["params"]]

    @property
    def device(self) -> torch.device:
        return self.parameters[0].device

    def statistics(self) -> list[Tensor]:
        """What changes in a forward pass: the running means and variances of networks in training mode."""
        networks = [n for n in (self.method.backbone, self.method.objective.pose) if n is not None]
        parts = [part for network in networks for part in network.modules() if part.training]
        return [buffer for part in parts for buffer in part.buffers(recurse=False)]

    def loss(self, batch: Batch, view: View) -> LossTerms:
        """The method's terms; its networks compute in the schedule's precision."""
        if self.schedule.channels_last:
            image = view.batch.image.contiguous(memory_format=torch.channels_last)
            view = replace(view, batch=replace(view.batch, image=image))
        half = self.schedule.half
        with torch.autocast(self.device.type, half) if half is not None else nullcontext():
            return self.method.loss(batch, view)


def _check_batch(domain: Domain, size: int) -> None:
    """Refuse a batch that no memory holds, before frames are read for it."""
    if size > MANY:
        height, width, _ = domain.train[0].image.shape
        what = f"a batch of {size} frames of {height}x{width}"
        check_memory(size * height * width * COMPLETED, what, "set a smaller schedule.batch_size")


def fit(
    method: Method,
    domain: Domain,
    schedule: Schedule,
    *,
    seed: int,
    log: Log = silent,
    folder: Path | None = None,
    each_step: Callable[[int], None] | None = None,
) -> FitRecord:
    """Train a method on one domain.

    ``folder`` keeps the state: if one is there from an interrupted run, training goes on from it and ends with the same
    weights as an uninterrupted run.  ``each_step`` is called after every step (the forgetting curve is evaluated there)
    and may raise StopTraining; if it is a Keeper, its state is kept too.  Ground truth never comes here.
    """
    progress, started = FitRecord(), time.monotonic()
    if not method.trains:
        return progress
    check_processes(schedule)
    _check_batch(domain, schedule.batch_size)
    schedule = schedule.counted(len(domain.train))
    schedule = replace(schedule, steps=method.budget(schedule.steps))
    learner = Learner.of(method, schedule, seed)
    about = {"method": method.name, "domain": domain.name, "seed": seed, "steps": schedule.steps}
    keeper = each_step if isinstance(each_step, Keeper) else None
    state = TrainingState(folder, method, learner.optimiser, learner.scaler, about, keeper)
    step = first = state.load()
    loader = training_batches(
        domain.train, schedule.batch_size, seed=seed, start=first, domain=domain.name, workers=schedule.workers
    )
    bad = int(state.counts.get("bad", 0))
    progress.skipped = int(state.counts.get("skipped", 0))
    loader.faults.merge(state.counts.get("bad_frames", {}))
    # whole steps until the state is saved: torchrun tells all to stop when one is lost
    with kept_features(method, schedule.cache), whole_steps() as pause:
        try:
            for batch in method.batches(loader, start=first, seed=seed):
                if step >= schedule.steps or (keeper is not None and keeper.done):
                    break
                terms = train_step(learner, batch, step)
                bad = 0 if terms is not None else bad + 1
                progress.skipped += terms is None
                state.counts = {"skipped": progress.skipped, "bad": bad, "bad_frames": loader.faults.reasons}
                if bad >= MAX_BAD_STEPS:
                    raise TrainingDiverged(
                        f"the loss was not finite in {bad} steps in a row on {domain.name!r}: "
                        f"lower the rate ({schedule.rate:g}) or check the data with 'protodepth data check'"
                    )
                step += 1
                progress.terms = terms or progress.terms
                rate = schedule.rate * schedule.factor(step - 1)
                log(step, {"method": method.name, "domain": domain.name, **(terms or {}), "rate": rate})
                if each_step is not None:
                    method.train(False)
                    each_step(step)
                    method.train(True)
                pause()  # after the look: a state says what was seen at its step
                if step % schedule.save_every == 0 and step < schedule.steps:
                    state.save(step)
        except StopTraining:
            pass
        except (KeyboardInterrupt, TrainingDiverged):
            state.save(step)
            raise
        except ProcessLost:
            state.rescue(step)
            raise
        finally:
            loader.close()
    for reasons in distributed.gather(loader.faults.reasons):
        loader.faults.merge(reasons)
    progress.bad_frames = loader.faults.reasons
    state.save(step)  # a finished stage: a resumed sequence loads it instead of learning it again
    method.train(False)
    progress.steps, progress.seconds = step - first, time.monotonic() - started
    return progress


def check_processes(schedule: Schedule) -> None:
    """Refused before ``fit``: every process must have a row of each batch."""
    if schedule.batch_size < distributed.world():
        raise ConfigError(
            f"a batch of {schedule.batch_size} cannot be shared by {distributed.world()} processes: "
            f"--set schedule.batch_size={distributed.world()}, or fewer processes"
        )


@contextmanager
def whole_steps() -> Iterator[Callable[[], None]]:
    """Ctrl-C and SIGTERM take effect where the yielded function is called:
    in the middle of a step, weights and step number do not agree.

    Whichever process is told to stop, all stop after the same step.
    """
    asked: list[int] = []

    def pause() -> None:
        if distributed.anyone(bool(asked)):
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
        yield pause
        return
    before = {n: signal.signal(n, lambda number, frame: asked.append(number)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield pause
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def train_step(learner: Learner, batch: Step, step: int) -> dict[str, float] | None:
    """One step; None (and no change of any weight) if the loss or a gradient was not finite."""
    kept = [(buffer, buffer.clone()) for buffer in learner.statistics()]
    sources = (batch,) if isinstance(batch, Batch) else batch
    with threads_for(sum(source.sparse_depth.numel() for source in sources)):
        terms = gradients(learner, batch, step)
        terms = None if terms is None else _apply_gradients(learner, terms, step)
    if terms is None:  # batch norms have taken note of the batch in the forward pass, be it NaN
        for buffer, value in kept:
            buffer.copy_(value)
    return terms


def _apply_gradients(learner: Learner, terms: dict[str, float], step: int) -> dict[str, float] | None:
    """Change the weights by their gradients; None if one is not finite."""
    optimiser, schedule = learner.optimiser, learner.schedule
    learner.scaler.unscale_(optimiser)
    limit = math.inf if schedule.clip is None else schedule.clip
    norms = [nn.utils.clip_grad_norm_(group["params"], limit) for group in optimiser.param_groups]
    finite = all(torch.isfinite(norm) for norm in norms)
    if finite:
        for group in optimiser.param_groups:
            group["lr"] = group["initial_lr"] * schedule.factor(step)
        learner.scaler.step(optimiser)
    learner.scaler.update()
    return terms if finite else None


def gradients(learner: Learner, batch: Step, step: int) -> dict[str, float] | None:
    """Give every parameter the gradient of the whole batch;
    returns the whole batch's terms, or None if a loss was not finite.

    All talk between the processes is here, before any weight changes:
    one that is lost leaves the others with whole steps.
    """
    terms = _own_terms(learner, batch, step)
    learner.optimiser.zero_grad(set_to_none=True)
    total = torch.stack(list(terms.values())).sum() if terms else torch.zeros(())
    finite = bool(torch.isfinite(total))
    if finite and terms:
        learner.scaler.scale(total).backward()  # type: ignore[no-untyped-call]
    if not distributed.sum_gradients(learner.parameters, finite=finite):
        return None
    distributed.average_statistics(learner.method.backbone, learner.method.objective.pose)
    own = {name: float(t.detach()) for name, t in terms.items()} | {"total": float(total.detach())}
    return _add_records(distributed.gather(own))


def _own_terms(learner: Learner, batch: Step, step: int) -> LossTerms:
    """The loss terms of this process's rows; over all processes they add up to those of the whole batch."""
    views = learner.schedule.views
    random = generator(learner.seed, step if views is None else step % views)
    config = learner.schedule.augment
    terms: LossTerms = {}
    for number, source in enumerate((batch,) if isinstance(batch, Batch) else batch):
        source = crop(source.without_ground_truth().to(learner.device), config, random, at_most=number > 0)
        if learner.device.type == "cpu":
            check_frames(source.size)  # learning takes more of each pixel than completing it
        view = augment(source, config, random)
        if source.share is not None and source.share.count == 0:
            continue  # a borrowed row: only the random numbers had to be drawn
        for name, term in learner.loss(source, view).items():
            term = term if source.share is None else term * source.share.weight
            terms[name] = terms[name] + term if name in terms else term
    return terms


def _add_records(records: list[dict[str, float]]) -> dict[str, float]:
    """The sum by name; a process may have terms that another has not.

    >>> _add_records([{"color": 1.0, "total": 1.0}, {"color": 0.5, "pose": 2.0, "total": 2.5}])
    {'color': 1.5, 'total': 3.5, 'pose': 2.0}
    """
    names = dict.fromkeys(name for record in records for name in record)
    return {name: sum(record[name] for record in records if name in record) for name in names}


def build_optimiser(method: Method, schedule: Schedule) -> torch.optim.Adam:
    """Adam over the method's parameters and, with its own rate, the pose network's."""
    groups = [(parameters, factor * schedule.rate) for parameters, factor in method.parameter_groups()]
    pose = method.objective.pose
    if pose is not None:
        pose.requires_grad_(True).train()
        groups.append((list(pose.parameters()), schedule.pose_rate))
    return torch.optim.Adam([{"params": p, "lr": rate, "initial_lr": rate} for p, rate in groups])
