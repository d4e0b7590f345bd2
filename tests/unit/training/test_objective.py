"""The objective for recordings, against loops written from its definitions."""

import numpy as np
import pytest
import torch

from protodepth.backbones.base import backbones
from protodepth.losses import REDUCTIONS, ObjectiveConfig, ssim_distance
from protodepth.model import ProtoDepth
from protodepth.training.objective import (
    HiddenObjective,
    HiddenObjectiveConfig,
    build_objective,
    difference,
    point_error,
    robust_photometric,
    smoothness_of_log,
    unoccluded,
)
from protodepth.types import Batch

H, W = 7, 9
K = torch.tensor([[[8.0, 0, 4], [0, 8.0, 3], [0, 0, 1]]])


def pose(x: float, z: float = 0.0) -> torch.Tensor:
    g = torch.eye(4)[None].clone()
    g[:, 0, 3], g[:, 2, 3] = x, z
    return g


def batch(**changes) -> Batch:
    torch.manual_seed(0)
    images = [torch.rand(1, 3, H, W) for _ in range(3)]
    made = {
        "image": images[0],
        "sparse_depth": torch.zeros(1, 1, H, W),
        "intrinsics": K,
        "neighbours": (images[1], images[2]),
        "poses": (pose(0.3), pose(-0.4, 0.1)),
    }
    return Batch(**{**made, **changes})


def near_and_far() -> torch.Tensor:
    """A near thing before a far wall: some of the wall is hidden in each neighbour."""
    depth = torch.full((1, 1, H, W), 4.0)
    depth[..., 2:5, 3:6] = 1.2
    return depth


