"""adapt(): learn one new domain from an unlabelled recording, and say honestly whether it helped."""

import contextlib
import copy
import logging
import math
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protodepth._version import made_with
from protodepth.data.arguments import without_folders
from protodepth.data.augment import AugmentConfig
from protodepth.data.batches import collate
from protodepth.data.frame import Domain, FrameDataset, evenly
from protodepth.errors import ConfigError, DataError
from protodepth.model import ProtoDepth
from protodepth.progress import Say
from protodepth.storage.history import History
from protodepth.training.fast import half_if_fast
from protodepth.training.fit import fit
from protodepth.training.gate import Gate, answered, find_gate, shown_shares
from protodepth.training.log import Log, silent
from protodepth.training.plan import (
    BATCH,
    Costs,
    Plan,
    choose_crop,
    frames_aside,
    step_seconds,
    steps_for,
    timed,
    total_seconds,
)
from protodepth.training.schedule import Schedule
from protodepth.training.task import AdaptConfig as AdaptConfig
from protodepth.training.task import Task, prepare, split_options
from protodepth.training.watch import (
    Watch,
    first,
    interpolation_errors,
    network_errors,
)
from protodepth.types import BASE, Shown

logger = logging.getLogger("protodepth")
SURE = 1.5  # the share of the error that is gone must be so many times its spread: less may be chance
HELPED = 0.002  # and larger than this
PAPER_CROP = (192, 256)  # rows and columns that the paper's objective learns from at once
RATES = {"hidden": 1e-2, "paper": 6e-2}  # of the prototypes; chosen on val blocks of recordings and on val scenes


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptation(Shown):
    """What ``adapt`` reports.  ``before`` and ``after`` are errors in mm at sparse points that the network was never
    shown, of frames that
    neither taught nor chose the step."""

    name: str
    frames: int
    steps: int  # made
    best_step: int  # whose prototypes were kept; 0: those that change nothing
    seconds: float
    before: float
    after: float
    spread: float  # standard error of the gain over the judging frames
    better: float  # share of the judging frames whose error shrank
    judged: int  # how many frames judge
    chosen: tuple[float, float]  # error at the points that choose the step, at the start and of what was kept
    ratio: float | None = None  # of after and before, the geometric mean over the judging frames
    gate: Gate | None = None  # the share of pixels with points for which the domain answers; None: any
    share: float = 1.0  # how far the kept weights are on the way from the base's to the step's
    interpolation: dict[str, float] = field(
        default_factory=dict
    )  # error of each way to interpolate, at the same points
    curve: tuple[tuple[int, float], ...] = ()  # (step, error) at each judging
    own: float = 1.0  # share of some frames that judge for which it is chosen where no domain is named

    @property
    def gain(self) -> float:
        """Share of a frame's held-out error that is gone; negative if it grew.  Every frame counts the same, however
        far its scene is and however few points it shows.
        """
        return 1 - (self.after / self.before if self.ratio is None else self.ratio)

    @property
    def change(self) -> str:
        """The held-out error's change in per cent, with its sign; nothing has none."""
        return f"{-100 * self.gain:+z.1f}".replace("+0.0", "0.0")

    @property
    def helped(self) -> bool:
        return self.gain > max(HELPED, SURE * self.spread)

    def __str__(self) -> str:
        beside = ", ".join(f"{name} {error:.1f}" for name, error in self.interpolation.items())
        part = f"{100 * self.share:.0f} % of " if self.share < 1 else ""
        return (
            f"{self.name}: {self.steps} steps on {self.frames} frames in {self.seconds:.0f} s, "
            f"kept {part}step {self.best_step} "
            f"(hidden points that choose: {self.chosen[0]:.1f} -> {self.chosen[1]:.1f} mm); "
            f"error at held-out sparse points {self.before:.1f} -> {self.after:.1f} mm ({self.change} +- "
            f"{100 * self.spread:.1f} % a frame, smaller on {100 * self.better:.0f} % of {self.judged} frames): "
            f"adapting {'helped' if self.helped else 'did not help'}"
            + self._gate_in_words()
            + self._choice_in_words()
            + (f"\ninterpolation at the same points: {beside} mm" if beside else "")
        )

    def _gate_in_words(self) -> str:
        if self.gate is None:
            return ""
        least, most = self.gate
        few = f"fewer than {100 * least:g} %" if least > 0 else ""
        many = f"{100 * most:g} % or more" if most <= 1 else ""
        return f"\nwhere {' or '.join(filter(None, (few, many)))} of the pixels have a point, the base answers"

    def _choice_in_words(self) -> str:
        if self.own > 0.5:
            return ""
        share = f"{100 * self.own:.0f} % of its own frames"
        return f"\nwhere no domain is named it is chosen for {share} only: name it, or learn longer"

    __repr__ = __str__  # one verdict, whoever asks


