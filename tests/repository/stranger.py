"""Ten things that others use, without their homes: ``python tests/repository/stranger.py [--seed N] [--answers]``.

A reader who has never seen the code is given the output and names for each thing the file where it should stand: the
tree, each file with the first sentence of its docstring, and ten functions and classes with the first sentences of
theirs.  They are drawn from all that is public at the top of a file and that another file of the package uses: what
somebody would look for.  ``--answers`` prints the homes.  CONTRIBUTING.md has the last result.
"""

import argparse
import ast
import random
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.public_names import MODULES, PACKAGE, definitions, users


def first_words(text: str | None) -> str:
    """The first paragraph of a docstring, before its examples."""
    return " ".join((text or "").split(">>>")[0].split("\n\n")[0].split())


@cache
def everything() -> list[tuple[str, str, str]]:
    """(home, name, description) of all public functions and classes that another file of the package uses."""
    used, things = users(("src",)), []
    for module, path in MODULES.items():
        for name, node in definitions(path.read_text()).items():
            if used.get((module, name)):
                things.append((str(path.relative_to(PACKAGE)), name, first_words(ast.get_docstring(node))))
    return things


def choose(seed: int, count: int = 10) -> list[tuple[str, str, str]]:
    """The same chance for everything, wherever it stands."""
    return random.Random(seed).sample(everything(), count)


@cache
def tree() -> list[str]:
    """Folders and files of the package, each file with the first sentence of its docstring."""
    lines = []
    for path in sorted(PACKAGE.rglob("*"), key=lambda p: p.relative_to(PACKAGE).parts):
        indent = "  " * len(path.relative_to(PACKAGE).parts)
        if path.is_dir() and any(path.glob("*.py")):
            lines.append(f"{indent}{path.name}/")
        elif path.suffix == ".py" and not path.name.startswith("__"):
            lines.append(f"{indent}{path.name}: {first_words(ast.get_docstring(ast.parse(path.read_text())))}")
    return ["protodepth/", *lines]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--answers", action="store_true")
    options = parser.parse_args(arguments)
    chosen = choose(options.seed)
    if options.answers:
        print("\n".join(f"{n:2}. {home}: {name}" for n, (home, name, _) in enumerate(chosen, 1)))
        return
    print("\n".join(tree()))
    print("\nIn which file of this tree does each of these stand?\n")
    print("\n".join(f"{n:2}. {name}: {description}" for n, (_, name, description) in enumerate(chosen, 1)))


if __name__ == "__main__":
    main()
