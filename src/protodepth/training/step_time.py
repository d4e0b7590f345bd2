"""Time of a training step by method: CPU time, measured in turns with finetuning, and where it goes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from protodepth import model as model_module
from protodepth import stopwatch
from protodepth.data.batches import training_batches
from protodepth.data.frame import Domain
from protodepth.stopwatch import Sections
from protodepth.training import fit as fit_module
from protodepth.training.fast import kept_features
from protodepth.training.fit import Learner

PARTS = ("data", "encoder", "prototypes", "decoder", "pose", "loss", "backward", "optimiser")


@dataclass(frozen=True, slots=True)
class StepTime:
    """One method.  Milliseconds of CPU time."""

    cpu: float  # median over the turns
    ratio: float  # median over the turns of this step's time / that of the first method
    parts: dict[str, float] = field(default_factory=dict)  # mean over the same turns, by PARTS


class _Steps:
    """Steps of one learner, each on the next batch of its own stream."""

    def __init__(self, learner: Learner, domain: Domain, warmup: int) -> None:
        schedule = learner.schedule
        self.learner, self.sections, self.step, self.warmup = learner, Sections(), 0, warmup
        self.stream = training_batches(domain.train, schedule.batch_size, seed=learner.seed, domain=domain.name)
        self.features = kept_features(learner.method, schedule.cache)
        self.features.__enter__()

    def places(self) -> list[tuple[object, str, str]]:
        method, pose = self.learner.method, self.learner.method.objective.pose
        return [
            (self, "read", "data"),
            (method.backbone if "encode" in vars(method.backbone) else type(method.backbone), "encode", "encoder"),
            (method.model, "_values", "prototypes"),
            (model_module, "apply", "prototypes"),
            (type(method.backbone), "decode", "decoder"),
            (fit_module, "_own_terms", "forward"),
            (fit_module, "gradients", "gradients"),
            (fit_module, "_apply_gradients", "optimiser"),
            *([] if pose is None else [(pose, "forward", "pose")]),
        ]

    def read(self) -> Any:
        return next(self.stream)

    def __call__(self) -> None:
        with self.sections.watching(self.places()):
            fit_module.train_step(self.learner, self.read(), self.step)
        self.step += 1
        if self.step == self.warmup:
            self.sections.seconds.clear()  # first steps also draw, allocate and fill caches

    def parts(self) -> dict[str, float]:
        """Milliseconds a step.  What of the forward pass is none of the named parts is the loss."""
        seconds = self.sections.seconds
        named = {name: seconds.get(name, 0.0) for name in PARTS}
        inner = sum(named[name] for name in ("encoder", "prototypes", "decoder", "pose"))
        named["loss"] = seconds.get("forward", 0.0) - inner
        named["backward"] = seconds.get("gradients", 0.0) - seconds.get("forward", 0.0)
        return {name: 1000 * value / max(self.step - self.warmup, 1) for name, value in named.items()}

    def close(self) -> None:
        self.features.__exit__(None, None, None)
        self.stream.close()


def step_times(
    learners: Mapping[str, Learner],
    domain: Domain,
    *,
    turns: int = 8,
    warmup: int = 2,
) -> dict[str, StepTime]:
    """One step of every learner in each turn; the first is what the others are compared with.

    A busy machine hurts all alike, and CPU time leaves out what other programs take.
    """
    steps = {name: _Steps(learner, domain, warmup) for name, learner in learners.items()}
    try:
        laps = stopwatch.in_turns(dict(steps), turns, warmup)
        parts = {name: one.parts() for name, one in steps.items()}
    finally:
        for one in steps.values():
            one.close()
    first = laps[next(iter(laps))]
    return {name: StepTime(1000 * lap.median(), stopwatch.ratio(lap, first), parts[name]) for name, lap in laps.items()}
