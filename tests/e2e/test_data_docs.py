"""The commands of docs/own_data.md run as written (with a tiny model and few steps, to be quick)."""

import json
import re
import shlex
from pathlib import Path

import pytest

from conftest import tiny_model
from protodepth.cli.main import run

DOCS = Path(__file__).resolve().parents[2] / "docs"
FEW = ["--frames", "16", "--size", "48x72"]


def commands() -> list[list[str]]:
    text = (DOCS / "own_data.md").read_text()
    block = text.split("<!-- commands -->")[1].split("```sh\n")[1].split("```")[0]
    return [shlex.split(line)[1:] for line in block.splitlines() if line.strip()]


def test_the_five_commands_take_a_recording_to_a_point_cloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = tiny_model()
    model.add_domain("room", base=True)
    model.save_pretrained(tmp_path / "tiny")
    example = re.search(r"protodepth (data example .+)", (DOCS / "own_data.md").read_text())
    assert example is not None
    assert run(shlex.split(example.group(1))) == 0
    assert len(commands()) == 5
    for words in commands():
        extra = ["--model", "tiny", "--steps", "2", "--force", "--no-register"] if words[0] == "adapt" else []
        assert run([*words, *extra]) == 0, capsys.readouterr().err
    assert (tmp_path / "preview.png").exists()
    assert (tmp_path / "result" / "cloud.ply").stat().st_size > 1000


@pytest.mark.parametrize("name", ["own_data.md", "datasets.md"])
def test_the_options_that_the_docs_name_exist(name: str) -> None:
    """Every ``--set key=value`` of a prepare command is an argument of that dataset."""
    import inspect

    from protodepth.data.manifest import _scan_function

    for dataset, rest in re.findall(r"protodepth data prepare (\w+) \S+ \S+ --set (.+)", (DOCS / name).read_text()):
        known = inspect.signature(_scan_function(dataset)).parameters
        for pair in rest.split():
            assert pair.split("=")[0] in known, f"{dataset} has no option {pair}"


def test_a_faulty_recording_ends_with_code_2_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "r"
    assert run(["data", "example", str(folder), "--world", "room", *FEW]) == 0
    (folder / "sparse" / "000003.png").write_bytes(b"")
    assert run(["data", "check", str(folder)]) == 2
    shown = capsys.readouterr()
    assert "000003" in shown.out
    assert "has faults" in shown.err
    assert run(["data", "check", str(folder), "--fix"]) == 0
    assert run(["data", "check", str(tmp_path / "nothing")]) == 2
    assert run(["data", "prepare", "nosuch", str(folder), str(tmp_path / "o")]) == 2
    assert "kitti" in capsys.readouterr().err


def test_adapt_takes_units_samplers_held_out_points_and_settings_after_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = tiny_model()
    model.add_domain("room", base=True)
    model.save_pretrained(tmp_path / "tiny")
    assert run(["data", "example", "walk", "--world", "room", *FEW]) == 0
    (tmp_path / "walk" / "sparse").rename(tmp_path / "walk" / "depth")
    words = ["adapt", "--model", "tiny", "--data", "walk?stride=2&withhold=0.1", "--name", "x", "--out", "m"]
    words += ["--depth-unit", "1000", "--sample", "uniform:60", "--withhold", "0.4", "--steps", "2", "--force"]
    words += ["--no-register"]
    assert run(words) == 0, capsys.readouterr().err
    history = json.loads((tmp_path / "m" / "domains" / "x" / "meta.json").read_text())["history"]
    told = history["data"]
    assert (told["unit"], told["sampler"], told["stride"], told["withhold"]) == ("1000", "uniform:60", 2, 0.1)
    assert history["source"] == "walk?stride=2&withhold=0.1"
    for wrong, message in (
        (["--withhold", "1.5"], "withhold is 1.5"),
        (["--depth-unit", "inch"], "steps in a metre"),
        (["--sample", "sift:9"], "unknown sampler 'sift'"),
    ):
        assert run([*words[:8], "elsewhere", *wrong]) == 2
        assert message in capsys.readouterr().err
