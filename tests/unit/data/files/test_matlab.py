"""MATLAB arrays against scipy's reader, and bytes that would end a process."""

import io
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from helpers.mutants import mutants
from protodepth.data.files import matlab
from protodepth.errors import DataError


def written(compressed: bool = False, **arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    savemat(out, arrays, do_compression=compressed)
    return out.getvalue()


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_of_every_number_type_are_those_that_were_written(tmp_path: Path, compressed: bool) -> None:
    kinds = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
    arrays = {f"a{n}": (np.arange(6).reshape(2, 3) * 20).astype(kind) for n, kind in enumerate(kinds)}
    arrays["x"] = np.array([[7]], np.uint8)  # a small element
    (tmp_path / "a.mat").write_bytes(written(compressed, **arrays))
    found = matlab.read_arrays(tmp_path / "a.mat")
    assert found.keys() == arrays.keys()
    assert all(np.array_equal(found[name], arrays[name]) for name in arrays)


def attack(path: Path, count: int, seed: int) -> int:
    """How many damaged copies were read to the end; any error but a DataError ends the test."""
    rows = {
        "trainNdxs": np.arange(1, 20, dtype=np.uint16)[:, None],
        "testNdxs": np.arange(20, 33, dtype=np.uint16)[:, None],
    }
    read, said = 0, []
    for bad in (bad for packed in (False, True) for bad in mutants(written(packed, **rows), count // 2, seed)):
        path.write_bytes(bad)
        try:
            matlab.read_arrays(path)
            read += 1
        except DataError as error:
            said.append(str(error))
    assert all(str(path) in text and "\n" not in text for text in said)
    return read


def test_damaged_files_are_one_error(tmp_path: Path) -> None:
    assert 20 < attack(tmp_path / "a.mat", 1000, 0) < 900


@pytest.mark.slow
def test_ten_thousand_damaged_files_are_one_error(tmp_path: Path) -> None:
    print(attack(tmp_path / "a.mat", 10_000, 1), "of 10000 were read to the end")


def test_a_length_that_the_file_does_not_have_takes_no_memory(tmp_path: Path) -> None:
    head = written(a=np.arange(3.0))[:128]
    (tmp_path / "a.mat").write_bytes(head + (14).to_bytes(4, "little") + b"\xff\xff\xff\x7f" + bytes(100))
    with pytest.raises(DataError, match="where 100 are left"):
        matlab.read_arrays(tmp_path / "a.mat")
