"""The built-in worlds by name: procedurally drawn domains of image triplets with exact depth and poses, offline.

``WORLDS`` says how the domains differ; the other files here say what stands in them.  Every frame has its own scene.
Frame ``index`` of a split is drawn from ``SeedSequence((crc32(world), split, seed, index))`` with split 0, 1, 2 for
train, val, test, so splits share no scene, and a longer dataset starts with the frames of a shorter one.
"""

import hashlib
import json
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from protodepth.data import sampling
from protodepth.data.arguments import datasets
from protodepth.data.frame import SPLITS, Domain, EvalRules, Frame
from protodepth.data.worlds import anywhere, indoor, outdoor
from protodepth.data.worlds.raycast import Camera, Scene, relative, rotation
from protodepth.data.worlds.sensors import Corners, Lidar, Range, corner_points, lidar_points, lidar_returns
from protodepth.data.worlds.shading import depth_map, photograph
from protodepth.data.worlds.stage import SceneMaker
from protodepth.errors import DataError, UnknownNameError
from protodepth.storage.space import check_memory
from protodepth.types import Float

VERSION = 1  # of the drawn data; the cache also depends on the source text
SMALLEST = 16  # pixels a side
PIXEL = 1000.0  # bytes that drawing takes for each; measured: 820 in a street, 990 in a room
FEW_BYTES = 2.0**28  # not worth asking for
KEPT = 2 * (3 * 3 + 2 * 4)  # bytes of a pixel of every frame that is kept: three pictures, two maps, and their copy


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSpec:
    name: str
    indoor: bool
    focal: float  # focal length / image width
    height: Range  # of the camera above the ground
    yaw: float  # degrees, drawn in +-
    pitch: Range  # degrees, down is positive
    step: Range  # metres between frames
    forward: float  # share of the step along the view; the rest is sideways
    turn: float  # degrees between frames, drawn in +-
    gain: float  # exposure
    image_noise: float  # standard deviation in [0, 1]
    max_depth: float
    sensor: Corners | Lidar


def _indoor(name: str, **rest: Any) -> WorldSpec:
    return WorldSpec(name=name, indoor=True, step=(0.03, 0.08), forward=0.3, turn=0.8, max_depth=6.0, **rest)


def _outdoor(name: str, **rest: Any) -> WorldSpec:
    return WorldSpec(name=name, indoor=False, step=(0.4, 1.0), forward=0.97, turn=0.6, max_depth=80.0, **rest)


# fmt: off
WORLDS: Mapping[str, WorldSpec] = {spec.name: spec for spec in (
    _indoor("room", focal=0.85, height=(1.2, 1.5), yaw=28, pitch=(2, 16), gain=1.0, image_noise=0.005,
            sensor=Corners(sampler="harris", density=0.015, noise=0.01)),
    _indoor("warehouse", focal=0.55, height=(1.6, 2.2), yaw=11, pitch=(0, 9), gain=1.05, image_noise=0.004,
            sensor=Corners(sampler="harris_grid", density=0.006, noise=0.03)),
    _indoor("corridor_night", focal=1.15, height=(1.1, 1.4), yaw=10, pitch=(2, 12), gain=1.0, image_noise=0.012,
            sensor=Corners(sampler="harris", density=0.010, noise=0.02)),
    _outdoor("street", focal=0.75, height=(1.55, 1.75), yaw=5, pitch=(-1, 3), gain=0.95, image_noise=0.005,
             sensor=Lidar(lines=14, columns=40, elevation=(-8, 25), noise=0.02, relative_noise=0.002, dropout=0.1,
                          offset=(0.0, -0.25, -0.2))),
    _outdoor("street_dusk", focal=1.0, height=(1.3, 1.5), yaw=4, pitch=(-4, 0), gain=1.0, image_noise=0.010,
             sensor=Lidar(lines=7, columns=42, elevation=(-14, 16), noise=0.06, relative_noise=0.01, dropout=0.2,
                          offset=(0.3, -0.35, 0.1))),
    _outdoor("highway", focal=1.3, height=(2.2, 2.6), yaw=3, pitch=(2, 5), gain=1.0, image_noise=0.006,
             sensor=Lidar(lines=6, columns=52, elevation=(-3, 16), noise=0.04, relative_noise=0.004, dropout=0.25,
                          offset=(0.0, -0.5, 0.4))),
    # Not in INDOOR or OUTDOOR: for trials on domains no model has seen.
    _indoor("office", focal=0.7, height=(1.3, 1.6), yaw=14, pitch=(0, 10), gain=0.95, image_noise=0.005,
            sensor=Corners(sampler="uniform", density=0.008, noise=0.015)),
    _outdoor("garden", focal=0.9, height=(1.4, 1.7), yaw=8, pitch=(-2, 3), gain=0.95, image_noise=0.006,
             sensor=Lidar(lines=8, columns=36, elevation=(-10, 18), noise=0.03, relative_noise=0.005, dropout=0.15,
                          offset=(0.1, -0.3, 0.0))),
)}
# fmt: on
INDOOR = ("room", "warehouse", "corridor_night")
OUTDOOR = ("street", "street_dusk", "highway")
LAYOUTS: Mapping[str, SceneMaker] = {
    "room": indoor.room,
    "warehouse": indoor.warehouse,
    "corridor_night": indoor.corridor_night,
    "street": outdoor.street,
    "street_dusk": outdoor.street_dusk,
    "highway": outdoor.highway,
    "office": indoor.office,
    "garden": outdoor.garden,
}


