"""Each dataset's format, written byte by byte from a known scene and read back: depth, intrinsics, poses, neighbours."""

import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from data_scene import Shot, assert_frame_is, assert_neighbours_are, enlarge, thin, walk
from PIL import Image

from protodepth.data.arguments import open_domain
from protodepth.data.files import images
from protodepth.data.frame import Domain
from protodepth.data.manifest import prepare
from protodepth.errors import DataError, UnknownNameError

JPEG_LOSS = 6.0  # mean grey levels


def names(domain: Domain, split: str) -> list[str]:
    data = domain.split(split)
    return [data.name(i) for i in range(len(data))]  # type: ignore[attr-defined]


def jpeg(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=97, subsampling=0)
    return buffer.getvalue()


# --- official lists ---------------------------------------------------------------------------------------------------


def write_lists(root: Path, shots: list[Shot]) -> Path:
    rows: dict[str, list[str]] = {"image": [], "sparse_depth": [], "intrinsics": [], "ground_truth": []}
    np.save(root / "K.npy", shots[0].K.astype(np.float32))
    for i in range(1, len(shots) - 1):
        images.write_image(root / f"triplet/{i}.png", np.concatenate([s.image for s in shots[i - 1 : i + 2]], 1))
        images.write_depth(root / f"sparse/{i}.png", thin(shots[i].depth))
        images.write_depth(root / f"truth/{i}.png", shots[i].depth)
        for column, name in zip(rows, (f"triplet/{i}.png", f"sparse/{i}.png", "K.npy", f"truth/{i}.png"), strict=True):
            rows[column].append(f"data/old_place/{name}")
    for column, lines in rows.items():
        (root / f"{column}.txt").write_text("\n".join(lines) + "\n\nnot read after an empty line\n")
    text = "[train]\n" + "".join(f'{column} = "{column}.txt"\n' for column in rows)
    (root / "lists.toml").write_text(
        'remap = {"data/old_place/" = ""}\n' + text + "[rules]\nmin_depth = 0.2\nmax_depth = 5.0\n"
    )
    return root / "lists.toml"


def test_official_lists_with_triplets_side_by_side_give_the_scene(tmp_path: Path) -> None:
    shots = walk(4)
    domain = open_domain(f"lists:{write_lists(tmp_path, shots)}")
    assert len(domain.train) == 2
    assert_frame_is(domain.train[0], shots[1], quantum=1 / 256)
    frame = domain.train[1]
    assert [np.array_equal(n, s.image) for n, s in zip(frame.neighbours, (shots[1], shots[3]), strict=True)] == [
        True,
        True,
    ]
    assert (domain.rules.min_depth, domain.rules.max_depth) == (0.2, 5.0)


def test_unequal_lists_say_which_has_how_many_lines(tmp_path: Path) -> None:
    path = write_lists(tmp_path, walk(4))
    (tmp_path / "sparse_depth.txt").write_text("data/old_place/sparse/1.png\n")
    with pytest.raises(DataError, match=r"unequal.*image\.txt has 2 lines.*sparse_depth\.txt has 1 lines"):
        open_domain(f"lists:{path}")


def test_single_images_in_lists_are_told_from_triplets_by_their_width(tmp_path: Path) -> None:
    shots = walk(4)
    path = write_lists(tmp_path, shots)
    for i in (1, 2):
        images.write_image(tmp_path / f"triplet/{i}.png", shots[i].image)
    frame = open_domain(f"lists:{path}").train[0]
    assert frame.neighbours == ()
    assert_frame_is(frame, shots[1], quantum=1 / 256)


# --- VOID -------------------------------------------------------------------------------------------------------------


