"""adapt(): learn one new domain from an unlabelled recording, and say honestly whether it helped."""

import copy
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from protodepth._version import made_with
from protodepth.data.arguments import open_domain, parse_argument, without_folders
from protodepth.data.faults import Faults, readable
from protodepth.data.frame import Domain, FrameDataset, Subset
from protodepth.errors import ConfigError, DataError, DomainError
from protodepth.losses import ObjectiveConfig
from protodepth.methods.base import Method, build
from protodepth.model import ProtoDepth
from protodepth.prototypes import PrototypeConfig
from protodepth.storage.history import History
from protodepth.training.fit import Log, Schedule, fit, silent
from protodepth.training.runs import build_objective
from protodepth.training.watch import JUDGES, Watch, divide, first, held_out_errors, some
from protodepth.types import BASE

logger = logging.getLogger("protodepth")
HELPED = 0.01  # a smaller share of the error gone is no help


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptConfig:
    """How a domain is learned.  The objective's defaults hold for rooms and streets alike (errors relative to the
    depth).
    """

    schedule: Schedule = field(default_factory=lambda: Schedule(steps=500, batch_size=2, rate=6e-2, clip=math.inf))
    objective: ObjectiveConfig = field(
        default_factory=lambda: ObjectiveConfig(
            reduction="relative", sparse=0.6, smooth=0.02, mask_outside=True, outlier_size=3, outlier_relative=0.3
        )
    )
    prototypes: PrototypeConfig | None = None  # None = the model's own
    withhold: float = 0.2  # share of the sparse points of a frame that judges instead of being shown
    looks: int = 10  # how often the held-out photometric loss is looked at
    patience: int = 4  # looks in a row without a better one, after which learning stops
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptation:
    """What ``adapt`` reports.  ``before`` and ``after`` are errors in mm at sparse points that the network was never
    shown.
    """

    name: str
    frames: int
    steps: int  # made
    best_step: int  # whose prototypes were kept
    seconds: float
    before: float
    after: float
    better: float  # share of the judging frames whose error shrank
    judged: int  # how many frames judge
    photometric: tuple[float, float]  # held-out loss at the start and of what was kept

    @property
    def gain(self) -> float:
        """Share of the held-out error that is gone; negative if it grew."""
        return 1 - self.after / self.before

    @property
    def helped(self) -> bool:
        return self.gain > HELPED

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.steps} steps on {self.frames} frames in {self.seconds:.0f} s, "
            f"kept step {self.best_step} (held-out photometric loss {self.photometric[0]:.4f} -> "
            f"{self.photometric[1]:.4f}); error at held-out sparse points {self.before:.1f} -> {self.after:.1f} mm "
            f"({-100 * self.gain:+.1f} %, smaller on {100 * self.better:.0f} % of {self.judged} frames): "
            f"adapting {'helped' if self.helped else 'did not help'}"
        )


def open_recording(model: ProtoDepth, data: str | Path | Domain, name: str, options: Mapping[str, Any]) -> Domain:
    """The data as a domain of the given name, after every check that can be made before learning."""
    if name in model.domains:
        raise DomainError(f"domain {name!r} exists: delete_domain({name!r}) first, or choose another name")
    if not isinstance(data, Domain):
        hint = {"depth_range": model.backbone.depth_range} if parse_argument(str(data))[0] == "recording" else {}
        data = open_domain(str(data), **hint, **options)
    domain = replace(data, name=name)
    if len(domain.train) == 0:
        raise DataError(
            f"{domain.identity.get('source', 'the data')} has no frames with neighbours to learn from: "
            "adapting needs a sequence with motion, not single images"
        )
    if len(first(domain.train).poses) == 0 and model.pose is None:
        raise ConfigError(
            "the recording has no poses and the model no pose network: give poses.txt, or a model with a pose network"
        )
    check_range(domain.train, model.backbone.depth_range)
    return domain


def check_range(data: FrameDataset, depth_range: tuple[float, float]) -> None:
    """Refuse data that the network cannot express, before an hour is spent on it."""
    low, high = depth_range
    maps = (f.sparse_depth for f in readable(data, Faults(len(data)), some(len(data), 8)))
    points = [p[p > 0] for p in maps]
    every = np.concatenate(points)
    if every.size == 0:
        raise DataError("the frames looked at have no sparse points: adapting needs some in every frame")
    inside = float(((every >= low) & (every <= high)).mean())
    where = (
        f"{100 * (1 - inside):.0f} % of the sparse points lie outside the network's range of {low:g}-{high:g} m "
        f"(median {np.median(every):.2f} m)"
    )
    if inside < 0.5:
        raise DataError(f"{where}: check the depth unit, or start from a network for this range")
    if inside < 0.9:
        logger.warning("%s", where)


