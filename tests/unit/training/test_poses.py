"""Poses are believed as far as they warp, and what warps better is used."""

import math
from dataclasses import replace

import numpy as np
import pytest

from helpers.data_scene import relative, walk
from protodepth.data.frame import Frame
from protodepth.training.poses import Posed, PoseReport, Unmoved, examine

SHOTS = walk(7, size=(72, 96), step=0.06)


def frames(poses: str) -> list[Frame]:
    made = []
    for n in range(1, len(SHOTS) - 1):
        here, around = SHOTS[n], (SHOTS[n - 1], SHOTS[n + 1])
        points = here.depth * (np.random.default_rng(n).random(here.depth.shape) < 0.1)
        true = tuple(relative(here, other) for other in around)
        given = {"true": true, "none": (), "swapped": true[::-1]}[poses]
        images = tuple(other.image for other in around)
        made.append(Frame(image=here.image, sparse_depth=points, intrinsics=here.K, neighbours=images, poses=given))
    return made


def test_good_poses_are_believed_and_used_as_they_are():
    report = examine(frames("true"))
    assert report.given < 0.3 * report.still
    assert report.trust == 1.0
    assert not report.use_estimated
    assert "poses as given: the photometric term counts 1.00 of its weight" in str(report)


@pytest.mark.parametrize("poses", ["none", "swapped"])
def test_missing_and_wrong_poses_are_estimated_from_the_sparse_depth(poses: str):
    data = frames(poses)
    report = examine(data)
    assert report.use_estimated
    assert report.trust == 1.0
    assert ("no poses are given" in str(report)) is (poses == "none")
    posed = Posed(data)
    found, true = posed[2].poses, frames("true")[2].poses
    for a, b in zip(found, true, strict=True):
        assert np.abs(a[:3, 3] - b[:3, 3]).max() < 0.02
    assert posed[2].poses is found  # estimated once
    assert len(posed) == len(data)


def test_where_nothing_warps_there_is_no_photometric_term():
    rng = np.random.default_rng(0)
    noise = [
        replace(f, neighbours=tuple(rng.integers(0, 255, f.image.shape, np.uint8) for _ in f.neighbours))
        for f in frames("true")
    ]
    report = examine(noise)
    assert report.trust == 0.0
    assert "they do not warp: no photometric term" in str(report)
    assert examine([replace(f, neighbours=(), poses=()) for f in noise]).trust == 0.0


@pytest.mark.parametrize(
    ("given", "estimated", "use"), [(4.0, 3.9, False), (4.0, 3.7, True), (math.nan, 9.0, True), (4.0, math.inf, False)]
)
def test_estimates_must_be_clearly_better_than_what_is_given(given: float, estimated: float, use: bool):
    assert PoseReport(20.0, given, estimated).use_estimated is use


def test_frames_without_trust_lose_their_neighbours():
    data = frames("true")
    assert Unmoved(data)[1].neighbours == Unmoved(data)[1].poses == ()
    assert np.array_equal(Unmoved(data)[1].image, data[1].image)
    assert len(Unmoved(data)) == len(data)
