"""Built-in worlds: geometry against closed forms, poses by warping, sensors, splits, cache, errors."""

import hashlib
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

from protodepth.data.arguments import datasets
from protodepth.data.batches import collate, training_batches
from protodepth.data.frame import Frame
from protodepth.data.worlds.raycast import NEAR, Camera, Light, Material, Scene, Shape, Solid, cast
from protodepth.data.worlds.sensors import Corners, Lidar, lidar_points, lidar_returns
from protodepth.data.worlds.shading import depth_map, photograph
from protodepth.data.worlds.worlds import INDOOR, OUTDOOR, WORLDS, WorldDataset, render, rotation, set_scene, world
from protodepth.errors import DataError, UnknownNameError
from protodepth.geometry import reproject, warp

SIZE = (64, 96)
GREY = Material((0.5, 0.5, 0.5))
DARK = Light(above=(1.0, 1.0, 1.0), below=(1.0, 1.0, 1.0))


@pytest.fixture(scope="module")
def frames() -> dict[str, list[Frame]]:
    return {name: [WorldDataset(name, "val", count=6, cache=False).draw(i) for i in range(6)] for name in WORLDS}


def camera(pitch: float = 0.0, yaw: float = 0.0, origin: tuple[float, float, float] = (0.0, -1.5, 0.0)) -> Camera:
    K = np.array([[80.0, 0, 47.5], [0, 80.0, 31.5], [0, 0, 1]])
    return Camera(K, rotation(yaw, pitch, 0.0), np.array(origin))


def one(shape: Shape, centre: tuple[float, float, float], half: tuple[float, float, float], yaw: float = 0.0) -> Scene:
    return Scene((Solid(shape, centre, half, GREY, yaw),), DARK)


# --- closed forms -----------------------------------------------------------------------------------------------------


def test_depth_of_the_ground_is_camera_height_times_focal_length_over_rows_below_the_horizon() -> None:
    depth = depth_map(one(Shape.PLANE, (0, 0, 0), (1, 1, 1)), camera(), SIZE)
    rows = np.arange(64) - 31.5
    expected = np.where(rows > 0, 1.5 * 80 / np.where(rows > 0, rows, 1), np.inf)
    np.testing.assert_allclose(depth, np.repeat(expected[:, None], 96, 1), rtol=1e-12)


def test_z_depth_of_a_frontal_wall_is_constant_and_not_the_length_of_the_ray() -> None:
    depth = depth_map(one(Shape.BOX, (0, 0, 6), (50, 50, 1)), camera(), SIZE)
    np.testing.assert_allclose(depth, 5.0, rtol=1e-12)


def test_depth_of_a_ball_solves_the_quadratic() -> None:
    depth = depth_map(one(Shape.BALL, (0.3, -1.4, 5.0), (1.2, 1.2, 1.2)), camera(), SIZE)
    for row, column in ((31, 47), (40, 60), (25, 40), (0, 0)):
        d = np.array([(column - 47.5) / 80, (row - 31.5) / 80, 1.0])
        c = np.array([0.3, 0.1, 5.0])  # the centre seen from the camera
        square = (d @ c) ** 2 - (d @ d) * (c @ c - 1.2**2)
        expected = ((d @ c) - np.sqrt(square)) / (d @ d) if square >= 0 else np.inf
        assert depth[row, column] == pytest.approx(expected, rel=1e-9)


def test_a_pole_is_as_wide_as_its_silhouette_and_as_near_as_its_front() -> None:
    depth = depth_map(one(Shape.CYLINDER, (0, -2.0, 4.0), (0.5, 2.0, 0.5)), camera(), SIZE)
    half_angle = np.tan(np.arcsin(0.5 / 4.0)) * 80
    columns = np.abs(np.arange(96) - 47.5) < half_angle
    np.testing.assert_array_equal(np.isfinite(depth[31]), columns)
    assert depth[31, 47] == pytest.approx(3.5, abs=1e-3)


