"""Descriptions of models and domains, changed with a right checksum: what lies behind it is tested with them."""

import json
from pathlib import Path
from typing import Any

from protodepth.storage import files


def edit(file: Path, **changes: object) -> None:
    """Change entries of a description and seal it again, as whoever wants to deceive can."""
    meta: dict[str, Any] = {**json.loads(file.read_text()), **changes}
    del meta["sealed"]
    files.write_sealed(file, meta)


def as_version_1(file: Path, **changes: object) -> None:
    """The description as it was before it had a checksum."""
    meta = {**json.loads(file.read_text()), **changes, "format_version": 1}
    del meta["sealed"]
    files.write_json(file, meta)
