"""Complete every frame of a source: files for each, one JSON line for each, a summary of all."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from protodepth.data import arrays
from protodepth.data.doubt import LEAST_INSIDE, check_points
from protodepth.data.frame import Frame
from protodepth.errors import ConfigError, DataError
from protodepth.inference.inputs import Failure, Source, checked, in_batches
from protodepth.inference.memory import check_size
from protodepth.inference.outputs import Output
from protodepth.types import PredictBatch, Prediction

REMEDY = "Give --depth-unit (fractions in .npy and .exr files are metres: convert those), or --force to go on"


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


def complete(
    predict: PredictBatch,
    source: Source,
    output: Output,
    *,
    depth_range: tuple[float, float],
    bounded: bool = True,
    force: bool = False,
    batch_size: int = 4,
    advance: Callable[[int], None] = lambda n: None,
) -> tuple[Summary, list[dict[str, Any]]]:
    """Complete every frame of a source.  Results and ``predictions.jsonl`` grow frame by frame; bad frames are recorded
    and passed over (a single one is an error, and nothing is written).  Sparse depth that cannot be right in the first
    frames of files of a user stops before anything is written, unless ``force`` is set.

    Returns the summary and the records of the first frames.
    """
    if batch_size < 1:
        raise ConfigError(f"the batch size must be at least 1, got {batch_size}")
    output.check()
    summary = Summary()
    first: list[dict[str, Any]] = []
    with ExitStack() as files:
        lines: IO[str] | None = None

        def begin() -> None:  # before the first file, and only when there is one: a refusal at the start leaves none
            nonlocal lines
            lines = lines or files.enter_context(_lines(output.record))

        for group in in_batches(source, batch_size):
            if isinstance(group, Failure):
                if output.alone:
                    raise DataError(f"{group.name}: {group.reason}")
                summary.failures.append(group)
                records = [{"frame": group.name, "error": group.reason}]
            else:
                if source.unit is not None and not summary.frames:
                    points = np.stack([frame.sparse_depth for frame in group])
                    check_points(points, depth_range, unit=source.unit, bounded=bounded, force=force, remedy=REMEDY)
                records = complete_batch(predict, group, output, depth_range, begin)
                for record in records:
                    summary.add(record)
            begin()
            assert lines is not None
            lines.writelines(json.dumps(record) + "\n" for record in records)
            lines.flush()
            first += records[: 4 - len(first)]
            advance(summary.frames + len(summary.failures))
    return summary, first


def _lines(record: Path) -> IO[str]:
    record.parent.mkdir(parents=True, exist_ok=True)
    return record.open("w")


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
