"""Which densities a domain answers for: the outer ones only if no judge finds it worse there."""

import numpy as np

from protodepth.data.frame import Frame
from protodepth.training.gate import EVERYTHING, FEW, answered, find_gate, shown_shares
from protodepth.training.watch import Case

SHARES = np.array([0.001, 0.0015, 0.01, 0.02, 0.4, 0.9])
BETTER = np.full(6, -0.1)


def worse(*places: int) -> np.ndarray:
    logs = BETTER.copy()
    logs[list(places)] = 0.2
    return logs


def test_a_domain_that_is_better_everywhere_answers_everywhere() -> None:
    assert find_gate([(SHARES, BETTER), (SHARES, BETTER)]) is None


def test_an_outer_group_is_left_to_the_base_if_either_set_of_judges_finds_it_worse() -> None:
    assert find_gate([(SHARES, BETTER), (SHARES, worse(0))]) == (FEW, EVERYTHING)
    assert find_gate([(SHARES, worse(5)), (SHARES, BETTER)]) == (0.0, 0.15)
    assert find_gate([(SHARES, worse(5)), (SHARES, worse(1))]) == (FEW, 0.15)


def test_the_middle_is_for_the_verdict_and_one_case_says_nothing() -> None:
    assert find_gate([(SHARES, worse(2, 3))]) is None
    assert find_gate([(SHARES[1:], worse(0)[:5])]) is None


def test_few_is_below_two_thousandths_dense_from_fifteen_hundredths_on_and_no_share_is_above_the_last() -> None:
    shares = np.array([0.0019, 0.0019, 0.002, 0.003, 0.1499, 0.15, 0.15])
    few, between, dense = (np.isin(np.arange(7), places) * 0.2 - 0.1 for places in ([0, 1], [2, 3, 4], [5, 6]))
    assert find_gate([(shares, few)]) == (0.002, 2.0)
    assert find_gate([(shares, between)]) is None
    assert find_gate([(shares, dense)]) == (0.0, 0.15)


def test_a_domain_that_answers_as_the_base_does_is_left_its_densities() -> None:
    """Step 0 was kept: every ratio is one."""
    assert find_gate([(SHARES, np.zeros(6))]) is None


def test_cases_are_answered_by_the_share_of_their_pixels_that_has_points() -> None:
    cases = []
    for count in (0, 3, 40, 100):
        sparse = np.zeros((10, 10), np.float32)
        sparse.flat[:count] = 1.0
        frame = Frame(image=np.zeros((10, 10, 3)), sparse_depth=sparse, intrinsics=np.eye(3))
        cases.append(Case(frame, sparse, sparse))
    assert shown_shares(cases).tolist() == [0.0, 0.03, 0.4, 1.0]
    assert answered(cases, None).all()
    assert answered(cases, (FEW, 0.15)).tolist() == [False, True, False, False]
    assert answered(cases, (0.0, EVERYTHING)).all()
    assert answered(cases, (0.03, 0.4)).tolist() == [False, True, False, False]  # from the first on, below the second
