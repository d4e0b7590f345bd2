"""A recording of a known scene."""

from pathlib import Path

import numpy as np

from helpers.data_scene import Shot, thin, walk
from protodepth.data.files import images

SHOTS = walk(24, size=(40, 56), step=0.03)


def write_recording(
    folder: Path, shots: list[Shot], *, unit: str = "mm", dense: bool = False, poses: bool = True, toml: str = ""
) -> Path:
    for i, shot in enumerate(shots):
        images.write_image(folder / "image" / f"{i}.png", shot.image)
        depth = shot.depth if dense else thin(shot.depth)
        images.write_depth(folder / ("depth" if dense else "sparse") / f"{i}.png", depth, unit)
    np.savetxt(folder / "intrinsics.txt", shots[0].K)
    if poses:
        np.savetxt(folder / "poses.txt", np.stack([s.pose.ravel() for s in shots]))
    if toml:
        (folder / "recording.toml").write_text(toml)
    return folder
