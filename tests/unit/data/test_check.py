"""``data check`` finds every kind of fault at once, fixes what is safe; ``data preview`` draws;
``data prepare`` resumes.
"""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.data_scene import Shot, thin, walk
from helpers.dataset_writers import write_lists, write_vkitti2
from helpers.recordings import SHOTS, write_recording
from protodepth.cli.main import run
from protodepth.data.arguments import open_domain
from protodepth.data.check import check
from protodepth.data.entries import EntryTable
from protodepth.data.files import images
from protodepth.data.manifest import load_manifest, prepare
from protodepth.data.preview import preview, title, warped_neighbour
from protodepth.data.recording.open import load_recording
from protodepth.errors import DataError, UnknownNameError


def test_a_good_recording_has_no_faults(tmp_path: Path) -> None:
    report = check(write_recording(tmp_path, SHOTS))
    assert report.ok
    assert report.frames == len(SHOTS)
    assert "all good" in report.text()


def test_every_fault_is_reported_at_once_with_its_frame(tmp_path: Path) -> None:
    write_recording(tmp_path, SHOTS, toml='depth_unit = "mm"\n')
    Image.fromarray(np.full((40, 56), 80, np.uint8)).save(tmp_path / "sparse" / "1.png")
    (tmp_path / "image" / "2.png").write_bytes((tmp_path / "image" / "2.png").read_bytes()[:400])
    images.write_depth(tmp_path / "sparse" / "3.png", np.zeros((40, 56)), "mm")
    images.write_depth(tmp_path / "sparse" / "4.png", np.ones((20, 28)), "mm")
    (tmp_path / "sparse" / "5.png").unlink()
    (tmp_path / "sparse" / "6.png").unlink()
    np.save(tmp_path / "sparse" / "6.npy", np.where(thin(SHOTS[6].depth) > 0, thin(SHOTS[6].depth), np.nan))
    images.write_image(tmp_path / "image" / "9.png", SHOTS[8].image)
    images.write_image(tmp_path / "image" / "10.png", SHOTS[8].image)
    images.write_depth(tmp_path / "sparse" / "77.png", np.ones((40, 56)), "mm")
    images.write_image(tmp_path / "image" / "20.png", SHOTS[20].image[:30])
    images.write_depth(tmp_path / "sparse" / "20.png", thin(SHOTS[20].depth)[:30], "mm")
    report = check(tmp_path)
    found = {(f.kind, f.where) for f in report.faults}
    assert {
        ("8-bit depth", "1"),
        ("truncated", "2"),
        ("empty", "3"),
        ("size", "4"),
        ("unpaired", "5"),
        ("nan", "6"),
        ("static", "9"),
        ("unpaired", "77"),
        ("size", "20"),
    } == found
    assert not report.ok


def test_a_wrong_unit_and_wrong_pose_direction_are_noticed_and_fixed(tmp_path: Path) -> None:
    write_recording(tmp_path, SHOTS, toml='depth_unit = "kitti"\n')
    report = check(tmp_path)
    assert {f.kind for f in report.faults} == {"unit"}
    fixed = check(tmp_path, fix=True)
    assert fixed.ok
    assert load_recording(tmp_path).identity["unit"] == "mm"
    assert (tmp_path / "recording.toml.bak").read_text() == 'depth_unit = "kitti"\n'
    mended = (tmp_path / "recording.toml").read_text()
    np.savetxt(tmp_path / "poses.txt", np.stack([np.linalg.inv(s.pose).ravel() for s in SHOTS]))
    assert {f.kind for f in check(tmp_path).faults} == {"pose"}
    assert check(tmp_path, fix=True).ok
    frame = load_recording(tmp_path, stride=1).train[0]
    assert np.allclose(frame.poses[1], np.linalg.inv(SHOTS[2].pose) @ SHOTS[1].pose, atol=1e-4)
    assert (tmp_path / "recording.toml.bak").read_text() == 'depth_unit = "kitti"\n'  # the first copy stays
    assert (tmp_path / "recording.toml.bak2").read_text() == mended