def write_void(root: Path, shots: list[Shot]) -> None:
    """Two sequences: the first for training (75 frames, so that one triplet is left after the ends), one for testing."""
    base = root / "void_500"
    lists: dict[str, list[str]] = {"train": [], "test": []}
    for split, sequence, count in (("train", "copyroom1", 72), ("test", "stairs0", 3)):
        place = base / "data" / sequence
        for i in range(count):
            shot, name = shots[i % len(shots)], f"155{i:04d}.{i:04d}.png"
            images.write_image(place / "image" / name, shot.image)
            images.write_depth(place / "sparse_depth" / name, thin(shot.depth))
            images.write_depth(place / "ground_truth" / name, shot.depth)
            lists[split].append(f"void_500/data/{sequence}/image/{name}")
        np.savetxt(place / "K.txt", shots[0].K)
    for split, lines in lists.items():
        (base / f"{split}_image.txt").write_text("\n".join(lines) + "\n")


def test_void_gives_triplets_ten_frames_apart_without_the_ends(tmp_path: Path) -> None:
    shots = walk(7, size=(24, 32))
    write_void(tmp_path, shots)
    domain = open_domain(f"void:{tmp_path}", density=500, val_share=0.0)
    assert [n.split("/")[1] for n in names(domain, "train")] == ["1550030.0030", "1550031.0031"]
    frame = domain.train[0]
    assert_frame_is(frame, shots[30 % 7], quantum=1 / 256)
    assert [np.array_equal(a, shots[j % 7].image) for a, j in zip(frame.neighbours, (20, 40), strict=True)] == [
        True,
        True,
    ]
    assert len(domain.test) == 3


def test_void_holds_out_whole_sequences_for_validation(tmp_path: Path) -> None:
    write_void(tmp_path, walk(3, size=(24, 32)))
    domain = open_domain(f"void:{tmp_path}?density=500&val_share=1.0")
    assert (len(domain.train), len(domain.val)) == (0, 72)


def test_options_are_checked_by_name_and_kind(tmp_path: Path) -> None:
    write_void(tmp_path, walk(3, size=(24, 32)))
    with pytest.raises(UnknownNameError, match="density, val_share"):
        open_domain(f"void:{tmp_path}", densty=500)
    with pytest.raises(DataError, match="'density'"):
        open_domain(f"void:{tmp_path}?density=many")
    with pytest.raises(UnknownNameError, match="150, 500, 1500"):
        open_domain(f"void:{tmp_path}?density=3")


# --- KITTI ------------------------------------------------------------------------------------------------------------

DATE = "2011_09_26"
DRIVE = f"{DATE}_drive_0001_sync"


def write_kitti(root: Path, shots: list[Shot], *, layout: str, size: tuple[int, int]) -> None:
    h, w = size
    K = shots[0].K
    P = np.hstack([K, [[-40.0], [0.0], [0.0]]])
    text = "calib_time: 09-Jan-2012 13:57:47\n"
    for camera in ("00", "02", "03"):
        text += f"S_rect_{camera}: {w:.6e} {h:.6e}\nP_rect_{camera}: " + " ".join(f"{v:.9e}" for v in P.ravel()) + "\n"
    (root / "raw" / DATE).mkdir(parents=True)
    (root / "raw" / DATE / "calib_cam_to_cam.txt").write_text(text)
    for camera in ("image_02", "image_03"):
        for i, shot in enumerate(shots):
            images.write_image(root / "raw" / DATE / DRIVE / camera / "data" / f"{i:010d}.png", shot.image)
            if 0 < i < len(shots) - 1:
                for kind, sorted_name in (("velodyne_raw", "sparse_depth"), ("groundtruth", "ground_truth")):
                    head = {"sorted": f"train_val_split/{sorted_name}/train", "official": "train"}[layout]
                    depth = thin(shot.depth) if kind == "velodyne_raw" else shot.depth
                    images.write_depth(root / head / DRIVE / "proj_depth" / kind / camera / f"{i:010d}.png", depth)


def cut(shot: Shot, top: int, left: int, h: int, w: int) -> Shot:
    K = shot.K.copy()
    K[0, 2] -= left
    K[1, 2] -= top
    rows, columns = slice(top, top + h), slice(left, left + w)
    return Shot(shot.image[rows, columns], shot.depth[rows, columns], K, shot.pose)


