"""From a bench's options to cells: which data, base, recipe and settings (given or tuned) each training has."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import protodepth.backbones
import protodepth.methods  # noqa: F401  (registers the methods)
from protodepth import config
from protodepth.backbones.base import backbones
from protodepth.errors import ConfigError, UnknownNameError
from protodepth.experiments.budgets import Budget, steps_of
from protodepth.experiments.cells import Cell
from protodepth.experiments.paper_plan import (
    PRESET,
    in_every_stage,
    paper_base,
    paper_recipe,
    paper_sequence,
    scaffold_inputs,
)
from protodepth.experiments.scenes import Scenes, base_number, with_scenes
from protodepth.methods.base import methods
from protodepth.model import ProtoDepth
from protodepth.prototypes import PrototypeConfig
from protodepth.selection import Selection
from protodepth.storage import folders
from protodepth.storage.files import read_description
from protodepth.training import recipes
from protodepth.training.bases import new_network
from protodepth.training.paper_recipes import PaperRecipe
from protodepth.training.recipes import BaseRecipe, CheckpointChoice, SequenceRecipe
from protodepth.types import Modality

UNSEEN = {"indoor": "worlds:office", "outdoor": "worlds:garden", "mixed": "worlds:garden"}
ANY = "any"  # in a file of tuned values: for networks that the file does not name
# How ProtoDepth-A chooses on the worlds.  On val scenes of seed 0 (64 a world, 64 training frames, `lite`) it chose the
# right domain in 100 % indoors and outdoors; the descriptor, the paper's rule, in 98.4 and 99.0 % (separation 0.044).
CHOOSING: Selection = "gaussian"
WORLD_FRAMES = (320, 32, 64)  # train, val and test of a world unless said otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a bench is asked to do.  Empty tuples: the experiment's own choice."""

    sequences: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    bases: dict[str, str] = field(default_factory=dict)  # backbone -> model folder to start from
    predictions: str = ""  # foundation: folder with an outside model's maps
    outside: str = "outside model"  # foundation: its name
    kind: str = "depth"  # foundation: depth | disparity
    scale: str = "sparse"  # foundation: sparse | truth
    # below: one value for a whole output folder
    steps: int | None = None
    base_steps: int | None = None
    data: tuple[str, ...] = ()  # D1, D2, D3 and, for zero-shot, an unseen one
    size: tuple[int, int] | None = None
    frames: int | None = None
    preset: str = "small"
    scenes: Scenes = "fresh"  # every seed draws its own scenes and one of three bases; "fixed": one set for all
    budget: Budget = "steps"  # what all methods have the same of
    changes: tuple[str, ...] = ()  # key=value for the recipe of a sequence, as schedule.batch_size=8
    base_changes: tuple[str, ...] = ()  # the same for the recipes of bases
    tuned: dict[str, Any] = field(
        default_factory=dict
    )  # sequence -> backbone or "any" -> method -> {rate, steps, settings}
    recipe: str = ""  # "" = the paper's on its datasets, else the worlds'; "worlds", or paper-indoor?crop=scripts
    share: float | None = None  # a rehearsal: share of the published epochs
    scaffold: str = ""  # what FusionNet's ScaffNet learns from, in the paper's recipes


def _preset_of(backbone: str, preset: str) -> str:
    """The network's preset of that name.  `lite` has one size, and the transformer's published one is called "full".

    >>> _preset_of("kbnet", "void"), _preset_of("uformer", "void"), _preset_of("lite", "small")
    ('void', 'full', 'indoor')
    """
    known = backbones.get(backbone).presets
    if preset == PRESET:  # the two published sizes have the same layers
        preset = "void"
    if backbone == "lite":
        return next(iter(known))
    if preset not in known and backbone == "uformer" and preset in backbones.get("kbnet").presets:
        return "full"
    if preset not in known:
        raise UnknownNameError(f"preset of {backbone}", preset, known)
    return preset


@cache
def _network(backbone: str, preset: str) -> ProtoDepth:
    """A network that nobody trains: its layers are asked for, and whether a method fits it."""
    return ProtoDepth(backbones.get(backbone).from_preset(_preset_of(backbone, preset)))


