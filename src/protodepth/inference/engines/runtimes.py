"""Running an exported graph: the same ``predict`` as ProtoDepth, by ONNX Runtime or OpenVINO instead of PyTorch."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch

from protodepth import config
from protodepth.backbones.voiced import scaffold
from protodepth.data import arrays
from protodepth.errors import CheckpointError, ConfigError, DataError, DomainError, ProtoDepthError
from protodepth.types import Batch, BatchPrediction, Prediction

Runtime = Literal["onnx", "openvino"]
Precision = Literal["float32", "bfloat16"]
Feed = Mapping[str, np.ndarray]
Run = Callable[[Feed], list[np.ndarray]]
Shapes = tuple[tuple[str, tuple[int, ...]], ...]  # of a graph's inputs, by name

KEY = "protodepth"  # of the metadata inside a graph
VERSION = 2  # 1: without a precision
INPUTS = ("image", "sparse_depth", "intrinsics", "scaffold")
MOST_SHAPES = 4  # for which OpenVINO compiles a graph of its own
SUFFIX: Mapping[Runtime, str] = {"onnx": ".onnx", "openvino": ".xml"}


def need(module: str, extra: str = "export") -> Any:
    """An optional library (a runtime, or of another extra), or an error that says how to get it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"this needs {error.name}: pip install 'protodepth[{extra}]'") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphInfo:
    """What an exported graph says about itself; travels inside the file.

    A graph with ``domain`` has the inputs ``image``, ``sparse_depth``, ``intrinsics`` (and ``scaffold``) and the output
    ``depth``.  One that chooses (``domain`` None) also gives ``domain``, the index into ``domains``,
    and ``similarity``, the cosine to each of them.
    """

    backbone: str
    backbone_sha256: str
    depth_range: tuple[float, float]
    domain: str | None  # folded in; None = chosen inside the graph, for each image
    domains: tuple[str, ...]  # what there is to choose from
    size: tuple[int, int]  # height and width that it was exported with
    smallest: tuple[int, int]  # sizes from here on
    largest: tuple[int, int]  # and up to here may be fed; a graph itself does not check
    scaffold: bool  # needs the interpolated points of VOICED as an input
    precision: Literal["float32", "int8"] = "float32"  # of its learned convolutions
    version: int = VERSION

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str, where: Path) -> "GraphInfo":
        try:
            info = config.from_dict(cls, dict(json.loads(text)), "it")
        except (ValueError, TypeError, RecursionError, ConfigError) as error:
            raise CheckpointError(f"{where}: its description cannot be read ({error}): export it again") from None
        if info.version > VERSION:
            raise CheckpointError(
                f"{where} has version {info.version}, this program reads {VERSION}: update protodepth"
            )
        return info

    @property
    def dynamic_size(self) -> bool:
        return self.smallest != self.largest

    def check_size(self, size: tuple[int, int]) -> None:
        if not self.dynamic_size and size != self.size:
            raise DataError(
                f"the graph was exported for {self.size[0]}x{self.size[1]}, the frame is {size[0]}x{size[1]} (height x "
                f"width): export one with --size {size[0]}x{size[1]}"
            )
        if any(not low <= side <= high for low, side, high in zip(self.smallest, size, self.largest, strict=True)):
            limits = " to ".join(f"{h}x{w}" for h, w in (self.smallest, self.largest))
            raise DataError(
                f"the graph holds for sizes from {limits} (height x width), the frame is {size[0]}x{size[1]}: "
                f"export one with --size {size[0]}x{size[1]}"
            )


class GraphError(ProtoDepthError):
    """An exported graph that cannot compute a frame when it is run."""


