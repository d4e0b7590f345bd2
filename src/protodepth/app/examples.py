"""The built-in examples: a frame of each world's recording, drawn by ``benchmarks/page_examples.py`` and stored.

The recording is what ``protodepth data example --world NAME`` writes: who adapts to it finds its place here again.
Each is a folder as a visitor has one: image.jpg, sparse.png, truth.png (16 bit), camera.txt, and a small picture of it.
"""

from functools import lru_cache
from importlib import resources
from pathlib import Path

import numpy as np
from PIL import Image as Picture

from protodepth.data.files import cameras, images
from protodepth.data.frame import Frame
from protodepth.data.worlds.worlds import WORLDS
from protodepth.errors import UnknownNameError
from protodepth.model import ProtoDepth
from protodepth.storage.files import write_bytes

SIZE, SMALL = (480, 640), (120, 160)
# Which frame of the recording's way.  Adapt learns from none: test frames, or beyond the forty that are written.
NUMBER = {
    "warehouse": 38,
    "room": 38,
    "corridor_night": 75,  # the way back: the earlier ones show a bare wall
    "office": 38,
    "street_dusk": 38,
    "street": 38,
    "highway": 38,
    "garden": 38,
}


def _folder(name: str) -> Path:
    return Path(str(resources.files("protodepth.app") / "assets" / "examples" / name))


def _unit(name: str) -> str:
    return "mm" if WORLDS[name].indoor else "kitti"


def example_names(depth_range: tuple[float, float]) -> tuple[str, ...]:
    """The examples whose depths a network with this range can answer.

    >>> example_names((0.1, 8.0))
    ('warehouse', 'room', 'corridor_night', 'office')
    """
    low, high = depth_range
    return tuple(name for name in NUMBER if (low < 1 if WORLDS[name].indoor else high > 20))


@lru_cache(maxsize=len(NUMBER))
def example(name: str) -> Frame:
    """The stored frame of a world."""
    if name not in NUMBER:
        raise UnknownNameError("example", name, NUMBER)
    folder = _folder(name)
    sparse, truth = (images.read_depth(folder / f"{kind}.png", _unit(name)) for kind in ("sparse", "truth"))
    return Frame(
        image=images.read_image(folder / "image.jpg"),
        sparse_depth=sparse,
        intrinsics=cameras.parse_intrinsics(str(folder / "camera.txt")),
        ground_truth=truth,
        name=name,
    )


def thumbnail(name: str) -> bytes:
    """A JPEG of 120x160 pixels."""
    return (_folder(name) / "small.jpg").read_bytes()


def write(name: str, frame: Frame) -> Path:
    """Store a drawn frame as an example; returns its folder."""
    if frame.ground_truth is None:
        raise ValueError(f"the example {name} has no ground truth")
    folder = _folder(name)
    images.write_image(folder / "image.jpg", frame.image, quality=90)
    small = Picture.fromarray(frame.image).resize(SMALL[::-1], Picture.Resampling.LANCZOS)
    images.write_image(folder / "small.jpg", np.asarray(small), quality=85)
    images.write_depth(folder / "sparse.png", frame.sparse_depth, _unit(name))
    images.write_depth(folder / "truth.png", frame.ground_truth, _unit(name))
    K = frame.intrinsics
    numbers = ", ".join(f"{v:.6g}" for v in (K[0, 0], K[1, 1], K[0, 2], K[1, 2]))
    write_bytes(folder / "camera.txt", f"{numbers}\n".encode())
    return folder


def first_example(model: ProtoDepth) -> str:
    """Where the page starts: an example whose place the model has learned, so that adapting can be seen.

    A domain is tied to a world by its name or by what it was learned from; without one, the first that fits.
    """
    names = example_names(model.backbone.depth_range)
    for domain in reversed([d for d in model.domains if not model.domain(d).base]):
        history = model.history.get(domain)
        words = f"{domain} {history.learned_from if history else ''}"
        learned = [name for name in names if name in words]
        if learned:
            return max(learned, key=len)  # street_dusk before street
    return names[0]
