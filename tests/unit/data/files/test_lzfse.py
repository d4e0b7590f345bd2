"""LZFSE streams: what their heads say is believed only as far as it can be held against them."""

import struct

import pytest

from protodepth.data.files import lzfse
from protodepth.errors import ConfigError, DamagedFileError, DataError
from protodepth.storage import space


def stored(data: bytes) -> bytes:
    return b"bvx-" + struct.pack("<I", len(data)) + data


def block(size: int, matches: int, payload: int = 9) -> bytes:
    """A common block of which only the head is right."""
    return struct.pack("<4sIQQQ", b"bvx2", size, matches << 40 | payload << 20, 0, 32) + bytes(payload)


def test_stored_bytes_need_no_library() -> None:
    assert lzfse.unpack(stored(b"depth") + b"bvx$", 5, "a") == b"depth"


def test_the_heads_of_all_blocks_say_the_size() -> None:
    small = struct.pack("<4sII", b"bvxn", 300, 7) + bytes(7)
    assert lzfse.unpacked_size(stored(b"depth") + small + block(1000, 20) + b"bvx$", "a") == 1305


@pytest.mark.parametrize(
    "data", [b"", b"bvx", b"bvx1" + bytes(800), stored(b"depth"), block(9, 9)[:20], b"bvx2" + bytes(40)]
)
def test_what_has_no_end_or_no_known_block_is_no_stream(data: bytes) -> None:
    with pytest.raises(DamagedFileError, match="a is not an LZFSE stream"):
        lzfse.unpack(data, 9, "a")


def test_a_stream_of_another_size_is_refused_before_it_is_unpacked() -> None:
    with pytest.raises(DataError, match="a says that it unpacks to 4000000000 bytes, expected 196608"):
        lzfse.unpack(block(4_000_000_000, 9) + b"bvx$", 196_608, "a")


def test_a_block_that_says_less_than_its_matches_give_is_refused() -> None:
    honest, false = block(196_608, 49_000), block(196_608, 400_000)
    assert lzfse.unpacked_size(honest + b"bvx$", "a") == lzfse.unpacked_size(false + b"bvx$", "a")
    with pytest.raises(DamagedFileError, match="a says that 400000 matches make 196608 bytes"):
        lzfse.unpack(false + b"bvx$", 196_608, "a")


def test_what_a_stream_can_give_is_held_against_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "free_memory", lambda: 1e8)
    with pytest.raises(ConfigError, match=r"a: unpacking it needs about 116 MB of memory, and 100 MB are free"):
        lzfse.unpack(block(196_608, 49_000) + b"bvx$", 196_608, "a")


def test_packed_and_unpacked_again() -> None:
    library = pytest.importorskip("liblzfse")
    for data in (bytes(196_608), bytes(range(256)) * 700, b"abc" * 5, b""):
        packed = library.compress(data)
        assert lzfse.unpacked_size(packed, "a") == len(data)
        assert lzfse.unpack(packed, len(data), "a") == data
    bomb = bytearray(library.compress(bytes(20_000_000)))
    struct.pack_into("<I", bomb, 4, 5)  # one block that says five bytes and gives 20 MB
    with pytest.raises(DamagedFileError, match="matches make 5 bytes"):
        lzfse.unpack(bytes(bomb), 5, "a")
