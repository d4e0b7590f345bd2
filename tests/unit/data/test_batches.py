"""From frames to batches: bad frames are left out and counted, workers change nothing, end cleanly and do not grow."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from conftest import tiny_model
from helpers.data_scene import walk
from helpers.numbered_frames import Numbered
from helpers.recordings import SHOTS, write_recording
from protodepth.data.batches import TrainingBatches, training_batches
from protodepth.data.entries import EntryFrames, EntryTable, FrameReader
from protodepth.data.faults import Faults, readable
from protodepth.data.files import images
from protodepth.data.frame import EvalRules
from protodepth.data.recording.open import load_recording
from protodepth.errors import DataError
from protodepth.training.adapt import AdaptConfig, adapt
from protodepth.training.evaluate import evaluate
from protodepth.training.schedule import Schedule
from protodepth.types import BatchPrediction


def epoch(data: Numbered, workers: int = 0, size: int = 4) -> tuple[list[int], TrainingBatches]:
    stream = training_batches(data, size, seed=3, domain="toy", workers=workers)
    pictures = [next(stream).image for _ in range(len(data) // size)]
    stream.close()
    return [round(255 * float(p[0, 0, 0])) for batch in pictures for p in batch], stream


def test_a_bad_frame_is_replaced_by_the_next_good_one_and_counted() -> None:
    whole, clean = epoch(Numbered(60))
    seen, stream = epoch(Numbered(60, broken=(7,), empty=(8, 59)))
    assert clean.faults.reasons == {}
    assert seen == [{7: 9, 8: 9, 59: 0}.get(i, i) for i in whole]
    assert set(stream.faults.reasons) == {"frame 7", "frame 8", "frame 59"}
    assert "image/7.png cannot be decoded" in stream.faults.reasons["frame 7"]
    assert "no sparse point" in stream.faults.reasons["frame 59"]


@pytest.mark.parametrize("count", [1, 20, 40])
def test_more_than_5_per_cent_bad_frames_stop_with_their_reasons(count: int) -> None:
    most = count // 20
    epoch(Numbered(count, broken=tuple(range(most))), size=1)
    with pytest.raises(DataError, match=rf"toy: {most + 1} of {count} frames.*\(limit 5%\)") as caught:
        epoch(Numbered(count, broken=tuple(range(most + 1))), size=1)
    assert "image/0.png cannot be decoded" in str(caught.value)


def test_a_worker_that_finds_too_many_bad_frames_gives_the_plain_error() -> None:
    with pytest.raises(DataError) as caught:
        epoch(Numbered(20, broken=tuple(range(20))), workers=1)
    assert str(caught.value).startswith("toy: 2 of 20 frames cannot be used")


def test_evaluation_leaves_out_frames_that_cannot_be_read_and_says_which() -> None:
    def predict(batch: object) -> BatchPrediction:
        depth = batch.sparse_depth + 0.5  # type: ignore[attr-defined]
        return BatchPrediction(
            depth=depth, domains=("base",) * len(depth), similarity=None, names=(), descriptor=depth[:, 0, 0]
        )

    rules = EvalRules(min_depth=0.1, max_depth=10)
    result = evaluate(predict, Numbered(20, broken=(4,)), rules)
    assert [row["name"] for row in result.images] == [str(i) for i in range(20) if i != 4]
    assert set(result.bad_frames) == {"frame 4"}
    with pytest.raises(DataError, match="2 of 20 frames"):
        evaluate(predict, Numbered(20, broken=(4, 5)), rules)


def test_chosen_frames_are_read_by_their_numbers() -> None:
    faults = Faults(40)
    assert [f.name for f in readable(Numbered(40, broken=(9,)), faults, [3, 9, 12])] == ["3", "12"]
    assert set(faults.reasons) == {"frame 9"}


def damage(path: Path) -> None:
    """Bytes in the middle of the file: header and end mark stay, so only reading it shows the fault."""
    data = path.read_bytes()
    third = len(data) // 3
    path.write_bytes(data[:third] + b"\xff" * third + data[2 * third :])


def test_a_picture_that_three_frames_read_counts_once() -> None:
    faults = Faults(26)  # one bad frame is within 5 %, two are not
    for frame in (3, 4, 5):
        faults.add(f"frame {frame}", "4.png is truncated")
    with pytest.raises(DataError, match="4 of 26 frames"):
        faults.add("frame 6", "4.png is truncated")  # no triplet has four frames: this is another fault


def test_a_bad_picture_between_good_ones_does_not_stop_training(tmp_path: Path) -> None:
    folder = write_recording(
        tmp_path, walk(34, size=(16, 24), step=0.03), toml='depth_unit = "mm"\nstride = 1\ngap = 1\n'
    )
    damage(sorted((folder / "image").iterdir())[4])
    data = load_recording(folder).train
    batches = training_batches(data, 2, seed=0)
    for _ in range(len(data)):
        next(batches)
    assert len(batches.faults.reasons) == 3
    assert len(set(batches.faults.reasons.values())) == 1


def test_a_frame_damaged_inside_does_not_stop_adapting_and_is_in_the_record(tmp_path: Path) -> None:
    folder = write_recording(tmp_path, walk(40, size=(32, 48), step=0.03), toml='depth_unit = "mm"\nstride = 1\n')
    damage(folder / "sparse" / "3.png")
    with pytest.raises(DataError, match=r"3\.png"):
        images.read_depth(folder / "sparse" / "3.png", "mm")
    model = tiny_model()
    adapt(
        model, folder, name="walk", config=AdaptConfig(schedule=Schedule(steps=14, batch_size=2, rate=1e-2), judgings=2)
    )
    (reason,) = model.history["walk"].bad_frames.values()
    assert "3.png" in reason


DROPPED = """
import sys
from protodepth.data.batches import training_batches
from protodepth.data.recording.open import load_recording

