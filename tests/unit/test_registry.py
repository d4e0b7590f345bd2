"""Registries: one decorator, no duplicates, outside packages by entry points and only when needed."""

import pytest

from protodepth import registry
from protodepth.errors import ProtoDepthError, UnknownNameError
from protodepth.registry import Registry


class Point:
    def __init__(self, name: str, value: str) -> None:
        self.name, self.value, self.loaded = name, value, 0

    def load(self) -> str:
        self.loaded += 1
        return self.value


def test_what_is_registered_is_found_and_listed_in_order() -> None:
    r = Registry[int]("number")
    assert r.register("two")(2) == 2
    r.register("one")(1)
    assert (r.get("one"), r.get("two"), r.names()) == (1, 2, ("one", "two"))


def test_a_name_cannot_be_taken_twice() -> None:
    r = Registry[int]("number")
    r.register("one")(1)
    with pytest.raises(ProtoDepthError, match="number 'one' is registered twice"):
        r.register("one")(11)
    assert r.get("one") == 1


def test_an_unknown_name_lists_the_choices() -> None:
    r = Registry[int]("number")
    with pytest.raises(UnknownNameError, match=r"unknown number 'ten'; choose one of: \(none\)"):
        r.get("ten")
    r.register("one")(1)
    r.register("two")(2)
    with pytest.raises(UnknownNameError, match="choose one of: one, two"):
        r.get("ten")


def test_outside_packages_join_when_a_name_is_not_known_and_never_replace_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    points, asked = [Point("outside", "theirs"), Point("ours", "stolen")], []

    def entry_points(group: str) -> list[Point]:
        asked.append(group)
        return points

    monkeypatch.setattr(registry, "entry_points", entry_points)
    r = Registry[str]("network")
    r.register("ours")("ours")
    assert r.get("ours") == "ours"
    assert asked == []  # a known name costs no search
    assert r.get("outside") == "theirs"
    assert r.get("ours") == "ours"
    assert r.names() == ("ours", "outside")
    assert asked == ["protodepth.networks"]
    assert points[1].loaded == 0
