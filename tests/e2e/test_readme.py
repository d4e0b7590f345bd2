"""Every command and every Python block of the README runs as written (installation apart)."""

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec

import jaxtyping
import pytest

from helpers.documents import blocks, commands
from protodepth.cli.main import run
from protodepth.storage.folders import bundled
from protodepth.training import recipes

pytestmark = pytest.mark.skipif(not bundled(), reason="no bundled model in this checkout")


def shorten(arguments: list[str]) -> list[str]:
    """The same command with little training: the test is about whether it runs."""
    if arguments[0] == "demo":
        return [*arguments, "--steps", "2"]
    if arguments[0] == "adapt":
        return [*arguments, "--steps", "2", "--force"]
    if arguments[0] == "export":
        return [*arguments, "--size", "64x96"]
    if arguments[0] == "train":
        return [*arguments, "--set", "schedule.steps=2"]
    return arguments


@pytest.fixture
def without_shape_checks() -> Iterator[None]:
    """While the exporter traces, sizes are symbols and not the ints that the annotations promise."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def few_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo on a tenth of its frames: tests/e2e/test_demo.py is about its numbers."""
    recipe = recipes.SEQUENCES["outdoor"]()
    few = tuple(f"{domain.split('?')[0]}?train=4&val=2&test=6" for domain in recipe.domains)
    monkeypatch.setitem(recipes.SEQUENCES, "outdoor", lambda: replace(recipe, domains=few))


@pytest.mark.usefixtures("without_shape_checks", "few_frames")
def test_the_commands_of_the_readme_run_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = commands("README.md")
    assert found, "the README shows no command"
    for arguments in found:
        if arguments[0] == "app":
            continue  # runs until it is ended: tests/browser/test_app_browser.py starts and ends it
        if arguments[0] == "export" and not all(map(find_spec, ("onnx", "onnxscript", "onnxruntime"))):
            continue
        assert run(shorten(arguments)) == 0, f"protodepth {' '.join(arguments)}: {capsys.readouterr().err}"


def test_the_python_blocks_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = blocks("README.md", "python")
    assert code, "the README shows no Python"
    space: dict[str, object] = {}
    for block in code:
        exec(compile(block, "README.md", "exec"), space)
