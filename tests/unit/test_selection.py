"""Choosing by distance and saying "unknown", against distances, ranks and counts computed another way."""

import copy
import dataclasses
import gc
import math
import shutil
import weakref
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.distance import mahalanobis

from helpers.descriptions import edit
from protodepth import selection
from protodepth.data.frame import Domain
from protodepth.errors import CheckpointError, ConfigError, DataError, DomainError, UnknownNameError
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import build
from protodepth.methods.statistics import collect_statistics, describe, sample_descriptors
from protodepth.model import ProtoDepth
from protodepth.selection import (
    Gaussians,
    Rule,
    SampleDistances,
    Statistics,
    StatisticsTable,
    auroc,
    choose,
    few_samples_threshold,
    fit_gaussians,
    own_threshold,
    shared_covariance,
    shrinkage,
)
from protodepth.storage import files
from protodepth.types import Batch


def cloud(centre: float, count: int = 200, c: int = 5, seed: int = 0, spread: float = 1.0) -> torch.Tensor:
    """Correlated Gaussian samples around (centre, centre, ...)."""
    random = torch.Generator().manual_seed(seed)
    mix = torch.eye(c) + 0.5 * torch.randn(c, c, generator=torch.Generator().manual_seed(99))
    return centre + spread * torch.randn(count, c, generator=random) @ mix


def statistics(centre: float, seed: int = 0, count: int = 200) -> Statistics:
    return Statistics.of(cloud(centre, count, seed=seed), cloud(centre, 100, seed=seed + 50))


TWO = {"room": statistics(0.0), "hall": statistics(8.0, seed=1)}
NAMES = ("room", "hall")


def pick(s: torch.Tensor, rule: Rule, *, domain: str | None = None, known=TWO, cosine: int = 0):
    nearest = torch.full((len(s),), cosine)
    return choose(s, NAMES, nearest, StatisticsTable(known), domain, rule)


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_statistics_are_mean_and_scatter_of_the_fitted_samples_alone():
    fitted, left_out = cloud(1.0, 30), cloud(5.0, 10, seed=1)
    found = Statistics.of(fitted, left_out)
    rows = fitted.double().numpy()
    assert found.count == 30
    assert np.allclose(found.mean, rows.mean(0), atol=1e-6)
    assert np.allclose(found.scatter, np.cov(rows.T) * 29, atol=1e-4)
    assert torch.equal(found.samples, left_out)


def test_pooled_covariance_counts_every_domain_around_its_own_mean():
    """Two far clouds of one shape have the covariance of one cloud, not of their union."""
    pooled = shared_covariance([statistics(0.0, count=5000), statistics(100.0, seed=1, count=5000)])
    mix = torch.eye(5) + 0.5 * torch.randn(5, 5, generator=torch.Generator().manual_seed(99))
    truth = (mix.T @ mix).double()
    assert (pooled - truth).norm() / truth.norm() < 0.05


def test_each_domain_loses_one_sample_to_its_own_mean():
    """Shrinking keeps the trace: that of the scatters over the sum of n_k - 1, which small counts tell from n_k."""
    parts = [Statistics.of(cloud(0.0, 4), cloud(0.0, 1)), Statistics.of(cloud(9.0, 3, seed=1), cloud(9.0, 1))]
    scatter = sum(np.cov(cloud(c, n, seed=s).double().numpy().T, ddof=0) * n for c, n, s in ((0, 4, 0), (9, 3, 1)))
    pooled, found = scatter / 5, shared_covariance(parts)
    assert float(found.trace()) == pytest.approx(np.trace(pooled), rel=1e-5)
    scale = np.sqrt(np.diag(pooled))
    R = pooled / np.outer(scale, scale)
    c, square, trace = 5, (R**2).sum(), 5.0
    share = ((1 - 2 / c) * square + trace**2) / ((5 + 1 - 2 / c) * (square - trace**2 / c))  # Chen et al. 2010, Eq. 23
    expected = np.outer(scale, scale) * ((1 - min(1, share)) * R + min(1, share) * np.eye(c))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_shrinkage_is_large_for_few_samples_and_vanishes_for_many():
    shares = [shrinkage(torch.cov(cloud(0.0, n).T).double(), n) for n in (4, 40, 4000)]
    assert shares[0] > shares[1] > shares[2]
    assert shares[0] > 0.2
    assert shares[2] < 0.01


