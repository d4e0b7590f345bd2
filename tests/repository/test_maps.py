"""The maps of the house and of the paper name what is there, and leave nothing out."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import protodepth
from helpers.documents import ROOT
from protodepth.experiments import paper
from protodepth.experiments.catalogue import EXPERIMENTS

PACKAGE = Path(protodepth.__file__).parent
COUNTS = {"Eq.": 14, "Table": 12, "Figure": 6}  # of the paper and its supplement


def rows(document: str) -> list[list[str]]:
    """The cells of every line of the document's tables, without their heads."""
    lines = (ROOT / "docs" / document).read_text().splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [row for row in cells if row[0] not in ("paper", "station", "---")]


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def find(name: str) -> Any:
    """A dotted name of the package: the longest part that is a module is imported, the rest are its attributes."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        if (PACKAGE / Path(*parts[:cut])).with_suffix(".py").exists():
            thing: Any = import_module(".".join(("protodepth", *parts[:cut])))
            for part in parts[cut:]:
                thing = getattr(thing, part)
            return thing
    raise AttributeError(f"no module of the package begins {name}")


def check(name: str) -> None:
    if "/" in name:
        assert (PACKAGE / name).exists(), name
    else:
        find(name)


@pytest.mark.parametrize("kind", COUNTS)
def test_the_paper_map_has_every_equation_table_and_figure_once(kind: str) -> None:
    numbers = [int(m[1]) for row in rows("paper_map.md") if (m := re.match(rf"{re.escape(kind)} (\d+) ", row[0]))]
    assert numbers == list(range(1, COUNTS[kind] + 1))


def test_every_name_of_the_paper_map_exists() -> None:
    for row in rows("paper_map.md"):
        assert named(row[1]), row
        for name in named(row[1]):
            check(name)


def test_every_table_and_figure_has_a_command_and_every_experiment_of_the_paper_a_row() -> None:
    shown = []
    for row in rows("paper_map.md"):
        if row[0].startswith(("Table", "Figure")):
            (command,) = named(row[2])
            program, verb, *experiments = command.split()
            assert program == "protodepth"
            assert set(experiments) <= set(EXPERIMENTS), command
            shown += experiments if verb == "bench" else []
    assert set(shown) == {e.name for e in EXPERIMENTS.values() if e.paper != "not in the paper"}


def test_every_stored_table_of_the_paper_has_a_row() -> None:
    tables = [row for row in rows("paper_map.md") if row[0].startswith("Table")]
    without_numbers = {"Table 9"}  # formulas
    together = {"Table 4", "Table 12"}  # one entry for both
    assert len(paper.names()) == len(tables) - len(without_numbers) - len(together) + 1


def test_every_station_of_the_reading_guide_exists() -> None:
    stations = rows("reading_guide.md")
    assert len(stations) > 25
    for place, there, _ in stations:
        (file,) = named(place)
        module = file.removesuffix(".py").replace("/", ".")
        find(module)
        for name in named(there):
            find(f"{module}.{name}")


def test_a_name_that_is_gone_is_noticed() -> None:
    for name in ("losses.REDUCTION", "protocol.run_sequence", "methods/gone.py", "model.ProtoDepth.gone"):
        with pytest.raises((AttributeError, AssertionError)):
            check(name)
