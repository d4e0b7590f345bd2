"""Several processes that learn as one, started by torchrun: each has all weights and some rows of every batch.

Gradients are summed by hand after ``backward``, in one flat vector, instead of wrapping a network in
DistributedDataParallel: a method owns several modules (network, prototypes that are added later, prompts, pose
network), its loss may be a sum over several sources, and a process must count by its *rows*.  Every loss term here is a
mean over the frames of a batch (each frame is divided by its own pixels or points first),
so the gradient of a batch is the sum over the processes of rows/total times the gradient of their rows, to rounding.

Without torchrun there is one process, and every function here returns what it was given.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist

from protodepth.errors import ConfigError, ProcessLost, ProtoDepthError
from protodepth.types import Share

T = TypeVar("T")

PATIENCE = timedelta(minutes=30)  # a process that is alive and silent for longer ends the run


def _started() -> bool:
    """Whether torchrun started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def expected() -> int:
    """How many processes torchrun started, also before they join."""
    return int(os.environ["WORLD_SIZE"]) if _started() else 1


def _joined() -> bool:
    """Whether this process works together with others now."""
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """Which of the processes this one is, counted from 0."""
    return dist.get_rank() if _joined() else 0


def world() -> int:
    """How many processes there are."""
    return dist.get_world_size() if _joined() else 1


def leads() -> bool:
    """The process that writes and prints."""
    return rank() == 0


def device(name: str | None = None) -> torch.device:
    """The device of that name; None = a GPU if there is one, else the CPU.
    With torchrun, "cuda" is each process's own GPU.
    """
    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        wanted = torch.device(name)
    except RuntimeError:
        wanted = torch.device("meta")
    if wanted.type not in ("cpu", "cuda"):
        raise ConfigError(f"unknown device {name!r}: give cpu, cuda or cuda:N")
    if wanted.type == "cpu":
        return wanted
    if not torch.cuda.is_available():
        raise ConfigError(
            f"device {name!r}: this machine or this build of torch {torch.__version__} has no CUDA; use cpu"
        )
    index = int(os.environ.get("LOCAL_RANK", "0")) if wanted.index is None else wanted.index
    if index >= torch.cuda.device_count():
        raise ConfigError(f"device cuda:{index}: there are {torch.cuda.device_count()} GPUs, counted from 0")
    return torch.device("cuda", index)


def alone(command: str) -> None:
    """Refuse a command that several processes would do several times."""
    if _started():
        raise ConfigError(
            f"protodepth {command} runs in one process, torchrun started {os.environ['WORLD_SIZE']}: "
            "call it without torchrun"
        )


@contextmanager
def together(name: str | None = None) -> Iterator[torch.device]:
    """Join the processes that torchrun started, for the length of a ``with`` block; yields this one's device.

    Tensors on a CPU travel by gloo, on a GPU by nccl.
    """
    here = device(name)
    if not _started():
        yield here
        return
    if here.type == "cuda":
        torch.cuda.set_device(here)
    dist.init_process_group("cpu:gloo,cuda:nccl" if here.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield here
    finally:
        dist.destroy_process_group()


def share_of(total: int, turn: int = 0) -> Share | None:
    """This process's rows of a batch; the process ``turn`` (counted round) has the first."""
    return Share((rank() - turn) % world(), world(), total) if world() > 1 else None


# --- what they say to each other --------------------------------------------------------------------------------------


def _exchange(action: Callable[[], T]) -> T:
    """A process that is gone closes its connections, which is a RuntimeError in all others."""
    try:
        return action()
    except RuntimeError as error:
        raise ProcessLost(
            f"process {rank()} of {world()}: another process of this run is gone ({str(error).splitlines()[0]})"
        ) from error


def _add_up(tensor: Tensor) -> Tensor:
    """The sum over all processes, in place."""
    if _joined():
        _exchange(lambda: dist.all_reduce(tensor))
    return tensor


def gather(value: T) -> list[T]:
    """Everybody's value, by rank, for everybody.  Plain values:
    they travel as pickles, between the processes of one run only.
    """
    if not _joined():
        return [value]
    values: list[Any] = [None] * world()
    _exchange(lambda: dist.all_gather_object(values, value))
    return values


def from_first(value: T) -> T:
    """The first process's value, for everybody."""
    if not _joined():
        return value
    held = [value]
    _exchange(lambda: dist.broadcast_object_list(held, src=0))
    return held[0]


def anyone(flag: bool) -> bool:
    """Whether the flag is set in any of the processes."""
    return bool(_add_up(torch.tensor(float(flag))) > 0) if _joined() else flag


def lead(action: Callable[[], T]) -> T:
    """Do something once, in the first process, and give its result to all.
    What is refused there ends the others without a word.
    """
    if not _joined():
        return action()
    if not leads():
        done, result = from_first((False, None))
        if not done:
            raise SystemExit(2)
        return result  # type: ignore[return-value]
    try:
        result = action()
    except (ProtoDepthError, OSError):
        from_first((False, None))
        raise
    from_first((True, result))
    return result


# --- weights and gradients --------------------------------------------------------------------------------------------


def weighted(value: Tensor, share: Share | None) -> Tensor:
    """The mean over a whole batch from the mean over this process's rows; a number to decide by, without gradients."""
    return value if share is None else _add_up(value.detach() * share.weight)


@torch.no_grad()
def sum_gradients(parameters: Sequence[nn.Parameter], *, finite: bool) -> bool:
    """Replace every gradient by its sum over the processes;
    False, with gradients that mean nothing, unless all were ``finite``.

    A parameter that has a gradient nowhere keeps none: the optimiser must not take it for a zero.
    """
    if not _joined():
        return finite
    blank = [p.grad is None or not finite for p in parameters]
    pieces = [torch.zeros_like(p) if empty else p.grad for p, empty in zip(parameters, blank, strict=True)]
    flags = torch.tensor([*(float(not empty) for empty in blank), float(not finite)], device=parameters[0].device)
    flat = _add_up(torch.cat([*(t.flatten() for t in pieces), flags.to(pieces[0].dtype)]))  # type: ignore[union-attr]
    *sums, flag_sums = torch.split(flat, [*(p.numel() for p in parameters), len(flags)])
    known = flag_sums.tolist()
    for parameter, total, count in zip(parameters, sums, known, strict=False):
        parameter.grad = total.view_as(parameter) if count else None
    return known[-1] == 0


@torch.no_grad()
def copy_first(tensors: Sequence[Tensor]) -> None:
    """Everybody gets the first process's values: processes that start apart would stay apart."""
    if _joined():
        for tensor in tensors:
            _exchange(lambda held=tensor: dist.broadcast(held, src=0))  # type: ignore[misc]


@torch.no_grad()
def average_statistics(*modules: nn.Module | None) -> None:
    """The running means and variances of batch norms that learn:
    every process has seen other rows, so the mean is taken.
    """
    if not _joined():
        return
    kept = [m for module in modules if module is not None for m in module.modules() if m.training]
    norms = [m for m in kept if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    tensors = [t for norm in norms for t in (norm.running_mean, norm.running_var) if t is not None]
    if tensors:
        flat = _add_up(torch.cat(tensors)) / world()
        for tensor, mean in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(mean)