def test_a_turned_box_shows_its_edge() -> None:
    """Turned by 45 degrees, the nearest point of a cube of side 2 is its upright edge at sqrt(2) before the centre."""
    depth = depth_map(one(Shape.BOX, (0, -1.5, 6.0), (1, 1, 1), np.pi / 4), camera(), SIZE)
    # half a pixel beside the edge the face z = 6 - sqrt(2) + |x| is met at x = z / 160
    assert depth.min() == pytest.approx((6 - np.sqrt(2)) / (1 - 1 / 160), rel=1e-9)
    assert int(depth[31].argmin()) in (47, 48)
    assert depth[31, 40] == pytest.approx(depth[31, 55], rel=1e-9)


@pytest.mark.parametrize("name", WORLDS)
def test_restricting_solids_to_their_screen_windows_changes_nothing(name: str) -> None:
    scene, (before, middle, _), _, _ = set_scene(WORLDS[name], np.random.SeedSequence(3), SIZE)
    x, y = np.arange(96.0), np.arange(64.0)
    for c in (before, middle):
        direction = c.directions(x, y, np.float64)
        everywhere = cast(scene, c.origin, direction)
        windowed = cast(scene, c.origin, direction, c.windows(scene, x, y))
        np.testing.assert_array_equal(everywhere.t, windowed.t)
        np.testing.assert_array_equal(everywhere.solid, windowed.solid)


# --- triplets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORLDS)
def test_a_point_of_camera_t_moved_by_the_pose_lies_on_a_surface_or_behind_one(name: str) -> None:
    """Exact: a ray from the other camera through the projected point meets the same depth unless something is
    nearer.
    """
    data = WorldDataset(name, "val", count=1, cache=False)
    sequence = np.random.SeedSequence((7, 7))
    frame = render(data.spec, sequence, SIZE)
    scene, (before, middle, after), _, _ = set_scene(data.spec, sequence, SIZE)
    exact = depth_map(scene, middle, SIZE)
    rows, columns = np.nonzero(frame.ground_truth)
    chosen = np.random.default_rng(0).permutation(len(rows))[:600]
    pixels = np.stack([columns[chosen], rows[chosen], np.ones(len(chosen))])
    points = np.linalg.inv(middle.intrinsics) @ pixels * exact[rows[chosen], columns[chosen]]
    for neighbour, pose in ((before, frame.poses[0]), (after, frame.poses[1])):
        moved = pose[:3, :3] @ points + pose[:3, 3:]
        moved = moved[:, moved[2] > NEAR]
        direction = neighbour.rotation @ (moved / moved[2])
        met = cast(scene, neighbour.origin, direction[:, None]).t[0]
        assert (met <= moved[2] * (1 + 1e-6)).all()
        assert (np.abs(met - moved[2]) < 1e-6 * moved[2]).mean() > 0.85


@pytest.mark.parametrize("name", WORLDS)
def test_warping_a_neighbour_by_true_depth_and_pose_gives_the_image_and_the_inverse_pose_does_not(
    name: str, frames: dict[str, list[Frame]]
) -> None:
    errors = {"right": [], "inverse": [], "still": [], "deeper": []}
    for frame in frames[name]:
        b = collate([frame], ground_truth=True)
        assert b.ground_truth is not None
        for neighbour, pose in zip(b.neighbours, b.poses, strict=True):
            pixels, _ = reproject(b.ground_truth, pose, b.intrinsics)
            inside = (pixels >= 0).all(1) & (pixels[:, 0] <= 95) & (pixels[:, 1] <= 63) & (b.ground_truth[:, 0] > 0)
            guesses = {
                "right": warp(neighbour, b.ground_truth, pose, b.intrinsics),
                "inverse": warp(neighbour, b.ground_truth, torch.linalg.inv(pose), b.intrinsics),
                "still": neighbour,
                "deeper": warp(neighbour, 1.3 * b.ground_truth, pose, b.intrinsics),
            }
            for key, guess in guesses.items():
                errors[key].append(float((guess - b.image).abs().mean(1)[inside].mean()))
    mean = {key: np.mean(values) for key, values in errors.items()}
    assert mean["right"] < 0.03  # noise, interpolation and occluded pixels remain
    assert mean["right"] < 0.5 * mean["still"] < 0.5 * mean["inverse"]
    assert mean["right"] < 0.9 * mean["deeper"]  # the images say how far things are


