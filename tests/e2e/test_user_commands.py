"""predict, adapt and domains from the command line:
what a person with a robot types, and what happens when it is wrong.
"""

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import protodepth
from conftest import SMALL, tiny_model
from protodepth import adapt
from protodepth.backbones.lite import Lite
from protodepth.cli.main import run
from protodepth.data.example import write_example
from protodepth.data.worlds import worlds
from protodepth.data.worlds.worlds import world
from protodepth.model import ProtoDepth

REAL = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "real"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model ``m`` and a recording ``rec`` of a room."""
    folder = tmp_path_factory.mktemp("user")
    write_example(folder / "rec", "room", frames=24, size=(32, 48))
    model = tiny_model(pose=True)
    model.save_pretrained(folder / "m", notes={"made": "for a test"})
    return folder


@pytest.fixture
def here(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(text: str) -> int:
    return run(text.split())


ONE = "predict --model m --image rec/image/000003.png --sparse rec/sparse/000003.png --intrinsics rec/intrinsics.txt"


def test_one_picture_becomes_depth_picture_and_cloud_in_one_command(here: Path, capsys):
    assert call(f"{ONE} --depth-unit mm --out out") == 0
    assert {p.name for p in (here / "out").iterdir()} == {
        "depth.png",
        "depth_color.png",
        "cloud.ply",
        "predictions.jsonl",
    }
    said = capsys.readouterr().out
    assert "domain base" in said
    assert "wrote out" in said


def test_a_recording_and_its_folders_give_the_same_depth(here: Path):
    assert call("predict --model m --data rec --out a --format npy --write depth --batch-size 3") == 0
    assert (
        call(
            "predict --model m --image rec/image --sparse rec/sparse --intrinsics rec/intrinsics.txt --depth-unit mm "
            "--out b --format npy --write depth"
        )
        == 0
    )
    names = sorted(p.name for p in (here / "a" / "depth").iterdir())
    assert len(names) == 24
    for name in names:
        a, b = (np.load(here / x / "depth" / name) for x in "ab")
        assert np.allclose(a, b, atol=1e-5)
    assert not (here / "a" / "cloud").exists()


def test_a_broken_file_in_the_middle_costs_one_frame_and_the_exit_code(here: Path, capsys):
    (here / "rec" / "image" / "000005.png").write_bytes(b"broken")
    code = call(
        "predict --model m --image rec/image --sparse rec/sparse --intrinsics rec/intrinsics.txt --depth-unit mm --out "
        "out --write depth"
    )
    assert code == 2
    assert "1 of 24 frames failed, first '000005'" in capsys.readouterr().err
    assert len(list((here / "out" / "depth").iterdir())) == 23
    lines = [json.loads(line) for line in (here / "out" / "predictions.jsonl").read_text().splitlines()]
    assert [r["frame"] for r in lines if "error" in r] == ["000005"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("predict --model m --out out", "give --image, --sparse and --intrinsics"),
        ("predict --model m --out out --data rec --image rec/image", "contradict each other"),
        (f"{ONE} --out out --domain garage", "unknown domain 'garage'"),
        ("predict --model m --data rec --out rec", "--out rec is a recording"),
        (f"{ONE} --out rec --depth-unit mm", "--out rec is a recording"),
        (f"{ONE} --out out --depth-unit inch", "unknown depth unit 'inch'"),
        ("predict --model nothing --data rec --out out", "no model 'nothing'"),
        ("adapt --model m --data rec --name base --out m2 --steps 2", "cannot name a domain"),
        ("adapt --model m --data nowhere --name x --out m2 --steps 2", "does not exist"),
        ("adapt --model m --data rec --name x --out rec --steps 2", "is not a protodepth folder"),
        ("domains show --model m --name garage", "unknown domain 'garage'"),
        ("domains remove --model m --name garage", "unknown domain 'garage'"),
        ("domains import --model m --folder rec", "meta.json is missing"),
    ],
)
def test_bad_input_is_one_clear_line_and_nothing_is_written(here: Path, capsys, arguments: str, message: str):
    before = sorted(p.as_posix() for p in here.rglob("*"))
    assert call(arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
    assert sorted(p.as_posix() for p in here.rglob("*")) == before


@pytest.fixture
def bad_files(here: Path) -> Path:
    """Beside the recording: a picture of half the size, a map with three channels,
    one of 8 bits and one without points.
    """
    picture = Image.open("rec/image/000003.png")
    picture.resize((24, 16)).save("half.png")
    points = np.asarray(Image.open("rec/sparse/000003.png"))
    Image.fromarray((points // 32).astype(np.uint8)).save("eight_bits.png")
    Image.fromarray(np.zeros_like(points)).save("empty.png")
    np.save("three_channels.npy", np.ones((32, 48, 3), np.float32))
    np.save("empty.npy", np.zeros((32, 48), np.float32))
    return here


IMAGE, SPARSE = "--image rec/image/000003.png", "--sparse rec/sparse/000003.png"


@pytest.mark.parametrize(
    ("files", "intrinsics", "message"),
    [
        (f"--image half.png {SPARSE}", "rec/intrinsics.txt", "sparse depth is 48x32, its picture 24x16"),
        (f"{IMAGE} --sparse three_channels.npy", "rec/intrinsics.txt", "shape (32, 48, 3), expected (height, width)"),
        (f"--image rec/sparse/000003.png {SPARSE}", "rec/intrinsics.txt", "expected 8-bit colour: is it a depth map?"),
        (f"{IMAGE} --sparse eight_bits.png", "rec/intrinsics.txt", "depth needs 16 bits"),
        (f"{IMAGE} {SPARSE}", "500,500,320,240", "outside the 48x32 image: is K of another resolution?"),
        (f"{IMAGE} --sparse empty.png", "rec/intrinsics.txt", "no points"),
        (f"{IMAGE} --sparse empty.npy", "rec/intrinsics.txt", "value above 0"),
        ("--image rec/image --sparse empty.png", "rec/intrinsics.txt", "two files, two folders"),
    ],
)
def test_a_bad_picture_map_or_camera_is_explained_and_leaves_nothing(
    bad_files: Path, capsys, files: str, intrinsics: str, message: str
):
    before = sorted(p.as_posix() for p in bad_files.rglob("*"))
    unit = "" if "npy" in files else "--depth-unit mm"
    assert call(f"predict --model m {files} --intrinsics {intrinsics} {unit} --out out") == 2
    shown = capsys.readouterr()
    assert shown.err.count(message) == 1
    assert "wrote" not in shown.out
    assert sorted(p.as_posix() for p in bad_files.rglob("*")) == before


def test_a_changed_byte_in_the_model_is_refused(here: Path, capsys):
    file = here / "m" / "backbone.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(bytes(data))
    assert call(f"{ONE} --out out") == 2
    assert "checksum" in capsys.readouterr().err
    assert not (here / "out").exists()


def test_the_whole_way_of_a_domain_learned_shared_renamed_removed(here: Path, capsys):
    assert call("adapt --model m --data rec --name den --out m2 --dry-run") == 0
    said = capsys.readouterr().out
    assert "steps on" in said
    assert "would take about" in said
    assert not (here / "m2").exists()
    assert call("adapt --model m --data rec --name den --out m2 --steps 20 --force --no-register") == 0
    assert "error at held-out sparse points" in capsys.readouterr().out

    assert call("domains describe --model m2 --data rec --name room") == 0
    assert call("domains list --model m2") == 0
    said = capsys.readouterr().out
    assert "den" in said
    assert "cosine between descriptors" in said
    assert call("domains show --model m2 --name den") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["history"]["source"] == "rec"
    assert shown["statistics"]["unknown_beyond"] > 0

    assert call("domains export --model m2 --name den --out parcel") == 0
    assert call("domains import --model m --folder parcel --name shared --out m3") == 0
    for model, name in (("m2", "den"), ("m3", "shared")):
        assert (
            call(
                f"{ONE} --depth-unit mm --out out-{model} --domain {name} --format npy".replace(
                    "--model m ", f"--model {model} "
                )
            )
            == 0
        )
    assert np.array_equal(np.load("out-m2/depth.npy"), np.load("out-m3/depth.npy"))

    assert call("domains rename --model m3 --name shared --to ours") == 0
    assert ProtoDepth.from_pretrained("m3").domains == ("ours",)
    assert call("domains remove --model m3 --name ours") == 0
    assert ProtoDepth.from_pretrained("m3").domains == ()
    assert json.loads(Path("m3/config.json").read_text())["notes"] == {"made": "for a test"}

    capsys.readouterr()
    ProtoDepth(Lite(depth_range=(0.1, 9.0), **SMALL)).save_pretrained("other")
    assert call("domains import --model other --folder parcel") == 2
    assert "learned on another network" in capsys.readouterr().err

    assert call("predict --model m2 --data rec --out chosen --selection gaussian --unknown base --write depth") == 0
    assert (
        call("predict --model m2 --data worlds:street?size=32x48&train=1&val=1&test=1 --out far --unknown error") == 2
    )
    assert "unlike every known domain" in capsys.readouterr().err
    assert not (here / "far").exists()


def test_adapting_that_does_not_help_writes_nothing_unless_forced(here: Path, capsys, monkeypatch):
    monkeypatch.setattr("protodepth.training.adapt.HELPED", 0.99)
    assert call("adapt --model m --data rec --name den --out m2 --steps 2 --no-register") == 2
    assert "did not help; nothing was written (--force" in capsys.readouterr().err
    assert not (here / "m2").exists()
    into_its_own_folder = "adapt --model m --data rec --name den --out m --steps 2 --force --no-register"
    assert call(into_its_own_folder) == 0
    assert ProtoDepth.from_pretrained("m").domains == ("den",)


def test_evaluate_and_predict_on_a_recording_print_interpolation_beside_the_network(here: Path, capsys):
    assert call("evaluate --model m --data rec") == 0
    said = capsys.readouterr().out
    assert "no ground truth" in said or "mae" in said
    rows = dict(line.split()[:2] for line in said.split("beside interpolation")[1].splitlines()[1:])
    assert set(rows) == {"network", "nearest", "linear", "morphological"}
    assert all(float(error) > 0 for error in rows.values())
    assert call("predict --model m --data rec --out all --write depth") == 0
    (line,) = [text for text in capsys.readouterr().out.splitlines() if text.startswith("mean error at sparse points")]
    assert all(f"{name} " in line for name in ("network", "nearest", "linear", "morphological"))


def test_the_bundled_models_are_not_changed_in_place(here: Path, capsys, monkeypatch):
    monkeypatch.setattr("protodepth.storage.folders.BUNDLED", here)
    before = (here / "m" / "config.json").read_bytes()
    assert call("domains describe --model m --data rec") == 2
    assert "give --out FOLDER" in capsys.readouterr().err
    assert (here / "m" / "config.json").read_bytes() == before
    assert call("domains list --model m") == 0
    assert "none yet" in capsys.readouterr().out


@pytest.mark.parametrize("script", ["live_stream.py", "share_a_domain.py"])
def test_the_examples_run(script: str, tmp_path: Path, monkeypatch, capsys):
    """With less learning on smaller frames: the test is about whether they run."""
    monkeypatch.chdir(tmp_path)
    less = {"steps": 2, "register": False}
    monkeypatch.setattr(protodepth, "adapt", lambda *given, **named: adapt(*given, **{**named, **less}))
    monkeypatch.setattr(worlds, "world", lambda *given, **named: world(*given, **named, size=(32, 48)))
    path = Path(__file__).resolve().parents[2] / "examples" / script
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not REAL.is_dir(), reason="the real recordings are not beside this checkout")
@pytest.mark.parametrize("name", ["kitti_raw", pytest.param("hololens", marks=pytest.mark.slow)])
def test_a_real_recording_can_be_learned_and_completed(name: str, tmp_path: Path):
    from protodepth.training.adapt import AdaptConfig, adapt
    from protodepth.training.schedule import Schedule

    torch.manual_seed(0)
    model = tiny_model(pose=True) if name == "hololens" else None
    if model is None:
        from protodepth.backbones.posenet import PoseNet

        model = ProtoDepth(Lite(depth_range=(1.5, 100.0), **SMALL), pose=PoseNet("small"))
    unit = "mm" if name == "hololens" else "kitti"
    result = adapt(
        model, REAL / name, name="place", config=AdaptConfig(schedule=Schedule(steps=3), judgings=1), depth_unit=unit
    )
    assert result.steps == 3
    assert np.isfinite([result.before, result.after]).all()
    assert model.statistics["place"].count > 10


@pytest.fixture
def other_writer(here: Path):
    """Another process that writes ``m`` and ``run`` as long as the test lasts."""
    script = (
        "import time; from pathlib import Path; from protodepth.storage.locks import writing\n"
        "with writing(Path('m')), writing(Path('run')): print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield other
        other.kill()


@pytest.mark.parametrize(
    "arguments",
    [
        "adapt --data rec --name den --out m --steps 2",
        "domains describe --model m --data rec --name room",
        "domains import --model m --folder parcel",
        "domains rename --model m --name a --to b",
        "domains remove --model m --name a",
        "train --recipe worlds-tiny --out run",
    ],
)
def test_a_second_writer_is_told_at_once_who_the_first_one_is(here: Path, other_writer, arguments: str, capsys):
    assert call(arguments) == 2
    assert f"is being written by process {other_writer.pid}" in capsys.readouterr().err
    assert ProtoDepth.from_pretrained("m").domains == ()  # reading needs no lock
    assert not (here / "run").exists()
