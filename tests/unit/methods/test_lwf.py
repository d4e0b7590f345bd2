"""LwF on a straight line: value, gradient, mask, and what the teacher sees."""

from dataclasses import replace

import pytest
import torch

from helpers.methods_toy import SquaredError, grey_frame, toy_domain, toy_model
from protodepth.data.batches import collate
from protodepth.errors import ConfigError
from protodepth.methods.lwf import LwF, LwFConfig, distillation
from protodepth.types import View


def taught(config=None) -> LwF:
    """The teacher is 2x + 1, the student 3x + 1."""
    method = LwF(toy_model(2.0, 1.0), SquaredError(), config)
    method.end_domain(toy_domain("a", [(0.5, 1.0)]))
    with torch.no_grad():
        method.backbone.slope.fill_(3.0)
    return method


def test_gradient_is_that_of_the_mean_squared_difference_to_the_teacher():
    method = taught(LwFConfig(weight=0.5))
    batch = collate([grey_frame(0.2, 9.0), grey_frame(0.6, 9.0)])
    term = method.loss(batch, View.identity(batch))["lwf"]
    # student - teacher = x, so the term is 0.5 mean(x²) and its slope gradient 0.5 · 2 mean(x · x)
    mean_square = (0.2**2 + 0.6**2) / 2
    assert float(term.detach()) == pytest.approx(0.5 * mean_square, rel=1e-5)
    slope, offset = torch.autograd.grad(term, [method.backbone.slope, method.backbone.offset])
    assert float(slope) == pytest.approx(mean_square, rel=1e-5)
    assert float(offset) == pytest.approx((0.2 + 0.6) / 2, rel=1e-5)


def test_pixels_outside_the_view_do_not_count():
    method = taught()
    image = torch.tensor([0.1, 0.9]).expand(1, 3, 2, 2).clone()  # left column 0.1, right column 0.9
    batch = replace(collate([grey_frame(0.5, 9.0)]), image=image)
    left = torch.tensor([1.0, 0.0]).expand(1, 1, 2, 2)
    term = method.loss(batch, View(batch=batch, undo=lambda depth: (depth, left)))["lwf"]
    assert float(term.detach()) == pytest.approx(0.1**2, rel=1e-4)


def test_the_teacher_sees_the_frame_as_it_is_and_the_student_the_view():
    method = taught()
    batch, seen = collate([grey_frame(0.5, 9.0)]), collate([grey_frame(0.8, 9.0)])
    term = method.loss(batch, View(batch=seen, undo=View.identity(batch).undo))["lwf"]
    assert float(term.detach()) == pytest.approx(((3 * 0.8 + 1) - (2 * 0.5 + 1)) ** 2, rel=1e-5)


@pytest.mark.parametrize(
    ("space", "expected"), [("depth", 4.0), ("log", torch.log(torch.tensor(3.0)) ** 2), ("inverse", (1 / 3 - 1) ** 2)]
)
def test_each_space_measures_the_difference_of_its_own_values(space, expected):
    three, one = torch.full((1, 1, 2, 2), 3.0), torch.ones(1, 1, 2, 2)
    assert float(distillation(three, one, one, space)) == pytest.approx(float(expected), rel=1e-5)


def test_the_teacher_never_learns_and_there_is_none_before_the_first_domain_has_ended():
    method, batch = LwF(toy_model(), SquaredError()), collate([grey_frame(0.5, 9.0)])
    assert "lwf" not in method.loss(batch, View.identity(batch))
    assert method.extra_bytes() == 0
    method.end_domain(toy_domain("a", [(0.5, 1.0)]))
    assert not any(p.requires_grad for p in method.teacher.parameters())
    assert {id(p) for p in method.trainable_parameters()} == {id(p) for p in method.backbone.parameters()}
    assert method.extra_bytes() == 2 * 4


def test_each_domain_replaces_the_teacher():
    method = taught()
    method.end_domain(toy_domain("b", [(0.5, 1.0)]))
    assert float(method.teacher.slope) == 3.0


def test_a_negative_weight_is_refused():
    with pytest.raises(ConfigError, match="weight"):
        LwFConfig(weight=-1.0)
