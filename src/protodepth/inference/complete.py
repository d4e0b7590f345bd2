"""Complete every frame of a source: files for each, one JSON line for each, a summary of all."""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from protodepth.cluster import in_order, result
from protodepth.data import arrays
from protodepth.data.doubt import LEAST_INSIDE, check_points
from protodepth.data.frame import Frame
from protodepth.errors import ConfigError, DataError
from protodepth.inference.inputs import Failure, Source, checked, in_batches
from protodepth.inference.memory import check_size
from protodepth.inference.outputs import Output
from protodepth.types import PredictBatch, Prediction

REMEDY = "Give --depth-unit (fractions in .npy and .exr files are metres: convert those), or --force to go on"
BATCHES = 8  # that a process of a pool is given at once


@dataclass(slots=True)
class Summary:
    """What was done to all frames."""

    frames: int = 0
    seconds: float = 0.0  # of the network alone
    chosen: dict[str, int] = field(default_factory=dict)
    unknown: int = 0
    outside: int = 0  # frames with less than half of their points in the network's range
    failures: list[Failure] = field(default_factory=list)

    def add(self, record: dict[str, Any]) -> None:
        self.frames += 1
        self.seconds += record["seconds"]
        self.chosen[record["domain"]] = self.chosen.get(record["domain"], 0) + 1
        self.unknown += record["unknown"]
        self.outside += record["points_kept"] < LEAST_INSIDE

    def lines(self) -> Iterator[str]:
        if self.frames:
            counts = ", ".join(f"{name} {n}" for name, n in sorted(self.chosen.items(), key=lambda kv: -kv[1]))
            rate = f"{1000 * self.seconds / self.frames:.0f} ms a frame"
            yield f"{_frames(self.frames)}, {rate}; domain: {counts}"
        if self.outside:
            yield f"{_frames(self.outside)} with less than half of the sparse points in the network's range: the unit?"
        if self.unknown:
            are = "is" if self.unknown == 1 else "are"
            yield (
                f"{_frames(self.unknown)} {are} unlike every known domain (unknown): adapt to this place, "
                "see protodepth adapt"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameCompletion:
    """Everything that completing frames takes: what predicts, what is read, where results go."""

    predict: PredictBatch
    source: Source
    output: Output
    depth_range: tuple[float, float]
    bounded: bool = True
    force: bool = False  # go on where sparse depth cannot be right
    batch_size: int = 4

    def check(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"the batch size must be at least 1, got {self.batch_size}")
        self.output.check()

    def records(
        self, numbers: range, begin: Callable[[], None], *, doubted: bool = True
    ) -> Iterator[list[dict[str, Any]]]:
        """Complete frames by number and write their files, batch by batch.  ``begin`` is called before the first file.

        While ``doubted``, the first frames of files of a user are held against the network's range.
        """
        for group in in_batches(self.source, self.batch_size, numbers):
            if isinstance(group, Failure):
                if self.output.alone:
                    raise DataError(f"{group.name}: {group.reason}")
                yield [{"frame": group.name, "error": group.reason}]
                continue
            if self.source.unit is not None and doubted:
                self._doubt(np.stack([frame.sparse_depth for frame in group]), self.source.unit)
            doubted = False
            yield complete_batch(self.predict, group, self.output, self.depth_range, begin)

    def _doubt(self, points: np.ndarray, unit: str) -> None:
        check_points(points, self.depth_range, unit=unit, bounded=self.bounded, force=self.force, remedy=REMEDY)


class _Collected:
    """Records of frames as they come: ``predictions.jsonl`` grows, the summary counts."""

    def __init__(self, output: Output, advance: Callable[[int], None]) -> None:
        self.output, self.advance = output, advance
        self.summary, self.first, self._lines = Summary(), list[dict[str, Any]](), ExitStack()
        self._file: IO[str] | None = None

    def begin(self) -> None:
        """Before the first file, and only when there is one: a refusal at the start leaves none."""
        if self._file is None:
            self.output.record.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._lines.enter_context(self.output.record.open("w"))

    def add(self, records: list[dict[str, Any]]) -> None:
        self.begin()
        assert self._file is not None
        self._file.writelines(json.dumps(record) + "\n" for record in records)
        self._file.flush()
        for record in records:
            if "error" in record:
                self.summary.failures.append(Failure(record["frame"], record["error"]))
            else:
                self.summary.add(record)
        self.first += records[: 4 - len(self.first)]
        self.advance(self.summary.frames + len(self.summary.failures))

    def __enter__(self) -> "_Collected":
        return self

    def __exit__(self, *error: object) -> None:
        self._lines.close()


def complete(
    job: FrameCompletion, advance: Callable[[int], None] = lambda n: None
) -> tuple[Summary, list[dict[str, Any]]]:
    """Complete every frame of a source.  Results and ``predictions.jsonl`` grow frame by frame; bad frames are recorded
    and passed over (a single one is an error, and nothing is written).  Sparse depth that cannot be right in the first
    frames of files of a user stops before anything is written, unless ``force`` is set.

    Returns the summary and the records of the first frames.
    """
    job.check()
    with _Collected(job.output, advance) as collected:
        for records in job.records(range(job.source.total), collected.begin):
            collected.add(records)
    return collected.summary, collected.first


def complete_shared(
    pool: Executor,
    opening: Callable[[], FrameCompletion],
    job: FrameCompletion,
    advance: Callable[[int], None] = lambda n: None,
) -> tuple[Summary, list[dict[str, Any]]]:
    """The same by the processes of a pool: each opens model and source itself (``opening``, which must travel) and
    completes blocks of frames.  The same batches, files and records as in one process, but for ``seconds``.
    """
    job.check()
    if job.source.sequential:
        raise ConfigError("a video is read from its start to its end, by one process: leave out --workers and --on")
    step = BATCHES * job.batch_size
    blocks = deque(range(n, min(n + step, job.source.total)) for n in range(0, job.source.total, step))
    with _Collected(job.output, advance) as collected:
        while blocks and not collected.summary.frames:  # until frames were held against the range, one after the other
            _add_block(collected, result(pool.submit(_complete_block, opening, True, blocks.popleft())))
        for records in in_order(pool, partial(_complete_block, opening, False), blocks):
            _add_block(collected, records)
    return collected.summary, collected.first


def _add_block(collected: _Collected, records: list[dict[str, Any]]) -> None:
    output = collected.output
    for record in records:
        for name in record.get("files", ()):
            output.claim(output.folder / name, record["frame"])
    if any("files" in record for record in records) and not output.record.exists():
        raise ConfigError(f"the results are not in {output.folder}: give an --out on a disk that all machines have")
    collected.add(records)


def _complete_block(opening: Callable[[], FrameCompletion], doubted: bool, numbers: range) -> list[dict[str, Any]]:
    """In a process of a pool: the records of some frames, whose files are written."""
    job = _opened(opening)
    return [
        record
        for records in job.records(numbers, partial(_touch, job.output.record), doubted=doubted)
        for record in records
    ]


@lru_cache(maxsize=1)
def _opened(opening: Callable[[], FrameCompletion]) -> FrameCompletion:
    """Model and source, once in a process."""
    return opening()


def _touch(record: Path) -> None:
    """By the record it is known whose the folder is."""
    record.parent.mkdir(parents=True, exist_ok=True)
    record.touch()


def complete_batch(
    predict: PredictBatch,
    group: list[Frame],
    output: Output,
    depth_range: tuple[float, float],
    begin: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Predict frames of one size together and write their files; the record of each.  ``begin`` is called before."""
    check_size((group[0].image.shape[0], group[0].image.shape[1]), frames=len(group))
    batch = arrays.join([checked(frame).batch for frame in group])
    prepare = getattr(predict, "prepare", None)  # a graph for this size is made before the clock starts
    if prepare is not None:
        prepare(batch.size)
    started = time.perf_counter()
    out = predict(batch)
    seconds = (time.perf_counter() - started) / len(group)
    records = []
    begin()
    for index, frame in enumerate(group):
        prediction = out.frame(index)
        record = describe(prediction, frame.sparse_depth, seconds, depth_range)
        files = output.write(frame, prediction.depth)
        if output.watch is not None:
            output.watch(frame, prediction)
        records.append({"frame": frame.name, **record, "files": files})
    return records


def describe(
    prediction: Prediction, points: np.ndarray, seconds: float, depth_range: tuple[float, float]
) -> dict[str, Any]:
    """The record of one frame, JSON-able.  ``points_kept``:
    share of the sparse points inside the network's depth range.
    """
    low, high = depth_range
    valid = np.nan_to_num(points) > 0
    kept = valid & (points >= low) & (points <= high)
    return {
        "domain": prediction.domain,
        "unknown": prediction.unknown,
        "similarity": _rounded(prediction.similarity),
        "distance": _rounded(prediction.distance),
        "excess": None if prediction.excess is None else round(prediction.excess, 5),
        "seconds": round(seconds, 5),
        "points": int(valid.sum()),
        "points_kept": round(float(kept.sum() / max(1, valid.sum())), 4),
        "depth": [round(float(v), 4) for v in np.percentile(prediction.depth, [1, 50, 99])],
    }


def _rounded(table: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 5) for name, value in table.items()}


def _frames(count: int) -> str:
    return "1 frame" if count == 1 else f"{count} frames"
