"""Joint training: balanced sub-batches, its budget, and that it learns once."""

from itertools import islice

import pytest
import torch

from helpers.methods_toy import SquaredError, no_fit, toy_domain, toy_model
from protodepth.data.batches import training_batches
from protodepth.errors import ConfigError
from protodepth.methods.joint import Joint, JointConfig
from protodepth.training.fit import fit
from protodepth.training.schedule import Schedule

DOMAINS = [
    toy_domain(name, [(0.1 * i, depth) for i in range(n)])
    for name, depth, n in (("a", 1.0, 4), ("b", 2.0, 6), ("c", 3.0, 8))
]


def make(config=None) -> Joint:
    method = Joint(toy_model(), SquaredError(), config)
    method.prepare(DOMAINS)
    return method


def steps(method, count, batch_size, start=0):
    loader = training_batches(DOMAINS[1].train, batch_size, seed=2, start=start, domain="b")
    return list(islice(method.batches(loader, start=start, seed=2), count))


@pytest.mark.parametrize(("batch_size", "sub_batch", "each"), [(6, None, 2), (2, None, 1), (2, 4, 4)])
def test_every_step_has_one_equal_part_of_each_domain(batch_size, sub_batch, each):
    for sources in steps(make(JointConfig(sub_batch=sub_batch)), 3, batch_size):
        assert [(s.domain, len(s)) for s in sources] == [("a", each), ("b", each), ("c", each)]


def test_a_resumed_run_sees_the_same_frames():
    method = make()
    for expected, found in zip(steps(method, 6, 3)[2:], steps(method, 4, 3, start=2), strict=True):
        assert all(torch.equal(a.image, b.image) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize(("stages", "expected"), [(None, 15), (2, 10)])
def test_the_budget_is_a_stage_for_each_domain_unless_told(stages, expected):
    method = make(JointConfig(stages=stages))
    method.begin_domain(DOMAINS[1], no_fit)
    assert fit(method, DOMAINS[1], Schedule(steps=5), seed=0).steps == expected


def test_it_learns_once_and_a_first_domain_learned_before_does_not_count():
    method = make()
    method.end_domain(DOMAINS[0])
    assert method.trains
    method.begin_domain(DOMAINS[1], no_fit)
    fit(method, DOMAINS[1], Schedule(steps=2), seed=0)
    method.end_domain(DOMAINS[1])
    after = float(method.backbone.slope.detach())
    assert after != 2.0
    method.begin_domain(DOMAINS[2], no_fit)
    assert fit(method, DOMAINS[2], Schedule(steps=2), seed=0).steps == 0
    assert float(method.backbone.slope.detach()) == after


def test_it_must_know_all_domains_beforehand():
    with pytest.raises(ConfigError, match="prepare"):
        Joint(toy_model(), SquaredError()).begin_domain(DOMAINS[0], no_fit)


def test_extra_memory_is_all_data():
    frame = 3 * (2 * 2 * 3 * 4) + 2 * 2 * 4 + 9 * 8 + 2 * 16 * 8
    assert make().extra_bytes() == 18 * frame


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="positive"):
        JointConfig(stages=0)
