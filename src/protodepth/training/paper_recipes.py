"""The paper's experiments as recipes, built from the values in ``published``; shown as text and run as they are.

``protodepth recipe show paper-indoor`` prints every value with its source; ``docs/recipes.md`` is that table.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from protodepth.backbones.base import backbones
from protodepth.data.augment import AugmentConfig
from protodepth.losses import ObjectiveConfig
from protodepth.prototypes import PrototypeConfig
from protodepth.training import published
from protodepth.training.published import NETWORKS, SEQUENCES, Choices, Fact
from protodepth.training.recipes import BaseRecipe, CheckpointChoice, SequenceRecipe, StageRecipe
from protodepth.training.schedule import Schedule

WORKERS = 4
# A rehearsal still has two frames a batch, crops of 64 pixels and buffers of two frames.
FEWEST_FRAMES, SMALLEST_SIDE = 2, 64


@dataclass(frozen=True, slots=True)
class PaperRecipe:
    """One of the paper's three sequences for one network, with a choice wherever paper and scripts differ."""

    sequence: str  # paper-indoor, paper-outdoor, paper-mixed
    network: str
    choices: Choices
    datasets: tuple[str, ...] = ()  # other datasets than the sequence's, in this order

    @classmethod
    def of(cls, text: str, network: str, datasets: Sequence[str] = ()) -> "PaperRecipe":
        """
        >>> PaperRecipe.of("paper-indoor?crop=scripts", "kbnet").stage("void").schedule.augment.crop
        (416, 512)
        """
        sequence, given = published.parse(text)
        backbones.get(network)
        return cls(sequence, network, published.complete(given), tuple(datasets) or SEQUENCES[sequence])

    # --- the values of a stage ------------------------------------------------------------------------------------

    def schedule_facts(self, dataset: str) -> dict[str, Fact]:
        first, c = dataset == self.datasets[0], self.choices
        return {
            "batch": published.batch_size(dataset, c),
            "crop": published.crop(dataset, self.network, first, c),
            "rates": published.rates(dataset, self.network, first, c),
        }

    def augment_facts(self, dataset: str) -> dict[str, Fact]:
        return published.augmentation(dataset, self.network, dataset == self.datasets[0], self.choices)

    def weight_fact(self, dataset: str) -> Fact:
        return published.weights(dataset, self.network, dataset == self.datasets[0], self.choices)

    def stage(self, dataset: str) -> StageRecipe:
        """How a dataset is learned."""
        facts = self.schedule_facts(dataset)
        values = {name: fact.value for name, fact in self.augment_facts(dataset).items()}
        schedule = Schedule(
            batch_size=facts["batch"].value,
            clip=math.inf,
            workers=WORKERS,
            save_every=1000,
            augment=AugmentConfig(crop=facts["crop"].value, **values),
            **stepped(facts["rates"].value),
        )
        others = {name: fact.value for name, fact in published.objective(self.network, self.choices).items()}
        return StageRecipe(schedule=schedule, objective=ObjectiveConfig(**self.weight_fact(dataset).value, **others))

    # --- recipes --------------------------------------------------------------------------------------------------

    @property
    def prototypes(self) -> PrototypeConfig:
        image, depth = published.set_sizes(self.sequence).value
        init: Any = self.choices["init"]
        return PrototypeConfig(image_size=image, depth_size=depth, init=init)

    @property
    def selection(self) -> CheckpointChoice | None:
        value = published.selection(self.choices).value
        return None if value is None else CheckpointChoice(split=value[0], every=value[1])

    def network_options(self) -> dict[str, Fact]:
        """What the network is built with beside its preset."""
        span = published.depth_range(self.sequence)
        options: dict[str, Fact] = {"depth_range": Fact(list(span.value), span.source)}
        if self.network in ("kbnet", "voiced") and self.sequence == "paper-mixed":
            options["centred"] = Fact(True, "our choice: with 0.1 to 100 m the published head does not start")
        return options

    def preset(self) -> str:
        """The published network: pools for VOID indoors, for KITTI outdoors."""
        if self.network == "lite":
            return self.sequence.removeprefix("paper-")
        if self.network == "uformer":
            return "full"
        return "void" if self.sequence == "paper-indoor" else "kitti"

    def base(self, data: str, preset: str | None = None) -> BaseRecipe:
        """D_1 from scratch."""
        stage = self.stage(self.datasets[0])
        assert stage.objective is not None
        return BaseRecipe(
            name=f"{self.sequence}-{self.network}",
            data=data,
            backbone=self.network,
            preset=preset or self.preset(),
            backbone_options={name: fact.value for name, fact in self.network_options().items()},
            objective=stage.objective,
            schedule=stage.schedule,
            prototypes=self.prototypes,
            pose=self.choices["poses"] == "network",
            select=self.selection,
        )

    def scaffold(self) -> Schedule:
        """How ScaffNet learns from exact depth."""
        facts = published.scaffnet(self.sequence)
        augment = AugmentConfig(crop=facts["crop"].value)
        batch, rates = facts["batch"].value, stepped(facts["rates"].value)
        return Schedule(batch_size=batch, clip=math.inf, augment=augment, **rates)

    def sequence_recipe(self, start: str, domains: Sequence[str], names: Sequence[str] = ()) -> SequenceRecipe:
        """The later domains.  ``names``: of the domains, where they are not called as their datasets are."""
        called = tuple(names) or self.datasets
        stages = {name: self.stage(dataset) for name, dataset in zip(called, self.datasets, strict=True)}
        last = stages[called[-1]]
        assert last.objective is not None
        values = published.method_values(self.choices)
        return SequenceRecipe(
            name=self.sequence,
            start=start,
            domains=tuple(domains),
            objective=last.objective,
            schedule=last.schedule,
            prototypes=self.prototypes,
            settings={method: {k: fact.value for k, fact in facts.items()} for method, facts in values.items()},
            stages=stages,
            select=self.selection,
        )


