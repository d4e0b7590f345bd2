"""The process that computes answers: one that takes too long is ended, and the next visitor has a new one."""

import contextlib
import multiprocessing
import os
import pickle
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.app.answers import Answer, Limits, Question
from protodepth.errors import ConfigError, DataError, ProtoDepthError
from protodepth.model import ProtoDepth

Answerer = Callable[[ProtoDepth, Question, Limits], Answer]
START = 180.0  # seconds that a new process may take to be ready: it imports torch
SHARE = 0.5  # of the free memory that an answer may take
PROBE = (96, 128), (192, 256)  # sizes of images by which the memory of a pixel is measured
LEAST, UNMEASURED = 200.0, 1000.0  # bytes a pixel


class Worker:
    """``ask`` computes in a process of its own; ``close`` ends it at once, whatever it does.

    The process starts afresh (no fork): a script that uses this at its top level needs ``if __name__ == "__main__"``.
    """

    def __init__(self, model: ProtoDepth, limits: Limits, answerer: Answerer) -> None:
        self.model, self.limits, self.answerer = model, limits, answerer
        self._one = threading.Lock()
        self._process, self._line = self._start()
        self._ready = False

    def _start(self) -> tuple[Any, Connection]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self.model, self.limits, self.answerer), daemon=True)
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"the page computes in a process of its own, and this network cannot be sent there ({error})"
            ) from None
        theirs.close()
        return process, ours

    def ask(self, question: Question) -> Answer:
        with self._one:
            self._wait_until_ready()
            try:
                self._line.send(question)
                answered = self._line.poll(self.limits.seconds)
                reply = self._line.recv() if answered else None
            except (EOFError, OSError):  # ended by the system, for want of memory for example
                self._renew()
                raise DataError("the computation was ended by the system: try a smaller image") from None
            if not answered:
                self._renew()
                raise DataError(f"this took longer than {self.limits.seconds:g} s: try a smaller image")
        if isinstance(reply, ProtoDepthError):
            raise reply
        return reply  # type: ignore[return-value]

    def _wait_until_ready(self) -> None:
        if self._ready:
            return
        try:
            if not self._line.poll(START):
                raise EOFError
            self._line.recv()
        except (EOFError, OSError):
            self._renew()
            raise DataError("the page is not ready: try again in a moment") from None
        self._ready = True

    def _renew(self) -> None:
        self.close()
        self._process, self._line = self._start()
        self._ready = False

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._line.close()


def _serve(line: Connection, model: ProtoDepth, limits: Limits, answerer: Answerer) -> None:
    """Answer questions until the line is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the page decides when this ends
        signal.signal(number, signal.SIG_IGN)
    limits = replace(limits, pixels=min(limits.pixels, pixels_in_memory(model)))
    line.send("ready")
    with contextlib.suppress(EOFError, OSError):
        while True:
            question = line.recv()
            reply: Answer | ProtoDepthError
            try:
                reply = answerer(model, question, limits)
            except ProtoDepthError as error:
                reply = DataError(str(error))
            except MemoryError:
                reply = DataError("there is not enough memory for this image: try a smaller one")
            line.send(reply)


def pixels_in_memory(model: ProtoDepth) -> int:
    """How many pixels an image may have so that its answer takes no more than a share of the free memory."""
    return int(SHARE * free_memory() / bytes_of_a_pixel(model))


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
        return UNMEASURED
    return max(LEAST, (peaks[1] - peaks[0]) / (H * W - h * w), peaks[1] / (H * W) / 2)


def free_memory() -> float:
    """Bytes; where the system does not say, a careful 2 GiB."""
    try:
        match = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        match = None
    return 1024.0 * int(match[1]) if match else 2.0**31


def _status(name: str) -> float:
    try:
        match = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{os.getpid()}/status").read_text())
    except OSError:
        match = None
    return 1024.0 * int(match[1]) if match else 0.0
