"""What a notebook shows: a picture that can be decoded, and a table with the facts."""

import base64
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from protodepth.data.arguments import open_domain
from protodepth.errors import DataError
from protodepth.report import show
from protodepth.training.adapt import Adaptation
from protodepth.training.evaluate import Evaluation
from protodepth.types import Prediction

K = np.array([[10.0, 0, 2], [0, 10, 1], [0, 0, 1]])
DEPTH = np.linspace(1, 4, 12).reshape(3, 4)
PREDICTION = Prediction(
    depth=DEPTH, domain="room", similarity={"hall": 0.5, "room": 0.93}, image=np.full((3, 4, 3), 0.5), intrinsics=K
)
ADAPTATION = Adaptation(
    name="hall", frames=15, steps=40, best_step=30, seconds=9.0, before=100.0, after=80.0, spread=0.02, better=1.0,
    judged=6, chosen=(101.0, 79.0), interpolation={"linear": 120.0}, curve=((0, 101.0), (30, 79.0), (40, 80.0)),
)  # fmt: skip
ROWS = [{"name": str(n), "mae": 10.0 * n, "domain": "room"} for n in range(4)]
EVALUATION = Evaluation({"mae": 15.0, "rmse": 20.0, "imae": 3.0, "irmse": 4.0}, ROWS)


def picture(html: str) -> Pillow.Image:
    found = re.search(r"data:image/png;base64,([^\"]+)", html)
    assert found
    return Pillow.open(io.BytesIO(base64.b64decode(found[1])))


@pytest.mark.parametrize(
    ("thing", "facts"),
    [
        (PREDICTION, ["room", "room 0.930, hall 0.500", "1.03 .. 3.97 m, median 2.50 m"]),
        (ADAPTATION, ["100.0 -&gt; 80.0 mm (-20.0 +- 2.0 %): helped", "40 steps on 15 frames", "linear 120.0 mm"]),
        (EVALUATION, ["15.00 mm", "iRMSE", "4.00 1/km", "room 4"]),
    ],
)
def test_html_has_a_picture_and_the_facts(thing: Any, facts: list[str]) -> None:
    html = thing._repr_html_()
    assert min(picture(html).size) > 50
    assert all(fact in html for fact in facts), html[-900:]
    assert "http" not in html


def test_data_is_a_contact_sheet() -> None:
    domain = open_domain("worlds:room?size=32x48&train=4&val=1&test=1")
    html = domain._repr_html_()
    assert picture(html).width > 1000
    assert "4 train, 1 val, 1 test" in html
    assert repr(domain) == "Domain('room': train 4, val 1, test 1 frames; judged from 0.2 to 5 m)"
    points = int((domain.train[0].sparse_depth > 0).sum())
    assert repr(domain.train[0]) == (
        f"Frame({domain.train[0].name!r}: 32x48, {points} points, 2 neighbours with poses, ground truth)"
    )


def test_show_is_a_figure_with_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    figure = PREDICTION.show()
    assert "domain: room" in figure.axes[0].get_title()
    assert len(figure.axes[0].images) == 1


def test_a_notebook_shows_the_figure_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib import pyplot

    shown = []
    monkeypatch.setattr("matplotlib.get_backend", lambda: "module://matplotlib_inline.backend_inline")
    monkeypatch.setattr(pyplot, "show", lambda: shown.append(pyplot.gcf()))
    assert PREDICTION.show() is None  # the last line of a cell is shown by what it is
    assert len(shown) == 1
    pyplot.close(shown[0])


def test_a_cloud_has_points_and_colours_and_a_file(tmp_path: Path) -> None:
    xyz, rgb = PREDICTION.cloud(tmp_path / "a.ply")
    assert xyz.shape == rgb.shape == (12, 3)
    np.testing.assert_allclose(xyz[:, 2], DEPTH.ravel(), rtol=1e-6)
    np.testing.assert_allclose(xyz[0], [-0.2, -0.1, 1.0], atol=1e-6)
    assert (tmp_path / "a.ply").read_bytes().startswith(b"ply\n")
    with pytest.raises(DataError, match=r"written as \.ply"):
        PREDICTION.cloud(tmp_path / "a.pcd")
    with pytest.raises(DataError, match="does not know its image"):
        Prediction(depth=DEPTH, domain="x", similarity={}).cloud()


def test_save_writes_everything_that_is_known(tmp_path: Path) -> None:
    written = PREDICTION.save(tmp_path / "out")
    assert {p.name for p in written} == {"depth.npy", "depth_color.png", "prediction.json", "cloud.ply"}
    np.testing.assert_allclose(np.load(tmp_path / "out" / "depth.npy"), DEPTH, rtol=1e-6)
    assert json.loads((tmp_path / "out" / "prediction.json").read_text())["domain"] == "room"
    bare = Prediction(depth=DEPTH, domain="x", similarity={}).save(tmp_path / "bare")
    assert "cloud.ply" not in {p.name for p in bare}


def test_a_prediction_is_an_array_of_depth_and_is_saved_into_a_folder(tmp_path: Path) -> None:
    np.testing.assert_array_equal(np.asarray(PREDICTION), DEPTH)
    with pytest.raises(DataError, match="give a folder"):
        PREDICTION.save(tmp_path / "depth.png")
    assert list(tmp_path.iterdir()) == []


def test_what_was_learned_and_measured_is_said_in_a_line_or_two() -> None:
    assert repr(ADAPTATION) == str(ADAPTATION)
    assert repr(ADAPTATION).startswith("hall: 40 steps on 15 frames in 9 s, kept step 30")
    assert repr(EVALUATION) == (
        "Evaluation(4 frames, mae 15 mm, rmse 20 mm, imae 3 1/km, irmse 4 1/km; domains: room 4)"
    )


def test_a_prediction_says_how_near_it_is_to_being_unknown() -> None:
    assert "0.43 of that at which a frame is unknown" in replace(PREDICTION, excess=0.431)._repr_html_()
    assert "unknown" not in PREDICTION._repr_html_()


@pytest.mark.parametrize(("after", "words"), [(100.0, "(0.0 +- "), (99.99, "(0.0 +- "), (130.0, "(+30.0 +- ")])
def test_what_changed_nothing_has_no_sign(after: float, words: str) -> None:
    assert words in str(replace(ADAPTATION, after=after))


def test_frames_are_counted_in_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(show, "_as_png", lambda figure: drawn.append(figure) or b"")
    show.draw_evaluation(replace(EVALUATION, images=ROWS[:2]))
    assert all(float(place).is_integer() for place in drawn[0].axes[0].get_xticks())


def test_a_prediction_is_one_line() -> None:
    assert repr(PREDICTION) == "Prediction(3x4, 1.00 .. 4.00 m, domain room, similarity hall 0.500, room 0.930)"
