"""Which of the paper's recipes ``bench`` and ``train`` run on the data they are given, by its datasets or by name."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from protodepth import config
from protodepth.data.arguments import open_domain, parse_argument, split_query
from protodepth.distributed import expected
from protodepth.errors import ConfigError
from protodepth.storage import folders
from protodepth.storage.files import read_description, read_json
from protodepth.training import published
from protodepth.training.paper_recipes import PaperRecipe, rehearsed, scaled
from protodepth.training.recipes import BaseRecipe, SequenceRecipe, StageRecipe

WORLDS = "worlds"  # --recipe worlds: the drawn worlds' recipe, whatever the data are
PRESET = "paper"  # the published network of the sequence
SPARE_SCAFFOLD = "worlds:garden?train=600&size=160x384"


def _dataset_of(argument: str) -> str | None:
    """The paper's dataset that a data argument names, also through a prepared manifest; None if it is none of them.

    >>> _dataset_of("void:/data/void_release?density=500"), _dataset_of("worlds:room")
    ('void', None)
    """
    name, rest = parse_argument(argument)
    if name == "manifest":
        name = str(read_json(Path(split_query(rest)[0]) / "manifest.json").get("dataset"))
    return name if name in (*published.INDOOR, *published.OUTDOOR) else None


@cache
def _name(argument: str) -> str:
    return _dataset_of(argument) or open_domain(argument).name


def is_paper(recipe: str, data: Sequence[str]) -> bool:
    """Whether a bench on this data runs a recipe of the paper.

    >>> is_paper("", ("nyu_v2:/a", "scannet:/b", "void:/c")), is_paper("", ()), is_paper("worlds", ("kitti:/a",) * 3)
    (True, False, False)
    """
    if recipe and recipe != WORLDS and not data:
        raise ConfigError(f"--recipe {recipe} needs its datasets: --data D1 D2 D3 (docs/datasets.md)")
    if recipe:
        return recipe != WORLDS
    return len(data) >= 3 and all(_dataset_of(argument) for argument in data[:3])


def paper_recipe(recipe: str, sequence: str, backbone: str, data: Sequence[str]) -> PaperRecipe | None:
    """The recipe of a sequence with a network; None where the drawn worlds' one counts."""
    if not is_paper(recipe, data):
        return None
    text = recipe or f"paper-{sequence}"
    if published.parse(text)[0] != f"paper-{sequence}":
        raise ConfigError(f"--recipe {recipe} does not fit the sequence {sequence}: paper-{sequence}, or another bench")
    given = [_dataset_of(argument) for argument in data[:3]]
    known = published.SEQUENCES[f"paper-{sequence}"]
    datasets = [name or known[number] for number, name in enumerate(given)]
    return PaperRecipe.of(text, backbone, datasets if len(set(datasets)) == len(datasets) else ())


def paper_base(
    paper: PaperRecipe, data: str, preset: str, steps: int | None, scale: float | None, processes: int = 1
) -> BaseRecipe:
    """How D_1 is learned from scratch."""
    recipe = paper.base(data, None if preset == PRESET else preset)
    schedule = recipe.schedule if steps is None else replace(recipe.schedule, steps=steps, epochs=None)
    if scale is not None:
        schedule = scaled(schedule, scale, processes)
    if paper.network == "fusionnet":
        span = published.scaffnet(paper.sequence)["depth_range"].value  # its own, not FusionNet's
        own = {**_preset_scaffnet(recipe.preset), "depth_range": list(span)}
        recipe = replace(recipe, backbone_options={**recipe.backbone_options, "scaffnet": own})
    return replace(recipe, schedule=schedule, scale=scale)


def _preset_scaffnet(preset: str) -> dict[str, Any]:
    from protodepth.backbones.scaffnet import ScaffNet

    return ScaffNet.presets.get(preset, ScaffNet.presets["small"])


def paper_sequence(
    paper: PaperRecipe,
    data: Sequence[str],
    chosen: Sequence[str],
    steps: int | None,
    scale: float | None,
    processes: int = 1,
) -> SequenceRecipe:
    """How the later domains are learned."""
    recipe = paper.sequence_recipe("", chosen, [_name(argument) for argument in data[:3]])
    if steps is not None:
        stages = {n: _with_steps(stage, steps) for n, stage in (recipe.stages or {}).items()}
        recipe = replace(recipe, stages=stages, schedule=replace(recipe.schedule, steps=steps, epochs=None))
    return recipe if scale is None else rehearsed(recipe, scale, processes)


def _with_steps(stage: StageRecipe, steps: int) -> StageRecipe:
    return replace(stage, schedule=replace(stage.schedule, steps=steps, epochs=None))


def paper_training(
    text: str, network: str | None, data: Sequence[str], start: str | None, preset: str | None, scale: float | None
) -> BaseRecipe | SequenceRecipe:
    """What ``train --recipe paper-indoor`` runs: with one dataset D_1 from scratch, with three the later ones from
    ``start``.
    """
    sequence = published.parse(text)[0].removeprefix("paper-")
    if len(data) == 1 and start is None:
        if network == "fusionnet":
            raise ConfigError("FusionNet needs a trained ScaffNet: 'protodepth bench' trains both, or convert one")
        first = PaperRecipe.of(text, network or "kbnet")
        return paper_base(first, data[0], preset or PRESET, None, scale, expected())
    if len(data) != 3 or start is None:
        raise ConfigError(
            f"{text}: give --data D1 to learn the first dataset from scratch, or --data D1 D2 D3 with --model MODEL "
            f"to learn the later ones; got {len(data)} dataset(s) and {'a' if start else 'no'} start"
        )
    known = str(read_description(folders.resolve(start) / "config.json", "model").get("backbone"))
    if network not in (None, known):
        raise ConfigError(f"--backbone {network}: the start {start} is a {known}; leave --backbone out")
    paper = paper_recipe(text, sequence, known, data)
    assert paper is not None
    return replace(paper_sequence(paper, data, data, None, scale, expected()), start=start)


def in_every_stage(recipe: SequenceRecipe, changes: Sequence[str]) -> SequenceRecipe:
    """A bench's ``--set schedule.batch_size=4`` means every stage of a paper's recipe, as the one of the worlds."""
    shared = tuple(c for c in changes if c.startswith(("schedule.", "objective.")))
    if not shared or not recipe.stages:
        return recipe
    return replace(recipe, stages={name: config.override(stage, shared) for name, stage in recipe.stages.items()})


def scaffold_inputs(paper: PaperRecipe, data: Sequence[str], given: str, scale: float | None) -> Any:
    """In the paper's recipes: what FusionNet's ScaffNet learns from, and how long."""
    wanted = published.scaffnet(paper.sequence)["data"].value
    if wanted == "vkitti":
        wanted = next((d for d in data if _dataset_of(d) == "vkitti"), SPARE_SCAFFOLD)
    schedule = paper.scaffold()
    if scale is not None:
        schedule, wanted = scaled(schedule, scale), wanted.replace("train=600", "train=4").partition("&size")[0]
    return {"scaffold": given or wanted, "scaffold_schedule": config.to_dict(schedule)}
