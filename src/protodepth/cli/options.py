"""Options that several commands share."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protodepth.model import ProtoDepth


def load_model(source: str, device: str | None = "cpu") -> "ProtoDepth":
    """A model folder, a bundled name, or a run folder with a model inside; None = on a GPU if there is one."""
    from protodepth import distributed
    from protodepth.model import ProtoDepth

    place = distributed.device(device)
    return ProtoDepth.from_pretrained(model_folder(source)).to(place)


def model_folder(source: str) -> Path:
    """The folder that ``load_model`` reads."""
    from protodepth.storage.folders import resolve

    inside = Path(source) / "model"
    return inside if (inside / "config.json").exists() else resolve(source)


def keep_notes(source: str) -> dict[str, Any]:
    """The notes of a model, for a changed copy of it."""
    from protodepth.storage.files import read_json

    return dict(read_json(model_folder(source) / "config.json").get("notes") or {})


def parse_size(text: str) -> tuple[int, int]:
    """``480x640`` -> (480, 640)"""
    from protodepth.errors import ConfigError

    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if not match:
        raise ConfigError(f"size {text!r}: expected HEIGHTxWIDTH, for example 480x640")
    return int(match[1]), int(match[2])
