"""Frames described by lines of JSON, and the one reader that turns a line into arrays.

An entry names files, not pixels, so that a dataset of 100,000 frames costs a memory-mapped text file and one array
of offsets.  Keys: ``id``, ``image`` (a picture; with ``"triplet": true`` three frames side by side), ``neighbours``
(pictures), ``poses`` (16 numbers each, g_{tau t}), ``K`` (9 numbers, for the frame after resize and crop), ``sparse``
or ``dense`` (depth; dense is thinned by the sampler), ``truth``, ``fault`` (why the frame cannot be read), ``crop``
(top, left, height, width; else the reader's).  A reference ``file#inside`` lies in a container file (.sens, .mat,
.parquet) that the dataset knows how to open; ``@/file`` is a derived file beside the manifest.
"""

import hashlib
import io
import json
import mmap
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image as Picture

from protodepth.data import sampling
from protodepth.data.faults import error_of, foreign
from protodepth.data.files import images
from protodepth.data.files.text import reading
from protodepth.data.frame import Frame
from protodepth.errors import DataError, SizeError
from protodepth.types import Float

Entry = dict[str, Any]


class EntryTable:
    """Entries by number: JSON lines in a file (memory-mapped) or packed in memory, with an offset index.

    >>> table = EntryTable.pack([{"id": "a"}, {"id": "b"}])
    >>> len(table), table[1]["id"]
    (2, 'b')
    """

    def __init__(self, data: bytes | mmap.mmap, offsets: np.ndarray, path: Path | None = None) -> None:
        self._data, self._offsets, self._path = data, offsets, path

    @classmethod
    def pack(cls, entries: Iterable[Mapping[str, Any]]) -> "EntryTable":
        lines = io.BytesIO()
        offsets = [0]
        for entry in entries:
            lines.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
            offsets.append(lines.tell())
        return cls(lines.getvalue(), np.asarray(offsets, np.int64))

    @classmethod
    def open(cls, path: Path) -> "EntryTable":
        """A JSONL file; only the positions of its line ends are kept."""
        try:
            with Path(path).open("rb") as file:
                size = file.seek(0, io.SEEK_END)
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        except OSError as error:
            raise DataError(f"manifest {path} cannot be read ({error.strerror}): run protodepth data prepare") from None
        return cls(data, _line_offsets(data), Path(path))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> Entry:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        line = self._data[self._offsets[index] : self._offsets[index + 1]]
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{self._path or 'manifest'}, line {index + 1} is not JSON ({error})") from None
        if not isinstance(entry, dict):
            raise DataError(f"{self._path or 'manifest'}, line {index + 1} is no entry: prepare it again")
        return entry

    def __getstate__(self) -> dict[str, Any]:
        """A spawned worker opens the file itself: nothing big travels."""
        return {"path": self._path, "data": None if self._path else bytes(self._data), "offsets": self._offsets}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["path"] is not None:
            self.__dict__.update(EntryTable.open(state["path"]).__dict__)
        else:
            self._data, self._offsets, self._path = state["data"], state["offsets"], None

    def digest(self) -> str:
        """sha256 of all lines: the identity of the list in a run record."""
        return hashlib.sha256(self._data).hexdigest()


def _line_offsets(data: bytes | mmap.mmap, chunk: int = 1 << 22) -> np.ndarray:
    ends = [np.zeros(1, np.int64)]
    for start in range(0, len(data), chunk):
        block = np.frombuffer(data[start : start + chunk], np.uint8)
        ends.append(np.flatnonzero(block == 10) + start + 1)
    offsets = np.concatenate(ends)
    return offsets if offsets[-1] == len(data) else np.append(offsets, len(data))


class Container(Protocol):
    """Where the pictures and depth of an entry come from if one file holds many. Must be picklable."""

    def image(self, path: Path, inside: str) -> np.ndarray: ...
    def image_bytes(self, path: Path, inside: str) -> bytes: ...
    def depth(self, path: Path, inside: str) -> Float[np.ndarray, "h w"]: ...


