"""What describes a domain."""

import numpy as np
import pytest
import torch

from conftest import tiny_model
from protodepth.data.frame import Domain
from protodepth.methods import statistics
from protodepth.methods.statistics import as_left_out, describe
from protodepth.selection import Statistics, fit_gaussians


def test_the_base_descriptor_is_the_mean_direction_of_its_frames(room: Domain) -> None:
    model = tiny_model()
    describe(model, "room", room.train)
    from protodepth.data.batches import collate

    s = torch.cat([model.predict_batch(collate([room.train[n]]), "base").descriptor for n in range(6)]).double().numpy()
    expected = (s / np.linalg.norm(s, axis=1, keepdims=True)).mean(0)
    r = model.domain("room").descriptor.detach().double().numpy()
    assert r @ expected / np.linalg.norm(r) / np.linalg.norm(expected) == pytest.approx(1, abs=1e-6)
    assert model.domain("room").base


# --- blocks of time ---------------------------------------------------------------------------------------------------


def drifting(count: int = 50, seed: int = 0) -> torch.Tensor:
    """Descriptors of a walk through rooms: near frames are alike, far ones are not."""
    random = torch.Generator().manual_seed(seed)
    rooms = torch.randn(5, 6, generator=random).repeat_interleave(count // 5, 0)
    return rooms + 0.1 * torch.randn(count, 6, generator=random)


def test_a_block_of_time_is_judged_by_the_others() -> None:
    rows = drifting()
    whole = Statistics.of(rows, rows)
    left_out = Statistics.of(rows, as_left_out(rows))
    inside, outside = (fit_gaussians([s]).own[0] for s in (whole, left_out))
    assert outside.median() > 1.2 * inside.median()
    rest = Statistics.of(rows[10:], rows[:10])  # the first room really unseen: the distances that are to be expected
    expected = fit_gaussians([rest]).own[0].median()
    first = (as_left_out(rows)[:10] - rows.mean(0)) @ fit_gaussians([whole]).whiten.T
    assert float(first.norm(dim=-1).median()) == pytest.approx(float(expected), rel=0.05)


def walk(count: int, seed: int) -> torch.Tensor:
    """Descriptors of a recording that moves on: each frame is like the one before, and a hundred later all is new."""
    random = torch.Generator().manual_seed(seed)
    x, rows = torch.randn(6, generator=random), []
    for _ in range(count):
        x = 0.97 * x + (1 - 0.97**2) ** 0.5 * torch.randn(6, generator=random)
        rows.append(x)
    return torch.stack(rows)


def test_later_frames_of_the_same_recording_are_rarely_called_unknown() -> None:
    """The last quarter as left-out frames would flag 20 % of them, frames that were fitted themselves 70 %."""
    flagged = []
    for seed in range(20):
        rows = walk(150, seed)
        gaussians = fit_gaussians([Statistics.of(rows[:120], as_left_out(rows[:120]))])
        flagged.append(float((gaussians.distances(rows[120:])[:, 0] > gaussians.thresholds()[0]).float().mean()))
    assert np.mean(flagged) < 0.1


def test_a_short_recording_knows_frames_that_are_up_to_twice_as_far_as_its_blocks(
    monkeypatch: pytest.MonkeyPatch, room: Domain
) -> None:
    """It has not seen where it goes: the example of the README flagged all of its own test frames."""
    rows = drifting(20)
    monkeypatch.setattr(statistics, "sample_descriptors", lambda model, data: rows)
    short = statistics.collect_statistics(tiny_model(), room.train)
    blocks = fit_gaussians([Statistics.of(rows, as_left_out(rows))])
    torch.testing.assert_close(fit_gaussians([short]).own[0], 2 * blocks.own[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(short.mean, rows.mean(0))


def test_a_longer_recording_is_taken_at_its_word(monkeypatch: pytest.MonkeyPatch, room: Domain) -> None:
    """With twice the distance real recordings of 134 and 173 frames took nearly every frame of each other for known."""
    rows = drifting(100)
    monkeypatch.setattr(statistics, "sample_descriptors", lambda model, data: rows)
    found = statistics.collect_statistics(tiny_model(), room.train)
    blocks = fit_gaussians([Statistics.of(rows, as_left_out(rows))])
    torch.testing.assert_close(fit_gaussians([found]).own[0], blocks.own[0], rtol=1e-4, atol=1e-5)