if __name__ == "__main__":
    data = load_recording(sys.argv[1], depth_unit="mm", stride=1).train
    stream = training_batches(data, 2, seed=0, workers=2)
    next(stream)
    del stream
    print("the end")
"""


def test_an_endless_stream_that_is_dropped_ends_its_workers_without_a_word(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "r", SHOTS)
    (tmp_path / "drop.py").write_text(DROPPED)
    command = [sys.executable, str(tmp_path / "drop.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")


def first_batches(data: EntryFrames, workers: int) -> tuple[list[np.ndarray], dict[str, str]]:
    stream = training_batches(data, 2, seed=5, workers=workers)
    batches = [next(stream) for _ in range(14)]
    stream.close()
    rows = [np.concatenate([b.image.ravel(), b.sparse_depth.ravel(), b.poses[0].ravel()]) for b in batches]
    return rows, stream.faults.reasons


@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_batches_and_bad_frames_are_the_same_for_any_number_of_spawned_workers(tmp_path: Path, workers: int) -> None:
    folder = write_recording(tmp_path, walk(40, size=(32, 48), step=0.03), dense=True)
    damage(folder / "depth" / "9.png")
    data = load_recording(folder, depth_unit="mm", sampler="harris:150", stride=1).train
    (alone, one), (spread, many) = first_batches(data, 0), first_batches(data, workers)
    assert np.array_equal(alone, spread)
    assert one == many
    assert len(one) == 1


# --- memory -----------------------------------------------------------------------------------------------------------

ENTRIES, SHARED_FILES = 100_000, 6


def large_manifest(folder: Path) -> EntryFrames:
    """100,000 entries that share a few small files."""
    K = [16.0, 0, 12, 0, 16, 8, 0, 0, 1]
    rng = np.random.default_rng(0)
    for i in range(SHARED_FILES):
        images.write_image(folder / f"{i}.png", rng.integers(0, 255, (16, 24, 3)).astype(np.uint8))
        images.write_depth(folder / f"s{i}.png", rng.uniform(1, 5, (16, 24)))
    with (folder / "train.jsonl").open("w") as file:
        for n in range(ENTRIES):
            a, b, c = (f"{(n + d) % SHARED_FILES}.png" for d in (-1, 0, 1))
            entry = {"id": f"sequence/{n:06d}", "image": b, "neighbours": [a, c], "sparse": f"s{b}", "K": K}
            file.write(json.dumps(entry) + "\n")
    return EntryFrames(EntryTable.open(folder / "train.jsonl"), FrameReader(root=folder))


def anonymous_memory(process: int | str) -> float:
    """Megabytes that a process holds for itself; pages of mapped files are the system's cache."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def measure(data: EntryFrames, workers: int, size: int, report: Callable[[str], None]) -> tuple[float, float]:
    """(growth of the worker that grew most, growth of this process) in MB from a tenth of an epoch to its end."""
    stream = training_batches(data, size, seed=0, workers=workers)
    processes = [w.pid for w in stream._stream._workers]  # type: ignore[attr-defined]
    held: dict[int, list[float]] = {}
    for step in range(1, ENTRIES // size + 1):
        next(stream)
        if step * size % (ENTRIES // 10) == 0:
            held[step] = [anonymous_memory(p) for p in (*processes, "self")]
            report(f"{step * size} frames: {', '.join(f'{m:.1f}' for m in held[step])} MB")
    stream.close()
    *grown, own = (last - first for first, last in zip(*(held[k] for k in (min(held), max(held))), strict=True))
    return max(grown), own


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to look into the workers")
def test_memory_is_flat_over_an_epoch_of_100_000_entries_with_4_workers(tmp_path: Path) -> None:
    grown, own = measure(large_manifest(tmp_path), 4, 50, print)
    assert grown < 10, f"a worker grew by {grown:.1f} MB"
    assert own < 10, f"the process grew by {own:.1f} MB"