def test_shrinkage_brings_a_covariance_of_few_samples_nearer_to_the_truth():
    mix = torch.eye(5) + 0.5 * torch.randn(5, 5, generator=torch.Generator().manual_seed(99))
    truth = (mix.T @ mix).double()
    gains = []
    for seed in range(20):
        rows = cloud(0.0, 6, seed=seed)
        plain = torch.cov(rows.T.double())
        shrunk = shared_covariance([Statistics.of(rows, rows[:1])])
        gains.append(float((plain - truth).norm() - (shrunk - truth).norm()))
    assert np.mean(gains) > 0


def test_distances_do_not_depend_on_the_scale_of_a_channel():
    """A channel that is thirty times as large, in samples and statistics alike, changes no distance."""
    scale = torch.tensor([30.0, 1.0, 0.1, 1.0, 5.0])
    clouds = [(cloud(centre, 12, seed=n), cloud(centre, 4, seed=n + 5)) for n, centre in enumerate((0.0, 1.0))]
    plain = fit_gaussians([Statistics.of(a, b) for a, b in clouds])
    scaled = fit_gaussians([Statistics.of(a * scale, b * scale) for a, b in clouds])
    s = cloud(0.5, 6, seed=3)
    torch.testing.assert_close(plain.distances(s), scaled.distances(s * scale), rtol=1e-3, atol=1e-4)


def test_auto_is_what_the_network_prefers_and_the_papers_rule_where_there_are_no_statistics():
    s = TWO["hall"].mean[None]
    nearest = torch.tensor([0])  # what the cosine would say
    assert choose(s, ("room", "hall"), nearest, StatisticsTable(TWO), None, Rule()).domains == ("room",)
    assert choose(s, ("room", "hall"), nearest, StatisticsTable(TWO), None, Rule(), "gaussian").domains == ("hall",)
    assert choose(s, ("room", "hall"), nearest, StatisticsTable(), None, Rule(), "gaussian").domains == ("room",)
    forced = Rule(selection="descriptor")
    assert choose(s, ("room", "hall"), nearest, StatisticsTable(TWO), None, forced, "gaussian").domains == ("room",)


def test_distances_are_those_of_scipy():
    gaussians, s = fit_gaussians(tuple(TWO.values())), cloud(3.0, 7, seed=7)
    inverse = np.linalg.inv(shared_covariance(list(TWO.values())).numpy())
    for row, found in zip(s, gaussians.distances(s), strict=True):
        for k, known in enumerate(TWO.values()):
            expected = mahalanobis(row.double().numpy(), known.mean.double().numpy(), inverse)
            assert float(found[k]) == pytest.approx(expected, rel=1e-4)


def test_a_short_recording_has_the_bound_of_the_next_of_a_few_normal_numbers():
    """Student's t of two degrees of freedom is 2.919986 at 95 %; three logarithms of mean 1 and spread 0.5."""
    own = torch.tensor([0.5, 1.0, 1.5]).exp()
    assert float(own_threshold(own, 0.05)) == pytest.approx(math.exp(1 + 2.919986 * 0.5 * math.sqrt(4 / 3)), rel=1e-5)
    assert float(own_threshold(own, 0.9)) == pytest.approx(math.exp(0.5))  # rank 1 of 3
    assert float(own_threshold(own[:1], 0.05)) == pytest.approx(1.5 * math.exp(0.5))
    assert float(few_samples_threshold(own, 0.6)) == pytest.approx(math.exp(1.5))  # never below the largest


def test_three_frames_are_enough_for_statistics_and_fewer_are_not():
    assert Statistics.of(cloud(0.0, 2), cloud(0.0, 1)).count == 2
    for fitted, left_out in ((1, 3), (2, 0)):
        with pytest.raises(DataError, match=rf"{fitted} \+ {left_out} frames"):
            Statistics.of(cloud(0.0, fitted), cloud(0.0, left_out))


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.2])
def test_new_frames_of_a_known_domain_are_flagged_at_most_as_often_as_promised(rate):
    """Split conformal prediction: on average over calibrations at most the promised share."""
    shares = []
    for seed in range(30):
        known = Statistics.of(cloud(0.0, 100, seed=seed), cloud(0.0, 100, seed=100 + seed))
        new = SampleDistances(cloud(0.0, 400, seed=200 + seed), partial(fit_gaussians, (known,)), rate)
        shares.append(float(new.unknown.float().mean()))
    assert rate / 3 < np.mean(shares) < rate + 0.01


