"""The report: numbers in every form are those of the run, the page stands alone, runs merge."""

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from helpers import report_fakes as fakes
from helpers.mutants import mutants
from protodepth.errors import CheckpointError, DataError
from protodepth.experiments.demo import demo
from protodepth.report import run
from protodepth.report.results import marks, plain, written
from protodepth.report.run_page import curve_lines
from protodepth.types import Batch, BatchPrediction


@pytest.fixture(scope="module")
def document():
    return fakes.document()


@pytest.fixture(scope="module")
def samples():
    return fakes.samples((32, 48), 2)


@pytest.fixture(scope="module")
def html(document, samples):
    return run.html(document, samples, title="A <title> & more")


class Outline(HTMLParser):
    """Tags in order, and whether every one that opens is closed."""

    VOID = ("meta", "img", "br", "input", "link")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in (*self.VOID, "dt", "dd", "line", "circle", "path", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in ("dt", "dd", "circle"):
            assert self.open.pop() == tag, f"</{tag}> closes another element"

    def ids(self) -> list[str]:
        return [str(a["id"]) for _, a in self.tags if "id" in a]


# --- the document -----------------------------------------------------------------------------------------------------


def test_the_rows_are_pretrained_finetuned_protodepth_and_protodepth_a(document):
    assert [(r["method"], r["setting"]) for r in document["rows"]] == [
        ("pretrained", "incremental"),
        ("finetune", "incremental"),
        ("protodepth", "incremental"),
        ("protodepth", "agnostic"),
    ]
    assert all(set(r) == {"method", "setting", "forgetting", "performance", "spto"} for r in document["rows"])
    assert all(
        list(r[s]) == ["mae", "rmse", "imae", "irmse"]
        for r in document["rows"]
        for s in ("forgetting", "performance", "spto")
    )


def test_the_scores_of_a_row_follow_from_its_matrix_by_the_papers_sums(document):
    for row in document["rows"]:
        for metric in ("mae", "irmse"):
            a = document["matrix"][row["method"]][row["setting"]][metric]
            forgetting = sum((a[k][j] - a[j][j]) / a[j][j] for k in range(3) for j in range(k)) / 3
            performance = sum(a[k][j] for k in range(3) for j in range(k + 1)) / 6
            S, P = sum(a[2]) / 3, (a[0][0] + a[1][1] + a[2][2]) / 3
            assert row["forgetting"][metric] == pytest.approx(forgetting, abs=1e-12)
            assert row["performance"][metric] == pytest.approx(performance)
            assert row["spto"][metric] == pytest.approx(2 * S * P / (S + P))
    assert document["rows"][2]["forgetting"] == {"mae": 0.0, "rmse": 0.0, "imae": 0.0, "irmse": 0.0}


def test_the_document_survives_strict_json_and_counts_right_choices(document):
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["selection_accuracy"] == pytest.approx((62 + 57 + 61) / 192)
    assert run.results_document(fakes.results()[:2], seconds=1, about={})["selection_accuracy"] is None


def test_a_baseline_whose_settings_differ_gets_both_rows():
    told, chosen = fakes.scores(np.full((3, 3), 2.0).tolist()), fakes.scores(np.full((3, 3), 3.0).tolist())
    rows = run.results_document([fakes.result("l2p", told, chosen)], seconds=1, about={})["rows"]
    assert [r["setting"] for r in rows] == ["incremental", "agnostic"]


def test_numbers_that_do_not_exist_become_null_and_are_printed_as_a_dash():
    values = plain(
        {"a": float("nan"), "b": np.float32(1.5), "c": (np.int64(2), np.array([np.inf, 1.0])), "d": Path("x")}
    )
    assert values == {"a": None, "b": 1.5, "c": [2, [None, 1.0]], "d": "x"}
    bare = run.results_document([fakes.result("finetune", fakes.scores([[np.nan] * 3] * 3))], seconds=1, about={})
    assert bare["rows"][0]["spto"]["mae"] is None
    assert written("spto", "mae", None) == "–"
    Outline(run.html(bare))
    assert "–" in run.markdown(bare)


def test_only_methods_that_learn_in_sequence_are_ranked_and_ties_share_the_mark():
    names = ("pretrained", "finetune", "ewc", "protodepth", "joint")
    rows = [{"method": m, "spto": {"mae": v}} for m, v in zip(names, (1.0, 5.0, 3.0, 3.0, 0.5), strict=True)]
    assert marks(rows, "spto", "mae") == ["", "second", "best", "best", ""]


def test_facts_of_a_run_name_the_command_seed_and_versions_but_no_host():
    about = run.about_run("protodepth demo", 3, steps=400)
    assert about["command"] == "protodepth demo"
    assert about["seed"] == 3
    assert about["torch"] == torch.__version__
    assert about["cores"] >= 1
    assert "node" not in about
    assert about["steps"] == 400


# --- text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "columns"), [(140, 13), (90, 7)])
def test_the_terminal_table_fits_its_width_and_marks_the_best(document, width, columns):
    table = run.terminal_table(document, width=width)
    assert len(table.columns) == columns
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(table)
    text = console.file.getvalue()
    assert "…" not in text
    assert re.search(r"ProtoDepth .*?\x1b\[1m *0\.000", text)
    assert re.search(r"ProtoDepth-A .*?\x1b\[4m *0\.\d{3}", text)
    assert "72.333" in text


def test_markdown_has_one_row_a_method_with_the_same_numbers(document):
    rows = [line.strip("| ").split(" | ") for line in run.markdown(document).splitlines() if line.startswith("| ")]
    scores = {row[0]: row[1:] for row in rows if len(row) == 13}
    assert scores["ProtoDepth"][0] == "**0.000**"
    assert scores["ProtoDepth-A"][0].startswith("<u>")
    assert float(scores["Finetuned"][4]) == pytest.approx(document["rows"][1]["performance"]["mae"], abs=0.05)
    assert "93.8 %" in run.markdown(document)
    assert "after highway" in run.markdown(document)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_is_well_formed_and_every_id_is_used_once(html):
    outline = Outline(html)
    assert outline.open == []
    assert len(outline.ids()) == len(set(outline.ids()))
    assert {"scores", "matrix", "curves", "selection", "pictures", "points", "facts"} <= set(outline.ids())


def test_the_page_asks_for_nothing_from_outside(html):
    for tag, attributes in Outline(html).tags:
        assert tag not in ("link", "iframe", "object", "embed")
        for name in ("src", "href", "srcset", "action"):
            assert (attributes.get(name) or "data:").startswith("data:")
    assert "url(" not in html
    assert "@import" not in html
    assert re.findall(r"https?://[^\"' ]+", html.replace("http://www.w3.org/2000/svg", "")) == []
    assert "default-src 'none'; img-src data:" in html


def test_every_picture_has_a_text_and_all_methods_are_shown_for_every_sample(html, samples):
    pictures = [a for tag, a in Outline(html).tags if tag == "img" and a.get("src")]
    assert all(a["alt"] for a in pictures)
    for sample in samples:
        own = [a["alt"] for a in pictures if str(a["alt"]).endswith(f"{sample.name} ({sample.domain})")]
        assert len(own) == 3 + 2 * len(sample.predictions)


def test_words_from_outside_cannot_become_markup(html, document, samples):
    assert "<title>A &lt;title&gt; &amp; more</title>" in html
    evil = "</script><script>alert(1)</script>"
    nasty = {**document, "domains": [evil, "b", "c"], "about": {"command": evil}}
    text = run.html(nasty, [replace(samples[0], domain=evil, name=evil, chosen=evil)])
    assert "<script>alert" not in text
    assert Outline(text).open == []


def test_the_page_works_without_samples_curves_or_choices(document):
    bare = {**document, "curves": {}, "confusion": {}, "chosen_names": {}, "selection_accuracy": None}
    ids = Outline(run.html(bare)).ids()
    assert "scores" in ids
    assert not {"curves", "selection", "pictures", "points"} & set(ids)


def test_the_cloud_hides_what_has_no_ground_truth_only_where_ground_truth_is_dense(html, document, samples):
    lidar = [replace(s, ground_truth=s.sparse_depth) for s in samples]
    for text, dense in ((html, True), (run.html(document, lidar), False)):
        box = next(a for _, a in Outline(text).tags if a.get("id") == "cloud-known")
        assert ("checked" in box) == dense


def test_even_noise_of_large_frames_stays_below_six_megabytes(document, samples):
    rng = np.random.default_rng(0)
    size = (300, 400)
    large = []
    for n in range(6):
        maps = {label: rng.uniform(2, 80, size).astype(np.float32) for label in samples[0].predictions}
        image = rng.integers(0, 255, (*size, 3)).astype(np.uint8)
        large.append(
            replace(
                samples[n],
                image=image,
                sparse_depth=maps["Finetuned"],
                ground_truth=maps["ProtoDepth"],
                predictions=maps,
            )
        )
    assert len(run.html(document, large)) < 6e6


def test_the_curve_shows_each_seen_domain_over_all_stages(document):
    lines, stages = curve_lines(document, "street", "mae")
    assert [line.label for line in lines] == ["Finetuned", "ProtoDepth", "ProtoDepth-A"]
    assert stages == [(0.0, "street_dusk"), (400.0, "highway")]
    finetuned = lines[0].points
    assert finetuned[0] == (0.0, 940.0)
    assert finetuned[-1][0] == 800.0
    assert finetuned[-1][1] == pytest.approx(2.1 * 940, rel=0.02)
    late, _ = curve_lines(document, "highway", "mae")
    assert min(x for line in late for x, _ in line.points) > 400


# --- samples ----------------------------------------------------------------------------------------------------------


def test_samples_read_back_as_written(tmp_path: Path, samples):
    run.save_samples(tmp_path / "samples.npz", samples)
    for before, after in zip(samples, run.load_samples(tmp_path / "samples.npz"), strict=True):
        for name in ("image", "sparse_depth", "ground_truth", "intrinsics"):
            assert np.array_equal(getattr(before, name), getattr(after, name))
        assert list(before.predictions) == list(after.predictions)
        assert all(np.array_equal(before.predictions[k], after.predictions[k]) for k in before.predictions)
        assert (before.domain, before.name, before.chosen, before.similarity) == (
            after.domain,
            after.name,
            after.chosen,
            after.similarity,
        )
        assert before.caps == after.caps
    run.save_samples(tmp_path / "b.npz", [replace(samples[0], caps=(0.0, float("inf")))])
    assert run.load_samples(tmp_path / "b.npz")[0].caps == (0.0, float("inf"))


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 broken"])
def test_a_damaged_samples_file_is_named(tmp_path: Path, content):
    (tmp_path / "samples.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"samples\.npz"):
        run.load_samples(tmp_path / "samples.npz")


def test_predictions_are_asked_for_with_the_domains_name_and_without():
    asked = []

    def predict(batch: Batch, domain: str | None) -> BatchPrediction:
        asked.append(domain)
        depth = batch.sparse_depth + (2 if domain else 3)
        return BatchPrediction(
            depth=depth,
            domains=("highway",),
            similarity=torch.tensor([[0.1, 0.9]]),
            names=("street", "highway"),
            descriptor=torch.zeros(1, 2),
        )

    first = run.collect(fakes.worlds((32, 48), 3), 2)
    assert [s.name[-1] for s in first] == ["0", "2"] * 3
    out = run.add_predictions(first, predict, "ProtoDepth", "ProtoDepth-A")
    assert asked[:4] == ["street", None, "street", None]
    assert out[0].chosen == "highway"
    assert out[0].similarity == pytest.approx({"street": 0.1, "highway": 0.9})
    assert np.allclose(out[0].predictions["ProtoDepth"], first[0].sparse_depth + 2)
    assert np.allclose(out[0].predictions["ProtoDepth-A"], first[0].sparse_depth + 3)
    assert first[0].predictions == {}


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_run_folder_holds_the_four_files_and_reads_back(tmp_path: Path, document, samples):
    path = run.write_run(tmp_path / "run", document, samples)
    assert path == tmp_path / "run" / "report.html"
    assert {p.name for p in path.parent.iterdir()} == {"results.json", "samples.npz", "report.md", "report.html"}
    found, frames = run.read_run(tmp_path / "run")
    assert found == document
    assert len(frames) == len(samples)


def test_two_runs_merge_into_one_table_and_the_shared_method_is_told_apart(tmp_path: Path, samples):
    pretrained, finetune, protodepth = fakes.results()
    one = run.results_document([pretrained, finetune], seconds=10, about={"seed": 0})
    two = run.results_document([finetune, protodepth], seconds=20, about={"seed": 1})
    keep = ("Finetuned", "ProtoDepth")
    run.write_run(
        tmp_path / "one",
        one,
        [replace(s, predictions={"Finetuned": s.predictions["Finetuned"]}, chosen="") for s in samples],
    )
    run.write_run(tmp_path / "two", two, [replace(s, predictions={k: s.predictions[k] for k in keep}) for s in samples])
    paths = run.report_from_runs([tmp_path / "one", tmp_path / "two"], tmp_path / "all.html")
    assert [p.name for p in paths] == ["all.html", "all.md", "all.json"]
    merged = json.loads(paths[2].read_text())
    assert [run.row_name(r) for r in merged["rows"]] == [
        "Pretrained",
        "Finetuned (one)",
        "Finetuned (two)",
        "ProtoDepth",
        "ProtoDepth-A",
    ]
    assert set(merged["matrix"]) == {"pretrained", "finetune (one)", "finetune (two)", "protodepth"}
    assert merged["seconds"] == 30
    both = run.merge_samples({n: run.read_run(tmp_path / n)[1] for n in ("one", "two")})
    assert len(both) == len(samples)
    assert list(both[0].predictions) == ["Finetuned (one)", "Finetuned (two)", "ProtoDepth"]
    assert both[0].chosen == "street"
    assert Outline(paths[0].read_text()).open == []


def test_runs_on_other_sequences_get_their_own_part(tmp_path: Path, document):
    run.write_run(tmp_path / "one", document)
    run.write_run(tmp_path / "two", {**document, "domains": ["room", "warehouse", "corridor_night"]})
    html, text, data = run.report_from_runs([tmp_path / "one", tmp_path / "two"], tmp_path / "all")
    outline = Outline(html.read_text())
    assert len(outline.ids()) == len(set(outline.ids()))
    assert [p["domains"][0] for p in json.loads(data.read_text())["parts"]] == ["street", "room"]
    assert "room → warehouse → corridor_night" in text.read_text()


def test_a_folder_that_is_no_run_is_named_and_nothing_is_written(tmp_path: Path, document):
    (tmp_path / "empty").mkdir()
    run.write_run(tmp_path / "run", document)
    with pytest.raises(DataError, match=r"empty has no results\.json.*protodepth demo"):
        run.report_from_runs([tmp_path / "run", tmp_path / "empty"], tmp_path / "out.html")
    (tmp_path / "empty" / "results.json").write_text('{"rows": []}')
    with pytest.raises(DataError, match="has no matrix, seconds, domains, any row"):
        run.report_from_runs([tmp_path / "empty"], tmp_path / "out.html")
    (tmp_path / "empty" / "results.json").write_text("{")
    with pytest.raises(DataError, match="not readable JSON"):
        run.report_from_runs([tmp_path / "empty"], tmp_path / "out.html")
    with pytest.raises(DataError, match="is a folder"):
        run.report_from_runs([tmp_path / "run"], tmp_path)
    with pytest.raises(DataError, match="no run folder"):
        run.report_from_runs([], tmp_path / "out.html")
    assert not (tmp_path / "out.html").exists()


def attack(folder: Path, document, count: int, seed: int, *, sealed: bool) -> dict[str, int]:
    run.write_run(folder / "run", document)
    place = folder / "run" / "results.json"
    good = json.loads(place.read_text())
    if not sealed:
        good = {k: v for k, v in good.items() if k not in ("sealed", "format_version", "files")}
    seen, said = {"parsed": 0, "silent": 0}, []
    for bad in mutants(json.dumps(good, indent=2).encode(), count, seed):
        place.write_bytes(bad)
        try:
            value = json.loads(bad)
            seen["parsed"] += 1
        except (ValueError, RecursionError):
            value = None
        try:
            run.report_from_runs([folder / "run"], folder / "out.html")
            seen["silent"] += value != good
        except DataError as error:
            said.append(str(error))
    assert not any("\n" in text for text in said)
    return seen


def test_damaged_results_are_one_sentence(tmp_path: Path, document):
    seen = attack(tmp_path, document, 200, 5, sealed=True)
    assert seen["silent"] == 0
    assert seen["parsed"] > 20
    assert attack(tmp_path, document, 120, 6, sealed=False)["parsed"] > 12  # of an earlier version: no traceback


def test_edited_numbers_and_pictures_are_said_and_earlier_ones_taken(tmp_path: Path, document, caplog):
    run.write_run(tmp_path / "run", document)
    place = tmp_path / "run" / "results.json"
    good = json.loads(place.read_text())
    for edited in ({**good, "seconds": 1.0}, {k: v for k, v in good.items() if k not in ("sealed", "format_version")}):
        place.write_text(json.dumps(edited))
        with pytest.raises(DataError, match=r"results\.json .*edited or is damaged"):
            run.read_run(tmp_path / "run")
    place.write_text(json.dumps(good, indent=4))  # another layout of the same is the same
    samples = tmp_path / "run" / "samples.npz"
    stored = samples.read_bytes()
    samples.write_bytes(stored + b" ")
    with pytest.raises(DataError, match=r"samples\.npz .*edited or is damaged"):
        run.read_run(tmp_path / "run")
    samples.write_bytes(stored)
    assert run.read_run(tmp_path / "run")[0] == document
    assert not caplog.text
    place.write_text(json.dumps({k: good[k] for k in document}))
    assert run.read_run(tmp_path / "run")[0] == document
    assert "has no checksum" in caplog.text


@pytest.mark.slow
def test_of_ten_thousand_damaged_results_none_is_reported_in_silence(tmp_path: Path, document):
    seen = attack(tmp_path, document, 10_000, 7, sealed=True)
    assert seen["silent"] == 0
    print(seen)


def test_files_beside_a_page_that_were_not_named_are_not_overwritten(tmp_path: Path):
    run.write_run(tmp_path / "a", fakes.document(), ())
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(CheckpointError, match=r"README\.md exists and was not written"):
        run.report_from_runs([tmp_path / "a"], tmp_path / "README.html")
    assert (tmp_path / "README.md").read_text() == "mine"
    run.report_from_runs([tmp_path / "a"], tmp_path / "page.html")
    run.report_from_runs([tmp_path / "a"], tmp_path / "page.html")  # its own are written anew


def test_frames_and_steps_that_were_left_out_are_in_every_report(tmp_path: Path):
    bad = {"protodepth": {"hall train": {f"frame {n}": f"{n}.png is truncated" for n in range(25)}}}
    document = {**fakes.document(), "bad_frames": bad, "skipped_steps": {"protodepth": 3}}
    for text in (run.markdown(document), run.html(document)):
        assert "ProtoDepth: 3 steps skipped, not finite" in text
        assert "ProtoDepth, hall train, frame 19 left out: 19.png is truncated" in text
        assert "ProtoDepth, hall train: 5 more frames left out" in text
    assert "Left out" not in run.markdown(fakes.document())


def test_a_run_is_written_over_one_of_its_kind_and_over_nothing_else(tmp_path: Path, document):
    run.check_run_free(tmp_path / "new", "findings")
    (tmp_path / "notes.txt").write_text("mine")
    run.check_run_free(tmp_path, "findings")  # nothing in it would be met
    run.write_run(tmp_path / "demo", {**document, "findings": ["a"]})
    run.check_run_free(tmp_path / "demo", "findings")
    run.write_run(tmp_path / "train", document)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "report.md").write_text("mine")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "results.json").write_text('{"findings": []}')
    for name, file in (("train", r"results\.json"), ("mine", r"report\.md"), ("foreign", r"results\.json")):
        with pytest.raises(CheckpointError, match=rf"{file} exists and was not written by an earlier run"):
            run.check_run_free(tmp_path / name, "findings")


def test_the_demo_looks_for_files_of_others_before_it_draws_and_trains(tmp_path: Path):
    (tmp_path / "report.md").write_text("mine")
    with pytest.raises(CheckpointError, match=r"report\.md exists"):
        demo(tmp_path, steps=1)
    assert [p.name for p in tmp_path.iterdir()] == ["report.md"]
