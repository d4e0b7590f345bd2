"""Upload and download with a stand-in for the hub."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from protodepth.errors import ConfigError, ProtoDepthError
from protodepth.model import ProtoDepth
from protodepth.storage import hub
from protodepth.types import Batch


class Refused(OSError):
    pass


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A hub that is a folder."""
    import shutil

    shelf = SimpleNamespace(made=[], errors=SimpleNamespace(HfHubHTTPError=Refused, HFValidationError=ValueError))

    def upload_folder(repo_id: str, folder_path: str, commit_message: str) -> None:
        shutil.copytree(folder_path, tmp_path / repo_id)

    def snapshot_download(repo_id: str, revision: str | None, allow_patterns: list[str]) -> str:
        if not (tmp_path / repo_id).exists():
            raise Refused("404 Client Error\nmore lines")
        return str(tmp_path / repo_id)

    shelf.create_repo = lambda name, private, exist_ok: shelf.made.append((name, private))
    shelf.upload_folder, shelf.snapshot_download = upload_folder, snapshot_download
    monkeypatch.setattr(hub, "_library", lambda: shelf)
    return shelf


def test_what_was_uploaded_comes_back_with_the_same_predictions(model: ProtoDepth, batch: Batch, shelf):
    assert hub.push_to_hub(model, "me/depth") == "https://huggingface.co/me/depth"
    assert shelf.made == [("me/depth", True)]  # private unless told
    back = hub.from_hub("me/depth")
    assert back.domains == model.domains
    assert torch.equal(back.predict_batch(batch).depth, model.predict_batch(batch).depth)


def test_a_cache_of_links_is_read(model: ProtoDepth, shelf, tmp_path: Path):
    """The hub's library keeps files apart and makes a folder of links to them."""
    hub.push_to_hub(model, "me/depth")
    for number, file in enumerate(p for p in (tmp_path / "me" / "depth").rglob("*") if p.is_file()):
        file.rename(tmp_path / f"blob{number}")
        file.symlink_to(tmp_path / f"blob{number}")
    assert hub.from_hub("me/depth").domains == model.domains


def test_a_missing_repository_and_a_missing_library_are_one_line(shelf, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ProtoDepthError, match=r"^cannot download 'me/none': 404 Client Error$"):
        hub.from_hub("me/none")
    monkeypatch.undo()
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"pip install 'protodepth\[hub\]'"):
        hub.from_hub("me/none")