def test_fix_excludes_bad_frames_and_touches_no_other_file(tmp_path: Path) -> None:
    write_recording(tmp_path, SHOTS, toml='depth_unit = "mm"\n')
    for i in (3, 4, 5):
        images.write_depth(tmp_path / "sparse" / f"{i}.png", np.zeros((40, 56)), "mm")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.png")}
    assert check(tmp_path, fix=True).ok
    assert {p: p.read_bytes() for p in tmp_path.rglob("*.png")} == before
    domain = load_recording(tmp_path, stride=1)
    assert not {domain.train.name(i) for i in range(len(domain.train))} & {"2", "3", "4", "5", "6"}


def test_unequal_lists_and_mm_read_as_256_are_found_in_lists(tmp_path: Path) -> None:
    shots = walk(4)
    path = write_lists(tmp_path, shots)
    assert check(f"lists:{path}").ok
    for i in (1, 2):
        images.write_depth(tmp_path / f"sparse/{i}.png", thin(shots[i].depth), "mm")
    assert check(f"lists:{path}").counts() == {"unit": 2}
    (tmp_path / "image.txt").write_text("one.png\n")
    assert check(f"lists:{path}").counts() == {"lists": 1}


def test_the_preview_warps_the_neighbour_onto_the_image(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "r", SHOTS, dense=True)
    frame = load_recording(folder, depth_unit="mm", sampler="uniform:100", stride=3).train[0]
    warped = warped_neighbour(frame)
    assert warped is not None
    inner = (slice(4, -4), slice(8, -8))
    errors = [
        np.abs(frame.image[inner].astype(int) - x[inner].astype(int)).mean() for x in (warped, frame.neighbours[0])
    ]
    assert errors[0] < 0.35 * errors[1]
    sheet = preview(folder, tmp_path / "sheet.png", rows=2, depth_unit="mm")
    assert images.image_size(sheet)[1] > 1500
    with pytest.raises(DataError, match="rows is 0"):
        preview(folder, tmp_path / "sheet.png", rows=0, depth_unit="mm")


def test_a_preview_says_what_was_decided_about_the_data(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "walk", SHOTS, dense=True)
    said = title(load_recording(folder, sampler="uniform:100", withhold=0.25, stride=2))
    assert said.splitlines()[0] == (
        "walk: 13 train, 1 val, 3 test frames; depth in mm; points by uniform:100; stride 2; 25% of the points withheld"
    )
    assert "depth unit not declared, read as mm" in said
    assert max(map(len, said.splitlines())) <= 190


def test_wide_pictures_are_drawn_in_two_rows(tmp_path: Path) -> None:
    wide = walk(12, size=(20, 80), step=0.05)
    folder = write_recording(tmp_path / "wide", wide)
    high = [
        images.image_size(preview(f, tmp_path / f"{f.name}.png", rows=1, depth_unit="mm"))[0]
        for f in (folder, write_recording(tmp_path / "usual", SHOTS))
    ]
    assert high[0] > 250
    assert high[1] > 250


# --- manifests --------------------------------------------------------------------------------------------------------


@pytest.fixture
def vkitti(tmp_path: Path) -> Path:
    shots = walk(5, size=(32, 48), world="street", step=0.8)
    for scene in ("Scene01", "Scene02"):
        write_vkitti2(tmp_path / "raw", shots, scene, "rain")
    return tmp_path / "raw"


OPTIONS = {"conditions": "rain", "sampler": "uniform:90", "val_share": 0.0}


def test_a_prepared_dataset_gives_the_frames_of_the_direct_reader(tmp_path: Path, vkitti: Path) -> None:
    done = prepare("vkitti", vkitti, tmp_path / "out", options=OPTIONS)
    assert done.counts == {"train": 6, "val": 0, "test": 10}
    assert done.derived == 16
    direct, prepared = open_domain(f"vkitti:{vkitti}", **OPTIONS), open_domain(str(tmp_path / "out"))
    for a, b in ((direct.train[4], prepared.train[4]), (direct.test[7], prepared.test[7])):
        assert (a.name, np.array_equal(a.image, b.image)) == (b.name, True)
        assert np.array_equal(a.sparse_depth > 0, b.sparse_depth > 0)
        assert np.abs(a.sparse_depth - b.sparse_depth).max() <= 0.5 / 256 + 1e-5
        assert np.array_equal(a.ground_truth, b.ground_truth)
        assert np.array_equal(a.intrinsics, b.intrinsics)
        assert all(np.array_equal(x, y) for x, y in zip(a.neighbours, b.neighbours, strict=True))
    assert prepared.rules == direct.rules