class DepthContainer:
    """A container that holds depth alone: the pictures of its frames are files of their own."""

    __slots__ = ()

    def image(self, path: Path, inside: str) -> np.ndarray:
        raise DataError(f"{path}#{inside} is not a picture")

    def image_bytes(self, path: Path, inside: str) -> bytes:
        raise DataError(f"{path}#{inside} is not a picture")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameReader:
    """Turns an entry into a Frame.  Everything here is part of the dataset's identity (``describe``)."""

    root: Path
    unit: str = "kitti"  # of sparse and dense depth
    truth_unit: str | None = None  # None: as ``unit``
    sampler: str | None = None  # for entries with ``dense`` depth, e.g. "harris:1500"
    seed: int = 0
    withhold: float = 0.0  # share of the sparse points taken out of the input and used as ground truth
    truth_without_input: bool = False  # ground truth leaves out the pixels that the network is given
    resize: tuple[int, int] | None = None  # (height, width) of images, before the crop
    crop: tuple[int, int, int, int] | None = None  # (top, left, height, width) of images and depth
    max_depth: float | None = None  # metres; farther values count as no measurement (sky) ...
    far: str = "drop"  # ... or, with "clip", as this depth
    without_largest: bool = False  # 65535 counts as no measurement
    container: Container | None = None
    derived: Path | None = None  # folder of ``@/`` references; depth there is always in unit kitti

    def describe(self) -> dict[str, Any]:
        """What a run record keeps of the reader."""
        return {
            "unit": self.unit,
            "sampler": self.sampler,
            "seed": self.seed,
            "withhold": self.withhold,
            "resize": self.resize,
            "crop": self.crop,
            "max_depth": self.max_depth,
            "far": self.far,
        }

    def __call__(self, entry: Entry) -> Frame:
        with reading(f"frame {str(entry.get('id'))[:80]} of {self.root}"):
            return self._frame(entry)

    def _frame(self, entry: Entry) -> Frame:
        if "fault" in entry:  # found while the entry was made
            raise error_of(entry.get("fault_kind", ""))(entry["fault"])
        if "crop" in entry:
            top, left, height, width = entry["crop"]
            return replace(self, crop=(top, left, height, width))({k: v for k, v in entry.items() if k != "crop"})
        image, neighbours = self._pictures(entry)
        sparse, truth = self._depths(entry, image)
        return Frame(
            image=image,
            sparse_depth=sparse,
            intrinsics=np.asarray(entry["K"], np.float32).reshape(3, 3),
            neighbours=neighbours,
            poses=tuple(np.asarray(p, np.float32).reshape(4, 4) for p in entry.get("poses", ())),
            ground_truth=truth,
            name=entry["id"],
        )

    def file_fault(self, entry: Entry) -> str | None:
        """Why a file of the entry is certainly missing or cut off, from the last bytes of each alone, or None."""
        if "fault" in entry:
            return entry["fault"]
        refs = [*(entry[key] for key in ("image", "sparse", "dense", "truth") if entry.get(key))]
        for ref in dict.fromkeys([*refs, *entry.get("neighbours", ())]):
            path, inside = self._locate(ref)
            why = images.broken_tail(path) if inside is None else None if path.exists() else "does not exist"
            if why:
                return f"{path} {why}"
        return None

    def _pictures(self, entry: Entry) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        if entry.get("triplet"):
            before, image, after = _split_triplet(self._image(entry["image"]), entry["image"])
            return self._shape(image), (self._shape(before), self._shape(after))
        refs = (entry["image"], *entry.get("neighbours", ()))
        image, *others = (self._shape(self._image(ref)) for ref in refs)
        return image, tuple(others)

    def _shape(self, image: np.ndarray) -> np.ndarray:
        if self.resize is not None and image.shape[:2] != self.resize:
            box = Picture.Resampling.BOX  # area average
            image = np.asarray(Picture.fromarray(image).resize(self.resize[::-1], box))
        return self._cut(image)

    def _cut(self, array: np.ndarray) -> np.ndarray:
        if self.crop is None:
            return array
        top, left, height, width = self.crop
        if array.shape[0] < top + height or array.shape[1] < left + width:
            raise SizeError(f"a map of {array.shape[1]}x{array.shape[0]} is smaller than the crop {self.crop}")
        return np.ascontiguousarray(array[top : top + height, left : left + width])

    def _image(self, ref: str) -> np.ndarray:
        path, inside = self._locate(ref)
        if inside is not None and self.container is not None:
            with foreign(path):
                return self.container.image(path, inside)
        return images.read_image(path)

    def _locate(self, ref: str) -> tuple[Path, str | None]:
        if ref.startswith("@/") and self.derived is not None:
            return self.derived / ref[2:], None
        if self.container is not None and "#" in ref:
            name, inside = ref.rsplit("#", 1)
            return self.root / name, inside
        return self.root / ref, None

    def _depth(self, ref: str, unit: str, size: tuple[int, int]) -> Float[np.ndarray, "h w"]:
        path, inside = self._locate(ref)
        if inside is not None and self.container is not None:
            with foreign(path):
                depth = self.container.depth(path, inside)
        else:
            own = "kitti" if ref.startswith("@/") else unit
            depth = images.read_depth(path, own, keep_largest=not self.without_largest)
        depth = self._cut(depth) if depth.shape != size else depth
        if depth.shape != size:
            have, need = f"{depth.shape[1]}x{depth.shape[0]}", f"{size[1]}x{size[0]}"
            raise SizeError(f"depth {ref} is {have}, its image {need}: project or export the depth at the image's size")
        if self.max_depth is not None:
            depth = np.where(depth < self.max_depth, depth, np.float32(self.max_depth if self.far == "clip" else 0))
        return depth

    def _depths(self, entry: Entry, image: np.ndarray) -> tuple[Float[np.ndarray, "h w"], np.ndarray | None]:
        size = (image.shape[0], image.shape[1])
        truth = self._depth(entry["truth"], self.truth_unit or self.unit, size) if entry.get("truth") else None
        if entry.get("sparse"):
            sparse = self._depth(entry["sparse"], self.unit, size)
        else:
            same = truth is not None and entry["dense"] == entry["truth"] and self.truth_unit in (None, self.unit)
            dense = truth if same and truth is not None else self._depth(entry["dense"], self.unit, size)
            if (self.sampler or "").partition(":")[0] in sampling.STORED_IMAGE:
                image = self._image(entry["image"])
            sparse = _sample_sparse(self.sampler or "", image, dense, self.seed, entry["id"])
            truth = dense if truth is None else truth
        if self.withhold > 0:
            sparse, held = withhold(sparse, self.withhold, seed=self.seed, name=entry["id"])
            truth = held if truth is None else truth
        if truth is not None and self.truth_without_input:
            truth = np.where(sparse > 0, np.float32(0), truth)
        return sparse, truth


