"""Zero forgetting as an invariant: whatever is added, trained, deleted or saved,
the other domains do not change by a bit.
"""

import hashlib
import tempfile
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import random_batch, tiny_model
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import build
from protodepth.model import ProtoDepth
from protodepth.prototypes import PrototypeConfig
from protodepth.training.fit import Learner, train_step
from protodepth.training.schedule import Schedule

BATCH = random_batch(1, 16, 24, seed=1)
PROBE = random_batch(2, 16, 24, seed=2)
CONFIGS = (
    PrototypeConfig(image_size=3, depth_size=2),
    PrototypeConfig(image_size=1, depth_size=4, init="official"),
    PrototypeConfig(layers=("latent",), use_projection=False),
    PrototypeConfig(image_size=2, use_global=False, projection_rank=2),
)


def digest(model: ProtoDepth, name: str) -> str:
    tensors = model.backbone.state_dict() if name == "base" else model.domain(name).state_dict()
    return hashlib.sha256(b"".join(t.numpy().tobytes() for t in tensors.values())).hexdigest()


def look(model: ProtoDepth) -> dict[str, tuple[str, bytes]]:
    """Weights and predictions of the network and of every domain."""
    return {
        name: (digest(model, name), model.predict_batch(PROBE, name).depth.numpy().tobytes())
        for name in ("base", *model.domains)
    }


def learn(model: ProtoDepth, name: str, steps: int) -> None:
    """Some steps of training at a rate that moves everything that can move."""
    objective = Objective(ObjectiveConfig(reduction="relative"), max_depth=8.0)
    method = build("protodepth", model, objective, model.config)
    with model.using(name):
        learner = Learner.of(method, Schedule(steps=10, rate=0.3), 0)
        for step in range(steps):
            train_step(learner, BATCH, step)


Action = tuple[str, int]
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["add", "train", "train", "delete", "reload"]), st.integers(0, 3)), min_size=2, max_size=7
)


@settings(max_examples=12, deadline=None)
@given(ACTIONS)
def test_no_sequence_of_actions_changes_another_domain(actions: list[Action]) -> None:
    model = tiny_model()
    model.add_domain("d0")
    known = look(model)
    for turn, (wanted, number) in enumerate(actions, start=1):
        names = model.domains
        action = wanted if names else "add"
        touched: str | None = f"d{turn}" if action == "add" else names[number % len(names)]
        if action == "add":
            model.add_domain(str(touched), config=CONFIGS[number], seed=number)
        elif action == "train":
            learn(model, str(touched), 2)
        elif action == "delete":
            model.delete_domain(str(touched))
            known.pop(str(touched))
        else:
            touched = None
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(Path(folder) / "m")
                model = ProtoDepth.from_pretrained(Path(folder) / "m")
        now = look(model)
        assert {n: v for n, v in now.items() if n != touched} == {n: v for n, v in known.items() if n != touched}
        if action == "train" and touched in now:
            assert now[touched] != known[touched]
        known = now
    assert not any(p.grad is not None for p in model.backbone.parameters())


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2**31))
def test_a_mixed_batch_is_its_single_images(count: int, seed: int) -> None:
    model = tiny_model()
    random = torch.Generator().manual_seed(seed)
    for n in range(3):
        model.add_domain(f"d{n}", config=CONFIGS[n + 1], seed=n)
    model.add_domain("home", base=True)
    batch = random_batch(count, 16, 24, seed=seed % 1000)
    s = model.predict_batch(batch, "base").descriptor
    for n, name in enumerate(model.domains):  # descriptors near those of the samples, so that different ones are chosen
        model.domain(name).descriptor.data.copy_(s[n % count] + 0.01 * torch.randn(s.shape[1], generator=random))
    together = model.predict_batch(batch)
    for n, single in enumerate(batch.singles()):
        alone = model.predict_batch(single)
        assert alone.domains[0] == together.domains[n]
        torch.testing.assert_close(alone.depth[0], together.depth[n], rtol=1e-4, atol=1e-4)
