"""Every registered method on a sequence of tiny worlds: it runs, it can be stopped anywhere, it says what it keeps."""

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import protodepth.methods  # noqa: F401  (registers the methods)
from protodepth.backbones.base import count_parameters
from protodepth.backbones.lite import Lite
from protodepth.backbones.posenet import PoseNet
from protodepth.backbones.uformer import Uformer
from protodepth.data.augment import AugmentConfig
from protodepth.data.frame import Domain
from protodepth.data.worlds.worlds import world
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import Method, build, methods
from protodepth.methods.statistics import describe
from protodepth.model import ProtoDepth
from protodepth.storage import files
from protodepth.training.fit import fit
from protodepth.training.schedule import Schedule
from protodepth.training.sequence import SequenceResult, run_sequence

NAMES = methods.names()
SETTINGS = {"replay": {"size": 3}, "cmp": {"size": 3}}
SCHEDULE = Schedule(
    steps=4,
    save_every=2,
    rate=1e-3,
    augment=AugmentConfig(flip_horizontal=True, resize=(0.8, 1.0), brightness=(0.8, 1.2)),
)
State = dict[str, torch.Tensor]


class PowerCutError(RuntimeError):
    """What a power cut looks like from inside: nothing is saved on the way out."""


@pytest.fixture(scope="module")
def domains() -> list[Domain]:
    return [world(name, size=(32, 48), train=4, val=1, test=1, cache=False) for name in ("room", "warehouse", "street")]


@pytest.fixture(scope="module")
def starts(domains: list[Domain]) -> dict[str, ProtoDepth]:
    torch.manual_seed(0)
    sizes = {key: [8] * len(value) for key, value in Lite().config().items() if key.endswith("widths")}
    networks = {"lite": Lite(**sizes), "uformer": Uformer(width=8, heads=2, depth_range=(0.1, 100.0))}
    models = {n: ProtoDepth(net, pose=PoseNet(kind="small", rotation="axis")) for n, net in networks.items()}
    for model in models.values():
        describe(model, "room", domains[0].train)
    return models


@pytest.fixture
def new(starts: dict[str, ProtoDepth]) -> Callable[[str], Method]:
    def make(name: str) -> Method:
        model = copy.deepcopy(starts["uformer" if name == "l2p" else "lite"])
        objective = Objective(ObjectiveConfig(reduction="relative"), pose=model.pose, max_depth=100.0)
        config = methods.get(name).Config
        return build(
            name, model, objective, config(**SETTINGS.get(name, {})) if config and name != "protodepth" else None
        )

    return make


def learn(
    method: Method,
    domains: list[Domain],
    folder: Path | None = None,
    kill: tuple[str, str, int] | None = None,
    steps: list[int] | None = None,
) -> SequenceResult:
    """The sequence as the commands run it; ``kill`` = (method, domain, step) ends it there without a word;
    ``steps`` collects what was logged.
    """

    def fit_domain(method, domain, each_step):
        def log(step, record):
            if steps is not None:
                steps.append(step)
            if (method.name, domain.name, step) == kill:
                raise PowerCutError

        place = folder / f"{method.name}-{domain.name}" if folder else None
        return fit(method, domain, SCHEDULE, seed=1, log=log, folder=place, each_step=each_step)

    return run_sequence(method, domains, fit_domain)


def everything(method: Method) -> State:
    return {**method.state(), **{f"pose.{k}": v for k, v in method.objective.pose.state_dict().items()}}


def assert_equal(found: State, expected: State) -> None:
    assert found.keys() == expected.keys()
    different = [name for name in expected if not torch.equal(found[name], expected[name])]
    assert different == []


@pytest.fixture(scope="module")
def finished() -> dict[str, tuple[SequenceResult, Method]]:
    return {}


@pytest.fixture(scope="module")
def logged() -> dict[str, list[int]]:
    """The steps that each uninterrupted run has logged."""
    return {}


@pytest.fixture
def done(new, domains, finished, logged) -> Callable[[str], tuple[SequenceResult, Method]]:
    """An uninterrupted run of a method, made once."""

    def get(name: str) -> tuple[SequenceResult, Method]:
        if name not in finished:
            method, logged[name] = new(name), []
            finished[name] = learn(method, domains, steps=logged[name]), method
        return finished[name]

    return get


@pytest.mark.parametrize("name", NAMES)
def test_a_method_learns_a_sequence_and_fills_both_matrices(name, done):
    result, _ = done(name)
    assert result.method == name
    assert len(result.seconds) == 2
    for setting in (result.incremental, result.agnostic):
        for matrix in setting.matrices.values():
            assert matrix.values.shape == (3, 3)
            assert np.isfinite(matrix.values).all()
    rows = result.incremental.matrices["mae"].values
    assert (rows[0] == rows[2]).all() == (not methods.get(name).trains)  # learning changes something
    assert result.skipped == 0


