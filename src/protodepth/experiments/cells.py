"""A cell is one unit of work with everything its result depends on; a store keeps the results of cells in a folder.

The name of a cell's folder ends with the hash of its settings, so two configurations never meet in one folder, and
experiments that need the same training share it.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch

from protodepth.errors import CheckpointError
from protodepth.report.results import plain
from protodepth.storage import files

NOT_MADE = re.compile(r"\.|lock|log\.jsonl$|result\.json$")  # locks of all who look at a cell come and go
EARLIER = ("identity", "label", "result", "wall_seconds", "versions")  # entries of a result without a checksum
CellKind = Literal[
    "base",
    "sequence",
    "timing",
    "errors",
    "unseen",
    "outside",
    "descriptors",
    "pictures",
    "real",
    "adapted",
    "choice",
]


def digest(value: Any) -> str:
    """The key of a cell: a hash of its JSON-able inputs, whatever the order of their names."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)  # no slots: the key is computed once
class Cell:
    """``label``: backbone, method, variant, seed, sequence ... for tables.  ``inputs``: what the result depends on,
    JSON-able (in files under the name ``settings``).

    ``needs``: cells whose results this one starts from; their keys are part of its own.
    """

    kind: CellKind
    label: dict[str, Any]
    inputs: dict[str, Any]
    needs: tuple["Cell", ...] = ()
    where: str = ""  # a folder that holds what the cell would make; its content is in the inputs, its place is not

    @property
    def title(self) -> str:
        words = [str(v) for k, v in self.label.items() if k != "seed" and v not in ("", None)]
        return " ".join([*words, *([f"seed {self.label['seed']}"] if "seed" in self.label else [])])

    @cached_property
    def key(self) -> str:
        # not the variant: the same settings under another name (set sizes 10/5, and the default) are the same cell
        words = [str(v) for k, v in self.label.items() if k != "variant" and v not in ("", None)]
        safe = "".join(c if c.isalnum() or c in "-_" else "-" for c in "-".join(words))
        return f"{safe[:60]}-{digest(self.identity())[:10]}"

    def identity(self) -> dict[str, Any]:
        return plain({"kind": self.kind, "settings": self.inputs, "needs": [need.key for need in self.needs]})

    def needed(self, kind: CellKind) -> "Cell":
        """The first of the needs of a kind."""
        return next(need for need in self.needs if need.kind == kind)


def ordered(cells: Iterable[Cell]) -> list[Cell]:
    """Each cell once, after all that it needs."""
    by_key: dict[str, Cell] = {}

    def add(cell: Cell) -> None:
        for need in cell.needs:
            add(need)
        by_key.setdefault(cell.key, cell)

    for cell in cells:
        add(cell)
    return list(by_key.values())


class Store:
    """Results of cells in ``folder/cells/<kind>/<key>``:
    ``result.json`` is written last, and only it says that a cell is done.
    """

    def __init__(self, folder: Path, device: str | torch.device = "cpu") -> None:
        self.folder = folder
        self.device = torch.device(device)  # where the networks of this process compute; no part of a cell

    def place(self, cell: Cell) -> Path:
        return self.folder / "cells" / cell.kind / cell.key

    def lock_path(self, cell: Cell) -> Path:
        return self.place(cell) / "lock"

    def done(self, cell: Cell) -> bool:
        return (self.place(cell) / "result.json").is_file()

    def result(self, cell: Cell) -> dict[str, Any]:
        """The stored result, after a check that it is this cell's."""
        return self._stored(cell)["result"]

    def file(self, cell: Cell, name: str) -> Path:
        """A file that the cell wrote beside its result, after a check that it is what was written."""
        listed = self._stored(cell).get("files") or {}  # cells of earlier versions list none
        return files.check_file(self.place(cell) / name, listed[name]) if name in listed else self.place(cell) / name

    def _stored(self, cell: Cell) -> dict[str, Any]:
        stored = files.read_sealed(self.place(cell) / "result.json", earlier=EARLIER)
        if stored.get("identity") != cell.identity():
            raise CheckpointError(f"{self.place(cell)} holds a result with other settings: give another --out")
        if not isinstance(stored.get("result"), dict):
            raise CheckpointError(f"{self.place(cell) / 'result.json'} has no result: remove that folder")
        return stored

    def write(self, cell: Cell, result: dict[str, Any], **about: Any) -> None:
        place = self.place(cell)
        made = [p for p in sorted(place.rglob("*")) if p.is_file() and not NOT_MADE.match(p.name)]
        listed = {p.relative_to(place).as_posix(): files.sha256_of(p) for p in made}
        document = {"identity": cell.identity(), "label": cell.label, **about, "result": result, "files": listed}
        files.write_sealed(self.place(cell) / "result.json", plain(document))

    def finished(self, cells: Iterable[Cell]) -> Iterator[tuple[Cell, dict[str, Any]]]:
        return ((cell, self.result(cell)) for cell in cells if self.done(cell))
