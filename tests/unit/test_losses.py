"""The objective (Eq. 1-5): every reduction against slow NumPy, other libraries, and what a good depth must minimise."""

from dataclasses import replace

import kornia
import numpy as np
import pytest
import pytorch_msssim
import torch
from torch.nn import functional as F

from conftest import random_batch
from protodepth import losses
from protodepth.backbones.posenet import PoseNet
from protodepth.data.batches import collate
from protodepth.data.frame import Domain
from protodepth.errors import ConfigError
from protodepth.geometry import outlier_free, warp
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.types import Batch

Array = np.ndarray


# --- slow versions, written from the text, for one sample (c h w) -----------------------------------------------------


def slow_ssim(a: Array, b: Array, y: int, x: int) -> float:
    """SSIM of one channel in the 3x3 window around a pixel."""
    p, q = a[y - 1 : y + 2, x - 1 : x + 2], b[y - 1 : y + 2, x - 1 : x + 2]
    mp, mq = p.mean(), q.mean()
    vp, vq, cov = ((p - mp) ** 2).mean(), ((q - mq) ** 2).mean(), ((p - mp) * (q - mq)).mean()
    c1, c2 = 0.01**2, 0.03**2
    return float((2 * mp * mq + c1) * (2 * cov + c2) / ((mp**2 + mq**2 + c1) * (vp + vq + c2)))


def slow_map(a: Array, b: Array, reflected: bool) -> Array:
    """SSIM at every pixel (reflected borders) or at the inner ones, all channels."""
    if reflected:
        a, b = (np.pad(t, ((0, 0), (1, 1), (1, 1)), mode="reflect") for t in (a, b))
    c, h, w = a.shape
    return np.array(
        [[[slow_ssim(a[n], b[n], y, x) for x in range(1, w - 1)] for y in range(1, h - 1)] for n in range(c)]
    )


def nearest(t: Array, h: int, w: int) -> Array:
    rows, columns = np.arange(h) * t.shape[1] // h, np.arange(w) * t.shape[2] // w
    return t[:, rows][:, :, columns]


def slow_smooth(d: Array, image: Array, mean: bool) -> float:
    """Eq. 5 with sums over pixels divided by |Omega|, or with each direction's own mean."""
    h, w = d.shape
    sx = sy = 0.0
    for y in range(h):
        for x in range(w):
            if x + 1 < w:
                sx += np.exp(-np.abs(image[:, y, x + 1] - image[:, y, x]).mean()) * abs(d[y, x + 1] - d[y, x])
            if y + 1 < h:
                sy += np.exp(-np.abs(image[:, y + 1, x] - image[:, y, x]).mean()) * abs(d[y + 1, x] - d[y, x])
    return sx / (h * (w - 1)) + sy / ((h - 1) * w) if mean else (sx + sy) / (h * w)


def slow_terms(
    name: str, a: Array, b: Array, w: Array, d: Array, z: Array, m: Array, image: Array
) -> tuple[float, ...]:
    """Colour, structure, sparse and smoothness of one sample by the named reduction (NETWORKS section 5, Eq. 3-5)."""
    pixels = w.size
    distance = lambda t: np.clip((1 - t) / 2, 0, 1)  # noqa: E731
    l1 = (np.abs(a - b) * w).sum()
    sparse = (m * np.abs(d - z)).sum()
    if name == "paper":
        structure = ((1 - slow_map(a, b, True)) * w).sum() / pixels
        return l1 / pixels, structure, sparse / pixels, slow_smooth(d, image, mean=False)
    if name == "kbnet":
        structure = (nearest(distance(slow_map(a, b, False)), *w.shape) * w).sum() / w.sum()
        return l1 / w.sum(), structure, sparse / m.sum(), slow_smooth(d, image, mean=True)
    if name == "voiced":
        structure = (distance(slow_map(a, b, True)) * w).sum() / pixels
        return l1 / pixels, structure, sparse / m.sum(), slow_smooth(d, image, mean=True)
    inner = w[1:-1, 1:-1]
    structure = (distance(slow_map(a, b, False)) * inner).sum() / inner.sum()
    relative = (m * np.abs(d - z) / np.maximum(z, 1e-3)).sum() / m.sum()
    return l1 / w.sum(), structure, relative, slow_smooth(np.log(d), image, mean=True)