@pytest.mark.parametrize("layout", ["sorted", "official"])
def test_kitti_is_read_in_both_layouts_and_cut_to_the_bottom(tmp_path: Path, layout: str) -> None:
    size = (360, 1240)
    shots = [enlarge(s, 10) for s in walk(4, size=(36, 124), world="street", step=0.8)]
    write_kitti(tmp_path, shots, layout=layout, size=size)
    domain = open_domain(f"kitti:{tmp_path}", val_share=0.0)
    assert names(domain, "train") == [f"{DRIVE}/{c}/{i:010d}" for c in ("image_02", "image_03") for i in (1, 2)]
    box = (8, 12, 352, 1216)
    frame = domain.train[1]
    assert_frame_is(frame, cut(shots[2], *box), quantum=1 / 256)
    expected = [cut(s, *box).image for s in (shots[1], shots[3])]
    assert all(np.array_equal(a, b) for a, b in zip(frame.neighbours, expected, strict=True))
    assert domain.rules.crop == (240, 1216)


def test_kitti_leaves_out_static_frames_of_both_cameras(tmp_path: Path) -> None:
    write_kitti(tmp_path, walk(5, size=(24, 80), world="street"), layout="official", size=(24, 80))
    (tmp_path / "static.txt").write_text(f"{DATE} {DRIVE} 0000000002\n")
    domain = open_domain(f"kitti:{tmp_path}", val_share=0.0, static_list=tmp_path / "static.txt")
    assert [n[-1] for n in names(domain, "train")] == ["1", "3", "1", "3"]


@pytest.mark.parametrize(
    ("folder", "sparse", "truth"),
    [
        ("depth_selection/val_selection_cropped", "velodyne_raw", "groundtruth_depth"),
        ("validation", "sparse_depth", "ground_truth"),
    ],
)
def test_kitti_selection_is_joined_by_drive_frame_and_camera(
    tmp_path: Path, folder: str, sparse: str, truth: str
) -> None:
    shots = walk(2, size=(32, 96), world="street")
    top = tmp_path / folder
    for i, shot in enumerate(shots):
        for place, kind in (("image", "image"), (sparse, "velodyne_raw"), (truth, "groundtruth_depth")):
            path = top / place / f"{DRIVE}_{kind}_{i:010d}_image_03.png"
            depth = thin(shot.depth) if kind == "velodyne_raw" else shot.depth
            images.write_image(path, shot.image) if kind == "image" else images.write_depth(path, depth)
        (top / "intrinsics").mkdir(exist_ok=True)
        np.savetxt(top / "intrinsics" / f"{DRIVE}_image_{i:010d}_image_03.txt", shot.K.reshape(1, 9))
    domain = open_domain(f"kitti:{tmp_path}")
    assert names(domain, "test")[1] == f"{DRIVE}/0000000001/image_03"
    assert_frame_is(domain.test[1], shots[1], quantum=1 / 256)
    assert np.abs(domain.test[1].sparse_depth - thin(shots[1].depth)).max() <= 0.5 / 256 + 1e-5


# --- NYUv2 ------------------------------------------------------------------------------------------------------------

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


# --- ScanNet ----------------------------------------------------------------------------------------------------------


def sens_bytes(shots: list[Shot], colour: list[bytes], colour_size: tuple[int, int]) -> bytes:
    """A .sens file, version 4, as the format says."""
    K = np.eye(4, dtype="<f4")
    K[:3, :3] = shots[0].K
    h, w = shots[0].depth.shape
    data = struct.pack("<IQ", 4, 8) + b"StructIO"
    data += K.tobytes() + np.eye(4, dtype="<f4").tobytes() + K.tobytes() + np.eye(4, dtype="<f4").tobytes()
    data += struct.pack("<iiIIIIfQ", 2, 1, colour_size[1], colour_size[0], w, h, 1000.0, len(shots))
    for i, (shot, picture) in enumerate(zip(shots, colour, strict=True)):
        depth = zlib.compress(np.rint(shot.depth * 1000).astype("<u2").tobytes())
        data += shot.pose.astype("<f4").tobytes() + struct.pack("<4Q", i, i, len(picture), len(depth)) + picture + depth
    return data


