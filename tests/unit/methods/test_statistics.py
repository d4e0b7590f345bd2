"""What describes a domain."""

import numpy as np
import pytest
import torch

from conftest import tiny_model
from protodepth.data.frame import Domain
from protodepth.methods.statistics import describe


def test_the_base_descriptor_is_the_mean_direction_of_its_frames(room: Domain) -> None:
    model = tiny_model()
    describe(model, "room", room.train)
    from protodepth.data.batches import collate

    s = torch.cat([model.predict_batch(collate([room.train[n]]), "base").descriptor for n in range(6)]).double().numpy()
    expected = (s / np.linalg.norm(s, axis=1, keepdims=True)).mean(0)
    r = model.domain("room").descriptor.detach().double().numpy()
    assert r @ expected / np.linalg.norm(r) / np.linalg.norm(expected) == pytest.approx(1, abs=1e-6)
    assert model.domain("room").base
