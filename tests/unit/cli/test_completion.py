"""The script completes commands, second words and options, in a real shell."""

import contextlib
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from protodepth.cli.main import run

CASES = [
    (["pred"], {"predict"}),
    (["domains", "re"], {"remove", "rename"}),
    (["predict", "--de"], {"--depth-unit", "--device"}),
]
# zsh's own helpers live in its editor; these print what they are given
ZSH_HELPERS = "_describe() { print -l -- ${(P)2%%:*} }\n_files() { print files }\n"


def said(shell: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run(["completion", shell]) == 0
    return out.getvalue()


@pytest.fixture(scope="module")
def script() -> str:
    return said("bash")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(("words", "expected"), CASES)
def test_bash_completes(script: str, words: list[str], expected: set[str]) -> None:
    ask = f"COMP_WORDS=(protodepth {' '.join(words)}); COMP_CWORD={len(words)}; _tyro_protodepth"
    done = subprocess.run(
        ["bash", "-c", f'{script}\n{ask}; echo "${{COMPREPLY[@]}}"'], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == expected


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
@pytest.mark.parametrize(("words", "expected"), CASES)
def test_fish_completes(tmp_path: Path, words: list[str], expected: set[str]) -> None:
    (tmp_path / "c.fish").write_text(said("fish"))
    ask = f"source {tmp_path / 'c.fish'}; complete -C 'protodepth {' '.join(words)}'"
    done = subprocess.run(["fish", "--no-config", "-c", ask], capture_output=True, text=True, check=True)
    assert {line.split("\t")[0] for line in done.stdout.splitlines()} == expected


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
@pytest.mark.parametrize(("words", "expected"), CASES)
def test_zsh_is_offered_all_candidates_of_the_place_and_picks_by_what_is_typed(
    tmp_path: Path, words: list[str], expected: set[str]
) -> None:
    (tmp_path / "c.zsh").write_text(said("zsh"))
    ask = f"{ZSH_HELPERS}words=(protodepth {' '.join(words)}); CURRENT=${{#words}}\nsource {tmp_path / 'c.zsh'}"
    done = subprocess.run(["zsh", "-f", "-c", ask], capture_output=True, text=True, check=True)
    assert {w for w in done.stdout.split() if w.startswith(words[-1])} == expected


def embedded(shell: str) -> str:
    """The program inside the script that names the candidates; where the shell itself is not installed."""
    text = said(shell)
    if shell == "zsh":
        (program,) = re.findall(r"<< 'PYTHON_EOF'\n(.*?)\nPYTHON_EOF", text, re.DOTALL)
        return program
    (program,) = re.findall(r'set -l pycode "(.*?)"\n +set -l results', text, re.DOTALL)
    return re.sub(r"\\([\"$\\])", r"\1", program)


@pytest.mark.parametrize(("shell", "first"), [("zsh", 1), ("fish", 0)])  # where each counts words from
@pytest.mark.parametrize(("words", "expected"), CASES)
def test_the_program_in_the_script_names_the_candidates(
    shell: str, first: int, words: list[str], expected: set[str]
) -> None:
    typed = words if shell == "zsh" else words[:-1]  # fish keeps the word that is being typed
    asked = ["protodepth", *typed, str(len(words) + first)]
    done = subprocess.run(
        [sys.executable, "-", *asked], input=embedded(shell), capture_output=True, text=True, check=True
    )
    found = {line.split("\t")[0] for line in done.stdout.splitlines()}
    assert {w for w in found if w.startswith(words[-1])} == expected
