"""Matroska (.mkv) without a library: which tracks a file has, what is attached to it, where each frame's bytes lie.

Nothing is decoded and only headers are read, so that a recording of many gigabytes is listed in seconds.  A file is a
sequence of elements: a number that names the kind, a size, content.  Kinds that hold others are walked into, all others
are stepped over by their size; what a list belongs to is what was opened last.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from protodepth.errors import DamagedFileError, DataError

_HOLD_OTHERS = {
    *(0x18538067, 0x1549A966, 0x1654AE6B, 0xE0, 0x6D80),  # segment, info, tracks, video, encodings
    *(0x1F43B675, 0xA0, 0x1941A469),  # cluster, group of blocks, attachments
}
_EBML, _SEGMENT, _CLUSTER, _TRACK, _ATTACHED = 0x1A45DFA3, 0x18538067, 0x1F43B675, 0xAE, 0x61A7
_SCALE, _CLUSTER_TIME, _SIMPLE_BLOCK, _BLOCK = 0x2AD7B1, 0xE7, 0xA3, 0xA1
_NUMBER, _NAME, _CODEC, _PRIVATE, _WIDTH, _HEIGHT, _ENCODING = 0xD7, 0x536E, 0x86, 0x63A2, 0xB0, 0xBA, 0x6240
_FILE_NAME, _FILE_DATA = 0x466E, 0x465C
MOST_ATTACHED = 64 * 2**20  # bytes of an attachment

_Data = mmap.mmap


@dataclass(slots=True)
class Track:
    """One stream of a file."""

    number: int = 0
    name: str = ""
    codec: str = ""
    private: bytes = b""
    width: int = 0
    height: int = 0
    packed: bool = False  # with an encoding of Matroska's own on top of the codec

    @property
    def kind(self) -> str:
        """The codec; for those in Windows' way its four letters.

        >>> Track(codec="V_MS/VFW/FOURCC", private=bytes(16) + b"MJPG").kind
        'MJPG'
        """
        windows = self.codec == "V_MS/VFW/FOURCC" and len(self.private) >= 20
        return self.private[16:20].decode("latin-1") if windows else self.codec


@dataclass(frozen=True, slots=True)
class StoredFrame:
    """The bytes of one frame."""

    time: int  # nanoseconds
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Matroska:
    """What a file holds."""

    tracks: tuple[Track, ...]
    attachments: dict[str, bytes]
    blocks: dict[int, list[StoredFrame]]  # by track number, in the order of the file


@dataclass(slots=True)
class _Reader:
    """What was read so far."""

    data: _Data
    path: Path
    tracks: list[Track] = field(default_factory=list)
    attachments: dict[str, bytes] = field(default_factory=dict)
    blocks: dict[int, list[StoredFrame]] = field(default_factory=dict)
    scale: int = 1_000_000  # nanoseconds of a step of time
    cluster: int = 0
    attached: str = ""

    def add(self, kind: int, start: int, end: int) -> None:
        """An element that holds no others."""
        if kind in (_SIMPLE_BLOCK, _BLOCK):
            self._add_block(start, end)
        elif kind == _SCALE:
            self.scale = self._whole(start, end)
        elif kind == _CLUSTER_TIME:
            self.cluster = self._whole(start, end)
        elif kind == _FILE_NAME:
            self.attached = self.data[start:end].decode("utf-8", "replace")
        elif kind == _FILE_DATA and end - start <= MOST_ATTACHED:
            self.attachments[self.attached] = self.data[start:end]
        elif self.tracks:
            self._describe(self.tracks[-1], kind, start, end)

    def _describe(self, track: Track, kind: int, start: int, end: int) -> None:
        if kind == _NUMBER:
            track.number = self._whole(start, end)
        elif kind == _WIDTH:
            track.width = self._whole(start, end)
        elif kind == _HEIGHT:
            track.height = self._whole(start, end)
        elif kind == _NAME:
            track.name = self.data[start:end].decode("utf-8", "replace")
        elif kind == _CODEC:
            track.codec = self.data[start:end].decode("latin-1")
        elif kind == _PRIVATE:
            track.private = self.data[start : min(end, start + 4096)]
        elif kind == _ENCODING:
            track.packed = True

    def _whole(self, start: int, end: int) -> int:
        if end - start > 8:
            raise DamagedFileError(f"{self.path} has a number of {end - start} bytes: damaged")
        return int.from_bytes(self.data[start:end], "big")

    def _add_block(self, start: int, end: int) -> None:
        """Track, two bytes of time after the cluster's, flags; then the frame."""
        number, start = _number(self.data, start)
        if start + 3 > end:
            raise DamagedFileError(f"{self.path} has a block of {end - start} bytes: damaged")
        if self.data[start + 2] & 0x06:
            return  # several small frames in one block: sound, never pictures
        time = (self.cluster + int.from_bytes(self.data[start : start + 2], "big", signed=True)) * self.scale
        self.blocks.setdefault(number, []).append(StoredFrame(time, start + 3, end - start - 3))


def _number(data: _Data, place: int, *, keep: bool = False) -> tuple[int, int]:
    """(a number of one to eight bytes, the place behind it); the first bit that is set says how many bytes.

    ``keep`` leaves that bit, as in the names of kinds.  A size of ones alone, "not known", is given as -1.
    """
    first = data[place]
    length = 9 - first.bit_length()
    if length > 8 or place + length > len(data):
        raise IndexError(place)
    value = int.from_bytes(data[place : place + length], "big")
    if keep:
        return value, place + length
    value &= (1 << 7 * length) - 1
    return (-1 if value == (1 << 7 * length) - 1 else value), place + length


def _elements(data: _Data) -> Iterator[tuple[int, int, int]]:
    """(kind, start, end) of every element, those that hold others before what they hold.

    A recording that was cut off ends with its last whole element.
    """
    place = 0
    while place < len(data):
        try:
            kind, place = _number(data, place, keep=True)
            size, place = _number(data, place)
        except IndexError:
            return
        inside = kind in _HOLD_OTHERS or kind in (_TRACK, _ATTACHED)
        if not inside and (size < 0 or place + size > len(data)):
            return
        yield kind, place, place + max(size, 0)
        place += 0 if inside else size


def read_matroska(path: Path) -> Matroska:
    """List what a Matroska file holds: its tracks, what is attached, where each frame lies."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
            if int.from_bytes(head, "big") != _EBML:
                raise DataError(f"{path} is not a Matroska file (.mkv): it begins with {head!r}")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})") from None
    with data:
        reader = _Reader(data, path)
        for kind, start, end in _elements(data):
            if kind == _TRACK:
                reader.tracks.append(Track())
            elif kind not in _HOLD_OTHERS and kind != _ATTACHED:
                reader.add(kind, start, end)
        return Matroska(tuple(reader.tracks), reader.attachments, reader.blocks)


def read_bytes(path: Path, block: StoredFrame) -> bytes:
    """The bytes of a frame."""
    with path.open("rb") as file:
        file.seek(block.offset)
        data = file.read(block.length)
    if len(data) < block.length:
        raise DamagedFileError(f"{path} ends before its frame at {block.offset}: truncated, copy it again")
    return data
