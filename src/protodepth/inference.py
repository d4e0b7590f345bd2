"""From files to completed depth and back to files."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from protodepth import arrays, figures
from protodepth.checkpoint import write_bytes, write_json
from protodepth.data import cameras, frames
from protodepth.errors import DataError
from protodepth.model import ProtoDepth
from protodepth.types import Prediction


def read_sparse(path: Path, unit: str | None, depth_range: tuple[float, float]) -> tuple[np.ndarray, str]:
    """Sparse depth in metres, and a line that says how its unit was found."""
    if unit is not None:
        return frames.read_depth(path, unit), f"{path.name}: read as {unit}"
    found, why = frames.guess_unit(frames.summarise([path]), depth_range)
    return frames.read_depth(path, found), why


def predict_files(
    model: ProtoDepth,
    image: Path,
    sparse: Path,
    intrinsics: str,
    out: Path,
    *,
    domain: str | None = None,
    depth_unit: str | None = None,
) -> Iterator[str]:
    """Complete one frame of files into a folder; yields lines that say what was done."""
    for path in (image, sparse):
        if not path.is_file():
            raise DataError(f"{path} does not exist or is not a file")
    picture = frames.read_image(image)
    points, why = read_sparse(sparse, depth_unit, model.backbone.depth_range)
    yield why
    K = arrays.intrinsics_array(cameras.parse_intrinsics(intrinsics), picture.shape[:2])
    started = time.perf_counter()
    prediction = model.predict(picture, points, K, domain=domain)
    record = describe(prediction, points, time.perf_counter() - started, model.backbone.depth_range)
    names = save_prediction(out, prediction.depth, picture, K, record)
    chosen = ", ".join(f"{k} {v:.3f}" for k, v in sorted(prediction.similarity.items(), key=lambda kv: -kv[1]))
    yield f"domain {prediction.domain}" + (f" (cosine: {chosen})" if chosen else "")
    low, middle, high = np.percentile(prediction.depth, [1, 50, 99])
    yield f"depth {low:.2f} .. {high:.2f} m, median {middle:.2f} m, from {record['points']} points in {record['seconds']:.2f} s"
    yield f"wrote {', '.join(names)} to {out}"


def describe(
    prediction: Prediction, points: np.ndarray, seconds: float, depth_range: tuple[float, float]
) -> dict[str, Any]:
    """The record of one frame, JSON-able."""
    low, high = depth_range
    valid = points > 0
    return {
        "domain": prediction.domain,
        "similarity": prediction.similarity,
        "seconds": round(seconds, 4),
        "points": int(valid.sum()),
        "points_in_range": int((valid & (points >= low) & (points <= high)).sum()),
        "median_depth": float(np.median(prediction.depth)),
    }


def save_prediction(
    out: Path, depth: np.ndarray, image: np.ndarray, K: np.ndarray, record: dict[str, Any]
) -> list[str]:
    """depth.png (value/256), depth_color.png, cloud.ply, prediction.json."""
    out.mkdir(parents=True, exist_ok=True)
    frames.write_depth(out / "depth.png", depth, "kitti")
    write_bytes(out / "depth_color.png", figures.depth_picture(depth))
    figures.save_ply(out / "cloud.ply", depth, image, K)
    write_json(out / "prediction.json", record)
    return ["depth.png", "depth_color.png", "cloud.ply", "prediction.json"]