@pytest.mark.parametrize("name", ["paper", "kbnet", "voiced", "relative"])
def test_every_reduction_computes_what_its_text_says(name: str) -> None:
    batch = random_batch(2, 9, 11)
    a, b = batch.image, batch.neighbours[0]
    w = (torch.rand(2, 1, 9, 11) < 0.7).float()
    d = 0.5 + 3 * torch.rand(2, 1, 9, 11)
    z, m = batch.sparse_depth, (batch.sparse_depth > 0).float()
    r = losses.REDUCTIONS[name]
    ours = [r.color(a, b, w), r.structure(a, b, w), r.sparse(d, z, m), r.smooth(d, a)]
    arrays = [t.double().numpy() for t in (a, b, w[:, 0], d[:, 0], z[:, 0], m[:, 0], a)]
    theirs = np.mean([slow_terms(name, *(t[n] for t in arrays)) for n in range(2)], axis=0)
    np.testing.assert_allclose([float(t) for t in ours], theirs, rtol=2e-5)


def test_ssim_agrees_with_pytorch_msssim_and_kornia_where_windows_are_alike() -> None:
    """Both filter with a Gaussian; a very wide one over 3 pixels is the mean of 3x3."""
    a, b = torch.rand(2, 3, 12, 14), torch.rand(2, 3, 12, 14)
    window = torch.full((3, 1, 1, 3), 1 / 3)
    theirs = pytorch_msssim.ssim(a, b, data_range=1.0, win=window, size_average=False, nonnegative_ssim=False)
    torch.testing.assert_close(losses.ssim(a, b).mean((1, 2, 3)), theirs, rtol=1e-4, atol=1e-5)
    flat = torch.full((1, 3), 1 / 3)
    filtered = kornia.filters.filter2d_separable
    mu_a, mu_b = filtered(a, flat, flat, padding="valid"), filtered(b, flat, flat, padding="valid")
    torch.testing.assert_close(losses.box_mean(a), mu_a, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(losses.box_mean(b), mu_b, rtol=1e-5, atol=1e-6)


def test_smoothness_agrees_with_kornia_on_inverse_depth_of_one_channel() -> None:
    """Kornia's term has the same weights; it differs in that it takes means over directions alike."""
    d, image = torch.rand(1, 1, 10, 12), torch.rand(1, 3, 10, 12)
    theirs = kornia.losses.inverse_depth_smoothness_loss(d, image)
    torch.testing.assert_close(losses.smoothness(d, image), theirs, rtol=1e-5, atol=1e-6)


def test_identical_images_have_no_photometric_loss() -> None:
    a, w = torch.rand(1, 3, 8, 9), torch.ones(1, 1, 8, 9)
    for r in losses.REDUCTIONS.values():
        assert float(r.color(a, a, w)) == 0
        assert float(r.structure(a, a, w)) == pytest.approx(0, abs=1e-6)


def test_an_empty_mask_gives_zero_and_no_nan() -> None:
    a, b, none = torch.rand(1, 3, 8, 9, requires_grad=True), torch.rand(1, 3, 8, 9), torch.zeros(1, 1, 8, 9)
    for r in losses.REDUCTIONS.values():
        total = r.color(a, b, none) + r.structure(a, b, none) + r.sparse(a[:, :1], b[:, :1], none)
        total.backward()
        assert float(total.detach()) == 0
    assert a.grad is not None
    assert torch.isfinite(a.grad).all()


# --- the objective ----------------------------------------------------------------------------------------------------


def test_the_objective_is_the_weighted_sum_over_both_neighbours() -> None:
    batch, depth = random_batch(), 1 + 2 * torch.rand(2, 1, 32, 48)
    config = ObjectiveConfig(reduction="kbnet", color=0.2, structure=0.7, sparse=1.5, smooth=0.3)
    terms = Objective(config, max_depth=3.0)(batch, depth)
    assert set(terms) == {"color", "structure", "sparse", "smooth"}
    r, w = losses.REDUCTIONS["kbnet"], torch.ones_like(depth)
    warped = [warp(n, depth, p, batch.intrinsics) for n, p in zip(batch.neighbours, batch.poses, strict=True)]
    torch.testing.assert_close(terms["color"], 0.2 * sum(r.color(i, batch.image, w) for i in warped))
    torch.testing.assert_close(terms["structure"], 0.7 * sum(r.structure(i, batch.image, w) for i in warped))
    points = outlier_free(batch.sparse_depth)
    torch.testing.assert_close(terms["sparse"], 1.5 * r.sparse(depth, batch.sparse_depth.clamp(max=3), points))
    torch.testing.assert_close(terms["smooth"], 0.3 * r.smooth(depth, batch.image))


def test_outliers_among_the_points_do_not_count() -> None:
    batch = random_batch(1)
    z = torch.zeros(1, 1, 32, 48)
    z[0, 0, 10, 10], z[0, 0, 10, 12] = 1.0, 9.0
    terms = Objective(ObjectiveConfig())(replace(batch, sparse_depth=z), torch.ones(1, 1, 32, 48))
    assert float(terms["sparse"]) == 0  # the far point is seen through a gap beside the near one


def test_the_true_depth_minimises_the_photometric_loss_of_a_world(room: Domain) -> None:
    """Indoors nothing is without depth.  Scaling, shifting or blurring the truth must cost."""
    frames = [room.train[i] for i in range(4)]
    batch = collate(frames, ground_truth=True)
    truth = batch.ground_truth
    assert truth is not None
    assert (truth > 0).all()
    for reduction in ("paper", "kbnet", "voiced", "relative"):
        objective = Objective(ObjectiveConfig(reduction=reduction, mask_outside=True))  # type: ignore[arg-type]

        def photometric(depth: torch.Tensor, objective: Objective = objective) -> float:
            terms = objective(batch, depth)
            return float(terms["color"] + terms["structure"])

        best = photometric(truth)
        for factor in (0.8, 0.9, 1.1, 1.25):
            assert photometric(truth * factor) > 1.01 * best, (reduction, factor)
        assert photometric(truth.mean((2, 3), keepdim=True).expand_as(truth).contiguous()) > 1.2 * best
        assert photometric(F.avg_pool2d(truth, 9, stride=1, padding=4, count_include_pad=False)) > best


def test_given_poses_win_unless_the_network_is_asked_for() -> None:
    batch, depth, pose = random_batch(), 1 + torch.rand(2, 1, 32, 48), PoseNet("small")
    given = Objective(ObjectiveConfig(poses="given", learn_pose=False), pose=pose)(batch, depth)
    auto = Objective(ObjectiveConfig(learn_pose=False), pose=pose)(batch, depth)
    alone = Objective(ObjectiveConfig())(batch, depth)
    network = Objective(ObjectiveConfig(poses="network"), pose=pose)(batch, depth)
    absent = Objective(ObjectiveConfig(), pose=pose)(replace(batch, poses=()), depth)
    assert given["color"] == auto["color"] == alone["color"]
    assert network["color"] == absent["color"] != given["color"]
    assert "pose" not in network
    expected = [warp(n, depth, pose(batch.image, n), batch.intrinsics) for n in batch.neighbours]
    r, w = losses.REDUCTIONS["kbnet"], torch.ones_like(depth)
    torch.testing.assert_close(network["color"], 0.15 * sum(r.color(i, batch.image, w) for i in expected))


def test_a_pose_network_that_learns_beside_given_poses_sends_no_gradient_to_the_depth() -> None:
    batch, pose = random_batch(), PoseNet("small")
    grads = []
    for learn in (True, False):
        depth = (1 + torch.rand(2, 1, 32, 48, generator=torch.Generator().manual_seed(1))).requires_grad_()
        terms = Objective(ObjectiveConfig(learn_pose=learn), pose=pose)(batch, depth)
        assert ("pose" in terms) == learn
        sum(terms.values()).backward()  # type: ignore[union-attr]
        grads.append(depth.grad)
    assert torch.equal(*grads)
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in pose.parameters())


