"""The examples of the local page: one test scene of each world at 480x640, with its sparse points and its depth.

    python benchmarks/page_examples.py            # src/protodepth/app/assets/examples; some minutes on one core
    python benchmarks/page_examples.py room       # one of them

A frame of this size takes half a minute to draw, and the page has to start at once: so they are drawn here and stored.
Run it again after a world has changed.
"""

import sys
import zlib

import numpy as np

from protodepth.app.examples import INDEX, SIZE, write
from protodepth.data.frame import SPLITS, Frame
from protodepth.data.worlds import worlds
from protodepth.data.worlds.shading import photograph


def scene(world: str, size: tuple[int, int]) -> Frame:
    """The middle frame of a test triplet; the scene does not depend on the size."""
    spec = worlds.WORLDS[world]
    sequence = np.random.SeedSequence((zlib.crc32(world.encode()), SPLITS.index("test"), 0, INDEX[world]))
    stage, (_, camera, _), film, sensing = worlds.set_scene(spec, sequence, size)
    image = worlds.develop(photograph(stage, camera, size), spec, film)
    sparse, truth = worlds.sense(spec, stage, camera, image, sensing)
    return Frame(image=image, sparse_depth=sparse, intrinsics=camera.intrinsics, ground_truth=truth, name=world)


def main() -> None:
    for world in sys.argv[1:] or INDEX:
        folder = write(world, scene(world, SIZE))
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"wrote {folder} ({size / 1000:.0f} kB)", flush=True)


if __name__ == "__main__":
    main()
