"""No pickle, no eval: files from strangers are data and never programs."""

import ast
from pathlib import Path

import pytest

import protodepth

ROOT = Path(protodepth.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
ERRORS = {"PicklingError", "UnpicklingError"}  # to catch them makes no program of data
MODULES = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"}


def dotted(node: ast.AST) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def faults(source: str) -> list[str]:
    """Every call or import by which data could become a program."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [
                f"import {a.name}"
                for a in node.names
                if a.name.split(".")[0] in MODULES - {"pickle"} or (a.name == "pickle" and a.asname)
            ]
        elif isinstance(node, ast.ImportFrom):
            names = {a.name for a in node.names} - ERRORS
            found += [f"from {node.module}"] if names and str(node.module).split(".")[0] in MODULES else []
            found += ["from torch import load"] if node.module == "torch" and "load" in names else []
        elif isinstance(node, ast.Attribute):  # to catch its error is all that one may do with pickle
            found += [dotted(node)] if dotted(node.value) == "pickle" and node.attr not in ERRORS else []
        elif isinstance(node, ast.Call):
            found += call_faults(dotted(node.func), node)
    return found


def call_faults(name: str, node: ast.Call) -> list[str]:
    options = {k.arg: k.value for k in node.keywords}

    def is_true(option: str) -> bool:
        value = options.get(option)
        return isinstance(value, ast.Constant) and value.value is True

    if name in ("eval", "exec", "compile", "__import__", "os.system", "os.popen"):
        return [name]
    if name == "torch.load" and not is_true("weights_only"):
        return ["torch.load without weights_only=True"]
    if (
        name in ("np.load", "numpy.load")
        and "allow_pickle" in options
        and not (isinstance(options["allow_pickle"], ast.Constant) and options["allow_pickle"].value is False)
    ):
        return ["np.load with pickle"]
    if name.startswith("yaml.") and name.endswith(("load", "load_all")) and "safe" not in name:
        return [name]
    if name.startswith("subprocess.") and is_true("shell"):
        return ["a shell"]
    return ["extractall"] if name.endswith(".extractall") else []


def test_no_data_becomes_a_program() -> None:
    assert len(FILES) > 200
    assert {str(path.relative_to(ROOT)): wrong for path in FILES if (wrong := faults(path.read_text()))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "pickle.loads(x)", "import pickle as p", "from pickle import loads", "import joblib", "torch.load(f)",
        "torch.load(f, weights_only=False)", "torch.load(f, weights_only=x)",
        "from torch import load", "np.load(f, allow_pickle=True)", "np.load(f, allow_pickle=x)", "yaml.load(f)",
        "yaml.full_load(f)", "eval(x)", "exec(x)",
        "subprocess.run(x, shell=True)", "zipfile.ZipFile(f).extractall()", "archive.extractall(d)",
    ],
)  # fmt: skip
def test_the_rules_catch_what_they_should(line: str) -> None:
    assert faults(line) or "ZipFile(f)" in line


@pytest.mark.parametrize(
    "line",
    [
        "torch.load(f, weights_only=True)",
        "np.load(f)",
        "np.load(f, allow_pickle=False)",
        "yaml.safe_load(f)",
        "model.eval()",
    ],
)
def test_the_rules_allow_what_is_safe(line: str) -> None:
    assert faults(line) == []
