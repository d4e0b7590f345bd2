"""Graphs whose learned convolutions compute in eight bits, for OpenVINO; written only if they lose less than 1 %.

Static quantisation by ONNX Runtime: a scale for each channel of a weight, one for each map, taken from frames.  What
was not learned stays float32: the pyramids of ``scalefree`` add moments whose sizes differ by many powers of ten, and
in eight bits most of them are 0, so that planes are divided by nothing and no depth is a number.
"""

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data.arguments import open_domain
from protodepth.data.arrays import to_batch
from protodepth.data.entries import frame_seed
from protodepth.data.frame import Frame, Subset, evenly
from protodepth.data.worlds.worlds import WORLDS, world
from protodepth.errors import ConfigError, ProtoDepthError
from protodepth.inference.engines.runtimes import Engine, feed, need

CALIBRATING, CHECKING = 8, 8  # frames from which ranges are taken, and others that say what is lost
SHOWN = 0.5  # share of a frame's points that the network sees while the others judge
MOST_LOST = 0.01  # of the error at hidden points
DRAWN = ("room", "street")


class Int8Error(ProtoDepthError):
    """A graph that loses more in eight bits than it may."""


def int8_frames(
    data: str | None, size: tuple[int, int], depth_range: tuple[float, float]
) -> tuple[list[Frame], list[Frame]]:
    """(frames to calibrate on, frames to check on): of a recording, or of drawn rooms and streets as far as the
    network's depths go.
    """
    if data is None:
        names = [name for name in DRAWN if WORLDS[name].max_depth <= depth_range[1]] or list(DRAWN[:1])
        each, others = (-(-count // len(names)) for count in (CALIBRATING, CHECKING))
        places = [world(name, size=size, train=each, val=others, test=1) for name in names]
        return [d.train[n] for d in places for n in range(each)], [d.val[n] for d in places for n in range(others)]
    domain = open_domain(data)
    several = Subset(domain.train, tuple(evenly(len(domain.train), CALIBRATING + CHECKING)))
    frames = [several[n] for n in range(len(several))]
    if len(frames) < 2:
        raise ConfigError(f"{data} has {len(frames)} frames to learn from: int8 needs at least 2 to calibrate by")
    return frames[::2], frames[1::2]


def check_calibration_frames(frames: Sequence[Frame], size: tuple[int, int], *, any_size: bool) -> None:
    """A graph of one size cannot look at frames of another."""
    sizes = {frame.sparse_depth.shape for frame in frames}
    if not any_size and sizes != {size}:
        height, width = next(iter(sizes - {size}))
        raise ConfigError(
            f"the graph is for {size[0]}x{size[1]} and a frame to calibrate by is {height}x{width}: "
            f"export with --size {height}x{width}, or give other frames"
        )


def learned_convolutions(proto: Any) -> list[str]:
    """Names of the nodes whose weights are parameters of the network or of a domain's own parts.

    A graph for OpenVINO keeps the parameters' names; those of constants that were computed are others.
    """
    ours = ("backbone.", "own.")
    return [node.name for node in proto.graph.node if node.op_type == "Conv" and node.input[1].startswith(ours)]


def quantised(data: bytes, frames: Sequence[Frame], *, scaffolded: bool) -> bytes:
    """The bytes of the same ONNX graph, its learned convolutions in eight bits."""
    onnx, quantization = need("onnx"), need("onnxruntime.quantization")
    proto = onnx.load_from_string(data)
    names = learned_convolutions(proto)
    if not names:
        raise ConfigError("this network has no convolution with learned weights: int8 would change nothing")
    inputs = [side.name for side in proto.graph.input]
    with tempfile.TemporaryDirectory() as folder, _quiet_root():
        plain, out = Path(folder) / "float32.onnx", Path(folder) / "int8.onnx"
        plain.write_bytes(data)
        quantization.quantize_static(
            str(plain),
            str(out),
            _reader(quantization, frames, inputs, scaffolded),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            nodes_to_quantize=names,
            op_types_to_quantize=["Conv"],
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )
        made = onnx.load(str(out))
    del made.metadata_props[:]
    made.metadata_props.extend(proto.metadata_props)
    return made.SerializeToString()  # type: ignore[no-any-return]


def _reader(quantization: Any, frames: Sequence[Frame], inputs: Sequence[str], scaffolded: bool) -> Any:
    """The frames as what ONNX Runtime calibrates by."""

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            self.feeds = iter(frames)

        def get_next(self) -> dict[str, np.ndarray] | None:
            frame = next(self.feeds, None)
            if frame is None:
                return None
            arrays = feed(to_batch(frame.image, frame.sparse_depth, frame.intrinsics), scaffolded=scaffolded)
            return {name: arrays[name] for name in inputs}

    return Reader()


@contextmanager
def _quiet_root() -> Iterator[None]:
    """ONNX Runtime's quantiser advises through the root logger."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)


def lost(plain: Engine, ours: Engine, frames: Sequence[Frame]) -> float:
    """By how much the error at hidden points grows, as a share: the geometric mean over the frames, each of which
    hides half of its points.
    """
    logs = []
    for frame in frames:
        rng = np.random.default_rng(frame_seed(0, frame.name))
        shown = np.where(rng.random(frame.sparse_depth.shape) < SHOWN, frame.sparse_depth, np.float32(0))
        hidden = frame.sparse_depth * (shown == 0)
        if not (shown > 0).any() or not (hidden > 0).any():
            continue
        errors = []
        for engine in (plain, ours):
            depth = engine.predict(frame.image, shown, frame.intrinsics).depth
            errors.append(float(np.abs(depth - hidden)[hidden > 0].mean()))
        logs.append(np.log(max(errors[1], 1e-9) / max(errors[0], 1e-9)))
    if not logs:
        raise ConfigError("the frames to check int8 by have no points: give others")
    return float(np.exp(np.mean(logs)) - 1)


def check_lost(share: float) -> None:
    """Refuse a graph that loses too much; NaN, too."""
    if not share <= MOST_LOST:
        raise Int8Error(
            f"in eight bits the error at hidden points grows by {100 * share:.1f} % (limit {100 * MOST_LOST:g} %): "
            "nothing was written; calibrate by frames of the place (--calibrate), or leave --precision int8 out"
        )
