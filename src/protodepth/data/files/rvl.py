"""Depth maps packed with RVL (Wilson 2017), as ROS's compressedDepth and some depth cameras send them.

Whole numbers are stored three bits at a time, lowest first, in groups of four bits whose highest says that more follow;
eight groups fill a little-endian word from its top.  A map is a row of runs: how many zeros, how many values, then the
values as differences to the one before, folded to numbers from 0 on (0, -1, 1, -2 ...).
"""

import numpy as np

from protodepth.errors import DamagedFileError


def unpack(data: bytes, count: int, where: str) -> np.ndarray:
    """The ``count`` values of a packed map, uint16.

    >>> unpack((0x21200000).to_bytes(4, "little"), 3, "one").tolist()  # two zeros, one value, its difference 1
    [0, 0, 1]
    """
    numbers = _numbers(data)
    values = np.zeros(count, np.int64)
    place, at, last = 0, 0, 0
    while place < count:
        if at + 2 > len(numbers):
            raise DamagedFileError(f"{where} ends after {place} of {count} depth values: truncated or damaged")
        zeros, some = int(numbers[at]), int(numbers[at + 1])
        folded = numbers[at + 2 : at + 2 + some]
        place += zeros
        if place + some > count or len(folded) < some or zeros + some == 0:
            raise DamagedFileError(f"{where} is no RVL map of {count} values: truncated or damaged")
        values[place : place + some] = last + np.cumsum((folded >> 1) ^ -(folded & 1))
        last = int(values[place + some - 1]) if some else last
        place, at = place + some, at + 2 + some
    return values.astype(np.uint16)


def _numbers(data: bytes) -> np.ndarray:
    """All numbers of a stream of four-bit groups; zeros that fill the last word come out as zeros."""
    words = np.frombuffer(data[: len(data) // 4 * 4], ">u1").reshape(-1, 4)[:, ::-1]
    groups = np.stack([words >> 4, words & 15], -1).ravel().astype(np.int64)
    ends = np.flatnonzero(groups < 8)
    if not len(ends):
        return np.zeros(0, np.int64)
    groups = groups[: ends[-1] + 1]
    starts = np.concatenate([[0], ends[:-1] + 1])
    rank = np.arange(len(groups)) - np.repeat(starts, ends + 1 - starts)  # of a group in its number
    return np.add.reduceat((groups & 7) << np.minimum(3 * rank, 60), starts)
