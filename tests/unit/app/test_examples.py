"""The examples are frames of the recordings that ``data example`` draws; the page starts where adapting shows."""

import io

import numpy as np
import pytest
from PIL import Image

from conftest import tiny_model
from protodepth import open_domain
from protodepth.app.examples import NUMBER, SIZE, SMALL, example, example_names, first_example, thumbnail
from protodepth.data.example import walk, write_example
from protodepth.data.worlds import worlds
from protodepth.errors import UnknownNameError
from protodepth.storage.history import History


def test_examples_fit_the_range_of_the_network():
    assert set(example_names((0.1, 8.0))) == {"room", "warehouse", "corridor_night", "office"}
    assert set(example_names((1.5, 100.0))) == {"street", "street_dusk", "highway", "garden"}
    assert set(example_names((0.1, 100.0))) == set(NUMBER) == set(worlds.WORLDS)


@pytest.mark.parametrize("name", NUMBER)
def test_an_example_has_an_image_points_depth_and_a_camera_of_one_size(name: str):
    frame = example(name)
    assert frame.image.shape == (*SIZE, 3)
    assert frame.sparse_depth.shape == frame.ground_truth.shape == SIZE
    points = frame.sparse_depth > 0
    assert 100 < points.sum() < 0.1 * points.size
    error = np.abs(frame.sparse_depth - frame.ground_truth)[points & (frame.ground_truth > 0)]
    assert np.median(error / frame.sparse_depth[points & (frame.ground_truth > 0)]) < 0.05  # the sensor's noise
    assert frame.intrinsics[0, 0] == pytest.approx(worlds.WORLDS[name].focal * SIZE[1], rel=1e-4)
    assert Image.open(io.BytesIO(thumbnail(name))).size == SMALL[::-1]


@pytest.mark.parametrize("name", NUMBER)
def test_the_stored_picture_is_a_frame_of_the_recording_that_data_example_draws(name: str):
    """Who adapts to that recording finds the same place on the page."""
    size = (60, 80)
    ((drawn, _),) = walk(name, [NUMBER[name]], size)
    stored = np.asarray(Image.fromarray(example(name).image).resize((80, 60), Image.Resampling.BOX))
    assert np.corrcoef(drawn.image.ravel(), stored.ravel())[0, 1] > 0.9
    assert np.allclose(example(name).intrinsics[:2] / 8, drawn.intrinsics[:2], atol=0.5)


def test_no_example_is_a_frame_that_adapt_learns_from(tmp_path):
    write_example(tmp_path / "rec", "room", size=(16, 24))
    domain = open_domain(str(tmp_path / "rec"))
    learned = [int(frame.name) for split in (domain.train, domain.val) for frame in split]
    assert max(learned) < min(NUMBER.values())


def test_an_example_that_does_not_exist_is_named():
    with pytest.raises(UnknownNameError, match="warehouse"):
        example("cellar")


def test_the_page_starts_where_the_model_has_learned():
    model = tiny_model()
    assert first_example(model) == "warehouse"
    model.add_domain("room", base=True)  # the network itself: nothing was adapted there
    assert first_example(model) == "warehouse"
    model.add_domain("my_office")
    assert first_example(model) == "office"
    model.add_domain("mine")
    model.history["mine"] = History(source="worlds:corridor_night")
    assert first_example(model) == "corridor_night"