def test_a_short_recording_keeps_its_promise_of_few_false_alarms_too():
    """With five left-out frames the largest distance alone would be exceeded by a sixth of the new frames."""
    shares, largest = [], []
    for seed in range(40):
        known = Statistics.of(cloud(0.0, 100, seed=seed), cloud(0.0, 5, seed=100 + seed))
        gaussians, new = fit_gaussians((known,)), cloud(0.0, 200, seed=200 + seed)
        distances = gaussians.distances(new)
        shares.append(float((distances > gaussians.thresholds(0.05)).float().mean()))
        largest.append(float((distances > gaussians.distances(known.samples).max()).float().mean()))
    assert np.mean(largest) > 0.12
    assert np.mean(shares) < 0.06


def test_the_threshold_of_few_samples_is_never_below_the_largest_of_them():
    one = Statistics.of(cloud(0.0), cloud(0.0, 1, seed=3))
    assert float(fit_gaussians((one,)).thresholds(0.05)) > float(fit_gaussians((one,)).distances(one.samples).max())
    skewed = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.001])
    assert float(few_samples_threshold(skewed, 0.4)) >= 1.001


def test_samples_that_are_all_alike_still_give_finite_distances():
    same = Statistics.of(torch.ones(4, 3), torch.ones(1, 3))
    assert torch.isfinite(fit_gaussians((same,)).distances(torch.zeros(2, 3))).all()


def test_auroc_is_the_share_of_ordered_pairs():
    known, unseen = torch.tensor([0.1, 0.5, 0.9]), torch.tensor([0.5, 2.0])
    wins = [1.0 if u > k else 0.5 if u == k else 0.0 for u in (0.5, 2.0) for k in (0.1, 0.5, 0.9)]
    assert auroc(known, unseen) == pytest.approx(sum(wins) / 6)


def test_too_few_frames_for_statistics_are_refused_with_their_number():
    with pytest.raises(DataError, match="1 \\+ 1 frames are too few"):
        Statistics.of(torch.ones(1, 3), torch.ones(1, 3))


# --- the rule ---------------------------------------------------------------------------------------------------------


def test_the_gaussian_rule_tells_domains_apart_that_have_the_same_direction():
    """Cosines cannot: both clouds lie along (1, 1, 1, 1, 1) as seen from the origin."""
    near, far = Statistics.of(cloud(5.0), cloud(5.0, 50, seed=2)), Statistics.of(cloud(15.0), cloud(15.0, 50, seed=3))
    s = torch.cat([cloud(5.0, 20, seed=4), cloud(15.0, 20, seed=5)])
    known = {"room": near, "hall": far}
    chosen = pick(s, Rule(selection="gaussian"), known=known).domains
    assert chosen == ("room",) * 20 + ("hall",) * 20
    assert pick(s, Rule(selection="descriptor"), known=known, cosine=1).domains == ("hall",) * 40


@pytest.mark.parametrize(("what", "expected"), [("nearest", ("hall", "hall")), ("base", ("hall", "base"))])
def test_an_unknown_frame_goes_where_the_rule_says(what, expected):
    s = torch.stack([TWO["hall"].mean, TWO["hall"].mean + 50])
    choice = pick(s, Rule(selection="gaussian", unknown=what))
    assert choice.domains == expected
    assert choice.distances.unknown.tolist() == [False, True]


def test_the_rule_error_names_the_distances():
    with pytest.raises(DomainError, match=r"1 of 2 frames are unlike every known domain \(distances room .*, hall"):
        pick(torch.stack([TWO["hall"].mean, TWO["hall"].mean + 50]), Rule(unknown="error"))


def test_a_domain_given_by_name_is_used_even_where_the_frame_is_unknown():
    choice = pick(TWO["hall"].mean[None] + 50, Rule(unknown="error"), domain="room")
    assert choice.domains == ("room",)
    assert choice.distances.unknown.tolist() == [True]


def test_without_statistics_of_every_domain_nothing_is_called_unknown_and_gaussian_is_refused():
    some = {"room": TWO["room"]}
    choice = pick(TWO["hall"].mean[None] + 50, Rule(), known=some)
    assert choice.distances is None
    with pytest.raises(DomainError, match="'hall' has none"):
        pick(TWO["hall"].mean[None], Rule(selection="gaussian"), known=some)


