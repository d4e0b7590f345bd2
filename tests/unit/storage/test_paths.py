"""Names and paths that others wrote stay in their folder."""

from pathlib import Path

import pytest

from conftest import tiny_model
from helpers.descriptions import edit
from protodepth.cli.main import run
from protodepth.errors import CheckpointError, DomainError, ProtoDepthError
from protodepth.model import ProtoDepth
from protodepth.storage.paths import check_inside, check_name, is_outside

BAD_NAMES = ["../../secret", "/etc", "a/b", "", ".", "..", "a\n", "a\x00b", "base", "x" * 65, None, 3, ["a"]]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_what_could_lead_elsewhere_is_no_name(name: object) -> None:
    with pytest.raises(DomainError, match="cannot name a domain"):
        check_name(name)


def test_a_path_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "m" / "in").mkdir(parents=True)
    (tmp_path / "m" / "near").symlink_to("in")
    (tmp_path / "m" / "far").symlink_to(tmp_path)
    (tmp_path / "m" / "round").symlink_to("round")
    (tmp_path / "door").symlink_to("m")
    for path in ("in/file", "near/file", "in/../x"):
        assert check_inside(tmp_path / "m" / path, tmp_path / "m") == tmp_path / "m" / path
    for path in ("../x", "far/file", "round/file", "in/../../x"):
        with pytest.raises(CheckpointError, match="leads out of"):
            check_inside(tmp_path / "m" / path, tmp_path / "m")
    assert not is_outside(tmp_path / "door" / "in", tmp_path / "door")  # the folder itself may be a link


@pytest.fixture
def place(tmp_path: Path, model: ProtoDepth) -> Path:
    """A model ``m``, and a domain ``secret`` beside it that does not belong to it."""
    model.save_pretrained(tmp_path / "m")
    model.save_domain("night", tmp_path / "secret")
    return tmp_path


@pytest.mark.parametrize("name", ["../../secret", "{place}/secret", "../domains/night", "night/../night"])
def test_a_model_that_names_a_domain_elsewhere_is_refused_and_nothing_is_renamed(place: Path, name: str) -> None:
    edit(place / "m" / "config.json", domains=[name.format(place=place)])
    (place / "secret").rename(place / ".secret.0123abcd.old")  # what loading would put back, were it asked to
    before = sorted(place.rglob("*"))
    with pytest.raises(ProtoDepthError, match="cannot name a domain"):
        ProtoDepth.from_pretrained(place / "m")
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    "file", ["config.json", "backbone.safetensors", "domains", "domains/night", "domains/night/meta.json",
             "domains/night/weights.safetensors"],
)  # fmt: skip
def test_a_link_out_of_a_model_is_refused(place: Path, file: str) -> None:
    (place / "m" / file).rename(place / "away")
    (place / "m" / file).symlink_to(place / "away")
    with pytest.raises(CheckpointError, match="leads out of"):
        ProtoDepth.from_pretrained(place / "m")


def test_a_link_that_waits_to_be_put_back_is_not(place: Path) -> None:
    (place / "m" / "domains" / "night").rename(place / "away")
    (place / "m" / "domains" / ".night.0123abcd.old").symlink_to(place / "away")
    with pytest.raises(CheckpointError, match="missing"):
        ProtoDepth.from_pretrained(place / "m")


@pytest.mark.parametrize("file", ["meta.json", "weights.safetensors"])
def test_a_parcel_with_a_link_out_of_it_is_not_imported(
    place: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "secret" / file).rename(place / "away")
    (place / "secret" / file).symlink_to(place / "away")
    code = run(["domains", "import", "--model", str(place / "m"), "--folder", str(place / "secret"), "--name", "late"])
    assert code == 2
    assert "leads out of" in capsys.readouterr().err
    assert ProtoDepth.from_pretrained(place / "m").domains == ("room", "warehouse", "night")


def test_links_within_a_model_and_a_link_to_it_are_fine(place: Path) -> None:
    (place / "m" / "backbone.safetensors").rename(place / "m" / "real")
    (place / "m" / "backbone.safetensors").symlink_to("real")
    (place / "link").symlink_to("m")
    assert ProtoDepth.from_pretrained(place / "link").domains == ("room", "warehouse", "night")


def test_a_domain_in_a_folder_of_another_name_is_refused(place: Path) -> None:
    edit(place / "m" / "domains" / "night" / "meta.json", name="day")
    with pytest.raises(CheckpointError, match="another name"):
        ProtoDepth.from_pretrained(place / "m")


def test_an_imported_name_is_checked(place: Path) -> None:
    for name in ("../up", "/abs"):
        edit(place / "secret" / "meta.json", name=name)
        with pytest.raises(DomainError, match="cannot name"):
            tiny_model().load_domain(place / "secret")
