"""The examples of the local page: a frame of each world's recording at 480x640, with its sparse points and its depth.

    python benchmarks/page_examples.py            # src/protodepth/app/assets/examples; a minute on one core
    python benchmarks/page_examples.py room       # one of them

The page has to start at once: so they are drawn here and stored.  Run it again after a world has changed.
"""

import sys
from dataclasses import replace

from protodepth.app.examples import NUMBER, SIZE, write
from protodepth.data.example import walk


def main() -> None:
    for world in sys.argv[1:] or NUMBER:
        ((frame, _),) = walk(world, [NUMBER[world]], SIZE)
        folder = write(world, replace(frame, name=world))
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"wrote {folder} ({size / 1000:.0f} kB)", flush=True)


if __name__ == "__main__":
    main()
