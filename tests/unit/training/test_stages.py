"""Stages: each domain by its own schedule and objective; the best checkpoint is kept, also after a restart."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from protodepth import config
from protodepth.data.arguments import open_domain
from protodepth.losses import ObjectiveConfig
from protodepth.methods.base import Method
from protodepth.model import ProtoDepth
from protodepth.training import stages
from protodepth.training.recipes import CheckpointChoice, SequenceRecipe, StageRecipe
from protodepth.training.schedule import Schedule
from protodepth.training.sequence import build_method
from protodepth.training.stages import StageFit, fit_selected, prepared_start

DATA = "worlds:warehouse?train=3&val=2&test=2&size=32x48"
RECIPE = SequenceRecipe(
    name="two",
    start="worlds-tiny",
    domains=("worlds:room", DATA),
    objective=ObjectiveConfig(learn_pose=False),
    schedule=Schedule(steps=9, batch_size=1),
    stages={
        "warehouse": StageRecipe(schedule=Schedule(epochs=2.0, batch_size=2), objective=ObjectiveConfig(sparse=0.25))
    },
)


def method() -> Method:
    return build_method("finetune", ProtoDepth.from_pretrained("worlds-tiny"), RECIPE)


def test_a_domain_with_a_stage_is_learned_by_it() -> None:
    learner, domain = method(), open_domain(DATA)
    record = StageFit(recipe=RECIPE, name="finetune")(learner, domain)
    assert record.steps == 3  # two epochs of three frames, two at once
    assert learner.objective.config.sparse == 0.25
    other = replace(domain, name="elsewhere")
    assert StageFit(recipe=RECIPE, name="finetune")(learner, other).steps == 9
    assert learner.objective.config.sparse == 2.0


def first_weight(learner: Method) -> torch.Tensor:
    return next(iter(learner.backbone.parameters())).detach().clone()


def test_the_best_look_is_kept_and_a_finished_stage_gives_it_again(tmp_path: Path, monkeypatch) -> None:
    """The second of three looks is the best: its weights come back, and a second call trains nothing."""
    seen: list[torch.Tensor] = []
    errors = iter([3.0, 1.0, 2.0])

    def judged(predict, data, rules):
        seen.append(first_weight(learner))
        return type("E", (), {"mean": dict.fromkeys(("mae", "rmse", "imae", "irmse"), next(errors))})

    monkeypatch.setattr(stages, "evaluate", judged)
    learner, domain = method(), open_domain(DATA)
    select, schedule = CheckpointChoice(every=2), Schedule(steps=5, batch_size=1)
    record = fit_selected(learner, domain, schedule, select, seed=0, folder=tmp_path)
    assert (record.kept["step"], record.kept["of"]) == (4, 5)
    assert torch.equal(first_weight(learner), seen[1])
    assert not torch.equal(seen[1], seen[2])
    again = method()
    assert fit_selected(again, domain, schedule, select, seed=0, folder=tmp_path).steps == 0
    assert torch.equal(first_weight(again), seen[1])
    assert len(seen) == 3


def test_a_start_has_the_first_domain_alone_and_a_pose_network_where_one_is_needed() -> None:
    model, first = (
        ProtoDepth.from_pretrained("worlds-tiny"),
        open_domain("worlds:office?size=32x48&train=3&val=1&test=1"),
    )
    model.pose = None
    recipe = SequenceRecipe(name="r", start="", domains=(), objective=ObjectiveConfig(poses="network"))
    assert "room" in model.domains
    assert prepared_start(model, recipe, first).domains == ("office",)
    assert model.pose is not None
    assert "office" in model.statistics
    given = prepared_start(
        ProtoDepth.from_pretrained("worlds-tiny"), replace(recipe, objective=ObjectiveConfig()), first
    )
    assert given.domains == ("office",)


def test_a_recipe_may_name_how_domains_are_chosen_and_how_later_stages_are_augmented() -> None:
    recipe = SequenceRecipe(name="r", start="", domains=(), selection="gaussian", augment="published")
    method = build_method("protodepth", ProtoDepth.from_pretrained("worlds-tiny"), recipe)
    assert method.model.rule.selection == "gaussian"
    assert recipe.schedule_for("b", "ewc").augment.brightness == (0.5, 1.5)
    plain = SequenceRecipe(name="r", start="", domains=())
    assert "selection" not in config.to_dict(plain)  # cells from before keep their keys
    assert "augment" not in config.to_dict(plain)


@pytest.mark.parametrize("worse", ["mae", "rmse", "imae", "irmse"])
def test_three_of_four_errors_decide_and_rounding_counts(worse: str) -> None:
    best = {"mae": 10.0, "rmse": 20.0, "imae": 3.0, "irmse": 5.0}
    assert stages.better({**best, worse: 1e9}, best)
    assert stages.better({name: value + 0.004 for name, value in best.items()}, best)
    assert not stages.better({**best, "mae": 10.01, "irmse": 5.01}, best)