def test_a_prepared_folder_takes_options_after_its_path(tmp_path: Path, vkitti: Path) -> None:
    prepare("vkitti", vkitti, tmp_path / "out", options=OPTIONS)
    whole, held = open_domain(str(tmp_path / "out")), open_domain(f"{tmp_path / 'out'}?withhold=0.5")
    counts = [int((d.test[0].sparse_depth > 0).sum()) for d in (whole, held)]
    assert counts == [90, 45]
    with pytest.raises(UnknownNameError, match="root, withhold"):
        open_domain(f"{tmp_path / 'out'}?stride=2")


def test_preparing_again_makes_only_what_is_missing(tmp_path: Path, vkitti: Path) -> None:
    out = tmp_path / "out"
    prepare("vkitti", vkitti, out, options=OPTIONS)
    gone = sorted((out / "sparse").rglob("*.png"))[3]
    content = gone.read_bytes()
    gone.unlink()
    (out / "manifest.json").unlink()
    again = prepare("vkitti", vkitti, out, options=OPTIONS)
    assert (again.derived, again.reused) == (1, 15)
    assert gone.read_bytes() == content
    with pytest.raises(DataError, match="other settings"):
        prepare("vkitti", vkitti, out, options={**OPTIONS, "sampler": "uniform:91"})


def test_preparing_with_processes_gives_the_same_bytes(tmp_path: Path, vkitti: Path) -> None:
    for name, workers in (("a", 0), ("b", 2)):
        prepare("vkitti", vkitti, tmp_path / name, options=OPTIONS, workers=workers)
    one, two = (
        {p.relative_to(tmp_path / n): p.read_bytes() for p in (tmp_path / n / "sparse").rglob("*.png")} for n in "ab"
    )
    assert one == two
    assert (tmp_path / "a" / "train.jsonl").read_bytes() == (tmp_path / "b" / "train.jsonl").read_bytes()


def test_preparing_what_holds_no_frame_is_an_error_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw" / "pictures").mkdir(parents=True)
    with pytest.raises(DataError, match=r"no frames of scannet found under .*raw: it holds pictures"):
        prepare("scannet", tmp_path / "raw", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert run(["data", "prepare", "scannet", str(tmp_path / "raw"), str(tmp_path / "out")]) == 2
    assert "no frames of scannet" in capsys.readouterr().err


def test_many_bad_frames_stop_preparing(tmp_path: Path, vkitti: Path) -> None:
    for path in sorted((vkitti / "Scene01").rglob("depth_*.png"))[:3]:
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"frames cannot be used \(limit 5%\)"):
        prepare("vkitti", vkitti, tmp_path / "out", options=OPTIONS)


def test_a_manifest_follows_its_raw_files_to_another_place(tmp_path: Path, vkitti: Path) -> None:
    prepare("vkitti", vkitti, tmp_path / "out", options=OPTIONS)
    moved = vkitti.rename(tmp_path / "moved")
    assert load_manifest(tmp_path / "out", root=moved).train[0].image.shape == (32, 48, 3)


def test_a_manifest_of_100_000_entries_costs_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    entry = {"image": "a" * 80, "neighbours": ["b" * 80] * 2, "sparse": "c" * 80, "K": [1.0] * 9}
    with path.open("w") as file:
        for i in range(100_000):
            file.write(json.dumps({"id": str(i), **entry}) + "\n")
    tracemalloc.start()
    table = EntryTable.open(path)
    assert [table[i]["id"] for i in range(0, 100_000, 997)] == [str(i) for i in range(0, 100_000, 997)]
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(table) == 100_000
    assert path.stat().st_size > 40e6
    assert held < 2e6
    assert peak < 20e6


def test_a_damaged_manifest_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"id": "a"}\n{"id": \n')
    with pytest.raises(DataError, match="line 2"):
        EntryTable.open(tmp_path / "m.jsonl")[1]


def test_shots_are_different(tmp_path: Path) -> None:
    """The other tests rest on it."""
    first: Shot = SHOTS[0]
    assert np.abs(first.image.astype(int) - SHOTS[1].image.astype(int)).mean() > 1
