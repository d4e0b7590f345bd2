"""The three walks of docs/reading_guide.md are true: each command comes past its stations, in their order."""

import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

import pytest

import protodepth
from conftest import tiny_model
from helpers.documents import ROOT
from protodepth.cli.main import run
from protodepth.data.example import write_example

PACKAGE = Path(protodepth.__file__).parent
FUNCTION = 1  # the flag of code that is a function, not the body of a module or class
Station = tuple[str, tuple[str, ...]]  # a file and what is called there
SMALL = ["--size", "32x48", "--frames", "3", "--steps", "1", "--base-steps", "1"]
COMMANDS = {
    "predict": [
        "predict", "--model", "m", "--image", "rec/image/000003.png", "--sparse", "rec/sparse/000003.png",
        "--intrinsics", "rec/intrinsics.txt", "--depth-unit", "mm", "--out", "out",
    ],
    "adapt": ["adapt", "--model", "m", "--data", "rec", "--name", "walk", "--steps", "2", "--force", "--out", "m2"],
    "bench": ["bench", "outdoor", "--backbone", "lite", "--methods", "finetune", "--out", "cells", *SMALL],
}  # fmt: skip


def stations(verb: str) -> list[Station]:
    """The rows of the table that follows a verb's heading."""
    text = (ROOT / "docs" / "reading_guide.md").read_text().split(f"**`protodepth {verb}`")[1].split("**")[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [(row[0].strip("`"), tuple(w.strip("` ") for w in row[1].split(",") if w)) for row in rows[2:]]


class Calls:
    """When each function of the package was called first, as a number: ``with Calls() as calls: ...``"""

    def __init__(self) -> None:
        self.first: dict[CodeType, int] = {}

    def __enter__(self) -> "Calls":
        threading.setprofile(self.note)
        sys.setprofile(self.note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_flags & FUNCTION:
            self.first.setdefault(frame.f_code, len(self.first))

    def time(self, file: str, name: str = "") -> int | None:
        """The first call of a function, of a method of a class, or (without a name) of anything in the file."""
        path = str(PACKAGE / file)
        times = [
            time
            for code, time in self.first.items()
            if code.co_filename == path and (not name or f"{code.co_qualname}.".startswith(f"{name}."))
        ]
        return min(times, default=None)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model ``m`` with a domain and a recording ``rec``."""
    write_example(tmp_path / "rec", "room", frames=16, size=(32, 48))
    model = tiny_model(pose=True)
    model.add_domain("hall")
    model.save_pretrained(tmp_path / "m")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("verb", COMMANDS)
def test_a_command_comes_past_its_stations_in_their_order(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Calls() as calls:
        assert run(COMMANDS[verb]) == 0, capsys.readouterr().err
    walk = stations(verb)
    assert len(walk) >= 9
    missed = [(file, name) for file, names in walk for name in names or ("",) if calls.time(file, name) is None]
    assert missed == []
    reached = {
        f"{file}: {', '.join(names)}": min(calls.time(file, n) or 0 for n in names or ("",)) for file, names in walk
    }
    assert list(reached) == sorted(reached, key=lambda station: reached[station])


def test_a_station_that_is_not_on_the_way_is_noticed() -> None:
    with Calls() as calls:
        tiny_model().add_domain("hall")
    assert calls.time("model.py", "ProtoDepth.add_domain") is not None
    assert calls.time("model.py", "ProtoDepth.complete") is None
    assert calls.time("training/fit.py") is None
