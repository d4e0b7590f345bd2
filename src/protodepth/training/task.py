"""A recording made ready for adapting: opened, divided, its poses looked at; and how it is to be learned."""

import dataclasses
import inspect
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from protodepth.data.arguments import open_domain, parse_argument, without_folders
from protodepth.data.doubt import LEAST_INSIDE, reason_against
from protodepth.data.faults import Faults, readable
from protodepth.data.frame import Domain, FrameDataset, evenly
from protodepth.data.hidden import MOST, HideConfig, hide_in_batches
from protodepth.data.recording.open import load_recording
from protodepth.errors import ConfigError, DataError, UnknownNameError, name_taken
from protodepth.losses import ObjectiveConfig
from protodepth.methods.base import Method, build
from protodepth.methods.protodepth import ProtoDepthMethod
from protodepth.model import ProtoDepth
from protodepth.prototypes import PrototypeConfig
from protodepth.training.fast import KeptFrames
from protodepth.training.objective import HiddenObjective, HiddenObjectiveConfig, build_objective
from protodepth.training.plan import JUDGINGS
from protodepth.training.poses import Posed, PoseReport, Unmoved, examine
from protodepth.training.registration import Place, Registered, find_place, move_frame
from protodepth.training.schedule import Schedule
from protodepth.training.watch import CASES, Case, Parts, divide, first, is_dense, judging, make_cases
from protodepth.types import Batch

logger = logging.getLogger("protodepth")
OTHER_NAMES = {"unit": "depth_unit", "lr": "rate", "learning_rate": "rate", "epochs": "steps", "iterations": "steps"}