def test_a_surface_point_has_the_same_colour_in_all_frames_of_a_triplet() -> None:
    """Light, lamp and haze stay put: at infinite distance of textures' detail only the viewpoint changes."""
    for name in ("corridor_night", "highway"):
        scene, (before, middle, _), _, _ = set_scene(WORLDS[name], np.random.SeedSequence(5), (96, 144))
        here, there = photograph(scene, middle, (96, 144)), photograph(scene, before, (96, 144))
        depth = torch.from_numpy(np.nan_to_num(depth_map(scene, middle, (96, 144)), posinf=1e4))[None, None].float()
        pose = before_from_middle(before, middle)
        K = torch.from_numpy(middle.intrinsics)[None].float()
        image = torch.from_numpy(np.ascontiguousarray(there.transpose(2, 0, 1)))[None].float()
        back = warp(image, depth, pose, K)[0].permute(1, 2, 0).numpy()
        difference = (back - here)[20:-20, 20:-20]
        assert abs(np.median(difference)) < 0.002
        assert np.median(np.abs(difference)) < 0.012


def before_from_middle(before: Camera, middle: Camera) -> torch.Tensor:
    return torch.from_numpy(np.linalg.inv(before.pose()) @ middle.pose())[None].float()


def test_motion_between_frames_is_centimetres_indoors_and_a_car_s_step_outdoors(frames: dict[str, list[Frame]]) -> None:
    for name, some in frames.items():
        steps = [np.linalg.norm(p[:3, 3]) for f in some for p in f.poses]
        low, high = (0.025, 0.09) if WORLDS[name].indoor else (0.35, 1.1)
        assert low < min(steps) < max(steps) < high, name
        if not WORLDS[name].indoor:  # the camera drives forward: the scene comes nearer from t-1 to t+1
            assert all(f.poses[0][2, 3] > 0 > f.poses[1][2, 3] for f in some)


@pytest.mark.parametrize("name", WORLDS)
def test_a_frame_has_the_promised_kinds_and_shapes(name: str, frames: dict[str, list[Frame]]) -> None:
    f = frames[name][0]
    assert f.image.shape == (64, 96, 3)
    assert {f.image.dtype, *(n.dtype for n in f.neighbours)} == {np.dtype(np.uint8)}
    assert f.sparse_depth.dtype == np.float32
    assert f.sparse_depth.shape == (64, 96)
    assert f.ground_truth is not None
    assert f.ground_truth.dtype == np.float32
    assert [p.dtype for p in f.poses] == [np.float64] * 2
    assert all(np.allclose(p[:3, :3] @ p[:3, :3].T, np.eye(3)) for p in f.poses)
    assert f.intrinsics[0, 0] == pytest.approx(WORLDS[name].focal * 96)


def test_a_larger_picture_shows_the_same_scene() -> None:
    small, large = (render(WORLDS["street"], 4, size) for size in ((32, 48), (96, 144)))
    assert small.ground_truth is not None
    assert large.ground_truth is not None
    np.testing.assert_array_equal(small.ground_truth, large.ground_truth[1::3, 1::3])  # same rays at these pixels
    assert abs(small.image.astype(float) - large.image.reshape(32, 3, 48, 3, 3).mean((1, 3))).mean() < 6


def test_other_shapes_of_picture_work() -> None:
    for size in ((16, 16), (33, 71), (128, 40)):
        f = render(WORLDS["highway"], 0, size)
        assert f.image.shape == (*size, 3)
        assert np.isfinite(f.sparse_depth).all()


# --- sensors and depth ranges -----------------------------------------------------------------------------------------


def test_indoor_worlds_have_depth_everywhere_between_30_cm_and_6_m(frames: dict[str, list[Frame]]) -> None:
    for name in INDOOR:
        depth = np.stack([f.ground_truth for f in frames[name] if f.ground_truth is not None])
        assert depth.min() > 0.3, name
        assert depth.max() <= 6.0, name


