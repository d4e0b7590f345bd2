"""train, evaluate, report, predict and doctor as typed:
they work, they go on after an interruption, and bad input changes nothing.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import random_batch, tiny_lite, tiny_model
from helpers.descriptions import edit
from protodepth import config
from protodepth.cli.main import run
from protodepth.losses import ObjectiveConfig
from protodepth.model import ProtoDepth
from protodepth.prototypes import PrototypeConfig
from protodepth.training import fit
from protodepth.training.recipes import SequenceRecipe
from protodepth.training.schedule import Schedule

ROOM = "worlds:room?size=32x48&train=6&val=2&test=3"
WAREHOUSE = "worlds:warehouse?size=32x48&train=6&val=2&test=3"
NETWORK = "backbone_options={image_widths=[4,4,6,6,8],depth_widths=[2,2,4,4,4]}"
BASE = [
    "train", "--recipe", "worlds-tiny", "--data", ROOM, "--set", "schedule.steps=6", "--set", "schedule.save_every=2",
    "--set", NETWORK,
]  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def weights(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(folder).items() if name.endswith(".safetensors")}


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Press Ctrl-C in the middle of the n-th step from now on."""

    def at(number: int) -> None:
        step, count = fit.train_step, [0]

        def pressed(*args: object) -> object:
            count[0] += 1
            if count[0] == number:
                os.kill(os.getpid(), signal.SIGINT)
            return step(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(fit, "train_step", pressed)

    return at


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a base network."""
    out = tmp_path_factory.mktemp("runs") / "base"
    assert run([*BASE, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def recipe(base: Path) -> Path:
    """A sequence from that base network, as a file."""
    made = SequenceRecipe(
        name="tiny",
        start=str(base),
        domains=(ROOM, WAREHOUSE),
        objective=ObjectiveConfig(reduction="relative", sparse=0.6, smooth=0.02),
        schedule=Schedule(steps=4, save_every=2, rate=1e-2),
        prototypes=PrototypeConfig(image_size=3, depth_size=2),
    )
    made = config.override(made, (f"start={base / 'model'}",))
    config.write(made, base.parent / "tiny.toml")
    return base.parent / "tiny.toml"


@pytest.fixture(scope="module")
def sequence(recipe: Path) -> Path:
    out = recipe.parent / "sequence"
    assert run(["train", "--recipe", str(recipe), "--out", str(out)]) == 0
    return out


# --- train ------------------------------------------------------------------------------------------------------------


def test_a_base_run_leaves_a_model_its_recipe_and_its_state(base: Path) -> None:
    model = ProtoDepth.from_pretrained(base / "model")
    assert model.domains == ("room",)
    assert model.domain("room").base
    assert model.pose is not None
    notes = json.loads((base / "model" / "config.json").read_text())["notes"]
    assert notes["recipe"]["schedule"]["steps"] == 6
    assert (base / "recipe.toml").exists()
    assert model.history["room"].recipe == notes["recipe"]


def test_a_run_is_made_again_from_its_own_recipe_file(base: Path, tmp_path: Path) -> None:
    assert run(["train", "--recipe", str(base / "recipe.toml"), "--out", str(tmp_path / "again")]) == 0
    assert weights(tmp_path / "again" / "model") == weights(base / "model")


def test_an_interrupted_base_run_goes_on_to_the_same_bytes(
    base: Path, tmp_path: Path, interrupt: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(3)
    out = tmp_path / "run"
    assert run([*BASE, "--out", str(out)]) == 130
    assert "--resume" in capsys.readouterr().err
    assert not (out / "model").exists()
    assert json.loads((out / "state" / "state.json").read_text())["step"] == 3
    before = contents(out)
    assert run([*BASE, "--out", str(out)]) == 2  # without --resume nothing is touched
    assert "--resume" in capsys.readouterr().err
    assert contents(out) == before
    assert run([*BASE, "--out", str(out), "--resume"]) == 0
    assert weights(out / "model") == weights(base / "model")


def test_an_interrupted_sequence_goes_on_to_the_same_bytes(
    sequence: Path, recipe: Path, tmp_path: Path, interrupt: Callable[[int], None]
) -> None:
    interrupt(2)
    command = ["train", "--recipe", str(recipe), "--out", str(tmp_path / "run")]
    assert run(command) == 130
    assert run([*command, "--resume"]) == 0
    assert weights(tmp_path / "run" / "model") == weights(sequence / "model")
    ours, theirs = (json.loads((f / "results.json").read_text()) for f in (tmp_path / "run", sequence))
    assert ours["rows"] == theirs["rows"]
    assert ours["matrix"] == theirs["matrix"]


def test_a_sequence_leaves_results_report_and_model(sequence: Path) -> None:
    document = json.loads((sequence / "results.json").read_text())
    rows = {(r["method"], r["setting"]): r for r in document["rows"]}
    assert rows["protodepth", "incremental"]["forgetting"] == {"mae": 0.0, "rmse": 0.0, "imae": 0.0, "irmse": 0.0}
    assert 0 <= document["selection_accuracy"] <= 1
    assert ProtoDepth.from_pretrained(sequence / "model").domains == ("room", "warehouse")
    page = (sequence / "report.html").read_text()
    assert not re.search(r'(src|href)="https?://', page)


def test_a_finished_run_is_not_made_again(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(base)
    assert run([*BASE, "--out", str(base), "--resume"]) == 0
    assert "nothing to do" in capsys.readouterr().err
    assert contents(base) == before


def test_other_settings_are_not_mixed_into_a_run(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(base)
    assert run([*BASE, "--seed", "5", "--out", str(base), "--resume"]) == 2
    assert "holds a run with other settings" in capsys.readouterr().err
    assert contents(base) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recipe", "nowhere"], "unknown recipe 'nowhere'; choose one of: worlds-tiny"),
        (["--recipe", "nowhere.toml"], "nowhere.toml does not exist"),
        (["--recipe", "worlds-tiny", "--data", "worlds:moon"], "unknown world 'moon'"),
        (["--recipe", "worlds-tiny", "--data", "no/such/folder"], "does not exist"),
        (["--recipe", "worlds-tiny", "--backbone", "resnet"], "unknown backbone 'resnet'"),
        (["--recipe", "worlds-tiny", "--preset", "moon"], "unknown lite preset 'moon'"),
        (["--recipe", "worlds-tiny", "--set", "schedule.steps=-1"], "must be positive"),
        (["--recipe", "worlds-tiny", "--set", "schedule.stpes=1"], "unknown setting"),
        (["--recipe", "worlds-tiny", "--set", "schedule.steps"], "expected key=value"),
        (["--recipe", "worlds-tiny", "--set", "backbone_options.colour=3"], "unknown option of lite 'colour'"),
        (["--recipe", "outdoor", "--backbone", "kbnet"], "recipes of base networks"),
        (
            ["--recipe", "TINY", "--set", 'domains=["worlds:room", "worlds:room?train=8"]'],
            "two domains are called 'room'",
        ),
        (["--recipe", "TINY", "--method", "magic"], "unknown method 'magic'"),
        (["--recipe", "TINY", "--set", "start=nowhere"], "no model 'nowhere'"),
    ],
)
def test_a_wrong_training_command_is_one_line_and_makes_no_folder(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    arguments = [str(recipe) if a == "TINY" else a for a in arguments]
    assert run(["train", *arguments, "--out", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert run([*BASE, "--out", str(tmp_path)]) == 2
    assert "nothing was overwritten" in capsys.readouterr().err
    assert contents(tmp_path) == {"notes.txt": b"mine"}
    assert run([*BASE, "--out", str(tmp_path / "notes.txt")]) == 2
    assert contents(tmp_path) == {"notes.txt": b"mine"}


# --- evaluate and report ----------------------------------------------------------------------------------------------


def test_evaluate_prints_what_the_matrix_has(
    sequence: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((sequence / "results.json").read_text())
    expected = document["matrix"]["protodepth"]["incremental"]["mae"][-1][1]
    out = tmp_path / "errors.json"
    evaluate = ["evaluate", "--model", str(sequence), "--data", WAREHOUSE]
    assert run([*evaluate, "--domain", "warehouse", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "domain warehouse" in said
    assert f"{expected:.2f} mm" in said
    errors = json.loads(out.read_text())
    assert errors["mean"]["mae"] == pytest.approx(expected)
    assert len(errors["images"]) == 3
    assert run([*evaluate, "--agnostic"]) == 0
    chosen = capsys.readouterr().out
    assert "chosen" in chosen
    assert run(evaluate) == 0
    assert capsys.readouterr().out == chosen  # as predict does
    assert run([*evaluate, "--domain", "base"]) == 0
    frozen = document["matrix"]["protodepth"]["incremental"]["mae"][0][1]
    assert f"{frozen:.2f} mm" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--domain", "attic"], "unknown domain 'attic'; choose one of: room, warehouse"),
        (["--domain", "room", "--agnostic"], "contradict each other"),
        (["--split", "exam"], "unknown split 'exam'"),
    ],
)
def test_a_wrong_evaluation_is_one_line(
    sequence: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(["evaluate", "--model", str(sequence), "--data", ROOM, *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_report_is_made_from_runs_and_only_from_runs(
    sequence: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    assert run(["report", str(sequence), "--out", str(page)]) == 0
    assert "<html" in page.read_text()[:200].lower()
    before = page.read_bytes()
    (tmp_path / "empty").mkdir()
    for wrong in (str(tmp_path / "nowhere"), str(tmp_path / "empty")):
        assert run(["report", wrong, "--out", str(page)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert run(["report", "--out", str(page)]) == 2
    assert page.read_bytes() == before


def test_doctor_says_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("protodepth", "python", "torch", "threads", "free disk"))
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"docs", "test", "dev"}  # those are for who builds and tests it
    assert set(re.findall(r"^extra (\w+)", out, re.MULTILINE)) == extras


# --- predict ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, sequence: Path) -> dict[str, str]:
    """A picture, its points in metres and in two PNG units, and the options that name them."""
    batch = random_batch(1)
    image = (batch.image[0].permute(1, 2, 0).numpy() * 255).astype(np.uint8)
    sparse = batch.sparse_depth[0, 0].numpy()
    Image.fromarray(image).save(tmp_path / "a.png")
    Image.fromarray(np.zeros_like(image)).save(tmp_path / "black.png")
    Image.fromarray(image[:16]).save(tmp_path / "half.png")
    np.save(tmp_path / "a.npy", sparse)
    Image.fromarray((sparse * 1000).round().astype(np.uint16)).save(tmp_path / "mm.png")
    Image.fromarray((sparse * 256).round().astype(np.uint16)).save(tmp_path / "kitti.png")
    np.save(tmp_path / "none.npy", np.zeros_like(sparse))
    np.save(tmp_path / "nan.npy", np.full_like(sparse, np.nan))
    np.save(tmp_path / "holes.npy", np.where(sparse > 0, sparse, np.nan))
    np.save(tmp_path / "negative.npy", -sparse)
    np.save(tmp_path / "infinite.npy", np.where(sparse > 0, np.inf, 0))
    np.save(tmp_path / "words.npy", np.full(sparse.shape, "x"))
    (tmp_path / "broken.png").write_bytes(b"\x89PNG but no more")
    (tmp_path / "empty").mkdir()
    tiny = ProtoDepth(tiny_lite(seed=9))
    tiny.save_pretrained(tmp_path / "other")
    return {
        "--model": str(sequence),
        "--image": str(tmp_path / "a.png"),
        "--sparse": str(tmp_path / "a.npy"),
        "--intrinsics": "40,42,24,16",
        "--out": str(tmp_path / "out"),
    }


def predict(files: dict[str, str], **changes: str) -> int:
    options = {**files, **{f"--{k.replace('_', '-')}": v for k, v in changes.items()}}
    return run(["predict", *(part for option in options.items() for part in option)])


def depth_of(folder: Path) -> np.ndarray:
    return np.asarray(Image.open(folder / "depth.png")).astype(np.float64) / 256


def test_predict_writes_depth_that_the_model_predicts(files: dict[str, str], tmp_path: Path) -> None:
    assert predict(files, domain="warehouse") == 0
    model = ProtoDepth.from_pretrained(Path(files["--model"]) / "model")
    image = np.asarray(Image.open(tmp_path / "a.png"))
    expected = model.predict(image, np.load(tmp_path / "a.npy"), (40, 42, 24, 16), domain="warehouse").depth
    np.testing.assert_allclose(depth_of(tmp_path / "out"), expected, atol=1 / 256)


@pytest.mark.parametrize(
    "changes",
    [
        {"sparse": "holes.npy"},
        {"sparse": "mm.png", "depth_unit": "mm"},
        {"sparse": "kitti.png", "depth_unit": "kitti"},
        {"domain": "base"},
        {"domain": "room"},
        {"image": "black.png"},
    ],
)
def test_what_is_unusual_but_right_works(files: dict[str, str], tmp_path: Path, changes: dict[str, str]) -> None:
    changes = {k: str(tmp_path / v) if k in ("sparse", "image") else v for k, v in changes.items()}
    assert predict(files, **changes) == 0
    depth = depth_of(tmp_path / "out")
    assert np.isfinite(depth).all()
    assert (depth > 0).all()


def test_units_lead_to_the_same_depth(files: dict[str, str], tmp_path: Path) -> None:
    found = []
    for name, unit in (("a.npy", "metres"), ("mm.png", "mm"), ("kitti.png", "kitti")):
        out = tmp_path / f"out-{unit}"
        assert predict(files, sparse=str(tmp_path / name), depth_unit=unit, out=str(out), domain="base") == 0
        found.append(depth_of(out))
    np.testing.assert_allclose(found[1], found[0], atol=0.02)
    np.testing.assert_allclose(found[2], found[0], atol=0.02)


BAD = [
    ({"image": "nowhere.png"}, "nowhere.png"),
    ({"sparse": "nowhere.npy"}, "nowhere.npy"),
    ({"image": "broken.png"}, "broken.png"),
    ({"image": "half.png", "intrinsics": "40,42,24,8"}, r"its picture 48x16"),
    ({"image": "empty"}, "empty"),
    ({"sparse": "none.npy"}, "value above 0"),
    ({"sparse": "nan.npy"}, "value above 0"),
    ({"sparse": "negative.npy"}, "negative"),
    ({"sparse": "infinite.npy"}, "infinite"),
    ({"sparse": "words.npy"}, "words.npy"),
    ({"sparse": "broken.png"}, "broken.png"),
    ({"sparse": "kitti.png", "depth_unit": "parsec"}, "unknown depth unit 'parsec'"),
    ({"intrinsics": "40,42"}, "intrinsics"),
    ({"intrinsics": "1.1,1.2,0.5,0.5"}, "normalised"),
    ({"intrinsics": "400,420,320,240"}, "another resolution"),
    ({"intrinsics": "40,42,nan,16"}, "40,42,nan,16"),
    ({"domain": "attic"}, "unknown domain 'attic'; choose one of: room, warehouse"),
    ({"model": "nowhere"}, "no model 'nowhere'"),
    ({"model": "empty"}, r"config.json is missing"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[f"{'-'.join(c.values())}" for c, _ in BAD])
def test_bad_input_is_one_message_exit_2_and_changes_nothing(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str], message: str
) -> None:
    assert predict(files, out=str(tmp_path / "out")) == 0  # earlier results that must stay
    before = contents(tmp_path)
    capsys.readouterr()
    changes = {k: str(tmp_path / v) if k in ("sparse", "image") or v == "empty" else v for k, v in changes.items()}
    assert predict(files, **changes) == 2
    err = capsys.readouterr().err
    assert re.search(message, err), err
    assert "Traceback" not in err
    assert err.startswith("protodepth: ")
    now = contents(tmp_path)
    assert {k: v for k, v in now.items() if not k.endswith("predictions.jsonl")} == {
        k: v for k, v in before.items() if not k.endswith("predictions.jsonl")
    }


def test_a_domain_of_another_network_in_a_model_folder_is_refused(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Someone copies the domain folder of one model into another."""
    model = ProtoDepth.from_pretrained(Path(files["--model"]) / "model")
    folder = tmp_path / "other"
    (folder / "domains").mkdir(exist_ok=True)
    model.save_domain("warehouse", folder / "domains" / "warehouse")
    edit(folder / "config.json", domains=["warehouse"])
    assert predict(files, model=str(folder)) == 2
    err = capsys.readouterr().err
    assert "was learned on another network" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_weights_of_another_preset_are_refused(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_model().save_pretrained(tmp_path / "m")
    network = json.loads((tmp_path / "m" / "config.json").read_text())["backbone_config"]
    edit(tmp_path / "m" / "config.json", backbone_config={**network, "image_widths": [8, 8, 8, 8, 8]})
    assert predict(files, model=str(tmp_path / "m")) == 2
    assert "another network or preset" in capsys.readouterr().err


def test_the_program_itself_exits_with_2_and_one_line() -> None:
    command = [sys.executable, "-m", "protodepth", "predict", "--model", "nowhere", "--image", "a", "--sparse", "b"]
    done = subprocess.run(
        [*command, "--intrinsics", "1,1,1,1", "--out", "o"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("protodepth: no model 'nowhere'")
    assert done.stderr.count("\n") == 1
