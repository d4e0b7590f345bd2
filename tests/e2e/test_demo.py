"""The demo's claims, on the bundled outdoor model with less of its training and fewer of its frames."""

import json
from dataclasses import replace

import pytest
import torch

from protodepth.experiments.demo import demo
from protodepth.progress import Reporter
from protodepth.storage.folders import bundled
from protodepth.training import recipes

pytestmark = pytest.mark.skipif(
    "worlds-tiny-outdoor" not in bundled(), reason="the bundled model is not in this checkout"
)


def story(out, frames, steps):
    torch.set_num_threads(1)
    reporter, recipe = Lines(), recipes.SEQUENCES["outdoor"]()
    few = tuple(f"{domain.split('?')[0]}?{frames}" for domain in recipe.domains)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(recipes.SEQUENCES, "outdoor", lambda: replace(recipe, domains=few))
        result = demo(out, steps=steps, seed=0, reporter=reporter)
    return result, out, reporter.lines


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A fifteenth of the training: what does not depend on how long one learns."""
    return story(tmp_path_factory.mktemp("short"), "train=12&val=2&test=6", steps=30)


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A third of the training on half of the test frames."""
    return story(tmp_path_factory.mktemp("long"), "train=64&val=8&test=32", steps=150)


@pytest.fixture(params=["short", pytest.param("long", marks=pytest.mark.slow)])
def document(request):
    return request.getfixturevalue(request.param)


class Lines(Reporter):
    """Keeps what it would show."""

    def __init__(self):
        super().__init__(quiet=True)
        self.lines = []

    def line(self, text):
        self.lines.append(text)


def rows(document):
    return {(row["method"], row["setting"]): row for row in document["rows"]}


def test_prototypes_forget_exactly_nothing_when_the_domain_is_given(document):
    row = rows(document[0])["protodepth", "incremental"]
    assert row["forgetting"] == {"mae": 0.0, "rmse": 0.0, "imae": 0.0, "irmse": 0.0}


def test_finetuning_forgets(document):
    assert rows(document[0])["finetune", "incremental"]["forgetting"]["mae"] > 0.1


@pytest.mark.slow
def test_prototypes_perform_better_on_average(long):
    table = rows(long[0])
    assert (
        table["protodepth", "incremental"]["performance"]["mae"]
        < table["finetune", "incremental"]["performance"]["mae"]
    )


@pytest.mark.slow
def test_the_choice_by_descriptor_is_right_and_costs_little(long):
    table = rows(long[0])
    assert long[0]["selection_accuracy"] >= 0.85
    assert (
        table["protodepth", "agnostic"]["forgetting"]["mae"] < table["finetune", "incremental"]["forgetting"]["mae"] / 2
    )


def test_learning_helps_on_the_new_domains(document):
    matrices = document[0]["matrix"]["protodepth"]["incremental"]["mae"]
    for k in (1, 2):
        assert matrices[k][k] < 0.95 * matrices[0][k]  # the frozen network's error on the same frames


def test_results_json_has_the_promised_shape(document):
    stored = json.loads((document[1] / "results.json").read_text())
    for row in stored["rows"]:
        assert row["setting"] in ("incremental", "agnostic")
        for score in ("forgetting", "performance", "spto"):
            assert set(row[score]) == {"mae", "rmse", "imae", "irmse"}
    assert {row["method"] for row in stored["rows"]} == {"pretrained", "finetune", "protodepth"}
    assert 0 <= stored["selection_accuracy"] <= 1
    assert stored["seconds"] > 0
    assert "matrix" in stored


def test_the_report_is_one_file_without_outside_links(document):
    page = (document[1] / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert 'src="http' not in page
    assert "https://" not in page


def test_no_part_of_the_demo_is_silent(document):
    for method in ("pretrained", "finetune", "protodepth"):
        for world in ("street", "street_dusk", "highway"):
            assert f"{method}: evaluating after {world}" in document[2]
