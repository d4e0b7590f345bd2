"""The page without a browser: what it refuses, what it computes, what it writes into HTML."""

import base64
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from protodepth.app import answers, downloads, server, view
from protodepth.app.answers import Limits, Question, answer
from protodepth.app.examples import example
from protodepth.backbones.lite import Lite
from protodepth.data import interpolation
from protodepth.data.files import images
from protodepth.errors import DataError, UnknownNameError
from protodepth.model import ProtoDepth
from protodepth.report import pictures as picture_files


@pytest.fixture(scope="module")
def model() -> ProtoDepth:
    torch.manual_seed(0)
    found = ProtoDepth(Lite((0.1, 8.0), (4, 6, 8, 10, 12), (4, 4, 6, 6, 8)))
    found.add_domain("room", base=True)
    found.add_domain("hall", seed=1)
    with torch.no_grad():
        for prototypes in found.domain("hall").sets.values():
            prototypes.A *= 1.2
    return found


@pytest.fixture
def files(tmp_path: Path) -> Question:
    frame = example("room")
    images.write_image(tmp_path / "a.png", frame.image)
    images.write_depth(tmp_path / "z.png", frame.sparse_depth, "mm")
    return Question(
        image=str(tmp_path / "a.png"),
        sparse=str(tmp_path / "z.png"),
        intrinsics=answers.intrinsics_text(frame),
        unit="mm",
        domain="hall",
    )


def test_files_of_a_visitor_give_the_depth_that_predict_gives(model: ProtoDepth, files: Question):
    found = answer(model, files)
    frame = example("room")
    points = np.rint(frame.sparse_depth * 1000) / 1000
    expected = model.predict(frame.image, points, frame.intrinsics, domain="hall")
    np.testing.assert_allclose(found.adapted.depth, expected.depth, rtol=1e-4)
    np.testing.assert_array_equal(found.frame.image, frame.image)
    assert found.errors == {}
    assert found.in_range == 1.0


def test_an_example_comes_with_its_errors(model: ProtoDepth):
    found = answer(model, Question(example="room", domain="hall"))
    truth = example("room").ground_truth
    maps = [
        model.predict(found.frame.image, found.frame.sparse_depth, found.frame.intrinsics, domain=d).depth
        for d in ("hall", "base")
    ]
    maps.append(interpolation.linear(found.frame.sparse_depth))
    expected = [np.abs(depth - truth)[truth > 0].mean() for depth in maps]
    assert list(found.errors) == ["domain hall", "base network", "linear interpolation"]
    assert list(found.errors.values()) == pytest.approx(expected, rel=1e-4)


def test_a_wrong_unit_shows_in_the_share_of_points_in_range(model: ProtoDepth, files: Question):
    found = answer(model, files)
    assert "Is the unit" not in view._summary(found)
    points = found.frame.sparse_depth[found.frame.sparse_depth > 0]
    near = replace(found, depth_range=(0.1, float(np.percentile(points, 75))))
    assert near.in_range == pytest.approx(0.75, abs=0.01)
    words = view._summary(near)
    assert re.search(r"7[456] % of the points lie in its range of 0.1 to", words)
    assert "Is the unit of the sparse depth right?" in words
    with pytest.raises(DataError, match=r"only 13\.0 % .* as kitti .* read as mm"):
        answer(model, replace(files, unit="kitti"))  # millimetres read as 1/256 m: four times too far


def test_a_picture_with_too_many_pixels_is_refused_before_it_is_decoded(files: Question, tmp_path: Path, monkeypatch):
    Image.new("1", (5000, 4000)).save(tmp_path / "bomb.png")  # 20 megapixels in a few kilobytes
    assert (tmp_path / "bomb.png").stat().st_size < 100_000
    monkeypatch.setattr(images, "read_image", lambda path: pytest.fail("decoded"))
    for changed in (
        replace(files, image=str(tmp_path / "bomb.png")),
        replace(files, sparse=str(tmp_path / "bomb.png")),
    ):
        with pytest.raises(DataError, match=r"bomb\.png has 20 megapixels, the limit is 16"):
            answers.read(changed, (0.1, 8.0), Limits())


def test_large_strange_and_vanished_files_are_refused(files: Question, tmp_path: Path):
    with pytest.raises(DataError, match="the limit is 0"):
        answers.read(files, (0.1, 8.0), Limits(file_bytes=10))
    (tmp_path / "a.svg").write_text("<svg/>")
    with pytest.raises(DataError, match=r"\.svg file, expected \.png"):
        answers.read(replace(files, image=str(tmp_path / "a.svg")), (0.1, 8.0), Limits())
    with pytest.raises(DataError, match="drop it again"):
        answers.read(replace(files, sparse=str(tmp_path / "gone.png")), (0.1, 8.0), Limits())
    with pytest.raises(DataError, match="drop an image and its sparse depth"):
        answers.read(Question(), (0.1, 8.0), Limits())
    with pytest.raises(DataError, match="drop its sparse depth, or"):
        answers.read(replace(files, sparse=None), (0.1, 8.0), Limits())
    with pytest.raises(DataError, match="fx, fy, cx, cy"):
        answers.read(replace(files, intrinsics=" "), (0.1, 8.0), Limits())


