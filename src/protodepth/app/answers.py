"""What the page computes: from a visitor's files or a built-in example to depth, with and without adapting."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from protodepth.app.examples import example, example_names
from protodepth.data import arrays, interpolation
from protodepth.data.doubt import check_points
from protodepth.data.files import cameras, images
from protodepth.data.frame import Frame
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
    seconds: float = 60.0
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
    interpolated: np.ndarray  # h w, linear between the sparse points
    depth_range: tuple[float, float]  # of the network
    seconds: float  # of the adapted prediction
    note: str = ""
    by_distance: bool = False  # the domain was chosen by distance, not by the cosine of descriptors

    @property
    def learned(self) -> bool:
        """Whether a domain was used: without one, adapted and base are the same."""
        return self.adapted.domain != BASE

    @property
    def maps(self) -> dict[str, np.ndarray]:
        """Depth by the name that the page shows: the answer first, then what it is compared with."""
        network = "base network"
        answered = {f"domain {self.adapted.domain}": self.adapted.depth} if self.learned else {}
        truth = {} if self.frame.ground_truth is None else {"ground truth": self.frame.ground_truth}
        return {**answered, network: self.base.depth, "linear interpolation": self.interpolated, **truth}

    @property
    def errors(self) -> dict[str, float]:
        """Mean absolute error of each map in metres; empty where ground truth is not known."""
        truth = self.frame.ground_truth
        if truth is None:
            return {}
        known = truth > 0
        return {n: float(np.abs(d - truth)[known].mean()) for n, d in self.maps.items() if n != "ground truth"}

    @property
    def points(self) -> int:
        return int((self.frame.sparse_depth > 0).sum())

    @property
    def in_range(self) -> float:
        """Share of the sparse points that the network's depth range holds: a wrong unit shows here."""
        low, high = self.depth_range
        given = self.frame.sparse_depth[self.frame.sparse_depth > 0]
        return float(((given >= low) & (given <= high)).mean()) if given.size else 0.0


def answer(model: ProtoDepth, question: Question, limits: Limits = Limits()) -> Answer:
    """Complete the depth of a question, in the domain it names and with the un-adapted network."""
    choices = (AUTO, BASE, *model.domains)
    if question.domain not in choices:
        raise UnknownNameError("domain", question.domain, choices)
    frame, note = read(question, model.backbone.depth_range, limits)
    inputs = (frame.image, frame.sparse_depth, frame.intrinsics)
    started = time.perf_counter()
    chosen = None if question.domain == AUTO else question.domain
    adapted = model.predict(*inputs, domain=chosen, force=True)  # read() has looked at the points
    seconds = time.perf_counter() - started
    return Answer(
        frame=frame,
        adapted=adapted,
        base=adapted if adapted.domain == BASE else model.predict(*inputs, domain=BASE, force=True),
        interpolated=interpolation.linear(frame.sparse_depth).astype(np.float32),
        depth_range=model.backbone.depth_range,
        seconds=seconds,
        note=note,
        by_distance=model.selection == "gaussian" and bool(adapted.distance),
    )


def read(question: Question, depth_range: tuple[float, float], limits: Limits) -> tuple[Frame, str]:
    """The frame that a question is about, and how the unit of its depth was found."""
    if question.example:
        names = example_names(depth_range)
        if question.example not in names:
            raise UnknownNameError("example", question.example, names)
        return example(question.example), ""
    if not question.image or not question.sparse:
        missing = " and ".join(
            n for n, f in (("an image", question.image), ("its sparse depth", question.sparse)) if not f
        )
        raise DataError(f"drop {missing}, or pick an example")
    if not question.intrinsics.strip():
        raise DataError("type the camera's fx, fy, cx, cy in pixels: a point cloud needs them")
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


def nearness(answer: Answer) -> Mapping[str, tuple[float, float]]:
    """(length of its bar, number beside it) of each domain, the nearest first, by what the model chooses by."""
    p = answer.adapted
    if answer.by_distance:
        least = min(p.distance.values())
        rows = {name: (least / max(value, least, 1e-9), value) for name, value in p.distance.items()}
    else:
        rows = {name: (max(0.0, min(1.0, value)), value) for name, value in p.similarity.items()}
    return dict(sorted(rows.items(), key=lambda row: -row[1][0]))
