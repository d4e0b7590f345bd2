"""The stored examples are scenes of the worlds, and the page starts where adapting can be seen."""

import io
import zlib

import numpy as np
import pytest
from PIL import Image

from conftest import tiny_model
from protodepth.app.examples import INDEX, SIZE, SMALL, example, example_names, first_example, thumbnail
from protodepth.data.worlds import worlds
from protodepth.data.worlds.shading import photograph
from protodepth.errors import UnknownNameError
from protodepth.storage.history import History


def test_examples_fit_the_range_of_the_network():
    assert set(example_names((0.1, 8.0))) == {"room", "warehouse", "corridor_night", "office"}
    assert set(example_names((1.5, 100.0))) == {"street", "street_dusk", "highway", "garden"}
    assert set(example_names((0.1, 100.0))) == set(INDEX) == set(worlds.WORLDS)


@pytest.mark.parametrize("name", INDEX)
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


def test_the_stored_picture_is_the_scene_that_the_world_draws():
    spec, size = worlds.WORLDS["highway"], (60, 80)
    seeds = np.random.SeedSequence((zlib.crc32(b"highway"), 2, 0, INDEX["highway"]))
    scene, (_, camera, _), film, _ = worlds.set_scene(spec, seeds, size)
    image = worlds.develop(photograph(scene, camera, size), spec, film)
    stored = np.asarray(Image.fromarray(example("highway").image).resize((80, 60), Image.Resampling.BOX))
    assert np.corrcoef(image.ravel(), stored.ravel())[0, 1] > 0.95


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
