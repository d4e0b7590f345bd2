"""Matroska files written element by element, as Azure Kinect's recorder lays them out."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HEAD, SEGMENT, INFO, TRACKS, CLUSTER = 0x1A45DFA3, 0x18538067, 0x1549A966, 0x1654AE6B, 0x1F43B675


def element(kind: int, content: bytes, *, sized: bool = True) -> bytes:
    """Name, size (eight bytes; all ones where it is not known), content."""
    name = kind.to_bytes((kind.bit_length() + 7) // 8, "big")
    size = (len(content) | 1 << 56).to_bytes(8, "big") if sized else b"\x01" + b"\xff" * 7
    return name + size + content


def whole(kind: int, value: int) -> bytes:
    return element(kind, value.to_bytes(4, "big"))


def track(number: int, name: str, letters: bytes, width: int, height: int) -> bytes:
    private = struct.pack("<IiiHH4s", 40, width, height, 1, 16, letters) + bytes(20)
    video = element(0xE0, whole(0xB0, width) + whole(0xBA, height))
    words = element(0x536E, name.encode()) + element(0x86, b"V_MS/VFW/FOURCC") + element(0x63A2, private)
    return element(0xAE, whole(0xD7, number) + whole(0x73C5, 77 + number) + whole(0x83, 1) + words + video)


def attachment(name: str, content: bytes) -> bytes:
    return element(0x1941A469, element(0x61A7, element(0x466E, name.encode()) + element(0x465C, content)))


def block(number: int, time: int, content: bytes, *, group: bool = False) -> bytes:
    data = bytes([0x80 | number]) + struct.pack(">hB", time, 0x80) + content
    return element(0xA0, element(0xA1, data) + whole(0x9B, 33)) if group else element(0xA3, data)


def write_mkv(
    path: Path,
    tracks: Sequence[bytes],
    frames: Sequence[Sequence[tuple[int, int, bytes]]],
    calibration: dict[str, Any] | None,
    *,
    sized: bool = True,
) -> Path:
    """``frames``: for each cluster (track, microseconds after its start, content); clusters are 33 ms apart."""
    body = element(INFO, whole(0x2AD7B1, 1000)) + element(TRACKS, b"".join(tracks))
    if calibration is not None:
        body += attachment("calibration.json", json.dumps(calibration).encode() + b"\0")
    for i, blocks in enumerate(frames):
        content = whole(0xE7, i * 33_333)
        content += b"".join(block(n, t, data, group=n == 2) for n, t, data in blocks)
        body += element(CLUSTER, content, sized=sized)
    head = element(HEAD, element(0x4282, b"matroska"))
    path.write_bytes(head + element(0xEC, bytes(5)) + element(SEGMENT, body, sized=sized))
    return path
