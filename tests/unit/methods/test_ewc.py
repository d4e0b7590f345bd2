"""EWC on a straight line, against the formulas worked out by hand."""

import numpy as np
import pytest
import torch

from helpers.methods_toy import Spoiled, SquaredError, grey_frame, toy_domain, toy_model
from protodepth.data.batches import collate
from protodepth.errors import ConfigError, TrainingDiverged
from protodepth.methods.base import build
from protodepth.methods.ewc import EWC, EWCConfig, fisher_diagonal
from protodepth.types import View

FIRST = [(0.1, 1.0), (0.5, 3.0), (0.9, 2.0)]
SECOND = [(0.2, 4.0), (0.4, 0.5), (0.6, 1.0)]


def line_gradients(points, slope=2.0, offset=1.0):
    """d/d(slope, offset) of (slope x + offset - z)² for each point: (2 e x, 2 e)."""
    x, z = np.array(points).T
    e = slope * x + offset - z
    return np.stack([2 * e * x, 2 * e], 1)


def values(weights):
    return np.array([float(weights["slope"]), float(weights["offset"])])


def make(config=None, **start) -> EWC:
    return EWC(toy_model(**start), SquaredError(), config)


def move(method, slope, offset):
    with torch.no_grad():
        method.backbone.slope.fill_(slope)
        method.backbone.offset.fill_(offset)


def some_batch():
    return collate([grey_frame(0.3, 1.0)])


def penalty(method):
    batch = some_batch()
    return method.loss(batch, View.identity(batch))["ewc"]


def test_fisher_is_the_mean_of_squared_gradients_of_single_frames():
    fisher = fisher_diagonal(make(), toy_domain("a", FIRST).train, EWCConfig())
    assert values(fisher) == pytest.approx((line_gradients(FIRST) ** 2).mean(0), rel=1e-5)


def test_uncle_mode_squares_means_of_batches_and_divides_by_the_number_of_frames():
    config = EWCConfig(fisher_mode="uncle", batch_size=2, seed=3)
    order = np.random.default_rng(3).permutation(3)
    gradients = line_gradients(FIRST)[order]
    expected = (gradients[:2].mean(0) ** 2 + gradients[2:].mean(0) ** 2) / 3
    assert values(fisher_diagonal(make(), toy_domain("a", FIRST).train, config)) == pytest.approx(expected, rel=1e-5)


def test_a_cap_on_the_frames_takes_a_seeded_part_of_them():
    order = np.random.default_rng(7).permutation(3)[:2]
    fisher = fisher_diagonal(make(), toy_domain("a", FIRST).train, EWCConfig(samples=2, seed=7))
    assert values(fisher) == pytest.approx((line_gradients(FIRST)[order] ** 2).mean(0), rel=1e-5)


@pytest.mark.parametrize("mode", ["per_sample", "uncle"])
def test_a_frame_that_cannot_be_read_is_not_part_of_the_mean(mode):
    points = [(0.02 * i, 1.0 + 0.1 * i) for i in range(20)]
    left = [p for i, p in enumerate(points) if i != 4]
    config = EWCConfig(fisher_mode=mode, batch_size=1)  # single frames: the order does not matter
    fisher = fisher_diagonal(make(), Spoiled(toy_domain("a", points).train, 4), config)
    assert values(fisher) == pytest.approx((line_gradients(left) ** 2).mean(0), rel=1e-5)


def test_penalty_and_its_gradient_are_those_of_the_formula():
    method = make(EWCConfig(strength=10.0))
    method.end_domain(toy_domain("a", FIRST))
    F, away = (line_gradients(FIRST) ** 2).mean(0), np.array([0.5, -2.0])
    move(method, 2.0 + away[0], 1.0 + away[1])
    term = penalty(method)
    assert float(term.detach()) == pytest.approx(10.0 / 2 * (F * away**2).sum(), rel=1e-5)
    gradients = torch.autograd.grad(term, [method.backbone.slope, method.backbone.offset])
    assert [float(g) for g in gradients] == pytest.approx(10.0 * F * away, rel=1e-5)


def test_there_is_no_penalty_before_a_domain_has_ended_and_none_at_the_anchor():
    method, batch = make(), some_batch()
    assert set(method.loss(batch, View.identity(batch))) == {"square"}
    method.end_domain(toy_domain("a", FIRST))
    assert float(penalty(method).detach()) == 0.0


