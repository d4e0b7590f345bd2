"""fit(): the one training loop.  Resumable at any step, and a step that goes wrong never reaches the weights."""

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from protodepth import checkpoint
from protodepth.data.augment import AugmentConfig, augment, crop, generator
from protodepth.data.base import Domain, training_batches
from protodepth.errors import CheckpointError, ConfigError, TrainingDiverged
from protodepth.methods.base import Method, Step, part
from protodepth.types import Batch, LossTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How long, how fast, with what."""

    steps: int = 500
    batch_size: int = 2
    rate: float = 1e-3
    pose_rate: float = 1e-3
    decay: Literal["cosine", "constant", "steps"] = "cosine"
    milestones: tuple[tuple[float, float], ...] = ()  # decay="steps": (share of the steps, factor) from that share on
    clip: float | None = 1.0  # largest gradient norm of each group of parameters; None or inf: no limit
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    workers: int = 0
    save_every: int = 200

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch_size < 1 or self.rate <= 0:
            raise ConfigError(
                f"steps, batch size and rate must be positive, got {self.steps}, {self.batch_size}, {self.rate}"
            )

    def factor(self, step: int) -> float:
        """Multiplier of the learning rates at a step."""
        share = step / self.steps
        if self.decay == "cosine":
            return 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))
        if self.decay == "steps":
            return next((f for start, f in reversed(self.milestones) if share >= start), 1.0)
        return 1.0


class Log(Protocol):
    """Receives one record for each step."""

    def __call__(self, step: int, record: dict[str, float]) -> None: ...


def silent(step: int, record: dict[str, float]) -> None:
    """A log that keeps nothing."""


@dataclass(slots=True)
class Progress:
    """What a run of ``fit`` reports when it is done."""

    steps: int = 0
    skipped: int = 0
    bad_frames: dict[str, str] = field(default_factory=dict)  # left out because they could not be read
    seconds: float = 0.0
    terms: dict[str, float] = field(default_factory=dict)  # of the last step


MAX_BAD_STEPS = 10


class StopTraining(Exception):
    """Raised by ``each_step`` to end a run of ``fit`` early; what was learned so far stays."""


def fit(
    method: Method,
    domain: Domain,
    schedule: Schedule,
    *,
    seed: int,
    log: Log = silent,
    folder: Path | None = None,
    each_step: Callable[[int], None] | None = None,
) -> Progress:
    """Train a method on one domain.

    ``folder`` keeps the state: if one is there from an interrupted run, training goes on from it and ends with the same weights as an
    uninterrupted run.  ``each_step`` is called after every step (the forgetting curve is evaluated there) and may raise StopTraining.  Ground truth never comes here.
    """
    progress, started = Progress(), time.monotonic()
    if not method.trains:
        return progress
    schedule = replace(schedule, steps=method.budget(schedule.steps))
    method.train(True)
    optimiser = build_optimiser(method, schedule)
    about = {"method": method.name, "domain": domain.name, "seed": seed, "steps": schedule.steps}
    state = TrainingState(folder, method, optimiser, about)
    step = first = state.load()
    loader = training_batches(
        domain.train, schedule.batch_size, seed=seed, start=first, domain=domain.name, workers=schedule.workers
    )
    bad = 0
    try:
        with whole_steps() as pause:
            for batch in method.batches(loader, start=first, seed=seed):
                if step >= schedule.steps:
                    break
                terms = train_step(method, optimiser, batch, schedule, seed, step)
                bad = 0 if terms is not None else bad + 1
                progress.skipped += terms is None
                if bad >= MAX_BAD_STEPS:
                    raise TrainingDiverged(
                        f"the loss was not finite in {bad} steps in a row on {domain.name!r}: lower the rate ({schedule.rate:g}) or check the data with 'protodepth data check'"
                    )
                step += 1
                progress.terms = terms or progress.terms
                log(step, {**(terms or {}), "rate": schedule.rate * schedule.factor(step - 1)})
                pause()
                if each_step is not None:
                    method.train(False)
                    each_step(step)
                    method.train(True)
                if step % schedule.save_every == 0 and step < schedule.steps:
                    state.save(step)
    except StopTraining:
        pass
    except (KeyboardInterrupt, TrainingDiverged):
        state.save(step)
        raise
    finally:
        loader.close()
    progress.bad_frames = loader.faults.found
    state.save(step)  # a finished stage: a resumed sequence loads it instead of learning it again
    method.train(False)
    progress.steps, progress.seconds = step - first, time.monotonic() - started
    return progress


@contextmanager
def whole_steps() -> Iterator[Callable[[], None]]:
    """Ctrl-C takes effect where the yielded function is called: in the middle of a step, weights and step number do not agree."""
    asked: list[int] = []

    def pause() -> None:
        if asked:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
        yield pause
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    try:
        yield pause
    finally:
        signal.signal(signal.SIGINT, before)


def train_step(
    method: Method, optimiser: torch.optim.Optimizer, batch: Step, schedule: Schedule, seed: int, step: int
) -> dict[str, float] | None:
    """One step; None (and no change of any weight) if the loss or a gradient was not finite."""
    random = generator(seed, step)
    terms: LossTerms = {}
    for source in (batch,) if isinstance(batch, Batch) else batch:
        source = crop(source.without_ground_truth(), schedule.augment, random)
        for name, term in method.loss(source, augment(source, schedule.augment, random)).items():
            terms[name] = terms[name] + term if name in terms else term
    total = torch.stack(list(terms.values())).sum()
    optimiser.zero_grad(set_to_none=True)
    if not torch.isfinite(total):
        return None
    total.backward()  # type: ignore[no-untyped-call]
    limit = math.inf if schedule.clip is None else schedule.clip
    norms = [nn.utils.clip_grad_norm_(group["params"], limit) for group in optimiser.param_groups]
    if not all(torch.isfinite(norm) for norm in norms):
        return None
    for group in optimiser.param_groups:
        group["lr"] = group["initial_lr"] * schedule.factor(step)
    optimiser.step()
    return {name: float(t.detach()) for name, t in terms.items()} | {"total": float(total.detach())}


def build_optimiser(method: Method, schedule: Schedule) -> torch.optim.Adam:
    """Adam over the method's parameters and, with its own rate, the pose network's."""
    groups = [(parameters, factor * schedule.rate) for parameters, factor in method.parameter_groups()]
    pose = method.objective.pose
    if pose is not None:
        pose.requires_grad_(True).train()
        groups.append((list(pose.parameters()), schedule.pose_rate))
    return torch.optim.Adam([{"params": p, "lr": rate, "initial_lr": rate} for p, rate in groups])


class TrainingState:
    """The state of one ``fit`` in a folder: method, pose network and optimiser as tensors, the step as JSON; no pickle."""

    def __init__(self, folder: Path | None, method: Method, optimiser: torch.optim.Adam, about: dict[str, Any]) -> None:
        self.folder, self.method, self.optimiser, self.about = folder, method, optimiser, about

    def save(self, step: int) -> None:
        if self.folder is None:
            return
        tensors = {f"method.{k}": v for k, v in self.method.state().items()}
        if self.method.objective.pose is not None:
            tensors |= {f"pose.{k}": v for k, v in self.method.objective.pose.state_dict().items()}
        for index, values in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{index}.{k}": torch.as_tensor(v) for k, v in values.items()}
        # two files, one commit: the JSON names the tensor file by its checksum, so an old pair stays valid until the end
        name = f"state-{step}.safetensors"
        sha256 = checkpoint.write_tensors(self.folder / name, tensors)
        checkpoint.write_json(self.folder / "state.json", {**self.about, "step": step, "file": name, "sha256": sha256})
        for old in self.folder.glob("state-*.safetensors"):
            if old.name != name:
                old.unlink()

    def load(self) -> int:
        """Restore and return the step to go on from; 0 if there is nothing."""
        if self.folder is None or not (self.folder / "state.json").exists():
            return 0
        meta = checkpoint.read_json(self.folder / "state.json")
        for key, value in self.about.items():
            if meta.get(key) != value:
                raise CheckpointError(
                    f"{self.folder} holds a run with {key}={meta.get(key)!r}, this one has {value!r}: use another --out, or the same settings"
                )
        tensors = checkpoint.read_tensors(self.folder / meta["file"], meta["sha256"])
        self.method.load_state(part(tensors, "method."))
        if self.method.objective.pose is not None:
            self.method.objective.pose.load_state_dict(part(tensors, "pose."))
        self._load_optimiser(part(tensors, "optimiser."))
        return int(meta["step"])

    def _load_optimiser(self, tensors: dict[str, Tensor]) -> None:
        values: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            index, name = key.split(".", 1)
            values.setdefault(int(index), {})[name] = tensor
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": values})


class JsonLines:
    """A log that appends one JSON line a record; readable with any tool."""

    def __init__(self, path: Path, **common: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.common = path, common

    def __call__(self, step: int, record: dict[str, float]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({**self.common, "step": step, **record}) + "\n")