def _paper_objective() -> ObjectiveConfig:
    """The paper's terms with weights that hold for rooms and streets alike: errors relative to the depth."""
    return ObjectiveConfig(
        reduction="relative", sparse=0.6, smooth=0.02, mask_outside=True, outlier_size=3, outlier_relative=0.3
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptConfig:
    """How a domain is learned.  Every field may be given to ``adapt`` by its name."""

    objective: Literal["hidden", "paper"] = "hidden"  # hidden points and a cautious photometric term, or Eq. 1
    minutes: float = 5.0  # how long it may take, where ``steps`` is not given
    steps: int | None = None
    rate: float | None = None  # of the prototypes; None: as the objective needs it
    schedule: Schedule | None = None  # every detail of the training; wins over the three above
    hide: HideConfig = field(default_factory=HideConfig)  # which points are hidden while learning
    weights: HiddenObjectiveConfig = field(default_factory=HiddenObjectiveConfig)
    paper: ObjectiveConfig = field(default_factory=_paper_objective)
    poses: Literal["auto", "given", "network"] = "auto"  # auto: whichever warp best; network: for the paper's objective
    prototypes: PrototypeConfig | None = None  # None = the model's own
    own_parts: bool = True  # the domain learns copies of parts of the network, too, where it says which ones it may
    register: bool = True  # look whether the picture lies on the depth, and move it there
    withhold: float = 0.2  # share of the sparse points of a frame that judges instead of being shown
    judgings: int = JUDGINGS  # how often the error at hidden points is measured
    patience: int = 6  # judgings in a row without a better one, after which learning stops
    seed: int = 0
    force: bool = False  # keep what was learned even if it did not help

    def __post_init__(self) -> None:
        for name in ("minutes", "steps", "rate", "withhold", "judgings", "patience", "seed"):
            value = getattr(self, name)
            if not (value is None or isinstance(value, int | float)):
                raise ConfigError(f"{name} is {value!r}, expected a number")
        if not 0 < self.withhold <= MOST:
            raise ConfigError(
                f"withhold is {self.withhold}, expected a share of the sparse points above 0 and at most {MOST:g}"
            )
        if self.objective not in ("hidden", "paper"):
            raise ConfigError(f"objective is {self.objective!r}: choose hidden or paper")
        if self.objective == "hidden" and self.poses == "network":
            raise ConfigError("poses by the pose network are for --objective paper; hidden points need none")
        if not 0 < self.minutes < math.inf or (self.steps is not None and self.steps < 1):
            raise ConfigError(f"minutes and steps must be positive, got {self.minutes:g} and {self.steps}")


def split_options(
    config: AdaptConfig, data: str | Path | Domain, options: Mapping[str, Any]
) -> tuple[AdaptConfig, dict[str, Any]]:
    """Options of ``adapt``: fields of its configuration that were given by name, and the rest, settings of the data."""
    fields = {f.name for f in dataclasses.fields(AdaptConfig)}
    recorded = not isinstance(data, Domain) and parse_argument(str(data))[0] == "recording"
    of_recordings = set(inspect.signature(load_recording).parameters) - {"path", "depth_range"} - fields
    known = fields if isinstance(data, Domain) else fields | of_recordings
    unknown = next((key for key in options if key not in known), None)
    if isinstance(data, Domain) and unknown in of_recordings:
        raise ConfigError(f"a Domain is read already: give {unknown} to open_domain, or adapt the folder's path")
    if unknown is not None and (recorded or isinstance(data, Domain)):
        meant = OTHER_NAMES.get(unknown, "")
        raise UnknownNameError("option of adapt", unknown, tuple(sorted(known)), meant if meant in known else "")
    changes = {key: value for key, value in options.items() if key in fields}
    return (replace(config, **changes) if changes else config), {k: v for k, v in options.items() if k not in fields}


class RecordingMethod(ProtoDepthMethod):
    """ProtoDepth on batches of which some points are hidden."""

    hide = HideConfig()

    def batches(self, loader: Iterable[Batch], *, start: int, seed: int) -> Iterable[Batch]:
        return hide_in_batches(loader, self.hide, start=start, seed=seed)


def open_recording(model: ProtoDepth, data: str | Path | Domain, name: str, options: Mapping[str, Any]) -> Domain:
    """The data as a domain of the given name, after every check that can be made before learning."""
    if name in model.domains:
        raise name_taken(name)
    if not isinstance(data, Domain):
        hint = {"depth_range": model.backbone.depth_range} if parse_argument(str(data))[0] == "recording" else {}
        data = open_domain(str(data), **hint, **options)
    domain = replace(data, name=name)
    own = domain.identity.get("dataset") == "recording"  # the readers of datasets know their units
    unit = domain.identity.get("unit") if own else None
    for frames in [part for part in (domain.train, domain.test) if len(part)][:1]:
        _check_range(frames, model.backbone.depth_range, unit)
    if len(domain.train) == 0:  # only now: at depths of a wrong unit nothing seems to move
        raise DataError(
            f"{domain.identity.get('source', 'the data')} has no frames with neighbours to learn from: "
            "adapting needs a sequence with motion, not single images"
        )
    return domain


def _check_range(data: FrameDataset, depth_range: tuple[float, float], unit: str | None = None) -> None:
    """Refuse data that the network cannot express, before an hour is spent on it."""
    low, high = depth_range
    maps = (f.sparse_depth for f in readable(data, Faults(len(data)), evenly(len(data), 8)))
    points = [p[p > 0] for p in maps]
    every = np.concatenate(points)
    if every.size == 0:
        raise DataError("the frames looked at have no sparse points: adapting needs some in every frame")
    inside = float(((every >= low) & (every <= high)).mean())
    where = (
        f"{100 * (1 - inside):.0f} % of the sparse points lie outside the network's range of {low:g}-{high:g} m "
        f"(median {np.median(every):.2f} m)"
    )
    reason = None if unit is None else reason_against(every, depth_range, unit)
    if reason is not None or inside < LEAST_INSIDE:
        raise DataError(f"{reason or where}: check the depth unit, or start from a network for this range")
    if inside < 0.9:
        logger.warning("%s", where)


@dataclass(frozen=True, slots=True)
class Task:
    """A recording made ready: who learns, from which frames, and which hidden points judge."""

    method: Method
    domain: Domain
    parts: Parts
    choose: list[Case]
    verdict: list[Case]
    objective: str  # in words
    source: str  # what the data is called; of a path only the last part
    place: Place | None = None  # of pictures that do not lie on their depth

    @property
    def learn(self) -> Domain:
        return replace(self.domain, train=self.parts.learn)


def prepare(
    model: ProtoDepth, data: str | Path | Domain, name: str, config: AdaptConfig, options: Mapping[str, Any]
) -> Task:
    """Open, divide, hide and look at the poses: everything before the first step."""
    domain = open_recording(model, data, name, options)
    source = data.name if isinstance(data, Domain) else without_folders(str(data))
    hide = judging(config.withhold)
    parts = divide(domain, hide)
    halves = (0, 1) if parts.shared else (None, None)
    place = find_place(model, parts.learn) if config.register and config.objective == "hidden" else None
    moved = None if place is None else partial(move_frame, place=place.place)
    choose, verdict = (
        make_cases(d, hide, count=count, half=h, place=moved)
        for d, h, count in zip((parts.choose, parts.verdict), halves, (CASES, 2 * CASES), strict=True)
    )
    if config.objective == "paper":
        return Task(
            _paper_method(model, domain, config),
            domain,
            parts,
            choose,
            verdict,
            "the paper's, every point shown",
            source,
        )
    if place is not None:
        parts = replace(parts, learn=Registered(parts.learn, place.place))
    dense = is_dense(first(parts.learn))  # then the map itself teaches every pixel, and neighbours are not looked at
    report = examine(parts.learn) if config.weights.photometric > 0 and not dense else None
    if report is not None and config.poses == "given":
        report = replace(report, estimated=math.inf)
    method, learn = _recording_method(model, parts.learn, report, config)
    words = "all but some points and all but holes of a dense map" if dense else "points hidden singly and in blocks"
    words += f"; {report}" if report else ""
    return Task(method, domain, replace(parts, learn=learn), choose, verdict, words, source, place)


def _paper_method(model: ProtoDepth, domain: Domain, config: AdaptConfig) -> Method:
    """The paper's objective needs poses, given or from the model's pose network."""
    posed, settings = bool(first(domain.train).poses), replace(config.paper, poses=config.poses)
    if not posed and model.pose is None:
        raise ConfigError(
            "the recording has no poses and the model no pose network: give poses.txt, a model with a pose network, "
            "or --objective hidden"
        )
    objective = build_objective(model, settings)
    if posed and settings.poses != "network":
        objective.pose = None  # given poses are used, and the pose network stays as it is
    method = build("protodepth", model, objective, config.prototypes or model.config)
    method.seed = config.seed  # the start of the prototypes is drawn, too
    return method


def _recording_method(
    model: ProtoDepth, learn: FrameDataset, report: PoseReport | None, config: AdaptConfig
) -> tuple[Method, FrameDataset]:
    """The method for hidden points, and the frames with the poses that were found best (without neighbours where none
    warp).
    """
    trust = 0.0 if report is None else report.trust
    prototypes = config.prototypes or model.config
    if config.own_parts and config.prototypes is None:
        prototypes = replace(prototypes, parts=(*model.backbone.encoder_parts, *model.backbone.decoder_parts))
    method = RecordingMethod(model, HiddenObjective(config.weights, trust=trust), prototypes)
    method.seed, method.hide = config.seed, config.hide
    if report is None or trust == 0:
        return method, KeptFrames(Unmoved(learn))
    return method, KeptFrames(Posed(learn) if report.use_estimated else learn)
