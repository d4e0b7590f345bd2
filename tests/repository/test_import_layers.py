"""Who may import whom.  Imports go down, never up, and never sideways between concrete siblings.

The table below is the one of the design, with the modules that came later:

0  nouns                types errors registry _version
1  pure pieces          prototypes descriptors selection geometry losses metrics checkpoint arrays classical paper_tables distributed
2  networks and data    backbones/*  data/*  (which do not know each other)  model storage official hub
3  methods/*            see the model, and of level 2 otherwise the two base modules only
4  work                 training training_state protocol runs config report/* figures and what stands on them
5  settings and verbs   recipes launch demo experiments/* cli cli_data commands/* app/*
"""

import ast
from pathlib import Path

import pytest

import protodepth

ROOT = Path(protodepth.__file__).parent

LEVELS = {
    0: "types errors registry _version",
    1: "prototypes descriptors selection geometry losses metrics checkpoint arrays classical paper_tables distributed",
    2: "backbones data model storage official hub",
    3: "methods",
    4: "training training_state protocol runs config report figures conversion adaptation inference progress domains sources stream "
    "engines export graph_cache speed rerun_file",
    5: "recipes launch demo experiments cli cli_data commands app __main__ __init__",
}
LEVEL = {name: level for level, names in LEVELS.items() for name in names.split()}

DATASETS = {
    "kitti",
    "lists",
    "nuscenes",
    "nyu_v2",
    "record3d",
    "rosbag",
    "scannet",
    "tum",
    "vkitti",
    "void",
    "waymo",
    "worlds",
}
NETWORKS = {"fusionnet", "kbnet", "lite", "uformer", "voiced", "hooked"}
PARENTS = {("ancl", "ewc"), ("cmp", "replay")}  # a method that is another one and a little more
HEAVY = {
    "cv2", "h5py", "pyarrow", "sklearn", "rosbags", "OpenEXR", "liblzfse", "yaml", "gradio", "onnx", "onnxscript", "onnxruntime", "openvino",
    "rerun", "huggingface_hub", "tensorboard", "transformers", "torchvision",
}  # fmt: skip
LIGHT = {"numpy", "torch", "jaxtyping"}

Imports = list[tuple[str, bool]]  # (module, at import time)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_name(p): p for p in sorted(ROOT.rglob("*.py"))}


