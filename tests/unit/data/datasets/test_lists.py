"""The four lists of the official code, written from a known scene and read back."""

from pathlib import Path

import numpy as np
import pytest

from helpers.data_scene import assert_frame_is, walk
from helpers.dataset_writers import write_lists
from protodepth.data.arguments import open_domain
from protodepth.data.files import images
from protodepth.errors import DataError


def test_official_lists_with_triplets_side_by_side_give_the_scene(tmp_path: Path) -> None:
    shots = walk(4)
    domain = open_domain(f"lists:{write_lists(tmp_path, shots)}")
    assert len(domain.train) == 2
    assert_frame_is(domain.train[0], shots[1], quantum=1 / 256)
    frame = domain.train[1]
    assert [np.array_equal(n, s.image) for n, s in zip(frame.neighbours, (shots[1], shots[3]), strict=True)] == [
        True,
        True,
    ]
    assert (domain.rules.min_depth, domain.rules.max_depth) == (0.2, 5.0)


def test_unequal_lists_say_which_has_how_many_lines(tmp_path: Path) -> None:
    path = write_lists(tmp_path, walk(4))
    (tmp_path / "sparse_depth.txt").write_text("data/old_place/sparse/1.png\n")
    with pytest.raises(DataError, match=r"unequal.*image\.txt has 2 lines.*sparse_depth\.txt has 1 lines"):
        open_domain(f"lists:{path}")


def test_single_images_in_lists_are_told_from_triplets_by_their_width(tmp_path: Path) -> None:
    shots = walk(4)
    path = write_lists(tmp_path, shots)
    for i in (1, 2):
        images.write_image(tmp_path / f"triplet/{i}.png", shots[i].image)
    frame = open_domain(f"lists:{path}").train[0]
    assert frame.neighbours == ()
    assert_frame_is(frame, shots[1], quantum=1 / 256)
