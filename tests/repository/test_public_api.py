"""The public surface is a promise: its exact names, that it is lazy, and that importing has no effects."""

import importlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import protodepth

NAMES = {
    "Backbone", "Batch", "Domain", "LatentSpec", "Method", "Modality", "Prediction", "ProtoDepth", "ProtoDepthError",
    "PrototypeConfig",
    "PrototypeSet",
    "Rule",
    "Stream", "adapt", "convert", "evaluate", "open_domain", "run_sequence", "wrap",
}  # fmt: skip


def python(code: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=False)


def test_the_public_names_are_exactly_these_and_at_most_twenty() -> None:
    assert set(protodepth.__all__) == {"__version__", *NAMES}
    assert len(NAMES) <= 20
    assert set(dir(protodepth)) == set(protodepth.__all__)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_public_name_is_there_and_documented(name: str) -> None:
    thing = getattr(protodepth, name)
    assert thing.__doc__
    assert thing.__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        protodepth.colour  # noqa: B018


def test_the_methods_of_the_model_are_those_promised() -> None:
    promised = (
        "from_pretrained predict domains save_domain load_domain save_pretrained load_official_prototypes add_domain "
        "set_domain using delete_domain trainable_parameters overhead forward"
    )
    assert all(hasattr(protodepth.ProtoDepth, name) for name in promised.split())


def test_help_answers_in_half_a_second_without_torch() -> None:
    """Processor time, not wall time: the machine may be busy."""
    code = (
        "import sys; from protodepth.__main__ import main; code = main(['--help']); assert code == 0; "
        "assert 'torch' not in sys.modules"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = python(code)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert "usage: protodepth COMMAND" in done.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


def test_no_command_needs_torch_to_say_what_it_does() -> None:
    code = """
import sys
from protodepth.cli.main import COMMANDS, run
for name in COMMANDS:
    assert run([*name.split(), "--help"]) == 0, name
    assert "torch" not in sys.modules, name
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert "--out" in done.stdout


def test_importing_everything_has_no_effects(tmp_path: Path) -> None:
    code = """
import os, sys, random, pkgutil, importlib, threading
import numpy as np, torch, matplotlib
def look():
    return (os.getcwd(), list(sys.path), dict(os.environ), torch.get_rng_state().tolist(), str(np.random.get_state()),
            random.getstate(),
            torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            threading.active_count(), torch.backends.cudnn.benchmark)
before = look()
import protodepth
for module in pkgutil.walk_packages(protodepth.__path__, "protodepth."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
after = look()
for a, b in zip(before, after):
    assert a == b, (a, b)
heavy = {"cv2", "h5py", "pyarrow", "sklearn", "rosbags", "gradio", "onnx", "onnxruntime", "openvino",
         "rerun"} & set(sys.modules)
assert not heavy, heavy
assert "matplotlib.pyplot" not in sys.modules
"""
    done = python(code, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert list(tmp_path.iterdir()) == []
    assert done.stdout == ""


def test_the_version_is_one() -> None:
    from importlib.metadata import version

    assert version("protodepth") == protodepth.__version__


def test_the_program_and_the_module_are_the_same() -> None:
    program = Path(sys.executable).parent / "protodepth"
    if not program.exists():
        pytest.skip("the program is not installed beside this Python")
    a = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, env=os.environ)
    b = subprocess.run([sys.executable, "-m", "protodepth", "--version"], capture_output=True, text=True, check=True)
    assert a.stdout == b.stdout == f"protodepth {protodepth.__version__}\n"


def test_every_home_of_a_public_name_exists() -> None:
    for home in protodepth._HOME.values():
        importlib.import_module(home)
