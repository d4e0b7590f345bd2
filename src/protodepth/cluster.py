"""Work in pieces that do not need each other: by processes of this machine, or by the Ray cluster that a user has.

Both are executors of ``concurrent.futures``; every piece is the same call as in one process, so results are the same.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, TypeVar

from protodepth.errors import ConfigError, ProcessLost

On = Literal["here", "ray"]
T = TypeVar("T")
R = TypeVar("R")
SMALL_STORE = 80 * 2**20  # bytes of Ray's object store here, near its least: results are files, only records travel


@contextmanager
def pool(on: On, workers: int, *, seen: Path | None = None, gpus: int = 0) -> Iterator[Executor | None]:
    """What shares the work; None: this process does it alone (``here`` with fewer than two workers).

    ``seen`` is a file that every machine must see: one that has another disk would write where nobody looks.
    With ``RAY_ADDRESS`` in the environment its cluster is used, which has its own number of workers.
    """
    if on == "ray":
        with _ray(workers) as ray:
            yield RayExecutor(ray, seen, gpus)
    elif workers < 2:
        yield None
    else:
        executor = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_one_thread)
        try:
            yield executor
        finally:  # after an error or Ctrl-C what waits is not begun any more
            executor.shutdown(cancel_futures=True)


def check_workers(on: On, workers: int) -> None:
    """Before anything is done: a number of processes, and Ray where it is asked for."""
    if workers < 1:
        raise ConfigError(f"--workers must be at least 1, got {workers}")
    if on == "ray":
        _import_ray()


def _one_thread() -> None:
    """Processes that share a machine wait for each other if each of them has a thread on every core."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by torch when it is imported
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report its use to the vendor
    try:
        import ray
    except ModuleNotFoundError:
        raise ConfigError(
            "--on ray needs Ray: pip install 'protodepth[cluster]'; without it --workers shares this machine"
        ) from None
    return ray


@contextmanager
def _ray(workers: int) -> Iterator[Any]:
    """Ray, connected: to what this program is connected with already, to RAY_ADDRESS, or to one of its own."""
    ray = _import_ray()
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS", "")
    quiet = {"include_dashboard": False, "object_store_memory": SMALL_STORE, "num_cpus": workers}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **({} if address else quiet))
    except Exception as error:  # Ray raises bare ones, too: "The current node timed out during startup"
        where = f"RAY_ADDRESS={address}" if address else "a Ray of this machine"
        raise ConfigError(f"{where} cannot be reached or started: {str(error).strip().splitlines()[0]}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


class RayExecutor(Executor):
    """An executor whose calls are tasks of Ray, one core each.  A task whose machine is lost is run again elsewhere."""

    def __init__(self, ray: Any, seen: Path | None = None, gpus: int = 0) -> None:
        self._ray, self._place = ray, (str(Path.cwd()), None if seen is None else str(seen.resolve()))
        self._task = ray.remote(num_cpus=1, num_gpus=gpus)(_call_there)

    def submit(self, call: Callable[..., R], /, *args: Any, **kwargs: Any) -> "Future[R]":
        answer: Future[R] = Future()
        self._task.remote(self._place, call, args, kwargs).future().add_done_callback(
            lambda finished: self._hand_over(finished, answer)
        )
        return answer

    def _hand_over(self, finished: "Future[R]", answer: "Future[R]") -> None:
        error = finished.exception()
        if error is None:
            answer.set_result(finished.result())
            return
        if isinstance(error, self._ray.exceptions.RayTaskError):
            error = error.cause  # what the call raised, without Ray's trace around it
        if isinstance(error, self._ray.exceptions.RayError):  # of Ray: a worker that is gone, or has no protodepth
            error = BrokenExecutor(str(error).strip().splitlines()[-1])
        answer.set_exception(error)


def _call_there(place: tuple[str, str | None], call: Callable[..., R], args: Any, kwargs: Any) -> R:
    """In a worker of Ray: relative paths mean what they mean to the command, and its results are on a shared disk."""
    folder, seen = place
    if seen is not None and not Path(seen).exists():
        import socket

        raise ConfigError(f"{socket.gethostname()} does not see {seen}: give an --out on a disk that all machines have")
    if Path(folder).is_dir():
        os.chdir(folder)
    return call(*args, **kwargs)


def result(future: "Future[R]") -> R:
    """What a piece of work gave, or its error; a worker that has gone is an error of ours."""
    try:
        return future.result()
    except BrokenExecutor as error:
        raise ProcessLost(
            f"a worker has gone ({error}): was it killed for its memory, does its machine have protodepth? "
            "Call again, what is finished is kept"
        ) from None


def in_order(executor: Executor | None, call: Callable[[T], R], items: Iterable[T], ahead: int = 32) -> Iterator[R]:
    """Results in the order of the items, of which at most ``ahead`` are under way: there may be millions.

    >>> list(in_order(None, abs, [-2, 1]))
    [2, 1]
    """
    if executor is None:
        yield from map(call, items)
        return
    under_way: deque[Future[R]] = deque()
    for item in items:
        under_way.append(executor.submit(call, item))
        if len(under_way) >= ahead:
            yield result(under_way.popleft())
    while under_way:
        yield result(under_way.popleft())


__all__ = ["On", "RayExecutor", "check_workers", "in_order", "pool", "result"]
