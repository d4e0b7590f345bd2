"""What the page computes: from a visitor's files or a built-in example to depth, with and without adapting."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from protodepth import arrays
from protodepth.data.doubt import check_points
from protodepth.data.files import cameras, images
from protodepth.data.frame import Frame
from protodepth.data.worlds.worlds import WORLDS, WorldDataset
from protodepth.errors import DataError, UnknownNameError
from protodepth.inference.inputs import unit_of_files
from protodepth.model import ProtoDepth
from protodepth.types import BASE, Prediction

AUTO = "auto"
IMAGE_FILES, DEPTH_FILES = (".png", ".jpg", ".jpeg"), (".png", ".npy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a visitor of the page may ask for."""

    file_bytes: int = 20 * 2**20
    files: int = 64  # uploads that are kept at a time ...
    stored_bytes: int = 200 * 2**20  # ... and their size
    pixels: int = 16_000_000  # less where the memory, as measured, holds fewer
    seconds: float = 30.0
    queue: int = 8  # visitors that may wait; one is served at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a visitor asks with one press of the page's button."""

    example: str = ""  # a built-in world; "" = the files
    image: str | None = None
    sparse: str | None = None
    intrinsics: str = ""  # fx, fy, cx, cy
    unit: str = AUTO
    domain: str = AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the page has to show for a question."""

    frame: Frame
    adapted: Prediction
    base: Prediction
    seconds: float  # of the adapted prediction
    note: str = ""

    @property
    def errors(self) -> tuple[float, float] | None:
        """Mean absolute error of base and adapted in metres, where ground truth is known."""
        truth = self.frame.ground_truth
        if truth is None:
            return None
        known = truth > 0
        base, adapted = (float(np.abs(p.depth - truth)[known].mean()) for p in (self.base, self.adapted))
        return base, adapted


def example_names(depth_range: tuple[float, float]) -> tuple[str, ...]:
    """Examples of the page: the built-in worlds whose depths a network with this range can answer."""
    low, high = depth_range
    return tuple(name for name, spec in WORLDS.items() if (low < 1 if spec.indoor else high > 20))


@lru_cache(maxsize=32)
def example(name: str) -> Frame:
    """A test frame of a world at the size that the bundled models learned."""
    return WorldDataset(name, "test", count=1, cache=False).draw(0)


def answer(model: ProtoDepth, question: Question, limits: Limits = Limits()) -> Answer:
    """Complete the depth of a question, in the domain it names and with the un-adapted network."""
    choices = (AUTO, BASE, *model.domains)
    if question.domain not in choices:
        raise UnknownNameError("domain", question.domain, choices)
    frame, note = read(question, model.backbone.depth_range, limits)
    inputs = (frame.image, frame.sparse_depth, frame.intrinsics)
    base = model.predict(*inputs, domain=BASE, force=True)  # read() has looked at the points
    started = time.perf_counter()
    adapted = model.predict(*inputs, domain=None if question.domain == AUTO else question.domain, force=True)
    return Answer(frame=frame, adapted=adapted, base=base, seconds=time.perf_counter() - started, note=note)


def read(question: Question, depth_range: tuple[float, float], limits: Limits) -> tuple[Frame, str]:
    """The frame that a question is about, and how the unit of its depth was found."""
    if question.example:
        names = example_names(depth_range)
        if question.example not in names:
            raise UnknownNameError("example", question.example, names)
        return example(question.example), ""
    if not question.image or not question.sparse:
        raise DataError("give an image and a sparse depth map, or pick an example")
    image, sparse = Path(question.image), Path(question.sparse)
    for path, suffixes in ((image, IMAGE_FILES), (sparse, DEPTH_FILES)):
        _check_file(path, suffixes, limits)
    picture = images.read_image(image)
    unit, note, read = unit_of_files([sparse], None if question.unit == AUTO else question.unit, depth_range)
    depth = images.read_depth(sparse, unit, raw=read.get(sparse))
    points = arrays.sparse_array(depth, (picture.shape[0], picture.shape[1]))
    stored = "metres" if sparse.suffix.lower() == ".npy" else unit
    check_points(points, depth_range, unit=stored, remedy="Choose another unit, or give metres in a .npy file")
    # Only numbers: a visitor must not name a file of this machine.
    K = cameras.intrinsics_matrix(cameras.numbers_in(question.intrinsics, "intrinsics"))
    return Frame(image=picture, sparse_depth=points, intrinsics=K, name=image.name), note


def _check_file(path: Path, suffixes: tuple[str, ...], limits: Limits) -> None:
    """Refuse what is too large before it is decoded."""
    if path.suffix.lower() not in suffixes:
        raise DataError(f"{path.name} is a {path.suffix or 'nameless'} file, expected {', '.join(suffixes)}")
    if not path.is_file():
        raise DataError(f"{path.name} is no longer here (uploads are removed after a while): drop it again")
    if path.stat().st_size > limits.file_bytes:
        raise DataError(
            f"{path.name} has {path.stat().st_size / 2**20:.0f} MiB, the limit is {limits.file_bytes / 2**20:.0f}"
        )
    if path.suffix.lower() == ".npy":
        return  # not compressed: its bytes limit its numbers
    height, width = images.image_size(path)
    if height * width > limits.pixels:
        raise DataError(
            f"{path.name} has {height * width / 1e6:.0f} megapixels, the limit is {limits.pixels / 1e6:.0f}: "
            "make it smaller"
        )


def intrinsics_text(frame: Frame) -> str:
    """The intrinsics of a frame as the page's field has them: fx, fy, cx, cy."""
    K = frame.intrinsics
    return ", ".join(f"{v:g}" for v in (K[0, 0], K[1, 1], K[0, 2], K[1, 2]))


def similarity_rows(prediction: Prediction) -> Mapping[str, float]:
    """What the page lists of an answer's similarities: cosines, the largest first."""
    return dict(sorted(prediction.similarity.items(), key=lambda kv: -kv[1]))