def imports(path: Path) -> Imports:
    """Every imported module; imports for type checkers alone do not count, those inside functions are marked."""
    found: Imports = []

    def visit(node: ast.AST, now: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                found.extend((alias.name, now) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path} imports relatively"
                module = str(child.module)
                for alias in child.names:
                    deeper = f"{module}.{alias.name}".removeprefix("protodepth.")
                    found.append((f"{module}.{alias.name}" if deeper in MODULES else module, now))
            visit(child, now and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    visit(ast.parse(path.read_text()), True)
    return found


def own(path: Path) -> list[tuple[str, bool]]:
    """Imports of this package, as names in MODULES."""
    names = [
        (m.removeprefix("protodepth").lstrip(".") or "__init__", now)
        for m, now in imports(path)
        if m.split(".")[0] == "protodepth"
    ]
    return [(name, now) for name, now in names if name != "__init__"]


def forbidden(name: str, target: str) -> str | None:
    """Why ``name`` may not import ``target``; None if it may."""
    a, b = name.split("."), target.split(".")
    if LEVEL[b[0]] > LEVEL[a[0]]:
        return f"level {LEVEL[a[0]]} imports level {LEVEL[b[0]]}"
    if LEVEL[a[0]] == LEVEL[b[0]] == 0 and target != "errors":
        return "level 0 knows nothing but errors"
    pair = (a[0], b[0])
    if pair in {("backbones", "data"), ("data", "backbones")} or (
        a[0] in ("backbones", "data") and LEVEL[b[0]] == 2 and a[0] != b[0]
    ):
        return "networks, data and the model do not know each other"
    if b[0] == "data" and a[0] in ("model", "storage", "official"):
        return "the model does not know data"
    if (
        b[0] == "backbones"
        and a[0] in ("model", "storage", "official")
        and target not in ("backbones.base", "backbones.posenet")
    ):
        return "the model sees backbones.base and backbones.posenet only"
    if (
        a[0] == "methods"
        and b[0] in ("backbones", "data", "storage", "official")
        and target not in ("backbones.base", "data.base")
    ):
        return "methods see the base modules of level 2 and the model"
    if (
        pair == ("methods", "methods")
        and len(a) > 1
        and b[-1] not in ("base", "finetune")
        and (a[-1], b[-1]) not in PARENTS
    ):
        return "a method imports a sibling"
    if a[0] == b[0] and {a[-1], b[-1]} <= DATASETS and a[-1] != b[-1]:
        return "a dataset imports a sibling"
    if a[0] == b[0] and {a[-1], b[-1]} <= NETWORKS and a[-1] != b[-1] and len(a) > 1:
        return "a network imports a sibling"
    return None


def test_every_module_has_a_level() -> None:
    missing = sorted({name.split(".")[0] for name in MODULES} - set(LEVEL))
    assert not missing, f"say in LEVELS of this test where these belong: {missing}"


@pytest.mark.parametrize("name", [n for n in MODULES if n != "__init__"])
def test_imports_go_down_and_never_between_concrete_siblings(name: str) -> None:
    reasons = {target: forbidden(name, target) for target, _ in own(MODULES[name])}
    assert not {t: r for t, r in reasons.items() if r}


def test_the_rules_catch_what_they_should() -> None:
    wrong = [
        ("types", "model"), ("geometry", "data.base"), ("model", "methods.base"), ("data.worlds", "model"), ("data.kitti", "data.void"),
        ("backbones.kbnet", "data.base"), ("backbones.kbnet", "backbones.voiced"), ("model", "backbones.kbnet"), ("storage", "data.base"),
        ("methods.lwf", "methods.ewc"), ("methods.base", "training"), ("methods.ewc", "backbones.kbnet"), ("protocol", "cli"), ("types", "registry"),
    ]  # fmt: skip
    right = [
        ("prototypes", "types"), ("losses", "geometry"), ("model", "backbones.base"), ("storage", "backbones.posenet"), ("methods.ewc", "methods.finetune"),
        ("data.kitti", "data.frames"), ("backbones.kbnet", "backbones.layers"), ("runs", "protocol"), ("commands.train", "launch"),
    ]  # fmt: skip
    assert all(forbidden(*pair) for pair in wrong)
    assert not any(forbidden(*pair) for pair in right)


def test_no_module_needs_itself_to_be_imported() -> None:
    graph = {name: {t for t, now in own(path) if now and t != name} for name, path in MODULES.items()}
    done: set[str] = set()

    def walk(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail, name])
        if name not in done:
            for target in graph.get(name, ()):
                walk(target, (*trail, name))
            done.add(name)

    for name in graph:
        walk(name, ())


@pytest.mark.parametrize("name", MODULES)
def test_heavy_optional_libraries_are_imported_only_where_they_are_used(name: str) -> None:
    at_once = {m.split(".")[0] for m, now in imports(MODULES[name]) if now}
    assert not at_once & HEAVY


def test_the_nouns_need_nothing_but_torch_and_numpy() -> None:
    import sys

    for name in LEVELS[0].split():
        outside = {m.split(".")[0] for m, _ in imports(MODULES[name])} - {"protodepth"} - set(sys.stdlib_module_names)
        assert outside <= LIGHT, name


def test_the_three_files_of_the_method_are_short() -> None:
    lines = sum(len(MODULES[name].read_text().splitlines()) for name in ("prototypes", "descriptors", "model"))
    assert lines < 450
