"""A device that is not the CPU, for machines without one:
its tensors compute as on the CPU and refuse to meet tensors of the CPU.

It goes by the name ``meta``, the one other device that every build of torch knows.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

NAME = "meta"


class Elsewhere(Tensor):
    """A tensor whose numbers are in ``held``."""

    held: Tensor

    @staticmethod
    def __new__(cls: type, held: Tensor) -> "Elsewhere":
        return Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype, device=NAME
        )

    def __init__(self, held: Tensor) -> None:
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


def away(value: Any) -> bool:
    return isinstance(value, Elsewhere)


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the numbers; a mixture of devices is an error,
    as it is on a GPU (single numbers may come from the CPU).
    """
    tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)]
    if any(t.device.type == NAME and not away(t) for t in tensors):
        raise RuntimeError(
            f"{func}: a tensor without numbers came from somewhere"
        )  # torch made one of the real device of this name
    mixed = any(away(t) for t in tensors) and any(not away(t) and t.dim() > 0 for t in tensors)
    name = func.overloadpacket.__name__
    indexed = name.startswith("index") and away(args[0])  # places may come from the CPU
    if mixed and not indexed and name not in ("copy_", "_to_copy"):
        raise RuntimeError(f"{name}: tensors of the CPU and of another device meet")
    there = any(away(t) for t in tensors)
    if kwargs.get("device") is not None:
        there = torch.device(kwargs["device"]).type == NAME
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if name == "copy_":
        there = away(args[0])
    known = {id(t.held): t for t in tensors if isinstance(t, Elsewhere)}
    plain_args, plain_kwargs = tree_map(lambda t: t.held if isinstance(t, Elsewhere) else t, (args, kwargs))
    found = func(*plain_args, **plain_kwargs)
    if not there:
        return found

    def placed(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return known[id(value)] if id(value) in known else Elsewhere(value)  # what changes in place stays itself

    return tree_map(placed, found)


class _Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


def listed(index: Any) -> Any:
    """An index whose lists are tensors of the CPU: torch would make them on the device by itself, past every hook."""
    if isinstance(index, tuple):
        return tuple(listed(part) for part in index)
    return torch.tensor(index) if isinstance(index, list) else index


class _Functions(TorchFunctionMode):
    """What does not pass through the dispatcher."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.tensor and kwargs.get("device") is not None:
            device = kwargs.pop("device")
            return torch.tensor(*args, **kwargs).to(device)
        if func in (Tensor.__getitem__, Tensor.__setitem__) and away(args[0]):
            return func(args[0], listed(args[1]), *args[2:], **kwargs)
        if func is Tensor.tolist and away(args[0]):
            return args[0].held.tolist()
        if func is Tensor.numpy and away(args[0]):
            raise TypeError("a tensor of another device has no array: call cpu() first")
        return func(*args, **kwargs)


@contextmanager
def another_device() -> Iterator[torch.device]:
    with _Functions(), _Dispatch():
        yield torch.device(NAME)


def move(module: nn.Module) -> None:
    """``module.to(another device)`` with its numbers."""
    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None:
                part._parameters[name] = nn.Parameter(Elsewhere(parameter.detach()), parameter.requires_grad)
        for name, buffer in list(part._buffers.items()):
            if buffer is not None:
                part._buffers[name] = Elsewhere(buffer)
