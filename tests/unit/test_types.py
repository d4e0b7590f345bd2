"""The nouns: batches as values, predictions by frame, exact counts."""

import dataclasses

import numpy as np
import pytest
import torch

from conftest import random_batch
from protodepth.types import BatchPrediction, Latents, LatentSpec, Modality, Overhead, View


def test_a_batch_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        random_batch().image = torch.zeros(1)  # type: ignore[misc]


def test_map_reaches_every_tensor_and_nothing_else() -> None:
    batch = dataclasses.replace(random_batch(), domain="room")
    doubled = batch.map(lambda t: 2 * t)
    assert torch.equal(doubled.image, 2 * batch.image)
    assert torch.equal(doubled.neighbours[1], 2 * batch.neighbours[1])
    assert torch.equal(doubled.poses[0], 2 * batch.poses[0])
    assert torch.equal(doubled.ground_truth, 2 * batch.ground_truth)  # type: ignore[operator,arg-type]
    assert doubled.domain == "room"
    assert batch.without_ground_truth().map(torch.clone).ground_truth is None


def test_singles_are_the_samples_in_order() -> None:
    batch = random_batch(3)
    singles = list(batch.singles())
    assert [len(s) for s in singles] == [1, 1, 1]
    assert all(torch.equal(s.poses[1], batch.poses[1][n : n + 1]) for n, s in enumerate(singles))
    assert batch[1:].size == (32, 48)
    assert len(batch[1:]) == 2


def test_without_ground_truth_keeps_the_rest() -> None:
    batch = random_batch()
    assert batch.without_ground_truth().ground_truth is None
    assert batch.without_ground_truth().image is batch.image
    assert batch.ground_truth is not None


def test_replacing_layers_keeps_order_and_context() -> None:
    latents = Latents({"a": torch.zeros(1), "b": torch.ones(1)}, {"size": 3})
    changed = latents.with_layers({"a": torch.full((1,), 5.0)})
    assert list(changed.layers) == ["a", "b"]
    assert float(changed.layers["a"]) == 5
    assert float(latents.layers["a"]) == 0
    assert changed.context == {"size": 3}


def test_the_identity_view_gives_depth_back_valid_everywhere() -> None:
    batch = random_batch()
    depth, mask = View.identity(batch).undo(batch.sparse_depth)
    assert depth is batch.sparse_depth
    assert mask.min() == 1


def test_a_frame_of_a_batch_of_predictions_is_arrays_with_names() -> None:
    out = BatchPrediction(
        depth=torch.arange(12.0).reshape(2, 1, 2, 3),
        domains=("a", "b"),
        similarity=torch.tensor([[0.5, 0.25], [0.125, 1.0]]),
        names=("a", "b"),
        descriptor=torch.zeros(2, 4),
    )
    p = out.frame(1)
    np.testing.assert_array_equal(p.depth, np.arange(6.0, 12.0).reshape(2, 3))
    assert (p.domain, p.similarity) == ("b", {"a": 0.125, "b": 1.0})


def test_modalities_are_their_names() -> None:
    assert LatentSpec("x", 3, Modality("depth")).modality is Modality.DEPTH
    assert [str(m) for m in Modality] == ["image", "depth", "fused"]


def test_overhead_adds_up_by_domain() -> None:
    overhead = Overhead(backbone=200, descriptors={"a": 4, "b": 4}, layers={"a": {}, "b": {"x": 3, "y": 7}})
    assert overhead.domains == {"a": 0, "b": 10}
    assert overhead.percent == {"a": 0.0, "b": 5.0}
