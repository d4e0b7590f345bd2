"""``bench real`` on drawn recordings: which cells there are, what adapting may see, going on after a stop, the page."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protodepth.data.example import write_example
from protodepth.data.frame import Domain
from protodepth.errors import CheckpointError, ConfigError, DataError, ProtoDepthError, UnknownNameError
from protodepth.experiments import real
from protodepth.experiments.cells import Store
from protodepth.experiments.real import RealOptions, RealPlan, bench_real, domain_name
from protodepth.methods.statistics import describe
from protodepth.model import ProtoDepth
from protodepth.storage import files

MODEL = "worlds-tiny-mixed"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A depth camera in a drawn room, and a car with a scanner."""
    place = tmp_path_factory.mktemp("recordings")
    write_example(place / "desk", "room", frames=40, size=(48, 64))
    (place / "desk" / "sparse").rename(place / "unused")
    (place / "desk" / "ground_truth").rename(place / "desk" / "depth")
    write_example(place / "car", "street_dusk", frames=40, size=(48, 64))
    (place / "car" / "ground_truth").rename(place / "unused2")
    return str(place / "desk"), str(place / "car")


@dataclass
class Learned:
    """What stands in for an Adaptation."""

    name: str
    steps: int = 3
    best_step: int = 2
    seconds: float = 0.1
    before: float = 20.0
    after: float = 10.0
    gain: float = 0.5
    helped: bool = True


