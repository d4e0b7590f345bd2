"""Scores over seeds, paired differences, gains, costs, findings."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from helpers.bench_cells import document, row_cell
from protodepth.experiments import (
    main_tables,
    scores,
)
from protodepth.experiments.scores import Group, groups
from protodepth.report.tables import Table, Value


@pytest.fixture
def rows() -> list[scores.Group]:
    """Two seeds.  Baseline: D_1 10 -> 15 and 10 -> 13, D_2 8 and 6; ours: 10, 10 and 6, 6;
    without the name 10 -> 11.
    """
    finished = [
        (row_cell("finetune", 0), document("finetune", [[10, 99], [15, 8]])),
        (row_cell("finetune", 1), document("finetune", [[10, 99], [13, 6]])),
        (row_cell("protodepth", 0), document("protodepth", [[10, 99], [10, 6]], [[10, 99], [11, 6]])),
        (row_cell("protodepth", 1), document("protodepth", [[10, 99], [10, 6]], [[10, 99], [11, 6]])),
    ]
    return scores.groups(finished)


def find(table: Table, *heads: str) -> dict[str, Value | str]:
    (line,) = (line for line in table.lines if line.heads[-len(heads) :] == heads)
    names = [f"{c.group} {c.title}".strip() for c in table.columns]
    return dict(zip(names, line.cells, strict=True))


def signed_numbers(text: str) -> list[float]:
    """A difference and the ends of its interval."""
    return [float(number) for number in re.findall(r"[-+][0-9.]+", text)]


def test_scores_are_mean_and_spread_over_seeds_beside_the_printed_numbers(rows):
    table = main_tables.score_table(rows, "indoor", paper=True)
    fine = find(table, "Finetuned")["Forgetting MAE"]
    assert fine.mean == pytest.approx(40.0)  # 50 % and 30 %
    assert fine.spread == pytest.approx(np.std([50, 30], ddof=1))
    assert fine.paper == 16.08
    ours = find(table, "ProtoDepth")["Average performance MAE"]
    assert (ours.mean, ours.spread, ours.paper) == (pytest.approx(26 / 3), 0.0, 52.497)
    assert find(table, "ProtoDepth-A")["Forgetting MAE"].mean == pytest.approx(10.0)


def test_paired_differences_use_the_same_seed_and_two_seeds_decide_nothing(rows):
    table = main_tables.paired_table(rows)
    cells = find(table, "Finetuned minus ProtoDepth")
    assert cells["Forgetting MAE"].startswith("+40.00 (")
    mean, low, high = signed_numbers(cells["Average performance MAE"])
    assert mean == pytest.approx(((33 - 26) / 3 + (29 - 26) / 3) / 2, abs=0.05)
    # Student's t of one degree of freedom times the standard error of 7/3 and 1, which 2000 resamples know to 5 %
    assert (high - mean, mean - low) == pytest.approx((12.706 * 2 / 3,) * 2, rel=0.05)
    assert cells["Average performance MAE"].endswith("undecided")
    assert cells["seeds"] == "2"
    assert find(table, "Finetuned minus ProtoDepth-A")["Forgetting MAE"].startswith("+30.00 (")


def test_the_gain_is_that_of_the_paper_when_the_papers_rows_are_put_in(rows):
    table = main_tables.gain_table(rows, "indoor")
    cells = find(table, "ProtoDepth-A")
    assert cells["Forgetting"].mean == pytest.approx(75.0)  # 10 instead of 40
    assert cells["Forgetting"].paper == 52.22
    assert "52.22" in cells["the paper's text"]


def test_findings_say_zero_forgetting_and_where_agnostic_wins(rows):
    text = " ".join(main_tables.findings(rows, "indoor"))
    assert "at most 0.000000 %" in text
    assert "75.0 % below the best baseline's on average (over 4 cells of network and metric), 2 seed(s) in" in text
    assert "in common: whether less than half of it is undecided." in text
    assert "ProtoDepth-A beats ProtoDepth in: no cell." in text
    assert "In the paper it does in: VOICED" in text
    end = "KBNet, Error at the end (MAE): ProtoDepth 8.0 mm, Finetuned 10.5 mm, difference "
    (sentence,) = (line for line in main_tables.findings(rows, "indoor") if line.startswith(end))
    assert sentence.endswith("), 2 seed(s), fewer than 3 seeds: undecided.")
    assert signed_numbers(sentence)[0] == 2.5  # ours (10 + 6) / 2; the baseline 11.5 and 9.5
    assert "KBNet, ProtoDepth-A above ProtoDepth (MAE): Average performance +3.8 % (2 seed(s))," in text
    learned = "KBNet, later domains when learned (MAE): ProtoDepth 6.0 mm, Finetuned 7.0 mm, "
    assert learned + "-14.3 % (2 seed(s)): undecided." in text


def three_seeds(by_seed: Sequence[float]) -> list[Group]:
    """Finetuning forgets 40 % and ProtoDepth-A so many per cent, by seed; both have learned D_2 to 8 and 6 mm."""
    finished = []
    for seed, forgotten in enumerate(by_seed):
        agnostic = [[10, 99], [10 + forgotten / 10, 6]]
        finished += [
            (row_cell("finetune", seed), document("finetune", [[10, 99], [14, 8]])),
            (row_cell("protodepth", seed), document("protodepth", [[10, 99], [10, 6]], agnostic)),
        ]
    return groups(finished)


@pytest.mark.parametrize(
    ("forgotten", "words"),
    [
        ((4, 5, 6), ", by seed +87.5 (+81.3 to +93.7), 3 seeds: less than half of it."),
        ((4, 5, 38), "3 seeds: undecided whether less than half of it."),
        ((36, 37, 38), "3 seeds: not less than half of it."),
    ],
)
def test_half_the_forgetting_is_claimed_only_where_the_seeds_decide_it(
    forgotten: tuple[float, ...], words: str
) -> None:
    (sentence,) = (line for line in main_tables.findings(three_seeds(forgotten), "indoor") if "below the best" in line)
    assert sentence.endswith(words)


def test_what_is_learned_has_an_interval_and_a_verdict() -> None:
    text = " ".join(main_tables.findings(three_seeds((4, 5, 6)), "indoor"))
    assert "ProtoDepth 6.0 mm, Finetuned 8.0 mm, -25.0 % (-25.0 to -25.0): better." in text


def test_a_variant_of_ours_is_judged_against_the_baselines_and_is_none_of_them(rows):
    own = (row_cell("protodepth-own", 0), document("protodepth-own", [[10, 99], [10, 4]], [[10, 99], [10, 5]]))
    both = [*rows, *groups([own])]
    text = " ".join(main_tables.findings(both, "indoor"))
    assert "KBNet, Error at the end (MAE): ProtoDepth-own 7.0 mm, Finetuned 10.5 mm, difference +4.5" in text
    assert "KBNet, Error at the end (MAE): ProtoDepth 8.0 mm, Finetuned 10.5 mm, difference +2.5" in text
    assert "later domains when learned (MAE): ProtoDepth-own 4.0 mm, Finetuned 7.0 mm" in text
    assert find(main_tables.paired_table(both), "ProtoDepth minus ProtoDepth-own")["seeds"] == "1"
    gains = [find(main_tables.gain_table(several, "indoor"), "ProtoDepth") for several in (rows, both)]
    assert gains[0] == gains[1]


def test_costs_leave_out_the_times_of_resumed_runs(rows):
    rows[0].documents[0]["about"] = {"resumed": True}
    rows[0].documents[0]["training_seconds"] = {"finetune": [100.0]}
    cells = find(main_tables.cost_table(rows), "Finetuned")
    assert cells["training"].mean == 2.0
    assert cells["parameters extra"].mean == pytest.approx(5.0)  # the last of two columns of that name: per cent


def test_a_run_on_the_papers_datasets_is_compared_and_one_on_others_is_not() -> None:
    printed = next(r for r in main_tables.score_rows("indoor") if (r.backbone, r.method) == ("kbnet", "finetune"))
    errors = [[printed.value("performance", "mae")] * 3] * 3
    wanted = ["nyu_v2", "scannet", "void"]
    finished = [(row_cell("finetune", 0), {**document("finetune", errors), "domains": wanted})]
    assert not main_tables.same_sets(finished, "indoor")
    cell = replace(finished[0][0], inputs={"recipe": {"name": "paper-indoor"}})
    finished = [(cell, finished[0][1])]
    assert main_tables.same_sets(finished, "indoor")
    assert not main_tables.same_sets([(cell, {**finished[0][1], "domains": wanted[::-1]})], "indoor")
    table = main_tables.beside_table(groups(finished), "indoor")
    assert table.lines[0].cells[0] == "+0.0 % ="
    assert not str(table.lines[0].cells[1]).endswith("=")
