"""One name for one thing: types have one home, what is written once stays written once, names say what they hold."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "protodepth"
FILES = {str(p.relative_to(ROOT)): p.read_text() for p in sorted(ROOT.rglob("*.py"))}
# Words that say nothing of what a name holds.
VAGUE = {"found", "drawn", "told", "thin", "looks", "work", "said"}
# A piece of text that only the one home of a rule has.
HOMES = {
    r"linspace\(0, (len\(\w+\)|count) - 1": "data/frame.py",  # evenly spaced frames: evenly()
    r"0\.7, 0\.8, 1\.0": "data/frame.py",  # blocks of train, val and test: time_blocks()
    r"frames cannot be used": "data/faults.py",  # the 5 % rule: check_share()
    r"is a file: give a folder for --out": "storage/claims.py",  # whose a folder is: holds()
    r"with other settings \(": "storage/claims.py",  # check_same()
    r"/proc/cpuinfo": "_version.py",  # processor()
    r"PackageNotFoundError": "_version.py",  # versions()
    r'SCORES = \("forgetting"': "report/results.py",
    r'UNRANKED = \("pretrained"': "report/results.py",
    r'SPLITS = \("train"': "data/frame.py",
    r"= Callable\[\[str, int, int\], None\]": "progress.py",  # Progress
    r"= Callable\[\[Batch\], BatchPrediction\]": "types.py",  # PredictBatch
}


def types(text: str) -> Iterator[str]:
    """Classes and aliases of types at the top of a module; constants, type variables and private names do not count.

    >>> list(types("class Frame: ..." "\\nRow = dict\\nLIMIT = 3\\nT = 1\\nclass _Own: ..."))
    ['Frame', 'Row']
    """
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [node.name] if isinstance(node, ast.ClassDef) else [t.id for t in targets if isinstance(t, ast.Name)]
        yield from (name for name in names if name[0].isupper() and not name.isupper())


def held(text: str) -> Iterator[tuple[str, int]]:
    """Every name that a module gives: variables, arguments, fields, functions."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def vague(text: str) -> list[tuple[str, int]]:
    return [(name, line) for name, line in held(text) if name.strip("_") in VAGUE]


def test_a_type_has_one_name_and_a_name_one_type() -> None:
    homes = defaultdict(list)
    for file, text in FILES.items():
        for name in types(text):
            homes[name].append(file)
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_what_is_checked_is_said_by_the_name() -> None:
    homes = defaultdict(list)
    for file, text in FILES.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("check_"):
                homes[node.name].append(file)
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_what_has_a_home_is_not_written_elsewhere() -> None:
    places = {pattern: [file for file, text in FILES.items() if re.search(pattern, text)] for pattern in HOMES}
    assert places == {pattern: [home] for pattern, home in HOMES.items()}


def test_names_say_what_they_hold() -> None:
    assert {file: words for file, text in FILES.items() if (words := vague(text))} == {}


def test_the_rules_catch_what_they_should() -> None:
    text = "class Row: ...\nCurve = dict\ndef work(told):\n    found = [x for said in told]\n"
    assert list(types(text)) == ["Row", "Curve"]
    assert {name for name, _ in vague(text)} == {"work", "told", "found", "said"}
    assert vague("findings = seen = worker = 1") == []
