"""Are the tests awake?  Small faults are put into core files, one at a time, and the files' own tests must fail.

``python tests/repository/mutants.py [MODULE ...] [--count 12] [--seed 0]`` prints every fault that survived and the
share that was caught.  Faults: comparisons, operators, signs, numbers, conditions and reductions that are another one.
Each runs in a fork of a process that has imported torch already, so that it costs what the tests cost.  One run without
any fault says which tests come past which lines: those of the fault's line are run first, the shortest before the
others, and the rest only if none of them fails.
"""

import argparse
import ast
import contextlib
import importlib.machinery
import io
import json
import os
import random
import resource
import sys
import threading
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "protodepth"
LIMIT = 120  # seconds of computing after which a fault that hangs counts as caught
TESTS = {
    "prototypes": ("unit/test_prototypes", "property/test_prototypes", "parity/test_parity_prototype_layer"),
    "descriptors": ("unit/test_descriptors", "parity/test_parity_prototype_layer"),
    "selection": ("unit/test_selection",),
    "losses": ("parity/test_parity_losses", "unit/test_losses"),
    "geometry": ("unit/test_geometry", "property/test_geometry", "parity/test_parity_losses"),
    "metrics": ("unit/test_metrics", "property/test_metrics", "parity/test_parity_metrics"),
    "training.schedule": ("unit/training/test_schedule",),
    "training.log": ("unit/training/test_log",),
    "training.plan": ("unit/training/test_plan",),
    "training.unfinished": ("unit/training/test_unfinished",),
    "training.objective": ("unit/training/test_objective",),
    "training.poses": ("unit/training/test_poses",),
    "training.evaluate": ("unit/training/test_evaluate",),
    "training.watch": ("unit/training/test_watch",),
    "training.state": ("unit/training/test_state",),
    "training.fit": ("unit/training/test_fit",),
    "training.sequence": ("unit/training/test_sequence",),
    "training.adapt": ("unit/training/test_adapt",),
    "training.judging": ("unit/training/test_judging",),
    "training.gate": ("unit/training/test_gate",),
    "training.registration": ("unit/training/test_registration",),
}
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
PAIRS = ("min max", "sum mean", "floor ceil", "sort argsort", "argmax argmin", "maximum minimum", "all any")
NAMES = {a: b for pair in PAIRS for a, b in (pair.split(), reversed(pair.split()))}


@dataclass(frozen=True)
class Mutant:
    line: int
    last_line: int
    before: str
    after: str
    source: str


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Every wrong version of one node; its children stay."""
    new = deepcopy(node)
    if isinstance(new, ast.Compare) and len(new.ops) == 1:
        new.ops = [COMPARISONS[type(new.ops[0])]()]
        yield new
    elif isinstance(new, ast.BinOp) and type(new.op) in OPERATORS:
        new.op = OPERATORS[type(new.op)]()
        yield new
    elif isinstance(new, ast.BoolOp):
        new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
        yield new
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not | ast.USub):
        yield new.operand
    elif isinstance(new, ast.IfExp | ast.If):
        new.test = ast.UnaryOp(ast.Not(), new.test)
        yield new
    elif isinstance(new, ast.Constant) and isinstance(new.value, bool | int | float):
        v = new.value
        new.value = not v if isinstance(v, bool) else v + 1 if isinstance(v, int) else 2 * v if v else 1.0
        yield new
    elif isinstance(new, ast.Attribute) and new.attr in NAMES:
        new.attr = NAMES[new.attr]
        yield new
    elif isinstance(new, ast.Name) and new.id in NAMES:
        new.id = NAMES[new.id]
        yield new


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """(parent, field, index) of all that computes or decides; words, types and errors are left alone."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "bases") or isinstance(tree, ast.Raise):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield tree, name, index
                yield from places(child)


def mutants(source: str) -> list[Mutant]:
    tree, found = ast.parse(source), []
    for parent, name, index in list(places(tree)):
        held = getattr(parent, name)
        node = held if index is None else held[index]
        for wrong in changes(node):
            place(parent, name, index, wrong)
            text = ast.unparse(ast.fix_missing_locations(tree))
            place(parent, name, index, node)
            shown = [ast.unparse(n.test if isinstance(n, ast.If) else n) for n in (node, wrong)]
            lines = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
            if isinstance(node, ast.If):
                lines = node.test.lineno, node.test.end_lineno or 0
            found.append(Mutant(*lines, *shown, text))
    return found


