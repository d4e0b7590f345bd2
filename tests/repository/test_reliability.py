"""Every row of docs/reliability.md has a command that runs at least one test."""

import re
import shlex

import pytest

from helpers.documents import ROOT

ROWS = [line for line in (ROOT / "docs" / "reliability.md").read_text().splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_the_command_of_a_row_names_tests_that_exist(row: str) -> None:
    command = shlex.split(re.findall(r"`([^`]*)`", row)[-1])
    assert command[0] == "pytest"
    texts = [(ROOT / word).read_text() for word in command if word.startswith("tests/")]
    names = [name for text in texts for name in re.findall(r"^def (test_\w+)", text, flags=re.M)]
    wanted = command[command.index("-k") + 1] if "-k" in command else "test_"
    for part in wanted.split(" or "):
        assert [name for name in names if part in name], part


def test_rows_have_as_many_survivals_as_tries_or_say_why() -> None:
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in ROWS]
    assert all(len(row) == 5 for row in cells)
    assert len(cells) >= 15
    for row in cells:
        tries, survived = (re.sub(r"\D", "", cell) for cell in row[2:4])
        assert tries == survived or not survived, row
