"""Whether a disk has room is asked of the disk that will be written, before anything is made."""

import shutil
from pathlib import Path

import pytest

from protodepth.errors import CheckpointError
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