def check_fit(method: str, backbone: str, preset: str) -> None:
    """Before a bench is planned: unknown names and methods that do not fit a network are refused."""
    methods.get(method).check(_network(backbone, preset))


def layers_without(backbone: str, preset: str, modality: Modality) -> tuple[str, ...]:
    """For a planned ablation: the layers that get prototypes, without those of one modality (FUSED: the bottleneck)."""
    network = _network(backbone, preset).backbone
    specs = [s for s in network.latent_specs if s.name in network.default_layers]
    return tuple(s.name for s in specs if s.modality is not modality)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training to plan: one method on one sequence. ``changes``: to its settings (ProtoDepth: to its prototypes)."""

    sequence: str
    backbone: str
    method: str
    seed: int = 0
    variant: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    chosen: tuple[int, ...] = (0, 1, 2)  # which of the sequence's domains
    curve: bool = False  # evaluate during training
    split: str = "test"


@dataclass(frozen=True, slots=True)
class Planner:
    """Builds cells for one set of options."""

    options: Options
    _bases: dict[tuple[str, str, int], Cell] = field(default_factory=dict, compare=False, repr=False)

    # --- data -----------------------------------------------------------------------------------------------------

    def argument(self, text: str) -> str:
        """A data argument with the size and the number of frames of the options, if it is a world."""
        if not text.startswith("worlds:"):
            return text
        name, _, query = text.partition("?")
        options = dict(part.split("=", 1) for part in query.split("&") if part)
        if self.options.size is not None:
            options["size"] = "x".join(str(n) for n in self.options.size)
        if self.options.frames is not None:
            shares = [max(2, self.options.frames * n // WORLD_FRAMES[0]) for n in WORLD_FRAMES[1:]]
            options |= {"train": str(self.options.frames), "val": str(shares[0]), "test": str(shares[1])}
        return name + ("?" + "&".join(f"{k}={v}" for k, v in options.items()) if options else "")

    def seeded(self, text: str, seed: int | None) -> str:
        """The same world with the scenes of a seed, where seeds draw them."""
        if seed is None or self.options.scenes == "fixed":
            return text
        return with_scenes(text, seed, whole=self.options.frames is None)

    def domains(self, sequence: str, chosen: Sequence[int] = (0, 1, 2), seed: int | None = None) -> tuple[str, ...]:
        given = self.options.data[:3]
        if given and len(given) < 3:
            raise ConfigError(f"--data was given {len(given)} time(s): a sequence has three domains, D1 to D3")
        every = given or recipes.SEQUENCES[sequence]().domains
        return tuple(self.seeded(self.argument(every[i]), seed) for i in chosen)

    def unseen(self, sequence: str, seed: int | None = None) -> str:
        given = self.options.data
        return self.seeded(self.argument(given[3] if len(given) > 3 else UNSEEN[sequence]), seed)

    # --- bases ----------------------------------------------------------------------------------------------------

    def base(self, sequence: str, backbone: str, seed: int = 0) -> Cell:
        """The network that a sequence starts from, one cell for all that start from it."""
        number = base_number(seed) if self.options.scenes == "fresh" else 0
        if (sequence, backbone, number) not in self._bases:
            self._bases[sequence, backbone, number] = self._base(sequence, backbone, number)
        return self._bases[sequence, backbone, number]

    def _base(self, sequence: str, backbone: str, number: int) -> Cell:
        """Given, bundled, or trained by the bench."""
        start = recipes.SEQUENCES[sequence]().start
        label: dict[str, Any] = {"start": sequence, "backbone": backbone}
        folder = self.options.bases.get(backbone)
        own = self.options.base_steps is not None or bool(self.options.data or self.options.base_changes)
        if folder is None and backbone == "lite" and not own and not number and start in folders.bundled():
            folder = start
        if folder is not None:
            return _given_base(folder, backbone, label)
        recipe = self.base_recipe(start, backbone)
        if number and recipe.data.startswith("worlds:"):  # on other data one base is all there is
            recipe = dataclasses.replace(recipe, data=with_scenes(recipe.data, number, whole=False), seed=number)
            label["seed"] = number
        inputs: dict[str, Any] = {"recipe": config.to_dict(recipe)}
        paper = self.paper(sequence, backbone)
        if backbone == "fusionnet" and paper is not None:
            inputs |= scaffold_inputs(paper, self.options.data, self.options.scaffold, self.options.share)
        elif backbone == "fusionnet":
            inputs["scaffold"] = self.argument(f"worlds:{recipes.SCAFFOLDS[start]}")
        if number and str(inputs.get("scaffold", "")).startswith("worlds:"):
            inputs["scaffold"] = with_scenes(inputs["scaffold"], number, whole=False)
        return Cell(kind="base", label=label, inputs=inputs)

    def paper(self, sequence: str, backbone: str) -> PaperRecipe | None:
        """The paper's recipe, if this bench runs one."""
        return paper_recipe(self.options.recipe, sequence, backbone, self.options.data)

    def base_recipe(self, start: str, backbone: str) -> BaseRecipe:
        sequence = next(name for name, make in recipes.SEQUENCES.items() if make().start == start)
        paper = self.paper(sequence, backbone)
        if paper is not None:
            preset = self.options.preset if self.options.preset == PRESET else _preset_of(backbone, self.options.preset)
            argument = self.argument(self.options.data[0])
            made = paper_base(paper, argument, preset, self.options.base_steps, self.options.share)
            return config.override(made, self.options.base_changes)
        recipe = recipes.base_for(start, backbone, _preset_of(backbone, self.options.preset))
        changes: dict[str, Any] = {"data": self.argument(recipe.data)}
        if self.options.data:
            changes["data"] = self.argument(self.options.data[0])
            if not changes["data"].startswith("worlds:"):  # poses may be missing: a pose network learns beside
                changes |= {"pose": True, "objective": dataclasses.replace(recipe.objective, learn_pose=True)}
                # real images have the published patches
                changes["backbone_options"] = {k: v for k, v in recipe.backbone_options.items() if k != "patch"}
        if self.options.base_steps is not None:
            changes["schedule"] = dataclasses.replace(recipe.schedule, steps=self.options.base_steps)
        recipe = config.override(dataclasses.replace(recipe, **changes), self.options.base_changes)
        if any(change.startswith("backbone_options") for change in self.options.base_changes):
            new_network(recipe)  # an option that the network has not is refused here, before anything runs
        return recipe

    # --- trainings ------------------------------------------------------------------------------------------------

    def recipe(
        self, sequence: str, chosen: Sequence[int] = (0, 1, 2), backbone: str = "kbnet", seed: int | None = None
    ) -> SequenceRecipe:
        """The recipe of a sequence for this bench, without what belongs to one method; with a seed, with its scenes."""
        paper, options = self.paper(sequence, backbone), self.options
        domains = self.domains(sequence, chosen, seed)
        if paper is not None:
            made = paper_sequence(paper, options.data, domains, options.steps, options.share)
            return in_every_stage(config.override(made, options.changes), options.changes)
        recipe = recipes.SEQUENCES[sequence]()
        steps = self.options.steps or recipe.schedule.steps
        schedule = dataclasses.replace(recipe.schedule, steps=steps)
        recipe = dataclasses.replace(recipe, domains=domains, schedule=schedule)
        recipe = config.override(recipe, self.options.changes)  # which may name other domains
        return dataclasses.replace(recipe, domains=tuple(self.seeded(text, seed) for text in recipe.domains))

    def training(self, row: Training) -> Cell:
        """The cell of one method on one sequence."""
        check_fit(row.method, row.backbone, self.options.preset)
        base = self.base(row.sequence, row.backbone, row.seed)
        recipe = self.recipe(row.sequence, row.chosen, row.backbone, row.seed)
        every = max(1, recipe.schedule.steps // 10) if row.curve else 0
        if every and recipe.stages:  # its steps follow from the data: as often as checkpoints are judged
            every = recipe.select.every if recipe.select else CheckpointChoice().every
        recipe = dataclasses.replace(recipe, start=base.key, seed=row.seed, curve_every=every)
        recipe = self.of_method(recipe, row.backbone, row.method, row.changes)
        inputs = {"recipe": config.to_dict(recipe), "method": row.method, "split": row.split}
        names = ("sequence", "backbone", "method", "variant", "seed")
        label = {name: getattr(row, name) for name in names}
        return Cell(kind="sequence", label=label, inputs=inputs, needs=(base,))

    def of_method(
        self, recipe: SequenceRecipe, backbone: str, method: str, changes: Mapping[str, Any]
    ) -> SequenceRecipe:
        """Only this method's rate and settings: to tune one method leaves the cells of the others alone."""
        tuned = chosen_values(self.options.tuned, recipe.name.removeprefix("paper-"), backbone, method)
        rate = tuned.get("rate", recipe.rates.get(method))
        if not recipe.stages:  # the published epochs are not tuned
            steps = steps_of(method, tuned.get("steps", recipe.schedule.steps), self.options.budget)
            recipe = dataclasses.replace(recipe, schedule=dataclasses.replace(recipe.schedule, steps=steps))
            if methods.get(method).chooses and recipe.selection is None:
                recipe = dataclasses.replace(recipe, selection=CHOOSING)
        values_of_method = {**recipe.settings.get(method, {}), **tuned.get("settings", {}), **changes}
        prototypes = recipe.prototypes
        if methods.get(method).Config is PrototypeConfig:
            values = {**config.to_dict(prototypes), **values_of_method}
            prototypes, values_of_method = config.from_dict(PrototypeConfig, values, f"settings of {method}"), {}
        return dataclasses.replace(
            recipe,
            rates={} if rate is None else {method: rate},
            settings={method: values_of_method} if values_of_method else {},
            prototypes=prototypes,
        )


def chosen_values(tuned: Mapping[str, Any], sequence: str, backbone: str, method: str) -> dict[str, Any]:
    """What a tuned file says for the plan of one method: the network's own entry, else any network's, else nothing.

    >>> chosen_values({"indoor": {"any": {"ewc": {"rate": 1e-3}}, "kbnet": {"lwf": {}}}}, "indoor", "kbnet", "ewc")
    {'rate': 0.001}
    """
    networks = tuned.get(sequence, {})
    values: dict[str, Any] = (networks.get(ANY, {}) | networks.get(backbone, {})).get(method, {})
    return values


def _given_base(folder: str, backbone: str, label: dict[str, Any]) -> Cell:
    place = folders.resolve(folder)
    meta = read_description(place / "config.json", "model")
    if meta.get("backbone") != backbone:
        raise ConfigError(f"--base {backbone}={folder}: that model's network is {meta.get('backbone')!r}")
    inputs = {"given": {"sha256": meta.get("sha256"), "network": meta.get("backbone_config")}}
    return Cell(kind="base", label=label, inputs=inputs, where=str(place.resolve()))


def read_tuned(path: Path | None) -> dict[str, Any]:
    """What ``--tuned`` names: sequence -> backbone or "any" -> method -> {rate, steps, settings}, checked."""
    if path is None:
        return {}
    values = config.read_values(path)
    for sequence, networks in values.items():
        if sequence not in recipes.SEQUENCES:
            raise UnknownNameError(f"sequence in {path}", sequence, recipes.SEQUENCES)
        for backbone, rows in networks.items():
            if backbone != ANY:
                backbones.get(backbone)
            for method, chosen in rows.items():
                methods.get(method)
                rate = chosen.get("rate", 1.0)
                if not isinstance(rate, int | float) or not rate > 0:
                    raise ConfigError(
                        f"{path}: {sequence}.{backbone}.{method}.rate must be a positive number, got {rate!r}"
                    )
                steps = chosen.get("steps", 1)
                if not isinstance(steps, int) or steps < 1:
                    raise ConfigError(
                        f"{path}: {sequence}.{backbone}.{method}.steps must be a whole number above 0, got {steps!r}"
                    )
    return values
