"""Matroska: written from its specification, and a file of FFmpeg's."""

import contextlib
from pathlib import Path

import numpy as np
import pytest

from helpers.mkv import track, write_mkv
from protodepth.data.files.matroska import read_bytes, read_matroska
from protodepth.errors import DataError

TRACKS = [track(1, "COLOR", b"MJPG", 8, 6), track(2, "DEPTH", b"b16g", 4, 2)]
FRAMES = [[(1, 0, b"first"), (2, 40, b"depth one")], [(1, -20, b"second")]]


@pytest.mark.parametrize("sized", [True, False])
def test_tracks_attachments_and_frames_are_where_they_were_written(tmp_path: Path, sized: bool) -> None:
    """Also where a recorder left the sizes of its clusters open."""
    path = write_mkv(tmp_path / "a.mkv", TRACKS, FRAMES, {"a": 1}, sized=sized)
    file = read_matroska(path)
    assert [(t.number, t.name, t.kind, t.width, t.height) for t in file.tracks] == [
        (1, "COLOR", "MJPG", 8, 6),
        (2, "DEPTH", "b16g", 4, 2),
    ]
    assert file.attachments == {"calibration.json": b'{"a": 1}\0'}
    assert [read_bytes(path, b) for b in file.blocks[1]] == [b"first", b"second"]
    assert [read_bytes(path, b) for b in file.blocks[2]] == [b"depth one"]
    assert [b.time for n in (1, 2) for b in file.blocks[n]] == [0, 33_313_000, 40_000]


def test_a_recording_that_was_cut_off_keeps_its_whole_frames(tmp_path: Path) -> None:
    path = write_mkv(tmp_path / "a.mkv", TRACKS, FRAMES, {"a": 1}, sized=False)
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert [read_bytes(path, b) for b in read_matroska(path).blocks[1]] == [b"first"]


def test_every_beginning_of_a_file_is_read_or_refused_in_a_sentence(tmp_path: Path) -> None:
    path = write_mkv(tmp_path / "a.mkv", TRACKS, FRAMES, {"a": 1})
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with contextlib.suppress(DataError):  # any other error ends the test
            read_matroska(path)


def test_another_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    path.write_bytes(b"\x00\x00\x00\x20ftypmp42")
    with pytest.raises(DataError, match="is not a Matroska file"):
        read_matroska(path)


def test_a_file_that_ffmpeg_wrote_is_read() -> None:
    """``ffmpeg.mkv``: six grey pictures (MJPEG), six maps of random 16-bit numbers, one attachment."""
    path = Path(__file__).with_name("ffmpeg.mkv")
    file = read_matroska(path)
    assert [(t.name, t.codec, t.width, t.height) for t in file.tracks] == [
        ("COLOR", "V_MJPEG", 32, 24),
        ("DEPTH", "V_MS/VFW/FOURCC", 16, 12),
    ]
    assert file.attachments == {"calibration.json": b'{"a": [1, 2]}'}
    assert [b.time // 10**6 for b in file.blocks[2]] == [0, 33, 67, 100, 133, 167]
    rng = np.random.default_rng(0)
    for picture, depth in zip(file.blocks[1], file.blocks[2], strict=True):
        assert read_bytes(path, picture)[:2] == b"\xff\xd8"
        assert np.array_equal(np.frombuffer(read_bytes(path, depth), ">u2"), rng.integers(0, 5000, 192))
