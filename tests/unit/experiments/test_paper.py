"""The stored numbers are the printed ones, and they obey the definitions that the program uses."""

import re

import numpy as np
import pytest

from helpers.documents import ROOT
from protodepth.errors import UnknownNameError
from protodepth.experiments.paper import (
    SCORES,
    ScoreRow,
    agnostic_wins,
    by_metric,
    claims,
    gain,
    main_rows,
    names,
    score_rows,
    table,
)
from protodepth.metrics import METRICS, ScoreMatrix

PAPER = ROOT / ".." / "shared" / "paper" / "protodepth.tex"
SIZES = {"indoor": (10, 5), "outdoor": (25, 10)}
BASES = {"indoor": (84.056, 169.864, 16.123, 34.169), "outdoor": (254.111, 1113.121, 0.998, 3.115)}  # of KBNet on D_1


def ours(sequence: str, backbone: str = "kbnet", setting: str = "incremental") -> ScoreRow:
    (row,) = (r for r in main_rows(sequence) if (r.backbone, r.method, r.setting) == (backbone, "protodepth", setting))
    return row


def best_sizes(sequence: str) -> list[list[float]]:
    """Errors on D_2 and D_3 of the set sizes that the main experiments use."""
    found = table(f"set-sizes-{sequence}")
    (row,) = (r for r in found["rows"] if (r.get("image_size"), r.get("depth_size")) == SIZES[sequence])
    return [row[name] for name in found["domains"]]


@pytest.mark.parametrize("sequence", ["indoor", "outdoor"])
def test_spto_is_a_harmonic_mean_of_means_and_gives_the_printed_average_performance(sequence):
    """Without forgetting a_j^k = x_j: SPTO (means) gives x_1,
    and x gives Average Performance with D_1 counted three times.
    """
    second, third = best_sizes(sequence)
    for n, metric in enumerate(METRICS):
        first = 3 * ours(sequence).value("spto", metric) - second[n] - third[n]
        assert first == pytest.approx(BASES[sequence][n], abs=2e-3)
        matrix = ScoreMatrix(np.tile([first, second[n], third[n]], (3, 1)))
        # the sensitivity table has two decimals: 0.005 of rounding in three terms each
        assert matrix.performance() == pytest.approx(ours(sequence).value("performance", metric), abs=6e-3)
        assert matrix.spto() == pytest.approx(ours(sequence).value("spto", metric), abs=1e-9)
        assert matrix.spto(sums=True) == pytest.approx(3 * ours(sequence).value("spto", metric))
        assert matrix.forgetting() == 0


def test_the_sum_definition_of_spto_contradicts_the_tables():
    """As sums S = P = 3 x 44.092 would be printed; then x_1 = 44.092 - 14.59 - 33.63 would be negative."""
    second, third = best_sizes("indoor")
    assert ours("indoor").value("spto", "mae") - second[0] - third[0] < 0


GAINS = {
    ("indoor", "agnostic"): (52.22, 5.41, 4.27),
    ("indoor", "incremental"): (100.0, 6.59, 5.15),
    ("outdoor", "agnostic"): (53.21, 5.19, 5.44),
    ("outdoor", "incremental"): (100.0, 7.00, 6.99),
}


@pytest.mark.parametrize("key", GAINS, ids="-".join)
def test_the_gain_over_the_best_baseline_is_the_one_the_tables_give(key):
    sequence, setting = key
    found = [gain(main_rows(sequence), score, setting) for score in SCORES]
    assert [round(g.mean, 2) for g in found] == pytest.approx(GAINS[key], abs=0.005)
    assert all(len(g.cells) == 12 and not g.undefined for g in found)


@pytest.mark.parametrize("setting", ["agnostic", "incremental"])
def test_the_text_exchanges_the_two_gains_indoors(setting):
    said = claims("indoor", setting)
    performance, spto = (gain(main_rows("indoor"), s, setting).mean for s in ("performance", "spto"))
    assert (said["spto"], said["performance"]) == pytest.approx((performance, spto), abs=0.02)


def test_forgetting_claims_of_the_abstract_come_from_the_tables():
    for sequence in ("indoor", "outdoor"):
        assert gain(main_rows(sequence), "forgetting", "agnostic").mean == pytest.approx(
            claims(sequence, "agnostic")["forgetting"], abs=0.005
        )


def test_incremental_protodepth_forgets_nothing_and_the_baselines_do():
    for sequence in ("indoor", "outdoor"):
        for row in main_rows(sequence):
            values = list(row.scores["forgetting"].values())
            zero = row.method == "protodepth" and row.setting == "incremental"
            assert (max(values) == 0) == zero
            assert (min(values) == 0) == zero


