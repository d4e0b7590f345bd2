"""RVL (Wilson 2017), packing: a plain loop over values and groups of four bits."""

import numpy as np


def pack(values: np.ndarray) -> bytes:
    numbers: list[int] = []
    place, last, stored = 0, 0, [int(v) for v in values]
    while place < len(stored):
        start = place
        while place < len(stored) and stored[place] == 0:
            place += 1
        middle = place
        while place < len(stored) and stored[place] != 0:
            place += 1
        numbers += [middle - start, place - middle]
        for value in stored[middle:place]:
            numbers.append(2 * (value - last) if value >= last else -2 * (value - last) - 1)
            last = value
    groups: list[int] = []
    for number in numbers:
        while number > 7:
            groups.append(8 | number & 7)
            number >>= 3
        groups.append(number)
    groups += [0] * (-len(groups) % 8)
    words = [int("".join(f"{g:x}" for g in groups[i : i + 8]), 16) for i in range(0, len(groups), 8)]
    return np.array(words, "<u4").tobytes()
