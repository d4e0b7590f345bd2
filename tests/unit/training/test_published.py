"""The published values: what is printed is what is run, and the ways where paper and scripts differ."""

import dataclasses
import re

import pytest

from helpers.documents import ROOT
from protodepth import config
from protodepth.cli.main import run
from protodepth.data.frame import EvalRules
from protodepth.data.manifest import INDOOR
from protodepth.errors import UnknownNameError
from protodepth.methods.base import methods
from protodepth.training import published
from protodepth.training.paper_recipes import PaperRecipe, as_markdown, rehearsed, rows, stepped
from protodepth.training.recipes import SequenceRecipe
from protodepth.training.schedule import Schedule


def recipe_of(text: str, network: str = "kbnet") -> SequenceRecipe:
    paper = PaperRecipe.of(text, network)
    return paper.sequence_recipe("base", [f"{name}:/data" for name in paper.datasets])


def test_the_document_is_what_the_command_prints() -> None:
    assert (ROOT / "docs" / "recipes.md").read_text() == as_markdown(tuple(published.SEQUENCES)), (
        "protodepth recipe show all --markdown > docs/recipes.md"
    )


@pytest.mark.parametrize("sequence", published.SEQUENCES)
def test_every_value_has_a_source(sequence: str) -> None:
    sources = [row[4] for row in rows(sequence)]
    known = ("paper, ", "UnCLe script", "published ", "our choice", "ProtoDepth's README", "KBNet's", "VOICED's")
    kinds = (*known, "FusionNet's", "ScaffNet's", "the network's own", "every 5000")
    assert all(source.startswith(kinds) for source in sources), [s for s in sources if not s.startswith(kinds)]


def test_every_setting_of_every_method_is_printed_with_the_value_that_is_run() -> None:
    printed = {(stage.removeprefix("method "), name): value for stage, _, name, value, _ in rows("paper-indoor")}
    settings = recipe_of("paper-indoor").settings
    for name in ("ewc", "lwf", "replay", "ancl", "cmp", "l2p"):
        ran = dataclasses.asdict(methods.get(name).Config(**settings[name]))
        ran.pop("seed", None)
        yes_no = {True: "yes", False: "no"}
        assert {key: printed[name, key] for key in ran} == {
            key: yes_no[value] if isinstance(value, bool) else str(value) for key, value in ran.items()
        }
    assert printed["protodepth", "separation"] == "0.5"
    assert printed["ScaffNet", "depth_range"] == "0.1, 10.0"


@pytest.mark.parametrize("sequence", published.SEQUENCES)
def test_printed_rates_are_the_ones_that_are_run(sequence: str) -> None:
    for stage, networks, setting, value, _ in rows(sequence):
        if setting == "rates":
            pairs = [text.split(" to epoch ") for text in value.split(", ")]
            paper = PaperRecipe.of(sequence, networks.split()[0])
            if stage == "ScaffNet":
                schedule = paper.scaffold()
            elif stage.startswith("D1"):
                schedule = paper.base("x").schedule
            else:
                schedule = paper.stage(stage.split()[1]).schedule
            schedule = schedule.counted(1000 * schedule.batch_size)  # a thousand steps an epoch
            ran = [schedule.rate * schedule.factor(1000 * int(until) - 1) for _, until in pairs]
            assert ran == pytest.approx([float(rate) for rate, _ in pairs])
            assert schedule.steps == 1000 * int(pairs[-1][1])


def test_a_stage_has_the_crop_batch_and_epochs_of_its_dataset() -> None:
    stages = recipe_of("paper-outdoor").stages
    assert stages is not None
    assert {n: s.schedule.augment.crop for n, s in stages.items()} == {
        "kitti": (320, 768), "waymo": (800, 640), "vkitti": (320, 768),
    }  # fmt: skip
    assert {s.schedule.batch_size for s in stages.values()} == {8}
    indoor = recipe_of("paper-indoor").stages
    assert indoor is not None
    assert [indoor[n].schedule.epochs for n in ("nyu_v2", "scannet", "void")] == [9, 9, 60]
    assert {s.schedule.batch_size for s in indoor.values()} == {12}


@pytest.mark.parametrize("dataset", published.INDOOR)
def test_the_caps_that_are_printed_are_those_of_the_readers(dataset: str) -> None:
    """Indoors one rule for the three readers; outdoors tests/e2e/test_paper_recipes.py asks the datasets."""
    low, high = published.CAPS[dataset]["caps"].value
    assert EvalRules(min_depth=low, max_depth=high, crop=published.CAPS[dataset]["crop"].value) == INDOOR


def test_rates_hold_up_to_and_including_their_epoch() -> None:
    schedule = Schedule(batch_size=1, **stepped(((1e-4, 3), (5e-5, 9)))).counted(10)
    assert schedule.steps == 90
    assert [schedule.rate * schedule.factor(step) for step in (0, 29, 30, 89)] == [1e-4, 1e-4, 5e-5, 5e-5]


def test_loss_weights_are_the_networks_own() -> None:
    weights = {n: PaperRecipe.of("paper-indoor", n).stage("void").objective for n in ("kbnet", "voiced", "fusionnet")}
    assert {n: (o.color, o.structure, o.sparse, o.smooth) for n, o in weights.items() if o} == {
        "kbnet": (0.15, 0.95, 2.0, 2.0), "voiced": (0.2, 0.8, 0.5, 2.0), "fusionnet": (0.2, 0.8, 2.0, 2.0),
    }  # fmt: skip
    assert all(o is not None and o.poses == "network" and o.outlier_size == 7 for o in weights.values())


@pytest.mark.parametrize("choice", published.CHOICES)
def test_each_way_of_each_choice_changes_the_recipe(choice: str) -> None:
    made = {
        str([config.to_dict(recipe_of(f"paper-indoor?{choice}={way}", n)) for n in ("kbnet", "fusionnet")])
        for way in published.CHOICES[choice]
    }
    assert len(made) == len(published.CHOICES[choice])


def test_an_unknown_choice_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnknownNameError, match="scripts"):
        published.parse("paper-indoor?crop=mine")
    assert run(["recipe", "show", "paper-indoor?crops=paper"]) == 2
    assert re.search("choose one of: .*schedule", capsys.readouterr().err)


def test_a_recipe_survives_its_file_and_an_old_file_has_no_stages(tmp_path) -> None:
    recipe = recipe_of("paper-mixed")
    config.write(recipe, tmp_path / "recipe.toml")
    assert config.read(SequenceRecipe, tmp_path / "recipe.toml") == recipe
    old = SequenceRecipe(name="old", start="worlds-tiny", domains=("a", "b"))
    assert not {"stages", "select", "scale"} & set(config.to_dict(old))
    assert "epochs" not in config.to_dict(old)["schedule"]


def test_a_rehearsal_shrinks_epochs_batch_crop_and_buffers() -> None:
    recipe = rehearsed(recipe_of("paper-indoor"), 0.0005)
    assert recipe.stages is not None
    void = recipe.stages["void"].schedule
    assert (void.epochs, void.batch_size, void.augment.crop) == (60 * 0.0005, 2, (64, 64))
    assert void.counted(47_000).steps == 705
    assert void.counted(2).steps == 1
    assert recipe.settings["replay"]["size"] == 2
    assert recipe.scale == 0.0005
