"""A recording made ready: who learns from which frames by what, decided before the first step."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conftest import tiny_model
from helpers.data_scene import walk
from helpers.recordings import write_recording
from protodepth.data.arguments import open_domain
from protodepth.errors import ConfigError, UnknownNameError
from protodepth.training.objective import HiddenObjective, HiddenObjectiveConfig
from protodepth.training.poses import Posed, Unmoved
from protodepth.training.task import AdaptConfig, prepare, split_options

SHOTS = walk(30, size=(40, 56), step=0.03)
TOML = 'depth_unit = "mm"\nstride = 2\n'


def ready(folder: Path, config: AdaptConfig = AdaptConfig(), **options):
    return prepare(tiny_model(), folder, "walk", config, options)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recording(tmp_path_factory.mktemp("walk"), SHOTS, toml=TOML)


def test_good_poses_teach_as_they_are(recording: Path):
    task = ready(recording)
    assert isinstance(task.method.objective, HiddenObjective)
    assert task.method.objective.trust > 0.5
    assert task.parts.learn[0].neighbours
    assert "the photometric term counts" in task.objective
    assert task.source == recording.name


def test_missing_poses_are_estimated_unless_what_is_given_shall_be_used(tmp_path: Path):
    folder = write_recording(tmp_path, SHOTS, poses=False, toml=TOML)
    task = ready(folder)
    assert isinstance(task.parts.learn.data, Posed)
    assert len(task.parts.learn[0].poses) == 2
    assert isinstance(ready(folder, AdaptConfig(poses="given")).parts.learn.data, Unmoved)


def test_without_a_photometric_term_neighbours_are_not_even_looked_at(recording: Path):
    task = ready(recording, AdaptConfig(weights=HiddenObjectiveConfig(photometric=0.0)))
    assert isinstance(task.parts.learn.data, Unmoved)
    assert task.objective == "points hidden singly and in blocks"


def test_the_papers_objective_shows_every_point(recording: Path):
    task = ready(recording, AdaptConfig(objective="paper"))
    assert not isinstance(task.method.objective, HiddenObjective)
    batches = [object()]
    assert task.method.batches(batches, start=0, seed=0) is batches


def test_the_seed_and_what_is_hidden_reach_the_method(recording: Path):
    hide = replace(AdaptConfig().hide, points=(0.3, 0.4))
    method = ready(recording, AdaptConfig(seed=7, hide=hide)).method
    assert (method.seed, method.hide) == (7, hide)


def test_cases_judge_frames_that_are_not_learned_from(recording: Path):
    task = ready(recording)
    learned = {task.parts.learn[n].name for n in range(len(task.parts.learn))}
    for cases, count in ((task.choose, 24), (task.verdict, 48)):
        assert len(cases) == count
        assert not learned & {case.frame.name for case in cases}
        assert all(np.isclose(case.weight.sum(), 1) for case in cases)


def test_options_are_the_configurations_or_the_recordings(recording: Path):
    config, rest = split_options(AdaptConfig(), recording, {"steps": 3, "depth_unit": "mm"})
    assert (config.steps, rest) == (3, {"depth_unit": "mm"})
    with pytest.raises(UnknownNameError, match="unknown option of adapt 'depht_unit'"):
        split_options(AdaptConfig(), recording, {"depht_unit": "mm"})
    with pytest.raises(UnknownNameError, match="'unit'; did you mean depth_unit"):  # as predict calls it
        split_options(AdaptConfig(), recording, {"unit": "mm"})
    with pytest.raises(UnknownNameError, match="'lr'; did you mean rate"):
        split_options(AdaptConfig(), recording, {"lr": 0.1})
    with pytest.raises(ConfigError, match="a Domain is read already: give depth_unit to open_domain"):
        split_options(AdaptConfig(), open_domain(str(recording)), {"depth_unit": "mm"})
    with pytest.raises(ConfigError, match="withhold is 0"):
        AdaptConfig(withhold=0.0)


@pytest.mark.parametrize("name", ["steps", "minutes", "seed"])
def test_a_word_where_a_number_is_expected_is_one_sentence(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 'many', expected a number"):
        AdaptConfig(**{name: "many"})
