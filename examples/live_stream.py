"""Depth for live frames: a camera thread hands over frames, a worker completes the newest one, nothing piles up.

Run it with ``python examples/live_stream.py``; it draws its own frames and needs no camera.
"""

import queue
import threading
import time

import numpy as np

import protodepth
from protodepth.backbones.lite import Lite
from protodepth.data.worlds.worlds import WORLDS, render
from protodepth.inference.stream import Stream
from protodepth.storage.folders import bundled

FRAMES, SIZE = 12, (64, 96)


def camera(frames: "queue.Queue[tuple[int, np.ndarray, np.ndarray, np.ndarray] | None]") -> None:
    """A driver: image (uint8), sparse depth (metres, 0 = no point) and intrinsics of each frame."""
    for number in range(FRAMES):
        frame = render(WORLDS["room"], seed=number, size=SIZE)
        item = (number, frame.image, frame.sparse_depth, frame.intrinsics)
        try:
            frames.put_nowait(item)
        except queue.Full:  # the worker is behind: the older frame is dropped, not the newer one
            frames.get_nowait()
            frames.put_nowait(item)
        time.sleep(0.02)
    frames.put(None)


def main() -> None:
    # Your model folder goes here; a network without training shows the same calls where no model is bundled.
    model = protodepth.ProtoDepth.from_pretrained("worlds-tiny") if bundled() else protodepth.ProtoDepth(Lite())
    stream = Stream(model)  # domain=None: chosen for each frame
    frames: queue.Queue[tuple[int, np.ndarray, np.ndarray, np.ndarray] | None] = queue.Queue(maxsize=1)
    threading.Thread(target=camera, args=(frames,), daemon=True).start()
    while (item := frames.get()) is not None:
        number, image, sparse_depth, intrinsics = item
        started = time.perf_counter()
        p = stream(image, sparse_depth, intrinsics)
        milliseconds = 1000 * (time.perf_counter() - started)
        unknown = ", unlike every known domain" if p.unknown else ""
        print(f"frame {number}: {milliseconds:.0f} ms, median {np.median(p.depth):.2f} m, domain {p.domain}{unknown}")


if __name__ == "__main__":
    main()
