"""Whether an answer fits into the memory, known before it is asked for."""

import contextlib
import os
import re
from pathlib import Path

import numpy as np

from protodepth.model import ProtoDepth
from protodepth.storage import space

PROBE = (96, 128), (192, 256)  # sizes of images by which the memory of a pixel is measured


def check_size(size: tuple[int, int], model: ProtoDepth | None = None, frames: int = 1) -> None:
    """Refuse frames whose completion needs more memory than is free.  Without a model: what a small network needs."""
    if frames * size[0] * size[1] > space.LARGE:
        space.check_frames(size, frames, space.COMPLETED if model is None else bytes_of_a_pixel(model))


def bytes_of_a_pixel(model: ProtoDepth) -> float:
    """What a prediction adds to the memory for each pixel, measured at two sizes."""
    K = np.array([[100.0, 0, 64], [0, 100, 48], [0, 0, 1]])
    peaks = []
    for height, width in PROBE:
        sparse = np.zeros((height, width), np.float32)
        sparse[::8, ::8] = sum(model.backbone.depth_range) / 4
        before = _status("VmRSS")
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        model.predict(np.zeros((height, width, 3), np.uint8), sparse, K, domain="base")
        peaks.append(_status("VmHWM") - before)
    (h, w), (H, W) = PROBE
    if not all(peaks):
        return space.COMPLETED
    return max(space.LEAST, (peaks[1] - peaks[0]) / (H * W - h * w), peaks[1] / (H * W) / 2)


def _status(name: str) -> float:
    try:
        match = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{os.getpid()}/status").read_text())
    except OSError:
        match = None
    return 1024.0 * int(match[1]) if match else 0.0
