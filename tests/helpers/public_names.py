"""What a file offers to others: its public functions and classes, and which files use them, read from the text."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "src" / "protodepth"
DOTTED = re.compile(r"(protodepth(?:\.\w+)+)[.:](\w+)")

Name = tuple[str, str]  # (module, name)
Definition = ast.FunctionDef | ast.ClassDef


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


_parse = cache(ast.parse)  # several tests read every file


def definitions(text: str) -> dict[str, Definition]:
    """Public functions and classes at the top of a file; what a decorator registers has a user already.

    >>> sorted(definitions("def a(): ...\\nclass B: ...\\ndef _c(): ...\\n@names.register('d')\\ndef d(): ..."))
    ['B', 'a', 'd']
    """
    nodes = [n for n in _parse(text).body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    return {node.name: node for node in nodes if not node.name.startswith("_")}


def in_a_table(text: str) -> set[str]:
    """Names that the file itself hands on: those of tables at its top, and whatever is registered."""
    names: set[str] = set()
    for node in _parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            calls = [d for d in node.decorator_list if isinstance(d, ast.Call)]
            names |= {node.name for call in calls if "register" in ast.unparse(call.func)}
        else:
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names


def chain(node: ast.Attribute) -> tuple[str, list[str]]:
    """Where ``a.b.c`` starts, a name or the text in ``import_module(text)``, and what stands between that and the end.

    >>> chain(ast.parse("a.b.c", mode="eval").body)
    ('a', ['b'])
    """
    inner: list[str] = []
    value = node.value
    while isinstance(value, ast.Attribute):
        inner.insert(0, value.attr)
        value = value.value
    if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "import_module":
        value = value.args[0]
    return str(getattr(value, "id", getattr(value, "value", ""))), inner


def uses(text: str) -> Iterator[Name]:
    """(module, name) of everything of this package that a file names: imported, as an attribute, or in a string.

    >>> sorted(uses("from protodepth import geometry as g\\nfrom protodepth.types import Batch\\ng.warp(1)"))
    [('protodepth', 'geometry'), ('protodepth.geometry', 'warp'), ('protodepth.types', 'Batch')]
    """
    tree, modules = _parse(text), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "protodepth":
            for alias in node.names:
                yield str(node.module), alias.name
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            modules |= {a.asname: a.name for a in node.names if a.asname and a.name.startswith("protodepth.")}
            modules |= {n: n for n in (a.name.split(".")[0] for a in node.names) if n == "protodepth"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            start, inner = chain(node)
            if start in modules:
                yield ".".join((modules[start], *inner)), node.attr
            elif start.startswith("protodepth."):
                yield start, node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from ((m[1], m[2]) for m in DOTTED.finditer(node.value))
        elif isinstance(node, ast.Call) and len(node.args) > 1:  # monkeypatch.setattr(module, "name", ...)
            first, second = node.args[:2]
            if isinstance(first, ast.Name) and first.id in modules and isinstance(second, ast.Constant):
                yield modules[first.id], str(second.value)


@cache
def _used_in(path: Path) -> frozenset[Name]:
    return frozenset(uses(path.read_text()))


def users(folders: tuple[str, ...]) -> dict[Name, set[Path]]:
    """The files of these folders that use each name, without the name's own file."""
    table: dict[Name, set[Path]] = defaultdict(set)
    for folder in folders:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            for module, name in _used_in(path):
                if MODULES.get(module) != path:
                    table[module, name].add(path)
    return table