def landing(depth: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(x, y) and z of each pixel in the neighbour, one at a time."""
    k = K[0].numpy()
    places, z = np.zeros((H, W, 2)), np.zeros((H, W))
    for y in range(H):
        for x in range(W):
            q = k @ (g[:3, :3] @ (np.linalg.inv(k) @ [x, y, 1] * depth[y, x]) + g[:3, 3])
            places[y, x], z[y, x] = q[:2] / q[2], q[2]
    return places, z


def in_view(place: np.ndarray, z: float) -> bool:
    return bool(0 <= place[0] <= W - 1 and 0 <= place[1] <= H - 1 and z > 0)


def looked_up(image: np.ndarray, place: np.ndarray) -> np.ndarray:
    x, y = np.clip(place[0], 0, W - 1), np.clip(place[1], 0, H - 1)
    x0, y0 = int(min(np.floor(x), W - 2)), int(min(np.floor(y), H - 2))
    a, b = x - x0, y - y0
    top = (1 - a) * image[:, y0, x0] + a * image[:, y0, x0 + 1]
    bottom = (1 - a) * image[:, y0 + 1, x0] + a * image[:, y0 + 1, x0 + 1]
    return (1 - b) * top + b * bottom


def visible(places: np.ndarray, z: np.ndarray) -> np.ndarray:
    seen = np.zeros((H, W), bool)
    cells = {(y, x): tuple(np.rint(places[y, x]).astype(int)) for y in range(H) for x in range(W)}
    for here, cell in cells.items():
        rivals = [z[o] for o, c in cells.items() if c == cell and in_view(places[o], z[o])]
        seen[here] = in_view(places[here], z[here]) and all(z[here] <= 1.05 * r for r in rivals)
    return seen


def test_the_photometric_term_is_that_of_a_loop_over_pixels():
    data, depth = batch(), near_and_far()
    image = data.image[0].numpy()
    weight = torch.ones(1, 1, H, W)
    weight[..., 0, :] = 0
    warped = {}
    for n, (neighbour, g) in enumerate(zip(data.neighbours, data.poses, strict=True)):
        places, z = landing(depth[0, 0].numpy(), g[0].numpy())
        rebuilt = np.zeros_like(image)
        for y in range(H):
            for x in range(W):
                rebuilt[:, y, x] = looked_up(neighbour[0].numpy(), places[y, x])
        error = difference(torch.from_numpy(rebuilt)[None], data.image)[0, 0].numpy()
        warped[n] = (error, visible(places, z), difference(neighbour, data.image)[0, 0].numpy())
    assert not warped[0][1].all()  # some pixels are hidden or outside
    total, count = 0.0, 0.0
    for y in range(H):
        for x in range(W):
            seen = [e[y, x] for e, v, _ in warped.values() if v[y, x]]
            if seen and min(seen) < min(s[y, x] for _, _, s in warped.values()) and weight[0, 0, y, x] > 0:
                total, count = total + min(seen), count + 1
    assert 5 < count < H * W - 9
    assert float(robust_photometric(data, depth, weight)) == pytest.approx(total / count, rel=1e-4)


def test_the_difference_of_images_is_colour_and_structure():
    a, b = torch.rand(1, 3, H, W), torch.rand(1, 3, H, W)
    inner = difference(a, b)[..., 1:-1, 1:-1]
    expected = (0.15 * (a - b).abs()[..., 1:-1, 1:-1] + 0.85 * ssim_distance(a, b)).mean(1, keepdim=True)
    assert torch.allclose(inner, expected, atol=1e-6)
    assert float(difference(a, a).abs().max()) < 1e-6


def test_what_stands_behind_something_nearer_is_not_believed():
    pixels = torch.zeros(1, 2, 1, 3)
    pixels[0, 0, 0] = torch.tensor([1.2, 0.8, 2.0])
    z = torch.tensor([[[[3.0, 1.0, 2.0]]]])
    assert unoccluded(pixels, z).flatten().tolist() == [0, 1, 1]
    assert unoccluded(pixels, torch.tensor([[[[1.04, 1.0, 2.0]]]])).flatten().tolist() == [1, 1, 1]  # one surface


def test_a_camera_that_stands_still_teaches_nothing():
    data = batch(poses=(pose(0.0), pose(0.0)))
    depth = near_and_far().requires_grad_()
    loss = robust_photometric(data, depth, torch.ones(1, 1, H, W))
    assert float(loss.detach()) == 0.0  # warping explains no pixel better than standing still


def in_words(depth: list[float], z: list[float]) -> float:
    """The error at hidden points of one image, as the module's first lines have it."""
    d, known = np.array(depth), np.array(z)
    off, logs = (d - known) / known.mean(), np.log(d) - np.log(known)
    sizes = abs(off).mean(), abs(logs).mean(), np.sqrt((off**2).mean())
    return float(np.log(sizes[0] + 5e-4) + 0.5 * np.log(sizes[1] + 5e-4) + 0.15 * np.log(sizes[2]))


def test_every_image_counts_by_the_share_of_its_error_whatever_its_size_and_one_without_points_not_at_all():
    rng = np.random.default_rng(0)
    z, d = rng.uniform(1, 9, (3, 1, H, W)), rng.uniform(1, 9, (3, 1, H, W))
    z[1], d[1] = 40 * z[1], 40 * d[1]
    mask = rng.random((3, 1, H, W)) < 0.4
    shown = torch.from_numpy(np.where(mask, 0, z))
    shown[2, 0, 1:] = 0
    shown[2, 0, 0, 2:] = 0  # two points at most: a crop beside them
    data = Batch(
        image=torch.zeros(3, 3, H, W), sparse_depth=shown, hidden_depth=torch.from_numpy(np.where(mask, z, 0)),
        intrinsics=K.expand(3, 3, 3),
    )  # fmt: skip
    depth = torch.from_numpy(d).requires_grad_()
    loss = HiddenObjective(trust=0.0)(data, depth)["hidden"]
    expected = np.mean([in_words(d[n][mask[n]], z[n][mask[n]]) for n in range(2)])
    assert float(loss.detach()) == pytest.approx(expected, abs=1e-4)
    loss.backward()
    assert not depth.grad[2].any()
    away = [float((depth.grad[n] * (depth.detach()[n] - torch.from_numpy(z[n]))).sum()) for n in range(2)]
    assert away == pytest.approx([0.825] * 2, abs=0.15)  # half of 1 + 0.5 + 0.15: a share of the error, not metres
    nobody = HiddenObjective(trust=0.0)(batch(hidden_depth=data.hidden_depth[:1]), depth.detach()[:1])
    assert float(nobody["hidden"]) == 0.0


def test_hidden_points_alone_move_the_depth_where_they_are():
    hidden = torch.zeros(1, 1, H, W)
    hidden[..., 2, 3] = 5.0
    shown = torch.zeros(1, 1, H, W)
    shown[..., 5, 5:8] = 4.0
    depth = torch.full((1, 1, H, W), 4.0, requires_grad=True)
    terms = HiddenObjective(trust=0.0)(batch(sparse_depth=shown, hidden_depth=hidden), depth)
    assert set(terms) == {"hidden", "sparse"}
    terms["hidden"].backward()
    assert np.argwhere(depth.grad[0, 0].numpy() != 0).tolist() == [[2, 3]]
    assert float(terms["hidden"].detach()) == pytest.approx(in_words([4.0], [5.0]), abs=1e-4)
    assert float(terms["sparse"].detach()) == 0.0


def test_points_outside_the_valid_part_of_a_view_do_not_count():
    hidden, mask = torch.zeros(1, 1, H, W), torch.ones(1, 1, H, W)
    hidden[..., 2, 3], hidden[..., 4, 4] = 5.0, 2.0
    mask[..., 4, 4] = 0
    shown = torch.zeros(1, 1, H, W)
    shown[..., 0, :4] = 4.0
    data = batch(sparse_depth=shown, hidden_depth=hidden)
    terms = HiddenObjective(trust=0.0)(data, torch.full((1, 1, H, W), 4.0), mask=mask)
    assert float(terms["hidden"]) == pytest.approx(in_words([4.0], [5.0]), abs=1e-4)


def test_the_weight_of_the_photometric_term_follows_the_trust_in_the_poses():
    depth = near_and_far()
    terms = [HiddenObjective(trust=t)(batch(), depth) for t in (0.0, 0.5, 1.0)]
    assert HiddenObjective()(batch(), depth) == terms[2]  # nothing is said: the poses are believed
    assert "photometric" not in terms[0]
    assert float(terms[2]["photometric"]) > 0
    assert float(terms[1]["photometric"]) == pytest.approx(float(terms[2]["photometric"]) / 2)
    assert "photometric" not in HiddenObjective()(batch(poses=()), depth)


def test_the_error_at_points_is_relative_to_depth_and_to_the_mean():
    rng = np.random.default_rng(0)
    z = rng.uniform(1, 9, (2, 1, 4, 5)) * (rng.random((2, 1, 4, 5)) < 0.5)
    d = rng.uniform(1, 9, (2, 1, 4, 5))
    frames = []
    for n in range(2):
        known = z[n][z[n] > 0]
        frames.append(np.mean(np.abs(d[n][z[n] > 0] - known) / (known**0.3 * known.mean() ** 0.7)))
    found = point_error(torch.from_numpy(d), torch.from_numpy(z), 0.3)
    assert float(found) == pytest.approx(np.mean(frames))
    assert float(point_error(torch.from_numpy(d), torch.zeros(2, 1, 4, 5), 0.3)) == 0.0


def test_depth_times_s_gives_the_same_errors():
    z, d = torch.rand(1, 1, 4, 5) + 1, torch.rand(1, 1, 4, 5) + 1
    for p in (0.0, 0.5, 1.0):
        assert float(point_error(30 * d, 30 * z, p)) == pytest.approx(float(point_error(d, z, p)), rel=1e-5)


def test_a_slope_is_smooth_and_a_step_is_smooth_where_the_image_has_one():
    slope = torch.exp(torch.linspace(0, 1, W)).expand(1, 1, H, W)
    step = torch.ones(1, 1, H, W)
    step[..., 4:] = 2.0
    grey, edge = torch.zeros(1, 3, H, W), torch.zeros(1, 3, H, W)
    edge[..., 4:] = 1.0
    assert float(smoothness_of_log(slope, grey)) < 1e-6
    assert float(smoothness_of_log(step, edge)) < 0.01 * float(smoothness_of_log(step, grey))
    on = HiddenObjective(HiddenObjectiveConfig(smooth=2.0), trust=0.0)(batch(), step)
    assert float(on["smooth"]) == pytest.approx(2 * float(smoothness_of_log(step, batch().image)))


@pytest.mark.parametrize("name", ["lite", "kbnet", "voiced", "fusionnet"])
def test_an_objective_that_names_no_reduction_takes_its_networks_own(name: str) -> None:
    model = ProtoDepth(backbones.get(name).from_preset("indoor" if name == "lite" else "small"))
    own = {"lite": "relative", "kbnet": "kbnet", "voiced": "voiced", "fusionnet": "voiced"}[name]
    assert build_objective(model, ObjectiveConfig()).reduction is REDUCTIONS[own]
    assert build_objective(model, ObjectiveConfig(reduction="paper")).reduction is REDUCTIONS["paper"]
