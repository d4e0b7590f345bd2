"""Whether a disk or the memory has room is asked of what will be written to, before anything is made."""

import shutil
from pathlib import Path

import pytest

from protodepth.errors import CheckpointError, ConfigError
from protodepth.storage import space
from protodepth.storage.space import check_space


def test_the_disk_of_a_folder_that_is_not_there_yet_is_that_of_its_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    usage = shutil.disk_usage(tmp_path)._replace(free=5_000_000)

    def ask(folder: Path) -> object:
        asked.append(folder)
        return usage

    monkeypatch.setattr(shutil, "disk_usage", ask)
    check_space(tmp_path / "a" / "b", 5_000_000, "this")
    with pytest.raises(CheckpointError, match=r"this needs about 6 MB in .*b, and 5 MB are free"):
        check_space(tmp_path / "a" / "b", 5_600_000, "this")
    assert asked == [tmp_path.resolve()] * 2
    assert not (tmp_path / "a").exists()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what a system says of its memory."""
    monkeypatch.setattr(space, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(space, "_CONTAINER", tmp_path)
    return tmp_path


def test_free_memory_is_the_smaller_of_the_machine_s_and_the_container_s(machine: Path) -> None:
    assert space.free_memory() == space.UNKNOWN
    (machine / "meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable:    4000000 kB\n")
    assert space.free_memory() == 4000000 * 1024
    (machine / "memory.max").write_text("max\n")
    (machine / "memory.current").write_text("1000\n")
    assert space.free_memory() == 4000000 * 1024
    (machine / "memory.max").write_text("3000\n")
    assert space.free_memory() == 2000
    (machine / "memory.current").write_text("5000\n")
    assert space.free_memory() == 0


def test_what_needs_more_memory_than_is_free_is_refused_with_both_numbers(machine: Path) -> None:
    (machine / "meminfo").write_text("MemAvailable: 4000000 kB\n")
    space.check_memory(4.0e9, "a frame", "take a smaller one")
    with pytest.raises(ConfigError, match=r"a frame needs about 19\.2 GB of memory, and 4\.1 GB are free: take a smal"):
        space.check_memory(19.2e9, "a frame", "take a smaller one")
