"""Keys, order and results of cells."""

import json

import pytest

from helpers.bench_cells import cell
from protodepth.errors import CheckpointError
from protodepth.experiments.cells import Cell, Store, digest, ordered
from protodepth.storage import files


def test_a_setting_of_a_needed_cell_changes_the_key_of_the_cell_itself():
    keys = {cell("b", needs=(cell("a", steps=n),)).key for n in (1, 2)}
    assert len(keys) == 2
    assert cell("b", needs=(cell("a", steps=1),)).key in keys


def test_the_label_is_for_reading_and_the_variant_is_not_part_of_the_key():
    plain = Cell(kind="sequence", label={"method": "protodepth", "variant": ""}, inputs={"n": 10})
    named = Cell(kind="sequence", label={"method": "protodepth", "variant": "10/5"}, inputs={"n": 10})
    assert plain.key == named.key


def test_the_hash_does_not_depend_on_the_order_of_the_settings():
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_cells_come_once_and_after_what_they_need():
    base = cell("base")
    one, two = cell("one", needs=(base,)), cell("two", needs=(base,))
    last = cell("last", needs=(two, one))
    assert [c.label["name"] for c in ordered([last, one, two])] == ["base", "two", "one", "last"]


def test_a_result_that_is_not_this_cells_is_refused(tmp_path):
    store, own = Store(tmp_path), cell("a", steps=1)
    store.write(own, {"x": 1.5})
    assert store.result(own) == {"x": 1.5}
    place = store.place(own) / "result.json"
    changed = json.loads(place.read_text())
    changed["identity"]["settings"]["steps"] = 2
    files.write_sealed(place, {k: v for k, v in changed.items() if k != "sealed"})
    with pytest.raises(CheckpointError, match="other settings"):
        store.result(own)


def test_an_edited_result_and_an_edited_file_beside_it_are_said(tmp_path):
    store, own = Store(tmp_path), cell("a", steps=1)
    files.write_bytes(store.place(own) / "model" / "samples.npz", b"numbers")
    store.write(own, {"x": 1.5})
    assert store.file(own, "model/samples.npz").read_bytes() == b"numbers"
    (store.place(own) / "model" / "samples.npz").write_bytes(b"others")
    with pytest.raises(CheckpointError, match="edited or is damaged"):
        store.file(own, "model/samples.npz")
    place = store.place(own) / "result.json"
    good = place.read_text()
    place.write_text(good.replace("1.5", "1.4"))
    with pytest.raises(CheckpointError, match="edited or is damaged"):
        store.result(own)
    stripped = {k: v for k, v in json.loads(good).items() if k not in ("sealed", "format_version")}
    place.write_text(json.dumps(stripped))  # somebody took the seal off, too
    with pytest.raises(CheckpointError, match="edited or is damaged"):
        store.result(own)


def test_a_result_of_an_earlier_version_is_taken_with_a_word(tmp_path, caplog):
    store, own = Store(tmp_path), cell("a", steps=1)
    files.write_json(store.place(own) / "result.json", {"identity": own.identity(), "label": {}, "result": {"x": 1.5}})
    assert store.result(own) == {"x": 1.5}
    assert "has no checksum" in caplog.text
    assert store.file(own, "samples.npz") == store.place(own) / "samples.npz"
