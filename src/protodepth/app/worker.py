"""The process that computes answers: one that takes too long is ended, and the next visitor has a new one."""

import contextlib
import multiprocessing
import pickle
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from protodepth.app.answers import Answer, Limits, Question
from protodepth.errors import ConfigError, DataError, ProtoDepthError
from protodepth.inference.memory import bytes_of_a_pixel
from protodepth.model import ProtoDepth
from protodepth.storage.space import free_memory

Answerer = Callable[[ProtoDepth, Question, Limits], Answer]
START = 180.0  # seconds that a new process may take to be ready: it imports torch
SHARE = 0.5  # of the free memory that an answer may take


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
