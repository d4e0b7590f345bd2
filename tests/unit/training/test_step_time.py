"""Time of a step: parts that add up, methods in turns, kept features that are used."""

import torch

from conftest import tiny_model
from protodepth import model as model_module
from protodepth.data.frame import Domain
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import build
from protodepth.training.fit import Learner
from protodepth.training.schedule import Schedule
from protodepth.training.step_time import PARTS, step_times


def learner(name: str, room: Domain, schedule: Schedule, *, pose: bool = False) -> Learner:
    torch.manual_seed(0)
    model = tiny_model(pose=pose)
    settings = ObjectiveConfig(reduction="relative", poses="network" if pose else "auto")
    method = build(name, model, Objective(settings, max_depth=8.0, pose=model.pose))
    method.begin_domain(room, lambda m, d: None)
    return Learner.of(method, schedule, 0)


def test_every_part_is_timed_and_together_they_are_a_step(room: Domain) -> None:
    apply = model_module.apply
    schedule = Schedule(batch_size=2)
    learners = {name: learner(name, room, schedule, pose=True) for name in ("finetune", "protodepth")}
    times = step_times(learners, room, turns=3, warmup=1)
    assert times["finetune"].ratio == 1
    for time in times.values():
        assert tuple(time.parts) == PARTS
        assert all(value > 0 for name, value in time.parts.items() if name != "prototypes")
        assert sum(time.parts.values()) < 2 * time.cpu + 100
    assert times["protodepth"].parts["prototypes"] > 0
    assert times["finetune"].parts["prototypes"] == 0
    assert model_module.apply is apply


def test_kept_features_are_encoded_in_the_first_epoch_only(room: Domain) -> None:
    plain, kept = (learner("protodepth", room, Schedule(batch_size=2, cache=c)) for c in (None, 1.0))
    seen = {"plain": 0, "kept": 0}
    for name, one in (("plain", plain), ("kept", kept)):
        encode = one.method.backbone.encode

        def counted(batch, name=name, encode=encode):
            seen[name] += len(batch)
            return encode(batch)

        one.method.backbone.encode = counted
    step_times({"plain": plain, "kept": kept}, room, turns=5, warmup=1)
    assert seen == {"plain": 12, "kept": len(room.train)}
