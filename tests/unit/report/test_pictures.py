"""Pictures and point clouds: colours mean what the bar says, points land where the camera saw them."""

import io
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image

from protodepth.errors import DataError, UnknownNameError
from protodepth.report import charts, pictures


def viridis(at: float) -> np.ndarray:
    return np.rint(np.array(matplotlib.colormaps["viridis"](at)[:3]) * 255)


def decode(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def test_depth_at_the_limits_has_the_end_colours_of_the_map_and_beyond_them_too():
    colours = pictures.colorize(np.array([[1.0, 0.2, 5.0, 9.0]]), 1, 5)[0].astype(float)
    for index, at in ((0, 0.0), (1, 0.0), (2, 1.0), (3, 1.0)):
        assert np.abs(colours[index] - viridis(at)).max() <= 1


@pytest.mark.parametrize(("scale", "middle"), [("linear", 40.5), ("log", np.sqrt(80.0)), ("inverse", 2 / (1 + 1 / 80))])
def test_the_middle_of_each_scale_has_the_middle_colour(scale, middle):
    colour = pictures.colorize(np.array([[middle]]), 1, 80, scale=scale)[0, 0].astype(float)
    assert np.abs(colour - viridis(0.5)).max() <= 4  # one of 255 levels


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_a_pixel_without_depth_is_grey_and_no_colour_of_the_map_is_that_grey(bad):
    assert pictures.colorize(np.array([[bad, 2.0]]), 1, 80, scale="log")[0, 0].tolist() == list(pictures.NO_DEPTH)
    for name in pictures.OFFERED[:-1]:  # gray has every grey
        assert (np.abs(pictures.palette(name)[1:].astype(int) - pictures.NO_DEPTH).sum(1) > 20).all()


def luminance(colours: np.ndarray) -> np.ndarray:
    """CIE L*, from sRGB."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    Y = linear @ np.array([0.2126, 0.7152, 0.0722])
    return np.where(Y > 0.008856, 116 * np.cbrt(Y) - 16, 903.3 * Y)


@pytest.mark.parametrize("name", [pictures.DEPTH_COLORMAP, pictures.ERROR_COLORMAP])
def test_the_colours_in_use_grow_brighter_in_even_steps_so_that_nobody_needs_to_tell_red_from_green(name):
    steps = np.diff(luminance(pictures.palette(name)[1:][::15] / 255))
    assert (steps > 0).all()
    assert steps.max() < 2 * steps.mean()
    assert not (np.diff(luminance(pictures.palette("turbo")[1:][::15] / 255)) > 0).all()  # what was used before


def test_another_map_can_be_asked_for_and_one_that_does_not_exist_is_named():
    depth = np.linspace(1, 5, 12).reshape(3, 4)
    turbo = decode(pictures.depth_picture(depth, cmap="turbo"))
    assert not np.array_equal(turbo, decode(pictures.depth_picture(depth)))
    assert np.array_equal(turbo[0, 0], pictures.palette("turbo")[1])
    with pytest.raises(UnknownNameError, match="viridis"):
        pictures.palette("virids")


def test_a_colour_scale_that_cannot_be_drawn_is_refused():
    with pytest.raises(DataError, match="0 < low < high"):
        pictures.colorize(np.ones((2, 2)), 0, 5, scale="log")
    with pytest.raises(DataError, match="0 < low < high"):
        pictures.colorize(np.ones((2, 2)), 5, 5)


def test_limits_are_logarithmic_outdoors_and_linear_indoors():
    rng = np.random.default_rng(0)
    assert pictures.limits([rng.uniform(0.5, 3, (20, 20))])[2] == "linear"
    low, high, scale = pictures.limits([rng.uniform(2, 80, (40, 40)), np.zeros((4, 4))])
    assert scale == "log"
    assert 2 < low < 5
    assert 75 < high < 80


def test_error_map_is_dark_where_right_bright_where_wrong_and_grey_where_unknown():
    truth = np.array([[2.0, 2.0, 2.0, 0.0]])
    shown = pictures.error_map(np.array([[2.0, 3.0, 9.0, 4.0]]), truth, high=2.0).astype(int)
    brightness = shown.sum(-1)[0]
    assert brightness[0] < 20
    assert brightness[0] < brightness[1] < brightness[2]
    assert shown[0, 3].tolist() == list(pictures.NO_DEPTH)
    with pytest.raises(DataError, match="one size"):
        pictures.error_map(np.ones((2, 2)), truth, high=1.0)


def test_palette_png_shows_the_same_pixels_as_colorize():
    depth = np.random.default_rng(1).uniform(0, 6, (9, 13)) * (np.arange(13) % 4 > 0)
    rows = pictures.levels(depth, pictures.valid_depth(depth), 1, 5)
    assert np.array_equal(decode(pictures.palette_png(rows, pictures.palette())), pictures.colorize(depth, 1, 5))


def test_depth_picture_has_the_map_a_bar_with_both_end_colours_and_dark_numbers():
    depth = np.linspace(2, 80, 64 * 96).reshape(64, 96)
    picture = decode(pictures.depth_picture(depth, low=2, high=80)).astype(int)
    assert picture.shape[1] > 480  # a small map is enlarged, and the bar stands beside it
    factor = 5
    assert np.array_equal(
        picture[factor // 2 : 64 * factor : factor, factor // 2 : 96 * factor : factor],
        pictures.colorize(depth, 2, 80, scale="log"),
    )
    beside = picture[:, 96 * factor :].reshape(-1, 3)
    for end in (0.0, 1.0):
        assert (np.abs(beside - viridis(end)).max(1) <= 2).any()
    assert (beside.max(1) < 60).sum() > 100


def test_sparse_points_are_dots_wider_than_their_pixel_in_the_colour_of_their_depth():
    sparse = np.zeros((64, 96), np.float32)
    sparse[10, 20], sparse[40, 70] = 3.0, 30.0
    shown = pictures.sparse_overlay(np.full((64, 96, 3), 200, np.uint8), sparse, 2, 80, scale="log")
    assert shown.shape == (256, 384, 3)
    for y, x in ((10, 20), (40, 70)):
        colour = pictures.colorize(np.array([[sparse[y, x]]]), 2, 80, scale="log")[0, 0]
        assert np.array_equal(shown[4 * y + 2, 4 * x + 2], colour)
        assert (shown == colour).all(-1).sum() > 16  # its own pixel is 4 x 4
    assert pictures.sparse_overlay(np.zeros((64, 96, 3), np.uint8), np.zeros((64, 96)), 1, 2).max() == pictures.PALE


def test_the_nearer_of_two_overlapping_dots_is_on_top():
    sparse = np.zeros((64, 96), np.float32)
    sparse[30, 50], sparse[30, 51] = 50.0, 3.0
    shown = pictures.sparse_overlay(np.zeros((64, 96, 3), np.uint8), sparse, 2, 80, scale="log")
    near, far = (
        (shown == pictures.colorize(np.array([[d]]), 2, 80, scale="log")[0, 0]).all(-1).sum() for d in (3.0, 50.0)
    )
    assert near > far > 0


def test_points_project_back_to_the_pixels_they_came_from():
    rng = np.random.default_rng(2)
    depth, image = rng.uniform(1, 9, (12, 17)), rng.integers(0, 255, (12, 17, 3)).astype(np.uint8)
    depth[3, 4] = 0
    K = np.array([[21.0, 0.3, 8.1], [0, 19.0, 5.7], [0, 0, 1]])
    xyz, rgb = pictures.point_cloud(depth, image, K)
    assert xyz.dtype == np.float32
    assert len(xyz) == depth.size - 1
    projected = xyz.astype(np.float64) @ K.T
    columns, rows = np.rint(projected[:, :2] / projected[:, 2:]).astype(int).T
    assert np.allclose(xyz[:, 2], depth[rows, columns], rtol=1e-6)
    assert np.array_equal(rgb, image[rows, columns])
    assert (3, 4) not in set(zip(rows.tolist(), columns.tolist(), strict=True))


@pytest.mark.parametrize("most", [1, 7, 50, 203, 204, 1000])
def test_at_most_so_many_points_are_kept(most):
    xyz, _ = pictures.point_cloud(np.ones((12, 17)), np.zeros((12, 17, 3), np.uint8), np.eye(3), most)
    assert 1 <= len(xyz) <= most
    assert len(xyz) >= min(204, most) / 5  # rows and columns are halved together


def test_a_ply_file_reads_back_as_the_cloud(tmp_path: Path):
    rng = np.random.default_rng(3)
    depth, image = rng.uniform(1, 9, (6, 7)), rng.integers(0, 255, (6, 7, 3)).astype(np.uint8)
    K = np.array([[9.0, 0, 3], [0, 9, 3], [0, 0, 1]])
    assert pictures.save_ply(tmp_path / "a.ply", depth, image, K) == 42
    head, _, body = (tmp_path / "a.ply").read_bytes().partition(b"end_header\n")
    lines = head.decode().splitlines()
    assert lines[:3] == ["ply", "format binary_little_endian 1.0", "element vertex 42"]
    assert [line.split()[1:] for line in lines[3:]] == [
        *(["float", a] for a in "xyz"),
        *(["uchar", c] for c in ("red", "green", "blue")),
    ]
    assert len(body) == 42 * 15
    xyz = np.stack([np.frombuffer(body[15 * n : 15 * n + 12], "<f4") for n in range(42)])
    rgb = np.stack([np.frombuffer(body[15 * n + 12 : 15 * n + 15], "u1") for n in range(42)])
    expected = pictures.point_cloud(depth, image, K)
    assert np.array_equal(xyz, expected[0])
    assert np.array_equal(rgb, expected[1])
    assert [p.name for p in tmp_path.iterdir()] == ["a.ply"]


@pytest.mark.parametrize(
    ("low", "high", "scale"),
    [(0.3, 6, "linear"), (2, 80, "log"), (940, 1974, "linear"), (0, 0.004, "linear"), (3.1, 3.9, "log")],
)
def test_ticks_lie_within_the_range_and_are_few_and_round(low, high, scale):
    values = pictures.ticks(low, high, scale)
    assert 2 <= len(values) <= 7
    assert values == sorted(values)
    assert all(low * 0.99 <= v <= high * 1.01 and len(f"{v:g}") <= 6 for v in values)


# --- charts -----------------------------------------------------------------------------------------------------------


def test_a_line_chart_is_xml_with_one_path_a_line_and_higher_errors_are_drawn_higher():
    lines = [
        charts.ChartLine("A & <b>", "#112233", [(0, 5.0), (100, 9.0)]),
        charts.ChartLine("B", "#445566", [(0, 5.0), (100, 4.0)], dashed=True),
    ]
    text = charts.line_chart(lines, x_label="steps", y_label="MAE (mm)", boundaries=[(0, "dusk"), (50, "highway")])
    root = ET.fromstring(text)
    names = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"learning dusk", "learning highway", "steps", "MAE (mm)", "A & <b>", "B"} <= set(names)
    ends = []
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        first, last = (tuple(float(v) for v in p.split()) for p in path.attrib["d"].lstrip("M").split("L"))
        assert first[0] < last[0]
        ends.append(last[1] - first[1])
    assert len(ends) == 2
    assert ends[0] < 0 < ends[1]  # y grows downwards


def test_a_chart_without_points_says_so():
    assert "no points" in charts.line_chart([], x_label="steps", y_label="MAE")


def test_the_scatter_chart_draws_every_point_inside_and_names_the_marks():
    points = np.random.default_rng(0).normal(size=(30, 2))
    root = ET.fromstring(charts.scatter_chart(points, ["a"] * 15 + ["b"] * 15, np.array([[9.0, 9.0]]), ["r of a"]))
    circles = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == 30 + 2
    assert all(0 <= float(c.attrib["cx"]) <= 460 and 0 <= float(c.attrib["cy"]) <= 400 for c in circles)
    assert "r of a" in [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]


def test_variants_of_a_method_have_different_colours():
    assert len({charts.method_colour("finetune", n) for n in range(5)}) == 5
    assert charts.method_colour("someone's own") == charts.OTHER_METHOD