def spec_of(name: str) -> WorldSpec:
    """The specification of a built-in world (its scene, camera, sensor) by name."""
    if name not in WORLDS:
        raise UnknownNameError("world", name, (*WORLDS, anywhere.NAME))
    return WORLDS[name]


# --- drawing ----------------------------------------------------------------------------------------------------------


def _cameras(spec: WorldSpec, rng: np.random.Generator, size: tuple[int, int]) -> tuple[Camera, Camera, Camera]:
    """The cameras t-1, t, t+1 of one triplet; the middle one stands at x = z = 0."""
    h, w = size
    f = spec.focal * w
    K = np.array([[f, 0.0, (w - 1) / 2 + rng.uniform(-0.01, 0.01) * w], [0.0, f, (h - 1) / 2], [0.0, 0.0, 1.0]])
    eye = np.array([0.0, -rng.uniform(*spec.height), 0.0])
    angles = np.radians([rng.uniform(-spec.yaw, spec.yaw), rng.uniform(*spec.pitch), rng.normal(0, 0.5)])
    R = rotation(*angles)
    ahead = spec.forward * (1.0 if not spec.indoor else rng.choice([-1.0, 1.0]))
    side = np.sqrt(1 - spec.forward**2) * rng.choice([-1.0, 1.0])
    lift = 0.0 if not spec.indoor else rng.uniform(-0.4, 0.4)
    way = np.array([side, lift, ahead])
    step = np.einsum("ij,j->i", R, way / np.sqrt((way * way).sum())) * rng.uniform(*spec.step)
    out = []
    for sign in (-1, 0, 1):
        turn = sign * np.radians(rng.uniform(-1, 1, 3) * spec.turn * np.array([1.0, 0.3, 0.3]))
        stretch = rng.uniform(0.9, 1.1)
        out.append(Camera(K, rotation(*(angles + turn)), eye + sign * stretch * step))
    return out[0], out[1], out[2]


def set_scene(
    spec: WorldSpec, sequence: np.random.SeedSequence, size: tuple[int, int]
) -> tuple[Scene, tuple[Camera, Camera, Camera], np.random.Generator, np.random.Generator]:
    """A frame of a world before it is drawn: the scene, the cameras t-1, t, t+1, generators of film grain and sensor.

    Four independent streams, so that a change of size or sensor leaves the scene alone.  ``spawn`` is not used: it
    would change ``sequence``, and a second call would draw something else.
    """
    keys = ((*sequence.spawn_key, i) for i in range(4))
    children = (np.random.SeedSequence(sequence.entropy, spawn_key=key) for key in keys)
    motion, layout, film, sensing = (np.random.default_rng(child) for child in children)
    three = _cameras(spec, motion, size)
    x, y, z = (float(v) for v in three[1].origin)
    return LAYOUTS[spec.name](layout, (x, y, z)), three, film, sensing


def develop(picture: np.ndarray, spec: WorldSpec, rng: np.random.Generator) -> np.ndarray:
    """The picture of a world as its camera stores it: gain, noise, eight bits."""
    noisy = np.clip(picture * spec.gain, 0, 1) + spec.image_noise * rng.standard_normal(picture.shape)
    return (np.clip(noisy, 0, 1) * 255 + 0.5).astype(np.uint8)


def sense(
    spec: WorldSpec, scene: Scene, camera: Camera, picture: np.ndarray, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "h w"], Float[np.ndarray, "h w"]]:
    """(sparse depth as the world's own sensor measures it, exact depth), both 0 where there is nothing within reach."""
    size = (picture.shape[0], picture.shape[1])
    depth = depth_map(scene, camera, size)
    truth = np.where(depth <= spec.max_depth, depth, 0.0)
    if isinstance(spec.sensor, Corners):
        sparse = corner_points(spec.sensor, picture, truth, rng)
    else:
        returns = lidar_returns(spec.sensor, scene, camera, size)
        sparse = lidar_points(spec.sensor, returns[:, returns[2] <= spec.max_depth], truth, rng)
    return sparse.astype(np.float32), truth.astype(np.float32)


