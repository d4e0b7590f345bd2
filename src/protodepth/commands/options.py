"""Options that several commands share."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from protodepth.model import ProtoDepth


def load_model(source: str) -> "ProtoDepth":
    """A model folder, a bundled name, or a run folder with a model inside."""
    from pathlib import Path

    from protodepth.model import ProtoDepth

    inside = Path(source) / "model"
    return ProtoDepth.from_pretrained(inside if (inside / "config.json").exists() else source)


def parse_size(text: str) -> tuple[int, int]:
    """``480x640`` -> (480, 640)"""
    from protodepth.errors import ConfigError

    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if not match:
        raise ConfigError(f"size {text!r}: expected HEIGHTxWIDTH, for example 480x640")
    return int(match[1]), int(match[2])
