"""VOID, written from a known scene and read back."""

from pathlib import Path

import numpy as np
import pytest

from helpers.data_scene import assert_frame_is, walk
from helpers.dataset_writers import names, write_void
from protodepth.data.arguments import open_domain
from protodepth.errors import DataError, UnknownNameError


def test_void_gives_triplets_ten_frames_apart_without_the_ends(tmp_path: Path) -> None:
    shots = walk(7, size=(24, 32))
    write_void(tmp_path, shots)
    domain = open_domain(f"void:{tmp_path}", density=500, val_share=0.0)
    assert [n.split("/")[1] for n in names(domain, "train")] == ["1550030.0030", "1550031.0031"]
    frame = domain.train[0]
    assert_frame_is(frame, shots[30 % 7], quantum=1 / 256)
    assert [np.array_equal(a, shots[j % 7].image) for a, j in zip(frame.neighbours, (20, 40), strict=True)] == [
        True,
        True,
    ]
    assert len(domain.test) == 3


def test_void_holds_out_whole_sequences_for_validation(tmp_path: Path) -> None:
    write_void(tmp_path, walk(3, size=(24, 32)))
    domain = open_domain(f"void:{tmp_path}?density=500&val_share=1.0")
    assert (len(domain.train), len(domain.val)) == (0, 72)


def test_options_are_checked_by_name_and_kind(tmp_path: Path) -> None:
    write_void(tmp_path, walk(3, size=(24, 32)))
    with pytest.raises(UnknownNameError, match="density, val_share"):
        open_domain(f"void:{tmp_path}", densty=500)
    with pytest.raises(DataError, match="'density'"):
        open_domain(f"void:{tmp_path}?density=many")
    with pytest.raises(UnknownNameError, match="150, 500, 1500"):
        open_domain(f"void:{tmp_path}?density=3")
