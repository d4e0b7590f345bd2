"""protodepth predict"""

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from protodepth.cli.options import DEFAULT_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from protodepth.data.frame import Frame, FrameDataset
    from protodepth.inference.complete import FrameCompletion, Summary
    from protodepth.inference.inputs import Source
    from protodepth.model import ProtoDepth
    from protodepth.types import Batch, BatchPrediction, Prediction


@dataclass(frozen=True)
class Predict:
    """Dense depth for a picture and its sparse depth, for folders of both, for a video, or for a recording.

    Writes into --out: depth (16-bit PNG or .npy), depth in colour with a legend, a coloured point cloud (.ply), and
    predictions.jsonl with one line a frame: domain, similarity to each, distance, unknown or not, seconds, share of the
    sparse points kept.  A frame that cannot be read is recorded there, the rest goes on, and the exit code is 2.
    """

    out: Path
    """Folder for the results."""
    image: Path | None = None
    """A picture (PNG, JPEG, ...), a folder of pictures, or a video (default: from --data)."""
    sparse: Path | None = None
    """Its sparse depth, of the same size: 16-bit PNG or .npy, 0 where there is no point; or a folder of them, named
    like the pictures, for a video by the number of the frame, counted from 0 (default: from --data)."""
    intrinsics: str | None = None
    """fx,fy,cx,cy in pixels, a file (3x3 text, JSON, camera_info YAML), or a folder with a file for each
    frame (default: from --data)."""
    data: str | None = None
    """A recording's folder or a data argument such as worlds:street (default: none, the three above say it)."""
    split: Literal["train", "val", "test"] = "test"
    """Which part of --data; of a recording's folder every frame is completed."""
    model: str = DEFAULT_MODEL
    """A model folder or a bundled name."""
    domain: str | None = None
    """The domain to use; base is the un-adapted network (default: chosen for each frame)."""
    selection: Literal["auto", "descriptor", "gaussian"] = "auto"
    """How a domain is chosen: by the largest cosine to a descriptor, which is the paper's rule; by the smallest
    Mahalanobis distance (gaussian); or by whichever of the two suits the network (auto).
    """
    unknown: Literal["nearest", "base", "error"] = "nearest"
    """For a frame unlike every known domain: the chosen domain all the same, the un-adapted network, or stop."""
    depth_unit: str | None = None
    """Unit of the sparse PNGs: kitti (value/256), mm, cm, tum, m, or how many steps make a metre (default: guessed
    where the values leave no doubt).
    """
    force: bool = False
    """Go on where less than half of the sparse points lies in the model's range: almost always a wrong unit."""
    format: Literal["kitti", "mm", "npy"] = "kitti"
    """Depth files: 16-bit PNG with metres x 256, 16-bit PNG with millimetres, or .npy with metres."""
    write: tuple[Literal["depth", "color", "cloud"], ...] = ("depth", "color", "cloud")
    """What to write for each frame: the map, its picture in colours, a point cloud."""
    colormap: str = "viridis"
    """Colours of depth: viridis, cividis, plasma, magma, turbo, gray, or any map of matplotlib."""
    batch_size: int = 4
    """Frames of one size that are completed together."""
    engine: Literal["torch", "onnx", "openvino"] = "torch"
    """What computes: PyTorch, or a graph exported on first need (extra: export)."""
    device: str | None = None
    """cpu, cuda or cuda:1 (default: a GPU if there is one)."""
    workers: int = 1
    """Processes that share the frames of a folder or recording, each with one thread and the model of its own."""
    on: Literal["here", "ray"] = "here"
    """Where these processes run: on this machine, or by Ray (extra: cluster), that of RAY_ADDRESS or one of its own."""
    rerun: Path | None = None
    """Also write all frames as a Rerun recording, FILE.rrd (extra: viz)."""

    def run(self) -> None:
        from protodepth.cluster import check_workers
        from protodepth.errors import DataError
        from protodepth.progress import Reporter

        self.check_given()
        check_workers(self.on, self.workers)
        job = self.open()
        source = job.source
        for note in source.notes:
            print(note)
        quiet = source.total == 1
        with Reporter(quiet=quiet).bar("completing", source.total) as advance:
            summary, first = self.complete(job, advance)
        for line in (*(_frame_line(r) for r in first if quiet), *summary.lines()):
            print(line)
        written = [*(self.write if summary.frames else ()), "predictions.jsonl"]
        print(f"wrote {self.out}: {', '.join(written)}{f', and {self.rerun}' if self.rerun else ''}")
        if source.frames is not None and self.engine == "torch" and summary.frames > 1:
            self.show_interpolation(job.predict, source.frames)
        if summary.failures:
            bad = summary.failures
            raise DataError(f"{len(bad)} of {source.total} frames failed, first {bad[0].name!r}: {bad[0].reason}")

    def open(self) -> "FrameCompletion":
        """Model, frames and place of the results; each process of a pool opens them for itself."""
        from protodepth.cli.options import load_model
        from protodepth.inference.complete import FrameCompletion
        from protodepth.inference.outputs import Output

        model = load_model(self.model, self.device if self.engine == "torch" else "cpu")
        if self.domain not in (None, "base"):
            model.domain(str(self.domain))
        predict, source = self.predictor(model), self.source(model.backbone.depth_range)
        alone = source.total == 1
        return FrameCompletion(
            predict=predict,
            source=source,
            output=Output(folder=self.out, format=self.format, parts=self.write, alone=alone, colormap=self.colormap),
            depth_range=model.backbone.depth_range,
            bounded=model.backbone.bounded,
            force=self.force,
            batch_size=self.batch_size,
        )

    def complete(
        self, job: "FrameCompletion", advance: "Callable[[int], None]"
    ) -> "tuple[Summary, list[dict[str, Any]]]":
        """All frames, by this process or by those of a pool."""
        from dataclasses import replace

        from protodepth import distributed
        from protodepth.cluster import pool
        from protodepth.errors import ConfigError
        from protodepth.inference.complete import complete, complete_shared

        if job.source.total == 1 or (self.on == "here" and self.workers == 1):
            with self.recording() as watch:
                return complete(replace(job, output=replace(job.output, watch=watch)), advance)
        if self.rerun is not None:
            raise ConfigError("--rerun writes one file, by one process: leave out --workers and --on")
        gpus = int(self.engine == "torch" and distributed.device(self.device).type == "cuda")
        with pool(self.on, self.workers, gpus=gpus) as executor:
            assert executor is not None
            return complete_shared(executor, self.open, job, advance)

    def show_interpolation(self, predict: "Callable[[Batch], BatchPrediction]", frames: "FrameDataset") -> None:
        """What the network gains over interpolation, at points of the recording that neither is shown."""
        from protodepth.errors import DataError, DomainError
        from protodepth.training.watch import compare

        try:
            errors = compare(predict, frames)
        except (DataError, DomainError):  # hardly any point can be spared, or without them a frame is unknown
            return
        beside = ", ".join(f"{name} {error:.1f}" for name, error in errors.items())
        print(f"mean error at sparse points hidden from all (mm): {beside}")

    @contextmanager
    def recording(self) -> "Iterator[Callable[[Frame, Prediction], None] | None]":
        """What puts each frame into the Rerun recording, if one was asked for."""
        if self.rerun is None:
            yield None
            return
        from protodepth.inference.rerun import RerunFile

        with RerunFile(self.rerun, ["completed"]) as file:
            yield lambda frame, prediction: file.add(frame, {"completed": prediction})

    def predictor(self, model: "ProtoDepth") -> "Callable[[Batch], BatchPrediction]":
        """The function from a batch to its depth."""
        from protodepth.errors import ConfigError
        from protodepth.selection import Rule

        rule = Rule(selection=self.selection, unknown=self.unknown)
        if self.engine == "torch":
            return lambda batch: model.predict_batch(batch, self.domain, rule)
        if self.device not in (None, "cpu"):
            raise ConfigError(
                f"--device {self.device} is for --engine torch: a graph for {self.engine} runs on the CPU"
            )
        if rule != Rule():
            raise ConfigError(
                f"--selection and --unknown need --engine torch: a graph for {self.engine} has no statistics"
            )
        from protodepth.inference.engines.cache import GraphPredictor
        from protodepth.progress import Reporter

        return GraphPredictor(model, self.engine, self.domain, say=Reporter().line)

    def source(self, depth_range: tuple[float, float]) -> "Source":
        from protodepth.inference.inputs import open_data, open_files

        if self.image is not None and self.sparse is not None and self.intrinsics is not None:
            return open_files(self.image, self.sparse, self.intrinsics, unit=self.depth_unit, depth_range=depth_range)
        return open_data(str(self.data), split=self.split, unit=self.depth_unit, depth_range=depth_range)

    def check_given(self) -> None:
        """Before anything is loaded: are the frames named, once, and is --out another place?"""
        from protodepth.errors import ConfigError

        names = ("image", "sparse", "intrinsics")
        given = [name for name in names if getattr(self, name) is not None]
        if self.data is not None and given:
            raise ConfigError(f"--data and --{given[0]} contradict each other: give one")
        if self.data is None and len(given) < len(names):
            missing = " and ".join(f"--{name}" for name in names if name not in given)
            all_three = "--image, --sparse and --intrinsics (fx,fy,cx,cy or a file)"
            raise ConfigError(f"{missing} missing: give {all_three}, or --data RECORDING")
        self.check_apart()

    def check_apart(self) -> None:
        """--out must not be a recording: completed depth in its folders would be read as measured depth."""
        from protodepth.errors import ConfigError

        data = (self.data or "").partition("?")[0]
        folders = [Path(text) for text in (data, data.partition(":")[2]) if text]
        of_data = any(folder.is_dir() and folder.resolve() == self.out.resolve() for folder in folders)
        if of_data or ((self.out / "image").is_dir() and (self.out / "sparse").is_dir()):
            raise ConfigError(
                f"--out {self.out} is a recording: completed depth would be taken for measured depth there; "
                "give another --out, nothing was written"
            )


def _frame_line(record: dict[str, Any]) -> str:
    """One frame in words."""
    if "error" in record:
        return f"{record['frame']}: {record['error']}"
    low, middle, high = record["depth"]
    cosines = ", ".join(
        f"{name} {value:.3f}" for name, value in sorted(record["similarity"].items(), key=lambda kv: -kv[1])
    )
    return (
        f"domain {record['domain']}{f' (cosine: {cosines})' if cosines else ''}; depth {low:.2f} .. {high:.2f} m, "
        f"median {middle:.2f} m, from {record['points']} points, {100 * record['points_kept']:.1f} % of them in range"
    )
