"""evaluate: every image in order, no ground truth for the network."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.toy_frames import RULES, constant, frame
from protodepth.data.batches import groups
from protodepth.data.frame import EvalRules
from protodepth.errors import DataError
from protodepth.training.evaluate import evaluate
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
