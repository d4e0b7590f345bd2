"""LZFSE, Apple's compression: what a stream says of its size is checked before a library unpacks it.

A stream is a row of blocks, each with its number of bytes when unpacked, and an end mark.  That number binds nobody:
a block of matches gives what its matches say, up to 2359 bytes each, so that a few kilobytes may become gigabytes.
Matches are therefore counted, too: an honest one stands for at least four bytes.
"""

import struct

from protodepth.errors import DamagedFileError, DataError
from protodepth.storage.space import check_memory

_END, _STORED, _SMALL, _COMMON = b"bvx$", b"bvx-", b"bvxn", b"bvx2"  # magic numbers of blocks
_LONGEST, _SHORTEST, _SPARE = 2359, 4, 64  # bytes of a match; matches of which a block makes no use
_COUNT = 0xFFFFF  # counts have 20 bits


def unpacked_size(data: bytes, where: str) -> int:
    """How many bytes a stream says that it becomes, from the heads of its blocks alone."""
    return _heads(data, where)[0]


def unpack(data: bytes, size: int, where: str) -> bytes:
    """The ``size`` bytes that a stream becomes; one that says or can give more is refused.

    A single stored block needs no library.
    """
    promised, matches, most = _heads(data, where)
    if promised != size:
        raise DataError(f"{where} says that it unpacks to {promised} bytes, expected {size}")
    if matches > size // _SHORTEST + _SPARE:
        raise DamagedFileError(f"{where} says that {matches} matches make {size} bytes: damaged, copy it again")
    if data[:4] == _STORED and len(data) == size + 12:
        return data[8:-4]
    check_memory(most, f"{where}: unpacking it", "copy it again")
    try:
        import liblzfse
    except ImportError:
        raise DataError(
            f"{where} is packed with LZFSE: pip install pyliblzfse (it needs a C compiler), "
            "or export 'EXR + JPG' instead"
        ) from None
    try:
        return liblzfse.decompress(data)
    except liblzfse.error:
        raise DamagedFileError(_damaged(where)) from None


def _heads(data: bytes, where: str) -> tuple[int, int, int]:
    """(bytes that the blocks say, their matches, bytes that they can give at most)."""
    promised = matches = most = at = 0
    try:
        while data[at : at + 4] != _END:
            block, own, step = _head(data, at)
            promised, matches, most, at = promised + block, matches + own, most + block + own * _LONGEST, at + step
    except (struct.error, ValueError):
        raise DamagedFileError(_damaged(where)) from None
    return promised, matches, most


def _head(data: bytes, at: int) -> tuple[int, int, int]:
    """(bytes that a block says, its matches, its own length)."""
    magic, (size,) = data[at : at + 4], struct.unpack_from("<I", data, at + 4)
    if magic == _STORED:
        return size, 0, 8 + size
    if magic == _SMALL:  # its decoder keeps to the size
        return size, 0, 12 + int(struct.unpack_from("<I", data, at + 8)[0])
    if magic == _COMMON:
        first, second, third = struct.unpack_from("<QQQ", data, at + 8)
        head = third & 0xFFFFFFFF
        if head >= 32:
            return size, first >> 40 & _COUNT, head + (first >> 20 & _COUNT) + (second >> 40 & _COUNT)
    raise ValueError


def _damaged(where: str) -> str:
    return f"{where} is not an LZFSE stream: truncated or damaged, copy it again"