def write_sens(root: Path, shots: list[Shot], folder: str = "scans") -> None:
    scene = root / folder / "scene0000_00"
    scene.mkdir(parents=True)
    data = sens_bytes(shots, [jpeg(s.image) for s in shots], shots[0].depth.shape)
    (scene / "scene0000_00.sens").write_bytes(data)


@pytest.fixture(scope="module")
def scan_shots() -> list[Shot]:
    return [enlarge(s, 10) for s in walk(4, size=(48, 64))]


def test_a_sens_file_gives_the_scene_with_poses(tmp_path: Path, scan_shots: list[Shot]) -> None:
    write_sens(tmp_path, scan_shots)
    domain = open_domain(f"scannet:{tmp_path}", every=1, poses=True, val_share=0.0, sampler="uniform:500")
    cropped = [cut(s, 16, 16, 448, 608) for s in scan_shots]
    assert names(domain, "train") == ["scene0000_00/1", "scene0000_00/2"]
    frame = domain.train[1]
    assert_frame_is(frame, cropped[2], quantum=1 / 1000, loss=JPEG_LOSS)
    assert_neighbours_are(frame, cropped[2], [cropped[1], cropped[3]], loss=JPEG_LOSS, atol=1e-5)


def test_an_exported_scan_gives_the_same_frames_as_its_sens_file(tmp_path: Path, scan_shots: list[Shot]) -> None:
    write_sens(tmp_path / "a", scan_shots)
    export = tmp_path / "b" / "scans" / "scene0000_00" / "export"
    for i, shot in enumerate(scan_shots):
        for place in ("color", "depth", "pose", "intrinsic"):
            (export / place).mkdir(parents=True, exist_ok=True)
        (export / "color" / f"{i}.jpg").write_bytes(jpeg(shot.image))
        images.write_depth(export / "depth" / f"{i}.png", shot.depth, "mm")
        np.savetxt(export / "pose" / f"{i}.txt", shot.pose)
    K = np.eye(4)
    K[:3, :3] = scan_shots[0].K
    np.savetxt(export / "intrinsic" / "intrinsic_color.txt", K)
    one, two = (
        open_domain(f"scannet:{tmp_path / x}", every=1, poses=True, val_share=0.0, sampler="uniform:500").train[0]
        for x in "ab"
    )
    assert np.array_equal(one.image, two.image)
    assert np.array_equal(one.sparse_depth, two.sparse_depth)
    assert np.allclose(one.intrinsics, two.intrinsics)
    assert np.allclose(one.poses, two.poses, atol=1e-6)


def test_scannet_colour_of_another_size_is_reduced_and_its_intrinsics_scaled(
    tmp_path: Path, scan_shots: list[Shot]
) -> None:
    """A colour image twice as large, each pixel repeated: the area average gives the small image back."""
    scene = tmp_path / "scans_test" / "scene0707_00"
    scene.mkdir(parents=True)
    large = [np.repeat(np.repeat(s.image, 2, 0), 2, 1) for s in scan_shots]
    doubled = [Shot(s.image, s.depth, np.diag([2, 2, 1]) @ s.K, s.pose) for s in scan_shots]
    (scene / "scene0707_00.sens").write_bytes(sens_bytes(doubled, [jpeg(i) for i in large], (960, 1280)))
    domain = open_domain(f"scannet:{tmp_path}", every=2, sampler="uniform:500")
    assert names(domain, "test") == ["scene0707_00/0", "scene0707_00/2"]
    assert_frame_is(domain.test[1], cut(scan_shots[2], 16, 16, 448, 608), quantum=1 / 1000, loss=JPEG_LOSS)


