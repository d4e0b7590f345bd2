"""Every command and every Python block of the README runs as written (installation apart)."""

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import jaxtyping
import pytest

from helpers.documents import blocks, commands
from protodepth.app.examples import example
from protodepth.cli.main import run
from protodepth.data.files import images
from protodepth.storage.folders import bundled
from protodepth.training import recipes

pytestmark = pytest.mark.skipif(not bundled(), reason="no bundled model in this checkout")


def shorten(arguments: list[str]) -> list[str]:
    """The same command with little training on small frames: the test is about whether it runs."""
    if arguments[:2] == ["data", "example"]:
        place = arguments.index("--size") + 1
        small = [*arguments[:place], "96x128", *arguments[place + 1 :]]
        return small if "--frames" in arguments else [*small, "--frames", "12"]
    if arguments[0] == "demo":
        return [*arguments, "--steps", "2"]
    if arguments[0] == "adapt":
        return [*arguments, "--steps", "2", "--force", "--no-register"]
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


def test_five_lines_of_a_notebook_lead_from_a_photo_to_its_point_cloud(tmp_path, monkeypatch):
    """As written, but for the installation; the site shows the same five."""
    (cell,) = blocks("README.md", "ipython")
    assert blocks("docs/index.md", "ipython") == [cell]
    install, *rest = cell.strip().splitlines()
    assert install == "%pip install protodepth"
    assert len(rest) == 4
    monkeypatch.chdir(tmp_path)
    frame = example("room")
    images.write_image(tmp_path / "photo.jpg", frame.image)
    images.write_depth(tmp_path / "points.png", frame.sparse_depth, "mm")
    space: dict[str, Any] = {}
    exec(compile("\n".join(rest), "README.md", "exec"), space)
    assert f"element vertex {480 * 640}".encode() in (tmp_path / "photo.ply").read_bytes()[:200]
    assert "<img" in space["p"]._repr_html_()


def test_the_python_blocks_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = blocks("README.md", "python")
    assert code, "the README shows no Python"
    space: dict[str, object] = {}
    for block in code:
        exec(compile(block, "README.md", "exec"), space)
