"""Plain number arrays of MATLAB files (version 5), read with bounds on every length.

Only what ``splits.mat`` needs: real arrays, compressed or not.  The usual reader follows lengths of the file into
memory it does not own; this one refuses them.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from protodepth.errors import DataError

NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MATRIX, COMPRESSED = 14, 15
MOST = 64 * 2**20  # bytes that a compressed array may unpack to


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The number arrays of a file by name."""
    try:
        data = path.read_bytes()
        order = {b"IM": "<", b"MI": ">"}[data[126:128]]
        return dict(_array(body, order) for kind, body in _elements(data[128:], order) if kind == MATRIX)
    except FileNotFoundError:
        raise
    except (OSError, KeyError, ValueError, struct.error, zlib.error) as error:
        raise DataError(f"{path} is not a readable MATLAB file of version 5 ({error}): download it again") from None


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """(kind, content) one after the other; compressed ones are unpacked."""
    while len(data) >= 8:
        kind, size = struct.unpack(f"{order}II", data[:8])
        if kind > 0xFFFF:  # a small element: kind, size and content in eight bytes
            kind, size, start, end = kind & 0xFFFF, kind >> 16, 4, 8
        else:
            start, end = 8, 8 + size + (-size % 8 if kind != COMPRESSED else 0)
        if start + size > len(data):
            raise ValueError(f"an element of {size} bytes where {len(data) - start} are left")
        body, data = data[start : start + size], data[end:]
        if kind == COMPRESSED:
            unpacker = zlib.decompressobj()
            whole = unpacker.decompress(body, MOST)
            if unpacker.unconsumed_tail:
                raise ValueError(f"an array of more than {MOST} bytes")
            yield from _elements(whole, order)
        else:
            yield kind, body


def _array(data: bytes, order: str) -> tuple[str, np.ndarray]:
    parts = list(_elements(data, order))
    if len(parts) < 4:
        raise ValueError(f"an array of {len(parts)} parts, expected flags, size, name and numbers")
    (_, _), (_, size), (_, name), (kind, numbers) = parts[:4]
    shape = np.frombuffer(size, f"{order}i4").tolist()
    values = np.frombuffer(numbers, order + NUMBERS[kind])
    if not np.isfinite(values.astype(np.float64)).all():
        raise ValueError("numbers that are not finite")
    return name.decode("ascii"), values.reshape(shape, order="F")
