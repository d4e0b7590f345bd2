"""Latents of a frozen encoder, computed once for each thing that it is shown."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from protodepth.types import Batch, Bool, Latents

GIB = 2**30


class FeatureCache:
    """Keeps what a frozen encoder said of single frames, up to ``limit`` bytes.

    A frame is known by the bytes of its image, points and camera as the encoder sees them: the same view of a sample
    is found again whatever made it, and another view is another frame.  When the limit is reached nothing more is
    kept: frames come in a new order each epoch, and to replace old ones by new ones would find fewer.  One cache
    belongs to one network in one precision.

    >>> cache, frame = FeatureCache(GIB), torch.rand(1, 3, 4, 4)
    >>> batch = Batch(image=frame, sparse_depth=frame[:, :1], intrinsics=torch.eye(3)[None])
    >>> first, again = (cache.encode(lambda b: Latents({"skip": 2 * b.image}), batch) for _ in range(2))
    >>> torch.equal(first.layers["skip"], again.layers["skip"]), cache.hits, cache.misses
    (True, 1, 1)
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.bytes, self.hits, self.misses = limit, 0, 0, 0
        self._rows: dict[bytes, Latents] = {}

    def encode(self, encode: Callable[[Batch], Latents], batch: Batch) -> Latents:
        """``encode(batch)``, of which only the frames that are not known are computed."""
        frames = list(batch.singles())
        keys = [_key(frame) for frame in frames]
        missing = [i for i, key in enumerate(keys) if key not in self._rows]
        self.misses, self.hits = self.misses + len(missing), self.hits + len(keys) - len(missing)
        if len(missing) == len(keys):
            latents = encode(batch)
            for i, key in enumerate(keys):
                self._keep(key, latents, i, len(keys))
            return latents
        rows = [self._rows.get(key) for key in keys]
        for i in missing:
            rows[i] = latents = encode(frames[i])
            self._keep(keys[i], latents, 0, 1)
        return _joined([row for row in rows if row is not None])

    def _keep(self, key: bytes, latents: Latents, index: int, count: int) -> None:
        row = _row(latents, index, count)
        size = 0 if row is None else sum(t.nbytes for t in _tensors((row.layers, row.context)))
        if row is not None and self.bytes + size <= self.limit:
            self._rows[key] = row
            self.bytes += size


def _key(frame: Batch) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for tensor in (frame.image, frame.sparse_depth, frame.intrinsics):
        digest.update(repr(tuple(tensor.shape)).encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.digest()


def _row(latents: Latents, index: int, count: int) -> Latents | None:
    """One frame of several; None where the encoder hands over something that cannot be cut into frames."""

    def cut(value: Tensor) -> Tensor:
        return value[index : index + 1].clone() if value.ndim and value.shape[0] == count else value

    try:
        return Latents(_mapped(latents.layers, cut), _mapped(latents.context, cut))
    except TypeError:
        return None


def _mapped(value: Any, f: Callable[[Tensor], Tensor]) -> Any:
    """Nested tuples and dictionaries with ``f`` applied to every tensor."""
    if isinstance(value, Tensor):
        return f(value)
    if isinstance(value, Mapping):
        return {key: _mapped(inner, f) for key, inner in value.items()}
    if isinstance(value, tuple):
        parts = [_mapped(inner, f) for inner in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if value is None or isinstance(value, (int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} cannot be cut into frames")


def _tensors(value: Any) -> list[Tensor]:
    tensors: list[Tensor] = []
    _mapped(value, lambda t: tensors.append(t) or t)  # type: ignore[func-returns-value]
    return tensors


def _joined(rows: Sequence[Latents]) -> Latents:
    """Frames to a batch again."""

    def join(value: Any) -> Any:
        stacks = zip(*(_tensors(row) for row in value), strict=True)
        whole = iter([torch.cat(stack) if stack[0].ndim else stack[0] for stack in stacks])
        return _mapped(value[0], lambda _: next(whole))

    return Latents(join([row.layers for row in rows]), join([row.context for row in rows]))


def choose_rows(chosen: Bool[Tensor, "b"], ours: Latents, others: Latents) -> Latents:
    """The chosen frames from ours, all others from the others.

    >>> ones, twos = (Latents({"skip": torch.full((2, 1), n)}) for n in (1, 2))
    >>> choose_rows(torch.tensor([True, False]), ones, twos).layers["skip"].flatten().tolist()
    [1, 2]
    """
    count = chosen.shape[0]  # not len: in an exported graph the number of frames is free
    pairs = zip(*(_tensors((row.layers, row.context)) for row in (ours, others)), strict=True)

    def pick(a: Tensor, b: Tensor) -> Tensor:
        if not a.ndim or a.shape[0] != count:
            return a
        return torch.where(chosen.to(a.device).view(-1, *(1 for _ in a.shape[1:])), a, b)

    rows = iter([pick(a, b) for a, b in pairs])
    return Latents(_mapped(ours.layers, lambda _: next(rows)), _mapped(ours.context, lambda _: next(rows)))
