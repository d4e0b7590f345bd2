"""Points of a space: the same number for every method, all distinct, and beyond an edge where the best is there."""

import itertools
import json

import pytest

from protodepth.errors import UnknownNameError
from protodepth.experiments.trials import (
    EXTRA,
    SPACES,
    STEPS,
    JudgedTrial,
    LogRange,
    Trial,
    Ways,
    edge_of,
    following,
    key,
    trials,
)
from protodepth.methods.base import methods


def judged(method: str, *rows: tuple[dict, float]) -> list[JudgedTrial]:
    return [(Trial(method, n, values), values, error) for n, (values, error) in enumerate(rows)]


def search(method: str, start: dict, count: int, error) -> list[JudgedTrial]:
    rows: list[JudgedTrial] = []
    for trial in trials(method, count // 2):
        values = trial.values or start
        rows.append((trial, values, error(values)))
    while (more := following(rows, count)) is not None:
        rows.append((more, more.values, error(more.values)))
    return rows


def test_every_method_has_a_space_and_the_first_trial_is_the_recipe():
    for method, space in SPACES.items():
        points = trials(method, 9)
        assert [t.number for t in points] == list(range(9))
        assert points[0].tuned({}) == {}
        assert len({json.dumps(t.values) for t in points}) == 9
        assert "steps" in points[1].values
        for trial, part in itertools.product(points[1:], space):
            if isinstance(part, LogRange):
                assert 0.95 * part.low <= trial.values[part.name] <= 1.05 * part.high
            else:
                assert trial.values[part.name] in part.values
    with pytest.raises(UnknownNameError, match="ewc"):
        trials("pretrained", 3)


def test_names_of_a_space_are_settings_of_the_method():
    for method, space in SPACES.items():
        kind = methods.get(method).Config
        for part in space:
            if part.name not in ("rate", "steps", "sizes"):
                assert hasattr(kind(), part.name), (method, part.name)
    assert ("log", "depth") in [p.values for p in SPACES["lwf"] if isinstance(p, Ways)]


@pytest.mark.parametrize("method", ["finetune", "ewc", "lwf", "ancl", "l2p", "protodepth"])
def test_all_methods_end_with_the_same_number_of_distinct_trials_where_the_best_is_inside(method: str):
    start = {p.name: p.at(0.5) for p in SPACES[method]}
    rows = search(method, start, 10, lambda values: 0.0 if key(values) == key(start) else 1.0)
    assert edge_of(rows) is None
    assert len(rows) == 10
    assert len({key(values) for _, values, _ in rows}) == 10


def test_a_best_at_an_edge_moves_it_until_something_lies_beyond():
    rows = search("finetune", {"rate": 1e-3, "steps": 500}, 8, lambda v: abs(v["rate"] / 2e-2 - 1))
    best = min(rows, key=lambda row: row[2])
    assert 0.6e-2 < best[1]["rate"] < 5e-2  # the space ended at 5e-3
    assert max(v["rate"] for _, v, _ in rows) > best[1]["rate"]


def test_an_edge_without_an_end_gets_no_more_than_the_extra_trials():
    rows = search("finetune", {"rate": 1e-3, "steps": 500}, 8, lambda v: v["rate"])
    assert len(rows) == 8 + EXTRA
    edge = edge_of(rows)
    assert edge is not None
    assert (edge[0].name, edge[1]) == ("rate", -1)


def test_where_the_budget_ends_is_no_edge():
    rows = judged("finetune", ({"rate": 1e-3, "steps": 500}, 3.0), ({"rate": 5e-4, "steps": 1500}, 1.0),
                  ({"rate": 1e-4, "steps": 1000}, 2.0))  # fmt: skip
    assert edge_of(rows) is None
    assert STEPS.ends(1500)
    assert not STEPS.ends(1450)


def test_ways_have_no_edge_and_a_failed_trial_is_never_the_best():
    rows = judged("lwf", ({"rate": 1e-3, "weight": 1.0, "space": "log", "steps": 1500}, 1.0),
                  ({"rate": 1e-2, "weight": 9.0, "space": "depth", "steps": 500}, float("inf")),
                  ({"rate": 1e-4, "weight": 0.1, "space": "depth", "steps": 500}, 2.0))  # fmt: skip
    assert edge_of(rows) is None
