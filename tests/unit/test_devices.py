"""Learning and judging on a device that is not the CPU:
every tensor is where the network is, and the numbers are the same.

No GPU is needed: see elsewhere.py.  The numbers are the same but for the last bits: torch chooses some kernels
(attention, convolution) by the device before the stand-in computes them on the CPU, and which ones differ depends on
the processor.
"""

import copy
from typing import Any

import pytest
import torch

from conftest import random_batch
from helpers import two_processes
from helpers.elsewhere import another_device, away, move
from protodepth.data.augment import AugmentConfig, augment, crop, generator
from protodepth.data.frame import Domain
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import Method, build, methods
from protodepth.model import ProtoDepth
from protodepth.training.fit import fit
from protodepth.training.schedule import Schedule
from protodepth.training.sequence import run_sequence

ALL = AugmentConfig(
    brightness=(0.5, 1.5), contrast=(0.5, 1.5), saturation=(0.5, 1.5), hue=0.1, flip_horizontal=True,
    flip_vertical=True, rotation=10.0,
    resize=(0.6, 1.1), crop=(24, 40), remove_points=(0.0, 0.5), remove_rows=(0.0, 0.5), remove_patches=(0.001, 0.01),
)  # fmt: skip
SCHEDULE = Schedule(steps=2, batch_size=2, rate=1e-3, augment=ALL)


@pytest.fixture(scope="module")
def places() -> list[Domain]:
    return two_processes.domains()[:2]


def make(name: str, model: ProtoDepth) -> Method:
    objective = Objective(ObjectiveConfig(reduction="relative"), pose=model.pose, max_depth=100.0)
    kind, settings = methods.get(name).Config, two_processes.SETTINGS.get(name, {})
    return build(name, model, objective, kind(**settings) if kind and name != "protodepth" else None)


def learn(method: Method, places: list[Domain]) -> dict[str, Any]:
    result = run_sequence(method, places, lambda m, d, each: fit(m, d, SCHEDULE, seed=1, each_step=each))
    return {"incremental": result.incremental.to_json(), "agnostic": result.agnostic.to_json()}


def assert_close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Scores within 1e-5.  Other kernels move them by 1e-7 (measured with ONEDNN_MAX_CPU_ISA=SSE41); one step of
    learning left out moves them by 3e-5 (l2p) to 1e-2 (lwf).
    """
    for setting, matrices in expected.items():
        assert found[setting].keys() == matrices.keys()
        for metric, matrix in matrices.items():
            torch.testing.assert_close(torch.tensor(found[setting][metric]), torch.tensor(matrix), rtol=1e-5, atol=0)


def test_the_other_device_refuses_tensors_of_the_cpu() -> None:
    with another_device() as device:
        there = torch.ones(3).to(device)
        assert away(there)
        assert there.device == device
        with pytest.raises(RuntimeError, match="another device meet"):
            _ = there + torch.ones(3)
        with pytest.raises(TypeError, match="cpu"):
            there.numpy()
        assert (2 * there + torch.arange(3, device=device)).cpu().tolist() == [2, 3, 4]
        numbers = torch.arange(6.0).reshape(2, 3).to(device)
        assert numbers[[1]].cpu().tolist() == [[3, 4, 5]]
        assert numbers[[True, False]].cpu().tolist() == [[0, 1, 2]]


def test_augmentation_draws_the_same_numbers_on_any_device() -> None:
    batch = random_batch(3)
    here = augment(crop(batch, ALL, generator(1, 2)), ALL, generator(1, 2))
    with another_device() as device:
        view = augment(crop(batch.to(device), ALL, generator(1, 2)), ALL, generator(1, 2))
        assert all(away(t) for t in (view.batch.image, view.batch.sparse_depth, view.batch.intrinsics))
        depth, mask = view.undo(view.batch.sparse_depth)
        found = [t.cpu() for t in (view.batch.image, view.batch.sparse_depth, view.batch.intrinsics, depth, mask)]
    expected = [here.batch.image, here.batch.sparse_depth, here.batch.intrinsics, *here.undo(here.batch.sparse_depth)]
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        same = torch.isclose(a, b, rtol=1e-5, atol=1e-5)
        assert (
            same.float().mean() > 0.99
        )  # a pixel that lies on a border may round to either side; another draw moves all of them


@pytest.mark.filterwarnings("ignore:.*no-op")
@pytest.mark.parametrize("name", ["protodepth", "ewc", "lwf", "cmp", "l2p"])
def test_a_method_learns_and_is_judged_where_its_network_is(name: str, places: list[Domain]) -> None:
    start = two_processes.start(name, places)
    expected = learn(make(name, copy.deepcopy(start)), places)
    move(start)
    with another_device():
        method = make(name, start)
        assert_close(learn(method, places), expected)
        assert all(away(p) for p in method.backbone.parameters())
        method.load_state({key: tensor.cpu() for key, tensor in method.state().items()})  # as from a file
        method.begin_domain(places[1], lambda m, d: None)
        fit(method, places[1], SCHEDULE, seed=1)