def build_method(model: ProtoDepth, domain: Domain, config: AdaptConfig) -> Method:
    objective = build_objective(model, config.objective)
    if first(domain.train).poses and config.objective.poses != "network":
        objective.pose = None  # given poses are used, and the pose network stays as it is
    method = build("protodepth", model, objective, config.prototypes or model.config)
    method.seed = config.seed  # the start of the prototypes is drawn, too
    return method


def adapt(
    model: ProtoDepth,
    data: str | Path | Domain,
    *,
    name: str,
    config: AdaptConfig = AdaptConfig(),
    log: Log = silent,
    **options: Any,
) -> Adaptation:
    """Learn prototypes and a descriptor for ``name`` from unlabelled frames;
    earlier domains and the network stay as they are.

    ``data`` is a recording folder, a data argument such as ``worlds:highway``, or a Domain.  Learning stops early when
    the photometric loss on held-out frames no longer falls, and the best prototypes are kept.  If learning fails or is
    interrupted the model is left as it was.  Whether it helped is judged by sparse points that the network was never
    shown; a warning is logged if it did not.
    """
    if not 0 < config.withhold < 1:
        raise ConfigError(f"withhold is {config.withhold}, expected a share above 0 and below 1 of the sparse points")
    domain = open_recording(model, data, name, options)
    parts, pose, active = divide(domain, config.withhold), copy.deepcopy(model.pose), model.active
    method = build_method(model, domain, config)
    started = time.monotonic()
    try:
        method.begin_domain(domain, lambda m, d: None)
        before = held_out_errors(model, parts.judge, BASE, share=config.withhold)
        watch = Watch(method, name, parts.watch, config)
        learn = replace(domain, train=parts.learn)
        progress = fit(method, learn, config.schedule, seed=config.seed, log=log, each_step=watch)
        watch.restore()
        method.end_domain(domain)
        after = held_out_errors(model, parts.judge, name, share=config.withhold)
    except BaseException:
        if name in model.domains:
            model.delete_domain(name)
        model.set_domain(active)
        model.pose = pose
        raise
    if model.pose is not None:
        model.pose.eval().requires_grad_(False)
    result = Adaptation(
        name=name,
        frames=len(parts.learn),
        steps=watch.step,
        best_step=watch.best_step,
        seconds=time.monotonic() - started,
        before=float(before.mean()),
        after=float(after.mean()),
        better=float((after < before).mean()),
        judged=len(after),
        photometric=(watch.start, watch.best),
    )
    model.history[name] = replace(record(result, domain, data), bad_frames=progress.bad_frames)
    if not result.helped:
        logger.warning("%s", result)
    return result


def record(result: Adaptation, domain: Domain, data: str | Path | Domain) -> History:
    """What the domain's folder says of its making; of a path only the last part, since folders are shared."""
    source = data.name if isinstance(data, Domain) else without_folders(str(data))
    return History(
        source=source,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        data=without_folders(domain.identity),
        frames=result.frames,
        steps=result.steps,
        kept_step=result.best_step,
        seconds=round(result.seconds, 1),
        held_out_error_mm={"before": round(result.before, 2), "after": round(result.after, 2)},
        versions=made_with(),
    )


@dataclass(frozen=True, slots=True)
class Estimate:
    """What adapting would take on this machine."""

    frames: int
    steps: int
    seconds: float

    def __str__(self) -> str:
        minutes = f"{self.seconds:.0f} s" if self.seconds < 120 else f"{self.seconds / 60:.0f} min"
        return f"{self.steps} steps on {self.frames} frames would take about {minutes} here (early stop may shorten it)"


def estimate(
    model: ProtoDepth, data: str | Path | Domain, *, name: str, config: AdaptConfig = AdaptConfig(), **options: Any
) -> Estimate:
    """Time a few steps of ``adapt`` on a copy of the model; nothing is changed."""
    model = copy.deepcopy(model)
    domain = open_recording(model, data, name, options)
    method, parts = build_method(model, domain, config), divide(domain)
    method.begin_domain(domain, lambda m, d: None)
    clock: list[float] = []
    few = replace(config.schedule, steps=min(6, config.schedule.steps))
    fit(
        method,
        replace(domain, train=parts.learn),
        few,
        seed=config.seed,
        log=lambda s, r: clock.append(time.monotonic()),
    )
    one_step = float(np.median(np.diff(clock))) if len(clock) > 1 else 0.0  # the first step also warms up
    begun = time.monotonic()
    Watch(method, name, Subset(parts.watch, (0,)), config)
    one_frame = time.monotonic() - begun
    frames = (
        (config.looks + 1) * min(16, len(parts.watch)) + 2 * min(JUDGES, len(parts.judge)) + min(256, len(domain.train))
    )
    return Estimate(len(parts.learn), config.schedule.steps, config.schedule.steps * one_step + frames * one_frame)