def test_outdoor_worlds_have_sky_without_depth_and_reach_80_m(frames: dict[str, list[Frame]]) -> None:
    for name in OUTDOOR:
        depth = np.stack([f.ground_truth for f in frames[name] if f.ground_truth is not None])
        known = depth[depth > 0]
        assert known.min() > 2.0, name
        assert 60 < known.max() <= 80.0, name
        assert 0.02 < (depth == 0).mean() < 0.6, name


def test_no_sparse_point_lies_in_the_sky(frames: dict[str, list[Frame]]) -> None:
    for some in frames.values():
        for f in some:
            assert f.ground_truth is not None
            assert not (f.sparse_depth[f.ground_truth == 0] > 0).any()


def test_indoor_densities_are_between_half_and_two_per_cent(frames: dict[str, list[Frame]]) -> None:
    for name in INDOOR:
        for f in frames[name]:
            assert 0.005 <= (f.sparse_depth > 0).mean() <= 0.02, name


def test_scanners_have_different_numbers_of_points_on_lines(frames: dict[str, list[Frame]]) -> None:
    density = {n: np.mean([(f.sparse_depth > 0).mean() for f in frames[n]]) for n in OUTDOOR}
    assert 0.05 < density["street"] < 0.09
    assert 0.02 < density["street_dusk"] < 0.04
    assert 0.02 < density["highway"] < 0.04
    rows = (frames["highway"][0].sparse_depth[40:] > 0).sum(1)
    assert (rows > 10).sum() >= 3  # lines ...
    assert (rows == 0).sum() >= 4  # ... with nothing between them


@pytest.mark.parametrize("name", [*INDOOR, *OUTDOOR])
def test_sparse_points_carry_unbiased_noise_of_the_stated_size_and_ground_truth_none(name: str) -> None:
    sensor = WORLDS[name].sensor
    scores = []
    for seed in range(12):
        f = render(WORLDS[name], seed, (48, 72))
        assert f.ground_truth is not None
        k = f.sparse_depth > 0
        z, truth = f.sparse_depth[k].astype(float), f.ground_truth[k].astype(float)
        if isinstance(sensor, Corners):
            sigma = sensor.noise * truth
        else:
            sigma = np.hypot(sensor.relative_noise * truth, sensor.noise)
        scores.append((z - truth) / sigma)
    score = np.concatenate(scores)
    score = score[np.abs(score) < 6]  # without returns from behind an edge
    assert np.std(score) == pytest.approx(1.0, abs=0.12)
    assert abs(np.mean(score)) < 4 / np.sqrt(len(score))


def test_a_scanner_beside_the_camera_sees_past_edges_and_only_keeps_what_lies_behind() -> None:
    """A post before a wall: returns from the wall land on the post's pixels; none of them is nearer than the truth."""
    solids = (Solid(Shape.BOX, (0, 0, 21), (60, 60, 1), GREY), Solid(Shape.CYLINDER, (0.5, 0, 5), (0.4, 9, 0.4), GREY))
    scene, eye = Scene(solids, DARK), camera()
    sensor = Lidar(
        lines=40, columns=300, elevation=(-15, 15), noise=0.0, relative_noise=0.0, dropout=0.0, offset=(0.8, 0.0, 0.0)
    )
    truth = depth_map(scene, eye, SIZE)
    sparse = lidar_points(sensor, lidar_returns(sensor, scene, eye, SIZE), truth, np.random.default_rng(0))
    k = sparse > 0
    occluded = k & (sparse > truth + 5)
    assert 0.001 < occluded[k].mean() < 0.2
    np.testing.assert_array_equal(sparse[k & ~occluded], truth[k & ~occluded])


def test_thin_things_stand_along_the_street() -> None:
    """Somewhere in most scenes a stretch of at most three pixels stands well before both its sides."""
    found = 0
    for seed in range(8):
        depth = render(WORLDS["street"], seed, SIZE).ground_truth
        assert depth is not None
        far = np.where(depth > 0, depth, 200.0)
        sides = np.minimum(np.roll(far, 3, 1), np.roll(far, -3, 1))[:, 4:-4]
        found += bool((far[:, 4:-4] < 0.7 * sides).sum() >= 6)
    assert found >= 6


