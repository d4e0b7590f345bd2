"""protodepth bench real on drawn recordings: the command, what it refuses, and the Python of its document."""

import json
from pathlib import Path

import pytest

from helpers.documents import blocks
from protodepth.cli import main
from protodepth.data.example import write_example
from protodepth.model import ProtoDepth


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A drawn recording with points and ground truth."""
    folder = tmp_path_factory.mktemp("recordings") / "desk"
    write_example(folder, "room", frames=40, size=(48, 64))
    return folder


def test_the_command_measures_prints_and_writes(desk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "real", str(desk), "--model", "worlds-tiny,worlds-tiny-mixed", "--no-adapt", "--frames", "2"]
    assert main.run([*words, "--patterns", "100", "tof:16", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "worlds-tiny: MAE " in said
    assert "worlds-tiny-mixed: MAE " in said
    assert "report.html" in said
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["experiments"]["real"]["rows"]
    assert {(r["pattern"], r["predictor"]) for r in rows} == {
        (p, n)
        for p in ("100", "tof:16")
        for n in ("nearest", "linear", "morphological", "worlds-tiny", "worlds-tiny-mixed")
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere does not exist"),
        ([], "FOLDER"),
        (["{desk}", "--patterns", "spiral"], "corners"),
        (["{desk}", "--model", "no-such-model"], "bundled name"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    desk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    given = [w.format(desk=desk) for w in words]
    given += [] if "--model" in words else ["--model", "worlds-tiny"]
    assert main.run(["bench", "real", *given, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_python_of_the_document_runs(
    desk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "desk").symlink_to(desk)
    ProtoDepth.from_pretrained("worlds-tiny").save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("docs/real_sensors.md", "python")
    exec(compile(block, "docs/real_sensors.md", "exec"), {})
    assert "'mine': " in capsys.readouterr().out