def test_pixels_that_leave_the_neighbour_do_not_count_if_asked(batch: Batch) -> None:
    sideways = torch.eye(4).repeat(2, 1, 1)
    sideways[:, 0, 3] = 100.0
    far = replace(batch, poses=(sideways, sideways))
    terms = Objective(ObjectiveConfig(mask_outside=True))(far, torch.ones(2, 1, 32, 48))
    assert float(terms["color"]) == 0
    behind = torch.diag(torch.tensor([1.0, 1.0, 1.0, 1.0])).repeat(2, 1, 1)
    behind[:, 2, 3] = -100.0
    terms = Objective(ObjectiveConfig(mask_outside=True))(
        replace(batch, poses=(behind, behind)), torch.ones(2, 1, 32, 48)
    )
    assert float(terms["color"]) == 0


def test_a_pose_network_gains_nothing_by_looking_away(batch: Batch) -> None:
    """Pixels outside do not count for given poses;
    for learned ones a motion that leaves the picture would cost nothing.
    """

    class Away(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            motion = torch.eye(4).repeat(len(a), 1, 1)
            motion[:, 0, 3] = 1e3
            return motion

    terms = Objective(ObjectiveConfig(mask_outside=True, poses="network"), pose=Away())(batch, torch.ones(2, 1, 32, 48))
    assert terms["color"] + terms["structure"] > 0.2


def test_the_distance_of_two_motions_is_that_of_the_pixels_they_move() -> None:
    """A step of 0.05 m to the side at 2 m depth with f = 40 moves every pixel by one;
    at most a fifth of the width counts.
    """
    K = torch.tensor([[[40.0, 0, 23.5], [0, 40.0, 15.5], [0, 0, 1]]])
    depth, still = torch.full((1, 1, 32, 48), 2.0), torch.eye(4)[None]
    for step, pixels in ((0.0, 0.0), (0.05, 1.0), (0.2, 4.0), (50.0, 48 / 5)):
        moved = still.clone()
        moved[:, 0, 3] = step
        found = losses.pose_distance(depth, moved, still, K)
        # x and y are averaged: only x moves
        torch.testing.assert_close(found, torch.tensor(10 / 48 * pixels / 2), atol=1e-5, rtol=1e-4)


def test_a_pose_network_learns_the_given_poses(triplets: Batch) -> None:
    pose = PoseNet("small")
    objective = Objective(ObjectiveConfig(), pose=pose)
    optimiser = torch.optim.Adam(pose.parameters(), lr=3e-3)
    depth = torch.full_like(triplets.sparse_depth, 2.0)
    found = []
    for _ in range(150):
        term = objective(triplets, depth)["pose"]
        optimiser.zero_grad()
        term.backward()
        optimiser.step()
        found.append(float(term.detach()))
    assert found[-1] < 0.3 * found[0]


def test_the_mask_of_the_augmentation_limits_the_photometric_terms(batch: Batch) -> None:
    depth, mask = torch.ones(2, 1, 32, 48), torch.zeros(2, 1, 32, 48)
    mask[..., :16, :] = 1
    changed = replace(batch, image=torch.where(mask.bool(), batch.image, torch.rand_like(batch.image)))
    objective = Objective(ObjectiveConfig())
    assert objective(batch, depth, mask=mask)["color"] == objective(changed, depth, mask=mask)["color"]
    assert objective(batch, depth)["color"] != objective(changed, depth)["color"]


@pytest.mark.parametrize("augmented", [False, True])
def test_voiced_leaves_out_pixels_with_points_also_where_a_mask_is_given(batch: Batch, augmented: bool) -> None:
    depth, mask = torch.ones(2, 1, 32, 48), torch.ones(2, 1, 32, 48)
    mask[..., :8, :] = 0
    config = ObjectiveConfig(reduction="voiced", weight_by_absence=True)
    weight = (1 - outlier_free(batch.sparse_depth)) * (mask if augmented else 1)
    expected = Objective(replace(config, weight_by_absence=False))(batch, depth, mask=weight)["color"]
    found = Objective(config)(batch, depth, mask=mask if augmented else None)["color"]
    torch.testing.assert_close(found, expected)


def test_pose_consistency_is_zero_for_opposite_motions_and_the_mean_square_otherwise() -> None:
    pose = random_batch().poses[0]
    assert float(losses.pose_consistency(pose, torch.linalg.inv(pose))) == pytest.approx(0, abs=1e-9)
    expected = ((pose @ pose - torch.eye(4)) ** 2).mean()
    assert float(losses.pose_consistency(pose, pose)) == pytest.approx(float(expected))


def test_inside_is_the_image_with_its_border_and_in_front_of_the_camera() -> None:
    x = torch.tensor([[[0.0, 3.0, 3.01, -0.01], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]])
    y = torch.tensor([[[0.0, 2.0, 1.0, 1.0], [-0.01, 2.01, 2.0, 0.0], [1.0, 1.0, 1.0, 1.0]]])
    z = torch.tensor([[[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [0.0, -1.0, 0.1, 5.0]]])
    found = losses.inside(torch.stack([x, y], 1), z[:, None])  # of 3x4 pixels
    assert found[0, 0].tolist() == [[1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]


def test_the_prior_pulls_only_where_it_reconstructs_at_least_as_well() -> None:
    depth, prior = torch.full((1, 1, 2, 2), 2.0), torch.full((1, 1, 2, 2), 5.0)
    error, prior_error = torch.tensor([[[[1.0, 1.0], [1.0, 1.0]]]]), torch.tensor([[[[0.5, 1.0], [2.0, 2.0]]]])
    assert float(losses.prior_depth(depth, prior, error, prior_error)) == 3.0
    assert float(losses.prior_depth(depth, prior, error, error + 1)) == 0.0


def test_the_prior_waits_until_the_reconstruction_is_good(batch: Batch) -> None:
    depth, prior = torch.ones(2, 1, 32, 48), torch.full((2, 1, 32, 48), 2.0)
    for threshold, active in ((0.0, False), (100.0, True)):
        config = ObjectiveConfig(prior=0.1, prior_threshold=threshold)
        term = Objective(config)(batch, depth, prior=prior)["prior"]
        assert (float(term) > 0) == active
    assert "prior" not in Objective(ObjectiveConfig(prior=0.1))(batch, depth)


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        ({}, {"neighbours": (), "poses": ()}, "single images only"),
        ({}, {"poses": ()}, "no poses and the model no pose network"),
        ({"poses": "network"}, {}, "no pose network"),
    ],
)
def test_what_is_missing_is_said(
    batch: Batch, config: dict[str, str], change: dict[str, tuple[()]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Objective(ObjectiveConfig(**config))(replace(batch, **change), torch.ones(2, 1, 32, 48))  # type: ignore[arg-type]


def test_given_poses_that_are_absent_are_not_replaced_silently(batch: Batch) -> None:
    with pytest.raises(ConfigError, match="poses='given'"):
        Objective(ObjectiveConfig(poses="given"), pose=PoseNet("small"))(
            replace(batch, poses=()), torch.ones(2, 1, 32, 48)
        )


def test_an_unknown_reduction_lists_the_known_ones() -> None:
    with pytest.raises((ConfigError, TypeError), match="paper"):
        ObjectiveConfig(reduction="mean")  # type: ignore[arg-type]