def render(
    spec: WorldSpec, seed: int | np.random.SeedSequence, size: tuple[int, int] = (64, 96), *, name: str = ""
) -> Frame:
    """Draw one triplet.  The scene and the motion depend on the seed alone, not on the size.

    >>> frame = render(WORLDS["room"], seed=0, size=(32, 48))
    >>> frame.image.shape, len(frame.neighbours), bool((frame.ground_truth > 0).all())
    ((32, 48, 3), 2, True)
    """
    check_drawing(size)
    sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence((_crc(spec.name), seed))
    scene, (before, middle, after), film, sensing = set_scene(spec, sequence, size)
    pictures = [develop(photograph(scene, c, size), spec, film) for c in (before, middle, after)]
    sparse, truth = sense(spec, scene, middle, pictures[1], sensing)
    return Frame(
        image=pictures[1],
        sparse_depth=sparse,
        intrinsics=middle.intrinsics,
        neighbours=(pictures[0], pictures[2]),
        poses=tuple(relative(middle, c) for c in (before, after)),
        ground_truth=truth,
        name=name or f"{spec.name}-{sequence.entropy}",
    )


def _crc(name: str) -> int:
    return zlib.crc32(name.encode())


def check_drawing(size: tuple[int, int], kept: int = 0) -> None:
    """Refuse a size at which no world can be drawn, or ``kept`` frames of which no memory holds."""
    if len(size) != 2 or min(size) < SMALLEST:
        raise DataError(f"a world is drawn at (height, width) of at least {SMALLEST} pixels each, got {tuple(size)}")
    pixels = size[0] * size[1]
    if pixels * (PIXEL + kept * KEPT) > FEW_BYTES:
        what = f"a world of {f'{kept} frames of ' if kept else ''}{size[0]}x{size[1]}"
        check_memory(pixels * (PIXEL + kept * KEPT), what, "draw it smaller, or fewer frames")


# --- datasets ---------------------------------------------------------------------------------------------------------


