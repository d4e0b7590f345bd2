"""Every fault that data can have is reported with the file, the line or field, and what to do about it."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.data_scene import thin, walk
from helpers.dataset_writers import write_lists, write_vkitti2
from helpers.recordings import SHOTS, write_recording
from protodepth.data.check import check
from protodepth.data.faults import ADVICE
from protodepth.data.files import images
from protodepth.data.recording.open import load_recording
from protodepth.errors import DataError

LIST_SHOTS = walk(24, size=(24, 36), step=0.05)


def eight_bit(path: Path) -> None:
    height, width = images.image_size(path)
    Image.fromarray(np.full((height, width), 80, np.uint8)).save(path)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def no_point(path: Path) -> None:
    images.write_depth(path, np.zeros(images.image_size(path)))


def in_millimetres(path: Path) -> None:
    images.write_depth(path, images.read_depth(path, "kitti"), "mm")


def array_with(value: float) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        depth = images.read_depth(path, "mm")
        depth[3, 5] = value
        path.unlink()
        np.save(path.with_suffix(".npy"), depth)

    return write


def shown_again(path: Path) -> None:
    for number in (int(path.stem) - 1, int(path.stem), int(path.stem) + 1):
        images.write_image(path.with_name(f"{number}.png"), SHOTS[5].image)


def text(content: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(content) and None


def inverted(path: Path) -> None:
    np.savetxt(path, np.stack([np.linalg.inv(s.pose).ravel() for s in SHOTS]))


# file of a recording, what happens to it, kind of fault, words of the message
OF_RECORDINGS = [
    ("sparse/7.png", eight_bit, "8-bit depth", "depth needs 16 bits"),
    ("image/7.png", cut_off, "truncated", "truncated or damaged, copy it again"),
    ("sparse/7.png", cut_off, "truncated", "truncated or damaged, copy it again"),
    ("sparse/7.png", no_point, "empty", "no value above 0"),
    ("sparse/7.png", array_with(np.nan), "nan", "1 NaN or infinite"),
    ("sparse/7.png", array_with(-2.0), "negative", "goes down to -2"),
    ("sparse/7.png", lambda p: images.write_depth(p, np.ones((20, 28)), "mm"), "size",
     "is 28x20, its picture 56x40: make the picture 28x20 and divide the intrinsics by 2"),
    ("image/7.png", lambda p: images.write_depth(p, np.ones((40, 56)), "mm"), "unreadable", "expected 8-bit colour"),
    ("sparse/7.png", lambda p: p.unlink(), "unpaired", "image/7.png has no depth map of its name"),
    ("image/7.png", lambda p: p.unlink(), "unpaired", "sparse/7.png is a depth map without an image"),
    ("image/7.png", lambda p: p.unlink(), "pose", "poses.txt has 24 poses for 23 images"),
    ("image/7.png", shown_again, "static", "image/7.png shows the same picture"),
    ("intrinsics.txt", text("525 525 319.5 239.5"), "intrinsics", ("principal point (319.5, 239.5) lies outside the "
                                                                  "56x40 image")),
    ("intrinsics.txt", text("50 0 28\n0 fifty 20\n0 0 1"), "layout", "line 2: 'fifty' is not a number"),
    ("poses.txt", inverted, "pose", "better if the poses are read as world_to_camera"),
    ("poses.txt", text("1 0 0 0 0 1 0 0 0 0 1 0\n"), "pose", "1 poses for 24 images"),
    ("recording.toml", text('depth_unit = "inch"'), "layout", "'depth_unit'"),
    ("recording.toml", text('depth_unit = "kitti"'), "unit", "declared as kitti, but looks like mm"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "spoil", "kind", "words"), OF_RECORDINGS)
def test_a_fault_of_a_recording_names_file_place_and_remedy(
    tmp_path: Path, name: str, spoil: Callable[[Path], None], kind: str, words: str
) -> None:
    folder = write_recording(tmp_path, SHOTS, toml='depth_unit = "mm"\n')
    spoil(folder / name)
    report = check(folder)
    found = [f for f in report.faults if f.kind == kind]
    assert found, report.text()
    told = report.text()
    assert words in told
    assert ADVICE[kind] in told
    stem = Path(name).stem
    assert stem in told or "depth_unit" in told
    assert report.ok == (kind in ("nan", "static"))


def list_file(column: str) -> Callable[[Path], None]:
    return lambda root: (root / f"{column}.txt").write_text("data/old_place/only.png\n") and None


def without_truth(root: Path) -> None:
    lines = (root / "lists.toml").read_text().splitlines()
    (root / "lists.toml").write_text("\n".join(line for line in lines if "ground_truth" not in line))
    for path in (root / "sparse").iterdir():
        in_millimetres(path)


def other_K(root: Path) -> None:
    np.save(root / "K.npy", np.array([[525, 0, 319.5], [0, 525, 239.5], [0, 0, 1]]))


def missing_K(root: Path) -> None:
    lines = (root / "intrinsics.txt").read_text().splitlines()
    lines[4] = "data/old_place/gone.npy"
    (root / "intrinsics.txt").write_text("\n".join(lines))


def on(name: str, spoil: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda root: spoil(root / name)


def one_picture_thrice(path: Path) -> None:
    images.write_image(path, np.concatenate([LIST_SHOTS[5].image] * 3, 1))


# what happens to official lists, kind of fault, words of the report, number of such faults
OF_LISTS = [
    (list_file("sparse_depth"), "lists", r"sparse_depth\.txt has 1 lines.*first empty line", 1),
    (on("sparse/5.png", eight_bit), "8-bit depth", r"train line 5, sparse/5\.png.*depth needs 16 bits", 1),
    (on("sparse/5.png", in_millimetres), "unit", (r"line 5.*sparse/5\.png: sparse depth is 3\.9\d? times.*mm read as "
                                                 r"/256"), 1),
    (without_truth, "unit", r"line 1, .*half of the points lie beyond \d+\.\d m, judged up to 5 m", 22),
    (other_K, "intrinsics", r"K of triplet/1\.png: principal point .* outside the 36x24 image", 22),
    (missing_K, "missing", r"intrinsics\.txt, line 5: .*gone\.npy does not exist", 1),
    (on("sparse/5.png", no_point), "empty", r"line 5.*sparse/5\.png has no point", 1),
    (on("triplet/5.png", cut_off), "truncated", r"triplet/5\.png cannot be decoded", 1),
    (on("triplet/5.png", lambda p: images.write_image(p, np.zeros((24, 106, 3), np.uint8))), "size",
     "106 px wide.*not divisible by 3", 1),
    (on("truth/5.png", lambda p: p.unlink()), "missing", r"truth/5\.png does not exist", 1),
    (on("triplet/5.png", one_picture_thrice), "static", (r"line 5.*triplet/5\.png: all neighbours show the same "
                                                        r"picture"), 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "kind", "words", "count"), OF_LISTS, ids=[f"{k}-{n}" for n, (_, k, _, _) in enumerate(OF_LISTS)]
)
def test_a_fault_of_official_lists_names_file_line_and_remedy(
    tmp_path: Path, spoil: Callable[[Path], None], kind: str, words: str, count: int
) -> None:
    path = write_lists(tmp_path, LIST_SHOTS)
    assert check(f"lists:{path}").ok
    spoil(tmp_path)
    report = check(f"lists:{path}")
    assert report.counts().get(kind) == count, report.text()
    assert re.search(words, report.text(limit=30)), report.text()
    assert ADVICE[kind] in report.text()


def test_poses_that_do_not_warp_are_noticed_in_a_dataset_too(tmp_path: Path) -> None:
    shots = walk(8, size=(32, 48), world="street", step=0.8)
    write_vkitti2(tmp_path, shots, "Scene01", "clone")
    options = "conditions=clone&poses=true&val_share=0&sampler=uniform:600"
    assert check(f"vkitti:{tmp_path}?{options}").ok
    turned = [type(s)(s.image, s.depth, s.K, np.linalg.inv(s.pose)) for s in shots]
    write_vkitti2(tmp_path, turned, "Scene01", "clone")
    report = check(f"vkitti:{tmp_path}?{options}")
    assert report.counts() == {"pose": 1}
    assert "better with the poses turned round" in report.text()


@pytest.mark.parametrize("spoil", [eight_bit, cut_off, lambda p: p.unlink()])
def test_one_bad_file_is_left_out_of_a_recording_and_two_of_24_stop(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    write_recording(tmp_path, SHOTS, toml='depth_unit = "mm"\nstride = 1\n')
    spoil(tmp_path / "sparse" / "7.png")
    domain = load_recording(tmp_path)
    assert domain.identity["skipped"]["bad"] == 1
    assert not {"6", "7", "8"} & {domain.train.name(i) for i in range(len(domain.train))}
    spoil(tmp_path / "sparse" / "9.png")
    with pytest.raises(DataError, match=r"(?s)2 of 24 frames cannot be used \(limit 5%\).*7\.png.*9\.png.*data check"):
        load_recording(tmp_path)


def test_images_of_another_size_are_left_out(tmp_path: Path) -> None:
    write_recording(tmp_path, SHOTS, toml='depth_unit = "mm"\n')
    images.write_image(tmp_path / "image" / "7.png", SHOTS[7].image[:30])
    images.write_depth(tmp_path / "sparse" / "7.png", thin(SHOTS[7].depth)[:30], "mm")
    assert load_recording(tmp_path).identity["skipped"]["bad"] == 1
    assert "the image is 56x30, most are 56x40" in check(tmp_path).text()


@pytest.mark.parametrize("factor", [1.0, 1.12, 0.88])
def test_a_focal_length_that_does_not_fit_depth_and_poses_is_a_warning(tmp_path: Path, factor: float) -> None:
    """As of the depth camera where the pictures are the colour camera's."""
    shots = walk(24, size=(60, 80), step=0.05)
    write_recording(tmp_path, shots, dense=True, toml='depth_unit = "mm"\n')
    K = shots[0].K.copy()
    K[0, 0], K[1, 1] = factor * K[0, 0], factor * K[1, 1]
    np.savetxt(tmp_path / "intrinsics.txt", K)
    report = check(tmp_path)
    assert report.ok, report.text()
    found = re.search(r"WARNING: neighbours warp \d+% better with a focal length near (\d+) px", report.text())
    assert (found is None) == (factor == 1.0), report.text()
    if found:
        assert int(found[1]) == pytest.approx(shots[0].K[0, 0], rel=0.07)


def test_a_fault_has_the_kind_of_its_error_whatever_words_its_path_has(tmp_path: Path) -> None:
    """A folder may be called as it likes: no picture at all is neither truncated nor negative."""
    root = tmp_path / "truncated-negative-does not exist"
    write_recording(root, SHOTS, toml='depth_unit = "mm"\n')
    (root / "image" / "3.png").write_bytes(b"no picture")
    assert check(root).counts() == {"unreadable": 1}
