"""The script completes commands, second words and options, in a real shell."""

import shutil
import subprocess

import pytest

from protodepth.cli.main import run


@pytest.fixture(scope="module")
def script() -> str:
    import contextlib
    import io

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert run(["completion", "bash"]) == 0
    return said.getvalue()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["pred"], {"predict"}),
        (["domains", "re"], {"remove", "rename"}),
        (["predict", "--de"], {"--depth-unit", "--device"}),
    ],
)
def test_bash_completes(script: str, words: list[str], expected: set[str]) -> None:
    ask = f"COMP_WORDS=(protodepth {' '.join(words)}); COMP_CWORD={len(words)}; _tyro_protodepth"
    done = subprocess.run(
        ["bash", "-c", f'{script}\n{ask}; echo "${{COMPREPLY[@]}}"'], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_get_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert "protodepth" in capsys.readouterr().out