def stepped(rates: published.Rates) -> dict[str, Any]:
    """Rates by epoch as the settings of a Schedule.

    >>> stepped(((1e-4, 3), (5e-5, 9)))["milestones"]
    ((0.3333333333333333, 0.5),)
    """
    first, end = rates[0][0], rates[-1][1]
    marks = tuple((until / end, after / first) for (_, until), (after, _) in pairwise(rates))
    return {"epochs": float(end), "rate": first, "pose_rate": first, "decay": "steps", "milestones": marks}


# --- rehearsals -------------------------------------------------------------------------------------------------------


def scaled(schedule: Schedule, factor: float, processes: int = 1) -> Schedule:
    """A stage of the paper scaled for a rehearsal: epochs and batch times the factor, crop sides times its root.

    Each process has two frames at least: of so small a crop a batch norm sees a single pixel.
    """
    if schedule.epochs is None:
        return schedule
    side = math.sqrt(min(1.0, factor))
    rows, columns = (min(s, max(SMALLEST_SIDE, round(s * side))) for s in schedule.augment.crop or (0, 0))
    crop = (rows, columns) if schedule.augment.crop else None
    return replace(
        schedule,
        epochs=schedule.epochs * factor,
        batch_size=min(schedule.batch_size, max(FEWEST_FRAMES * processes, round(schedule.batch_size * factor))),
        augment=replace(schedule.augment, crop=crop, at_most=True),
        workers=0,
    )


def rehearsed(recipe: SequenceRecipe, factor: float, processes: int = 1) -> SequenceRecipe:
    """A whole sequence of the paper scaled for a rehearsal: every stage, and the buffers."""
    known = (recipe.stages or {}).items()
    stages = {name: replace(s, schedule=scaled(s.schedule, factor, processes)) for name, s in known}
    values = {method: dict(options) for method, options in recipe.settings.items()}
    for options in values.values():
        if "size" in options:
            options["size"] = max(FEWEST_FRAMES * processes, round(options["size"] * factor))
    schedule, select = scaled(recipe.schedule, factor, processes), recipe.select
    if select is not None:
        select = replace(select, every=max(1, round(select.every * factor)))
    return replace(recipe, stages=stages or None, schedule=schedule, settings=values, select=select, scale=factor)


# --- tables -----------------------------------------------------------------------------------------------------------

ValueRow = tuple[str, str, str, str, str]  # stage, network, setting, value, source


def rows(text: str) -> list[ValueRow]:
    """Every value of a recipe with its source; values that all networks share are one row."""
    sequence, given = published.parse(text)
    lines: list[ValueRow] = []
    for number, dataset in enumerate(SEQUENCES[sequence], 1):
        by_network = {network: list(_stage_rows(text, network, dataset)) for network in NETWORKS}
        lines += _merged(f"D{number} {dataset}", by_network)
        lines += [(f"D{number} {dataset}", "all", f"evaluation {k}", _shown(f.value), f.source) for k, f in
                  published.CAPS[dataset].items()]  # fmt: skip
    lines += _merged("all", {network: list(_network_rows(text, network)) for network in NETWORKS})
    lines += [("ScaffNet", "fusionnet", name, _shown(f.value), f.source) for name, f in
              published.scaffnet(sequence).items()]  # fmt: skip
    for method, facts in published.method_values(published.complete(given)).items():
        lines += [(f"method {method}", "all", name, _shown(fact.value), fact.source) for name, fact in facts.items()]
    return lines


