"""From frames to batches: collate, and the endless, seeded stream of training batches."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from protodepth import distributed
from protodepth.data.faults import Faults
from protodepth.data.frame import Frame, FrameDataset
from protodepth.errors import DataError
from protodepth.storage.space import check_memory_of_workers
from protodepth.types import Batch, Share


def _image_tensor(array: np.ndarray) -> torch.Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))
    return tensor.float() / 255 if array.dtype == np.uint8 else tensor.float()


def _map_tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))[None]


def collate(frames: Sequence[Frame], *, ground_truth: bool = False, domain: str | None = None) -> Batch:
    """Stack frames of one size.  Ground truth is dropped unless asked for: training never asks."""
    sizes = {f.image.shape[:2] for f in frames}
    if len(sizes) != 1:
        raise DataError(f"frames of one batch must have one size, got {sorted(sizes)}: use batch size 1 or a crop")
    counts = {(len(f.neighbours), len(f.poses)) for f in frames}
    if len(counts) != 1:
        raise DataError("some frames of the batch have neighbours or poses and others do not")
    labelled = ground_truth and all(f.ground_truth is not None for f in frames)
    first = frames[0]
    return Batch(
        image=torch.stack([_image_tensor(f.image) for f in frames]),
        sparse_depth=torch.stack([_map_tensor(f.sparse_depth) for f in frames]),
        intrinsics=torch.stack([torch.from_numpy(np.asarray(f.intrinsics, np.float32)) for f in frames]),
        neighbours=tuple(
            torch.stack([_image_tensor(f.neighbours[i]) for f in frames]) for i in range(len(first.neighbours))
        ),
        poses=tuple(
            torch.stack([torch.from_numpy(np.asarray(f.poses[i], np.float32)) for f in frames])
            for i in range(len(first.poses))
        ),
        ground_truth=torch.stack([_map_tensor(f.ground_truth) for f in frames]) if labelled else None,  # type: ignore[arg-type]
        domain=domain,
    )


class _Indices(Sampler[list[int]]):
    """An endless, seeded stream of index batches:
    step n has the same frames whatever the number of workers or restarts.
    """

    def __init__(self, length: int, batch_size: int, seed: int, start: int = 0, share: Share | None = None) -> None:
        self.length, self.batch_size, self.seed, self.start = length, batch_size, seed, start
        self.share, self.rows = share, slice(None) if share is None else share.rows
        self.ended = False

    def __iter__(self) -> Iterator[list[int]]:
        total = self.batch_size
        epoch, order = -1, np.empty(0, np.int64)
        step = self.start
        while not self.ended:
            positions = np.arange(step * total, (step + 1) * total)
            chosen = []
            for position in positions:
                if position // self.length != epoch:
                    epoch = int(position // self.length)
                    order = np.random.default_rng((self.seed, epoch)).permutation(self.length)
                chosen.append(int(order[position % self.length]))
            yield chosen[self.rows]
            step += 1


def groups(frames: Iterable[Frame], size: int) -> Iterator[list[Frame]]:
    """Consecutive frames of one image size, in order, at most ``size`` at once."""
    group: list[Frame] = []
    for frame in frames:
        if group and (len(group) == size or frame.image.shape != group[0].image.shape):
            yield group
            group = []
        group.append(frame)
    if group:
        yield group


BadFrame = tuple[str, str]  # frame, reason


class _Forgiving(Dataset[tuple[Frame | None, tuple[BadFrame, ...]]]):
    """(frame, faults met on the way to it): in place of a bad frame comes the next good one, whoever reads it."""

    def __init__(self, data: FrameDataset) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Frame | None, tuple[BadFrame, ...]]:
        met: list[BadFrame] = []
        for number in range(index, index + Faults(len(self)).most + 1):
            try:
                frame = self.data[number % len(self)]
            except DataError as error:
                met.append((f"frame {number % len(self)}", str(error)))
                continue
            if (frame.sparse_depth > 0).any():
                return frame, tuple(met)
            met.append((f"frame {number % len(self)}", f"{frame.name or 'it'} has no sparse point to learn from"))
        return None, tuple(met)  # more than the limit in a row: the error is raised where it is counted


class _Collator:
    """A picklable collate function: (batch, None where too many frames are bad, or what is wrong with it; faults)."""

    def __init__(self, domain: str | None, share: Share | None) -> None:
        self.domain, self.share = domain, share

    def __call__(
        self, items: list[tuple[Frame | None, tuple[BadFrame, ...]]]
    ) -> tuple[Batch | DataError | None, tuple[BadFrame, ...]]:
        frames = [frame for frame, _ in items if frame is not None]
        faults = tuple(fault for _, met in items for fault in met)
        if len(frames) < len(items):
            return None, faults
        try:
            return replace(collate(frames, domain=self.domain), share=self.share), faults
        except DataError as error:  # handed over: what a worker raises arrives wrapped in its traceback
            return error, faults


class TrainingBatches(Iterator[Batch]):
    """An endless stream of batches without ground truth.  ``faults`` counts bad frames; ``close`` ends the workers."""

    def __init__(self, data: FrameDataset, sampler: _Indices, domain: str | None, workers: int) -> None:
        self.faults = Faults(len(data), domain or "the data")
        check_memory_of_workers(workers)
        self._sampler, self._workers = sampler, workers
        loader: DataLoader[Any] = DataLoader(
            _Forgiving(data),
            batch_sampler=sampler,
            collate_fn=_Collator(domain, sampler.share),
            num_workers=workers,
            multiprocessing_context="spawn" if workers else None,
        )
        self._stream = iter(loader)

    def __next__(self) -> Batch:
        batch, met = next(self._stream)
        for name, reason in met:
            self.faults.add(name, reason)
        if isinstance(batch, DataError):
            raise batch
        return batch

    def close(self) -> None:
        """End the stream.  Workers are let finish what they have begun: one that dies while it sends a batch aborts."""
        if self._sampler.ended:
            return
        self._sampler.ended = True
        if self._workers:
            with suppress(RuntimeError):  # a worker that is dead already sends nothing more
                for _ in self._stream:
                    pass

    def __del__(self) -> None:
        if not sys.is_finalizing() and hasattr(self, "_stream"):
            self.close()


def training_batches(
    data: FrameDataset,
    batch_size: int,
    *,
    seed: int,
    start: int = 0,
    domain: str | None = None,
    workers: int = 0,
    turn: int = 0,
) -> TrainingBatches:
    """Endless training batches without ground truth, the same for any number of workers and for a resumed run.

    Where several processes learn together each reads its rows of the same batches.  ``turn`` says which of them gets
    the first row, so that the short batches of several sources do not all fall to one.
    """
    if len(data) == 0:
        raise DataError(f"domain {domain!r} has no training frames")
    share = distributed.share_of(batch_size, turn)
    return TrainingBatches(data, _Indices(len(data), batch_size, seed, start, share), domain, workers)
