"""The files, folders and modules that documents, comments and docstrings name are there."""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from helpers.documents import DOCUMENTS, ROOT

SOURCES = [
    str(p.relative_to(ROOT))
    for folder in ("src", "tests", "benchmarks", "examples")
    for p in sorted((ROOT / folder).rglob("*.py"))
]
# how test_import_layers.py speaks of any file; the network that docs/add_a_backbone.md adds
INVENTED = {"tests/unit/a/test_b.py", "protodepth.backbones.mynet"}
WHOLE_PATH = re.compile(r"\b(?:src/protodepth|tests|docs|benchmarks|examples)/[\w./-]*\w")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[\w-]*)?\)")
IMPORT = re.compile(r"^\s*from (protodepth[\w.]*) import ([\w, ]+)$|^\s*import (protodepth[\w.]*)", re.MULTILINE)


def missing_paths(text: str) -> set[str]:
    return {p for p in WHOLE_PATH.findall(text) if not (ROOT / p).exists()} - INVENTED


@pytest.mark.parametrize("document", [d for d in (*DOCUMENTS, *SOURCES) if not d.endswith(Path(__file__).name)])
def test_every_path_that_is_written_out_exists(document: str) -> None:
    assert missing_paths((ROOT / document).read_text()) == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_leads_somewhere(document: str) -> None:
    links = [t for t in LINK.findall((ROOT / document).read_text()) if "://" not in t]
    assert [t for t in links if not ((ROOT / document).parent / t).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_everything_that_is_imported_exists(document: str) -> None:
    for module, names, alone in IMPORT.findall((ROOT / document).read_text()):
        found = import_module(module or alone)
        for name in filter(None, (n.split(" as ")[0].strip() for n in names.split(","))):
            whole = f"{module}.{name}"
            assert hasattr(found, name) or whole in INVENTED or find_spec(whole), whole


def test_the_first_screen_of_the_readme_has_both_commands_and_every_target_exists() -> None:
    screen = (ROOT / "README.md").read_text().splitlines()[:30]
    assert all(any(line.startswith(f"make {target}") for line in screen) for target in ("demo", "test"))
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {t for d in DOCUMENTS for t in re.findall(r"^(?:.*`)?make ([\w-]+)", (ROOT / d).read_text(), re.MULTILINE)}
    assert named <= targets


def test_a_path_that_is_gone_is_noticed() -> None:
    assert missing_paths("see `tests/unit/test_gone.py`, docs/gone.md.") == {
        "tests/unit/test_gone.py",
        "docs/gone.md",
    }
    assert missing_paths(f"see {Path('tests') / 'conftest.py'}.") == set()