def test_a_misspelt_rule_lists_the_choices():
    with pytest.raises(UnknownNameError, match="descriptor, gaussian"):
        Rule(selection="gauss")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="nearest, base, error"):
        Rule(unknown="ignore")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="between 0 and 1"):
        Rule(false_alarms=0)


# --- in a model -------------------------------------------------------------------------------------------------------


@pytest.fixture
def known(model: ProtoDepth, batch: Batch) -> ProtoDepth:
    """Statistics such that the first frame of ``batch`` is a ``night`` frame and the second is unlike everything."""
    s = model.predict_batch(batch, "base").descriptor
    scale = float((s[0] - s[1]).norm()) / 1000
    for n, name in enumerate(("room", "warehouse", "night")):
        random = torch.Generator().manual_seed(n)
        rows = s[0] + (name != "night") * scale * 20 * (n + 1) + scale * torch.randn(60, s.shape[1], generator=random)
        model.statistics[name] = Statistics.of(rows[:40], rows[40:])
    return model


def test_a_mixed_batch_with_an_unknown_frame_gives_what_single_frames_give(known: ProtoDepth, batch: Batch):
    rule = Rule(selection="gaussian", unknown="base")
    together = known.predict_batch(batch, rule=rule)
    assert together.domains == ("night", "base")
    for n, single in enumerate(batch.singles()):
        alone = known.predict_batch(single, rule=rule)
        assert torch.allclose(alone.depth[0], together.depth[n], atol=1e-5)
    assert torch.equal(known.predict_batch(batch[1:], rule=rule).depth, known.predict_batch(batch[1:], "base").depth)
    assert torch.equal(known.predict_batch(batch[:1], rule=rule).depth, known.predict_batch(batch[:1], "night").depth)


def test_a_prediction_says_unknown_and_how_far(known: ProtoDepth, batch: Batch):
    out = known.predict_batch(batch)
    first, second = out.frame(0), out.frame(1)
    assert not first.unknown
    assert second.unknown
    assert min(first.distance, key=first.distance.__getitem__) == "night"
    assert first.excess <= 1 < second.excess
    assert all(second.distance[name] > first.distance["night"] for name in second.distance)


def test_distances_are_computed_only_where_somebody_asks(
    known: ProtoDepth, batch: Batch, monkeypatch: pytest.MonkeyPatch
):
    calls, real = [], Gaussians.distances
    monkeypatch.setattr(Gaussians, "distances", lambda self, s: calls.append(1) or real(self, s))
    told, chosen = known.predict_batch(batch, "night"), known.predict_batch(batch)
    assert not calls
    expected = known.predict_batch(batch, rule=Rule(unknown="base"))  # this rule has to know
    assert len(calls) == 1
    for out in (told, chosen):
        assert torch.equal(out.distance, expected.distance)
        assert torch.equal(out.excess, expected.excess)
        assert out.unknown.tolist() == [False, True]
    assert len(calls) == 3  # once for each prediction, whatever is read of it


def test_what_the_domains_give_together_is_computed_once_and_again_when_they_change(
    known: ProtoDepth, batch: Batch, monkeypatch: pytest.MonkeyPatch
):
    fits, quantiles = [], []
    real_fit, real_quantile = selection.fit_gaussians, selection.few_samples_threshold
    monkeypatch.setattr(selection, "fit_gaussians", lambda s: fits.append(1) or real_fit(s))
    monkeypatch.setattr(selection, "few_samples_threshold", lambda *a: quantiles.append(1) or real_quantile(*a))
    short = cloud(0.0, 8, c=len(known.statistics["room"].mean))
    known.statistics["warehouse"] = Statistics.of(short[:4], short[4:])  # four left-out frames: a quantile of t
    known.predict_batch(batch)
    known.predict_batch(batch, "night")
    assert (len(fits), len(quantiles)) == (0, 0)  # nobody has asked how far the frames are
    first = known.predict_batch(batch).excess
    assert torch.equal(known.predict_batch(batch).excess, first)
    assert (len(fits), len(quantiles)) == (1, 1)
    assert torch.equal(copy.deepcopy(known).predict_batch(batch).excess, first)
    assert len(fits) == 1
    known.delete_domain("warehouse")
    assert not torch.equal(known.predict_batch(batch).excess, first)
    assert len(fits) == 2


