"""Every row of the paper's tables has a cell."""

import pytest

from helpers.bench_cells import TINY, _plain, change
from protodepth.errors import ConfigError, UnknownNameError
from protodepth.experiments import (
    bench,
    catalogue,
    paper,
)
from protodepth.experiments.planning import Options


def labels(name: str, options: Options = TINY) -> list[dict]:
    return [c.label for c in bench.plan([name], options)]


@pytest.mark.parametrize("sequence", ["indoor", "outdoor", "mixed"])
def test_every_row_of_the_main_and_additional_tables_has_a_cell(sequence):
    planned = {(x["backbone"], x["method"]) for x in labels(sequence)}
    printed = {(r.backbone, r.method) for r in paper.score_rows(sequence)}
    assert printed <= planned


@pytest.mark.parametrize("sequence", ["indoor", "outdoor"])
def test_every_row_of_the_set_size_tables_has_a_cell(sequence):
    rows = paper.table(f"set-sizes-{sequence}")["rows"]
    printed = {f"{r['image_size']}/{r['depth_size']}" if "image_size" in r else "" for r in rows}
    assert {x["variant"] for x in labels(f"set-sizes-{sequence}")} == printed


def test_every_row_of_the_other_tables_has_a_cell():
    ablated = {x["variant"] for x in labels("ablations")}
    assert ablated == {r["variant"] for r in paper.table("ablations")["rows"]}
    timed = {(x["method"], "agnostic" if x["variant"] == "A" else "incremental") for x in labels("training-time")}
    assert {(r["method"], r["setting"]) for r in paper.table("training-time")["rows"]} <= timed
    for name in ("joint", "zero-shot"):
        assert {r["method"] for r in paper.table(name)["rows"]} <= {x["method"] for x in labels(name)}
    assert "protodepth" in {x.get("method") for x in labels("foundation")}


def test_every_experiment_of_the_list_can_be_planned_and_is_listed():
    names = [
        "indoor",
        "outdoor",
        "mixed",
        "set-sizes-indoor",
        "set-sizes-outdoor",
        "ablations",
        "training-time",
        "joint",
        "zero-shot",
        "foundation",
        "forgetting-curve",
        "tsne",
        "qualitative",
        "classical",
    ]
    assert list(catalogue.EXPERIMENTS) == names
    text = catalogue.listing()
    for name in names:
        assert bench.plan([name], TINY)
        assert f"\n{name} " in text


def test_the_best_set_size_is_the_training_of_the_main_table():
    main = {c.key for c in bench.plan(["indoor"], TINY) if c.label["method"] == "protodepth"}
    sizes = {c.label["variant"]: c.key for c in bench.plan(["set-sizes-indoor"], TINY)}
    assert sizes["10/5"] in main
    assert sizes["10/10"] not in main


def test_every_seed_of_a_row_has_its_own_cell_and_its_own_buffer():
    cells = bench.plan(
        ["indoor"], Options(**{**_plain(TINY), "seeds": (0, 1), "backbones": ("lite",), "methods": ("replay",)})
    )
    assert len({c.key for c in cells}) == 2
    assert [c.inputs["recipe"]["seed"] for c in cells] == [0, 1]  # the buffer is drawn with it
    assert len({c.needs[0].key for c in cells}) == 2  # a seed draws its base, too


def test_unknown_names_list_the_choices():
    with pytest.raises(UnknownNameError, match="forgetting-curve"):
        bench.plan(["tables"], TINY)
    with pytest.raises(UnknownNameError, match="protodepth"):
        bench.plan(["indoor"], change(methods=("sgd",)))
    with pytest.raises(UnknownNameError, match="kbnet"):
        bench.plan(["indoor"], change(backbones=("resnet",)))
    with pytest.raises(UnknownNameError, match="mixed"):
        bench.plan(["tsne"], change(sequences=("underwater",)))
    with pytest.raises(UnknownNameError, match="small"):
        bench.plan(["indoor"], change(backbones=("kbnet",), preset="huge"))


def test_l2p_on_a_convolutional_network_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match="uformer"):
        bench.bench(["indoor"], tmp_path / "out", change(backbones=("lite",), methods=("finetune", "l2p")))
    assert not (tmp_path / "out").exists()
