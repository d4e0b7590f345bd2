"""A model answers: three lines about itself, and depth for whatever is at hand."""

import numpy as np
import pytest

from protodepth.backbones.lite import Lite
from protodepth.data.frame import Frame
from protodepth.errors import DataError, UnknownNameError
from protodepth.model import ProtoDepth
from protodepth.storage.history import History

IMAGE = np.random.default_rng(0).integers(0, 256, (32, 48, 3), dtype=np.uint8)
POINTS = np.where(np.random.default_rng(1).random((32, 48)) < 0.1, 2.0, 0.0)
CAMERA = (60.0, 60.0, 24.0, 16.0)


@pytest.fixture(scope="module")
def model() -> ProtoDepth:
    model = ProtoDepth(Lite())
    model.add_domain("room", base=True)
    model.add_domain("hall")
    error = {"before": 200.0, "after": 150.0}
    model.history["hall"] = History(source="walk", held_out_error_mm=error)
    return model


def test_a_model_is_three_lines(model: ProtoDepth) -> None:
    network, domains, rule = repr(model).split("\n")
    low, high = model.backbone.depth_range
    assert f"{model.overhead().backbone:,} parameters, {low:g} .. {high:g} m" in network
    size = model.overhead().domains["hall"]
    assert domains == f"domains: room (the network itself); hall ({size:,} parameters, from walk, held-out error -25 %)"
    assert rule == "rule: chosen for each frame by descriptor, unknown frames: nearest"
    assert "none yet" in repr(ProtoDepth(Lite()))


def test_one_frame_is_a_prediction_and_several_are_a_list(model: ProtoDepth) -> None:
    one = model.predict(IMAGE, POINTS, CAMERA, domain="hall")
    assert one.depth.shape == (32, 48)
    frame = Frame(image=IMAGE, sparse_depth=POINTS, intrinsics=np.array([[60.0, 0, 24], [0, 60, 16], [0, 0, 1]]))
    np.testing.assert_array_equal(model.predict(frame, domain="hall").depth, one.depth)
    several = model.predict([IMAGE, IMAGE], [POINTS, 2 * POINTS], CAMERA, domain="hall")
    assert [p.domain for p in several] == ["hall", "hall"]
    np.testing.assert_allclose(several[0].depth, one.depth, rtol=1e-4)
    assert several[1].sparse_depth.max() == 4


def test_an_option_that_predict_does_not_have_is_named(model: ProtoDepth) -> None:
    with pytest.raises(UnknownNameError, match="unknown option of predict 'domian'; did you mean domain"):
        model.predict(IMAGE, POINTS, CAMERA, domian="hall")


def test_a_prediction_knows_what_it_was_made_from(model: ProtoDepth) -> None:
    p = model.predict(IMAGE, POINTS, CAMERA)
    np.testing.assert_allclose(p.image * 255, IMAGE, atol=1e-3)
    assert p.intrinsics[0, 2] == 24


def test_millimetres_that_were_taken_for_metres_stop_with_the_unit_that_fits(model: ProtoDepth) -> None:
    wrong = 1000 * POINTS
    with pytest.raises(DataError, match=r"mm: 2\.00 to 2\.00 m.*force=True"):
        model.predict(IMAGE, wrong, CAMERA)
    whole = wrong.astype(np.uint16)
    expected = model.predict(IMAGE, POINTS, CAMERA, domain="hall").depth
    np.testing.assert_allclose(model.predict(IMAGE, whole, CAMERA, unit="mm", domain="hall").depth, expected, rtol=1e-5)
    with pytest.raises(DataError, match="as m they go from"):
        model.predict(IMAGE, whole, CAMERA, unit="m")
    assert model.predict(IMAGE, wrong, CAMERA, force=True).depth.shape == (32, 48)


@pytest.mark.parametrize("camera", [(60.0, 60.0, 48.0, 32.0), (600.0, 600.0, 320.0, 240.0), (2.0, 2.0, 24.0, 16.0)])
def test_a_camera_of_another_resolution_is_refused_unless_forced(
    model: ProtoDepth, camera: tuple[float, float, float, float]
) -> None:
    with pytest.raises(DataError, match=r"(?s)resolution|does not fit"):
        model.predict(IMAGE, POINTS, camera)


def test_force_takes_a_camera_as_it_is(model: ProtoDepth) -> None:
    corner = (60.0, 60.0, 44.0, 16.0)  # of a crop, perhaps
    with pytest.raises(DataError, match=r"another resolution or crop.*force=True"):
        model.predict(IMAGE, POINTS, corner)
    assert model.predict(IMAGE, POINTS, corner, force=True).intrinsics[0, 2] == 44
