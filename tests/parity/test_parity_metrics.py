"""Error metrics against the published evaluation: caps, crops, mean over images."""

import numpy as np
import pytest
from fixture_tools import Fixture

from protodepth.metrics import METRICS, depth_errors, mean_errors

CROPS = {"vkitti": (240, 1216), "waymo": (768, 1920), "nuscenes": (540, 1600), "synthia": (320, 640)}


def images(fixture: Fixture, name: str):
    """(prediction, ground truth) of every stored image; those stored sparsely are filled with harmless values."""
    numbers = sorted({key.split("/")[2] for key in fixture.arrays.files if key.startswith(f"in/{name}/")}, key=int)
    for number in numbers:
        key = f"in/{name}/{number}"
        if f"{key}/gt" in fixture.arrays.files:
            yield fixture.arrays[f"{key}/pred"], fixture.arrays[f"{key}/gt"]
            continue
        size = fixture.meta["sparse_stored"][f"{name}/{number}"]
        truth = np.zeros((size["H"], size["W"]), np.float32)
        prediction = np.ones_like(truth)
        index = fixture.arrays[f"{key}/gt_flat_index"]
        truth.flat[index] = fixture.arrays[f"{key}/gt_values"]
        prediction.flat[index] = fixture.arrays[f"{key}/pred_values_at_gt"]
        yield prediction, truth


def test_all_stored_evaluations_are_reproduced():
    fixture = Fixture("metrics")
    for name, stored in fixture.meta["results"].items():
        caps = fixture.meta["caps"][name]
        rows = [
            depth_errors(p, d, min_depth=caps["min"], max_depth=caps["max"], crop=CROPS.get(name))
            for p, d in images(fixture, name)
        ]
        assert rows
        means = mean_errors(rows)
        for metric in METRICS:
            assert means[metric] == pytest.approx(stored[metric], rel=1e-5), (name, metric)
