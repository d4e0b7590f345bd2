"""A method with one network has one set of numbers."""

import numpy as np
import pytest

from protodepth.errors import DataError
from protodepth.experiments import (
    trainings,
)
from protodepth.metrics import METRICS, ScoreMatrix, Scores
from protodepth.training.sequence import SequenceResult


def sequence_result(method: str, told: float, not_told: float) -> SequenceResult:
    def made(value: float) -> Scores:
        return Scores({m: ScoreMatrix(np.full((2, 2), value)) for m in METRICS})

    return SequenceResult(method, ("a", "b"), made(told), made(not_told), None, ())


def test_a_baseline_with_other_numbers_in_the_other_setting_is_an_error():
    trainings.check_settings_agree(sequence_result("ewc", 1.0, 1.0))
    trainings.check_settings_agree(sequence_result("protodepth", 1.0, 2.0))
    with pytest.raises(DataError, match="ewc"):
        trainings.check_settings_agree(sequence_result("ewc", 1.0, 1.0 + 1e-12))
