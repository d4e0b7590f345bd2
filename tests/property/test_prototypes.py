"""Properties of the adaptation that hold for all features and all prototypes."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from protodepth.prototypes import PrototypeConfig, PrototypeSet

FEW = settings(max_examples=40, deadline=None)


@st.composite
def cases(draw: st.DrawFn) -> tuple[PrototypeSet, Tensor]:
    c, n, size, b = (draw(st.integers(1, top)) for top in (9, 12, 8, 3))
    spread = draw(st.sampled_from([0.01, 1.0, 10.0]))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    s = PrototypeSet(c, size, PrototypeConfig(), random)
    with torch.no_grad():
        for p in s.parameters():
            p.copy_(spread * torch.randn(p.shape, generator=random))
    return s, spread * torch.randn(b, n, c, generator=random)


@FEW
@given(cases())
def test_the_bias_stays_in_the_hull_of_the_prototypes(case: tuple[PrototypeSet, Tensor]) -> None:
    s, X = case
    with torch.no_grad():
        B = s(X) - s.A * X
        slack = 1e-5 * (1 + (s.A * X).abs().max() + s.P.abs().max())
        assert (s.P.max(0).values + slack >= B).all()
        assert (s.P.min(0).values - slack <= B).all()


@FEW
@given(cases())
def test_the_order_of_prototypes_and_of_positions_does_not_matter(case: tuple[PrototypeSet, Tensor]) -> None:
    s, X = case
    with torch.no_grad():
        expected = s(X).flip(1)
        s.P.copy_(s.P.flip(0))
        torch.testing.assert_close(s(X.flip(1)), expected, rtol=1e-4, atol=1e-4 * float(1 + expected.abs().max()))


@FEW
@given(cases())
def test_one_prototype_is_added_everywhere_alike(case: tuple[PrototypeSet, Tensor]) -> None:
    s, X = case
    with torch.no_grad():
        s.P.copy_(s.P[:1].expand_as(s.P))
        torch.testing.assert_close(s(X), s.A * X + s.P[0], rtol=1e-4, atol=1e-4 * float(1 + X.abs().max()))


@FEW
@given(cases())
def test_without_prototypes_and_with_ones_nothing_changes_at_all(case: tuple[PrototypeSet, Tensor]) -> None:
    s, X = case
    with torch.no_grad():
        s.P.zero_()
        s.A.fill_(1)
        assert torch.equal(s(X), X)
