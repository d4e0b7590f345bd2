"""The stranger's questions: the same for a seed, from all over the house, and without their answers."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("stranger.py")


def ask(*options: str) -> list[str]:
    done = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_ten_questions_without_their_homes_and_ten_answers_of_the_same_seed() -> None:
    sheet, answers = ask("--seed", "3"), ask("--seed", "3", "--answers")
    questions = [line for line in sheet if line[:3].strip(" .").isdigit()]
    assert len(questions) == len(answers) == 10
    tree = "\n".join(sheet[: sheet.index("")])
    for question, answer in zip(questions, answers, strict=True):
        home, name = answer[4:].split(": ")
        assert home not in question
        assert Path(home).name in tree
        assert question[4:].startswith(f"{name}: ")
        assert f"def {name.split('.')[-1]}(" in (SCRIPT.parents[2] / "src" / "protodepth" / home).read_text()
    assert ask("--seed", "3") == sheet
    assert ask("--seed", "4") != sheet


def test_the_tree_shows_names_and_nothing_else() -> None:
    sheet = ask()
    lines = sheet[: sheet.index("")]
    assert lines[0] == "protodepth/"
    assert {"  prototypes.py", "  backbones/", "    kbnet.py"} <= set(lines)
    assert all(line.endswith((".py", "/")) for line in lines)
