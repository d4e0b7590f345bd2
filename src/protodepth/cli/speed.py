"""protodepth speed"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from protodepth.cli.options import DEFAULT_MODEL


@dataclass(frozen=True)
class MeasureSpeed:
    """Latency (median, 95th percentile), memory, parameters and share of the machine's peak, for one frame.

    The un-adapted network, one domain, the choice among all domains and exported graphs run in turns.
    """

    model: str = DEFAULT_MODEL
    """A model folder or a bundled name."""
    size: str = "480x640"
    """HEIGHTxWIDTH of the frame."""
    engine: tuple[Literal["onnx", "openvino"], ...] = ()
    """Exported graphs to compare with, made on first use (default: PyTorch alone)."""
    domain: str | None = None
    """Domain of the adapted row (default: the last one)."""
    runs: int = 20
    """Frames that are timed."""
    warmup: int = 3
    """Frames before the clock starts."""
    threads: int | None = None
    """Threads of PyTorch and of the engines (default: PyTorch's choice)."""
    json: Path | None = None
    """Also write the numbers into this file."""

    def run(self) -> None:
        import torch

        from protodepth.cli.options import load_model, parse_size
        from protodepth.errors import ConfigError
        from protodepth.inference.speed import measure_speed
        from protodepth.progress import working
        from protodepth.storage.files import write_json

        if self.threads is not None:
            if self.threads < 1:
                raise ConfigError(f"--threads must be at least 1, got {self.threads}")
            torch.set_num_threads(self.threads)
        size = parse_size(self.size)
        model = load_model(self.model)
        with working(f"timing {self.runs} frames of {self.size}"):
            result = measure_speed(
                model, size=size, engines=self.engine, domain=self.domain, runs=self.runs, warmup=self.warmup
            )
        print("\n".join(result.lines()))
        if self.json is not None:
            write_json(self.json, result.to_json())
            print(f"wrote {self.json}")
