"""The files, folders and modules that documents, comments and docstrings name are there."""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from helpers.documents import DOCUMENTS, ROOT

SOURCES = [
    str(p.relative_to(ROOT))
    for folder in ("src", "tests", "benchmarks", "examples")
    for p in sorted((ROOT / folder).rglob("*.py"))
]
# how test_import_layers.py speaks of any file; the network that docs/add_a_backbone.md adds
INVENTED = {"tests/unit/a/test_b.py", "protodepth.backbones.mynet"}
WHOLE_PATH = re.compile(r"\b(?:src/protodepth|tests|docs|benchmarks|examples)/[\w./-]*\w")
SHORT_PATH = re.compile(r"[\w/.]*\w/\w+\.(?:py|toml)\b")  # from the package or the file's own folder
SOMEBODYS = {"/path/lists.toml", "tuning/tuned.toml"}  # a user's own, or written by a command
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[\w-]*)?\)")
IMPORT = re.compile(r"^\s*from (protodepth[\w.]*) import ([\w, ]+)$|^\s*import (protodepth[\w.]*)", re.MULTILINE)


def missing_paths(text: str) -> set[str]:
    return {p for p in WHOLE_PATH.findall(text) if not (ROOT / p).exists()} - INVENTED


def test_every_path_that_is_written_out_exists() -> None:
    texts = {d: (ROOT / d).read_text() for d in (*DOCUMENTS, *SOURCES) if not d.endswith(Path(__file__).name)}
    assert {document: missing for document, text in texts.items() if (missing := missing_paths(text))} == {}


def missing_files(text: str, folder: Path) -> set[str]:
    """Files that are named with their folder, seen from the repository, the package or ``folder``."""
    places = (ROOT, ROOT / "src" / "protodepth", folder)
    named = set(SHORT_PATH.findall(text)) - SOMEBODYS - INVENTED
    return {path for path in named if not any((place / path).exists() for place in places)}


def test_every_file_that_is_named_with_its_folder_exists() -> None:
    paths = [ROOT / d for d in (*DOCUMENTS, *SOURCES) if not d.startswith("tests/")]
    gone = {str(path.relative_to(ROOT)): missing_files(path.read_text(), path.parent) for path in paths}
    assert {document: missing for document, missing in gone.items() if missing} == {}


def test_every_link_leads_somewhere() -> None:
    links = {d: [t for t in LINK.findall((ROOT / d).read_text()) if "://" not in t] for d in DOCUMENTS}
    assert [(d, t) for d, targets in links.items() for t in targets if not ((ROOT / d).parent / t).exists()] == []


def test_everything_that_is_imported_exists() -> None:
    for document in DOCUMENTS:
        for module, names, alone in IMPORT.findall((ROOT / document).read_text()):
            found = import_module(module or alone)
            for name in filter(None, (n.split(" as ")[0].strip() for n in names.split(","))):
                whole = f"{module}.{name}"
                assert hasattr(found, name) or whole in INVENTED or find_spec(whole), (document, whole)


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
    text = "as data (``assets/paper.toml``), in methods/base.py and experiments/paper.toml"
    assert missing_files(text, ROOT / "src") == {"assets/paper.toml"}
