"""Small networks and small worlds for all tests.  Every test starts from the same random numbers, on one thread."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from jaxtyping import install_import_hook

from helpers import shapes

# The shapes in the annotations are checked while tests run, and free in production.  Modules at the borders (arrays,
# metrics) check what users give by themselves.
CHECKED = ("prototypes", "descriptors", "model", "geometry", "losses", "data.augment")
install_import_hook([f"protodepth.{name}" for name in CHECKED], f"{shapes.__name__}.check")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

from protodepth.backbones.lite import Lite  # noqa: E402
from protodepth.backbones.posenet import PoseNet  # noqa: E402
from protodepth.data.batches import collate  # noqa: E402
from protodepth.data.frame import Domain  # noqa: E402
from protodepth.data.worlds.worlds import world  # noqa: E402
from protodepth.model import ProtoDepth  # noqa: E402
from protodepth.prototypes import PrototypeConfig  # noqa: E402
from protodepth.types import Batch  # noqa: E402

torch.set_num_threads(1)  # two tests run at once on two cores, and another number of threads may give other last bits

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SMALL = {"image_widths": (4, 4, 6, 6, 8), "depth_widths": (2, 2, 4, 4, 4)}


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> None:
    """Tests cannot pull the plug, so that flushing tells them nothing; it would be most of their time."""
    os.fsync = lambda fd: None  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    torch.manual_seed(0)
    np.random.seed(0)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Worlds drawn by tests, also by commands they start, never touch the user's cache; all workers share them."""
    before = os.environ.get("PROTODEPTH_CACHE")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "worlds"
    os.environ["PROTODEPTH_CACHE"] = str(folder)
    yield folder
    os.environ.pop("PROTODEPTH_CACHE")
    if before is not None:
        os.environ["PROTODEPTH_CACHE"] = before


def tiny_lite(depth_range: tuple[float, float] = (0.1, 8.0), seed: int = 0) -> Lite:
    """A lite network of 3,000 parameters whose residual is not near zero, so that latents matter to the output."""
    torch.manual_seed(seed)
    net = Lite(depth_range=depth_range, **SMALL)  # type: ignore[arg-type]
    torch.nn.init.normal_(net.head.weight, std=0.3)
    return net


def tiny_model(*, pose: bool = False, seed: int = 0, **prototypes: object) -> ProtoDepth:
    net = tiny_lite(seed=seed)
    config = PrototypeConfig(image_size=4, depth_size=3, **prototypes)  # type: ignore[arg-type]
    return ProtoDepth(net, config, pose=PoseNet("small") if pose else None)


def shake(model: ProtoDepth, name: str, seed: int = 1, amount: float = 0.5) -> None:
    """Move a domain away from its start, as training would."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.domain(name).parameters():
            parameter.add_(amount * torch.randn(parameter.shape, generator=random))


def random_batch(b: int = 2, height: int = 32, width: int = 48, seed: int = 0) -> Batch:
    """Noise images, a tenth of the pixels with a point between 0.5 and 5 m, two neighbours with small motions."""
    random = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=random)

    poses = []
    for sign in (-1, 1):
        pose = torch.eye(4).repeat(b, 1, 1)
        pose[:, :3, 3] = sign * 0.05 * uniform(b, 3)
        poses.append(pose)
    depth = 0.5 + 4.5 * uniform(b, 1, height, width)
    return Batch(
        image=uniform(b, 3, height, width),
        sparse_depth=depth * (uniform(b, 1, height, width) < 0.1),
        intrinsics=torch.tensor([[40.0, 0, width / 2], [0, 42.0, height / 2], [0, 0, 1]]).repeat(b, 1, 1),
        neighbours=(uniform(b, 3, height, width), uniform(b, 3, height, width)),
        poses=tuple(poses),
        ground_truth=depth,
    )


@pytest.fixture
def model() -> ProtoDepth:
    """A tiny model with a base domain ``room`` and two trained-like domains ``warehouse`` and ``night``."""
    made = tiny_model()
    made.add_domain("room", base=True)
    for seed, name in enumerate(("warehouse", "night"), start=1):
        made.add_domain(name, seed=seed)
        shake(made, name, seed)
    return made


@pytest.fixture
def batch() -> Batch:
    return random_batch()


@pytest.fixture(scope="session")
def room() -> Domain:
    return world("room", size=(32, 48), train=6, val=2, test=3, cache=False)


@pytest.fixture(scope="session")
def warehouse() -> Domain:
    return world("warehouse", size=(32, 48), train=6, val=2, test=3, cache=False)


@pytest.fixture(scope="session")
def corridor() -> Domain:
    return world("corridor_night", size=(32, 48), train=6, val=2, test=3, cache=False)


@pytest.fixture(scope="session")
def triplets(room: Domain) -> Batch:
    """Two training frames of ``room`` with neighbours and poses, and without ground truth."""
    return collate([room.train[0], room.train[1]])


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """One headless Chromium for a file of tests;
    here because a second conftest.py would hide this one from the tests that import it.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium is installed: apt install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as p:
        started = p.chromium.launch(executable_path=program, args=CHROMIUM_FLAGS)
        yield started
        started.close()
