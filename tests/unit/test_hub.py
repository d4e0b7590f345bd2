"""The model card, and upload and download with the hub's library replaced by one that remembers."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from protodepth.errors import CheckpointError, ConfigError, ProtoDepthError
from protodepth.model import ProtoDepth
from protodepth.storage import card as cards
from protodepth.storage import hub
from protodepth.types import Batch


def test_a_saved_folder_has_a_card_and_loads_and_can_be_saved_over(model: ProtoDepth, batch: Batch, tmp_path: Path):
    model.history["night"] = {"data": {"source": "worlds", "world": "corridor_night"}}
    for _ in range(2):
        model.save_pretrained(tmp_path / "m", notes={"recipe": "tiny\n| `x` <b>"})
    card = (tmp_path / "m" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: protodepth\n")
    count = model.overhead().domains["night"]
    assert f"| night | {count:,} | worlds: corridor_night |" in card
    assert "| room | descriptor only" in card
    assert "- recipe: tiny / 'x' &lt;b>" in card  # text from elsewhere stays one harmless line
    again = ProtoDepth.from_pretrained(tmp_path / "m")
    assert torch.equal(again.predict_batch(batch, "night").depth, model.predict_batch(batch, "night").depth)


def test_the_card_says_what_adapt_found_and_of_a_recipe_its_plain_entries(model: ProtoDepth):
    found = {"before": 912.0, "after": 346.7}
    model.history["night"] = {
        "source": "my_recording",
        "data": {"unit": "mm"},
        "frames": 15,
        "held_out_error_mm": found,
    }
    card = cards.card(model, {"recipe": {"name": "tiny", "seed": 0, "objective": {"color": 0.15}}})
    assert "| my_recording, 15 frames | error at hidden sparse points 912.0 -> 346.7 mm |" in card
    assert "- recipe: name tiny, seed 0\n" in card


def test_a_folder_that_holds_only_a_readme_is_not_taken_for_a_model(model: ProtoDepth, tmp_path: Path):
    (tmp_path / "README.md").write_text("my project")
    with pytest.raises(CheckpointError, match=r"README\.md"):
        model.save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "my project"


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


def test_a_missing_repository_and_a_missing_library_are_one_line(shelf, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ProtoDepthError, match=r"^cannot download 'me/none': 404 Client Error$"):
        hub.from_hub("me/none")
    monkeypatch.undo()
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"pip install 'protodepth\[hub\]'"):
        hub.from_hub("me/none")