def test_the_slips_of_the_published_scannet_script_can_be_chosen(tmp_path: Path, scan_shots: list[Shot]) -> None:
    """cy times the factor of x; FAST points of the stored picture, reduced to the cut depth without cutting."""
    scene = tmp_path / "scans" / "scene0000_00"
    scene.mkdir(parents=True)
    size = (720, 1280)
    pictures = [Image.fromarray(s.image).resize(size[::-1], Image.Resampling.NEAREST) for s in scan_shots]
    colour = [jpeg(np.asarray(p)) for p in pictures]
    large = [Shot(s.image, s.depth, np.diag([2, 1.5, 1]) @ s.K, s.pose) for s in scan_shots]
    (scene / "scene0000_00.sens").write_bytes(sens_bytes(large, colour, size))
    options = "every=1&val_share=0&sampler=fast_protodepth:7500"
    right, slipped = (open_domain(f"scannet:{tmp_path}?{options}&official={o}").train[0] for o in ("", "protodepth"))
    K = scan_shots[0].K
    assert right.intrinsics[1, 2] == pytest.approx(K[1, 2] - 16, abs=1e-3)
    assert slipped.intrinsics[1, 2] == pytest.approx(K[1, 2] * 1.5 / 2 - 16, abs=1e-3)
    assert np.array_equal(right.intrinsics[0], slipped.intrinsics[0])
    assert np.array_equal(right.sparse_depth, slipped.sparse_depth)
    assert 800 < (right.sparse_depth > 0).sum() < 3000


def test_a_cut_off_sens_file_says_so(tmp_path: Path, scan_shots: list[Shot]) -> None:
    write_sens(tmp_path, scan_shots[:3])
    path = tmp_path / "scans" / "scene0000_00" / "scene0000_00.sens"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="download is incomplete"):
        open_domain(f"scannet:{tmp_path}", every=1, val_share=0.0)


def test_frames_where_the_scanner_was_lost_are_left_out_when_poses_are_used(
    tmp_path: Path, scan_shots: list[Shot]
) -> None:
    lost = Shot(scan_shots[3].image, scan_shots[3].depth, scan_shots[3].K, np.full((4, 4), -np.inf))
    write_sens(tmp_path, [*scan_shots[:3], lost])
    options = {"every": 1, "val_share": 0.0, "sampler": "uniform:9"}
    assert names(open_domain(f"scannet:{tmp_path}", poses=True, **options), "train") == ["scene0000_00/1"]
    assert len(open_domain(f"scannet:{tmp_path}", **options).train) == 2


# --- Virtual KITTI ----------------------------------------------------------------------------------------------------


def write_vkitti2(root: Path, shots: list[Shot], scene: str, condition: str) -> None:
    folder = root / scene / condition
    K, intrinsic, extrinsic = shots[0].K, "frame cameraID K[0,0] K[1,1] K[0,2] K[1,2]\n", "frame cameraID r1,1 ...\n"
    for i, shot in enumerate(shots):
        for camera in (0, 1):
            rgb = folder / "frames" / "rgb" / f"Camera_{camera}" / f"rgb_{i:05d}.jpg"
            rgb.parent.mkdir(parents=True, exist_ok=True)
            rgb.write_bytes(jpeg(shot.image))
            sky = np.where(shot.depth > 0, shot.depth, 655.35)
            images.write_depth(folder / "frames" / "depth" / f"Camera_{camera}" / f"depth_{i:05d}.png", sky, "cm")
            intrinsic += f"{i} {camera} {K[0, 0]} {K[1, 1]} {K[0, 2]} {K[1, 2]}\n"
            world = np.linalg.inv(shot.pose).ravel()
            extrinsic += f"{i} {camera} " + " ".join(f"{v:.9g}" for v in world) + "\n"
    (folder / "intrinsic.txt").write_text(intrinsic)
    (folder / "extrinsic.txt").write_text(extrinsic)