def _stage_rows(text: str, network: str, dataset: str) -> Iterator[tuple[str, str, str]]:
    recipe = PaperRecipe.of(text, network)
    for name, fact in (*recipe.schedule_facts(dataset).items(), ("loss weights", recipe.weight_fact(dataset))):
        yield name, _shown(fact.value), fact.source
    for name, fact in recipe.augment_facts(dataset).items():
        yield f"augment {name}", _shown(fact.value), fact.source


def _network_rows(text: str, network: str) -> Iterator[tuple[str, str, str]]:
    recipe = PaperRecipe.of(text, network)
    objective = published.objective(network, recipe.choices)
    for name, fact in (*objective.items(), *recipe.network_options().items()):
        yield name, _shown(fact.value), fact.source
    yield "preset", recipe.preset(), "published network" if network != "lite" else "our choice"
    yield (
        "prototypes image/depth",
        _shown(published.set_sizes(recipe.sequence).value),
        published.set_sizes(recipe.sequence).source,
    )
    chosen = published.selection(recipe.choices)
    yield "checkpoint", _shown(chosen.value) if chosen.value else "last", chosen.source
    yield "optimiser", "Adam, no weight decay, no clipping; rate of poses as of depth", published.CODE
    yield (
        "start of prototypes",
        recipe.choices["init"],
        "our choice" if recipe.choices["init"] == "identity" else (published.CODE),
    )
    yield "choice of the domain", "descriptor", "paper, Eq. 11; frame by frame, docs/ambiguities.md 6"
    yield "loader workers", str(WORKERS), "our choice"


def _merged(stage: str, by_network: dict[str, list[tuple[str, str, str]]]) -> list[ValueRow]:
    """Networks with the same value and source share a row."""
    together: dict[tuple[str, str, str], list[str]] = {}
    order = list(dict.fromkeys(row[0] for values in by_network.values() for row in values))
    for network, values in by_network.items():
        for row in values:
            together.setdefault(row, []).append(network)
    every = len(by_network)
    lines = [
        (stage, "all" if len(names) == every else " ".join(names), setting, value, source)
        for (setting, value, source), names in together.items()
    ]
    return sorted(lines, key=lambda row: order.index(row[2]))


def _shown(value: Any) -> str:
    """A value as a reader wants it.

    >>> _shown(((1.5e-4, 3), (5e-5, 9))), _shown((416, 576)), _shown({"color": 0.15})
    ('1.5e-4 to epoch 3, 5e-5 to epoch 9', '416, 576', 'color 0.15')
    """
    if value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{k} {v:g}" for k, v in value.items())
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return ", ".join(f"{np.format_float_scientific(r, trim='-', exp_digits=1)} to epoch {e}" for r, e in value)
    if isinstance(value, tuple | list):
        return ", ".join(str(v) for v in value)
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


HEADS: ValueRow = ("stage", "network", "setting", "value", "source")


def as_text(text: str) -> str:
    """A recipe of the paper as a table of values and where each is from: what ``recipe show`` prints."""
    table = [HEADS, *rows(text)]
    widths = [max(len(row[i]) for row in table) for i in range(4)]
    return "\n".join("  ".join([*(c.ljust(w) for c, w in zip(r, widths, strict=False)), r[4]]) for r in table)


def as_markdown(texts: Sequence[str]) -> str:
    """Recipes of the paper as a document: docs/recipes.md."""
    lines = ["# The paper's recipes", ""]
    lines += [
        "Made by `protodepth recipe show all --markdown`; a test compares. Every value of the paper's experiments",
        "and where it is from: the paper, a published script, or our choice where neither says anything. `bench`",
        "runs these recipes whenever its data are the paper's datasets. Epochs are counted in frames of the dataset;",
        "a rate holds up to and including its epoch.",
        "",
        "## Where paper and scripts differ",
        "",
        "Choose by name, as in `protodepth recipe show paper-indoor?crop=scripts`; `bench --recipe` takes the same.",
        "",
        "| choice | way | what |",
        "|---|---|---|",
    ]
    for name, ways in published.CHOICES.items():
        lines += [f"| {name} | `{way}`{' (default)' if n == 0 else ''} | {what} |" for n, (way, what) in
                  enumerate(ways.items())]  # fmt: skip
    for text in texts:
        order = " -> ".join(SEQUENCES[text])
        lines += ["", f"## {text}", "", order, "", "| " + " | ".join(HEADS) + " |", "|---" * len(HEADS) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in rows(text)]
    return "\n".join(lines) + "\n"
