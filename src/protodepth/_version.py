"""The version of this package, and of what its numbers are made with."""

import platform
from pathlib import Path

__version__ = "0.1.0"


def versions(*packages: str) -> dict[str, str]:
    """Versions of this package and of the named ones."""
    return {"protodepth": __version__, **{name: _installed(name) for name in packages}}


def made_with() -> dict[str, str]:
    """What goes beside every trained number."""
    import torch  # not at the top: --help and --version need only the number above

    machine = f"{platform.machine()}, {torch.get_num_threads()} threads"
    return {**versions("torch"), "python": platform.python_version(), "machine": machine}


def _installed(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed as a package"


def processor() -> str:
    """The processor as the system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
