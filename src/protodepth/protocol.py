"""Judging: errors on a domain, and the score matrices a_j^k of a sequence in both settings from one run."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from protodepth.data.base import Domain, EvalRules, Faults, Frame, FrameDataset, collate, readable
from protodepth.errors import DataError
from protodepth.methods.base import Method
from protodepth.metrics import Scores, depth_errors, mean_errors
from protodepth.training import Progress
from protodepth.types import Batch, BatchPrediction

Predict = Callable[[Batch], BatchPrediction]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Errors of one predictor on one dataset: the mean, and every image's own."""

    mean: dict[str, float]
    images: list[dict[str, Any]]  # name, points, valid, mae, rmse, imae, irmse, domain, similarity
    bad_frames: dict[str, str] = field(default_factory=dict)  # left out because they could not be read

    @property
    def chosen(self) -> list[str]:
        return [str(row["domain"]) for row in self.images]


def groups(frames: Iterable[Frame], size: int) -> Iterator[list[Frame]]:
    """Consecutive frames of one image size, in order, at most ``size`` at once."""
    group: list[Frame] = []
    for frame in frames:
        if group and (len(group) == size or frame.image.shape != group[0].image.shape):
            yield group
            group = []
        group.append(frame)
    if group:
        yield group


def evaluate(predict: Predict, data: FrameDataset, rules: EvalRules, *, batch_size: int = 8) -> Evaluation:
    """Per-image errors, then their mean.  Frames must have ground truth."""
    images: list[dict[str, Any]] = []
    faults = Faults(len(data))
    for frames in groups(readable(data, faults), batch_size):
        out = predict(collate(frames))
        depth = out.depth[:, 0].cpu().numpy()
        for n, frame in enumerate(frames):
            if frame.ground_truth is None:
                raise DataError(f"frame {frame.name or len(images)} has no ground truth: it cannot be evaluated")
            errors = depth_errors(
                depth[n], frame.ground_truth, min_depth=rules.min_depth, max_depth=rules.max_depth, crop=rules.crop
            )
            similarity = {} if out.similarity is None else dict(zip(out.names, out.similarity[n].tolist(), strict=True))
            images.append(
                {
                    "name": frame.name,
                    "points": int((frame.sparse_depth > 0).sum()),
                    "valid": int((frame.ground_truth > 0).sum()),
                    **errors,
                    "domain": out.domains[n],
                    "similarity": similarity,
                }
            )
    if not images:
        raise DataError("there are no frames to evaluate")
    return Evaluation(mean_errors(images), images, faults.found)


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

    def row(self, *, agnostic: bool) -> list[Evaluation]:
        return [self.errors(d, agnostic=agnostic) for d in self.domains]


FitDomain = Callable[[Method, Domain, Callable[[int], None] | None], Progress]


def run_sequence(
    method: Method,
    domains: Sequence[Domain],
    fit: FitDomain,
    *,
    pretrained: bool = True,
    curve_every: int = 0,
    split: str = "test",
    report: Callable[[str], None] = lambda text: None,
) -> SequenceResult:
    """Learn the domains in order and judge all of them after each: ``a_j^k`` in both settings.

    ``pretrained``: the model has learned ``domains[0]`` already.  ``curve_every`` > 0 also evaluates every seen domain on val frames each
    so many steps (the paper's first figure).
    """
    judge = Judge(method=method, domains=domains, split=split)

    def auxiliary(other: Method, domain: Domain) -> None:
        fit(other, domain, None)

    incremental: list[list[dict[str, float]]] = []
    agnostic: list[list[dict[str, float]]] = []
    curves: list[dict[str, Any]] = []
    last: list[Evaluation] = []
    seconds, skipped = [], 0
    bad: dict[str, dict[str, str]] = {}
    method.prepare(domains)
    for stage, domain in enumerate(domains):
        if stage or not pretrained:
            report(f"{method.name}: learning {domain.name}")
            seen = domains[: stage + 1]

            looking = [0.0]  # seconds spent on the curve, which are not training time

            def each_step(
                step: int, stage: int = stage, seen: Sequence[Domain] = seen, looking: list[float] = looking
            ) -> None:
                if step % curve_every == 0:
                    begun = time.monotonic()
                    curves.extend(curve_points(judge, stage, step, seen))
                    looking[0] += time.monotonic() - begun

            if curve_every and method.trains:
                curves.extend(curve_points(judge, stage, 0, domains[: max(stage, 1)]))
            started = time.monotonic()
            method.begin_domain(domain, auxiliary)
            progress = fit(method, domain, each_step if curve_every else None)
            method.end_domain(domain)
            seconds.append(time.monotonic() - started - looking[0])
            skipped += progress.skipped
            bad |= {f"{domain.name} train": progress.bad_frames} if progress.bad_frames else {}
        else:
            method.end_domain(domain)  # learned before: its Fisher, buffer or teacher is taken now
        report(f"{method.name}: evaluating after {domain.name}")
        incremental.append([e.mean for e in judge.row(agnostic=False)])
        last = judge.row(agnostic=True)
        agnostic.append([e.mean for e in last])
    bad |= {f"{d.name} {split}": e.bad_frames for d, e in zip(domains, last, strict=True) if e.bad_frames}
    names = tuple(dict.fromkeys(c for e in last for c in e.chosen))
    names = tuple(d.name for d in domains if d.name in names) + tuple(
        n for n in names if n not in {d.name for d in domains}
    )
    return SequenceResult(
        method=method.name,
        domains=tuple(d.name for d in domains),
        incremental=Scores.from_errors(incremental),
        agnostic=Scores.from_errors(agnostic),
        confusion=np.array([[e.chosen.count(n) for n in names] for e in last]) if names != ("base",) else None,
        chosen_names=names,
        curves=curves,
        seconds=seconds,
        skipped=skipped,
        extra_parameters=method.extra_parameters(),
        extra_bytes=method.extra_bytes(),
        record=method.record() | ({"bad_frames": bad} if bad else {}),
    )


def curve_points(judge: Judge, stage: int, step: int, seen: Sequence[Domain]) -> list[dict[str, Any]]:
    """Errors on the val frames of the domains seen so far, in both settings."""
    return [
        {
            "stage": stage,
            "step": step,
            "domain": d.name,
            "setting": setting,
            **judge.errors(d, agnostic=setting == "agnostic", split="val").mean,
        }
        for d in seen
        for setting in ("incremental", "agnostic")
    ]