class Engine:
    """An exported graph, ready to run.  Keeps no state between frames, so several threads may call it at once.

    Example: ``Engine.open("model.onnx").predict(image, sparse_depth, intrinsics).depth``
    """

    def __init__(self, info: GraphInfo, run: Run, runtime: Runtime) -> None:
        self.info, self.runtime, self._run = info, runtime, run

    @classmethod
    def open(cls, file: str | Path, *, threads: int | None = None, precision: Precision = "float32") -> "Engine":
        """A file that ``protodepth export`` wrote; ``threads`` None leaves the number to the library.

        ``precision`` bfloat16 (OpenVINO only) is faster on processors that have it, and another answer:
        docs/performance.md says by how much.
        """
        file = Path(file)
        if not file.is_file():
            raise CheckpointError(f"{file} does not exist or is not a file: expected a graph of protodepth export")
        for runtime, suffix in SUFFIX.items():
            if file.suffix == suffix:
                text, run = OPENERS[runtime](file, threads, precision)
                return cls(GraphInfo.loads(text, file), run, runtime)
        raise CheckpointError(
            f"{file} is no exported graph: expected a name that ends in {' or '.join(SUFFIX.values())}"
        )

    @property
    def domains(self) -> tuple[str, ...]:
        return self.info.domains if self.info.domain is None else (self.info.domain,)

    @property
    def depth_range(self) -> tuple[float, float]:
        return self.info.depth_range

    def check_domain(self, domain: str | None) -> None:
        """A graph cannot be told which domain to use: it has one, or it chooses."""
        has = self.info.domain
        if domain not in (None, has):
            what = f"chooses among {', '.join(self.info.domains)}" if has is None else f"has domain {has!r} inside"
            raise DomainError(f"domain {domain!r}: this graph {what}; export one with --domain {domain}")

    def predict(self, image: Any, sparse_depth: Any, intrinsics: Any, *, domain: str | None = None) -> Prediction:
        """Dense depth for one frame of arrays, as :meth:`ProtoDepth.predict`."""
        return self.predict_batch(arrays.to_batch(image, sparse_depth, intrinsics), domain).frame(0)

    def predict_batch(self, batch: Batch, domain: str | None = None) -> BatchPrediction:
        """Several frames of one size.  The paper's rule chooses;
        a graph knows no statistics, so nothing is flagged unknown.
        """
        self.check_domain(domain)
        self.info.check_size(batch.size)
        depth, *chosen = (torch.from_numpy(np.array(a)) for a in self._run(self.feed(batch)))
        names = self.info.domains
        used = tuple(names[i] for i in chosen[0].tolist()) if chosen else (self.info.domain or "",) * len(batch)
        return BatchPrediction(
            depth=depth,
            domains=used,
            similarity=chosen[1] if chosen else None,
            names=names if chosen else (),
            descriptor=torch.empty(len(batch), 0),
        )

    def feed(self, batch: Batch) -> dict[str, np.ndarray]:
        """The graph's inputs by name, pre-processing done."""
        return feed(batch, scaffolded=self.info.scaffold)

    def __call__(self, inputs: Feed) -> list[np.ndarray]:
        """The graph's raw outputs: depth, and for one that chooses the index and the cosines."""
        return self._run(inputs)


def feed(batch: Batch, *, scaffolded: bool) -> dict[str, np.ndarray]:
    """A batch as the inputs of a graph that a runtime runs; VOICED's interpolation of the points is done here."""
    tensors = {"image": batch.image, "sparse_depth": batch.sparse_depth, "intrinsics": batch.intrinsics}
    if scaffolded:
        tensors["scaffold"] = scaffold(batch.sparse_depth)
    return {name: np.ascontiguousarray(t.cpu().numpy()) for name, t in tensors.items()}


# --- the two libraries ------------------------------------------------------------------------------------------------


def open_onnx(file: Path, threads: int | None, precision: Precision = "float32") -> tuple[str, Run]:
    """Description and function of an ONNX file in ONNX Runtime."""
    if precision != "float32":
        raise ConfigError(f"ONNX Runtime has no {precision} for processors: export to .xml and open that by OpenVINO")
    runtime, state = need("onnxruntime"), need("onnxruntime.capi.onnxruntime_pybind11_state")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 4
    try:
        session = runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except (
        state.Fail,
        state.InvalidProtobuf,
        state.InvalidGraph,
        state.InvalidArgument,
        state.NotImplemented,
    ) as error:
        raise CheckpointError(f"{file} is not a readable ONNX graph ({_line(error)})") from None
    text = session.get_modelmeta().custom_metadata_map.get(KEY)
    if text is None:
        raise CheckpointError(f"{file} was not written by protodepth export: it has no description")
    names = {i.name for i in session.get_inputs()}

    def run(inputs: Feed) -> list[np.ndarray]:
        try:
            return session.run(None, {k: v for k, v in inputs.items() if k in names})
        except (state.Fail, state.InvalidArgument, state.RuntimeException) as error:
            raise GraphError(f"the graph fails on this frame: {_line(error)}") from None

    return text, run


