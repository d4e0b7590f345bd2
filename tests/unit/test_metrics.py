"""Errors of one image, their mean, and the three scores of a sequence: golden numbers and slow loops."""

import math

import numpy as np
import pytest

from protodepth.errors import DataError
from protodepth.metrics import METRICS, ScoreMatrix, Scores, counts, depth_errors, evaluation_crop, mean_errors

# PROTOCOL section 6: a row with zero forgetting has a_j^k = x_j;
# x_1 follows from the printed SPTO, the printed performance checks it.
INDOOR = {
    "mae": ((84.056, 14.59, 33.63), 44.092, 52.497),
    "rmse": ((169.864, 42.20, 87.30), 99.788, 113.548),
    "imae": ((16.123, 5.57, 17.55), 13.081, 12.845),
    "irmse": ((34.169, 17.10, 43.24), 31.503, 29.990),
}
OUTDOOR = {
    "mae": ((254.111, 483.92, 676.28), 471.437, 401.075),
    "rmse": ((1113.121, 1656.33, 3608.42), 2125.957, 1710.074),
    "imae": ((0.998, 1.19, 0.80), 0.996, 1.029),
    "irmse": ((3.115, 2.68, 3.25), 3.015, 2.993),
}


@pytest.mark.parametrize(("x", "spto", "performance"), [*INDOOR.values(), *OUTDOOR.values()])
def test_the_printed_numbers_follow_from_means_over_the_sequence(
    x: tuple[float, float, float], spto: float, performance: float
) -> None:
    matrix = ScoreMatrix(np.tile(x, (3, 1)))
    assert matrix.forgetting() == 0.0
    assert matrix.spto() == pytest.approx(spto, abs=1.5e-3)
    assert matrix.performance() == pytest.approx(performance, abs=2.5e-3)
    assert matrix.spto(sums=True) == pytest.approx(3 * spto, abs=5e-3)


@pytest.mark.parametrize("T", [1, 2, 3, 5])
def test_the_scores_are_the_sums_of_the_paper(T: int) -> None:
    a = np.random.default_rng(T).uniform(1, 9, (T, T))
    F = mu = 0.0
    for k in range(1, T + 1):
        for j in range(1, k + 1):
            mu += a[k - 1, j - 1]
            if j < k:
                F += (a[k - 1, j - 1] - a[j - 1, j - 1]) / a[j - 1, j - 1]
    S, P = sum(a[T - 1, k] for k in range(T)) / T, sum(a[k, k] for k in range(T)) / T
    matrix = ScoreMatrix(a)
    assert matrix.forgetting() == pytest.approx(2 * F / (T * (T - 1)) if T > 1 else 0.0)
    assert matrix.performance() == pytest.approx(2 * mu / (T * (T + 1)))
    assert matrix.spto() == pytest.approx(2 * S * P / (S + P))


def test_zero_shot_entries_change_no_score() -> None:
    a = np.random.default_rng(0).uniform(1, 9, (3, 3))
    b = a + np.triu(np.full((3, 3), 100.0), 1)
    assert [f(ScoreMatrix(a)) for f in (ScoreMatrix.forgetting, ScoreMatrix.performance, ScoreMatrix.spto)] == [
        f(ScoreMatrix(b)) for f in (ScoreMatrix.forgetting, ScoreMatrix.performance, ScoreMatrix.spto)
    ]


def test_a_matrix_must_be_square() -> None:
    with pytest.raises(DataError, match=r"square, got shape \(2, 3\)"):
        ScoreMatrix(np.zeros((2, 3)))


def test_scores_of_all_metrics_come_from_one_table_of_errors() -> None:
    rows = [[{m: 10.0 * n + k + j + 1 for n, m in enumerate(METRICS)} for j in range(2)] for k in range(2)]
    scores = Scores.from_errors(rows)
    assert scores.matrices["rmse"].values.tolist() == [[11, 12], [12, 13]]
    assert scores.summary()["forgetting"]["rmse"] == pytest.approx(1 / 11)
    assert scores.to_json()["irmse"] == [[31, 32], [32, 33]]


