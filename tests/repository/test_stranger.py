"""The stranger's questions: the same for a seed, from all over the house, and without their answers."""

import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from stranger import PACKAGE, everything, main

SCRIPT = Path(__file__).with_name("stranger.py")


def ask(*options: str) -> list[str]:
    with redirect_stdout(StringIO()) as out:
        main(options)
    return out.getvalue().splitlines()


def test_ten_questions_without_their_homes_and_ten_answers_of_the_same_seed() -> None:
    sheet, answers = ask("--seed", "3"), ask("--seed", "3", "--answers")
    questions = [line for line in sheet if line[:3].strip(" .").isdigit()]
    assert len(questions) == len(answers) == 10
    tree = [line.strip().split(":")[0] for line in sheet[: sheet.index("")]]
    for question, answer in zip(questions, answers, strict=True):
        home, name = answer[4:].split(": ")
        assert home not in question
        assert Path(home).name in tree
        assert question[4:].startswith(f"{name}: ")
        text = (SCRIPT.parents[2] / "src" / "protodepth" / home).read_text()
        assert f"\ndef {name}(" in text or f"\nclass {name}" in text
    command = [sys.executable, str(SCRIPT), "--seed", "3"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines() == sheet
    assert ask("--seed", "4") != sheet


def test_the_tree_shows_each_file_with_what_is_at_home_there_and_nothing_else() -> None:
    sheet = ask()
    lines = sheet[: sheet.index("")]
    assert lines[0] == "protodepth/"
    assert {"  backbones/", "    kbnet.py"} <= {line.split(":")[0] for line in lines}
    assert all(line.endswith("/") or (".py: " in line and len(line.split()) > 2) for line in lines)
    assert sum(line.endswith("/") for line in lines) == 1 + len({p.parent for p in PACKAGE.rglob("*.py")} - {PACKAGE})


def test_only_what_another_file_uses_is_asked_for() -> None:
    things = {(home, name) for home, name, _ in everything()}
    assert {("model.py", "ProtoDepth"), ("geometry.py", "warp"), ("training/fit.py", "fit")} <= things
    assert ("training/fit.py", "gradients") not in things  # its own file and a test use it
    assert not [name for _, name in things if name.startswith("_")]