def test_agnostic_beats_incremental_in_some_cells_indoors_and_in_none_outdoors():
    assert agnostic_wins(main_rows("outdoor")) == []
    found = {(b, s, m) for b, s, m, _ in agnostic_wins(main_rows("indoor"))}
    assert found == {
        ("voiced", "performance", "imae"),
        ("voiced", "spto", "imae"),
        ("voiced", "spto", "irmse"),
        ("fusionnet", "performance", "imae"),
    }


def test_the_additional_table_repeats_the_main_one_with_two_decimals():
    for sequence in ("indoor", "outdoor"):
        (short,) = (
            r
            for r in table("additional")["rows"]
            if (r["sequence"], r["backbone"], r["method"]) == (sequence, "kbnet", "protodepth")
        )
        exact = ours(sequence, setting="agnostic")
        for score in SCORES:
            # 0.0051: the paper cuts 1.045 to 1.04
            assert short[score] == pytest.approx([exact.value(score, m) for m in METRICS], abs=0.0051)


def test_a_best_baseline_below_zero_is_named_and_left_out():
    def row(method: str, setting: str, mae: float) -> ScoreRow:
        return ScoreRow("n", method, setting, {"forgetting": {m: mae if m == "mae" else 4.0 for m in METRICS}})

    found = gain([row("replay", "incremental", -1.0), row("protodepth", "agnostic", 2.0)], "forgetting", "agnostic")
    assert found.undefined == (("n", "mae"),)
    assert found.cells == {("n", m): 0.0 for m in METRICS[1:]}


def test_pretrained_and_joint_are_no_baselines():
    def row(method: str, value: float) -> ScoreRow:
        return ScoreRow("n", method, "incremental", {"spto": dict.fromkeys(METRICS, value)})

    rows = [row("pretrained", 1.0), row("joint", 1.0), row("ewc", 10.0), row("lwf", 8.0), row("protodepth", 4.0)]
    assert gain(rows, "spto", "incremental").mean == 50
    assert gain(rows, "spto", "incremental", baselines=("ewc",)).mean == 60


def test_an_unknown_table_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match="zero-shot"):
        table("nothing")


def test_mixed_rows_come_from_the_additional_table():
    assert {(r.backbone, r.method) for r in score_rows("mixed")} == {
        ("kbnet", "ancl"),
        ("kbnet", "cmp"),
        ("kbnet", "protodepth"),
        ("uformer", "l2p"),
        ("uformer", "protodepth"),
    }
    assert by_metric([1.0, 2.0]) == {"mae": 1.0, "rmse": 2.0}


# --- against the source of the paper ----------------------------------------------------------------------------------


def printed(label: str) -> list[str]:
    """Every number with a decimal point in a table, as printed, in order."""
    if not PAPER.is_file():
        pytest.skip("the source of the paper is not at hand")
    text = PAPER.read_text()
    end = text.index(f"\\label{{{label}}}")
    body = text[text.rindex("\\toprule", 0, end) : text.rindex("\\end{tabular}", 0, end)]
    body = re.sub(r"\\(vspace|hspace|multirow)\*?\{[^}]*\}|\[-?[\d.]+mm\]|\\shortstack", " ", body)
    return re.findall(r"\d+\.\d+", body)


def stored(name: str) -> list[float]:
    numbers: list[float] = []

    def walk(value: object) -> None:
        if isinstance(value, list):
            for item in value:
                walk(item)
        elif isinstance(value, dict):
            for item in value.values():
                walk(item)
        elif isinstance(value, float):
            numbers.append(value)

    walk(table(name)["rows"])
    return numbers


@pytest.mark.parametrize("name", [n for n in names() if n != "ablations"])
def test_every_printed_number_is_stored_and_nothing_else(name):
    here = sorted(stored(name))
    there = sorted(float(x) for x in printed(table(name)["label"]))
    if name.startswith("set-sizes"):  # "0M (0%)" of the frozen network has no decimal point
        here = [v for v in here if v]
    assert here == there


def test_every_printed_number_of_both_ablation_tables_is_stored():
    first, second = (sorted(float(x) for x in printed(f"tab:{t}")) for t in ("ablations", "additional_ablations"))
    full = next(r for r in table("ablations")["rows"] if r["variant"] == "none")
    again = [*full["ScanNet"], *full["Waymo"]]  # the row "no ablations" stands in both
    assert sorted([*stored("ablations"), *again]) == sorted([*first, *second])
