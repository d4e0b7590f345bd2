"""adapt(): learn one new domain from an unlabelled recording, and say honestly whether it helped."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data.base import Domain, FrameDataset, collate
from protodepth.data.open import open_domain
from protodepth.errors import ConfigError, DataError, DomainError
from protodepth.losses import ObjectiveConfig
from protodepth.methods.base import build
from protodepth.model import ProtoDepth
from protodepth.prototypes import PrototypeConfig
from protodepth.runs import build_objective, versions
from protodepth.training import Log, Schedule, fit, silent


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptConfig:
    """How a domain is learned.  The objective's defaults hold for rooms and streets alike (errors relative to the depth)."""

    schedule: Schedule = field(default_factory=lambda: Schedule(steps=500, batch_size=2, rate=3e-2))
    objective: ObjectiveConfig = field(
        default_factory=lambda: ObjectiveConfig(
            reduction="relative", sparse=0.6, smooth=0.02, mask_outside=True, outlier_size=3, outlier_relative=0.3
        )
    )
    prototypes: PrototypeConfig | None = None  # None = the model's own
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What ``adapt`` reports: errors in mm at sparse points that the network was never shown, before and after."""

    name: str
    frames: int
    steps: int
    seconds: float
    before: float
    after: float

    @property
    def gain(self) -> float:
        """Share of the held-out error that is gone; negative if it grew."""
        return 1 - self.after / self.before

    def __str__(self) -> str:
        verdict = "helped" if self.gain > 0.01 else "did not help"
        return (
            f"{self.name}: {self.steps} steps on {self.frames} frames in {self.seconds:.0f} s; error at held-out sparse points "
            f"{self.before:.1f} -> {self.after:.1f} mm ({-100 * self.gain:+.1f} %): adapting {verdict}"
        )


def adapt(
    model: ProtoDepth,
    data: str | Path | Domain,
    *,
    name: str,
    config: AdaptConfig = AdaptConfig(),
    log: Log = silent,
    **options: Any,
) -> Adaptation:
    """Learn prototypes and a descriptor for ``name`` from unlabelled frames; earlier domains and the network stay as they are.

    ``data`` is a recording folder, a data argument such as ``worlds:highway``, or a Domain.  If learning fails the model is left
    without the new domain.
    """
    if name in model.domains:
        raise DomainError(f"domain {name!r} exists: delete_domain({name!r}) first, or choose another name")
    domain = data if isinstance(data, Domain) else open_domain(str(data), **options)
    domain = replace(domain, name=name)
    if len(domain.train) == 0:
        raise DataError(
            f"{data} has no frames with neighbours to learn from: adapting needs a sequence, not single images"
        )
    if len(domain.train[0].poses) == 0 and model.pose is None:
        raise ConfigError(
            "the recording has no poses and the model no pose network: give poses.txt, or a model with a pose network"
        )
    held_out = domain.val if len(domain.val) else domain.train
    before = held_out_error(model, held_out, "base")
    method = build("protodepth", model, build_objective(model, config.objective), config.prototypes or model.config)
    method.begin_domain(domain, lambda m, d: None)
    try:
        progress = fit(method, domain, config.schedule, seed=config.seed, log=log)
    except BaseException:
        model.delete_domain(name)
        raise
    method.end_domain(domain)
    result = Adaptation(
        name, len(domain.train), progress.steps, progress.seconds, before, held_out_error(model, held_out, name)
    )
    model.history[name] = {
        "data": domain.identity,
        "steps": progress.steps,
        "seconds": round(progress.seconds, 1),
        "held_out_error_mm": {"before": round(before, 2), "after": round(result.after, 2)},
        **versions(),
    }
    return result


def held_out_error(
    model: ProtoDepth, data: FrameDataset, domain: str, *, frames: int = 32, share: float = 0.2
) -> float:
    """Mean absolute error in mm at a seeded share of the sparse points that is hidden from the network."""
    errors = []
    for index in range(0, len(data), max(1, len(data) // frames)):
        frame = data[index]
        random = np.random.default_rng(index)
        points = frame.sparse_depth > 0
        hidden = points & (random.random(points.shape) < share)
        if not hidden.any() or not (points & ~hidden).any():
            continue
        shown = replace(frame, sparse_depth=np.where(hidden, 0, frame.sparse_depth).astype(np.float32))
        depth = model.predict_batch(collate([shown]), domain).depth[0, 0].cpu().numpy()
        errors.append(np.abs(depth - frame.sparse_depth)[hidden].mean() * 1000)
    if not errors:
        raise DataError("too few sparse points to hold some out: the recording's frames have almost none")
    return float(np.mean(errors))
