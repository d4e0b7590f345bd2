"""evaluate: every image in order, no ground truth for the network."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.toy_frames import RULES, constant, frame
from protodepth import distributed
from protodepth.data.batches import groups
from protodepth.data.frame import EvalRules
from protodepth.data.interpolation import nearest
from protodepth.errors import DataError
from protodepth.training.evaluate import _own_blocks, beside_interpolation, evaluate, plain_prediction
from protodepth.types import Batch, BatchPrediction


def test_evaluation_sees_no_ground_truth_and_reports_every_image_in_order() -> None:
    seen: list[Batch] = []

    def predict(batch: Batch) -> BatchPrediction:
        seen.append(batch)
        return constant(2.0)(batch)

    frames = [frame(1.0, name="a"), frame(4.0, name="b"), frame(9.0, name="c"), frame(1.5, (8, 12), name="d")]
    result = evaluate(predict, frames, RULES, batch_size=2)
    assert [len(b) for b in seen] == [2, 1, 1]
    assert all(b.ground_truth is None for b in seen)
    assert [row["name"] for row in result.images] == ["a", "b", "c", "d"]
    assert [row["mae"] for row in result.images] == pytest.approx([1000, 2000, np.nan, 500], nan_ok=True)
    assert result.mean["mae"] == pytest.approx(3500 / 3)
    assert result.images[0]["points"] == 64
    assert [row["valid"] for row in result.images] == [64, 64, 0, 96]  # 9 m is beyond the cap


def test_pixels_outside_the_crop_are_not_valid() -> None:
    rules = EvalRules(min_depth=0.2, max_depth=5.0, crop=(4, 6))
    assert evaluate(constant(2.0), [frame(1.0)], rules).images[0]["valid"] == 24


def test_frames_are_grouped_by_size_and_keep_their_order() -> None:
    frames = [frame(1.0, shape, str(n)) for n, shape in enumerate([(8, 8), (8, 8), (8, 9), (8, 8), (8, 8), (8, 8)])]
    found = [[f.name for f in g] for g in groups(frames, 2)]
    assert found == [["0", "1"], ["2"], ["3", "4"], ["5"]]


def test_evaluation_needs_frames_with_ground_truth() -> None:
    with pytest.raises(DataError, match="no ground truth"):
        evaluate(constant(1.0), [replace(frame(1.0), ground_truth=None)], RULES)
    with pytest.raises(DataError, match="no frames"):
        evaluate(constant(1.0), [], RULES)


def test_interpolation_stands_beside_the_network_on_the_same_frames_and_pixels() -> None:
    sparse = np.zeros((8, 12), np.float32)
    sparse[2, 3], sparse[6, 9] = 1.0, 3.0
    frames = [
        replace(frame(1.0, (8, 12), str(n)), sparse_depth=sparse, ground_truth=np.full((8, 12), 1.0 + n, np.float32))
        for n in range(5)
    ]
    result = evaluate(constant(2.0), frames, RULES)
    table = beside_interpolation(result, frames, RULES, frames=3)
    assert set(table) == {"network", "nearest", "linear", "morphological"}
    chosen = [0, 2, 4]
    assert table["network"]["mae"] == pytest.approx(np.mean([1000 * abs(n - 1.0) for n in chosen if n < 4]))
    filled = nearest(sparse)
    expected = [1000 * np.abs(filled - (1.0 + n)).mean() for n in chosen if n < 4]  # 5 m is beyond the cap
    assert table["nearest"]["mae"] == pytest.approx(np.mean(expected))


def test_depth_from_outside_is_judged_like_a_prediction_that_knows_no_domain() -> None:
    out = plain_prediction([np.full((8, 12), d) for d in (1.0, 2.0)])
    assert out.depth.shape == (2, 1, 8, 12)
    assert out.depth.dtype == torch.float32
    assert (out.domains, out.similarity, out.names) == (("outside", "outside"), None, ())
    assert torch.equal(out.descriptor, torch.zeros(2, 1))


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [
        (20, 4, [[range(0, 4), range(8, 12), range(16, 20)], [range(4, 8), range(12, 16)]]),
        (3, 8, [[range(0, 2)], [range(2, 3)]]),  # few frames: smaller blocks rather than an idle process
        (1, 8, [[range(0, 1)], []]),
    ],
)
def test_two_processes_share_the_frames_in_blocks_of_a_batch(
    monkeypatch: pytest.MonkeyPatch, count: int, size: int, expected: list[list[range]]
) -> None:
    monkeypatch.setattr(distributed, "world", lambda: 2)
    for rank, blocks in enumerate(expected):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        assert _own_blocks(count, size) == blocks
