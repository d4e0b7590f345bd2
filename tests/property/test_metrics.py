"""Properties of errors and scores."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from protodepth.metrics import METRICS, ScoreMatrix, depth_errors

FEW = settings(max_examples=60, deadline=None)
SHAPE = st.tuples(st.integers(1, 6), st.integers(1, 6))


def depths(shape: tuple[int, int]) -> st.SearchStrategy[np.ndarray]:
    return nps.arrays(np.float64, shape, elements=st.floats(0.125, 64, width=32))


@FEW
@given(st.data())
def test_errors_are_zero_exactly_for_the_truth_and_mae_is_at_most_rmse(data: st.DataObject) -> None:
    shape = data.draw(SHAPE)
    p, d = data.draw(depths(shape)), data.draw(depths(shape))
    errors = depth_errors(p, d, min_depth=0.1, max_depth=65.0)
    assert depth_errors(d, d, min_depth=0.1, max_depth=65.0) == dict.fromkeys(METRICS, 0.0)
    assert 0 <= errors["mae"] <= errors["rmse"] * (1 + 1e-9) + 1e-9
    assert 0 <= errors["imae"] <= errors["irmse"] * (1 + 1e-9) + 1e-9
    assert (errors["mae"] == 0) == bool((p == d).all())


@FEW
@given(st.data())
def test_errors_scale_with_the_unit_and_inverse_errors_against_it(data: st.DataObject) -> None:
    shape = data.draw(SHAPE)
    p, d = data.draw(depths(shape)), data.draw(depths(shape))
    one = depth_errors(p, d, min_depth=0.0, max_depth=1e9)
    two = depth_errors(2 * p, 2 * d, min_depth=0.0, max_depth=1e9)
    for name, factor in (("mae", 2), ("rmse", 2), ("imae", 0.5), ("irmse", 0.5)):
        np.testing.assert_allclose(two[name], factor * one[name], rtol=1e-9)


@FEW
@given(st.data())
def test_pixels_outside_the_caps_never_matter(data: st.DataObject) -> None:
    shape = data.draw(SHAPE)
    p, d = data.draw(depths(shape)), data.draw(depths(shape))
    counted = (d > 1) & (d < 10)
    other = np.where(counted, p, data.draw(depths(shape)))
    np.testing.assert_equal(
        depth_errors(other, d, min_depth=1.0, max_depth=10.0), depth_errors(p, d, min_depth=1.0, max_depth=10.0)
    )


@st.composite
def matrices(draw: st.DrawFn) -> np.ndarray:
    T = draw(st.integers(1, 5))
    return draw(nps.arrays(np.float64, (T, T), elements=st.floats(0.5, 100)))


@FEW
@given(matrices(), st.floats(0.1, 10))
def test_scores_follow_the_unit_and_forgetting_does_not(a: np.ndarray, factor: float) -> None:
    one, scaled = ScoreMatrix(a), ScoreMatrix(factor * a)
    np.testing.assert_allclose(scaled.forgetting(), one.forgetting(), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(scaled.performance(), factor * one.performance(), rtol=1e-9)
    np.testing.assert_allclose(scaled.spto(), factor * one.spto(), rtol=1e-9)


@FEW
@given(matrices())
def test_scores_lie_between_the_smallest_and_the_largest_error(a: np.ndarray) -> None:
    matrix = ScoreMatrix(a)
    lower = np.tril(np.ones_like(a)).astype(bool)
    for score in (matrix.performance(), matrix.spto()):
        assert a[lower].min() * (1 - 1e-9) <= score <= a[lower].max() * (1 + 1e-9)
    S, P = a[-1].mean(), np.diag(a).mean()
    assert min(S, P) * (1 - 1e-9) <= matrix.spto() <= (S + P) / 2 * (1 + 1e-9)  # a harmonic mean


@FEW
@given(matrices())
def test_columns_that_do_not_change_are_not_forgotten(a: np.ndarray) -> None:
    frozen = np.tile(np.diag(a), (len(a), 1))
    assert ScoreMatrix(frozen).forgetting() == 0.0
