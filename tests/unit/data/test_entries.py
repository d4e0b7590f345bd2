"""Entries of a dataset are plain, and held-out points are drawn by seed and frame."""

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.data_scene import walk
from helpers.dataset_writers import write_void
from protodepth.data.arguments import open_domain
from protodepth.data.entries import DepthContainer, withhold
from protodepth.errors import DataError


def test_json_entries_are_plain(tmp_path: Path) -> None:
    write_void(tmp_path, walk(3, size=(24, 32)))
    entry = open_domain(f"void:{tmp_path}", density=500).test.table[0]  # type: ignore[attr-defined]
    assert json.loads(json.dumps(entry)) == entry


def test_the_draw_of_withheld_points_depends_on_seed_and_frame() -> None:
    depth = np.ones((20, 20), np.float32)
    assert np.array_equal(withhold(depth, 0.3, seed=1, name="a")[1], withhold(depth, 0.3, seed=1, name="a")[1])
    assert not np.array_equal(withhold(depth, 0.3, seed=1, name="a")[1], withhold(depth, 0.3, seed=1, name="b")[1])
    assert not np.array_equal(withhold(depth, 0.3, seed=1, name="a")[1], withhold(depth, 0.3, seed=2, name="a")[1])


def test_a_container_of_depth_has_no_pictures() -> None:
    for read in (DepthContainer().image, DepthContainer().image_bytes):
        with pytest.raises(DataError, match=r"sweep\.bin#front is not a picture"):
            read(Path("sweep.bin"), "front")
