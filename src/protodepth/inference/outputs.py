"""The files of one completed frame: depth map, picture with a legend, point cloud."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from protodepth.data.files import images
from protodepth.data.frame import Frame
from protodepth.report import pictures
from protodepth.storage.files import write_bytes
from protodepth.types import Prediction

Format = Literal["kitti", "mm", "npy"]
OutputPart = Literal["depth", "color", "cloud"]
SUFFIX = {"depth": ".png", "color": ".png", "cloud": ".ply"}
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

    def __post_init__(self) -> None:
        pictures.palette(self.colormap)  # a name that does not exist is refused before anything is computed

    def place(self, part: OutputPart, name: str) -> Path:
        suffix = ".npy" if part == "depth" and self.format == "npy" else SUFFIX[part]
        name = re.sub(r"[^\w.-]+", "_", name)  # names come from files of strangers: they stay inside the folder
        return self.folder / (ALONE[part] + suffix if self.alone else f"{part}/{name}{suffix}")

    def write(self, frame: Frame, depth: np.ndarray) -> list[str]:
        """The files of one frame; returns their names relative to the folder."""
        written = []
        for part in self.parts:
            path = self.place(part, frame.name)
            if part == "depth":
                images.write_depth(path, depth, "metres" if self.format == "npy" else self.format)
            elif part == "color":
                write_bytes(path, pictures.depth_picture(depth, cmap=self.colormap))
            else:
                pictures.save_ply(path, depth, frame.image, frame.intrinsics)
            written.append(path.relative_to(self.folder).as_posix())
        return written