def open_openvino(file: Path, threads: int | None, precision: Precision = "float32") -> tuple[str, Run]:
    """Description and function of an OpenVINO file (.xml with .bin beside it)."""
    core = need("openvino").Core()
    if not file.with_suffix(".bin").is_file():
        raise CheckpointError(f"{file.with_suffix('.bin')} is missing: an OpenVINO graph is two files, copy both")
    if precision == "bfloat16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        raise ConfigError("this processor has no bfloat16: open the graph with precision float32")
    # unless asked for: on some processors the default is bfloat16, whose errors of 1 % are those of another network
    hint = {"float32": "f32", "bfloat16": "bf16"}[precision]
    properties = {"INFERENCE_PRECISION_HINT": hint, "PERFORMANCE_HINT": "LATENCY"}
    if threads is not None:
        properties["INFERENCE_NUM_THREADS"] = str(threads)
    try:
        graph = core.read_model(str(file))
        if not graph.has_rt_info([KEY]):
            raise CheckpointError(f"{file} was not written by protodepth export: it has no description")
        compiled = _CompiledGraphs(core, graph, properties)
    except RuntimeError as error:
        raise CheckpointError(f"{file} is not a readable OpenVINO graph ({_line(error)})") from None

    def run(inputs: Feed) -> list[np.ndarray]:
        used = {k: v for k, v in inputs.items() if k in compiled.names}
        try:
            fitting = compiled.fitting({name: value.shape for name, value in used.items()})
            request = fitting.create_infer_request()  # a shared one would serve one thread at a time
            request.infer(used)
        except RuntimeError as error:
            raise GraphError(f"the graph fails on this frame: {_line(error)}") from None
        answers = [np.array(request.get_output_tensor(n).data) for n in range(len(fitting.outputs))]
        if len(answers[0]) != len(inputs["image"]):  # seen with bfloat16 where oneDNN may not use it
            raise GraphError(f"OpenVINO gave no answer in {precision} here: open the graph with precision float32")
        return answers

    return str(graph.get_rt_info([KEY]).value), run


class _CompiledGraphs:
    """An OpenVINO graph compiled for the very shapes that come: one for any shape is up to twice as slow."""

    def __init__(self, core: Any, graph: Any, properties: Mapping[str, str]) -> None:
        self._core, self._graph, self._properties = core, graph, properties
        self._known: dict[Shapes, Any] = {}
        self._any: Any = None
        self._lock = Lock()
        self.names = set().union(*(side.get_names() for side in graph.inputs))  # one may have several: of a pad, too
        if all(part.is_static for side in graph.inputs for part in list(side.partial_shape)[1:]):
            self.fitting(self._single())  # what cannot be compiled is known when the file is opened

    def _single(self) -> dict[str, tuple[int, ...]]:
        """The shapes of one frame, of a graph for one size."""
        shapes = {}
        for side in self._graph.inputs:
            name = next(name for name in INPUTS if name in side.get_names())
            shapes[name] = (1, *(part.get_length() for part in list(side.partial_shape)[1:]))
        return shapes

    def fitting(self, shapes: Mapping[str, tuple[int, ...]]) -> Any:
        """Compiled for these shapes; after the first few, for any: each takes seconds and memory."""
        key = tuple(sorted(shapes.items()))
        with self._lock:
            if key not in self._known and len(self._known) < MOST_SHAPES:
                self._known[key] = self._compile(shapes)
            return self._known[key] if key in self._known else self._for_any()

    def _compile(self, shapes: Mapping[str, tuple[int, ...]]) -> Any:
        fixed = self._graph.clone()
        try:
            fixed.reshape({side: next(s for n, s in shapes.items() if n in side.get_names()) for side in fixed.inputs})
            return self._core.compile_model(fixed, "CPU", self._properties)
        except RuntimeError:  # "Loop detected during topological sort", OpenVINO 2026.4 with scalefree
            return self._for_any()

    def _for_any(self) -> Any:
        if self._any is None:
            self._any = self._core.compile_model(self._graph, "CPU", self._properties)
        return self._any


def _line(error: BaseException) -> str:
    """The part of a library's message that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__


OPENERS: Mapping[Runtime, Callable[[Path, int | None, Precision], tuple[str, Run]]] = {
    "onnx": open_onnx,
    "openvino": open_openvino,
}
