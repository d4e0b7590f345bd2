"""Graphs in eight bits: only what was learned is quantised, and what loses too much is not written."""

from dataclasses import replace
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from protodepth.backbones.lite import Lite
from protodepth.backbones.scalefree import ScaleFree
from protodepth.cli import main
from protodepth.data.worlds.worlds import world
from protodepth.errors import ConfigError
from protodepth.inference.engines import export, int8
from protodepth.inference.engines.graph import Graph, random_batch
from protodepth.inference.engines.int8 import Int8Error
from protodepth.inference.engines.runtimes import Engine, GraphInfo
from protodepth.model import ProtoDepth

REASON = "the extra is missing: pip install 'protodepth[export]'"
onnx = pytest.importorskip("onnx", reason=REASON)
for needed in ("onnxscript", "onnxruntime", "openvino"):
    pytest.importorskip(needed, reason=REASON)
SIZE = (48, 64)


@pytest.fixture(scope="module", autouse=True)
def without_shape_checks():
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def model() -> ProtoDepth:
    torch.manual_seed(0)
    backbone = Lite((0.1, 8.0), (4, 6, 8, 10, 12), (4, 4, 6, 6, 8))
    backbone.head.weight.data *= 10  # untrained it hardly moves the depth, whatever the convolutions do
    return ProtoDepth(backbone)


@pytest.fixture(scope="module")
def traced(model: ProtoDepth) -> tuple[bytes, GraphInfo]:
    return export.convert(Graph(model, "base"), model, SIZE, "traced", "openvino")


@pytest.fixture
def quick(model: ProtoDepth, traced: tuple[bytes, GraphInfo], monkeypatch: pytest.MonkeyPatch) -> ProtoDepth:
    """``export`` without the exporter."""
    monkeypatch.setattr(export, "convert", lambda *a, **k: traced)
    monkeypatch.setattr(int8, "CALIBRATING", 2)
    monkeypatch.setattr(int8, "CHECKING", 2)
    return model


def test_a_graph_in_int8_is_near_the_network_and_says_what_it_is(quick: ProtoDepth, tmp_path: Path) -> None:
    done = export.export(quick, tmp_path / "m.xml", size=SIZE, precision="int8")
    assert done.lost is not None
    assert done.lost <= int8.MOST_LOST
    assert f"error at hidden points changes by {100 * done.lost:+.2f} %" in str(done)
    engine = Engine.open(tmp_path / "m.xml", threads=1)
    assert engine.info.precision == done.info.precision == "int8"
    batch = random_batch(SIZE, 1, (0.1, 8.0))
    off = (engine.predict_batch(batch).depth / quick.predict_batch(batch, "base").depth).log().abs()
    assert 1e-5 < float(off.mean()) < 0.05  # eight bits, and not the float graph again


def test_only_learned_convolutions_are_quantised(traced: tuple[bytes, GraphInfo]) -> None:
    frames = world("room", size=SIZE, train=1, val=1, test=1).train
    proto = onnx.load_from_string(int8.quantised(traced[0], [frames[0]], scaffolded=False))
    learned = int8.learned_convolutions(onnx.load_from_string(traced[0]))
    makers = {name: node for node in proto.graph.node for name in node.output}
    eight = {n.name for n in proto.graph.node if n.op_type == "Conv" and n.input[1] in makers}
    assert eight == set(learned) != set()
    assert GraphInfo.loads(proto.metadata_props[0].value, Path()) == traced[1]


def test_the_pyramids_of_planes_are_not_learned() -> None:
    torch.manual_seed(0)
    model = ProtoDepth(ScaleFree())
    proto = onnx.load_from_string(export.convert(Graph(model, "base"), model, (64, 96), "traced", "openvino")[0])
    learned = int8.learned_convolutions(proto)
    shapes = {w.name: tuple(w.dims) for w in proto.graph.initializer}
    moments = {n.name for n in proto.graph.node if n.op_type == "Conv" and shapes[n.input[1]][:2] == (13, 13)}
    assert moments
    assert not moments & set(learned)
    assert len(learned) == 1 + 1 + 8 * 2 + 4 * 3 + 1  # entries, stages, merges, the last; the head's logits are not


def test_a_graph_that_loses_too_much_is_not_written(
    quick: ProtoDepth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for share in (0.011, float("nan")):
        monkeypatch.setattr(int8, "lost", lambda *a, share=share: share)
        with pytest.raises(Int8Error, match=r"grows by .* nothing was written"):
            export.export(quick, tmp_path / "m.xml", size=SIZE, precision="int8")
    assert list(tmp_path.iterdir()) == []


def test_what_is_lost_is_the_ratio_of_errors_at_points_that_were_not_shown() -> None:
    frame = world("room", size=SIZE, train=1, val=1, test=1).train[0]
    truth = frame.sparse_depth
    shown: list[np.ndarray] = []

    class Off:
        def __init__(self, metres: float) -> None:
            self.metres = metres

        def predict(self, image, points, intrinsics):
            shown.append(points)
            return type("Answer", (), {"depth": np.where(points > 0, 100.0, truth + self.metres)})

    loss = int8.lost(Off(0.2), Off(0.3), [frame])  # type: ignore[arg-type]
    assert_allclose(loss, 0.5, rtol=1e-4)
    assert np.array_equal(shown[0], shown[1])
    assert 0.3 < (shown[0] > 0).sum() / (truth > 0).sum() < 0.7
    with pytest.raises(ConfigError, match="no points"):
        int8.lost(Off(0.2), Off(0.3), [replace(frame, sparse_depth=0 * truth)])  # type: ignore[arg-type]


def test_frames_are_drawn_as_far_as_the_network_sees_or_taken_from_the_data() -> None:
    near, checking = int8.int8_frames(None, SIZE, (0.1, 8.0))
    far, _ = int8.int8_frames(None, SIZE, (0.1, 200.0))
    assert max(f.sparse_depth.max() for f in near) <= 6 < max(f.sparse_depth.max() for f in far)
    assert not {f.name for f in near} & {f.name for f in checking}
    some, others = int8.int8_frames("worlds:office?size=32x48&train=5&val=1&test=1", SIZE, (0.1, 8.0))
    assert (len(some), len(others)) == (3, 2)
    with pytest.raises(ConfigError, match="a frame to calibrate by is 32x48: export with --size 32x48"):
        int8.check_calibration_frames(some, SIZE, any_size=False)
    int8.check_calibration_frames(some, SIZE, any_size=True)
    with pytest.raises(ConfigError, match="at least 2"):
        int8.int8_frames("worlds:office?size=32x48&train=1&val=1&test=1", SIZE, (0.1, 8.0))


def test_the_command_refuses_what_makes_no_sense(quick: ProtoDepth, tmp_path: Path, capsys) -> None:
    quick.save_pretrained(tmp_path / "model")
    command = ["export", "--model", str(tmp_path / "model"), "--size", "48x64", "--out"]
    assert main.run([*command, str(tmp_path / "m.onnx"), "--precision", "int8"]) == 2
    assert "int8 is for OpenVINO" in capsys.readouterr().err
    assert main.run([*command, str(tmp_path / "m.xml"), "--calibrate", "worlds:room"]) == 2
    assert "say --precision int8" in capsys.readouterr().err
    assert main.run([*command, str(tmp_path / "m.xml"), "--precision", "int8"]) == 0
    assert "in int8 the error at hidden points changes by" in capsys.readouterr().out
