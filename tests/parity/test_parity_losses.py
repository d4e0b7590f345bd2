"""Geometry and losses against the published ones, term by term, and the gradient of a one-view objective."""

import numpy as np
import pytest
import torch
from fixture_tools import Fixture
from torch import Tensor

from protodepth.backbones.posenet import motion
from protodepth.backbones.scaffnet import supervised_loss
from protodepth.geometry import outlier_free, rays, reproject, warp
from protodepth.losses import REDUCTIONS, Objective, ObjectiveConfig, pose_consistency, ssim_distance
from protodepth.types import Batch


@pytest.fixture(scope="module")
def fixture():
    return Fixture("losses")


@pytest.fixture(params=["case0", "case1"])
def case(request):
    return request.param


def inputs(fixture: Fixture, case: str) -> dict[str, Tensor]:
    prefix = f"{case}/in/"
    return {key.removeprefix(prefix): fixture[key] for key in fixture.arrays.files if key.startswith(prefix)}


@pytest.mark.parametrize("network", ["kbnet", "voiced", "fusionnet"])
def test_every_stored_term_is_reproduced(fixture, case, network):
    x, stored = inputs(fixture, case), fixture.meta["items"][case]["scalars"]
    reduction = REDUCTIONS["kbnet" if network == "kbnet" else "voiced"]
    weights = {"None": x["w_ones"], "w_ones": x["w_ones"], "w": x["w"]}
    checked = 0
    for label, weight in weights.items():
        for term in ("color", "structure"):
            if f"{network}/{term}[{label}]" in stored:
                value = getattr(reduction, term)(x["src"], x["tgt"], weight)
                assert float(value) == pytest.approx(stored[f"{network}/{term}[{label}]"], rel=1e-5)
                checked += 1
    assert checked == 4
    sparse = reduction.sparse(x["depth"], x["sparse"], x["valid"])
    assert float(sparse) == pytest.approx(stored[f"{network}/sparse_depth"], rel=1e-5)
    smooth = reduction.smooth(x["depth"], x["tgt"])
    assert float(smooth) == pytest.approx(stored[f"{network}/smoothness"], rel=1e-5)


def test_ssim_distance_is_reproduced_pixel_by_pixel(fixture, case):
    x = inputs(fixture, case)
    fixture.check(f"{case}/out/kbnet/ssim_map", ssim_distance(x["src"], x["tgt"]))


def test_outlier_removal_is_reproduced(fixture, case):
    x = inputs(fixture, case)
    valid = outlier_free(x["sparse"])
    assert torch.equal(valid, fixture[f"{case}/out/outlier_valid"])
    assert torch.equal(valid * x["sparse"], fixture[f"{case}/out/outlier_sparse"])


def test_backprojection_projection_and_warping_are_reproduced(fixture, case):
    x = inputs(fixture, case)
    pose = motion(x["dof6"], "axis")
    points = fixture[f"{case}/out/backproject_points"]
    found = (rays(x["intrinsics"], *x["depth"].shape[-2:]) * x["depth"]).flatten(2)
    assert torch.allclose(found, points[:, :3], rtol=1e-6, atol=1e-6)
    pixels, _ = reproject(x["depth"], pose, x["intrinsics"])
    fixture.check(f"{case}/out/project_xy", pixels, 1e-6)
    fixture.check(f"{case}/out/warp_border", warp(x["src"], x["depth"], pose, x["intrinsics"]))


def test_pose_consistency_is_reproduced(fixture, case):
    x, stored = inputs(fixture, case), fixture.meta["items"][case]["scalars"]
    a, b = motion(x["dof6"], "axis"), motion(x["dof6_b"], "axis")
    fixture.check(f"{case}/out/pose_matrix_axis_b", b, 1e-6)
    assert float(pose_consistency(a, b)) == pytest.approx(stored["voiced/pose_consistency"], rel=1e-5)


def test_one_view_objective_and_its_gradient_are_reproduced(fixture, case):
    x, stored = inputs(fixture, case), fixture.meta["items"][case]["scalars"]
    depth = x["depth"].clone().requires_grad_(True)
    loss = one_view(x, depth)
    assert float(loss.detach()) == pytest.approx(stored["kbnet/one_view_total"], rel=1e-5)
    loss.backward()
    fixture.check(f"{case}/out/kbnet/one_view_total_grad_depth", depth.grad)


def one_view(x: dict[str, Tensor], depth: Tensor) -> Tensor:
    """The stored total: terms of the kbnet reduction for one neighbour (src seen from tgt), all weights one."""
    reduction = REDUCTIONS["kbnet"]
    warped = warp(x["src"], depth, motion(x["dof6"], "axis"), x["intrinsics"])
    return (
        0.15 * reduction.color(warped, x["tgt"], x["w_ones"])
        + 0.95 * reduction.structure(warped, x["tgt"], x["w_ones"])
        + 2 * reduction.sparse(depth, x["sparse"], x["valid"])
        + 2 * reduction.smooth(depth, x["tgt"])
    )


def test_objective_gives_the_same_terms_as_its_parts(fixture, case):
    x = inputs(fixture, case)
    batch = Batch(
        image=x["tgt"],
        sparse_depth=x["sparse"],
        intrinsics=x["intrinsics"],
        neighbours=(x["src"],),
        poses=(motion(x["dof6"], "axis"),),
    )
    terms = Objective(ObjectiveConfig(outlier_threshold=np.inf))(batch, x["depth"])
    stored = fixture.meta["items"][case]["scalars"]["kbnet/one_view_total"]
    assert float(sum(terms.values())) == pytest.approx(stored, rel=1e-5)


def test_supervised_loss_of_scaffnet_is_reproduced(fixture, case):
    x, stored = inputs(fixture, case), fixture.meta["items"][case]["scalars"]
    assert float(supervised_loss(x["depth"], x["sparse"])) == pytest.approx(stored["scaffnet/l1_normalized"], rel=1e-5)
