"""Choosing a domain by distance, and saying "unknown": Gaussians over sample descriptors with one shared covariance.

Legend   s sample descriptor (b, c)   mu_k mean of domain k   S_k scatter of domain k   Sigma shared covariance   tau_k
         threshold

Each domain keeps the statistics of its own samples; they are taken once and never change.  What joins the domains
(Sigma, tau) is computed from them, so it follows whichever domains a model has.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from protodepth.errors import ConfigError, DataError, DomainError, UnknownNameError
from protodepth.types import BASE, Bool, Float, Int

Selection = Literal["auto", "descriptor", "gaussian"]
Unknown = Literal["nearest", "base", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a domain is chosen where none is given, and what is done with a frame that is far from all of them.

    ``descriptor`` is the paper's rule (largest cosine, Eq. 11), ``gaussian`` takes the smallest Mahalanobis distance,
    and ``auto`` is what the network was made for: the paper's rule, except where ``Backbone.selection`` says otherwise.
    A frame flagged unknown gets the chosen domain all the same (``nearest``), the un-adapted network (``base``),
    or raises a DomainError (``error``).
    """

    selection: Selection = "auto"
    unknown: Unknown = "nearest"
    false_alarms: float = 0.05  # share of a domain's own frames that may be flagged

    def __post_init__(self) -> None:
        for kind, value, choices in (("selection", self.selection, Selection), ("unknown rule", self.unknown, Unknown)):
            if value not in get_args(choices):
                raise UnknownNameError(kind, value, get_args(choices))
        if not 0 < self.false_alarms < 1:
            raise ConfigError(f"false_alarms is a share between 0 and 1, got {self.false_alarms}")


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """What a domain keeps of its sample descriptors.

    ``samples`` were left out of mean and scatter: their distances are those of frames that nobody fitted anything to.
    """

    count: int
    mean: Float[Tensor, "c"]
    scatter: Float[Tensor, "c c"]  # sum of (s - mean)(s - mean)^T
    samples: Float[Tensor, "m c"]

    @classmethod
    def of(cls, fitted: Float[Tensor, "n c"], left_out: Float[Tensor, "m c"]) -> "Statistics":
        """Statistics of descriptors, computed in double precision and kept in single.

        >>> Statistics.of(torch.tensor([[1.0], [3.0]]), torch.tensor([[2.0]])).scatter
        tensor([[2.]])
        """
        if len(fitted) < 2 or len(left_out) < 1:
            raise DataError(
                f"{len(fitted)} + {len(left_out)} frames are too few for statistics of a domain: expected 3 at least"
            )
        rows = fitted.detach().cpu().double()
        mean = rows.mean(0)
        scatter = (rows - mean).T @ (rows - mean)
        return cls(len(rows), mean.float(), scatter.float(), left_out.detach().cpu().float().clone())

    def tensors(self) -> dict[str, Tensor]:
        return {
            "count": torch.tensor(self.count),
            "mean": self.mean,
            "scatter": self.scatter,
            "samples": self.samples,
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], channels: int) -> "Statistics":
        """Raises KeyError for a missing tensor and ValueError for one of another shape."""
        count, mean, scatter, samples = (tensors[name] for name in ("count", "mean", "scatter", "samples"))
        if mean.shape != (channels,) or scatter.shape != (channels, channels) or samples.shape[1:] != (channels,):
            raise ValueError(f"statistics of {tuple(mean.shape)} channels, expected {channels}")
        return cls(int(count), mean, scatter, samples)

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in self.tensors().values())


def shrinkage(covariance: Float[Tensor, "c c"], count: int) -> float:
    r"""Share of :math:`\frac{\mathrm{tr} S}{c} I` that the sample covariance S of ``count`` samples needs.

    Oracle approximating shrinkage (Chen, Wiesel, Eldar, Hero 2010): it needs S and the count only, no samples.

    >>> shrinkage(torch.eye(4), 10)  # already a multiple of the identity
    1.0
    """
    c = len(covariance)
    trace, square = float(covariance.trace()), float(covariance.square().sum())
    spread = square - trace**2 / c
    share = ((1 - 2 / c) * square + trace**2) / ((count + 1 - 2 / c) * spread) if spread > 1e-12 * square else 1.0
    return min(1.0, share)


