"""Eq. 9 and 11 against NumPy, and what the descriptor loss may and may not touch."""

import numpy as np
import pytest
import torch

from protodepth.descriptors import descriptor_loss, sample_descriptor, select, similarity


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def test_the_sample_descriptor_is_the_mean_over_positions_of_maps_and_of_tokens() -> None:
    x = torch.randn(2, 5, 3, 4)
    expected = x.double().numpy().reshape(2, 5, 12).mean(-1)
    np.testing.assert_allclose(sample_descriptor(x, "bchw"), expected, atol=1e-6)
    np.testing.assert_allclose(sample_descriptor(x.flatten(2).mT, "bnc"), expected, atol=1e-6)


@pytest.mark.parametrize("others", [0, 1, 3])
def test_the_descriptor_loss_is_equation_9_averaged_over_the_batch(others: int) -> None:
    s, r, R = torch.randn(4, 6), torch.randn(6), torch.randn(others, 6)
    S, q, J = s.double().numpy(), r.double().numpy(), R.double().numpy()
    w = 0.25 / max(others, 1)  # 1 / w_jk: proportional to one over the number of other domains
    expected = np.mean([1 - cosine(x, q) for x in S]) + w * sum(cosine(j, q) for j in J)
    assert float(descriptor_loss(s, r, R, 0.25)) == pytest.approx(float(expected), abs=1e-6)


def test_the_gradient_reaches_the_descriptor_and_not_the_earlier_ones() -> None:
    s, r, R = torch.randn(4, 6), torch.randn(6, requires_grad=True), torch.randn(2, 6, requires_grad=True)
    descriptor_loss(s, r, R, 0.25).backward()
    assert R.grad is None
    assert r.grad is not None
    step = torch.zeros(6)
    step[2] = 1e-3
    with torch.no_grad():
        slope = (descriptor_loss(s, r + step, R, 0.25) - descriptor_loss(s, r - step, R, 0.25)) / 2e-3
    assert float(r.grad[2]) == pytest.approx(float(slope), abs=1e-3)


def test_following_the_gradient_turns_the_descriptor_towards_the_samples() -> None:
    s, r = torch.randn(1, 6) + 2, torch.randn(6, requires_grad=True)
    optimiser = torch.optim.Adam([r], lr=0.1)
    for _ in range(200):
        optimiser.zero_grad()
        descriptor_loss(s, r, torch.empty(0, 6), 0.25).backward()
        optimiser.step()
    assert float(similarity(s, r.detach()[None])) > 0.999


def test_selection_is_the_largest_cosine_of_each_sample_whatever_the_lengths() -> None:
    s, R = torch.randn(20, 6), torch.randn(5, 6)
    expected = [int(np.argmax([cosine(x, r) for r in R.double().numpy()])) for x in s.double().numpy()]
    lengths = torch.tensor([0.01, 1.0, 7.0, 100.0, 3.0])[:, None]
    assert select(similarity(s, R)).tolist() == expected
    assert select(similarity(3 * s, lengths * R)).tolist() == expected
