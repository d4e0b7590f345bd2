"""Outside predictions: scale and refusals."""

import numpy as np
import pytest

from helpers.bench_cells import change
from protodepth.errors import ConfigError, DataError
from protodepth.experiments import (
    bench,
    foundation,
)


def test_median_scaling_recovers_depth_from_any_scale_and_from_disparity():
    truth = np.random.default_rng(0).uniform(1, 5, (6, 8))
    sparse = np.where(np.random.default_rng(1).random(truth.shape) < 0.3, truth, 0)
    for kind, values in (("depth", 0.37 * truth), ("disparity", 12.0 / truth)):
        assert np.allclose(foundation.scaled(values, sparse, kind, "f"), truth)


def test_predictions_of_the_wrong_size_or_missing_or_without_a_point_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((4, 4)))
    with pytest.raises(DataError, match="own size"):
        foundation.read_outside(tmp_path, "a", (4, 5))
    with pytest.raises(DataError, match=r"no b\.npy"):
        foundation.read_outside(tmp_path, "b", (4, 4))
    with pytest.raises(DataError, match="scale by"):
        foundation.scaled(np.ones((2, 2)), np.zeros((2, 2)), "depth", "a")
    with pytest.raises(ConfigError, match="disparity"):
        foundation.scaled(np.ones((2, 2)), np.ones((2, 2)), "inverse", "a")
    with pytest.raises(ConfigError, match="not a folder"):
        bench.plan(["foundation"], change(predictions=str(tmp_path / "nowhere")))
