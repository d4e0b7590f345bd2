"""A user's arrays: what is accepted, and that every refusal says what was given, what was expected, what to do."""

from typing import Any

import numpy as np
import pytest
import torch

from protodepth.data.arrays import image_array, intrinsics_array, size_fault, sparse_array, to_batch, to_batches
from protodepth.errors import DataError

SIZE = (12, 16)
IMAGE = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), dtype=np.uint8)
SPARSE = np.zeros(SIZE)
SPARSE[3, 4], SPARSE[7, 9] = 1.5, 2.5
K = np.array([[20.0, 0, 8], [0, 21.0, 6], [0, 0, 1]])


def test_bytes_and_floats_of_one_picture_mean_the_same() -> None:
    np.testing.assert_allclose(image_array(IMAGE), IMAGE / 255.0, atol=1e-7)
    np.testing.assert_array_equal(image_array(IMAGE), image_array(torch.from_numpy(IMAGE)))
    np.testing.assert_allclose(image_array(IMAGE / 255.0), image_array(IMAGE), atol=1e-7)
    with_alpha = np.concatenate([IMAGE, np.zeros((*SIZE, 1), np.uint8)], -1)
    np.testing.assert_array_equal(image_array(with_alpha), image_array(IMAGE))
    grey = image_array(IMAGE[..., 0])
    assert all(np.array_equal(grey[..., c], IMAGE[..., 0] / np.float32(255)) for c in range(3))


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (IMAGE[None], r"shape \(1, 12, 16, 3\), expected \(height, width, 3\)"),
        (IMAGE.astype(np.float32), r"values from 0 to 255.*divide by 255"),
        (IMAGE.astype(np.uint16) * 256, "divide by 65535"),
        (IMAGE / 255.0 - 0.5, "values from -0.5"),
        (np.full((*SIZE, 3), np.nan), "NaN"),
        (np.full((*SIZE, 3), "x"), "expected numbers"),
        (None, "image is missing"),
        ([[1, 2], [3]], "cannot be read as an array"),
        (np.zeros((7, 16, 3), np.uint8), "at least 8x8"),
        (np.zeros((0, 0, 3), np.uint8), "at least 8x8"),
    ],
)
def test_a_picture_that_is_none_is_refused(image: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        to_batch(image, SPARSE, K)


def test_points_may_be_missing_as_zero_or_nan_and_come_with_a_channel() -> None:
    holes = np.where(SPARSE == 0, np.nan, SPARSE)
    for given in (SPARSE, holes, SPARSE[..., None], SPARSE.astype(np.float16), torch.from_numpy(holes)):
        np.testing.assert_array_equal(sparse_array(given, SIZE), SPARSE)


@pytest.mark.parametrize(
    ("sparse", "message"),
    [
        (SPARSE.T, r"shape \(16, 12\), expected a map of \(12, 16\) like the image.*turned by 90 degrees"),
        (-SPARSE, "negative and 0 infinite"),
        (np.where(SPARSE > 0, np.inf, 0), "0 negative and"),
        (np.where(SPARSE > 0, -np.inf, 0), "negative and 0 infinite"),
        (np.zeros(SIZE), "no points"),
        (SPARSE > 0, "a mask of true and false"),
        (np.full(SIZE, np.nan), "no points"),
        (np.zeros((12, 16, 2)), "expected"),
    ],
)
def test_sparse_depth_that_cannot_be_used_is_refused(sparse: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        to_batch(IMAGE, sparse, K)


def test_four_numbers_are_the_matrix() -> None:
    np.testing.assert_array_equal(intrinsics_array((20, 21, 8, 6), SIZE), K)
    np.testing.assert_array_equal(intrinsics_array(torch.from_numpy(K), SIZE), K)
    skewed = K.copy()
    skewed[0, 1] = 0.3
    np.testing.assert_array_equal(intrinsics_array(skewed, SIZE), skewed)


@pytest.mark.parametrize(
    ("intrinsics", "message"),
    [
        ((20, 21, 8), r"shape \(3,\), expected \(3, 3\) or four numbers"),
        (np.eye(5), r"shape \(5, 5\)"),
        ((0, 21, 8, 6), "positive focal lengths"),
        ((20, -21, 8, 6), "positive focal lengths"),
        ((np.nan, 21, 8, 6), "finite"),
        (K.T, "transposed"),
        (2 * K, "1 in the corner"),
        ((1.2, 1.3, 0.5, 0.5), "look normalised"),
        ((1e-30, 20.0, 8.0, 6.0), "no camera of 16x12 pixels has fx=1e-30"),
        ((500, 500, 320, 240), "another resolution"),
    ],
)
def test_intrinsics_that_cannot_be_meant_are_refused(intrinsics: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        to_batch(IMAGE, SPARSE, intrinsics)


def test_the_users_arrays_are_not_changed() -> None:
    image, sparse, matrix = IMAGE.copy(), np.where(SPARSE == 0, np.nan, SPARSE).astype(np.float32), K.copy()
    batch = to_batch(image, sparse, matrix)
    batch.image.zero_(), batch.sparse_depth.zero_(), batch.intrinsics.zero_()
    np.testing.assert_array_equal(image, IMAGE)
    assert np.isnan(sparse).sum() == SPARSE.size - 2
    np.testing.assert_array_equal(matrix, K)


def test_several_frames_become_one_batch_in_order() -> None:
    batch = to_batches([IMAGE, IMAGE // 2], [SPARSE, 2 * SPARSE], [K, K])
    assert len(batch) == 2
    torch.testing.assert_close(batch.sparse_depth[1], 2 * batch.sparse_depth[0])
    single = to_batch(IMAGE // 2, 2 * SPARSE, K)
    assert torch.equal(batch[1:].image, single.image)
    with pytest.raises(DataError, match="one size"):
        to_batches([IMAGE, IMAGE[:, :12]], [SPARSE, SPARSE[:, :12]], [K, K])


@pytest.mark.parametrize(
    ("depth", "picture", "message"),
    [
        ((320, 240), (240, 320), "turned by 90 degrees"),
        ((240, 320), (720, 960), "make the picture 320x240 and divide the intrinsics by 3"),
        ((480, 640), (240, 320), "project the points into the picture again"),  # nothing says which points to drop
        ((240, 320), (480, 848), "project the points into the picture again"),
    ],
)
def test_two_sizes_come_with_their_remedy(depth: tuple[int, int], picture: tuple[int, int], message: str) -> None:
    assert message in str(size_fault(depth, picture))
