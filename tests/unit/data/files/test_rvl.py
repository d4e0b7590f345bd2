"""RVL: packed by a plain loop after the paper, and unpacked."""

import numpy as np
import pytest

from helpers.rvl import pack
from protodepth.data.files.rvl import unpack
from protodepth.errors import DamagedFileError


@pytest.mark.parametrize("seed", range(4))
def test_a_packed_map_is_unpacked_to_the_same_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.where(rng.random(501) < 0.3 * seed, 0, rng.integers(0, [2000, 65536][seed % 2], 501))
    values[: 100 * seed] = 0
    assert np.array_equal(unpack(pack(values), 501, "a map"), values)


def test_a_map_without_a_value_and_one_without_a_hole() -> None:
    assert not unpack(pack(np.zeros(40, int)), 40, "a map").any()
    assert np.array_equal(unpack(pack(np.arange(1, 41)), 40, "a map"), np.arange(1, 41))


def test_what_is_cut_off_or_damaged_is_said() -> None:
    data = pack(np.arange(1, 400))
    with pytest.raises(DamagedFileError, match="a map"):
        unpack(data[: len(data) // 2], 399, "a map")
    with pytest.raises(DamagedFileError, match="a map"):
        unpack(b"", 399, "a map")
    with pytest.raises(DamagedFileError, match="a map"):
        unpack(b"\xff" * 64, 399, "a map")
    with pytest.raises(DamagedFileError, match="a map"):
        unpack(bytes(64), 399, "a map")
