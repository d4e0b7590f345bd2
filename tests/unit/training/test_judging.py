"""A notebook asks how good a model is in one line, and gets what the command measures."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import protodepth
from conftest import tiny_model
from helpers.recordings import SHOTS, write_recording
from protodepth.data.arguments import open_domain
from protodepth.data.frame import Domain
from protodepth.errors import DataError, UnknownNameError
from protodepth.training import evaluate as errors
from protodepth.training import judging
from protodepth.training.judging import labelled

WORLD = "worlds:room?train=1&val=2&test=2"


def test_a_model_is_judged_on_a_data_argument_a_domain_or_frames_alike() -> None:
    model, data = tiny_model(), open_domain(WORLD)
    expected = errors.evaluate(lambda batch: model.predict_batch(batch, "base"), data.val, data.rules)
    for given in (WORLD, data):
        assert protodepth.evaluate(model, given, domain="base", split="val") == expected
    assert protodepth.evaluate(model, data.val, data.rules, domain="base") == expected
    assert protodepth.evaluate(lambda batch: model.predict_batch(batch, "base"), data, split="val") == expected


def test_points_of_a_folder_judge_where_there_is_no_ground_truth(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "mine", SHOTS, toml='depth_unit = "mm"')
    result = protodepth.evaluate(tiny_model(), folder, domain="base")
    data, by_points = labelled(str(folder), "test")
    assert by_points
    assert len(result.images) == len(data.test)
    whole = open_domain(folder).test[0]
    assert (data.test[0].sparse_depth > 0).sum() == pytest.approx(0.8 * (whole.sparse_depth > 0).sum(), rel=0.02)


def test_the_unit_and_the_sampler_of_a_recording_are_said_as_to_adapt(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "mine", SHOTS, toml="")
    metres = protodepth.evaluate(tiny_model(), folder, domain="base", depth_unit="mm")
    assert metres.mean == protodepth.evaluate(tiny_model(), f"{folder}?depth_unit=mm", domain="base").mean
    data, by_points = labelled(str(folder), "test", depth_unit="500")
    assert by_points
    assert data.test[0].sparse_depth.max() == pytest.approx(
        2 * open_domain(folder, depth_unit="mm").test[0].sparse_depth.max()
    )


@pytest.mark.parametrize(("count", "by_points"), [(0, False), (1, True), (2, True)])
def test_even_a_single_frame_is_judged_by_its_points_and_no_frame_by_nothing(
    count: int, by_points: bool, room: Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [replace(room.test[n], ground_truth=None) for n in range(count)]
    asked: list[dict[str, Any]] = []

    def opened(argument: str, **options: Any) -> Domain:
        asked.append(options)
        return replace(room, test=frames, identity={"dataset": "recording"})

    monkeypatch.setattr(judging, "open_domain", opened)
    assert labelled("folder", "test")[1] == by_points
    assert asked == [{}, {"withhold": 0.2}][: 1 + by_points]


def test_frames_are_judged_eight_at_a_time_unless_told(monkeypatch: pytest.MonkeyPatch, room: Domain) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(errors, "evaluate", lambda *a, batch_size: sizes.append(batch_size))
    protodepth.evaluate(tiny_model(), room, domain="base")
    protodepth.evaluate(tiny_model(), room, domain="base", batch_size=3)
    assert sizes == [8, 3]


def test_a_model_may_be_named_by_its_folder(tmp_path: Path) -> None:
    model = tiny_model()
    model.save_pretrained(tmp_path / "m")
    assert protodepth.evaluate(tmp_path / "m", WORLD, domain="base") == protodepth.evaluate(model, WORLD, domain="base")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splitt": "val"}, r"option of evaluate 'splitt'; did you mean split\?"),
        ({"split": "vall"}, r"unknown split 'vall'; did you mean val\?"),
        ({"domain": "hall"}, "unknown domain 'hall'"),
    ],
)
def test_what_is_misspelled_is_said(options: dict[str, str], message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        protodepth.evaluate(tiny_model(), WORLD, **options)


def test_frames_without_rules_are_refused() -> None:
    with pytest.raises(DataError, match="expected a folder, a data argument or a Domain"):
        protodepth.evaluate(tiny_model(), open_domain(WORLD).val)
