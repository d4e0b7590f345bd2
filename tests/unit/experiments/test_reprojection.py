"""Choosing by what explains the neighbours: the candidate whose depth is right wins."""

from types import SimpleNamespace

import pytest
import torch

from conftest import tiny_model
from protodepth.data.batches import collate
from protodepth.data.worlds.worlds import WORLDS, render
from protodepth.experiments.reprojection import by_reprojection, candidates
from protodepth.losses import Objective
from protodepth.training.recipes import WORLDS_OBJECTIVE
from protodepth.types import BatchPrediction


@pytest.fixture(scope="module")
def batch():
    return collate([render(WORLDS["room"], seed=n, size=(64, 96)) for n in range(3)], ground_truth=True)


def test_the_right_depth_explains_a_frame_better_than_a_wrong_one(batch) -> None:
    """Frame by frame: 'near' is right for the first, 'right' for the others."""
    truth = torch.where(batch.ground_truth > 0, batch.ground_truth, batch.ground_truth.mean())
    maps = {"right": truth * torch.tensor([1.3, 1.0, 1.0])[:, None, None, None],
            "near": truth * torch.tensor([1.0, 0.7, 1.5])[:, None, None, None]}  # fmt: skip

    def predict(given, name):
        return BatchPrediction(depth=maps[name], domains=(name,) * len(given), similarity=None, names=(),
                               descriptor=torch.zeros(len(given), 1))  # fmt: skip

    model = SimpleNamespace(predict_batch=predict)
    out = by_reprojection(model, Objective(WORLDS_OBJECTIVE), ("right", "near"))(batch)
    assert out.domains == ("near", "right", "right")
    assert torch.equal(out.depth, truth)


def test_candidates_are_the_network_and_the_domains_with_prototypes() -> None:
    model = tiny_model()
    model.add_domain("first", base=True)
    model.add_domain("later")
    assert candidates(model) == ("base", "later")
