"""Drawn frames in files that grow from the front: one process draws, others learn from what is there."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.format import open_memmap

from protodepth.data.worlds import anywhere
from protodepth.errors import CheckpointError, ConfigError
from protodepth.storage import files

PATIENCE = 600.0  # seconds without a new frame, after which nobody draws any more


class FramePool:
    """Drawn frames in two files that grow from the front; ``count`` says how many are there."""

    def __init__(self, folder: Path, frames: int, size: tuple[int, int], *, seed: int) -> None:
        self.folder, self.frames, self.size, self.seed = folder, frames, size, seed
        folder.mkdir(parents=True, exist_ok=True)
        about = {"frames": frames, "size": list(size), "seed": seed}
        if not (folder / "pool.json").exists():
            files.write_json(folder / "pool.json", about)
        elif files.read_json(folder / "pool.json") != about:
            raise ConfigError(
                f"{folder} holds drawn frames of other settings: give another --out, or remove that folder"
            )
        self.pictures = self._open("pictures.npy", (frames, *size, 3), np.dtype(np.uint8))
        self.depths = self._open("depths.npy", (frames, *size), np.dtype(np.float32))
        self.counter = self._open("count.npy", (1,), np.dtype(np.int64))

    def _open(self, name: str, shape: tuple[int, ...], kind: np.dtype[Any]) -> np.ndarray:
        path = self.folder / name
        if not path.exists():
            self._create(path, shape, kind)
        try:
            stored = open_memmap(path, mode="r+")
        except ValueError as error:
            raise CheckpointError(f"{path} is damaged ({error}): remove {self.folder}, it is drawn again") from None
        if stored.shape != shape or stored.dtype != kind:
            raise CheckpointError(f"{path} is damaged: remove {self.folder}, it is drawn again")
        return stored

    def _create(self, path: Path, shape: tuple[int, ...], kind: np.dtype[Any]) -> None:
        """The whole file, its space taken: a mapped file that meets a full disk later ends the process without a word.

        A killed one leaves a temporary file, which the next writer of the run sweeps.
        """
        fresh = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
        try:
            open_memmap(fresh, mode="w+", dtype=kind, shape=shape).flush()
            with fresh.open("r+b") as file:
                if hasattr(os, "posix_fallocate"):  # not on every system
                    os.posix_fallocate(file.fileno(), 0, fresh.stat().st_size)
                os.fsync(file.fileno())
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)

    @property
    def count(self) -> int:
        return int(self.counter[0])

    def draw(self, upto: int, stop: Callable[[], bool] = lambda: False) -> None:
        """Frames up to this number, those there already left alone."""
        for index in range(self.count, min(upto, self.frames)):
            if stop():
                return
            self.pictures[index], self.depths[index] = anywhere.draw(index, self.size, self.seed)
            self.counter[0] = max(index + 1, self.count)

    def wait(self, count: int) -> bool:
        """Until so many frames are there; False if none has come for so long that nobody can be drawing,
        or if the process that waits is left alone.
        """
        seen, since, parent = self.count, time.monotonic(), os.getppid()
        while self.count < min(count, self.frames):
            if self.count != seen:
                seen, since = self.count, time.monotonic()
            elif time.monotonic() - since > PATIENCE or os.getppid() != parent:
                return False
            time.sleep(0.2)
        return True


def pool_bytes(folder: Path, frames: int, size: tuple[int, int]) -> int:
    """The space that a pool will still take."""
    return 0 if (folder / "depths.npy").exists() else frames * size[0] * size[1] * (3 + 4)


def draw_ahead(folder: Path, frames: int, size: tuple[int, int], seed: int) -> None:
    """The second process: draws until all is drawn or its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer, who then ends this one
    os.nice(5)
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    FramePool(folder, frames, size, seed=seed).draw(frames, lambda: parent is not None and not parent.is_alive())
