"""Replacing a folder: what is ours goes, what is not stays."""

import json
import shutil
from pathlib import Path

import pytest

from conftest import shake
from helpers.descriptions import as_version_1, edit
from protodepth.errors import CheckpointError
from protodepth.model import ProtoDepth
from protodepth.storage import folders, replace


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_files_of_others_in_a_model_folder_survive_saving(model: ProtoDepth, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "m")
    theirs = (
        "notes.txt",
        "config.yaml",
        "domains/list.txt",
        "domains/night/log.txt",
        "photos/a/b.jpg",
        "domains/old/meta.json",
    )
    for name in theirs:
        (tmp_path / "m" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "m" / name).write_text(f"mine: {name}")
    (tmp_path / "m" / "empty").mkdir()
    (tmp_path / "m" / "link").symlink_to("notes.txt")
    model.delete_domain("night")
    model.save_pretrained(tmp_path / "m")
    assert ProtoDepth.from_pretrained(tmp_path / "m").domains == ("room", "warehouse")
    assert all((tmp_path / "m" / name).read_text() == f"mine: {name}" for name in theirs)
    assert not (tmp_path / "m/domains/night/weights.safetensors").exists()
    assert (tmp_path / "m" / "empty").is_dir()
    assert (tmp_path / "m" / "link").readlink() == Path("notes.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_folder_that_only_looks_like_a_model_is_refused(model: ProtoDepth, tmp_path: Path) -> None:
    """config.json and domains/ are common names."""
    for text in ("{}", '{"kind": "site"}', "[1]", "{", '{"kind": "domain"}', "[" * 100_000):
        target = tmp_path / "site"
        (target / "domains" / "org").mkdir(parents=True, exist_ok=True)
        (target / "config.json").write_text(text)
        (target / "domains" / "org" / "zone").write_text("@ IN SOA")
        before = tree(target)
        with pytest.raises(CheckpointError, match="nothing was overwritten"):
            model.save_pretrained(target)
        assert tree(target) == before


def test_a_domain_is_not_written_over_a_model_nor_a_model_over_a_domain(model: ProtoDepth, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "m")
    model.save_domain("night", tmp_path / "d")
    before = tree(tmp_path)
    with pytest.raises(CheckpointError, match="nothing was overwritten"):
        model.save_domain("night", tmp_path / "m")
    with pytest.raises(CheckpointError, match="nothing was overwritten"):
        model.save_pretrained(tmp_path / "d")
    assert tree(tmp_path) == before


def test_a_card_that_somebody_edited_is_theirs_and_one_that_is_as_written_is_renewed(
    model: ProtoDepth, tmp_path: Path
) -> None:
    model.save_pretrained(tmp_path / "m")
    model.delete_domain("night")
    model.save_pretrained(tmp_path / "m")
    card = tmp_path / "m" / "README.md"
    assert "night" not in card.read_text()
    card.write_text(card.read_text() + "\nTaken in hall 3.\n")
    edited = card.read_text()
    for _ in range(2):
        model.save_pretrained(tmp_path / "m")
        assert card.read_text() == edited


def test_a_folder_without_a_checksum_of_its_card_is_replaced_as_before(model: ProtoDepth, tmp_path: Path) -> None:
    """Folders that earlier versions wrote."""
    model.save_pretrained(tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    del config["sha256"]["README.md"]
    as_version_1(tmp_path / "m" / "config.json", sha256=config["sha256"])
    model.delete_domain("night")
    model.save_pretrained(tmp_path / "m")
    assert "night" not in (tmp_path / "m" / "README.md").read_text()


def test_a_list_of_names_cannot_make_files_of_others_ours(model: ProtoDepth, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "m")
    (tmp_path / "m" / "thesis.tex").write_text("years")
    (tmp_path / "outside").mkdir()
    model.save_domain("night", tmp_path / "outside" / "d")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    config["sha256"]["thesis.tex"] = config["sha256"]["../outside"] = "0" * 64
    config["domains"] += ["../../outside/d", "linked"]
    edit(tmp_path / "m" / "config.json", **config)
    (tmp_path / "m" / "domains" / "linked").symlink_to(tmp_path / "outside" / "d")
    before = tree(tmp_path / "outside")
    model.save_pretrained(tmp_path / "m")
    assert (tmp_path / "m" / "thesis.tex").read_text() == "years"
    assert tree(tmp_path / "outside") == before


def test_what_would_meet_a_file_of_somebody_else_is_refused_and_all_stays(model: ProtoDepth, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "m")
    model.save_domain("night", tmp_path / "m" / "domains" / "copy")  # put there by hand: no model lists it
    before = tree(tmp_path)
    with pytest.raises(CheckpointError, match="not of this model"):
        replace.check_room(tmp_path / "m", "copy")
    replace.check_room(tmp_path / "m", "night")
    replace.check_room(tmp_path / "nowhere", "night")
    model.add_domain("copy")
    shake(model, "copy")
    with pytest.raises(CheckpointError, match="move it away"):
        model.save_pretrained(tmp_path / "m")
    assert tree(tmp_path) == before


def test_files_are_copied_where_links_cannot_be_made(
    model: ProtoDepth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(1, "Operation not permitted")

    model.save_pretrained(tmp_path / "m")
    (tmp_path / "m" / "notes.txt").write_text("mine")
    monkeypatch.setattr(replace.os, "link", refuse)
    model.save_pretrained(tmp_path / "m")
    assert (tmp_path / "m" / "notes.txt").read_text() == "mine"


def test_a_run_does_not_write_over_a_model_that_has_learned_more(model: ProtoDepth, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "m")
    folders.check_nothing_lost(tmp_path / "m", {"room", "warehouse", "night", "more"})
    folders.check_nothing_lost(tmp_path / "none yet", {"room"})
    with pytest.raises(CheckpointError, match="'night', which would be lost"):
        folders.check_nothing_lost(tmp_path / "m", {"room", "warehouse"})


def test_a_folder_that_was_moved_aside_comes_back_and_half_written_ones_do_not(
    model: ProtoDepth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace.recover(tmp_path / "no" / "such" / "place")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".m.00000000.tmp").mkdir()
    replace.recover(tmp_path / "m")  # only half of a new one: nothing to put back
    assert not (tmp_path / "m").exists()
    model.save_domain("night", tmp_path / "d")
    (tmp_path / "d").rename(tmp_path / ".m.11111111.old")
    waits: list[float] = []
    monkeypatch.setattr(replace, "busy", lambda target: True)  # its writer lives ...
    monkeypatch.setattr(replace.time, "sleep", waits.append)
    replace.recover(tmp_path / "m")
    assert len(waits) == 100  # ... and had two seconds
    assert (tmp_path / "m" / "meta.json").exists()


def test_a_folder_in_place_of_a_card_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "README.md").mkdir()
    assert not replace._is_our_card(tmp_path / "README.md", None)


def test_a_folder_goes_as_a_whole_and_the_rest_of_a_kill_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    replace.discard(state)  # nothing there, nothing to do
    state.mkdir()
    (state / "state.json").write_text("{}")
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
        replace.discard(state)
    assert not state.exists()
    assert len(list(tmp_path.iterdir())) == 1
    replace.discard(state)
    assert list(tmp_path.iterdir()) == []
