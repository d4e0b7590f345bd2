"""Export to ONNX and OpenVINO.  Every export runs its own graph against PyTorch and leaves no file if they differ.

Inside a graph the prototypes are constants: A, P and the keys K = P W of one domain, or of all domains with the choice
(Eq. 11) made for each image.  See docs/export.md for the inputs and outputs.
"""

import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter as clock
from typing import Any, Literal

import torch
from torch import Tensor

from protodepth.data.frame import Frame
from protodepth.errors import ConfigError, ProtoDepthError, UnknownNameError
from protodepth.inference.engines import int8
from protodepth.inference.engines.graph import Graph, random_batch
from protodepth.inference.engines.runtimes import KEY, SUFFIX, Engine, GraphError, GraphInfo, Runtime, feed, need
from protodepth.inference.memory import check_size
from protodepth.model import ProtoDepth
from protodepth.selection import Rule
from protodepth.storage import files as stored_files
from protodepth.types import Batch

TOLERANCE = 1e-3  # largest relative error of the depth
SMALLEST, LARGEST = 8, 2**16  # sides of a frame

Way = Literal["any size", "traced", "one size"]
WAYS: tuple[Way, ...] = ("any size", "traced", "one size")  # in the order in which they are tried


class ExportError(ProtoDepthError):
    """A network that the exporter cannot write, or a graph that computes something else than the network."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What ``export`` wrote."""

    files: tuple[Path, ...]
    info: GraphInfo
    difference: float  # largest relative difference from PyTorch that the check found, in float32
    seconds: float = 0.0
    note: str = ""  # why the size is fixed, if it is
    lost: float | None = None  # int8: by how much the error at hidden points grew, as a share

    def _sizes(self) -> str:
        (height, width), (high_h, high_w) = self.info.smallest, self.info.largest
        low = "" if (height, width) == (SMALLEST, SMALLEST) else f" from {height}x{width}"
        high = "" if (high_h, high_w) == (LARGEST, LARGEST) else f" up to {high_h}x{high_w}"
        return f"sizes{low}{high}" if low or high else "any size"

    def __str__(self) -> str:
        info = self.info
        inside = f"domain {info.domain}" if info.domain else f"choosing among {', '.join(info.domains)}"
        size = (
            f"any batch, {self._sizes()}"
            if info.dynamic_size
            else f"any batch, size {info.size[0]}x{info.size[1]} only"
        )
        megabytes = sum(f.stat().st_size for f in self.files) / 1e6
        eight = "" if self.lost is None else f"; in int8 the error at hidden points changes by {100 * self.lost:+.2f} %"
        return (
            f"wrote {', '.join(str(f) for f in self.files)} ({megabytes:.1f} MB): {info.backbone}, {inside}, {size}; "
            f"largest relative difference from PyTorch {self.difference:.1e} (limit {TOLERANCE:g}){eight}"
        )


def export(
    model: ProtoDepth,
    file: str | Path,
    *,
    format: Runtime | None = None,
    size: tuple[int, int] = (480, 640),
    domain: str | None = None,
    precision: Literal["float32", "int8"] = "float32",
    calibrate: str | None = None,
) -> Exported:
    """Write the model as one graph, after checking that it computes what PyTorch computes.

    ``domain`` folds one domain in ("base": none); None puts all of them in, and the choice.  ``size`` is (height,
    width); other sizes work too unless the network does not allow it, which the result says.
    ``format`` follows from the file's name.  ``precision`` int8 (OpenVINO) computes learned convolutions in eight bits,
    with ranges from frames of ``calibrate`` (a recording or data argument; None: drawn rooms and streets), and writes
    nothing if the error at hidden points of other frames grows by more than 1 %.

    Example: ``export(model, "model.onnx", domain="warehouse")``
    """
    started, file = clock(), Path(file)
    format = _format(file, format)
    if precision == "int8" and format != "openvino":
        raise ConfigError(f"int8 is for OpenVINO, which gains most by it: export to NAME.xml instead of {file}")
    if precision == "float32" and calibrate is not None:
        raise ConfigError("frames to calibrate by are for int8: say --precision int8, or leave --calibrate out")
    if min(size) < 32:
        raise ConfigError(f"size {size[0]}x{size[1]} is too small: at least 32x32")
    check_size(size, model)
    for module in ("onnxscript", "onnx", "onnxruntime", *(["openvino"] if format == "openvino" else [])):
        need(module)
    graph, note = Graph(model, domain), ""
    frames = int8.int8_frames(calibrate, size, model.backbone.depth_range) if precision == "int8" else None
    free = model.backbone.sizes_in_graph
    if not free:
        note = f"the size is fixed: the number of levels of {model.backbone.name} depends on it"
    for way in WAYS if free else WAYS[1:]:
        try:
            return replace(_write(graph, model, file, size, way, frames), note=note, seconds=clock() - started)
        except (RuntimeError, ExportError, GraphError) as error:  # of the exporters, too
            if way is WAYS[-1]:
                raise ExportError(f"{model.backbone.name} cannot be exported: {_reason(error)}") from error
            note = note or f"the size is fixed, for a graph of any size fails: {_reason(error)}"
    raise AssertionError


