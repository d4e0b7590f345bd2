"""Graphs made when needed: exported on first use and kept in the cache folder under the hash of all they depend on."""

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from protodepth import backbones
from protodepth.errors import CheckpointError, DataError
from protodepth.inference.engines import export, graph, int8
from protodepth.inference.engines.runtimes import SUFFIX, Engine, Runtime
from protodepth.model import ProtoDepth
from protodepth.progress import Say
from protodepth.storage import files
from protodepth.types import BASE, Batch, BatchPrediction


def _nothing(text: str) -> None:
    """Say nothing."""


def engine_for(
    model: ProtoDepth,
    runtime: Runtime,
    size: tuple[int, int],
    *,
    domain: str | None = None,
    threads: int | None = None,
    precision: Literal["float32", "int8"] = "float32",
    say: Say = _nothing,
) -> Engine:
    """A graph of this model, exported on first need and kept in the cache folder under the hash of all it depends
    on.
    """
    folder = _graph_folder()
    key = _key(model, domain)[:24] + ("-int8" if precision == "int8" else "")
    for name in (f"{key}{SUFFIX[runtime]}", f"{key}-{size[0]}x{size[1]}{SUFFIX[runtime]}"):
        try:
            engine = Engine.open(folder / name, threads=threads)
            engine.info.check_size(size)
        except (CheckpointError, DataError):  # not there, damaged, or not for this size: made anew
            continue
        return engine
    say(f"making a graph for {runtime}, kept in {folder}")
    export_size = (max(size[0], 32), max(size[1], 32))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        file = Path(place) / f"graph{SUFFIX[runtime]}"
        done = export.export(model, file, size=export_size, domain=domain, precision=precision)
        done.info.check_size(size)
        name = key if done.info.dynamic_size else f"{key}-{size[0]}x{size[1]}"
        for written in done.files:
            written.replace(folder / f"{name}{written.suffix}")
    return Engine.open(folder / f"{name}{SUFFIX[runtime]}", threads=threads)


class GraphPredictor:
    """``predict_batch`` of a model by exported graphs, one for all sizes or one for each, made on first need."""

    def __init__(self, model: ProtoDepth, runtime: Runtime, domain: str | None, say: Say = _nothing) -> None:
        self.model, self.runtime, self.domain, self.say = model, runtime, domain, say
        self._engines: dict[tuple[int, int], Engine] = {}

    def prepare(self, size: tuple[int, int]) -> Engine:
        if size not in self._engines:
            self._engines[size] = engine_for(self.model, self.runtime, size, domain=self.domain, say=self.say)
        return self._engines[size]

    def __call__(self, batch: Batch) -> BatchPrediction:
        return self.prepare(batch.size).predict_batch(batch)


def _graph_folder() -> Path:
    """``$PROTODEPTH_CACHE/graphs``, or ``~/.cache/protodepth/graphs``."""
    chosen = os.environ.get("PROTODEPTH_CACHE")
    return (Path(chosen) if chosen else Path.home() / ".cache" / "protodepth") / "graphs"


def _key(model: ProtoDepth, domain: str | None) -> str:
    """sha256 of the network, the domains inside, and what writes the graph."""
    about: Mapping[str, Any] = {"domain": domain, "torch": torch.__version__, "network": model.fingerprint()}
    names = model.domains if domain is None else () if domain == BASE else (domain,)
    state = {f"{n}/{k}": t for n in names for k, t in model.domain(n).state_dict().items()}
    networks = sorted(Path(str(backbones.__file__)).parent.glob("*.py"))
    writers = (*(Path(str(module.__file__)) for module in (graph, export, int8)), *networks)
    source = hashlib.sha256(b"".join(file.read_bytes() for file in writers)).hexdigest()
    return files.fingerprint({**about, "writer": source}, state)
