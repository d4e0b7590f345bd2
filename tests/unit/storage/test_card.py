"""The card of a saved model."""

from pathlib import Path

import pytest
import torch

from protodepth.errors import CheckpointError
from protodepth.model import ProtoDepth
from protodepth.storage import card as cards
from protodepth.storage.history import History
from protodepth.types import Batch


def test_a_saved_folder_has_a_card_and_loads_and_can_be_saved_over(model: ProtoDepth, batch: Batch, tmp_path: Path):
    model.history["night"] = History(data={"source": "worlds", "world": "corridor_night"})
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
    model.history["night"] = History(source="my_recording", data={"unit": "mm"}, frames=15, held_out_error_mm=found)
    card = cards.card(model, {"recipe": {"name": "tiny", "seed": 0, "objective": {"color": 0.15}}})
    assert "| my_recording, 15 frames | error at hidden sparse points 912.0 -> 346.7 mm |" in card
    assert "- recipe: name tiny, seed 0\n" in card


def test_a_folder_that_holds_only_a_readme_is_not_taken_for_a_model(model: ProtoDepth, tmp_path: Path):
    (tmp_path / "README.md").write_text("my project")
    with pytest.raises(CheckpointError, match=r"README\.md"):
        model.save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "my project"
