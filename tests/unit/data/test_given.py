"""Whatever a user has at hand becomes the same batch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pillow

from protodepth.data.files import images
from protodepth.data.frame import Frame
from protodepth.data.given import read
from protodepth.errors import DataError

SIZE = (12, 16)
IMAGE = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), dtype=np.uint8)
POINTS = np.zeros(SIZE, np.float32)
POINTS[3, 4], POINTS[8, 9] = 1.5, 2.25
CAMERA = (14.0, 14.0, 8.0, 6.0)
K = np.array([[14.0, 0, 8], [0, 14, 6], [0, 0, 1]])


def files(folder: Path) -> tuple[Path, Path, Path]:
    paths = folder / "a.png", folder / "a_depth.png", folder / "K.txt"
    images.write_image(paths[0], IMAGE)
    images.write_depth(paths[1], POINTS, "mm")
    np.savetxt(paths[2], K)
    return paths


@pytest.mark.parametrize("as_text", [True, False])
def test_paths(tmp_path: Path, as_text: bool) -> None:
    given: tuple[Any, ...] = files(tmp_path)
    image, sparse, camera = map(str, given) if as_text else given
    batch, several = read(image, sparse, camera, unit="mm")
    assert not several
    assert torch.equal(batch.image, read(IMAGE, POINTS, CAMERA)[0].image)
    np.testing.assert_allclose(batch.sparse_depth[0, 0], POINTS)
    np.testing.assert_allclose(batch.intrinsics[0], K)


@pytest.mark.parametrize(
    "image",
    [
        Pillow.fromarray(IMAGE),
        IMAGE.transpose(2, 0, 1),
        torch.from_numpy(IMAGE).permute(2, 0, 1),
        IMAGE.astype(np.float32) / 255,
    ],
)
def test_pictures_of_every_kind(image: Any) -> None:
    torch.testing.assert_close(read(image, POINTS, CAMERA)[0].image, read(IMAGE, POINTS, CAMERA)[0].image)


def test_a_frame_brings_everything() -> None:
    frame = Frame(image=IMAGE, sparse_depth=POINTS, intrinsics=K)
    batch, several = read(frame, None, None)
    assert not several
    assert torch.equal(batch.sparse_depth, read(IMAGE, POINTS, CAMERA)[0].sparse_depth)
    both, several = read([frame, frame], None, None)
    assert several
    assert len(both) == 2


@pytest.mark.parametrize("camera", [CAMERA, K, np.stack([K, K]), [CAMERA, CAMERA], K.tolist()])
def test_several_frames_share_a_camera_or_have_their_own(camera: Any) -> None:
    batch, several = read(np.stack([IMAGE, IMAGE]), np.stack([POINTS, POINTS]), camera)
    assert several
    assert tuple(batch.image.shape) == (2, 3, *SIZE)
    np.testing.assert_allclose(batch.intrinsics[1], K)
    assert read(batch, None, None) == (batch, True)


def test_whole_numbers_need_their_unit() -> None:
    whole = (POINTS * 1000).astype(np.uint16)
    with pytest.raises(DataError, match=r'whole numbers \(up to 2250\).*unit="mm"'):
        read(IMAGE, whole, CAMERA)
    for depth in (whole, whole[None], Pillow.fromarray(whole)):
        np.testing.assert_allclose(read(IMAGE, depth, CAMERA, unit="mm")[0].sparse_depth[0, 0], POINTS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((IMAGE, None, CAMERA), "sparse depth is missing"),
        ((IMAGE, np.full(SIZE, 65535, np.uint16), CAMERA), "no points"),
        ((IMAGE, POINTS, None), "intrinsics is missing"),
        (([], [], CAMERA), "no frames were given"),
        (([IMAGE, IMAGE], [POINTS], CAMERA), "2 images, 1 sparse maps and 2 cameras"),
    ],
)
def test_what_is_missing_is_said(arguments: tuple[Any, Any, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(*arguments)