def _write(
    graph: Graph,
    model: ProtoDepth,
    file: Path,
    size: tuple[int, int],
    way: Way,
    frames: tuple[Sequence[Frame], Sequence[Frame]] | None = None,
) -> Exported:
    """Convert, check, and only then write.  ``frames``: those that calibrate and check a graph in eight bits."""
    data, info = convert(graph, model, size, way, _format(file, None))
    with tempfile.TemporaryDirectory() as folder:
        drafts = _draft(Path(folder), data, info, _format(file, None))
        plain, lost = Engine.open(drafts[-1]), None
        difference = compare_with_torch(plain, model)
        if frames is not None:
            calibrating, checking = frames
            int8.check_calibration_frames([*calibrating, *checking], size, any_size=info.dynamic_size)
            info = replace(info, precision="int8")
            data = int8.quantised(data, calibrating, scaffolded=info.scaffold)
            (place := Path(folder) / "int8").mkdir()
            drafts = _draft(place, data, info, _format(file, None))
            lost = int8.lost(plain, Engine.open(drafts[-1]), checking)
            int8.check_lost(lost)
        files = tuple(file.with_suffix(draft.suffix) for draft in drafts)
        for draft, final in zip(drafts, files, strict=True):
            stored_files.write_bytes(final, draft.read_bytes())
    return Exported(files, info, difference, lost=lost)


def _format(file: Path, format: Runtime | None) -> Runtime:
    by_name = {suffix: runtime for runtime, suffix in SUFFIX.items()}
    if format is not None and format not in SUFFIX:
        raise UnknownNameError("export format", format, tuple(SUFFIX))
    if file.suffix not in by_name or format not in (None, by_name[file.suffix]):
        expected = SUFFIX[format] if format else " or ".join(by_name)
        raise ConfigError(f"cannot export to {file}: expected a name that ends in {expected}")
    if file.is_dir():
        raise ConfigError(f"cannot export to {file}: it is a folder")
    return by_name[file.suffix]


