"""From files to depth and back to files: formats, pairing, bad files in the middle, any source."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.data_scene import walk
from protodepth.data import arrays
from protodepth.data.files import images
from protodepth.data.frame import Frame
from protodepth.errors import CheckpointError, ConfigError, DataError
from protodepth.inference.complete import FrameCompletion, complete, describe
from protodepth.inference.inputs import Failure, Source, frame_numbers, in_batches, open_data, open_files, unit_of_files
from protodepth.inference.outputs import Output
from protodepth.model import ProtoDepth
from protodepth.types import Prediction

SHOTS = walk(5, size=(32, 48))
K = ",".join(f"{v:.6f}" for v in (SHOTS[0].K[0, 0], SHOTS[0].K[1, 1], SHOTS[0].K[0, 2], SHOTS[0].K[1, 2]))
RANGE = (0.1, 8.0)


def sparse_of(depth: np.ndarray) -> np.ndarray:
    points = np.zeros_like(depth)
    points[::3, ::3] = depth[::3, ::3]
    return points


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for n, shot in enumerate(SHOTS):
        images.write_image(tmp_path / "image" / f"{n}.png", shot.image)
        images.write_depth(tmp_path / "sparse" / f"{n}.png", sparse_of(shot.depth), "mm")
    return tmp_path


def source_of(folder: Path, **changes: str) -> Source:
    return open_files(folder / "image", folder / "sparse", changes.get("intrinsics", K), unit="mm", depth_range=RANGE)


def run(model: ProtoDepth, source: Source, out: Path, batch_size: int = 2, **options):
    output = Output(folder=out, **options)
    return complete(job(lambda b: model.predict_batch(b, "night"), source, output, batch_size=batch_size))


def job(predict, source: Source, output: Output, **options) -> FrameCompletion:
    return FrameCompletion(predict=predict, source=source, output=output, depth_range=RANGE, **options)


def records(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("format", "step"), [("kitti", 1 / 256), ("mm", 1 / 1000), ("npy", 0.0)])
def test_every_format_gives_the_predicted_depth_back(model: ProtoDepth, folder: Path, format: str, step: float):
    out = folder / "out"
    run(model, source_of(folder), out, format=format)
    for n, shot in enumerate(SHOTS):
        points = images.read_depth(folder / "sparse" / f"{n}.png", "mm")
        expected = model.predict(shot.image, points, np.fromstring(K, sep=","), domain="night").depth
        suffix, unit = (".npy", "metres") if format == "npy" else (".png", format)
        found = images.read_depth(out / "depth" / f"{n}{suffix}", unit)
        assert np.abs(found - expected).max() <= step / 2 + 1e-4


def test_each_frame_has_its_picture_its_cloud_and_its_line(model: ProtoDepth, folder: Path):
    out = folder / "out"
    summary, first = run(model, source_of(folder), out)
    assert summary.frames == 5
    assert summary.chosen == {"night": 5}
    lines = records(out)
    assert lines[:4] == first
    assert [r["frame"] for r in lines] == ["0", "1", "2", "3", "4"]
    assert lines[2]["files"] == ["depth/2.png", "color/2.png", "cloud/2.ply"]
    assert lines[2]["points"] == int((sparse_of(SHOTS[2].depth) > 0).sum())
    assert set(lines[2]["similarity"]) == {"room", "warehouse", "night"}
    assert lines[2]["unknown"] is False
    assert lines[2]["seconds"] > 0
    header = (out / "cloud" / "2.ply").read_bytes()[:200].decode(errors="ignore")
    assert f"element vertex {32 * 48}" in header
    picture = Image.open(out / "color" / "2.png")
    assert picture.width > 10 * 48  # enlarged, with a legend to the right


def test_batches_give_what_single_frames_give(model: ProtoDepth, folder: Path):
    run(model, source_of(folder), folder / "a", batch_size=1, format="npy", parts=("depth",))
    run(model, source_of(folder), folder / "b", batch_size=4, format="npy", parts=("depth",))
    for n in range(5):
        a, b = (np.load(folder / x / "depth" / f"{n}.npy") for x in "ab")
        assert np.allclose(a, b, atol=1e-5)


def test_a_bad_file_in_the_middle_is_recorded_and_the_rest_goes_on(model: ProtoDepth, folder: Path):
    (folder / "image" / "1.png").write_bytes(b"\x89PNG cut")
    Image.fromarray(np.zeros((32, 48), np.uint8)).save(folder / "sparse" / "2.png")  # 8 bits
    images.write_depth(folder / "sparse" / "3.png", np.zeros((32, 48)), "mm")  # no points
    images.write_depth(folder / "sparse" / "4.png", np.ones((16, 48)), "mm")  # another size
    summary, _ = run(model, source_of(folder), folder / "out")
    reasons = {f.name: f.reason for f in summary.failures}
    assert summary.frames == 1
    assert "1.png" in reasons["1"]
    assert "8-bit" in reasons["2"]
    assert "no points" in reasons["3"]
    assert "sparse depth is 48x16, its picture 48x32: expected one size" in reasons["4"]
    assert [("error" in r) for r in records(folder / "out")] == [False, True, True, True, True]


def test_a_picture_without_a_map_is_a_failure_and_a_map_without_a_picture_a_note(model: ProtoDepth, folder: Path):
    (folder / "sparse" / "1.png").rename(folder / "sparse" / "9.png")
    source = source_of(folder)
    assert "1 sparse maps have no picture" in source.notes[1]
    assert [item.name for item in source if isinstance(item, Failure)] == ["1"]


def test_names_that_do_not_match_at_all_are_an_error_with_an_example(folder: Path):
    for path in list((folder / "sparse").iterdir()):
        path.rename(path.with_name(f"{100 + int(path.stem)}.png"))
    with pytest.raises(DataError, match=r"frame 7\.png belongs to 7\.png"):
        source_of(folder)


def test_maps_with_names_of_their_own_belong_to_the_pictures_of_their_numbers(folder: Path):
    before = {item.name: item.sparse_depth for item in source_of(folder) if isinstance(item, Frame)}
    for path in list((folder / "sparse").iterdir()):
        path.rename(path.with_name(f"depth_{path.name}"))
    source = source_of(folder)
    assert "joined to the pictures by number" in source.notes[0]
    after = {item.name: item.sparse_depth for item in source if isinstance(item, Frame)}
    assert after.keys() == before.keys()
    assert all(np.array_equal(after[name], before[name]) for name in before)


def test_intrinsics_of_another_resolution_are_refused(folder: Path):
    double = ",".join(str(2 * float(v)) for v in K.split(","))
    failures = [item for item in source_of(folder, intrinsics=double) if isinstance(item, Failure)]
    assert len(failures) == 5
    assert "another resolution" in failures[0].reason


def test_every_frame_may_have_intrinsics_of_its_own(folder: Path):
    for n in range(4):
        (folder / "K").mkdir(exist_ok=True)
        (folder / "K" / f"{n}.txt").write_text(f"{40 + n},41,24,16")
    items = list(source_of(folder, intrinsics=str(folder / "K")))
    assert [item.intrinsics[0, 0] for item in items[:4]] == [40, 41, 42, 43]
    assert "no intrinsics for frame '4'" in items[4].reason


def test_one_frame_goes_to_plain_names_and_a_folder_with_a_file_is_refused(model: ProtoDepth, folder: Path):
    image, sparse = folder / "image" / "0.png", folder / "sparse" / "0.png"
    source = open_files(image, sparse, K, unit="mm", depth_range=RANGE)
    run(model, source, folder / "out", alone=True)
    names = {p.name for p in (folder / "out").iterdir()}
    assert names == {"depth.png", "depth_color.png", "cloud.ply", "predictions.jsonl"}
    with pytest.raises(DataError, match="two files, two folders"):
        open_files(image, folder / "sparse", K, unit="mm", depth_range=RANGE)


def test_the_unit_of_a_folder_is_asked_for_where_it_is_in_doubt_and_bad_files_do_not_decide(folder: Path):
    paths = [folder / "sparse" / f"{n}.png" for n in range(3)]
    paths[0].write_bytes(b"broken")
    with pytest.raises(DataError, match="Say which it is"):
        unit_of_files(paths, None, (0.1, 100.0))
    assert unit_of_files(paths, None, (0.1, 6.5))[0] == "mm"
    assert unit_of_files(paths, "kitti", RANGE)[0] == "kitti"


@pytest.mark.parametrize("whole", [False, True])
def test_every_file_is_decoded_once_and_every_array_converted_once(
    model: ProtoDepth, folder: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
):
    decoded, converted = [], []
    open_picture, to_batch = images.open_picture, arrays.to_batch
    monkeypatch.setattr(images, "open_picture", lambda f, *a, **k: decoded.append(Path(f)) or open_picture(f, *a, **k))
    monkeypatch.setattr(arrays, "to_batch", lambda *a: converted.append(1) or to_batch(*a))
    places = [folder / kind / ("" if whole else "0.png") for kind in ("image", "sparse")]
    source = open_files(*places, K, unit=None, depth_range=(0.1, 6.5))  # the unit has to be found
    summary, _ = run(model, source, folder / "out", alone=not whole)
    count = len(SHOTS) if whole else 1
    assert summary.frames == count
    assert sorted(decoded) == sorted({*decoded})
    assert len(decoded) == 2 * count
    assert len(converted) == count


def test_names_of_frames_stay_inside_the_folder():
    output = Output(folder=Path("out"))
    for name in ("../../etc/passwd", "a/b", "..", "C:\\x"):
        place = output.place("depth", name)
        assert place.parent == Path("out/depth")
        assert place.name.endswith(".png")


def test_a_video_is_completed_where_it_has_maps(model: ProtoDepth, tmp_path: Path):
    cv2 = pytest.importorskip("cv2")
    writer = cv2.VideoWriter(str(tmp_path / "v.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10, (48, 32))
    for shot in SHOTS:
        writer.write(np.ascontiguousarray(shot.image[..., ::-1]))
    writer.release()
    for n in (1, 3, 7):
        images.write_depth(tmp_path / "sparse" / f"f_{n:03d}.png", sparse_of(SHOTS[n % 5].depth), "mm")
    source = open_files(tmp_path / "v.avi", tmp_path / "sparse", K, unit="mm", depth_range=RANGE)
    items = list(source)
    assert [item.name for item in items] == ["f_001", "f_003", "f_007"]
    assert isinstance(items[0], Frame)
    for item, n in zip(
        items[:2], (1, 3), strict=True
    ):  # JPEG loses a few grey levels; another frame or swapped colours more
        right = np.abs(item.image.astype(int) - SHOTS[n].image).mean()
        assert right < 12
        assert right < np.abs(item.image[..., ::-1].astype(int) - SHOTS[n].image).mean()
        assert right < min(np.abs(item.image.astype(int) - SHOTS[m].image).mean() for m in range(5) if m != n)
    assert "ends before frame 7" in items[2].reason
    (tmp_path / "w.mp4").write_bytes(b"no video")
    with pytest.raises(DataError, match="cannot be opened as a video"):
        open_files(tmp_path / "w.mp4", tmp_path / "sparse", K, unit="mm", depth_range=RANGE)


def test_maps_without_numbers_belong_to_frames_in_their_order():
    assert frame_numbers(["a", "b"]) == {0: "a", 1: "b"}
    assert frame_numbers(["x1_5", "x1_6"]) == {5: "x1_5", 6: "x1_6"}
    assert frame_numbers(["1_a2", "2_a2"]) == {0: "1_a2", 1: "2_a2"}


def test_a_recording_gives_all_its_frames_and_names_its_bad_ones(folder: Path):
    np.savetxt(folder / "intrinsics.txt", SHOTS[0].K)
    frames_of = list(open_data(str(folder), unit="mm", depth_range=RANGE))
    assert [f.name for f in frames_of] == ["0", "1", "2", "3", "4"]
    assert [f.name for f in open_data("worlds:room?size=32x48&train=1&val=1&test=2")] == [
        "room-test-s0-00000",
        "room-test-s0-00001",
    ]


def test_frames_of_other_sizes_and_failures_end_a_batch():
    def frame(name: str, height: int) -> Frame:
        return Frame(
            image=np.zeros((height, 9, 3)), sparse_depth=np.zeros((height, 9)), intrinsics=np.eye(3), name=name
        )

    items = [
        frame("a", 8),
        frame("b", 8),
        frame("c", 9),
        Failure("d", "x"),
        frame("e", 9),
        frame("f", 9),
        frame("g", 9),
    ]
    source = Source(7, (), lambda numbers: iter(items[numbers.start : numbers.stop]))
    found = [g.name if isinstance(g, Failure) else [f.name for f in g] for g in in_batches(source, 2)]
    assert found == [["a", "b"], ["c"], "d", ["e", "f"], ["g"]]


def test_a_process_that_begins_in_the_middle_makes_the_same_batches(folder: Path):
    """A frame that cannot be read must not shift the batches after it."""
    (folder / "sparse" / "1.png").unlink()
    source = source_of(folder)

    def names(numbers: range | None) -> list:
        return [g.name if isinstance(g, Failure) else [f.name for f in g] for g in in_batches(source, 2, numbers)]

    assert names(None) == [["0"], "1", ["2", "3"], ["4"]]
    assert names(range(2)) + names(range(2, 4)) + names(range(4, 5)) == names(None)


def test_the_record_counts_points_that_the_network_can_express():
    points = np.array([[0.0, np.nan, 0.05], [1.0, 2.0, 20.0]])
    prediction = Prediction(depth=np.ones((2, 3)), domain="x", similarity={})
    record = describe(prediction, points, 0.5, (0.1, 8.0))
    assert record["points"] == 4
    assert record["points_kept"] == 0.5


def test_depth_that_does_not_fit_the_format_is_an_error_not_a_clip(tmp_path: Path):
    frame = Frame(image=np.zeros((8, 8, 3), np.uint8), sparse_depth=np.ones((8, 8)), intrinsics=np.eye(3), name="a")
    with pytest.raises(DataError, match=r"ends at 65\.535 m"):
        Output(folder=tmp_path, format="mm", parts=("depth",)).write(frame, np.full((8, 8), 80.0))


def test_a_batch_size_below_one_is_refused(model: ProtoDepth, folder: Path):
    with pytest.raises(ConfigError, match="at least 1"):
        run(model, source_of(folder), folder / "out", batch_size=0)


def test_depth_that_cannot_be_right_stops_before_anything_is_written(model: ProtoDepth, folder: Path):
    """Metres that were stored as whole numbers of a millimetre, and said to be whole metres."""
    wrong = open_files(folder / "image", folder / "sparse", K, unit="metres", depth_range=RANGE)
    with pytest.raises(DataError, match=r"only 0\.0 % .*mm: .*--depth-unit .* --force"):
        run(model, wrong, folder / "out")
    assert not (folder / "out").exists()
    output = Output(folder=folder / "out", parts=("depth",), format="npy")
    forced, _ = complete(job(model.predict_batch, wrong, output, force=True))
    assert forced.frames == forced.outside == 5
    assert any("less than half" in line for line in forced.lines())


def test_fractions_in_arrays_are_metres_whatever_was_said_of_pictures(model: ProtoDepth, tmp_path: Path):
    images.write_image(tmp_path / "a.png", SHOTS[0].image)
    images.write_depth(tmp_path / "z.npy", 1000 * sparse_of(SHOTS[0].depth))
    source = open_files(tmp_path / "a.png", tmp_path / "z.npy", K, unit="mm", depth_range=RANGE)
    with pytest.raises(DataError, match="as metres they go from"):
        run(model, source, tmp_path / "out", alone=True)


def test_datasets_are_not_doubted(model: ProtoDepth, tmp_path: Path):
    frames = [arrays_frame(1000 * sparse_of(shot.depth), shot) for shot in SHOTS]
    summary, _ = run(
        model, Source(5, (), lambda numbers: iter(frames)), tmp_path / "out", parts=("depth",), format="npy"
    )
    assert summary.outside == 5


def arrays_frame(points: np.ndarray, shot) -> Frame:
    return Frame(image=shot.image, sparse_depth=points, intrinsics=shot.K, name="f")


def test_files_of_somebody_else_are_not_overwritten(model: ProtoDepth, folder: Path):
    out = folder / "out"
    (out / "depth").mkdir(parents=True)
    (out / "depth" / "mine.png").write_bytes(b"measured")
    with pytest.raises(CheckpointError, match=r"depth exists and was not written by an earlier run"):
        run(model, source_of(folder), out)
    assert sorted(p.name for p in out.iterdir()) == ["depth"]
    (out / "depth" / "mine.png").unlink()
    (out / "predictions.jsonl").write_text("my notes\n")
    with pytest.raises(CheckpointError, match=r"predictions\.jsonl exists"):
        run(model, source_of(folder), out)
    (out / "predictions.jsonl").unlink()
    run(model, source_of(folder), out)
    run(model, source_of(folder), out)  # its own results are written anew
    assert len(records(out)) == source_of(folder).total


def test_a_single_result_does_not_replace_the_map_it_was_made_from(model: ProtoDepth, tmp_path: Path):
    output = Output(folder=tmp_path, alone=True)
    (tmp_path / "depth.png").write_bytes(b"sparse points")
    with pytest.raises(CheckpointError, match=r"depth\.png exists"):
        output.check()


def test_a_prediction_that_was_killed_is_written_again(model: ProtoDepth, folder: Path):
    output = Output(folder=folder / "out")
    with pytest.raises(RuntimeError, match="killed"):
        complete(job(model.predict_batch, source_of(folder), replace(output, watch=killed)))
    run(model, source_of(folder), folder / "out")


def killed(frame: Frame, prediction: object) -> None:
    raise RuntimeError("killed")


def test_two_frames_of_one_file_name_are_said():
    output = Output(folder=Path("out"), frames={Path("out/depth/a_b.png"): "a b"})
    with pytest.raises(DataError, match="'a b' and 'a/b' would both be written"):
        output.write(Frame(name="a/b", image=None, sparse_depth=None, intrinsics=None), np.ones((2, 2)))


def test_a_unit_is_never_dropped_where_the_data_has_none() -> None:
    with pytest.raises(ConfigError, match="worlds data has no option 'depth_unit'"):
        open_data("worlds:room?size=32x48&train=1&val=1&test=1", unit="mm")
