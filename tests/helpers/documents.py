"""The commands and Python blocks that README and docs show."""

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "examples/ros2/README.md",
    *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md"))),
)


def blocks(document: str, *kinds: str) -> list[str]:
    """The text of fenced blocks of the given kinds ("" = no kind)."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / document).read_text(), flags=re.S | re.M)
    return [text for kind, text in found if kind in kinds]


def lines(document: str) -> list[list[str]]:
    """Every line of the blocks that a shell would run, as words; comments are gone, continued lines are joined."""
    text = "\n".join(blocks(document, "", "sh", "bash", "text"))
    words = []
    for line in text.replace("\\\n", " ").splitlines():
        try:
            words.append(shlex.split(line, comments=True))
        except ValueError:  # prose or a table: an apostrophe opens no string there
            continue
    return [w for w in words if w]


def commands(document: str) -> list[list[str]]:
    """The arguments of every ``protodepth ...``, ``torchrun ... -m protodepth ...`` line;
    what a program printed starts with other words.
    """
    found = []
    for words in lines(document):
        if words[0].removeprefix(".venv/bin/") == "protodepth":
            found.append(words[1:])
        elif words[0] in ("torchrun", "python") and ["-m", "protodepth"] in [
            words[i : i + 2] for i in range(len(words))
        ]:
            found.append(words[words.index("protodepth") + 1 :])
    return found


def scripts(document: str) -> list[list[str]]:
    """Every ``python FILE ...`` line."""
    return [words[1:] for words in lines(document) if words[0] == "python" and words[1].endswith(".py")]


def spoken(document: str) -> list[str]:
    """Commands inside sentences, between single backticks."""
    text = re.sub(r"^```.*?^```", "", (ROOT / document).read_text(), flags=re.S | re.M)
    return re.findall(r"`protodepth ([a-z][^`]*)`", text)


def load_benchmark(name: str) -> ModuleType:
    """A script of benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