def shared_covariance(statistics: Sequence[Statistics]) -> Float[Tensor, "c c"]:
    r""":math:`\Sigma = D ((1 - \rho) R + \rho I) D` with :math:`D R D = S = \sum_k S_k / \sum_k (n_k - 1)` and D
    the deviations, in double precision.

    Correlations are shrunk, not covariances: channels of a network have scales that differ by orders, and the small
    ones would count for nothing.
    """
    freedom = sum(s.count - 1 for s in statistics)
    pooled = torch.stack([s.scatter.double() for s in statistics]).sum(0) / freedom
    variance = pooled.diagonal()
    least = max(1e-6 * float(variance.mean()), 1e-12)  # samples that are all alike still give a distance
    scale = variance.clamp(min=least).sqrt()
    correlation = pooled / scale[:, None] / scale
    share = shrinkage(correlation, freedom)
    shrunk = (1 - share) * correlation + share * torch.eye(len(scale), dtype=scale.dtype)
    return scale[:, None] * shrunk * scale


LONE = 1.5  # times the distance of the one left-out frame of a very short recording


@dataclass(frozen=True, slots=True, eq=False)
class Gaussians:
    r"""Distances :math:`d_k(s) = \sqrt{(s - \mu_k)^\top \Sigma^{-1} (s - \mu_k)}` to every domain,
    and thresholds for them.
    """

    means: Float[Tensor, "k c"]  # whitened: L^-1 mu_k
    whiten: Float[Tensor, "c c"]  # L^-1 with Sigma = L L^T
    own: tuple[Float[Tensor, "m"], ...]  # of each domain: distances of its left-out samples, in ascending order
    _thresholds: dict[float, Tensor] = field(
        default_factory=dict
    )  # by share: a quantile of t takes longer than a frame

    def distances(self, s: Float[Tensor, "b c"]) -> Float[Tensor, "b k"]:
        white = s.detach().float() @ self.whiten.to(s.device).T
        return (white[:, None] - self.means.to(s.device)[None]).square().sum(-1).sqrt()

    def thresholds(self, false_alarms: float = 0.05) -> Float[Tensor, "k"]:
        r"""tau_k: the distance that at most this share of the domain's own new frames exceeds.

        The :math:`\lceil (m + 1)(1 - \alpha) \rceil`-th smallest of m left-out distances, which holds for any
        distribution (split conformal prediction); with fewer samples than that needs, see ``few_samples_threshold``.
        """
        if false_alarms not in self._thresholds:
            thresholds = torch.stack([own_threshold(d, false_alarms) for d in self.own]).clamp(min=1e-6)
            self._thresholds[false_alarms] = thresholds
        return self._thresholds[false_alarms]


def own_threshold(own: Float[Tensor, "m"], false_alarms: float) -> Float[Tensor, ""]:
    rank = math.ceil((len(own) + 1) * (1 - false_alarms))
    return own[rank - 1] if rank <= len(own) else few_samples_threshold(own, false_alarms)


def few_samples_threshold(own: Float[Tensor, "m"], false_alarms: float) -> Float[Tensor, ""]:
    r"""For a short recording: :math:`e^{\bar x + t_{1-\alpha, m-1}\, \hat\sigma \sqrt{1 + 1/m}}` of the m log distances
    x.

    That is where a new frame lies below with probability 1 - alpha if log distances are normal;
    never below the largest seen.
    """
    from scipy.stats import t as student  # slow to import, and only short recordings need it

    if len(own) < 2:
        return LONE * own[-1]
    m, x = len(own), own.clamp(min=1e-6).double().log()
    quantile = float(student.ppf(1 - false_alarms, m - 1))
    bound = (x.mean() + quantile * x.std() * math.sqrt(1 + 1 / m)).exp().float()
    return torch.maximum(bound, own[-1])


def fit_gaussians(statistics: Sequence[Statistics]) -> Gaussians:
    """From the stored statistics of the domains, in their order."""
    factor = torch.linalg.cholesky(shared_covariance(statistics))
    whiten = torch.linalg.solve_triangular(factor, torch.eye(len(factor), dtype=factor.dtype), upper=False).float()
    means = torch.stack([s.mean for s in statistics]) @ whiten.T
    own = [
        (s.samples @ whiten.T - mean).square().sum(-1).sqrt().sort().values
        for s, mean in zip(statistics, means, strict=True)
    ]
    return Gaussians(means, whiten, tuple(own))