# --- the domains differ -----------------------------------------------------------------------------------------------


def summary(f: Frame) -> np.ndarray:
    """Averages over the picture, as a global pooling sees them."""
    image, z = f.image / 255.0, f.sparse_depth
    k = z > 0
    slopes = [np.abs(np.diff(image, axis=a)).mean() for a in (0, 1)]
    return np.array(
        [*image.mean((0, 1)), *image.std((0, 1)), *slopes, k.mean() * 20, np.log(z[k]).mean(), np.log(z[k]).std()]
    )


@pytest.mark.parametrize("names", [INDOOR, OUTDOOR])
def test_global_averages_tell_the_domains_apart(names: tuple[str, ...], frames: dict[str, list[Frame]]) -> None:
    train = {n: np.stack([summary(render(WORLDS[n], s, SIZE)) for s in range(100, 106)]) for n in names}
    spread = np.concatenate([v - v.mean(0) for v in train.values()]).std(0) + 1e-3
    centre = {n: v.mean(0) for n, v in train.items()}
    right = [
        min(names, key=lambda m: float((((summary(f) - centre[m]) / spread) ** 2).sum())) == n
        for n in names
        for f in frames[n]
    ]
    assert np.mean(right) >= 0.95


def test_no_two_worlds_share_lens_noise_or_sensor() -> None:
    for attribute in ("focal", "sensor"):
        values = [getattr(spec, attribute) for spec in WORLDS.values()]
        assert len(set(values)) == len(values), attribute


# --- splits, seeds, cache ---------------------------------------------------------------------------------------------


def digest(f: Frame) -> bytes:
    arrays = [f.image, *f.neighbours, f.sparse_depth, f.ground_truth, f.intrinsics, *f.poses]
    return b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)