def slow(p: np.ndarray, d: np.ndarray, low: float, high: float) -> dict[str, float]:
    pairs = [(float(a), float(b)) for a, b in zip(p.ravel(), d.ravel(), strict=True) if b > 0 and low < b < high]
    n = len(pairs)
    return {
        "mae": 1000 * sum(abs(a - b) for a, b in pairs) / n,
        "rmse": 1000 * math.sqrt(sum((a - b) ** 2 for a, b in pairs) / n),
        "imae": 1000 * sum(abs(1 / a - 1 / b) for a, b in pairs) / n,
        "irmse": 1000 * math.sqrt(sum((1 / a - 1 / b) ** 2 for a, b in pairs) / n),
    }


def test_errors_of_one_image_against_a_loop() -> None:
    random = np.random.default_rng(1)
    p, d = random.uniform(0.1, 8, (6, 7)), random.uniform(0, 6, (6, 7)) * (random.random((6, 7)) < 0.7)
    assert depth_errors(p, d, min_depth=0.2, max_depth=5) == pytest.approx(slow(p, d, 0.2, 5))


def test_the_caps_are_strict() -> None:
    d = np.array([[0.2, 5.0, 0.0, 1.0, -1.0, np.nan]])
    errors = depth_errors(np.full((1, 6), 2.5), d, min_depth=0.2, max_depth=5.0)
    assert errors["mae"] == 1500.0  # only the pixel at 1 m counts


def test_a_pixel_without_ground_truth_never_counts_whatever_the_caps() -> None:
    assert counts(np.array([[0.0, -1.0, 1e-6, 2.0]]), -5.0, 2.0).tolist() == [[False, False, True, False]]


def test_the_prediction_is_not_capped() -> None:
    errors = depth_errors(np.array([[50.0]]), np.array([[4.0]]), min_depth=0.2, max_depth=5.0)
    assert errors["mae"] == 46000.0


def test_the_crop_is_the_bottom_rows_and_the_middle_columns() -> None:
    array = np.arange(5 * 9).reshape(5, 9)
    np.testing.assert_array_equal(evaluation_crop(array, (2, 4)), array[3:5, 2:6])
    np.testing.assert_array_equal(
        evaluation_crop(array, (2, 5)), array[3:5, 2:6]
    )  # w//2 on both sides: odd widths lose one
    assert evaluation_crop(array, None) is array
    with pytest.raises(DataError, match="6x4 is larger than the image 5x9"):
        evaluation_crop(array, (6, 4))
    d = np.where(array >= 27, 1.0, 4.0)
    assert depth_errors(np.ones((5, 9)), d, min_depth=0, max_depth=9, crop=(2, 4))["mae"] == 0.0


def test_an_image_without_ground_truth_contributes_nothing_to_the_mean() -> None:
    empty = depth_errors(np.ones((2, 2)), np.zeros((2, 2)), min_depth=0.2, max_depth=5)
    assert all(math.isnan(v) for v in empty.values())
    full = depth_errors(np.full((2, 2), 2.0), np.ones((2, 2)), min_depth=0.2, max_depth=5)
    assert mean_errors([full, empty, full]) == full
    assert all(math.isnan(v) for v in mean_errors([empty]).values())


def test_the_mean_is_over_images_and_not_over_pixels() -> None:
    few = depth_errors(np.array([[2.0, 9.0]]), np.array([[1.0, 0.0]]), min_depth=0, max_depth=9)
    many = depth_errors(np.full((1, 99), 4.0), np.ones((1, 99)), min_depth=0, max_depth=9)
    assert mean_errors([few, many])["rmse"] == pytest.approx(2000.0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_prediction_that_is_not_finite_is_never_left_out_of_the_mean(value: float) -> None:
    good = depth_errors(np.ones((2, 2)), np.ones((2, 2)), min_depth=0, max_depth=5)
    p = np.ones((2, 2))
    p[0, 0] = value
    bad = depth_errors(p, np.ones((2, 2)), min_depth=0, max_depth=5)
    assert mean_errors([good, bad])["mae"] == math.inf
    d = np.ones((2, 2))
    d[0, 0] = 0  # where nothing is known it does no harm
    assert depth_errors(p, d, min_depth=0, max_depth=5)["mae"] == 0.0


def test_a_prediction_of_zero_has_an_infinite_inverse_error_and_no_warning() -> None:
    errors = depth_errors(np.zeros((1, 1)), np.ones((1, 1)), min_depth=0, max_depth=5)
    assert errors["mae"] == 1000.0
    assert errors["imae"] == math.inf


def test_maps_of_different_size_are_refused() -> None:
    with pytest.raises(DataError, match="one size"):
        depth_errors(np.ones((2, 3)), np.ones((3, 2)), min_depth=0, max_depth=5)