def make_plan(task: Task, config: AdaptConfig, used: float = 0.0) -> Plan:
    """Crop and steps; a few steps of a copy are timed unless all is said already.  ``used``:
    seconds of the budget that are gone.
    """
    size = first(task.parts.learn).sparse_depth.shape
    schedule, seconds = config.schedule, math.nan
    if schedule is None:
        schedule = _schedule(task, config, (size[0], size[1]))
        costs = measure_costs(task, schedule, config)
        if config.steps is None:
            schedule = replace(schedule, steps=steps_for(60 * config.minutes - used, costs, config.judgings))
        seconds = total_seconds(schedule.steps, costs, config.judgings) + used
    domain, learned = task.domain, len(task.parts.learn)
    counts = {"learn": learned, "choose": len(domain.train) - learned, "val": len(domain.val), "test": len(domain.test)}
    identity = domain.identity
    return Plan(
        frames=learned,
        available=identity.get("frames", {}).get("all", sum(counts.values())),
        aside=frames_aside(identity, counts),
        judges=(len(task.choose), len(task.verdict)),
        size=(size[0], size[1]),
        schedule=schedule,
        seconds=seconds,
        objective=task.objective,
        notes=(*identity.get("notes", ()), *([str(task.place)] if task.place else [])),
    )


def _schedule(task: Task, config: AdaptConfig, size: tuple[int, int]) -> Schedule:
    """Hidden points: many small crops in half precision, colours shaken against learning few frames by heart."""
    rate, steps = config.rate or RATES[config.objective], config.steps or 1
    if config.objective == "paper":
        whole = AugmentConfig(flip_horizontal=True, crop=choose_crop(size, PAPER_CROP))
        return Schedule(steps=steps, batch_size=2, rate=rate, clip=math.inf, augment=whole)
    augment = AugmentConfig(
        flip_horizontal=True, crop=choose_crop(size), saturation=(0.6, 1.3), contrast=(0.8, 1.2), hue=0.03
    )
    device = next(task.method.backbone.parameters()).device
    return Schedule(steps=steps, batch_size=BATCH, rate=rate, augment=augment, precision=half_if_fast(device))


def measure_costs(task: Task, schedule: Schedule, config: AdaptConfig) -> Costs:
    """Time a few steps and one case on a copy of the model."""
    method = copy.deepcopy(task.method)
    method.begin_domain(task.domain, lambda m, d: None)

    def run(short: Schedule, each: Any) -> object:
        return fit(method, task.learn, short, seed=config.seed, each_step=each)

    step = step_seconds(run, schedule, min(5, max(2, config.steps or 5)))
    case = task.verdict[:1]
    network = timed(lambda: network_errors(method.model, case, BASE))
    judging_seconds = len(task.choose) * network
    floor = timed(lambda: interpolation_errors(case))
    rest = 2 * len(task.verdict) * network + len(task.verdict) * floor + min(256, len(task.domain.train)) * network
    return Costs(step, judging_seconds, rest)


def adapt(
    model: ProtoDepth,
    data: str | Path | Domain,
    *,
    name: str,
    config: AdaptConfig = AdaptConfig(),
    log: Log = silent,
    say: Say = lambda text: None,
    **options: Any,
) -> Adaptation:
    """Learn prototypes and a descriptor for ``name`` from unlabelled frames;
    earlier domains and the network stay as they are.

    ``data`` is a recording folder, a data argument such as ``worlds:highway``, or a Domain; ``options`` are fields of
    AdaptConfig (``steps=200``) or of the recording (``depth_unit="mm"``).  The step with the least error at hidden
    points is kept, step 0 (prototypes that change nothing) among them.  Whether it helped is judged by hidden points of
    other frames; if it did not, a warning is logged and the domain answers as the base does, unless ``force`` is set.
    If learning fails or is interrupted the model is left as it was.
    """
    if not isinstance(model, ProtoDepth):
        raise ConfigError(f"adapt takes a model, got {model!r}: give ProtoDepth.from_pretrained({str(model)!r})")
    config, options = split_options(config, data, options)
    started = time.monotonic()
    task = prepare(model, data, name, config, options)
    plan = make_plan(task, config, time.monotonic() - started)
    say(str(plan))
    return carry_out(model, task, plan, config, log=log, say=say)


def carry_out(
    model: ProtoDepth,
    task: Task,
    plan: Plan,
    config: AdaptConfig,
    *,
    log: Log = silent,
    say: Say = lambda text: None,
    folder: Path | None = None,
) -> Adaptation:
    """Learn what was planned; after a failure the model is as it was.  With a ``folder`` a killed one goes on."""
    name, pose, active = task.domain.name, copy.deepcopy(model.pose), model.active
    try:
        result, bad = learn(model, task, plan, config, log, say, folder)
    except BaseException:
        if name in model.domains:
            model.delete_domain(name)
        model.set_domain(active)
        model.pose = pose
        raise
    if model.pose is not None:
        model.pose.eval().requires_grad_(False)
    model.history[name] = replace(record(result, task), bad_frames=bad)
    if not result.helped:
        logger.warning("%s", result)
    return result