def test_the_penalty_is_no_part_of_the_fisher():
    method, plain = make(EWCConfig(strength=1e6)), make(slope=4.0, offset=0.0)
    method.end_domain(toy_domain("a", FIRST))
    move(method, 4.0, 0.0)
    second = toy_domain("b", SECOND).train
    assert values(fisher_diagonal(method, second, method.config)) == pytest.approx(
        values(fisher_diagonal(plain, second, method.config))
    )


def test_fisher_of_all_domains_is_a_running_sum():
    method = make(EWCConfig(gamma=0.25))
    method.end_domain(toy_domain("a", FIRST))
    move(method, 3.0, 0.5)
    method.end_domain(toy_domain("b", SECOND))
    old, new = (line_gradients(FIRST) ** 2).mean(0), (line_gradients(SECOND, 3.0, 0.5) ** 2).mean(0)
    assert values(method.fisher) == pytest.approx(0.25 * old + new, rel=1e-5)
    assert values(method.anchor).tolist() == [3.0, 0.5]


def test_as_the_public_scripts_only_the_last_domain_counts():
    method = make(EWCConfig.uncle())
    method.end_domain(toy_domain("a", FIRST))
    method.end_domain(toy_domain("b", SECOND))
    assert values(method.fisher) == pytest.approx(
        values(fisher_diagonal(make(), toy_domain("b", SECOND).train, EWCConfig.uncle()))
    )


def test_anchors_of_each_domain_equal_the_sum_of_their_penalties_up_to_a_constant():
    method = make(EWCConfig(strength=1.0, anchors="each"))
    method.end_domain(toy_domain("a", FIRST))
    move(method, 3.0, 0.5)
    method.end_domain(toy_domain("b", SECOND))
    old, new = (line_gradients(FIRST) ** 2).mean(0), (line_gradients(SECOND, 3.0, 0.5) ** 2).mean(0)

    def by_hand(theta):
        return 0.5 * (old * (theta - [2.0, 1.0]) ** 2).sum() + 0.5 * (new * (theta - [3.0, 0.5]) ** 2).sum()

    found, expected = [], []
    for theta in (np.array([0.0, 0.0]), np.array([5.0, -1.0]), np.array([2.5, 0.7])):
        move(method, *theta)
        found.append(float(penalty(method).detach()))
        expected.append(by_hand(theta))
    assert np.diff(found) == pytest.approx(np.diff(expected), rel=1e-4)


def test_measuring_leaves_weights_and_gradients_alone():
    method = make()
    fisher_diagonal(method, toy_domain("a", FIRST).train, EWCConfig())
    assert float(method.backbone.slope.detach()) == 2.0
    assert method.backbone.slope.grad is None


def test_weights_that_never_learn_have_no_fisher_and_no_anchor():
    method = make()
    method.backbone.offset.requires_grad_(False)
    method.end_domain(toy_domain("a", FIRST))
    assert set(method.fisher) == set(method.anchor) == {"slope"}


def test_kept_memory_is_twice_the_network_and_the_mean_fisher_is_recorded():
    method = make()
    assert method.extra_bytes() == 0
    method.end_domain(toy_domain("a", FIRST))
    assert method.extra_bytes() == 2 * 2 * 4
    assert method.extra_parameters() == 0
    assert method.record()["fisher_mean"] == pytest.approx((line_gradients(FIRST) ** 2).mean(0).mean(), rel=1e-5)


def test_a_frame_without_a_finite_gradient_is_named():
    with pytest.raises(TrainingDiverged, match=r"frame '0\.5-nan'"):
        make().end_domain(toy_domain("a", [(0.5, float("nan"))]))


@pytest.mark.parametrize("wrong", [{"samples": 0}, {"strength": -1.0}, {"gamma": 1.5}, {"batch_size": 0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ConfigError, match="must be positive"):
        EWCConfig(**wrong)


def test_settings_of_another_method_are_refused():
    with pytest.raises(ConfigError, match="takes LwFConfig, got EWCConfig"):
        build("lwf", toy_model(), SquaredError(), EWCConfig())
    with pytest.raises(ConfigError, match="takes no settings"):
        build("finetune", toy_model(), SquaredError(), EWCConfig())
