"""NYUv2, written from a known scene and read back."""

from pathlib import Path

import numpy as np
import pytest

from helpers.data_scene import Shot, assert_frame_is, enlarge, walk
from helpers.dataset_writers import cut
from protodepth.data.arguments import open_domain
from protodepth.data.files import images
from protodepth.errors import DataError

NYU_K = np.array([[518.8579, 0, 325.5824], [0, 519.4696, 253.7362], [0, 0, 1]])


@pytest.fixture(scope="module")
def big_shots() -> list[Shot]:
    large = [enlarge(s, 10) for s in walk(3, size=(48, 64))]
    return [Shot(s.image, s.depth, NYU_K, s.pose) for s in large]


def test_the_labelled_mat_of_nyu_is_read_untransposed_with_its_splits(tmp_path: Path, big_shots: list[Shot]) -> None:
    h5py = pytest.importorskip("h5py")
    from scipy.io import savemat

    with h5py.File(tmp_path / "nyu_depth_v2_labeled.mat", "w", userblock_size=512) as file:
        file["images"] = np.stack([s.image.transpose(2, 1, 0) for s in big_shots])
        file["depths"] = np.stack([s.depth.T.astype(np.float32) for s in big_shots])
    savemat(tmp_path / "splits.mat", {"trainNdxs": np.array([[2]]), "testNdxs": np.array([[1], [3]])})
    domain = open_domain(f"nyu_v2:{tmp_path}", sampler="uniform:300")
    assert (len(domain.val), len(domain.test)) == (1, 2)
    assert_frame_is(domain.test[1], cut(big_shots[2], 32, 32, 416, 576), quantum=1e-5)
    frame = domain.val[0]
    assert_frame_is(frame, cut(big_shots[1], 32, 32, 416, 576), quantum=1e-5)
    assert (frame.sparse_depth > 0).sum() == 300


def test_nyu_h5_folders_give_training_triplets(tmp_path: Path, big_shots: list[Shot]) -> None:
    h5py = pytest.importorskip("h5py")
    for split, scene in (("train", "kitchen_0001"), ("val", "official")):
        for i, shot in enumerate(big_shots):
            path = tmp_path / split / scene / f"{i + 1:05d}.h5"
            path.parent.mkdir(parents=True, exist_ok=True)
            with h5py.File(path, "w") as file:
                file["rgb"], file["depth"] = shot.image.transpose(2, 0, 1), shot.depth.astype(np.float32)
    domain = open_domain(f"nyu_v2:{tmp_path}", sampler="uniform:300", val_share=0.0)
    cropped = [cut(s, 32, 32, 416, 576) for s in big_shots]
    frame = domain.train[0]
    assert_frame_is(frame, cropped[1], quantum=1e-5)
    assert all(np.array_equal(a, cropped[j].image) for a, j in zip(frame.neighbours, (0, 2), strict=True))
    assert len(domain.test) == 3


def test_nyu_pictures_are_value_over_256(tmp_path: Path, big_shots: list[Shot]) -> None:
    for i, shot in enumerate(big_shots[:2]):
        images.write_image(tmp_path / "testing" / "images" / f"{i}.png", shot.image)
        images.write_depth(tmp_path / "testing" / "depths" / f"{i}.png", shot.depth)
    domain = open_domain(f"nyu_v2:{tmp_path}", sampler="uniform:300")
    assert_frame_is(domain.test[1], cut(big_shots[1], 32, 32, 416, 576), quantum=1 / 256)


def test_nyu_raw_dumps_are_refused_with_the_alternatives(tmp_path: Path) -> None:
    (tmp_path / "kitchen_0001").mkdir()
    (tmp_path / "kitchen_0001" / "r-1294886363.0-1.ppm").write_bytes(b"P6")
    with pytest.raises(DataError, match="unsynchronised raw dump"):
        open_domain(f"nyu_v2:{tmp_path}")