def place(parent: ast.AST, name: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[index] = node


def pretend(path: Path, source: str) -> None:
    """From now on the file at ``path`` has this text, for the importer alone."""
    original = importlib.machinery.SourceFileLoader.get_data

    def get_data(self: importlib.machinery.SourceFileLoader, wanted: str) -> bytes:
        asked = Path(wanted)
        if asked == path:
            return source.encode()
        if asked.suffix == ".pyc" and asked.parent.parent == path.parent and asked.name.startswith(f"{path.stem}."):
            raise OSError("compiled from the right text")
        return original(self, wanted)

    importlib.machinery.SourceFileLoader.get_data = get_data  # type: ignore[method-assign]


class Trace:
    """A plugin of pytest: which lines of a file each test comes past, and how long it takes."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines, self.seconds = str(path), dict[str, set[int]](), dict[str, float]()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        lines, started = self.lines.setdefault(nodeid, set()), time.process_time()
        self.seconds[nodeid] = started

        def line(frame: Any, event: str, arg: Any) -> Any:
            lines.add(frame.f_lineno)
            return line

        def call(frame: Any, event: str, arg: Any) -> Any:
            return line if frame.f_code.co_filename == self.path else None

        threading.settrace(call)
        sys.settrace(call)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        self.seconds[nodeid] = time.process_time() - self.seconds[nodeid]


def run_tests(names: list[str], plugins: tuple[Any, ...] = ()) -> int:
    """The exit code of pytest, silently; only for a forked child."""
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", f"--rootdir={ROOT}"]
        return int(pytest.main([*options, *names], plugins=list(plugins)))


def file_of(module: str) -> Path:
    return (PACKAGE / Path(*module.split("."))).with_suffix(".py")


def trace(module: str) -> list[tuple[str, set[int]]]:
    """(test, the module's lines that it comes past), the shortest test first; without any fault all of them pass."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        plugin = Trace(file_of(module))
        code = run_tests([str(ROOT / "tests" / f"{name}.py") for name in TESTS[module]], (plugin,))
        tests = sorted(plugin.lines, key=lambda test: plugin.seconds[test])
        with os.fdopen(writing, "w") as pipe:
            json.dump([(test, sorted(plugin.lines[test])) for test in tests], pipe)
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    assert os.waitpid(child, 0)[1] == 0, f"the tests of {module} fail without any fault"
    return [(test, set(lines)) for test, lines in json.loads(text)]


def passes(module: str, source: str, tests: list[str]) -> bool:
    """Whether these tests of the module pass with this text in its place."""
    child = os.fork()
    if child == 0:
        sys.dont_write_bytecode = True
        pretend(file_of(module), source)
        os._exit(run_tests([str(ROOT / test) for test in tests]))
    return os.waitpid(child, 0)[1] == 0


def survives(module: str, mutant: Mutant, tests: list[tuple[str, set[int]]]) -> bool:
    lines = set(range(mutant.line, mutant.last_line + 1))
    first = [test for test, passed in tests if passed & lines]
    rest = [test for test, passed in tests if not passed & lines]
    return all(passes(module, mutant.source, part) for part in (first, rest) if part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=list(TESTS)[:6])
    parser.add_argument("--count", type=int, default=10**6, help="faults of a module, drawn at random (all)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
    import hypothesis  # noqa: F401
    import kornia  # noqa: F401
    import pytest  # noqa: F401
    import scipy.stats  # noqa: F401
    import torch

    torch.set_num_threads(1)
    total = caught = 0
    for module in sorted(options.modules, key=lambda name: name.startswith("training.")):
        if module.startswith("training."):
            import conftest  # noqa: F401  what stands below the training is imported once for all faults
        assert f"protodepth.{module}" not in sys.modules
        started, tests, everything = time.monotonic(), trace(module), mutants(file_of(module).read_text())
        drawn = random.Random(options.seed).sample(everything, min(options.count, len(everything)))
        left = [m for m in sorted(drawn, key=lambda m: m.line) if survives(module, m, tests)]
        for m in left:
            print(f"  {module}:{m.line}: {m.before}  ->  {m.after}", flush=True)
        total, caught = total + len(drawn), caught + len(drawn) - len(left)
        part = f"{len(drawn) - len(left)} of {len(drawn)} caught (drawn from {len(everything)})"
        print(f"{module}: {part}, {time.monotonic() - started:.0f} s", flush=True)
    print(f"{caught} of {total} caught: {100 * caught / total:.0f} %")


if __name__ == "__main__":
    main()
