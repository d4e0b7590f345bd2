"""Configuration: frozen dataclasses in and out of TOML, overrides, and errors that name the field."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from protodepth import config
from protodepth.data.augment import AugmentConfig
from protodepth.errors import ConfigError, ProtoDepthError, UnknownNameError
from protodepth.training import recipes
from protodepth.training.recipes import BaseRecipe, SequenceRecipe


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = 3
    ends: tuple[float, float] = (0.0, 1.0)
    layers: tuple[str, ...] | None = None
    limit: float | None = 1.0


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    inner: Inner = field(default_factory=Inner)
    table: dict[str, float] = field(default_factory=dict)


@pytest.mark.parametrize("name", [*recipes.BASES, *recipes.SEQUENCES])
def test_every_recipe_survives_its_file(tmp_path: Path, name: str) -> None:
    recipe = recipes.get(name)
    config.write(recipe, tmp_path / "recipe.toml")
    assert config.read(type(recipe), tmp_path / "recipe.toml") == recipe
    assert recipes.read_recipe(str(tmp_path / "recipe.toml")) == recipe


def test_none_and_infinity_survive_a_file(tmp_path: Path) -> None:
    given = Outer(name="x", inner=Inner(layers=("a", "b"), limit=math.inf), table={"k": 1.5})
    config.write(given, tmp_path / "c.toml")
    assert config.read(Outer, tmp_path / "c.toml") == given
    config.write(replace(given, inner=Inner()), tmp_path / "c.toml")
    assert config.read(Outer, tmp_path / "c.toml").inner.layers is None


def test_a_none_that_a_file_would_turn_into_the_default_is_refused() -> None:
    with pytest.raises(ConfigError, match="limit=None cannot be saved"):
        config.to_dict(Outer(name="x", inner=Inner(limit=None)))


def test_settings_are_overridden_by_dotted_names() -> None:
    given = Outer(name="x", table={"a": 1.0})
    changed = config.override(
        given, ("inner.size=7", "inner.ends=[0.5, 2]", "table.b=2.5", "name=long name", "inner.limit=inf")
    )
    assert changed == Outer(
        name="long name", inner=Inner(size=7, ends=(0.5, 2.0), limit=math.inf), table={"a": 1.0, "b": 2.5}
    )
    assert given.inner.size == 3


def test_real_settings_of_a_recipe() -> None:
    recipe = recipes.get("outdoor")
    changed = config.override(
        recipe,
        (
            "schedule.steps=7",
            "schedule.augment.flip_horizontal=true",
            'prototypes.layers=["latent"]',
            "rates.protodepth=0.5",
        ),
    )
    assert isinstance(changed, SequenceRecipe)
    assert changed.schedule.steps == 7
    assert changed.schedule.augment.flip_horizontal
    assert changed.prototypes.layers == ("latent",)
    assert changed.rates["protodepth"] == 0.5


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("inner.size", "expected key=value"),
        ("inner.colour=3", r"unknown setting in --set inner.colour=3 'colour'; choose one of: size, ends"),
        ("colour=3", "choose one of: name, inner, table"),
        ("inner.size=big", "size: .*integer.*got 'big'"),
        ("inner.ends=[1]", "ends"),
        ("name.first=x", "unknown setting"),
        ("inner.size=" + "[" * 20_000, r"size: .*integer.*got '\[+\.\.\.\)$"),
        ("inner.size=" + "9" * 5000, r"size: .*integer.*got '9+\.\.\.\)$"),
    ],
)
def test_a_wrong_override_says_which_and_what_is_possible(setting: str, message: str) -> None:
    with pytest.raises(ProtoDepthError, match=message):
        config.override(Outer(name="x"), (setting,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 'x'\ncolour = 3", "unknown setting 'colour'; choose one of: name"),
        ("name = 'x'\n[inner]\nsise = 3", "inner: unknown setting 'sise'"),
        ("name = 3", "name: .*string"),
        ("", "name: Field required"),
        ("name = ", "not readable TOML"),
        ("name = 'x'\n[inner]\nsize = 'big'", r"inner\.size: .*got 'big'"),
        ("a = " + "[" * 20_000, "not readable TOML"),
        ("a = " + "9" * 5000, "not readable TOML"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_the_field(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        config.read(Outer, tmp_path / "c.toml")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        recipes.read_recipe(str(tmp_path / "no.toml"))


def test_a_fault_in_a_base_recipe_is_not_reported_as_a_fault_of_a_sequence(tmp_path: Path) -> None:
    config.write(recipes.get("worlds-tiny"), tmp_path / "r.toml")
    text = (tmp_path / "r.toml").read_text().replace('backbone = "lite"', "backbone = 3")
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(ConfigError, match="backbone"):
        recipes.read_recipe(str(tmp_path / "r.toml"))


def test_checks_of_the_dataclasses_themselves_are_kept(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("brightness = [2.0, 1.0]")
    with pytest.raises(ConfigError, match="low <= high"):
        config.read(AugmentConfig, tmp_path / "c.toml")


def test_unknown_recipes_list_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"worlds-tiny.*outdoor"):
        recipes.get("indoors")


def test_recipes_are_base_networks_or_sequences_that_start_from_one() -> None:
    assert all(isinstance(make(), BaseRecipe) for make in recipes.BASES.values())
    for make in recipes.SEQUENCES.values():
        recipe = make()
        assert isinstance(recipe, SequenceRecipe)
        assert len(recipe.domains) >= 2


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("1e-3", 1e-3), ("inf", math.inf), ("false", False), ("a b", "a b"), ("[1,2]", [1, 2]), ("", "")],
)
def test_values_of_the_command_line_are_read_as_toml_or_text(text: str, value: object) -> None:
    assert config.parse_value(text) == value