def test_the_same_seed_gives_the_same_bytes_in_another_process() -> None:
    code = (
        "import sys, hashlib, numpy as np\n"
        "from protodepth.data.worlds.worlds import WorldDataset, WORLDS\n"
        "for n in WORLDS:\n"
        "    f = WorldDataset(n, 'test', count=3, size=(32, 48), seed=5, cache=False).draw(2)\n"
        "    a = [f.image, *f.neighbours, f.sparse_depth, f.ground_truth, f.intrinsics, *f.poses]\n"
        "    print(hashlib.sha256(b''.join(np.ascontiguousarray(x).tobytes() for x in a)).hexdigest())\n"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    here = [
        hashlib.sha256(digest(WorldDataset(n, "test", count=3, size=(32, 48), seed=5, cache=False).draw(2))).hexdigest()
        for n in WORLDS
    ]
    assert other == here


def test_splits_seeds_and_numbers_give_different_scenes_and_a_longer_dataset_starts_like_a_shorter() -> None:
    def draw(split: str, seed: int, index: int, count: int = 4) -> bytes:
        return digest(WorldDataset("room", split, count=count, size=(16, 24), seed=seed, cache=False)[index])

    seen = [draw(split, seed, index) for split in ("train", "val", "test") for seed in (0, 1) for index in range(3)]
    assert len(set(seen)) == len(seen)
    assert draw("train", 0, 1, count=2) == draw("train", 0, 1, count=4)


def test_drawing_twice_from_one_seed_sequence_gives_the_same_frame() -> None:
    sequence = np.random.SeedSequence(9)
    assert digest(render(WORLDS["room"], sequence, (16, 24))) == digest(render(WORLDS["room"], sequence, (16, 24)))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROTODEPTH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def small(seed: int = 0, count: int = 2) -> WorldDataset:
    return WorldDataset("room", "val", count=count, size=(16, 24), seed=seed)


def test_the_cache_is_read_instead_of_drawing_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = digest(small()[1])
    assert [p.suffix for p in cache.iterdir()] == [".npz"]

    def refuse(*_: object) -> Frame:
        raise AssertionError("drawn again")

    monkeypatch.setattr(WorldDataset, "draw", refuse)
    assert digest(small()[1]) == first
    with pytest.raises(AssertionError, match="drawn again"):
        small(seed=1)[0]
    with pytest.raises(AssertionError, match="drawn again"):
        small(count=3)[0]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text"])
def test_a_damaged_cache_file_is_drawn_again(cache: Path, damage: str) -> None:
    first = digest(small()[1])
    (path,) = cache.iterdir()
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 3] ^= 0xFF
    path.write_bytes({"cut": data[: len(data) // 2], "flip": data, "empty": b"", "text": b"not a zip"}[damage])
    assert digest(small()[1]) == first
    assert digest(small()[1]) == first


def test_many_writers_at_once_leave_one_whole_file(cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: digest(small()[0]), range(8)))
    assert len(set(results)) == 1
    assert len(list(cache.iterdir())) == 1


@pytest.mark.skipif(os.name == "nt" or not hasattr(os, "geteuid"), reason="folder modes are POSIX")
def test_a_cache_that_cannot_be_written_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("PROTODEPTH_CACHE", str(blocked / "sub"))
    with pytest.raises(DataError, match="PROTODEPTH_CACHE"):
        small()[0]


def test_a_dataset_can_be_pickled_without_its_arrays(cache: Path) -> None:
    data = small()
    first = digest(data[0])
    packed = pickle.dumps(data)
    assert len(packed) < 5000
    assert digest(pickle.loads(packed)[0]) == first  # noqa: S301


def test_a_dataset_without_cache_keeps_nothing_on_disk_and_reports_progress(cache: Path) -> None:
    data, seen = WorldDataset("room", "val", count=2, size=(16, 24), cache=False), []
    data.prepare(lambda done, count: seen.append((done, count)))
    assert seen == [(1, 2), (2, 2)]
    assert not cache.exists()


# --- domains and errors -----------------------------------------------------------------------------------------------


def test_a_world_is_a_domain_that_batches_without_ground_truth(cache: Path) -> None:
    d = world("highway", size=(16, 24), train=3, val=1, test=2)
    assert (d.name, len(d.train), len(d.val), len(d.test)) == ("highway", 3, 1, 2)
    assert (d.rules.min_depth, d.rules.max_depth) == (0.001, 80.0)
    assert d.identity["world"] == "highway"
    batch = next(training_batches(d.train, 2, seed=0, domain=d.name))
    assert batch.image.shape == (2, 3, 16, 24)
    assert len(batch.neighbours) == len(batch.poses) == 2
    assert batch.ground_truth is None


def test_the_data_argument_names_a_world_with_options(cache: Path) -> None:
    d = datasets.get("worlds")("street_dusk?size=16x24&train=2&val=1&test=1&seed=3")
    assert d.name == "street_dusk"
    assert len(d.train) == 2
    assert d.identity["seed"] == 3
    assert d.train[0].image.shape == (16, 24, 3)


@pytest.mark.parametrize(
    ("argument", "error", "match"),
    [
        ("moon", UnknownNameError, "room"),
        ("street?colour=red", UnknownNameError, "size"),
        ("street?size=64", DataError, "HEIGHTxWIDTH"),
        ("street?train=many", DataError, "number"),
        ("street?size=8x96", DataError, "16"),
        ("street?train=0", DataError, "at least one"),
    ],
)
def test_a_bad_argument_says_what_was_expected(argument: str, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        datasets.get("worlds")(argument)


def test_bad_splits_and_seeds_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="train, val, test"):
        WorldDataset("room", "training", count=1)
    with pytest.raises(DataError, match="seed"):
        WorldDataset("room", "train", count=1, seed=-1)
    with pytest.raises(IndexError):
        WorldDataset("room", "train", count=1, cache=False)[1]


def test_the_table_of_worlds_is_complete() -> None:
    assert {*INDOOR, *OUTDOOR} < set(WORLDS)
    assert all(spec.name == name and len(fields(spec)) > 10 for name, spec in WORLDS.items())
