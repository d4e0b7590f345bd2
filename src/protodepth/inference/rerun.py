"""Completed frames as a Rerun recording (.rrd): image, sparse points, depth, point clouds, and the choice over time."""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from protodepth.data.frame import Frame
from protodepth.errors import ConfigError
from protodepth.inference.engines.runtimes import need
from protodepth.report import pictures
from protodepth.types import Prediction

CLOUD_POINTS = 100_000  # of one frame; above it every s-th row and column is taken
SUFFIX = ".rrd"


class RerunFile:
    """Writes one file for the length of a ``with`` block; it takes its name only when it is complete.

    ``labels`` name the predictions that each frame comes with; ``training`` makes room for losses.  Entities:
    ``world/camera`` (pinhole) with ``image`` and its ``points``, ``world/points`` and ``world/cloud/<label>`` in metres
    (x right, y down, z forward), ``depth/<label>``, and over the timeline ``frame`` the scalars
    ``similarity/<domain>``, ``distance/<domain>``, ``chosen/<domain>`` (1 for the domain in use), ``excess``,
    and the text ``domain``.

    Example: ``with RerunFile("out.rrd", ["completed"]) as file: file.add(frame, {"completed": prediction})``
    """

    def __init__(self, path: str | Path, labels: Sequence[str], *, training: bool = False) -> None:
        self.path, self.labels, self.training, self.count = Path(path), tuple(labels), training, 0
        if self.path.suffix != SUFFIX or self.path.is_dir():
            raise ConfigError(
                f"cannot write a Rerun recording to {self.path}: expected a file name that ends in {SUFFIX}"
            )
        self.rerun = need("rerun", "viz")
        self._draft = self.path.with_name(f".{self.path.stem}.{uuid.uuid4().hex[:8]}.tmp")

    def __enter__(self) -> "RerunFile":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self.rerun.RecordingStream("protodepth")
        self._stream.save(self._draft, default_blueprint=self.layout())
        self._log("world", self.rerun.ViewCoordinates.RDF, static=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.disconnect()  # also flushes
        if kind is None:
            self._draft.replace(self.path)
        else:
            self._draft.unlink(missing_ok=True)

    def _log(self, entity: str, what: Any, **options: Any) -> None:
        self._stream.log(entity, what, strict=True, **options)  # without strict a mistake would be a line on the screen

    def layout(self) -> Any:
        """Point clouds above, image, depth and the course of the choice below."""
        views = self.rerun.blueprint
        shared = ["world/camera/**", "world/points"]
        clouds = [
            views.Spatial3DView(origin="world", name=f"cloud, {label}", contents=[*shared, f"world/cloud/{label}"])
            for label in self.labels
        ]
        maps = [views.Spatial2DView(origin=f"depth/{label}", name=f"depth, {label}") for label in self.labels]
        image = views.Spatial2DView(origin="world/camera", name="image", contents=["world/camera/**"])
        choice = views.TimeSeriesView(origin="/", name="choice", contents=["similarity/**", "chosen/**", "excess"])
        steps = [views.TimeSeriesView(origin="training", name="training (timeline: step)")] if self.training else []
        below = views.Horizontal(image, *maps, choice, *steps)
        time = views.TimePanel(timeline="frame", state="collapsed")
        return views.Blueprint(views.Vertical(views.Horizontal(*clouds), below), time)

    def add(self, frame: Frame, predictions: Mapping[str, Prediction]) -> None:
        """The next frame with one prediction for each label; the choice shown is that of the last one."""
        rerun, K = self.rerun, np.asarray(frame.intrinsics, np.float64)
        self._stream.set_time("frame", sequence=self.count)
        self.count += 1
        height, width = frame.sparse_depth.shape
        self._log("world/camera", rerun.Pinhole(image_from_camera=K, resolution=[width, height]))
        image = pictures.jpeg(pictures.as_uint8(frame.image), quality=92)
        self._log("world/camera/image", rerun.EncodedImage(contents=image, media_type="image/jpeg"))
        self._add_points(frame, K)
        for label in self.labels:
            depth = predictions[label].depth
            self._log(
                f"depth/{label}",
                rerun.DepthImage(depth.astype(np.float32), meter=1.0, colormap=pictures.DEPTH_COLORMAP),
            )
            xyz, rgb = pictures.point_cloud(depth, frame.image, K, CLOUD_POINTS)
            self._log(f"world/cloud/{label}", rerun.Points3D(xyz, colors=rgb))
        self._add_choice(frame.name, predictions[self.labels[-1]])

    def _add_points(self, frame: Frame, K: np.ndarray) -> None:
        """Sparse points in the colour of their depth, on the image and in space."""
        depth = np.nan_to_num(frame.sparse_depth)
        low, high, scale = pictures.limits([depth])
        colours = pictures.colorize(depth, low, high, scale=scale)
        y, x = np.nonzero(pictures.valid_depth(depth))
        self._log("world/camera/points", self.rerun.Points2D(np.stack([x, y], 1), colors=colours[y, x], radii=1.0))
        xyz, rgb = pictures.point_cloud(depth, colours, K)
        self._log("world/points", self.rerun.Points3D(xyz, colors=rgb, radii=0.01 * low))

    def _add_choice(self, name: str, prediction: Prediction) -> None:
        series = {f"similarity/{k}": v for k, v in prediction.similarity.items()}
        series |= {f"distance/{k}": v for k, v in prediction.distance.items()}
        known = dict.fromkeys((*prediction.similarity, prediction.domain))
        series |= {f"chosen/{k}": float(k == prediction.domain) for k in known}
        series |= {} if prediction.excess is None else {"excess": prediction.excess}
        self._scalars(series)
        level = "WARN" if prediction.unknown else "INFO"
        text = f"{name}: {prediction.domain}{', unlike every known domain' if prediction.unknown else ''}"
        self._log("domain", self.rerun.TextLog(text, level=level))

    def add_step(self, step: int, record: Mapping[str, float | str]) -> None:
        """Numbers of one training step, as ``training/<name>`` over the timeline ``step``."""
        self._stream.set_time("step", sequence=step)
        self._scalars({f"training/{name}": v for name, v in record.items() if not isinstance(v, str)})

    def _scalars(self, series: Mapping[str, float]) -> None:
        for entity, value in series.items():
            self._log(entity, self.rerun.Scalars(float(value)))
