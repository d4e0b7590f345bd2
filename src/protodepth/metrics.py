"""How good a depth map is (MAE, RMSE, iMAE, iRMSE), and how a sequence was learned (Eq. 12-14)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from protodepth.errors import DataError
from protodepth.types import Float

METRICS = ("mae", "rmse", "imae", "irmse")
UNITS = {"mae": "mm", "rmse": "mm", "imae": "1/km", "irmse": "1/km"}


def evaluation_crop(array: np.ndarray, crop: tuple[int, int] | None) -> np.ndarray:
    """What of a map is judged: the bottom rows [H-h, H) and the centred columns [W//2 - w//2, W//2 + w//2)."""
    if crop is None:
        return array
    rows, columns = crop
    height, width = array.shape[-2:]
    if rows > height or columns > width:
        raise DataError(
            f"evaluation crop {rows}x{columns} is larger than the image {height}x{width}: use another evaluation rule"
        )
    left = width // 2 - columns // 2
    return array[..., height - rows :, left : left + 2 * (columns // 2)]


def counts(ground_truth: np.ndarray, min_depth: float, max_depth: float) -> np.ndarray:
    r"""Which pixels count in the errors: :math:`\max(0, d_{min}) < d < d_{max}`, both strict."""
    return (ground_truth > 0) & (ground_truth > min_depth) & (ground_truth < max_depth)


def depth_errors(
    prediction: Float[np.ndarray, "h w"],
    ground_truth: Float[np.ndarray, "h w"],
    *,
    min_depth: float,
    max_depth: float,
    crop: tuple[int, int] | None = None,
) -> dict[str, float]:
    r"""Errors of one image over the pixels with :math:`\max(0, d_{min}) < d < d_{max}` (strict):
    MAE and RMSE in mm, iMAE and iRMSE in 1/km.

    NaN where no pixel counts; infinite where the prediction is not finite in a pixel that counts.

    >>> e = depth_errors(np.full((2, 2), 2.0), np.full((2, 2), 1.0), min_depth=0.2, max_depth=5)
    >>> e["mae"], e["imae"]
    (1000.0, 500.0)
    """
    p = evaluation_crop(np.asarray(prediction), crop).astype(np.float64)
    d = evaluation_crop(np.asarray(ground_truth), crop).astype(np.float64)
    if p.shape != d.shape:
        raise DataError(f"prediction has shape {p.shape}, ground truth {d.shape}: they must be of one size")
    mask = counts(d, min_depth, max_depth)
    if not mask.any():
        return dict.fromkeys(METRICS, float("nan"))
    p, d = p[mask], d[mask]
    if not np.isfinite(p).all():  # NaN would leave the image out of the mean, as if it had no ground truth
        return dict.fromkeys(METRICS, float("inf"))
    with np.errstate(divide="ignore"):
        error, inverse = np.abs(p - d) * 1000, np.abs(1 / p - 1 / d) * 1000
    return {
        "mae": float(error.mean()),
        "rmse": float(np.sqrt((error**2).mean())),
        "imae": float(inverse.mean()),
        "irmse": float(np.sqrt((inverse**2).mean())),
    }


def mean_errors(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Mean over images of per-image errors; an image without valid pixels contributes nothing, other columns (names)
    are passed over.
    """
    rows = list(rows)
    means = {}
    for name in METRICS:
        values = np.array([r[name] for r in rows], np.float64)
        means[name] = float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")
    return means


@dataclass(frozen=True, slots=True)
class ScoreMatrix:
    """Errors :math:`a_j^k` of one metric: row k = after training on D_k, column j = on D_j.

    Only j <= k enters the scores; entries right of the diagonal are zero-shot extras.
    """

    values: Float[np.ndarray, "t t"]

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[0] != self.values.shape[1]:
            raise DataError(f"a score matrix is square, got shape {self.values.shape}")

    def forgetting(self) -> float:
        r"""Average Forgetting (Eq. 12), a fraction:
        :math:`\frac{2}{T(T-1)} \sum_k \sum_{j<k} (a_j^k - a_j^j) / a_j^j`.
        """
        a, T = self.values, len(self.values)
        ratios = [(a[k, j] - a[j, j]) / a[j, j] for k in range(T) for j in range(k)]
        return float(np.mean(ratios)) if ratios else 0.0

    def performance(self) -> float:
        r"""Average Performance (Eq. 13): :math:`\frac{2}{T(T+1)} \sum_k \sum_{j \le k} a_j^k`."""
        a, T = self.values, len(self.values)
        return float(np.mean([a[k, j] for k in range(T) for j in range(k + 1)]))

    def spto(self, *, sums: bool = False) -> float:
        r"""Stability-plasticity trade-off (Eq. 14): :math:`2SP/(S+P)`, S over the last row, P over the diagonal.

        The paper writes S and P as sums; its printed numbers are means over T.  ``sums=True`` gives the other.
        """
        S, P = float(self.values[-1].mean()), float(np.diag(self.values).mean())
        if S + P == 0:
            return 0.0
        return 2 * S * P / (S + P) * (len(self.values) if sums else 1)


@dataclass(frozen=True, slots=True)
class Scores:
    """The matrices of all four metrics for one method in one setting."""

    matrices: dict[str, ScoreMatrix]

    @classmethod
    def from_errors(cls, rows: list[list[dict[str, float]]]) -> "Scores":
        """``rows[k][j]``: errors on D_j after D_k."""
        return cls({m: ScoreMatrix(np.array([[cell[m] for cell in row] for row in rows], np.float64)) for m in METRICS})

    def summary(self) -> dict[str, dict[str, float]]:
        """forgetting (fractions), performance and spto (mm, 1/km) by metric."""
        return {
            "forgetting": {m: a.forgetting() for m, a in self.matrices.items()},
            "performance": {m: a.performance() for m, a in self.matrices.items()},
            "spto": {m: a.spto() for m, a in self.matrices.items()},
        }

    def to_json(self) -> dict[str, Any]:
        return {m: a.values.tolist() for m, a in self.matrices.items()}