def test_intrinsics_are_numbers_and_never_a_file_of_this_machine(files: Question, tmp_path: Path):
    secret = tmp_path / "intrinsics.txt"
    secret.write_text("90 90 48 32")
    with pytest.raises(DataError, match="is not a number"):
        answers.read(replace(files, intrinsics=str(secret)), (0.1, 8.0), Limits())


def test_names_that_do_not_exist_are_refused(model: ProtoDepth):
    with pytest.raises(UnknownNameError, match="auto, base, room, hall"):
        answer(model, Question(example="room", domain="cellar"))
    with pytest.raises(UnknownNameError, match="example"):
        answer(model, Question(example="street"))  # an outdoor world and an indoor network


def pictures(html: str) -> dict[str, np.ndarray]:
    """Each picture of the page by its alternative text."""
    found = re.findall(r'data:image/(?:png|jpeg);base64,([A-Za-z0-9+/=]+)" alt="([^"]*)"', html)
    return {alt: np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")) for data, alt in found}


def test_the_pictures_show_the_depths_on_one_scale(model: ProtoDepth):
    found = answer(model, Question(example="room", domain="hall"))
    shown = pictures(view.result_html(found, "key"))
    low, high, scale = picture_files.limits([found.adapted.depth, found.base.depth])
    for name, depth in found.maps.items():
        np.testing.assert_array_equal(
            shown[f"dense depth, {name}"], picture_files.colorize(depth, low, high, scale=scale)
        )
    assert shown["the image"].shape == shown["sparse points on the image"].shape == (480, 640, 3)
    assert len(shown) == 7
    alone = pictures(view.result_html(answer(model, Question(example="room", domain="base")), "key"))
    assert "dense depth, domain hall" not in alone
    assert len(alone) == 6
    turbo = pictures(view.result_html(found, "key", "turbo"))
    assert not np.array_equal(turbo["dense depth, domain hall"], shown["dense depth, domain hall"])


def test_the_cloud_carries_depth_to_a_few_millimetres_and_the_cameras_numbers(model: ProtoDepth):
    found = answer(model, Question(example="room", domain="hall"))
    data = view.cloud_data(found)
    width, height = data["size"]
    step = 480 // height
    stored = np.frombuffer(base64.b64decode(data["maps"]["domain hall"]), "<u2").reshape(height, width)
    kept = found.adapted.depth[step // 2 :: step, step // 2 :: step]
    np.testing.assert_allclose(stored / 65535 * data["top"], kept, atol=2e-3)
    fx, fy, cx, cy = data["camera"]
    K = found.frame.intrinsics
    assert [step * fx, step * fy, step * cx + step // 2, step * cy + step // 2] == pytest.approx(
        [K[i] for i in ((0, 0), (1, 1), (0, 2), (1, 2))]
    )


def test_the_chosen_domain_has_the_longest_bar(model: ProtoDepth):
    found = answer(model, Question(example="room"))
    html = view.bars(found)
    rows = re.findall(r"<span>(\w+)</span>.*?<span>(-?[\d.]+)</span>", html)
    assert rows[0][0] == found.adapted.domain
    assert float(rows[0][1]) == pytest.approx(max(found.adapted.similarity.values()), abs=1e-3)
    assert re.search(rf"pd-chosen\"><span>{found.adapted.domain}<", html)


def test_a_domain_that_distance_chose_has_the_longest_bar_whatever_the_cosines(model: ProtoDepth):
    """A page that says 'domain hall' above a similarity of -0.1 would not be believed."""
    found = answer(model, Question(example="room"))
    assert not found.by_distance
    away = {"distance": {"room": 8.0, "hall": 2.0}, "similarity": {"room": 0.9, "hall": -0.1}, "excess": 0.25}
    found = replace(found, by_distance=True, adapted=replace(found.adapted, domain="hall", **away))
    html = view.bars(found)
    rows = re.findall(r"<span>(\w+)</span><i><b style=\"width:([\d.]+)%\"></b></i><span>([\d.]+)</span>", html)
    assert rows == [("hall", "100.0", "2.00"), ("room", "25.0", "8.00")]
    assert 'pd-chosen"><span>hall<' in html
    assert "0.25 of the distance at which it would be unknown" in html
    record = downloads.record(found)
    assert (record["distance"], record["excess"]) == (away["distance"], 0.25)


def test_text_of_a_visitor_cannot_become_part_of_the_page(model: ProtoDepth, tmp_path: Path):
    desk = server.Desk(model, Limits())
    bad = tmp_path / "<img src=x onerror=alert(1)>.png"
    bad.write_bytes(b"no picture")
    html, cloud = desk.html(Question(image=str(bad), sparse=str(bad), intrinsics="1,1,1,1"))
    desk.close()
    assert "<img" not in html
    assert "&lt;img src=x" in html
    assert str(tmp_path) not in html  # nor does it learn where files lie
    assert cloud == ""


def test_a_unit_that_cannot_be_right_is_said_with_the_one_that_fits(model: ProtoDepth, files: Question):
    with pytest.raises(DataError, match=r"as metres they go from .*mm: .*Choose another unit"):
        answer(model, replace(files, unit="metres"))
