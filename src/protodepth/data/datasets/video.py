"""Frames of one moving camera, listed as entries, become a Scan: a stride from the motion, blocks of time."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from protodepth.data.entries import Entry, FrameReader
from protodepth.data.files import cameras
from protodepth.data.frame import EvalRules, time_blocks
from protodepth.data.manifest import Scan
from protodepth.data.recording import motion
from protodepth.types import Float


def video_scan(
    name: str,
    reader: FrameReader,
    entries: list[Entry],
    poses: Float[np.ndarray, "n 4 4"] | None,
    *,
    rules: EvalRules,
    stride: int | None = None,
    fps: float = 10.0,
    options: Mapping[str, Any] | None = None,
    notes: tuple[str, ...] = (),
) -> Scan:
    """70 % train, 10 % val, 20 % test, in the order of the entries.  ``poses``: camera-to-world, NaN where lost;
    frames without parallax to their neighbours are left out of training.  ``stride``: default from the poses, else a
    tenth of a second.
    """
    step, still = _motion(reader, entries, poses, stride, fps)
    blocks = time_blocks(len(entries), 2 * step)
    inner = blocks["train"][step : len(blocks["train"]) - step]
    return Scan(
        name=name,
        reader=reader,
        rules=rules,
        splits={
            "train": partial(_training, entries, poses, [i for i in inner if not still[i]], step),
            **{s: partial(_plain, entries, blocks[s]) for s in ("val", "test")},
        },
        options={**(options or {}), "stride": step, "poses": poses is not None},
        notes=notes,
    )


def _motion(
    reader: FrameReader, entries: list[Entry], poses: np.ndarray | None, stride: int | None, fps: float
) -> tuple[int, np.ndarray]:
    """(stride, which frames have no parallax) from the poses and the depth of the first frame."""
    if poses is None:
        return stride or max(1, round(fps / 10)), np.zeros(len(entries), bool)
    depth = reader(entries[0]).sparse_depth
    middle = float(np.median(depth[depth > 0])) if (depth > 0).any() else 2.0
    height, width = depth.shape
    focal = entries[0]["K"][0] / width
    step = stride or motion.choose_stride(poses, focal, middle, height / width)[0]
    return step, motion.still_by_pose(poses, step, focal, middle)


def _plain(entries: list[Entry], block: range) -> Iterator[Entry]:
    return (entries[i] for i in block)


def _training(entries: list[Entry], poses: np.ndarray | None, chosen: list[int], step: int) -> Iterator[Entry]:
    for i in chosen:
        around = (i - step, i + step)
        entry = {**entries[i], "neighbours": [entries[j]["image"] for j in around]}
        if poses is not None:
            if not np.isfinite(poses[[i, *around]]).all():
                continue
            entry["poses"] = [cameras.relative_pose(poses[i], poses[j]).ravel().tolist() for j in around]
        yield entry
