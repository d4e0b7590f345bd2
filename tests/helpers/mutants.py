"""Damaged copies of a file, the same for the same seed: what disks, networks and people do to bytes."""

import random
from collections.abc import Iterator

# what breaks parsers of numbers, lengths and nesting
TOKENS = (
    *(b"", b"\x00", b"\xff", b"\xff\xfe", b"\xf0\x9f", b"\x7f\xff\xff\xff", b"\n", b" ", b",", b":", b"../.."),
    *(b"-", b"1e", b"1e999", b"-1", b"0", b"NaN", b"nan", b"inf", b"1_0", b"99999999999999999999"),
    *(b"null", b"[]", b"{}", b'""', b"true", b"[" * 5000, b'{"a":' * 5000),
)


def mutants(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """``count`` copies, each changed in one or a few places."""
    dice = random.Random(seed)
    for _ in range(count):
        bad = bytearray(data)
        for _ in range(dice.choice((1, 1, 1, 2, 4))):
            bad = bytearray(_change(bad, dice))
        yield bytes(bad)


def _change(data: bytearray, dice: random.Random) -> bytes:
    start = dice.randrange(len(data) + 1)
    end = min(len(data), start + dice.choice((1, 1, 2, 4, 8, 40)))
    kind = dice.randrange(7)
    if kind == 0 and start < len(data):
        return bytes(data[:start]) + bytes([data[start] ^ (1 << dice.randrange(8))]) + bytes(data[start + 1 :])
    if kind == 1:
        return bytes(data[:start])
    if kind == 2:
        return bytes(data[:start] + data[end:])
    if kind == 3:
        return bytes(data[:end] + data[start:])
    if kind == 4:
        return bytes(data[:start]) + dice.randbytes(end - start) + bytes(data[end:])
    if kind == 5:
        return bytes(data[:start]) + dice.choice(TOKENS) + bytes(data[start:])
    return bytes(data[:start]) + dice.choice(TOKENS) + bytes(data[end:])
