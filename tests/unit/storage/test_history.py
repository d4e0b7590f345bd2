"""How a domain came to be: one record for all writers, one reader, and files of any version."""

from pathlib import Path

import pytest

from protodepth.model import ProtoDepth
from protodepth.storage import files
from protodepth.storage.card import card
from protodepth.storage.folders import BUNDLED
from protodepth.storage.history import History
from protodepth.training.domains import facts

ADAPTED = {
    "source": "walk",
    "when": "2031-05-04T10:00:00+00:00",
    "data": {"dataset": "recording", "stride": 2},
    "frames": 15,
    "steps": 300,
    "kept_step": 250,
    "seconds": 12.5,
    "held_out_error_mm": {"before": 90.0, "after": 40.0},
    "protodepth": "0.1.0",
    "torch": "2.13.0",
    "python": "3.11.7",
    "machine": "x86_64, 1 threads",
    "bad_frames": {},
}
OFFICIAL = {"origin": "official prototypes", "file": "tokens.pth", "stored_as": "void"}
DESCRIBED = {"source": "hall", "when": "2031", "described": {"source": "hall", "data": {"unit": "mm"}, "when": "2031"}}
LATER = {"source": "walk", "seed": 7, "mood": {"calm": True}, "frames": "many", "torch": 3}  # names and kinds of others


@pytest.mark.parametrize("stored", [ADAPTED, OFFICIAL, DESCRIBED, LATER, {}])
def test_what_a_file_says_is_written_again_as_it_was(stored: dict) -> None:
    assert History.from_json(stored).to_json() == stored


@pytest.mark.parametrize("meta", sorted(BUNDLED.glob("*/domains/*/meta.json")), ids=lambda p: p.parts[-4])
def test_the_bundled_domains_were_written_by_an_older_version_and_are_read_whole(meta: Path) -> None:
    stored = files.read_json(meta)["history"]
    found = History.from_json(stored)
    assert found.more == {}
    assert found.recipe == stored["recipe"]
    assert found.versions["torch"] == stored["torch"]
    assert found.to_json() == stored


def test_entries_of_another_kind_are_kept_but_not_read() -> None:
    found = History.from_json(LATER)
    assert (found.source, found.frames, found.versions) == ("walk", None, None)
    assert found.more == {name: LATER[name] for name in ("seed", "mood", "frames", "torch")}


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        (ADAPTED, "walk"),
        (OFFICIAL, "official prototypes: tokens.pth: void"),
        (
            {"recipe": {"data": "worlds:room?train=9"}, "data": {"source": "worlds", "world": "room"}},
            "worlds:room?train=9",
        ),
        ({"data": {"dataset": "kitti"}}, "kitti"),
        ({"data": {"source": "worlds", "world": "street"}}, "worlds: street"),
    ],
)
def test_the_list_and_the_card_say_the_same_of_where_a_domain_is_from(
    model: ProtoDepth, stored: dict, text: str
) -> None:
    model.history["night"] = History.from_json(stored)
    assert facts(model, "night").source == text
    row = next(line for line in card(model, {}).splitlines() if line.startswith("| night |"))
    assert row.split(" | ")[2].partition(", ")[0] == text
