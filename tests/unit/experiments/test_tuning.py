"""Equal trials for every method, judged on val frames."""

import json
import math

import pytest

from helpers.bench_cells import change, document
from protodepth.errors import ConfigError, UnknownNameError
from protodepth.experiments import (
    tuning,
)
from protodepth.experiments.planning import chosen_values, read_tuned
from protodepth.experiments.trials import Trial, trials
from protodepth.methods.ewc import EWCConfig


def test_trials_are_judged_on_val_frames():
    trial = trials("ewc", 2)[1]
    planned = tuning.plan_trial(change(backbones=("lite",)), "indoor", "lite", trial)
    assert planned.inputs["split"] == "val"
    assert planned.inputs["recipe"]["rates"]["ewc"] == trial.values["rate"]
    assert planned.inputs["recipe"]["settings"]["ewc"]["strength"] == trial.values["strength"]


def test_trials_see_two_domains_or_all_three():
    trial = trials("protodepth", 1)[0]
    seen = [
        tuning.plan_trial(change(), "indoor", "lite", trial, domains).inputs["recipe"]["domains"] for domains in (2, 3)
    ]
    assert len(seen[0]) == 2
    assert len(seen[1]) == 3
    assert seen[1][:2] == seen[0]
    for wrong in (1, 4):
        with pytest.raises(ConfigError, match="must be 2 or 3"):
            tuning.plan_trial(change(), "indoor", "lite", trial, wrong)


def test_trials_may_start_from_chosen_values_and_change_only_their_own():
    start = {"indoor": {"any": {"protodepth": {"rate": 0.07, "settings": {"image_size": 60, "separation": 0.044}}}}}
    first, second = trials("protodepth", 2)
    kept = tuning.plan_trial(change(tuned=start), "indoor", "kbnet", first).inputs["recipe"]
    assert (kept["rates"]["protodepth"], kept["prototypes"]["image_size"], kept["prototypes"]["separation"]) == (
        0.07,
        60,
        0.044,
    )
    changed = tuning.plan_trial(change(tuned=start), "indoor", "kbnet", second).inputs["recipe"]
    assert changed["prototypes"]["image_size"] == 60
    assert changed["rates"]["protodepth"] == second.values["rate"] != 0.07
    assert changed["prototypes"]["separation"] == second.values["separation"] != 0.044


def test_a_network_without_values_of_its_own_takes_those_for_any_network_method_by_method():
    tuned = {"indoor": {"any": {"ewc": {"rate": 1e-3}, "lwf": {"rate": 2e-3}}, "kbnet": {"lwf": {"rate": 3e-3}}}}
    rates = {
        (b, m): chosen_values(tuned, "indoor", b, m).get("rate")
        for b in ("kbnet", "lite")
        for m in ("ewc", "lwf", "cmp")
    }
    assert list(rates.values()) == [1e-3, 3e-3, None, 1e-3, 2e-3, None]


def test_the_score_of_a_trial_is_the_geometric_mean_of_average_performance():
    assert tuning.score(document("ewc", [[10, 99], [15, 8]]), "ewc") == pytest.approx(11.0)
    both = document("protodepth", [[4, 99], [4, 4]], [[4, 99], [13, 10]])
    assert tuning.score(both, "protodepth") == pytest.approx(6.0)  # 4 told, 9 not told


def test_a_tuned_file_with_unknown_names_is_refused(tmp_path):
    (tmp_path / "t.toml").write_text("[indoor.lite.ewc]\nrate = 1e-3\n")
    assert read_tuned(tmp_path / "t.toml")["indoor"]["lite"]["ewc"]["rate"] == 1e-3
    (tmp_path / "t.toml").write_text("[indoors.lite.ewc]\nrate = 1e-3\n")
    with pytest.raises(UnknownNameError, match="outdoor"):
        read_tuned(tmp_path / "t.toml")
    (tmp_path / "t.toml").write_text('[indoor.lite.ewc]\nrate = "fast"\n')
    with pytest.raises(ConfigError, match=r"indoor\.lite\.ewc\.rate must be a positive number, got 'fast'"):
        read_tuned(tmp_path / "t.toml")
    (tmp_path / "t.toml").write_text("[indoor.lite.ewc]\nsteps = 0.5\n")
    with pytest.raises(ConfigError, match=r"indoor\.lite\.ewc\.steps must be a whole number above 0, got 0\.5"):
        read_tuned(tmp_path / "t.toml")
    (tmp_path / "t.toml").write_text("[indoor.lite.sgd]\nrate = 1e-3\n")
    with pytest.raises(UnknownNameError, match="ewc"):
        read_tuned(tmp_path / "t.toml")


def test_a_trial_ran_with_the_recipes_values_where_it_has_none_of_its_own():
    cell = tuning.plan_trial(change(), "indoor", "kbnet", Trial("ewc", 0, {}))
    assert tuning.values_of(cell, "ewc") == {"rate": 1e-3, "strength": EWCConfig().strength, "steps": 2}
    cell = tuning.plan_trial(change(), "indoor", "kbnet", Trial("protodepth", 1, {"sizes": (25, 10), "steps": 700}))
    values = tuning.values_of(cell, "protodepth")
    assert (values["sizes"], values["steps"], values["rate"]) == ((25, 10), 700, 6e-2)
    cell = tuning.plan_trial(change(), "indoor", "kbnet", Trial("lwf", 1, {"space": "log", "weight": 0.5}))
    assert cell.inputs["recipe"]["settings"]["lwf"] == {"space": "log", "weight": 0.5}


def test_trials_go_on_beyond_an_edge_and_the_file_names_one_that_stays(tmp_path, monkeypatch):
    """The error falls with the rate down to 1e-5, far below the space."""

    def results(self, cell):
        rate = cell.inputs["recipe"]["rates"]["finetune"]
        return document("finetune", [[10, 99], [10, 10 + abs(math.log(rate / 1e-5))]])

    monkeypatch.setattr(tuning, "run_cells", lambda cells, store, reporter: {})
    monkeypatch.setattr(tuning.Store, "done", lambda self, cell: True)
    monkeypatch.setattr(tuning.Store, "result", results)
    monkeypatch.setattr(tuning, "check_data", lambda cells, store: None)
    options = change(sequences=("indoor",), backbones=("lite",), methods=("finetune",),
                     tuned={"indoor": {"lite": {"finetune": {"rate": 1e-3}}}})  # fmt: skip
    chosen = tuning.tune(8, tmp_path, options)
    record = json.loads((tmp_path / "trials.json").read_text())["trials"]
    assert chosen["indoor", "lite", "finetune"]["rate"] == pytest.approx(1e-5, rel=0.3)
    assert len(record) >= 8
    assert len({json.dumps(t["values"], sort_keys=True) for t in record}) == len(record)
    (best,) = (t for t in record if t["chosen"])
    assert best["edge"] is None
    assert "steps" not in best["values"]  # they are given here
