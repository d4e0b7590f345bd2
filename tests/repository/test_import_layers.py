"""Who may import whom.  Imports go down the floors below, never up,
and never sideways between rooms or concrete siblings.
"""

import ast
import sys
from functools import cache
from pathlib import Path

import protodepth
from helpers.documents import ROOT as REPOSITORY

ROOT = Path(protodepth.__file__).parent

# The house from the ground up: files and folders of src/protodepth, one floor a line.  A module imports from lower
# floors and from its own folder, not from another room of its floor.
# A dotted name is a file that stands on another floor than the rest of its folder.
FLOORS = (
    "errors _version",
    "types registry stopwatch",
    "storage.files storage.claims storage.space distributed progress features geometry prototypes descriptors "
    "selection metrics cluster",
    "config losses",
    "backbones data",
    "storage extras",
    "notebook",
    "model",
    "methods storage.hub storage.official.convert",
    "report",
    "training inference",
    "experiments app",
    "cli",
    "__main__",
)
FLOORS_OF_DATA = (
    "data.files data.frame data.arrays data.sampling data.projection data.interpolation",
    "data.hidden data.faults data.arguments data.given data.doubt",
    "data.augment data.batches data.entries",
    "data.manifest data.recording data.worlds",
    "data.datasets",
    "data.check data.preview data.example",
)
# What of a lower room may be seen at all, where that is not everything.
DOORS = {
    ("storage", "backbones"): {"backbones.base", "backbones.posenet"},
    ("model", "backbones"): {"backbones.base"},
    ("extras", "backbones"): {"backbones.base"},
    ("methods", "backbones"): {"backbones.base"},
    ("methods", "data"): {"data.frame", "data.batches", "data.faults"},
    ("methods", "storage"): {"storage.files"},
    ("storage", "data"): set(),
}
# Folders of concrete things that do not know each other, and the files there that all of them may use.
SIBLINGS = {
    "backbones": {"base", "layers", "planes", "posenet", "in_graph", "scalefree_graph"},
    "methods": {"base", "finetune", "statistics"},
    "data.datasets": {"ros_frames", "ros_messages", "realsense", "video"},
    "cli": {"options", "help"},
}
# A thing that is another one and a little more.
PARENTS = {
    ("methods.ancl", "methods.ewc"),
    ("methods.cmp", "methods.replay"),
    ("backbones.fusionnet", "backbones.scaffnet"),
    ("cli.completion", "cli.main"),
}
HEAVY = {
    "cv2", "h5py", "pyarrow", "sklearn", "rosbags", "OpenEXR", "liblzfse", "yaml", "gradio", "onnx", "onnxscript",
    "onnxruntime", "openvino", "ray",
    "rerun", "huggingface_hub", "transformers", "torchvision",
}  # fmt: skip
LIGHT = {"numpy", "torch", "jaxtyping"}

Imports = list[tuple[str, bool]]  # (module, at import time)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_name(p): p for p in sorted(ROOT.rglob("*.py"))}


@cache
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


def room(name: str, floors: tuple[str, ...]) -> tuple[int, str] | None:
    """(floor, the longest name on it that is the module or one of its folders)."""
    found = [
        (level, place)
        for level, line in enumerate(floors)
        for place in line.split()
        if name == place or name.startswith(f"{place}.")
    ]
    return max(found, key=lambda f: len(f[1])) if found else None


def climbs(name: str, target: str, floors: tuple[str, ...]) -> str | None:
    here, there = room(name, floors), room(target, floors)
    assert here, name
    assert there, target
    if here[1] == there[1] or there[0] < here[0]:
        return None
    return f"{here[1]} imports {there[1]}, which stands " + ("above it" if there[0] > here[0] else "beside it")


def forbidden(name: str, target: str) -> str | None:
    """Why ``name`` may not import ``target``; None if it may."""
    reason = climbs(name, target, FLOORS)
    if not reason and name.startswith("data.") and target.startswith("data."):
        reason = climbs(name, target, FLOORS_OF_DATA)
    if reason:
        return reason
    rooms = tuple(str((room(n, FLOORS) or (0, ""))[1]).split(".")[0] for n in (name, target))
    if (room(name, FLOORS) or (0, ""))[1] == rooms[0] and rooms in DOORS and target not in DOORS[rooms]:
        return f"{rooms[0]} sees of {rooms[1]} only {', '.join(sorted(DOORS[rooms])) or 'nothing'}"
    (folder, _, _), (other, _, last) = name.rpartition("."), target.rpartition(".")
    siblings = folder == other and folder in SIBLINGS and name != target and last not in SIBLINGS[folder]
    return f"{name} imports its sibling {target}" if siblings and (name, target) not in PARENTS else None


