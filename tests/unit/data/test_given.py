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
        np.dstack([IMAGE, IMAGE[..., :1]]),
        torch.from_numpy(np.dstack([IMAGE, IMAGE[..., :1]])).permute(2, 0, 1),
    ],
)
def test_pictures_of_every_kind(image: Any) -> None:
    torch.testing.assert_close(read(image, POINTS, CAMERA)[0].image, read(IMAGE, POINTS, CAMERA)[0].image)


GREY = IMAGE[..., 0]


@pytest.mark.parametrize("image", [GREY, GREY[..., None], GREY[None], torch.from_numpy(GREY)[None]])
def test_grey_pictures_have_one_channel_anywhere(image: Any) -> None:
    batch = read(image, POINTS, CAMERA)[0]
    torch.testing.assert_close(batch.image[0, 2], torch.from_numpy(GREY) / 255)


@pytest.mark.parametrize(
    "camera",
    [
        {"fx": 14, "fy": 14, "cx": 8, "cy": 6},
        {"fl_x": 14, "fl_y": 14, "cx": 8, "cy": 6},
        {"K": K.tolist()},
        np.c_[K, np.zeros(3)],
        np.pad(K, ((0, 1), (0, 1))),
    ],
)
def test_cameras_of_every_kind(camera: Any) -> None:
    np.testing.assert_allclose(read(IMAGE, POINTS, camera)[0].intrinsics[0], K)


def test_masked_values_are_no_points() -> None:
    masked = np.ma.array(np.where(POINTS > 0, POINTS, 9.0), mask=POINTS == 0)
    np.testing.assert_allclose(read(IMAGE, masked, CAMERA)[0].sparse_depth[0, 0], POINTS)


def test_a_batch_of_one_picture_may_come_with_one_map() -> None:
    batch, several = read(torch.from_numpy(IMAGE).permute(2, 0, 1)[None], POINTS, CAMERA)
    assert several
    np.testing.assert_allclose(batch.sparse_depth[0, 0], POINTS)


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
        ((None, POINTS, CAMERA), "image is missing"),
        ((IMAGE, POINTS, {"f": 14}), r"has the keys \['f'\], expected fx, fy, cx, cy"),
        ((IMAGE.astype(np.uint16) * 257, POINTS, CAMERA), "divide by 65535"),
        ((IMAGE, np.ones((50, 3)), CAMERA), "expected a map of"),
        ((IMAGE, POINTS.T, CAMERA), "turned by 90 degrees"),
        ((POINTS, IMAGE, CAMERA), r"that of a picture: the order is image, sparse depth, intrinsics"),
        ((IMAGE, POINTS, "14,14,8"), "^intrinsics has 3 numbers"),  # no word of the command line's
        ((IMAGE, POINTS, "fx,fy,cx,cy"), "^intrinsics 'fx,fy,cx,cy': expected"),
        (([], [], CAMERA), "no frames were given"),
        (([IMAGE, IMAGE], [POINTS], CAMERA), "2 images, 1 sparse maps and 2 cameras"),
        (([IMAGE, IMAGE], 1.5, CAMERA), "several images were given, and as sparse depth a float"),
        ((IMAGE[None], np.float32(2), CAMERA), "several images were given, and as sparse depth a float32"),
        (([IMAGE], [POINTS], [[1, 2], [3]]), "lists of numbers that are no array"),
        (([[[1, 2, 3], [1, 2]]], [POINTS], CAMERA), "lists of numbers that are no array"),
    ],
)
def test_what_is_missing_is_said(arguments: tuple[Any, Any, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(*arguments)
