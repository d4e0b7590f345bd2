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
