"""Ten public functions without their homes: ``python tests/repository/stranger.py [--seed N] [--answers]``.

A reader who has never seen the code is given the output (the bare tree and ten descriptions) and names for each
description the file where it should stand.  ``--answers`` prints the homes.  CONTRIBUTING.md has the last result.
"""

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "protodepth"
LEAST = 4  # words of a description: fewer say nothing


def public_functions(path: Path) -> Iterator[tuple[str, str]]:
    """(name, first paragraph of the docstring) of the functions and methods of a file that others may call."""
    for node in ast.parse(path.read_text()).body:
        of_class = isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for f in node.body if isinstance(node, ast.ClassDef) and of_class else [node]:
            if isinstance(f, ast.FunctionDef) and not f.name.startswith("_"):
                text = " ".join((ast.get_docstring(f) or "").split(">>>")[0].split("\n\n")[0].split())
                if len(text.split()) >= LEAST:
                    yield f"{node.name}.{f.name}" if isinstance(node, ast.ClassDef) else f.name, text


def choose(seed: int, count: int = 10) -> list[tuple[str, str, str]]:
    """(home, name, description), drawn from all files with the same chance for every function."""
    files = sorted(PACKAGE.rglob("*.py"))
    everything = [(str(p.relative_to(PACKAGE)), *found) for p in files for found in public_functions(p)]
    return random.Random(seed).sample(everything, count)


def tree() -> list[str]:
    """Folders and files of the package, nothing else."""
    lines = []
    for path in sorted(PACKAGE.rglob("*"), key=lambda p: p.relative_to(PACKAGE).parts):
        name = path.name
        if (path.suffix == ".py" and not name.startswith("__")) or (path.is_dir() and any(path.glob("*.py"))):
            depth = len(path.relative_to(PACKAGE).parts)
            lines.append("  " * depth + name + ("/" if path.is_dir() else ""))
    return ["protodepth/", *lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--answers", action="store_true")
    options = parser.parse_args()
    chosen = choose(options.seed)
    if options.answers:
        print("\n".join(f"{n:2}. {home}: {name}" for n, (home, name, _) in enumerate(chosen, 1)))
        return
    print("\n".join(tree()))
    print("\nIn which file of this tree does each of these stand?\n")
    print("\n".join(f"{n:2}. {name}: {description}" for n, (_, name, description) in enumerate(chosen, 1)))


if __name__ == "__main__":
    main()
