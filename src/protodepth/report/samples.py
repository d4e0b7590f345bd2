"""Frames kept for looking at: inputs, ground truth and what each method predicted, with their file."""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from protodepth.data.batches import collate
from protodepth.data.files.text import DAMAGE
from protodepth.data.frame import Domain, Frame, evenly
from protodepth.errors import DataError
from protodepth.methods.base import Method
from protodepth.report.pictures import as_uint8
from protodepth.report.results import display_name
from protodepth.storage import files
from protodepth.types import Batch, BatchPrediction, Float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One test frame and the depth that each method gave for it after the last stage."""

    domain: str
    name: str
    image: Float[np.ndarray, "h w 3"]  # uint8
    sparse_depth: Float[np.ndarray, "h w"]  # metres, 0 = no point
    ground_truth: Float[np.ndarray, "h w"]  # metres, 0 = unknown
    intrinsics: Float[np.ndarray, "3 3"]
    predictions: dict[str, np.ndarray] = field(default_factory=dict)  # by displayed method name; h w, metres
    chosen: str = ""  # the domain that ProtoDepth-A chose
    similarity: dict[str, float] = field(default_factory=dict)  # cosine to each descriptor
    caps: tuple[float, float] = (0.0, float("inf"))  # depths that count in the errors


def collect(domains: Sequence[Domain], count: int = 2, split: str = "test") -> list[Sample]:
    """``count`` evenly spaced frames of each domain, without predictions: picked by position, not by result."""
    samples = []
    for domain in domains:
        data = domain.split(split)
        for index in evenly(len(data), count):
            samples.append(sample_of(domain, data[index], index))
    return samples


def sample_of(domain: Domain, frame: Frame, index: int) -> Sample:
    """A frame as a sample to look at, without predictions."""
    truth = frame.ground_truth if frame.ground_truth is not None else np.zeros_like(frame.sparse_depth)
    return Sample(
        domain=domain.name,
        name=frame.name or f"{domain.name}-{index}",
        image=as_uint8(frame.image),
        sparse_depth=frame.sparse_depth,
        ground_truth=truth,
        intrinsics=np.asarray(frame.intrinsics, np.float64),
        caps=(domain.rules.min_depth, domain.rules.max_depth),
    )


PredictDomain = Callable[[Batch, str | None], BatchPrediction]


def add_predictions(
    samples: Sequence[Sample], predict: PredictDomain, label: str, agnostic_label: str | None = None
) -> list[Sample]:
    """The samples with one more predictor: ``predict(batch, domain)``, as ``Method.predict``.

    ``agnostic_label`` also asks it without the domain's name (``None``), and keeps which domain it chose.
    """
    return [_predicted(sample, predict, label, agnostic_label) for sample in samples]


def _predicted(sample: Sample, predict: PredictDomain, label: str, agnostic_label: str | None) -> Sample:
    frame = Frame(image=sample.image, sparse_depth=sample.sparse_depth, intrinsics=sample.intrinsics)
    batch = collate([frame])
    predictions = {label: predict(batch, sample.domain).depth[0, 0].cpu().numpy()}
    if agnostic_label is None:
        return replace(sample, predictions={**sample.predictions, **predictions})
    out = predict(batch, None)
    predictions[agnostic_label] = out.depth[0, 0].cpu().numpy()
    cosines = [] if out.similarity is None else out.similarity[0].tolist()
    return replace(
        sample,
        predictions={**sample.predictions, **predictions},
        chosen=out.domains[0],
        similarity=dict(zip(out.names, cosines, strict=False)),
    )


# --- file -------------------------------------------------------------------------------------------------------------

MAPS = ("image", "sparse_depth", "ground_truth", "intrinsics")


def save_samples(path: str | Path, samples: Sequence[Sample]) -> str:
    """One npz: the arrays as ``<n>/<what>``, the words as JSON bytes in ``meta``; no pickle.  Gives its sha256."""
    arrays: dict[str, np.ndarray] = {}
    meta = []
    for n, s in enumerate(samples):
        arrays.update({f"{n}/{name}": getattr(s, name) for name in MAPS})
        arrays.update({f"{n}/prediction/{i}": p.astype(np.float32) for i, p in enumerate(s.predictions.values())})
        words = {"domain": s.domain, "name": s.name, "chosen": s.chosen, "similarity": s.similarity}
        meta.append({**words, "labels": list(s.predictions), "caps": [min(c, 1e30) for c in s.caps]})
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)  # type: ignore[arg-type]
    return files.write_bytes(Path(path), out.getvalue())


def load_samples(path: str | Path) -> list[Sample]:
    """The samples that ``save_samples`` wrote."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        meta = json.loads(arrays["meta"].tobytes())
        return [_stored(n, words, arrays) for n, words in enumerate(meta)]
    except FileNotFoundError:
        raise DataError(f"{path} is missing: expected the samples.npz of a run folder") from None
    except DAMAGE as error:
        raise DataError(f"{path} is not a samples file of protodepth ({error}): run the experiment again") from None


def _stored(n: int, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> Sample:
    low, high = words["caps"]
    labels, maps = words["labels"], {name: arrays[f"{n}/{name}"] for name in MAPS}
    return Sample(
        domain=words["domain"],
        name=words["name"],
        image=maps["image"],
        sparse_depth=maps["sparse_depth"],
        ground_truth=maps["ground_truth"],
        intrinsics=maps["intrinsics"],
        predictions={label: arrays[f"{n}/prediction/{i}"] for i, label in enumerate(labels)},
        chosen=words["chosen"],
        similarity=words["similarity"],
        caps=(low, float("inf") if high >= 1e30 else high),
    )


def add_method(samples: list[Sample], method: Method) -> list[Sample]:
    """The samples with the predictions of one more method, under its displayed names."""
    agnostic = display_name(method.name, "agnostic") if method.chooses else None
    return add_predictions(samples, method.predict, display_name(method.name), agnostic)