def _reason(error: BaseException) -> str:
    """The innermost message of the exporter in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    return text[:300] + ("..." if len(text) > 300 else "")


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter talks about libraries that are not needed here."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def convert(
    graph: Graph, model: ProtoDepth, size: tuple[int, int], way: Way, runtime: Runtime = "onnx"
) -> tuple[bytes, GraphInfo]:
    """The bytes of an ONNX file with its description inside; ``runtime`` is what will read it."""
    graph.backbone.blocks_in_graph = runtime == "onnx"
    batch = random_batch(size, 2, model.backbone.depth_range)
    inputs = {name: torch.from_numpy(a) for name, a in feed(batch, scaffolded=graph.scaffolded).items()}
    outputs = ["depth"] if graph.domain is not None else ["depth", "domain", "similarity"]
    with _quiet(), torch.no_grad():
        if way == "traced":
            proto, (smallest, largest) = _traced(graph.eval(), inputs, outputs), (size, size)
        else:
            program = _program(graph.eval(), inputs, outputs, dynamic=way == "any size")
            smallest, largest = _range(program.exported_program, size) if way == "any size" else (size, size)
            proto = program.model_proto
    info = GraphInfo(
        backbone=model.backbone.name,
        backbone_sha256=model.fingerprint(),
        depth_range=model.backbone.depth_range,
        domain=graph.domain,
        domains=graph.names,
        size=size,
        smallest=smallest,
        largest=largest,
        scaffold=graph.scaffolded,
    )
    proto.producer_name = "protodepth"
    need("onnx").helper.set_model_props(proto, {KEY: info.dumps()})
    return proto.SerializeToString(), info


def _program(graph: Graph, inputs: Mapping[str, Tensor], outputs: Sequence[str], *, dynamic: bool) -> Any:
    """By torch.export: sound for any size, and slow (40 s for the 1,000 operations of ``scalefree``)."""
    free = torch.export.Dim.DYNAMIC
    maps = {0: free, 2: free, 3: free} if dynamic else {0: free}
    program = torch.onnx.export(
        graph,
        tuple(inputs.values()),
        dynamo=True,
        verbose=False,
        input_names=list(inputs),
        output_names=list(outputs),
        dynamic_shapes=tuple({0: free} if name == "intrinsics" else maps for name in inputs),
    )
    assert program is not None
    return program


def _traced(graph: Graph, inputs: Mapping[str, Tensor], outputs: Sequence[str]) -> Any:
    """By a trace, in seconds, for one size: whatever follows from the size is a constant, and folded.

    A trace that took note of the batch's size is found by the check, which runs other ones.
    """
    with tempfile.TemporaryDirectory() as folder:
        traced, folded = Path(folder) / "traced.onnx", Path(folder) / "folded.onnx"
        torch.onnx.export(
            graph,
            tuple(inputs.values()),
            traced,
            dynamo=False,
            opset_version=18,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes={name: {0: "batch"} for name in (*inputs, *outputs)},
        )
        _fold(traced, folded)
        return need("onnx").load(str(folded))


def _fold(file: Path, out: Path) -> None:
    """Write the same graph with its constants computed: only standard operations, a fraction of the nodes."""
    runtime = need("onnxruntime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    options.optimized_model_filepath = str(out)
    runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def _range(program: Any, size: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """The sizes for which PyTorch takes the branches that were traced; a graph itself checks nothing."""
    image = next(node for node in program.graph.nodes if node.op == "placeholder" and node.name == "image").meta["val"]
    limits = []
    for side, given in zip(image.shape[2:], size, strict=True):
        expression = getattr(getattr(side, "node", None), "expr", None)  # a plain number: the exporter fixed it
        bounds = program.range_constraints.get(expression)
        limits.append((given, given) if bounds is None else (_side(bounds.lower), _side(bounds.upper)))
    (low_h, high_h), (low_w, high_w) = limits
    return (low_h, low_w), (high_h, high_w)


def _side(bound: Any) -> int:
    """An infinite bound of the exporter is neither an int nor a float."""
    return LARGEST if bound > LARGEST else max(SMALLEST, int(bound))


def _draft(folder: Path, data: bytes, info: GraphInfo, format: Runtime) -> list[Path]:
    """The graph as files in a temporary folder; the one to open comes last."""
    onnx = folder / "graph.onnx"
    onnx.write_bytes(data)
    if format == "onnx":
        return [onnx]
    openvino = need("openvino")
    graph = openvino.Core().read_model(str(onnx))  # not convert_model: that one reports its use to the vendor
    graph.set_rt_info(info.dumps(), [KEY])
    openvino.save_model(graph, str(folder / "graph.xml"), compress_to_fp16=False)
    return [folder / "graph.bin", folder / "graph.xml"]


def compare_with_torch(engine: Engine, model: ProtoDepth, tolerance: float = TOLERANCE) -> float:
    """Compare a graph with PyTorch on random frames at two sizes (one if it has one);
    returns the largest relative difference.
    """
    info, worst = engine.info, 0.0
    for count, size, share in ((1, info.size, 0.05), (3, _another(info), 0.005)):
        batch = random_batch(size, count, info.depth_range, seed=count, share=share)
        difference = _difference(engine, model, batch)
        if not difference <= tolerance:  # also for NaN
            raise ExportError(
                f"the exported graph differs from PyTorch by {difference:.2g} of the depth at {count} x "
                f"{size[0]}x{size[1]} (limit {tolerance:g}): nothing was written, "
                "please report the network and the versions (protodepth doctor)"
            )
        worst = max(worst, difference)
    return worst


def _another(info: GraphInfo) -> tuple[int, int]:
    """About half the size and mostly odd, or as near to that as the graph goes."""
    wished = (max(info.size[0] // 2 + 1, 33), max(info.size[1] // 2 + 3, 35))
    sides = [min(max(w, low), high) for w, low, high in zip(wished, info.smallest, info.largest, strict=True)]
    return sides[0], sides[1]


def _difference(engine: Engine, model: ProtoDepth, batch: Batch) -> float:
    """The largest relative error of the depth, and of the cosines, each frame in the domain that the graph chose."""
    ours = engine.predict_batch(batch)
    theirs = [model.predict_batch(one, name) for one, name in zip(batch.singles(), ours.domains, strict=True)]
    depth = torch.cat([p.depth for p in theirs]).cpu()
    if ours.depth.shape != depth.shape:
        return float("inf")
    worst = float(((ours.depth - depth).abs() / depth.abs().clamp(min=1e-6)).max())
    if ours.similarity is None:
        return worst
    choosing = model.predict_batch(batch, rule=Rule())  # not theirs: there the pictures are moved for the given domain
    assert choosing.similarity is not None
    cosines = choosing.similarity.cpu()
    chosen = cosines.gather(1, torch.tensor([[ours.names.index(d)] for d in ours.domains]))
    regret = cosines.amax(1, keepdim=True) - chosen  # not the index: two domains may be equally near
    return max(worst, float((ours.similarity - cosines).abs().max()), float(regret.max()))
