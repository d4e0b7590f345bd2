"""A coverage-guided fuzzer on the parsers of binary files: ``python tests/fuzz/parsers.py sens -max_total_time=60``.

Anything but an error of protodepth is a finding: libFuzzer prints the input and ends with another code than 0.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
with atheris.instrument_imports(include=["protodepth.data", "rosbags"]):
    from protodepth.data.datasets import ros_messages, scannet
    from protodepth.data.files import images, matlab

from helpers.data_scene import walk
from helpers.dataset_writers import jpeg, sens_bytes
from protodepth.data.faults import foreign
from protodepth.errors import ProtoDepthError

FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-"))
SHOTS = walk(2, size=(24, 32), step=0.03)


def read_sens(path: Path) -> object:
    stored = scannet.read_sens(path)
    (offset, length), (height, width) = stored.frames[0].depth, stored.depth_size
    return scannet.CONTAINER.depth(path, f"{offset},{length},{height},{width},{stored.depth_shift}")


def read_bag(path: Path) -> object:
    ros_messages.open_bag.cache_clear()
    ros_messages.times.cache_clear()
    with foreign(path):  # as the reader of entries does
        return [len(ros_messages.times(path, topic)) for topic in ros_messages.topics(path)]


def array() -> bytes:
    np.save(FOLDER / "seed.npy", SHOTS[0].depth)
    return (FOLDER / "seed.npy").read_bytes()


# name -> (ending, reader, a good file to begin with)
PARSERS: dict[str, tuple[str, Callable[[Path], object], bytes]] = {
    "sens": (".sens", read_sens, sens_bytes(SHOTS, [jpeg(s.image) for s in SHOTS], (24, 32))),
    "npy": (".npy", images.read_depth, array()),
    "exr": (".exr", images.read_depth, b"v/1\x01\x02\x00\x00\x00channels\x00chlist\x00\x01\x00\x00\x00\x00"),
    "bag": (".bag", read_bag, b"#ROSBAG V2.0\n" + b"\x45\x00\x00\x00\x04\x00\x00\x00op=\x03"),
    "mat": (".mat", matlab.read_arrays, b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + bytes(64)),
}


def main() -> None:
    name = sys.argv.pop(1)
    ending, read, good = PARSERS[name]
    corpus = FOLDER / "corpus"
    corpus.mkdir()
    (corpus / "good").write_bytes(good)
    target = FOLDER / f"input{ending}"

    def one(data: bytes) -> None:
        target.write_bytes(data)
        try:
            read(target)
        except ProtoDepthError:
            return

    atheris.Setup([*sys.argv, "-max_len=65536", "-rss_limit_mb=2048", str(corpus)], one)
    os.chdir(FOLDER)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