def test_vkitti2_gives_the_scene_with_the_sky_empty_and_poses_from_the_camera(tmp_path: Path) -> None:
    shots = walk(4, size=(60, 90), world="street", step=0.8)
    assert (shots[0].depth == 0).any(), "the test needs sky"
    write_vkitti2(tmp_path, shots, "Scene01", "fog")
    write_vkitti2(tmp_path, shots, "Scene02", "fog")
    domain = open_domain(f"vkitti:{tmp_path}", conditions="fog", poses=True, val_share=0.0)
    assert (len(domain.train), len(domain.test)) == (4, 8)
    frame = domain.train[1]
    assert_frame_is(frame, shots[2], quantum=0.01, loss=JPEG_LOSS)
    assert_neighbours_are(frame, shots[2], [shots[1], shots[3]], loss=JPEG_LOSS)
    assert frame.sparse_depth.max() < 255
    assert domain.identity["counts"]["test frames"]["published"] == 466


def test_vkitti_drops_neighbours_without_parallax_and_unknown_conditions(tmp_path: Path) -> None:
    write_vkitti2(tmp_path, walk(4, size=(30, 40), world="street", step=0.05), "Scene01", "clone")
    write_vkitti2(tmp_path, walk(4, size=(30, 40), world="street", step=0.05), "Scene02", "clone")
    assert len(open_domain(f"vkitti:{tmp_path}", val_share=0.0).train) == 0
    with pytest.raises(UnknownNameError, match="15-deg-left"):
        open_domain(f"vkitti:{tmp_path}", conditions="snow")


def test_vkitti_as_the_published_script_has_a_wall_of_sky_and_keeps_every_triplet(tmp_path: Path) -> None:
    shots = walk(4, size=(32, 48), world="street", step=0.02)
    sky = shots[1].depth == 0
    assert sky.any()
    write_vkitti2(tmp_path, shots, "Scene01", "fog")
    write_vkitti2(tmp_path, shots, "Scene02", "fog")
    options = "conditions=fog&sampler=uniform:1500&val_share=0"
    assert len(open_domain(f"vkitti:{tmp_path}?{options}").train) == 0  # 2 cm are no motion
    domain = open_domain(f"vkitti:{tmp_path}?{options}&official=protodepth")
    assert len(domain.train) == 4
    frame = domain.train[0]
    given = frame.sparse_depth > 0
    assert np.allclose(frame.sparse_depth[sky & given], 65535 / 256)
    assert (sky & given).sum() > 10
    assert np.allclose(frame.ground_truth[~sky], shots[1].depth[~sky], atol=0.006)
    prepare(
        "vkitti", tmp_path, tmp_path / "out", options={"conditions": "fog", "official": "protodepth", "val_share": 0.0}
    )


def test_vkitti_version_1_is_read_from_its_own_folders(tmp_path: Path) -> None:
    shots = [Shot(s.image, s.depth, s.K, s.pose) for s in walk(3, size=(40, 60), world="street", step=0.8)]
    lines = "frame r1,1 ...\n"
    for i, shot in enumerate(shots):
        images.write_image(tmp_path / "vkitti_1.3.1_rgb/0001/clone" / f"{i:05d}.png", shot.image)
        depth = np.where(shot.depth > 0, shot.depth, 655.35)
        images.write_depth(tmp_path / "vkitti_1.3.1_depthgt/0001/clone" / f"{i:05d}.png", depth, "cm")
        lines += f"{i} " + " ".join(str(v) for v in np.linalg.inv(shot.pose).ravel()) + "\n"
    (tmp_path / "vkitti_1.3.1_extrinsicsgt").mkdir()
    (tmp_path / "vkitti_1.3.1_extrinsicsgt/0001_clone.txt").write_text(lines)
    frame = open_domain(f"vkitti:{tmp_path}", poses=True, val_share=0.0).train[0]
    assert np.abs(frame.ground_truth - shots[1].depth).max() <= 0.005 + 1e-4
    assert frame.intrinsics[0, 0] == 725
    assert_neighbours_are(frame, shots[1], [shots[0], shots[2]])


