"""protodepth doctor"""

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from protodepth._version import __version__

EXTRAS = {
    "data": ("cv2", "h5py", "pyarrow", "yaml", "rosbags", "sklearn", "OpenEXR"),
    "export": ("onnx", "onnxscript", "onnxruntime", "openvino"),
    "app": ("gradio",),
    "viz": ("rerun",),
    "hub": ("huggingface_hub",),
    "cluster": ("ray",),
}


@dataclass(frozen=True)
class Doctor:
    """Versions, device, threads, cache and disk: what to put into a bug report."""

    def run(self) -> None:
        for name, value in _facts().items():
            print(f"{name:<16}{value}")


def _facts() -> dict[str, str]:
    import torch

    from protodepth.data.worlds.worlds import cache_folder
    from protodepth.storage import folders

    cache = Path(cache_folder())
    place = next(p for p in (cache, *cache.parents) if p.exists())
    lines = {
        "protodepth": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu",
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()} cores",
        "cache": f"{cache} ({'writable' if os.access(place, os.W_OK) else 'NOT writable'})",
        "free disk": (
            f"{shutil.disk_usage(place).free / 2**30:.1f} GiB at the cache, "
            f"{shutil.disk_usage('.').free / 2**30:.1f} GiB here"
        ),
        "bundled models": ", ".join(folders.bundled()) or "none",
    }
    for extra, modules in EXTRAS.items():
        missing = [m for m in modules if find_spec(m) is None]
        lines[f"extra {extra}"] = (
            "installed" if not missing else f"missing {', '.join(missing)}: pip install 'protodepth[{extra}]'"
        )
    return lines
