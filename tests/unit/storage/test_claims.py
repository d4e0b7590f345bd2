"""A folder belongs to one request."""

from pathlib import Path

import pytest

from protodepth.errors import CheckpointError, DataError
from protodepth.storage import claims


def test_a_new_and_an_empty_folder_hold_nothing_and_are_left_as_they_are(tmp_path: Path) -> None:
    assert not claims.holds(tmp_path / "new", "run.json", "run")
    assert not claims.holds(tmp_path, "run.json", "run")
    assert not (tmp_path / "new").exists()
    assert list(tmp_path.iterdir()) == []


def test_the_mark_says_what_a_folder_holds_and_its_temporary_name_is_no_foreign_file(tmp_path: Path) -> None:
    (tmp_path / ".run.json.0a1b2c3d.tmp").write_text("{")
    assert not claims.holds(tmp_path, "run.json", "run")
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "model").mkdir()
    assert claims.holds(tmp_path, "run.json", "run")


def test_a_file_and_a_folder_with_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(CheckpointError, match="not empty and holds no run: give another --out"):
        claims.holds(tmp_path, "run.json", "run")
    with pytest.raises(CheckpointError, match="is a file"):
        claims.holds(tmp_path / "thesis.tex", "run.json", "run")


def test_other_settings_are_refused_and_the_first_that_differs_is_named(tmp_path: Path) -> None:
    before = {"kind": "run", "recipe": {"steps": 5, "domains": ["a", "b"]}}
    claims.check_same(tmp_path, "a run", before, {"recipe": {"domains": ["a", "b"], "steps": 5}, "kind": "run"})
    with pytest.raises(CheckpointError, match=r"a run with other settings \(recipe.steps = 5, this command has 6\)"):
        claims.check_same(tmp_path, "a run", before, {**before, "recipe": {"steps": 6, "domains": ["a"]}})
    with pytest.raises(DataError, match=r"recipe.seed = None, this command has 1"):
        claims.check_same(tmp_path, "a run", before, {**before, "recipe": {**before["recipe"], "seed": 1}}, DataError)


def test_files_and_filled_folders_of_others_are_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    claims.check_free([tmp_path / "new", tmp_path / "empty"], ours=False)
    (tmp_path / "empty" / "a").write_text("")
    claims.check_free([tmp_path / "empty"], ours=True)
    for path in (tmp_path / "empty", tmp_path / "empty" / "a"):
        with pytest.raises(CheckpointError, match="exists and was not written by an earlier run"):
            claims.check_free([tmp_path / "new", path], ours=False)
