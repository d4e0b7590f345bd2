"""ANCL on a straight line: two phases, two penalties."""

import numpy as np
import pytest
import torch

from helpers.methods_toy import SquaredError, grey_frame, no_fit, toy_domain, toy_model
from protodepth.data.batches import collate
from protodepth.errors import ConfigError
from protodepth.methods.ancl import ANCL, ANCLConfig
from protodepth.types import View

FIRST = toy_domain("a", [(0.1, 1.0), (0.9, 2.0)])
SECOND = toy_domain("b", [(0.2, 4.0), (0.4, 0.5)])


def fisher_by_hand(domain, slope, offset):
    rows = []
    for frame in domain.train:
        x, z = float(frame.image[0, 0, 0]), float(frame.sparse_depth[0, 0])
        e = slope * x + offset - z
        rows.append([(2 * e * x) ** 2, (2 * e) ** 2])
    return np.mean(rows, 0)


def finetuned_to(slope, offset):
    """A stand-in for training that puts the copy where we want it."""

    def fit(method, domain, /):
        with torch.no_grad():
            method.backbone.slope.fill_(slope)
            method.backbone.offset.fill_(offset)

    return fit


def values(weights):
    return np.array([float(weights["slope"]), float(weights["offset"])])


def begun() -> ANCL:
    method = ANCL(toy_model(2.0, 1.0), SquaredError(), ANCLConfig(strength=10.0, auxiliary_strength=3.0))
    method.begin_domain(FIRST, no_fit)  # nothing to protect yet: no auxiliary network
    method.end_domain(FIRST)
    method.begin_domain(SECOND, finetuned_to(5.0, -1.0))
    return method


def test_loss_has_both_pulls_each_with_its_own_fisher():
    method = begun()
    with torch.no_grad():
        method.backbone.slope.fill_(3.0)
    batch = collate([grey_frame(0.5, 1.0)])
    terms = {name: t.detach() for name, t in method.loss(batch, View.identity(batch)).items()}
    old, new = fisher_by_hand(FIRST, 2.0, 1.0), fisher_by_hand(SECOND, 5.0, -1.0)
    assert set(terms) == {"square", "ewc", "ancl"}
    assert float(terms["ewc"]) == pytest.approx(10.0 / 2 * (old * np.array([1.0, 0.0]) ** 2).sum(), rel=1e-5)
    assert float(terms["ancl"]) == pytest.approx(3.0 / 2 * (new * np.array([-2.0, 2.0]) ** 2).sum(), rel=1e-5)


def test_the_network_itself_is_untouched_by_the_first_phase():
    method = begun()
    assert (float(method.backbone.slope.detach()), float(method.backbone.offset.detach())) == (2.0, 1.0)
    assert all(p.requires_grad for p in method.backbone.parameters())


def test_the_copy_has_its_own_pose_network():
    objective = SquaredError(pose=torch.nn.Linear(1, 1))
    method = ANCL(toy_model(), objective)
    method.end_domain(FIRST)
    seen = []
    method.begin_domain(SECOND, lambda m, d, /: seen.append((m.name, m.objective.pose)))
    assert seen[0][0] == "ancl-auxiliary"
    assert isinstance(seen[0][1], torch.nn.Linear)
    assert seen[0][1] is not objective.pose


def test_fishers_are_fused_half_and_half_and_the_copy_is_dropped_afterwards():
    method = begun()
    assert method.extra_bytes() == 4 * 2 * 4  # two networks' worth of F and theta, old and auxiliary
    with torch.no_grad():
        method.backbone.slope.fill_(4.0)
    method.end_domain(SECOND)
    expected = 0.5 * fisher_by_hand(FIRST, 2.0, 1.0) + 0.5 * fisher_by_hand(SECOND, 4.0, 1.0)
    assert values(method.fisher) == pytest.approx(expected, rel=1e-5)
    assert values(method.anchor).tolist() == [4.0, 1.0]
    assert method.extra_bytes() == 2 * 2 * 4


def test_a_share_outside_0_and_1_is_refused():
    with pytest.raises(ConfigError, match="alpha"):
        ANCLConfig(alpha=2.0)
    with pytest.raises(ConfigError, match="samples"):
        ANCLConfig(samples=0)