@pytest.mark.parametrize("name", ["finetune", "ancl", "l2p", "joint"])
def test_progress_bars_know_how_many_steps_a_method_takes(name, done, logged, domains):
    _, method = done(name)
    assert len(logged[name]) == SCHEDULE.steps * method.trainings(len(domains) - 1)


@pytest.mark.parametrize("name", [n for n in NAMES if not methods.get(n).chooses])
def test_a_baseline_gives_the_same_numbers_in_both_settings(name, done):
    result, _ = done(name)
    for metric, matrix in result.incremental.matrices.items():
        assert (matrix.values == result.agnostic.matrices[metric].values).all()
    assert result.confusion is None


def test_joint_training_has_equal_rows_once_it_has_learned(done):
    rows = done("joint")[0].incremental.matrices["mae"].values
    assert (rows[1] == rows[2]).all()
    assert (rows[0] != rows[1]).any()


def test_protodepth_forgets_nothing_when_the_domain_is_given(done):
    rows = done("protodepth")[0].incremental.matrices["mae"].values
    assert rows[1, 0] == rows[0, 0]
    assert rows[2, 0] == rows[0, 0]
    assert rows[2, 1] == rows[1, 1]


def test_extra_memory_and_parameters_are_what_each_method_keeps(done, starts):
    network = 4 * count_parameters(starts["lite"].backbone)
    descriptors = 9 * 4 * starts["lite"].backbone.bottleneck.channels
    pictures, points, camera = 3 * 32 * 48 * 3, 32 * 48 * 4, 9 * 8 + 2 * 16 * 8
    frame = pictures + points + camera
    cases = {
        "pretrained": 0,
        "finetune": 0,
        "ewc": 2 * network,
        "ancl": 2 * network,
        "lwf": network,
        "joint": 12 * frame,
    }
    for name, expected in cases.items():
        assert done(name)[0].extra_bytes == expected, name
    for name, more in (("replay", 0), ("cmp", network + descriptors)):  # CMP: its describer and nine descriptors
        result, method = done(name)
        labels = sum(len(f.name) for frames in method.buffers.values() for f in frames)
        assert result.extra_bytes == 9 * frame + labels + more, name
    channels = 2 * 8
    assert done("l2p")[0].extra_parameters == 3 * 20 * (5 * channels + channels)
    assert done("protodepth")[0].extra_parameters > 0


@pytest.mark.parametrize("name", [n for n in NAMES if methods.get(n).trains])
def test_a_run_killed_in_the_middle_of_each_stage_ends_with_the_same_bits(name, new, domains, done, tmp_path):
    for domain in domains[1:2] if name == "joint" else domains[1:]:  # joint training learns at the first stage only
        with pytest.raises(PowerCutError):
            learn(new(name), domains, tmp_path, kill=(name, domain.name, 3))
        assert files.read_json(tmp_path / f"{name}-{domain.name}" / "state.json")["step"] == 2
    resumed = new(name)
    learn(resumed, domains, tmp_path)
    assert_equal(everything(resumed), everything(done(name)[1]))


def test_ancl_killed_while_its_auxiliary_network_learns_ends_with_the_same_bits(new, domains, done, tmp_path):
    with pytest.raises(PowerCutError):
        learn(new("ancl"), domains, tmp_path, kill=("ancl-auxiliary", "street", 3))
    resumed = new("ancl")
    learn(resumed, domains, tmp_path)
    assert_equal(everything(resumed), everything(done("ancl")[1]))


@pytest.mark.parametrize("name", NAMES)
def test_the_state_after_a_stage_is_all_that_the_next_one_needs(name, new, domains, done, tmp_path):
    """Another process reads the file and learns the last domain without having seen the first two."""
    first = new(name)
    learn_stages(first, domains, range(2))
    sha256 = files.write_tensors(tmp_path / "method.safetensors", first.state())
    pose = copy.deepcopy(first.objective.pose.state_dict())
    second = new(name)
    second.load_state(files.read_tensors(tmp_path / "method.safetensors", sha256))
    second.objective.pose.load_state_dict(pose)
    assert_equal(second.state(), first.state())
    learn_stages(second, domains, range(2, 3))
    assert_equal(everything(second), everything(done(name)[1]))


def learn_stages(method: Method, domains: list[Domain], stages: range) -> None:
    method.prepare(domains)
    for stage in stages:
        if not stage:
            method.learned_before(domains[stage], lambda m, d, /: fit(m, d, SCHEDULE, seed=1))
        else:
            method.begin_domain(domains[stage], lambda m, d, /: fit(m, d, SCHEDULE, seed=1))
            fit(method, domains[stage], SCHEDULE, seed=1)
        method.end_domain(domains[stage])