class WorldDataset:
    """``count`` triplets of one world and split, drawn at first use and kept in a cache file.

    >>> data = WorldDataset("street", "val", count=1, size=(32, 48), cache=False)
    >>> len(data), data[0].name
    (1, 'street-val-s0-00000')
    """

    def __init__(
        self,
        domain: str,
        split: str,
        *,
        count: int,
        size: tuple[int, int] = (64, 96),
        seed: int = 0,
        cache: bool = True,
    ) -> None:
        if split not in SPLITS:
            raise UnknownNameError("split", split, SPLITS)
        if count < 1:
            raise DataError(f"a world needs at least one frame in each split, got count={count} for {domain} {split}")
        if seed < 0:
            raise DataError(f"the seed must be a whole number of at least 0, got {seed}")
        check_drawing(size, count)
        self.spec, self.split, self.count, self.seed, self.cache = spec_of(domain), split, count, seed, cache
        self.size = (int(size[0]), int(size[1]))
        self._arrays: dict[str, np.ndarray] | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Frame:
        if not -self.count <= index < self.count:
            raise IndexError(f"frame {index} of {self.count}")
        arrays, index = self._load(), index % self.count
        return Frame(
            image=arrays["image"][index, 1],
            sparse_depth=arrays["sparse"][index],
            intrinsics=arrays["intrinsics"][index],
            neighbours=(arrays["image"][index, 0], arrays["image"][index, 2]),
            poses=(arrays["poses"][index, 0], arrays["poses"][index, 1]),
            ground_truth=arrays["truth"][index],
            name=self._name(index),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Workers read the cache file themselves instead of receiving a copy."""
        state = dict(self.__dict__)
        if self.cache:
            state["_arrays"] = None
        return state

    def _name(self, index: int) -> str:
        return f"{self.spec.name}-{self.split}-s{self.seed}-{index:05d}"

    def draw(self, index: int) -> Frame:
        """Frame ``index``, drawn anew."""
        sequence = np.random.SeedSequence((_crc(self.spec.name), SPLITS.index(self.split), self.seed, index))
        return render(self.spec, sequence, self.size, name=self._name(index))

    @property
    def path(self) -> Path:
        """The cache file, named by the hash of everything the data depends on."""
        key = {
            "version": VERSION,
            "source": _source_digest(),
            "spec": asdict(self.spec),
            "split": self.split,
            "count": self.count,
            "size": self.size,
            "seed": self.seed,
        }
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        return cache_folder() / f"{self.spec.name}-{self.split}-{digest[:24]}.npz"

    def prepare(self, report: Callable[[int, int], None] | None = None) -> None:
        """Read or draw all frames now; ``report(done, count)`` is called after each drawn frame."""
        self._load(report)

    def _load(self, report: Callable[[int, int], None] | None = None) -> dict[str, np.ndarray]:
        if self._arrays is None:
            stored = _read(self.path, self.count, self.size) if self.cache else None
            self._arrays = stored or self._draw_all(report)
            if self.cache and stored is None:
                _write(self.path, self._arrays)
        return self._arrays

    def _draw_all(self, report: Callable[[int, int], None] | None) -> dict[str, np.ndarray]:
        frames = []
        for index in range(self.count):
            frames.append(self.draw(index))
            if report is not None:
                report(index + 1, self.count)
        return {
            "image": np.stack([np.stack([f.neighbours[0], f.image, f.neighbours[1]]) for f in frames]),
            "sparse": np.stack([f.sparse_depth for f in frames]),
            "truth": np.stack([f.ground_truth for f in frames if f.ground_truth is not None]),
            "intrinsics": np.stack([f.intrinsics for f in frames]),
            "poses": np.stack([np.stack(f.poses) for f in frames]),
        }


def cache_folder() -> Path:
    """Where drawn worlds are kept: ``$PROTODEPTH_CACHE``, or ``~/.cache/protodepth/worlds``."""
    chosen = os.environ.get("PROTODEPTH_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "protodepth" / "worlds"


def _source_digest() -> str:
    digest = hashlib.sha256()
    for file in (*sorted(Path(__file__).parent.glob("*.py")), Path(sampling.__file__)):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _read(path: Path, count: int, size: tuple[int, int]) -> dict[str, np.ndarray] | None:
    """The arrays of a cache file; None if there is none or it is damaged (it is then drawn again)."""
    shapes = {
        "image": (count, 3, *size, 3),
        "sparse": (count, *size),
        "truth": (count, *size),
        "intrinsics": (count, 3, 3),
        "poses": (count, 2, 4, 4),
    }
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in shapes}  # reading checks each member's CRC
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None
    return arrays if all(arrays[k].shape == shape for k, shape in shapes.items()) else None


def _write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Temp file, fsync, rename: readers and other writers see the old file or the whole new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot keep the drawn world in {path.parent} ({error.strerror}); "
            "set PROTODEPTH_CACHE to a folder with space that you can write to"
        ) from error


def world(
    domain: str,
    *,
    size: tuple[int, int] = (64, 96),
    train: int = 320,
    val: int = 32,
    test: int = 64,
    seed: int = 0,
    cache: bool = True,
) -> Domain:
    """A built-in domain with disjoint train, val and test scenes.

    >>> d = world("room", size=(32, 48), train=2, val=1, test=1, cache=False)
    >>> d.name, len(d.train), d.rules.max_depth
    ('room', 2, 5.0)
    """
    counts = {"train": train, "val": val, "test": test}
    if domain == anywhere.NAME:
        check_drawing(size)
        return anywhere.domain(counts, size, seed)
    spec = spec_of(domain)
    parts = {s: WorldDataset(domain, s, count=n, size=size, seed=seed, cache=cache) for s, n in counts.items()}
    rules = EvalRules(min_depth=0.2, max_depth=5.0) if spec.indoor else EvalRules(min_depth=0.001, max_depth=80.0)
    identity = {"source": "worlds", "world": domain, "version": VERSION, "size": list(size), "seed": seed, **counts}
    return Domain(name=domain, rules=rules, identity=identity, **parts)


@datasets.register("worlds")
def from_argument(argument: str, **options: Any) -> Domain:
    """``street`` or ``street?size=128x192&train=64&val=8&test=16&seed=1``; keyword options win over the text."""
    name, _, query = argument.partition("?")
    settings: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in ("size", "train", "val", "test", "seed"):
            raise UnknownNameError("option of a world", key, ("size", "train", "val", "test", "seed"))
        numbers = value.split("x") if key == "size" else [value]
        if len(numbers) != (2 if key == "size" else 1) or not all(re.fullmatch("[0-9]{1,9}", n) for n in numbers):
            raise DataError(
                f"worlds:{argument}: {key}={value!r} is no whole number of up to nine digits "
                "(size is written HEIGHTxWIDTH, as 64x96)"
            )
        settings[key] = tuple(int(n) for n in numbers) if key == "size" else int(value)
    return world(name, **{**settings, **options})
