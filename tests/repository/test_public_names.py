"""What is public at the top of a file is there for others: somebody else uses it, and it says what it is."""

import ast

from helpers.documents import DOCUMENTS, ROOT
from helpers.public_names import MODULES, PACKAGE, definitions, in_a_table, users

WORDS = 4  # of a description: fewer say nothing
# Every experiment's file has these two; experiments/catalogue.py takes them from the module that it is given.
OF_AN_EXPERIMENT = {"plan", "show"}


def documented(module: str, name: str, documents: str) -> bool:
    return f"`{name}`" in documents or f"{module.removeprefix('protodepth.')}.{name}" in documents


def test_a_function_that_only_its_own_file_uses_is_private() -> None:
    used, alone = users(("src", "tests", "benchmarks", "examples")), []
    documents = "\n".join((ROOT / document).read_text() for document in DOCUMENTS)
    for module, path in MODULES.items():
        text = path.read_text()
        expected = in_a_table(text) | (OF_AN_EXPERIMENT if ".experiments." in module else set())
        for name, node in definitions(text).items():
            there = used.get((module, name)) or name in expected or documented(module, name, documents)
            if isinstance(node, ast.FunctionDef) and not there:
                alone.append(f"{path.relative_to(PACKAGE)}: {name}")
    assert not alone, "call these _name, or let another file use them"


def test_what_other_files_use_says_what_it_is() -> None:
    used, silent = users(("src",)), []
    for module, path in MODULES.items():
        for name, node in definitions(path.read_text()).items():
            text = (ast.get_docstring(node) or "").split(">>>")[0]
            if used.get((module, name)) and len(text.split()) < WORDS:
                silent.append(f"{path.relative_to(PACKAGE)}: {name}")
    assert not silent, "say in a sentence what these are"


def test_every_file_says_what_is_at_home_there() -> None:
    files = [p for p in MODULES.values() if p.name != "__init__.py"]
    words = {p: (ast.get_docstring(ast.parse(p.read_text())) or "").split("\n\n")[0].split() for p in files}
    least = {p: 2 if p.parent.name == "cli" else WORDS for p in files}  # a command is called by its name
    assert not [str(p.relative_to(PACKAGE)) for p in files if len(words[p]) < least[p]]
