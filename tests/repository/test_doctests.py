"""The examples in the docstrings run and print what they say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import protodepth

ROOT = Path(protodepth.__file__).parent

# In a process of its own: there the shapes are not checked, and doctest does not look into checked (wrapped) functions.
CODE = """
import doctest, importlib, json, sys, torch
torch.manual_seed(0)
results = {}
for name in sys.argv[1:]:
    failed, attempted = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    results[name] = (failed, attempted)
print(json.dumps(results))
"""


def test_every_example_in_a_docstring_is_right(tmp_path: Path) -> None:
    paths = [p for p in sorted(ROOT.rglob("*.py")) if ">>>" in p.read_text()]
    names = [
        ".".join(("protodepth", *p.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__") for p in paths
    ]
    env = {**os.environ, "PROTODEPTH_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *names], capture_output=True, text=True, cwd=tmp_path, env=env, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *complaints, last = done.stdout.splitlines()
    results = json.loads(last)
    assert not any(failed for failed, _ in results.values()), "\n".join(complaints)
    core = (
        "prototypes",
        "descriptors",
        "geometry",
        "losses",
        "metrics",
        "data.arrays",
        "config",
        "registry",
        "training.recipes",
    )
    assert all(results[f"protodepth.{name}"][1] > 0 for name in core)
