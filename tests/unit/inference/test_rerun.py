"""``--rerun``: the file can be read back and holds what was predicted; nothing half-written stays."""

import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from conftest import tiny_model
from protodepth.cli import main
from protodepth.data.example import write_example
from protodepth.errors import ConfigError
from protodepth.inference.inputs import open_data
from protodepth.inference.rerun import RerunFile
from protodepth.model import ProtoDepth
from protodepth.report import pictures
from protodepth.types import Prediction

chunks = pytest.importorskip("rerun.chunk", reason="rerun-sdk is not installed: pip install 'protodepth[viz]'")
Table = dict[str, dict[int, dict[str, Any]]]  # entity -> time -> component -> value


def call(text: str) -> int:
    return main.run(text.split())


def read(path: Path, timeline: str = "frame") -> Table:
    """Everything that was logged on a timeline, by Rerun's own reader."""
    table: Table = defaultdict(dict)
    for chunk in chunks.RrdReader(path).stream():
        rows = chunk.to_record_batch().to_pydict()
        for index, time in enumerate(rows.pop(timeline, [])):
            values = {name.split(":")[-1]: column[index] for name, column in rows.items() if ":" in name}
            table[chunk.entity_path][time] = values
    return table


def scalar(table: Table, entity: str, time: int = 0) -> float:
    return table[entity][time]["scalars"][0]


@pytest.fixture
def here(model: ProtoDepth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_example(tmp_path / "rec", "room", frames=3, size=(32, 48))
    model.save_pretrained("m")
    return tmp_path


def test_predict_writes_every_frame_as_it_was_predicted(here: Path, capsys: pytest.CaptureFixture[str]):
    assert call("predict --model m --data rec --out out --format npy --rerun sub/all.rrd") == 0
    assert "and sub/all.rrd" in capsys.readouterr().out
    records = [json.loads(line) for line in Path("out/predictions.jsonl").read_text().splitlines()]
    table = read(Path("sub/all.rrd"))
    for n, (record, frame) in enumerate(zip(records, open_data("rec"), strict=True)):
        depth = np.load(Path("out") / "depth" / f"{record['frame']}.npy")
        shown = table["/depth/completed"][n]
        assert np.array_equal(np.frombuffer(bytes(shown["buffer"][0]), np.float32).reshape(32, 48), depth)
        assert shown["meter"] == [1.0]
        cloud = np.array(table["/world/cloud/completed"][n]["positions"])
        np.testing.assert_allclose(cloud, pictures.point_cloud(depth, frame.image, frame.intrinsics)[0], rtol=1e-5)
        points = np.array(table["/world/points"][n]["positions"])
        assert np.sort(points[:, 2]) == pytest.approx(np.sort(frame.sparse_depth[frame.sparse_depth > 0]))
        assert len(table["/world/camera/points"][n]["positions"]) == len(points)
        K = np.array(table["/world/camera"][n]["image_from_camera"][0]).reshape(3, 3).T  # stored column by column
        np.testing.assert_allclose(K, frame.intrinsics, rtol=1e-6)
        picture = np.asarray(Image.open(io.BytesIO(bytes(table["/world/camera/image"][n]["blob"][0]))))
        assert np.abs(picture.astype(float) - frame.image).mean() < 6  # a JPEG
        for name, value in record["similarity"].items():
            assert scalar(table, f"/similarity/{name}", n) == pytest.approx(value, abs=1e-5)
            assert scalar(table, f"/chosen/{name}", n) == (name == record["domain"])
        assert table["/domain"][n]["text"] == [f"{frame.name}: {record['domain']}"]


def test_an_unknown_frame_shows_its_distances_and_a_warning(tmp_path: Path):
    (frame,) = [f for f, _ in zip(open_data("worlds:room?size=32x48&train=1&val=1&test=1"), range(1), strict=False)]
    found = Prediction(
        depth=frame.sparse_depth + 1, domain="base", similarity={"room": 0.5}, unknown=True, distance={"room": 9.0},
        excess=2.5
    )  # fmt: skip
    with RerunFile(tmp_path / "a.rrd", ["completed"]) as file:
        file.add(frame, {"completed": found})
    table = read(tmp_path / "a.rrd")
    assert (scalar(table, "/distance/room"), scalar(table, "/excess")) == (9.0, 2.5)
    assert (scalar(table, "/chosen/room"), scalar(table, "/chosen/base")) == (0.0, 1.0)
    assert table["/domain"][0]["level"] == ["WARN"]


def test_adapt_writes_losses_and_frames_before_and_after_even_if_it_did_not_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("protodepth.training.adapt.HELPED", 0.99)
    monkeypatch.setattr("protodepth.training.watch.Watch.restore", lambda self: None)  # the last step, good or bad
    write_example(tmp_path / "rec", "room", frames=24, size=(32, 48))
    tiny_model(pose=True).save_pretrained("m")
    assert call("adapt --model m --data rec --name den --out m2 --steps 3 --rerun a.rrd") == 2
    assert "wrote a.rrd" in capsys.readouterr().out
    assert not Path("m2").exists()
    steps, table = read(tmp_path / "a.rrd", "step"), read(tmp_path / "a.rrd")
    assert sorted(steps["/training/total"]) == [1, 2, 3]
    assert sorted(table["/depth/base"]) == sorted(table["/depth/den"]) == list(range(len(table["/depth/den"])))
    assert table["/depth/base"][0]["buffer"] != table["/depth/den"][0]["buffer"]


def test_a_failure_leaves_no_file_and_a_wrong_name_is_refused_before_the_work(here: Path, capsys):
    with pytest.raises(KeyboardInterrupt), RerunFile("x.rrd", ["completed"]):
        raise KeyboardInterrupt
    assert not [p for p in here.iterdir() if "x" in p.name]
    with pytest.raises(ConfigError, match=r"ends in \.rrd"):
        RerunFile("x.txt", ["completed"])
    assert call("predict --model m --data rec --out out --rerun all.txt") == 2
    assert "ends in .rrd" in capsys.readouterr().err
    assert not Path("out").exists()