def learn(
    model: ProtoDepth, task: Task, plan: Plan, config: AdaptConfig, log: Log, say: Say, folder: Path | None
) -> tuple[Adaptation, dict[str, str]]:
    """Begin, fit, keep the best step, judge; with the frames that could not be read."""
    method, name, started = task.method, task.domain.name, time.monotonic()
    method.begin_domain(task.domain, lambda m, d: None)
    every = max(1, plan.steps // max(1, config.judgings))

    start = network_errors(model, task.choose, BASE)

    def judge() -> float:
        """The mean error at the start times the mean ratio since:
        every case counts the same, however far its scene is.
        """
        return float(start.mean() * np.exp(_log_ratios(start, network_errors(model, task.choose, name)).mean()))

    watch = Watch(method, name, judge, every=every, patience=config.patience, say=say)
    schedule = replace(plan.schedule, save_every=every)
    progress = fit(method, task.learn, schedule, seed=config.seed, log=log, each_step=watch, folder=folder)
    share = watch.blend()
    method.end_domain(task.domain)
    before, after = (network_errors(model, task.verdict, use) for use in (BASE, name))
    chosen = _log_ratios(start, network_errors(model, task.choose, name))
    gate = find_gate([(shown_shares(task.choose), chosen), (shown_shares(task.verdict), _log_ratios(before, after))])
    after = np.where(answered(task.verdict, gate), after, before)
    result = Adaptation(
        name=name,
        frames=len(task.parts.learn),
        steps=watch.step,
        best_step=watch.best_step,
        seconds=time.monotonic() - started,
        before=float(before.mean()),
        after=float(after.mean()),
        ratio=float(np.exp(_log_ratios(before, after).mean())),
        share=share,
        gate=gate,
        spread=spread_of_gain(before, after),
        better=float((after < before).mean()),
        judged=len(after),
        chosen=(watch.start, watch.best),
        interpolation=interpolation_errors(task.verdict),
        curve=tuple(watch.curve),
        own=_own_share(model, task.domain.val, name),
    )
    if not result.helped and not config.force:
        watch.forget()
        return result, progress.bad_frames
    if gate is not None:
        model.domain(name).gate = torch.tensor(gate)
    if task.place is not None:  # only now: what was learned and judged was registered already
        model.domain(name).registration = torch.tensor(task.place.place)
    return result, progress.bad_frames


def _own_share(model: ProtoDepth, frames: FrameDataset, name: str) -> float:
    """For which share of some frames the domain is chosen: a descriptor of few steps may be near none of them."""
    rule, right = replace(model.rule, unknown="nearest"), []
    for index in evenly(len(frames), 4):
        with contextlib.suppress(DataError):  # a damaged frame was counted when it was to judge
            right.append(model.predict_batch(collate([frames[index]]), rule=rule).domains == (name,))
    return float(np.mean(right)) if right else 1.0


def _log_ratios(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(after, 1e-9) / np.maximum(before, 1e-9))


def spread_of_gain(before: np.ndarray, after: np.ndarray) -> float:
    """Standard error of the gain: of the logarithms of the same cases' ratios.

    >>> round(spread_of_gain(np.array([10.0, 10.0]), np.array([8.0, 6.0])), 3)
    0.1
    """
    if len(before) < 2:
        return 0.0
    logs = _log_ratios(before, after)
    return float(np.exp(logs.mean()) * logs.std(ddof=1) / math.sqrt(len(logs)))


def record(result: Adaptation, task: Task) -> History:
    """What the domain's folder says of its making; of a path only the last part, since folders are shared."""
    return History(
        source=task.source,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        data=without_folders(task.domain.identity),
        frames=result.frames,
        steps=result.steps,
        kept_step=result.best_step,
        seconds=round(result.seconds, 1),
        held_out_error_mm={"before": round(result.before, 2), "after": round(result.after, 2)},
        versions=made_with(),
    )


def estimate(
    model: ProtoDepth, data: str | Path | Domain, *, name: str, config: AdaptConfig = AdaptConfig(), **options: Any
) -> Plan:
    """What ``adapt`` would do and how long it would take: a few steps are timed on a copy of the model;
    nothing is changed.
    """
    config, options = split_options(config, data, options)
    started, model = time.monotonic(), copy.deepcopy(model)
    task = prepare(model, data, name, config, options)
    if config.schedule is not None:
        costs = measure_costs(task, config.schedule, config)
        plan = make_plan(task, config)
        return replace(plan, seconds=total_seconds(plan.steps, costs, config.judgings))
    return make_plan(task, config, time.monotonic() - started)