def test_a_real_scan_pattern_is_transferred_to_vkitti(tmp_path: Path) -> None:
    shots = walk(3, size=(60, 90), world="street", step=0.8)
    write_vkitti2(tmp_path, shots, "Scene02", "clone")
    scan = np.zeros((30, 45))
    scan[20, 10] = scan[25, 30] = 7.0
    images.write_depth(tmp_path / "patterns" / "0000000000.png", scan)
    frame = open_domain(f"vkitti:{tmp_path}", patterns=tmp_path / "patterns").test[0]
    assert np.argwhere(frame.sparse_depth > 0).tolist() == [[40, 20], [50, 60]]
    assert frame.sparse_depth[40, 20] == pytest.approx(shots[0].depth[40, 20], abs=0.006)


# --- TUM --------------------------------------------------------------------------------------------------------------


def test_tum_joins_colour_depth_and_poses_by_time(tmp_path: Path) -> None:
    from scipy.spatial.transform import Rotation

    shots = [Shot(s.image, s.depth, s.K, s.pose) for s in walk(14, size=(48, 64), step=0.05)]
    folder = tmp_path / "rgbd_dataset_freiburg3_test"
    rgb, depth, truth = "# color images\n# file\n# timestamp filename\n", "# depth maps\n", "# ground truth\n"
    for i, shot in enumerate(shots):
        t = 1305031102.1 + i / 30
        images.write_image(folder / "rgb" / f"{t:.6f}.png", shot.image)
        images.write_depth(folder / "depth" / f"{t + 0.011:.6f}.png", shot.depth, "tum")
        rgb += f"{t:.6f} rgb/{t:.6f}.png\n"
        if i != 5:  # a frame without depth is left out
            depth += f"{t + 0.011:.6f} depth/{t + 0.011:.6f}.png\n"
        q = Rotation.from_matrix(shot.pose[:3, :3]).as_quat()
        truth += " ".join(f"{v:.7f}" for v in (t - 0.004, *shot.pose[:3, 3], *q)) + "\n"
    (folder / "rgb.txt").write_text(rgb)
    (folder / "depth.txt").write_text(depth)
    (folder / "groundtruth.txt").write_text(truth)
    K = shots[0].K
    text = f"{K[0, 0]},{K[1, 1]},{K[0, 2]},{K[1, 2]}"
    domain = open_domain(f"tum:{folder}", intrinsics=text, sampler="uniform:200", stride=1)
    assert domain.identity["frames"]["all"] == 13
    frame = domain.train[0]
    assert_neighbours_are(frame, shots[1], [shots[0], shots[2]])
    assert np.abs(frame.ground_truth + frame.sparse_depth - shots[1].depth).max() <= 0.0001 + 1e-5
    asked = open_domain(f"tum:{folder}?intrinsics={text}&sampler=uniform:50&stride=2&skip_static=false")
    assert (asked.identity["stride"], asked.identity["sampler"]) == (2, "uniform:50")
    assert asked.name == folder.name
    assert_neighbours_are(asked.train[0], shots[2], [shots[0], shots[4]])
    with pytest.raises(DataError, match=r"tum:.*'strides'"):
        open_domain(f"tum:{folder}?intrinsics={text}&strides=2")
    with pytest.raises(DataError, match="principal point"):
        open_domain(f"tum:{folder}", sampler="uniform:200")  # freiburg3's own calibration is for 640x480


def test_json_entries_are_plain(tmp_path: Path) -> None:
    write_void(tmp_path, walk(3, size=(24, 32)))
    entry = open_domain(f"void:{tmp_path}", density=500).test.table[0]  # type: ignore[attr-defined]
    assert json.loads(json.dumps(entry)) == entry
