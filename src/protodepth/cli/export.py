"""protodepth export"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from protodepth.cli.options import DEFAULT_MODEL


@dataclass(frozen=True)
class Export:
    """Write a model as one graph for ONNX Runtime or OpenVINO, after comparing it with PyTorch on random frames.

    Without --domain the graph holds all domains and chooses for each image; with it, that domain alone.
    """

    out: Path
    """File to write: NAME.onnx, or NAME.xml (OpenVINO, with NAME.bin beside it)."""
    model: str = DEFAULT_MODEL
    """A model folder or a bundled name."""
    format: Literal["onnx", "openvino"] | None = None
    """Format of the graph (default: as the file's name says)."""
    size: str = "480x640"
    """HEIGHTxWIDTH; the graph takes other sizes too unless the command says that it does not."""
    precision: Literal["float32", "int8"] = "float32"
    """int8 (OpenVINO): learned convolutions in eight bits, if that costs at most 1 % of the error at hidden points."""
    calibrate: str | None = None
    """A recording or data argument whose frames say how large int8 values get (default: drawn rooms and streets)."""
    domain: str | None = None
    """Fold this domain in; base is the un-adapted network (default: all domains, chosen for each image)."""

    def run(self) -> None:
        from protodepth.cli.options import load_model, parse_size
        from protodepth.inference.engines.export import export
        from protodepth.progress import working

        size, model = parse_size(self.size), load_model(self.model)
        with working(f"exporting {self.model} at {self.size} and comparing with PyTorch"):
            done = export(
                model,
                self.out,
                format=self.format,
                size=size,
                domain=self.domain,
                precision=self.precision,
                calibrate=self.calibrate,
            )
        if done.note:
            print(done.note)
        print(done)
