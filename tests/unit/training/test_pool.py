"""The pool of drawn frames: whole, drawn once, refused where it is another's or damaged."""

import errno
from pathlib import Path

import numpy as np
import pytest

from protodepth.errors import CheckpointError, ConfigError
from protodepth.training import pool


def test_the_pool_is_what_was_drawn_and_is_not_drawn_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = pool.FramePool(tmp_path, 3, (24, 32), seed=0)
    frames.draw(2)
    kept = np.array(frames.depths[1])
    monkeypatch.setattr(pool.anywhere, "draw", lambda *a: pytest.fail("drawn twice"))
    again = pool.FramePool(tmp_path, 3, (24, 32), seed=0)
    again.draw(2)
    assert again.count == 2
    assert np.array_equal(again.depths[1], kept)


def test_drawing_stops_when_it_is_told_to(tmp_path: Path) -> None:
    frames = pool.FramePool(tmp_path, 3, (24, 32), seed=0)
    frames.draw(3, lambda: frames.count == 1)
    assert frames.count == 1


@pytest.mark.parametrize("damage", [b"", b"no array", None])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, damage: bytes | None) -> None:
    pool.FramePool(tmp_path, 3, (24, 32), seed=0)
    file = tmp_path / "depths.npy"
    if damage is None:
        np.save(file, np.zeros((3, 24, 31), np.float32))
    else:
        file.write_bytes(damage)
    with pytest.raises(CheckpointError, match="drawn again"):
        pool.FramePool(tmp_path, 3, (24, 32), seed=0)


def test_its_space_is_taken_at_once_and_a_full_disk_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr("os.posix_fallocate", full)
        with pytest.raises(OSError, match="No space"):
            pool.FramePool(tmp_path, 3, (24, 32), seed=0)
    assert [p.name for p in tmp_path.iterdir()] == ["pool.json"]
    assert pool.pool_bytes(tmp_path, 3, (24, 32)) == 3 * 24 * 32 * 7
    pool.FramePool(tmp_path, 3, (24, 32), seed=0)
    file = tmp_path / "depths.npy"
    assert file.stat().st_blocks * 512 >= file.stat().st_size
    assert pool.pool_bytes(tmp_path, 3, (24, 32)) == 0


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = pool.FramePool(tmp_path, 3, (24, 32), seed=0)
    monkeypatch.setattr(pool, "PATIENCE", 0.01)
    assert not frames.wait(1)
    frames.counter[0] = 1
    assert frames.wait(1)


def test_another_pool_is_refused_and_a_system_that_cannot_take_space_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("os.posix_fallocate")
    pool.FramePool(tmp_path, 3, (24, 32), seed=0)
    with pytest.raises(ConfigError, match="other settings"):
        pool.FramePool(tmp_path, 4, (24, 32), seed=0)


def test_who_waits_sees_frames_come_and_the_second_process_draws_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.nice", lambda by: by)
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    pool.draw_ahead(tmp_path, 2, (24, 32), 0)
    frames = pool.FramePool(tmp_path, 2, (24, 32), seed=0)
    assert frames.count == 2
    frames.counter[0] = 0
    naps: list[float] = []

    def nap(length: float) -> None:
        naps.append(length)
        frames.counter[0] = len(naps)

    monkeypatch.setattr(pool.time, "sleep", nap)
    assert frames.wait(2)
    assert len(naps) == 2
