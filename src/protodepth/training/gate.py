"""For which densities of points a new domain answers: where judges find it worse than the base, the base does.

A recording teaches some densities better than others: a network that completes five hundred points of a street better
may have lost a little at a hundred.  Judging cases are grouped by the share of their pixels that has a point; of the
two outer groups each is left to the base in which the cases that choose the step, or those that give the verdict, have
a larger error on average.
"""

from collections.abc import Sequence

import numpy as np

from protodepth.data.hidden import DENSE
from protodepth.training.watch import Case

FEW = 0.002  # share of the pixels with points below which they are few
EVERYTHING = 2.0  # more than any share
FEWEST = 2  # cases that a group needs to say anything

Gate = tuple[
    float, float
]  # the least share of pixels with points that a domain answers for, and the first that is more


def shown_shares(cases: Sequence[Case]) -> np.ndarray:
    """Of each case, the share of the pixels that has a point."""
    return np.array([(case.frame.sparse_depth > 0).mean() for case in cases])


def find_gate(judged: Sequence[tuple[np.ndarray, np.ndarray]]) -> Gate | None:
    """From the shares of each set of judges and the logarithms of their errors' ratios; None: for every density.

    >>> shares, logs = np.array([0.001, 0.001, 0.01, 0.5, 0.5]), np.array([0.1, -0.02, -0.2, -0.1, -0.1])
    >>> find_gate([(shares, logs)]), find_gate([(shares, logs - 0.1)])
    ((0.002, 2.0), None)
    """
    least = FEW if _worse(judged, 0.0, FEW) else 0.0
    most = DENSE if _worse(judged, DENSE, EVERYTHING) else EVERYTHING
    return None if (least, most) == (0.0, EVERYTHING) else (least, most)


def _worse(judged: Sequence[tuple[np.ndarray, np.ndarray]], least: float, most: float) -> bool:
    groups = (logs[(shares >= least) & (shares < most)] for shares, logs in judged)
    return any(len(logs) >= FEWEST and float(logs.mean()) > 0 for logs in groups)


def answered(cases: Sequence[Case], gate: Gate | None) -> np.ndarray:
    """Which cases a domain with this gate answers itself."""
    shares = shown_shares(cases)
    return np.ones(len(cases), bool) if gate is None else (shares >= gate[0]) & (shares < gate[1])
