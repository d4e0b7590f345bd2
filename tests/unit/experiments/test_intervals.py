"""Differences with intervals: paired by seed and scene, undecided where they hold zero."""

import numpy as np
import pytest

from protodepth.experiments.intervals import Interval, differences, resampled, score_of, standing
from protodepth.experiments.scores import Group
from protodepth.metrics import METRICS, ScoreMatrix

SCORES = ("forgetting", "performance", "spto", "end")


def group(method: str, by_seed: dict[int, np.ndarray], *, scenes: bool = True) -> Group:
    """``by_seed``: errors of every scene, [k, j, n]."""
    documents = {}
    for seed, errors in by_seed.items():
        matrix = errors.mean(-1).tolist()
        rows = [[errors[k, j].tolist() for j in range(k + 1)] for k in range(len(errors))]
        documents[seed] = {
            "matrix": {method: {"incremental": dict.fromkeys(METRICS, matrix)}},
            "scenes": {"incremental": {"mae": rows}} if scenes else {},
        }
    return Group("lite", method, "incremental", documents)


def errors(level: float, seed: int, shift: float = 0.0) -> np.ndarray:
    """Two domains of 40 scenes; a seed moves both methods alike, so that only pairing shows a small lead."""
    random = np.random.default_rng(seed)
    base = 100 + 30 * random.standard_normal() + 10 * random.standard_normal((1, 2, 40))
    own = np.random.default_rng((seed, 1000 + int(level * 10))).standard_normal((2, 2, 40))
    return np.broadcast_to(base, (2, 2, 40)) + level + shift + 0.5 * own


def test_the_scores_are_those_of_the_matrix() -> None:
    a = np.random.default_rng(0).uniform(1, 9, (3, 3))
    matrix = ScoreMatrix(a)
    assert score_of(a, "performance") == pytest.approx(matrix.performance())
    assert score_of(a, "spto") == pytest.approx(matrix.spto())
    assert score_of(a, "forgetting") == pytest.approx(100 * matrix.forgetting())
    assert score_of(a, "end") == pytest.approx(a[-1].mean())


def test_a_small_lead_is_decided_because_seeds_and_scenes_are_paired() -> None:
    ours = group("protodepth", {s: errors(0.0, s) for s in range(5)})
    other = group("ewc", {s: errors(2.0, s) for s in range(5)})
    interval = differences(ours, other, "mae", SCORES)["performance"]
    assert interval.mean == pytest.approx(2.0, abs=0.3)
    assert interval.low > 1.5
    assert interval.high < 2.5
    assert interval.verdict == "better"
    assert differences(other, ours, "mae", SCORES)["performance"].verdict == "worse"


def test_a_lead_that_changes_its_sign_with_the_seed_is_undecided() -> None:
    ours = group("protodepth", {s: errors(0.0, s) for s in range(5)})
    other = group("ewc", {s: errors(2.0, s, shift=(-12.0, 4.0, 6.0, -3.0, 1.0)[s]) for s in range(5)})
    assert differences(ours, other, "mae", ("spto",))["spto"].verdict == "undecided"


@pytest.mark.parametrize("seeds", [3, 5])
def test_an_interval_of_few_seeds_holds_the_true_difference_as_often_as_it_says(seeds: int) -> None:
    """Normal differences around 1: 95 % of 400 intervals hold it; the percentiles of the resamples would in 75 to 87 %.
    The bound is 95 % less three standard errors of a share of 400 (1.1 %)."""
    random, held = np.random.default_rng(0), 0
    ours = group("protodepth", dict.fromkeys(range(seeds), np.zeros((2, 2, 1))), scenes=False)
    for _ in range(400):
        by_seed = {s: np.full((2, 2, 1), 1 + random.standard_normal()) for s in range(seeds)}
        interval = differences(ours, group("ewc", by_seed, scenes=False), "mae", ("end",))["end"]
        held += interval.low <= 1 <= interval.high
    assert 0.917 <= held / 400 <= 0.983


def test_two_seeds_decide_nothing_and_no_shared_seed_says_nothing() -> None:
    ours = group("protodepth", {s: errors(0.0, s) for s in (0, 1)})
    other = group("ewc", {s: errors(50.0, s) for s in (0, 1)})
    interval = differences(ours, other, "mae", ("spto",))["spto"]
    assert interval.low > 0
    assert interval.verdict == "undecided"
    assert differences(ours, group("ewc", {7: errors(0.0, 7)}), "mae", ("spto",)) == {}


def test_scenes_are_taken_anew_and_older_results_keep_their_matrix() -> None:
    of_scenes = group("ewc", {3: errors(0.0, 3)})
    spread = resampled(of_scenes, 3, "mae")[:, 1, 0].std()
    assert spread == pytest.approx(errors(0.0, 3)[1, 0].std() / np.sqrt(40), rel=0.1)
    without = group("ewc", {3: errors(0.0, 3)}, scenes=False)
    assert np.ptp(resampled(without, 3, "mae")[:, 1, 0]) == 0


def test_a_scene_without_an_error_counts_for_nothing() -> None:
    plain = errors(0.0, 3)
    damaged = group("ewc", {3: plain})
    damaged.documents[3]["scenes"]["incremental"]["mae"][1][0][5] = None
    assert np.isfinite(resampled(damaged, 3, "mae")).all()


def test_first_is_better_than_every_other_and_worse_than_one_is_not_first() -> None:
    ours = group("protodepth", {s: errors(0.0, s) for s in range(4)})
    far, near = (group(m, {s: errors(v, s) for s in range(4)}) for m, v in (("ewc", 9.0), ("replay", 3.0)))
    ahead = group("cmp", {s: errors(-4.0, s) for s in range(4)})
    first = standing(ours, [far, near], "performance")
    assert first is not None
    assert (first.verdict, first.against) == ("first", "Replay")
    last = standing(ours, [far, near, ahead], "performance")
    assert last is not None
    assert (last.verdict, last.against) == ("not first", "CMP")
    level = group("lwf", {s: errors(0.0, s, shift=(-3.0, 3.0, -2.0, 2.5)[s]) for s in range(4)})
    open_question = standing(ours, [far, level], "performance")
    assert open_question is not None
    assert (open_question.verdict, open_question.against) == ("undecided", "LwF")
    assert standing(ours, [], "performance") is None


def test_an_interval_writes_its_ends_with_signs() -> None:
    assert Interval(-0.04, -1.26, 2.0, 5).text(2) == "-0.04 (-1.26 to +2.00)"
