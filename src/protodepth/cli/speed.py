"""protodepth speed"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from protodepth.cli.options import DEFAULT_MODEL

MOST_THREADS = 1024  # a million end in a crash of the library that starts them


@dataclass(frozen=True)
class MeasureSpeed:
    """CPU and wall time of one frame (median, 95th percentile), memory, parameters and share of the machine's peak.

    The un-adapted network, one domain, the choice among all domains and every engine run in turns.
    """

    model: str = DEFAULT_MODEL
    """A model folder or a bundled name."""
    size: str = "480x640"
    """HEIGHTxWIDTH of the frame."""
    engine: tuple[Literal["all", "none", "channels_last", "compiled", "onnx", "openvino", "int8"], ...] = ("all",)
    """Other ways to run the network; all = those that are installed, except compiled and
    int8 (OpenVINO in eight bits); graphs are made on first use."""
    domain: str | None = None
    """Domain of the adapted row (default: the last one)."""
    runs: int = 10
    """Frames that are timed, at most."""
    warmup: int = 1
    """Frames before the clock starts."""
    seconds: float = 30.0
    """No frame is timed after so many seconds, but at least three are."""
    threads: int | None = None
    """Threads of PyTorch and of the engines (default: PyTorch's choice)."""
    json: Path | None = None
    """Also write the numbers into this file, with a table (.md) and a bar chart (.svg) beside it."""

    def run(self) -> None:
        import torch

        from protodepth.cli.options import load_model, parse_size
        from protodepth.errors import ConfigError
        from protodepth.inference.speed import installed, measure_speed
        from protodepth.progress import working
        from protodepth.storage.claims import check_free
        from protodepth.storage.files import write_bytes, write_json

        if self.json is not None:  # before the minutes that it takes
            check_free([self.json.with_suffix(ending) for ending in (".md", ".svg")], ours=self.json.exists())
        if self.threads is not None:
            if not 1 <= self.threads <= MOST_THREADS:
                raise ConfigError(f"--threads is 1 to {MOST_THREADS}, got {self.threads}")
            torch.set_num_threads(self.threads)
        named = tuple(e for e in self.engine if e != "all" and e != "none")
        engines = tuple(dict.fromkeys((*(installed() if "all" in self.engine else ()), *named)))
        size = parse_size(self.size)
        model = load_model(self.model)
        with working(f"timing up to {self.runs} frames of {self.size}"):
            result = measure_speed(
                model,
                size=size,
                engines=engines,
                domain=self.domain,
                runs=self.runs,
                warmup=self.warmup,
                seconds=self.seconds,
            )
        print("\n".join(result.lines()))
        if self.json is not None:
            write_json(self.json, result.to_json())
            write_bytes(self.json.with_suffix(".md"), result.markdown().encode())
            write_bytes(self.json.with_suffix(".svg"), result.chart().encode())
            print(f"wrote {self.json}, and the same as .md and .svg")
