"""Windows on thin things, and errors by distance."""

import numpy as np

from protodepth.experiments import (
    thin_things,
)


def street() -> np.ndarray:
    depth = np.full((64, 96), 30.0)
    depth[10:60, 20:22] = 6.0  # a pole
    depth[30:50, 60:90] = 5.0  # a lorry: not thin
    depth[5:9, 80:82] = 28.5  # hardly in front of its background
    return depth


def test_the_window_is_on_the_pole_and_not_on_the_lorry():
    things = thin_things.thin_things(street())
    assert things
    (top, bottom), (left, right) = things[0].rows, things[0].columns
    assert top <= 10
    assert bottom >= 60
    assert left <= 20 < 22 <= right
    assert all(t.columns[1] <= 60 or t.score < things[0].score for t in things)
    assert len(things) == 1


def test_a_thing_before_the_sky_counts_and_an_empty_frame_has_none():
    depth = street()
    depth[:25] = np.where(depth[:25] > 20, 0, depth[:25])
    assert thin_things.thin_things(depth)[0].score > thin_things.thin_things(street())[0].score
    assert thin_things.thin_things(np.zeros((20, 30))) == []


def test_windows_stay_inside_the_image():
    for place in ((slice(0, 2), slice(0, 2)), (slice(60, 64), slice(94, 96)), (slice(0, 64), slice(5, 6))):
        rows, columns = thin_things.window(place, (64, 96))
        assert 0 <= rows[0] <= place[0].start
        assert place[0].stop <= rows[1] <= 64
        assert 0 <= columns[0] <= place[1].start
        assert place[1].stop <= columns[1] <= 96


def test_errors_by_distance_are_what_a_loop_over_pixels_finds():
    rng = np.random.default_rng(0)
    sparse = np.where(rng.random((20, 30)) < 0.02, 5.0, 0.0)
    error, counts = rng.random((20, 30)), rng.random((20, 30)) < 0.7
    expected = np.zeros((len(thin_things.DISTANCES) - 1, 2))
    points = np.argwhere(sparse > 0)
    for y, x in np.argwhere(counts):
        d = np.sqrt(((points - (y, x)) ** 2).sum(1).min())
        n = next(i for i in range(len(expected)) if thin_things.DISTANCES[i] <= d < thin_things.DISTANCES[i + 1])
        expected[n] += (error[y, x], 1)
    assert np.allclose(thin_things.by_distance(error, counts, sparse), expected)
    assert len(thin_things.bin_names()) == len(expected)