def frame_seed(seed: int, name: str) -> int:
    """A seed for what an entry's reader draws: by the dataset's seed and the frame, not by the order of reading."""
    return zlib.crc32(f"{seed}|{name}".encode())


def _sample_sparse(
    sampler: str, image: np.ndarray, dense: Float[np.ndarray, "h w"], seed: int, name: str
) -> Float[np.ndarray, "h w"]:
    """The dense map at the pixels that the named sampler picks, 0 elsewhere."""
    return sampling.parse_sampler(sampler)(image, dense, frame_seed(seed, name))


def withhold(
    sparse: Float[np.ndarray, "h w"], share: float, *, seed: int = 0, name: str = ""
) -> tuple[Float[np.ndarray, "h w"], Float[np.ndarray, "h w"]]:
    """Split sparse points into (input, held out) by a seeded draw; together they are the original.

    >>> given, held = withhold(np.ones((10, 10), np.float32), 0.2)
    >>> int(given.sum()), int(held.sum()), int((given * held).sum())
    (80, 20, 0)
    """
    if not 0 <= share < 1:
        raise DataError(f"withhold is {share}, expected a share from 0 to below 1")
    points = np.flatnonzero(sparse)
    chosen = np.random.default_rng(frame_seed(seed, name)).permutation(points)[: round(share * len(points))]
    held = np.zeros_like(sparse)
    held.flat[chosen] = sparse.flat[chosen]
    return sparse - held, held


def _split_triplet(picture: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The frames t-1, t, t+1 of one picture that holds them side by side."""
    width = picture.shape[1]
    if width % 3:
        raise SizeError(f"{name} is {width} px wide, which three frames side by side cannot be (not divisible by 3)")
    third = width // 3
    before, image, after = (np.ascontiguousarray(picture[:, i * third : (i + 1) * third]) for i in range(3))
    return before, image, after


@dataclass(frozen=True, slots=True)
class EntryFrames:
    """A FrameDataset: a table of entries and the reader for them."""

    table: EntryTable
    reader: FrameReader

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> Frame:
        return self.reader(self.table[index])

    def name(self, index: int) -> str:
        """The frame's name without reading its pixels."""
        return self.table[index]["id"]


def digest(*datasets: EntryFrames) -> str:
    """One hash over the entries of several datasets."""
    return hashlib.sha256("".join(d.table.digest() for d in datasets).encode()).hexdigest()[:16]
