"""The files of one completed frame: depth map, picture with a legend, point cloud."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from protodepth.data.files import images
from protodepth.data.frame import Frame
from protodepth.errors import DataError
from protodepth.report import pictures
from protodepth.storage import claims
from protodepth.storage.files import write_bytes
from protodepth.types import Prediction

Format = Literal["kitti", "mm", "npy"]
OutputPart = Literal["depth", "color", "cloud"]
SUFFIX = {"depth": ".png", "color": ".png", "cloud": ".ply"}
RECORD = "predictions.jsonl"
ALONE = {"depth": "depth", "color": "depth_color", "cloud": "cloud"}  # file names where there is one frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where and how results are written: ``depth.png``, ... for one frame; ``depth/<frame>.png``, ... for several."""

    folder: Path
    format: Format = "kitti"  # 16-bit PNG with metres x 256, or millimetres; or .npy with metres in float32
    parts: tuple[OutputPart, ...] = ("depth", "color", "cloud")
    alone: bool = False
    colormap: str = pictures.DEPTH_COLORMAP
    watch: Callable[[Frame, Prediction], None] | None = None  # is shown every completed frame
    frames: dict[Path, str] = field(default_factory=dict)  # whose file each is that was written

    def __post_init__(self) -> None:
        pictures.palette(self.colormap)  # a name that does not exist is refused before anything is computed

    def place(self, part: OutputPart, name: str) -> Path:
        suffix = ".npy" if part == "depth" and self.format == "npy" else SUFFIX[part]
        name = re.sub(r"[^\w.-]+", "_", name)  # names come from files of strangers: they stay inside the folder
        return self.folder / (ALONE[part] + suffix if self.alone else f"{part}/{name}{suffix}")

    @property
    def record(self) -> Path:
        """One line a frame; where it is, the other results are of this program too."""
        return self.folder / RECORD

    def check(self) -> None:
        """Refuse a folder in which files of somebody else would be overwritten."""
        names = [self.place(part, "x") for part in self.parts]
        claims.check_free([*(p if self.alone else p.parent for p in names), self.record], _is_record(self.record))

    def claim(self, path: Path, name: str) -> None:
        """A file is of one frame: refused if another has it."""
        if self.frames.setdefault(path, name) != name:
            raise DataError(f"frames {self.frames[path]!r} and {name!r} would both be written to {path}: rename one")

    def write(self, frame: Frame, depth: np.ndarray) -> list[str]:
        """The files of one frame; returns their names relative to the folder."""
        written = []
        for part in self.parts:
            path = self.place(part, frame.name)
            self.claim(path, frame.name)
            if part == "depth":
                images.write_depth(path, depth, "metres" if self.format == "npy" else self.format)
            elif part == "color":
                write_bytes(path, pictures.depth_picture(depth, cmap=self.colormap))
            else:
                pictures.save_ply(path, depth, frame.image, frame.intrinsics)
            written.append(path.relative_to(self.folder).as_posix())
        return written


def _is_record(file: Path) -> bool:
    """Whether a file is a record of predictions; one without a line is of a run that was ended at its start."""
    try:
        lines = [json.loads(line) for line in file.read_text().splitlines()]
    except (OSError, ValueError, RecursionError):
        return False
    return all(isinstance(line, dict) and "frame" in line for line in lines)
