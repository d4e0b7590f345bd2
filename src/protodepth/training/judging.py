"""Errors of a model on whatever data a user names: what ``protodepth evaluate`` measures, for a notebook."""

from pathlib import Path
from typing import Any, cast

from protodepth.data.arguments import open_domain
from protodepth.data.frame import SPLITS, Domain, EvalRules, FrameDataset
from protodepth.errors import DataError, UnknownNameError
from protodepth.model import ProtoDepth
from protodepth.training import evaluate as errors
from protodepth.training.evaluate import Evaluation
from protodepth.training.watch import first
from protodepth.types import PredictBatch

WITHHELD = 0.2  # share of the sparse points that judges where there is no ground truth
OPTIONS = ("domain", "split", "batch_size", "depth_unit", "sampler")


def evaluate(
    model: ProtoDepth | PredictBatch | str | Path,
    data: Domain | FrameDataset | str | Path,
    rules: EvalRules | None = None,
    *,
    domain: str | None = None,
    split: str = "test",
    batch_size: int = 8,
    depth_unit: str | None = None,
    sampler: str | None = None,
    **unknown: object,
) -> Evaluation:
    """Errors of a model (or of the one that a name or folder means) on data: a recording's folder, a data argument such
    as ``worlds:street``, or a ``Domain``.

    ``domain`` a name, "base" = the un-adapted network, None = chosen for each frame.  Of a folder without ground truth
    a fifth of the sparse points is hidden from the network and judges; ``depth_unit`` and ``sampler`` say how
    its depth is read, as for ``adapt``.
    With ``rules``, ``data`` are frames and ``model`` may be any function from a batch to its prediction.
    """
    if unknown:
        raise UnknownNameError("option of evaluate", next(iter(unknown)), OPTIONS)
    if split not in SPLITS:
        raise UnknownNameError("split", split, SPLITS)
    predict = _predictor(model, domain)
    if rules is not None:
        return errors.evaluate(predict, cast(FrameDataset, data), rules, batch_size=batch_size)
    if isinstance(data, str | Path):
        how = {"depth_unit": depth_unit, "sampler": sampler}
        data, _ = labelled(str(data), split, **{key: value for key, value in how.items() if value is not None})
    if not isinstance(data, Domain):
        expected = "expected a folder, a data argument or a Domain; or give rules"
        raise DataError(f"data is a {type(data).__name__}, {expected}")
    return errors.evaluate(predict, data.split(split), data.rules, batch_size=batch_size)


def _predictor(model: ProtoDepth | PredictBatch | str | Path, domain: str | None) -> PredictBatch:
    if isinstance(model, str | Path):
        model = ProtoDepth.from_pretrained(model)
    if not isinstance(model, ProtoDepth):
        return model
    chosen = model
    if domain not in (None, "base"):
        chosen.domain(str(domain))
    return lambda batch: chosen.predict_batch(batch, domain)


def labelled(argument: str, split: str, **options: Any) -> tuple[Domain, bool]:
    """Data that can be judged, and whether a fifth of its sparse points is kept back for it: where a recording has no
    ground truth.
    """
    data = open_domain(argument, **options)
    frames = data.split(split)
    if data.identity.get("dataset") != "recording" or len(frames) == 0 or first(frames).ground_truth is not None:
        return data, False
    return open_domain(argument, withhold=WITHHELD, **options), True