class StatisticsTable(dict[str, Statistics]):
    """Statistics by domain, and what they give together: kept while it holds, for inverting Sigma takes long."""

    _fitted: tuple[tuple[Statistics, ...], Gaussians] | None = None

    def gaussians(self, names: tuple[str, ...]) -> Gaussians | None:
        """Over these domains; None if one has no statistics, for a frame far from the others might belong to it."""
        return self._fit(tuple(self[name] for name in names)) if names and not self.missing(names) else None

    def distances(
        self, s: Float[Tensor, "b c"], names: tuple[str, ...], false_alarms: float
    ) -> "SampleDistances | None":
        """Of samples to these domains; None where ``gaussians`` is.  Nothing is computed before it is asked for."""
        if not names or self.missing(names):
            return None
        used = tuple(self[name] for name in names)  # of this moment
        return SampleDistances(s, partial(self._fit, used), false_alarms)

    def _fit(self, used: tuple[Statistics, ...]) -> Gaussians:
        kept = self._fitted
        if kept is None or kept[0] != used:  # statistics are equal only to themselves
            kept = self._fitted = used, fit_gaussians(used)
        return kept[1]

    def missing(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in self)


class SampleDistances:
    """How far samples are from every domain, computed when first asked for: with a domain given hardly anybody does."""

    def __init__(self, s: Float[Tensor, "b c"], gaussians: Callable[[], Gaussians], false_alarms: float) -> None:
        self._s, self._fit, self._false_alarms = s.detach(), gaussians, false_alarms

    @cached_property
    def _gaussians(self) -> Gaussians:
        return self._fit()

    @cached_property
    def distance(self) -> Float[Tensor, "b k"]:
        return self._gaussians.distances(self._s)

    @cached_property
    def excess(self) -> Float[Tensor, "b"]:
        """The smallest of distance / threshold."""
        return (self.distance / self._gaussians.thresholds(self._false_alarms).to(self._s.device)).amin(-1)

    @cached_property
    def unknown(self) -> Bool[Tensor, "b"]:
        return self.excess > 1


class Choice(NamedTuple):
    """The domain of each sample, and how far each is from what is known; None without statistics."""

    domains: tuple[str, ...]
    distances: SampleDistances | None  # columns as the names given to ``choose``


def choose(
    s: Float[Tensor, "b c"],
    names: tuple[str, ...],
    nearest: Int[Tensor, "b"] | None,
    statistics: StatisticsTable,
    domain: str | None,
    rule: Rule,
    auto: Selection = "descriptor",
) -> Choice:
    """The given domain, or for each sample the one that the rule picks among ``names``; no names:
    the un-adapted network.

    ``nearest`` is the choice by cosine (Eq. 11), which the rule ``gaussian`` replaces;
    ``auto`` is what the network prefers, if there are statistics for it.
    A frame can be called unknown only if every domain to choose from has statistics:
    else it might belong to one that has none.
    """
    distances = statistics.distances(s, names, rule.false_alarms)
    if domain is not None or nearest is None:
        return Choice((domain or BASE,) * len(s), distances)
    preferred = auto == "gaussian" and distances is not None
    if rule.selection == "gaussian" or (rule.selection == "auto" and preferred):
        nearest = _smallest(distances, statistics.missing(names))
    return Choice(_known(tuple(names[i] for i in nearest.tolist()), names, distances, rule.unknown), distances)


def _smallest(distances: SampleDistances | None, missing: tuple[str, ...]) -> Int[Tensor, "b"]:
    if distances is None:
        raise DomainError(
            f"selection 'gaussian' needs statistics, and domain {missing[0]!r} has none (it was made without them): "
            "adapt it again (the base: protodepth domains describe), or use selection 'descriptor'"
        )
    return distances.distance.argmin(-1)


def _known(
    chosen: tuple[str, ...], names: tuple[str, ...], distances: SampleDistances | None, what: Unknown
) -> tuple[str, ...]:
    """The chosen domains, after what the rule does with unknown samples."""
    if what == "nearest" or distances is None or not bool(distances.unknown.any()):
        return chosen
    if what == "error":
        raise DomainError(_far(names, distances))
    return tuple(BASE if far else name for far, name in zip(distances.unknown.tolist(), chosen, strict=True))


def _far(names: tuple[str, ...], distances: SampleDistances) -> str:
    unknown, row = distances.unknown, int(distances.unknown.nonzero()[0])
    table = ", ".join(f"{n} {d:.1f}" for n, d in zip(names, distances.distance[row].tolist(), strict=True))
    return (
        f"{int(unknown.sum())} of {len(unknown)} frames are unlike every known domain (distances {table}): "
        "adapt to this place (protodepth adapt), or let unknown frames be base or nearest (--unknown base)"
    )


def auroc(known: Float[Tensor, "n"], unseen: Float[Tensor, "m"]) -> float:
    """Chance that an unseen frame scores higher than a known one; ties count half.

    >>> auroc(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 3.0]))
    0.875
    """
    higher = (unseen[:, None] > known[None]).double() + 0.5 * (unseen[:, None] == known[None]).double()
    return float(higher.mean())