class QuickAdapt:
    """In place of ``adapt``: adds a described domain and remembers what it was given."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Domain, tuple[str, ...], dict[str, Any]]] = []

    def __call__(self, model: ProtoDepth, data: Domain, *, name: str, log: Any, say: Any, **more: Any) -> Learned:
        self.seen.append((name, data, model.domains, more))
        describe(model, name, data.train, data.val)
        return Learned(name)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> QuickAdapt:
    stand_in = QuickAdapt()
    monkeypatch.setattr(real, "adapt", stand_in)
    return stand_in


def options(folders: tuple[str, ...], **more: Any) -> RealOptions:
    return RealOptions(
        **{"data": folders, "models": (MODEL,), "frames": 2, "patterns": ("500", "lidar", "holes"), **more}
    )


def titles(plan: RealPlan, kind: str) -> list[str]:
    return [cell.title for cell in plan.cells() if cell.kind == kind]


def test_every_recording_has_the_patterns_that_fit_it_with_every_predictor(folders: tuple[str, str]) -> None:
    found = titles(RealPlan.of(options(folders)), "real")
    assert [t for t in found if t.startswith("desk 500")] == [
        *(f"desk 500 classical {name}" for name in ("linear", "morphological", "nearest")),
        *(f"desk 500 {role} {MODEL}" for role in ("base", "adapted", "agnostic")),
    ]
    assert {tuple(t.split()[:2]) for t in found} == {
        ("desk", "500"),
        ("desk", "holes"),
        ("car", "500"),
        ("car", "lidar"),
    }
    alone = titles(RealPlan.of(options(folders[:1])), "real")
    assert not [t for t in alone if "agnostic" in t]  # nothing to choose among
    assert not [t for t in titles(RealPlan.of(options(folders, adapt=False)), "real") if "adapted" in t]


def test_the_page_has_every_setting_and_the_recordings_are_in_one_model(
    folders: tuple[str, str], tmp_path: Path, quick: QuickAdapt
) -> None:
    paths = bench_real(options(folders), tmp_path / "out", command="protodepth bench real desk car")
    results = json.loads(paths[2].read_text())
    found = results["experiments"]["real"]
    assert len(found["rows"]) == 4 * 6
    assert [name for name, *_ in quick.seen] == ["desk", "car"]
    assert quick.seen[1][2] == ("street", "desk")  # the second is learned on top of the first
    by_role = {(r["recording"], r["pattern"], r["role"], r["predictor"]): r["mean"] for r in found["rows"]}
    base, adapted = (by_role["desk", "500", role, MODEL] for role in ("base", "adapted"))
    assert adapted == base  # the stand-in learns no prototypes
    agnostic = next(r for r in found["rows"] if r["role"] == "agnostic")
    assert sum(agnostic["choice"]["chosen"].values()) == 2
    assert {c["recording"] for c in found["choices"]} == {"desk", "car"}
    assert results["about"]["command"] == "protodepth bench real desk car"
    html = paths[0].read_text()
    for words in ("Real sensors", "desk: every pattern", "car: every pattern", "ProtoDepth-A", "in holes"):
        assert words in html
    assert html.count("data:image/jpeg") == 4


def test_adapting_never_sees_the_test_block(folders: tuple[str, str], tmp_path: Path, quick: QuickAdapt) -> None:
    bench_real(options(folders[:1], split="test", patterns=("500",)), tmp_path)
    _, data, _, _ = quick.seen[0]
    judged = {f.name for f in RealPlan.of(options(folders[:1], split="test")).sources["desk"].frames}
    shown = {split[i].name for split in (data.train, data.val, data.test) for i in range(len(split))}
    assert judged
    assert not judged & shown


def test_finished_cells_are_kept_and_new_patterns_and_models_are_added(
    folders: tuple[str, str], tmp_path: Path, quick: QuickAdapt, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench_real(options(folders, patterns=("500",)), tmp_path)
    measured: list[str] = []
    inner = real.measure

    def counting(predict: Any, frames: Any, wanted: Any, **more: Any) -> dict[str, Any]:
        measured.append(wanted.sampler)
        return inner(predict, frames, wanted, **more)

    monkeypatch.setattr(real, "measure", counting)
    first = bench_real(options(folders, patterns=("500",)), tmp_path)
    assert measured == []
    paths = bench_real(options(folders, patterns=("500", "holes")), tmp_path)
    assert measured == ["holes"] * 6
    assert len(quick.seen) == 2
    rows = json.loads(paths[2].read_text())["experiments"]["real"]["rows"]
    assert len(rows) == 3 * 6
    assert first == paths


def test_an_interrupted_bench_goes_on_where_it_was(
    folders: tuple[str, str], tmp_path: Path, quick: QuickAdapt, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = options(folders[:1], patterns=("500", "holes"), adapt=False)
    inner, calls = real.measure, []

    def dies(*given: Any, **more: Any) -> dict[str, Any]:
        calls.append(given)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return inner(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(real, "measure", dies)
        with pytest.raises(KeyboardInterrupt):
            bench_real(wanted, tmp_path / "a")
    paths = bench_real(wanted, tmp_path / "a")
    whole = bench_real(wanted, tmp_path / "b")

    def errors(path: Path) -> list[Any]:
        return [r["mean"] for r in json.loads(path.read_text())["experiments"]["real"]["rows"]]

    assert errors(paths[2]) == errors(whole[2])
    assert len(errors(paths[2])) == 8


def test_another_split_seed_or_number_of_frames_is_another_cell(folders: tuple[str, str]) -> None:
    def keys(**more: Any) -> set[str]:
        return {c.key for c in RealPlan.of(options(folders[:1], adapt=False, **more)).cells() if c.kind == "real"}

    for more in ({"split": "test"}, {"seed": 1}, {"frames": 1}):
        assert not keys() & keys(**more)
    assert keys() == keys()


def test_a_failing_cell_is_told_and_the_rest_is_in_the_report(
    folders: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any, **more: Any) -> None:
        raise DataError("no motion")

    monkeypatch.setattr(real, "adapt", broken)
    with pytest.raises(ProtoDepthError, match="no motion"):
        bench_real(options(folders[:1], patterns=("500",)), tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert f"not finished yet: desk 500 adapted {MODEL}" in text
    assert "| desk | 500 |" in text


def test_minutes_or_steps_go_to_adapt(folders: tuple[str, str], tmp_path: Path, quick: QuickAdapt) -> None:
    bench_real(options(folders[:1], patterns=("500",), minutes=0.5), tmp_path)
    bench_real(options(folders[:1], patterns=("500",), steps=7), tmp_path)
    assert [given for *_, given in quick.seen] == [{"minutes": 0.5}, {"steps": 7}]


def test_a_recording_is_really_adapted_to(folders: tuple[str, str], tmp_path: Path) -> None:
    """With adapt itself, three steps: what it said is in the report, and its domain in the model that was kept."""
    wanted = options(folders[:1], patterns=("500",), frames=1, steps=3)
    found = json.loads(bench_real(wanted, tmp_path)[2].read_text())["experiments"]["real"]
    (learned,) = found["adapted"]
    assert learned["steps"] == 3
    assert learned["before"] > 0
    assert {r["role"] for r in found["rows"]} == {"classical", "base", "adapted"}
    (folder,) = tmp_path.glob("cells/adapted/*/model")
    assert "desk" in ProtoDepth.from_pretrained(folder).domains
    assert found["seconds"] > 0


def test_choices_count_right_and_flagged() -> None:
    rows = [{"domain": "a", "unknown": True}, {"domain": "b", "unknown": False}, {"domain": "a", "unknown": False}]
    found = real.chosen("a", rows)
    assert found["right"] == pytest.approx(2 / 3)
    assert found["flagged"] == pytest.approx(1 / 3)
    assert found["chosen"] == {"a": 2, "b": 1}


def test_bad_requests_are_refused_before_anything_runs(folders: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="FOLDER"):
        options(())
    with pytest.raises(UnknownNameError, match="val"):
        options(folders, split="validation")
    with pytest.raises(ConfigError, match="frames"):
        options(folders, frames=0)
    with pytest.raises(ConfigError, match="two domains"):
        RealPlan.of(options((folders[0], folders[0])))
    with pytest.raises(UnknownNameError, match="corners"):
        RealPlan.of(options(folders, patterns=("spiral",)))
    with pytest.raises(CheckpointError, match="bundled"):
        RealPlan.of(options(folders, models=("nothing",)))
    (tmp_path / "other.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="not empty"):
        bench_real(options(folders, patterns=("500",), adapt=False), tmp_path)


def test_a_recording_s_name_becomes_a_name_that_a_domain_can_have() -> None:
    assert domain_name("base") == "recording-base"
    assert domain_name("täble 3/..") == "t-ble-3"


def test_wide_pictures_become_narrower_and_small_ones_stay() -> None:
    assert real.narrow(np.zeros((30, 60, 3), np.uint8), 20).shape == (10, 20, 3)
    assert real.narrow(np.zeros((30, 60, 3), np.uint8), 60).shape == (30, 60, 3)


def test_all_means_every_named_pattern(folders: tuple[str, str]) -> None:
    names = [p.name for p in real.patterns_of(options(folders, patterns=("all", "harris:9")))]
    assert names == [*real.PATTERNS, "harris:9"]


def test_stored_results_of_other_settings_are_not_read(folders: tuple[str, str], tmp_path: Path) -> None:
    plan = RealPlan.of(options(folders[:1], patterns=("500",), adapt=False))
    bench_real(plan.options, tmp_path)
    cell = next(c for c in plan.cells() if c.kind == "real")
    path = Store(tmp_path).place(cell) / "result.json"
    stored = json.loads(path.read_text())
    stored["identity"]["settings"]["seed"] = 9
    files.write_sealed(path, {key: value for key, value in stored.items() if key != "sealed"})
    with pytest.raises(CheckpointError, match="other settings"):
        bench_real(plan.options, tmp_path)