def test_every_module_has_a_floor() -> None:
    missing = sorted(n for n in MODULES if n != "__init__" and not room(n, FLOORS))
    missing += sorted(n for n in MODULES if n.startswith("data.") and not room(n, FLOORS_OF_DATA))
    assert not missing, f"say in FLOORS of this test where these belong: {missing}"
    places = [p for line in (*FLOORS, *FLOORS_OF_DATA) for p in line.split()]
    assert set(places) <= set(MODULES)
    assert len(places) == len(set(places))


def test_imports_go_down_and_never_between_concrete_siblings() -> None:
    pairs = [(name, target) for name, path in MODULES.items() if name != "__init__" for target, _ in own(path)]
    assert len(pairs) > len(MODULES)
    assert {pair: reason for pair in pairs if (reason := forbidden(*pair))} == {}


def test_the_rules_catch_what_they_should() -> None:
    wrong = [
        ("types", "model"), ("geometry", "data.frame"), ("model", "methods.base"), ("data.worlds.worlds", "model"),
        ("data.datasets.kitti", "data.datasets.void"),
        ("backbones.kbnet", "data.frame"), ("backbones.kbnet", "backbones.voiced"), ("model", "backbones.kbnet"),
        ("storage.folders", "data.frame"),
        ("methods.lwf", "methods.ewc"), ("methods.base", "training.fit"), ("methods.ewc", "backbones.kbnet"),
        ("training.sequence", "cli.main"), ("types", "registry"),
        ("training.fit", "inference.stream"), ("data.frame", "data.datasets.kitti"),
        ("data.recording.open", "data.datasets.tum"), ("storage.folders", "model"),
        ("report.results", "training.sequence"), ("cli.tune", "cli.bench"), ("methods.ewc", "data.arguments"),
        ("methods.ewc", "storage.folders"),
    ]  # fmt: skip
    right = [
        ("prototypes", "types"), ("losses", "geometry"), ("model", "backbones.base"),
        ("storage.folders", "backbones.posenet"), ("methods.ewc", "methods.finetune"),
        ("data.datasets.kitti", "data.files.images"), ("backbones.kbnet", "backbones.layers"),
        ("training.runs", "training.sequence"), ("cli.train", "training.runs"),
        ("data.files.images", "storage.files"), ("storage.hub", "model"), ("backbones.fusionnet", "backbones.scaffnet"),
        ("methods.replay", "storage.files"),
    ]  # fmt: skip
    assert [pair for pair in wrong if not forbidden(*pair)] == []
    assert [pair for pair in right if forbidden(*pair)] == []


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


def test_heavy_optional_libraries_are_imported_only_where_they_are_used() -> None:
    at_once = {name: {m.split(".")[0] for m, now in imports(path) if now} for name, path in MODULES.items()}
    assert {name: heavy for name, libraries in at_once.items() if (heavy := libraries & HEAVY)} == {}


def test_the_nouns_need_nothing_but_torch_and_numpy() -> None:
    for name in " ".join(FLOORS[:2]).split():
        outside = {m.split(".")[0] for m, _ in imports(MODULES[name])} - {"protodepth"} - set(sys.stdlib_module_names)
        assert outside <= LIGHT, name


def test_the_three_files_of_the_method_are_short() -> None:
    lines = sum(len(MODULES[name].read_text().splitlines()) for name in ("prototypes", "descriptors", "model"))
    assert lines < 450


def test_the_floor_plan_of_the_reading_guide_has_every_folder_and_every_file_at_the_top() -> None:
    plan = (REPOSITORY / "docs" / "reading_guide.md").read_text()
    folders = [*sorted({f"{p.parent.name}/" for p in ROOT.rglob("*.py")} - {"protodepth/"}), "weights/"]
    files = [p.stem for p in ROOT.glob("*.py") if not p.stem.startswith("_")]
    assert [name for name in (*folders, *files) if name not in plan] == []


def test_the_test_of_a_file_is_where_its_name_says() -> None:
    """``tests/unit/a/test_b.py`` is the test of ``a/b.py``; the few that are not of one file are named here."""
    of_several = {"training.precision", "devices"}
    unit = REPOSITORY / "tests" / "unit"
    names = [p.relative_to(unit).with_name(p.name.removeprefix("test_")) for p in unit.rglob("test_*.py")]
    homeless = {".".join(p.with_suffix("").parts) for p in names} - set(MODULES) - of_several
    assert not homeless