def test_statistics_of_a_model_that_is_gone_are_gone(known: ProtoDepth, batch: Batch):
    other = copy.deepcopy(known)
    assert other.predict_batch(batch).excess is not None
    there = weakref.ref(other.statistics["night"].mean)
    del other
    gc.collect()
    assert there() is None


def test_a_new_model_needs_no_statistics(model: ProtoDepth, batch: Batch):
    out = model.predict_batch(batch).frame(0)
    assert not out.unknown
    assert out.distance == {}


def test_statistics_travel_with_a_domain_and_folders_without_them_still_load(known: ProtoDepth, tmp_path: Path):
    known.save_domain("night", tmp_path / "night")
    other = ProtoDepth(known.backbone, known.config)
    other.load_domain(tmp_path / "night")
    for key, value in known.statistics["night"].tensors().items():
        assert torch.equal(other.statistics["night"].tensors()[key], value)
    meta = files.read_json(tmp_path / "night" / "meta.json")
    del meta["sha256"]["statistics.safetensors"]  # as older versions wrote it
    (tmp_path / "night" / "statistics.safetensors").unlink()
    edit(tmp_path / "night" / "meta.json", **meta)
    other.load_domain(tmp_path / "night", name="old")
    assert "old" in other.domains
    assert "old" not in other.statistics


def test_a_changed_byte_in_the_statistics_is_noticed(known: ProtoDepth, tmp_path: Path):
    known.save_domain("night", tmp_path / "night")
    file = tmp_path / "night" / "statistics.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(CheckpointError, match="checksum"):
        ProtoDepth(known.backbone, known.config).load_domain(tmp_path / "night")
    shutil.rmtree(tmp_path / "night")


def test_deleting_and_renaming_take_the_statistics_along(known: ProtoDepth):
    kept = known.statistics["night"]
    known.rename_domain("night", "dark")
    assert known.domains == ("room", "warehouse", "dark")
    assert known.statistics["dark"] is kept
    known.delete_domain("dark")
    assert set(known.statistics) == {"room", "warehouse"}


def test_learning_a_domain_takes_its_statistics_once_and_leaves_the_others_alone(
    model: ProtoDepth, room: Domain, warehouse: Domain
):
    model.delete_domain("warehouse")
    describe(model, "room", room.train, room.val)
    before = {k: v.clone() for k, v in model.statistics["room"].tensors().items()}
    method = build("protodepth", model, Objective(ObjectiveConfig(reduction="relative"), max_depth=8.0))
    method.end_domain(room)  # as a sequence does for a domain that was learned before
    method.begin_domain(warehouse, lambda m, d, /: None)
    method.end_domain(warehouse)
    fitted, later = sample_descriptors(model, warehouse.train), sample_descriptors(model, warehouse.val)
    assert model.statistics["warehouse"].count == 5  # val is short, so the last of six train frames is left out as well
    assert torch.equal(model.statistics["warehouse"].samples, torch.cat([fitted[5:], later]))
    for key, value in model.statistics["room"].tensors().items():
        assert torch.equal(value, before[key])


def test_statistics_survive_a_restart_of_training(model: ProtoDepth, room: Domain):
    describe(model, "room", room.train, room.val)
    objective = Objective(ObjectiveConfig(reduction="relative"), max_depth=8.0)
    state = build("protodepth", model, objective).state()
    fresh = ProtoDepth(model.backbone, model.config)
    fresh.add_domain("room", base=True)
    build("protodepth", fresh, objective).load_state(state)
    for key, value in model.statistics["room"].tensors().items():
        assert torch.equal(fresh.statistics["room"].tensors()[key], value)


def test_with_enough_val_frames_every_train_frame_is_fitted(model: ProtoDepth, room: Domain):
    many = [room.val[n % len(room.val)] for n in range(19)]
    found = collect_statistics(model, room.train, many)
    assert (found.count, len(found.samples)) == (len(room.train), 19)


def test_where_val_shares_its_frames_with_train_the_last_quarter_is_left_out(model: ProtoDepth, room: Domain):
    same = dataclasses.replace(room, val=room.train)
    found = collect_statistics(model, same.train, same.val)
    assert (found.count, len(found.samples)) == (5, 1)
    assert torch.equal(found.samples, sample_descriptors(model, room.train)[5:])
