"""Choosing a domain by what its depth explains: the objective of each candidate on a frame, its points and neighbours.

No label is needed, but neighbours are, with poses or a pose network, and a pass of the decoder for each candidate:
it is measured here and is no rule of ``selection``, which sees single frames.
"""

from collections.abc import Sequence

import torch

from protodepth.losses import Objective
from protodepth.model import ProtoDepth
from protodepth.types import BASE, Batch, BatchPrediction, Float, PredictBatch

TERMS = ("color", "structure", "sparse")  # not smoothness: it does not say whose depth is right


def candidates(model: ProtoDepth) -> tuple[str, ...]:
    """What a frame's reprojection may choose: the un-adapted network, and every domain that has prototypes."""
    return (BASE, *(name for name in model.domains if not model.domain(name).base))


@torch.no_grad()
def _explained(objective: Objective, batch: Batch, prediction: BatchPrediction) -> Float[torch.Tensor, "b"]:
    """The objective's reprojection and sparse terms for each frame."""
    terms = [
        objective(single.without_ground_truth(), prediction.depth[i : i + 1])
        for i, single in enumerate(batch.singles())
    ]
    return torch.stack([torch.stack([t[name] for name in TERMS]).sum() for t in terms])


def by_reprojection(model: ProtoDepth, objective: Objective, names: Sequence[str] | None = None) -> PredictBatch:
    """A predictor that takes, for each frame, the candidate with the smallest error."""
    chosen = tuple(names or candidates(model))

    def predict(batch: Batch) -> BatchPrediction:
        outs = [model.predict_batch(batch, name) for name in chosen]
        here = batch.to(outs[0].depth.device)
        errors = torch.stack([_explained(objective, here, out) for out in outs])  # k b
        best = errors.argmin(0).tolist()
        depth = torch.stack([outs[k].depth[i] for i, k in enumerate(best)])
        return BatchPrediction(
            depth=depth,
            domains=tuple(chosen[k] for k in best),
            similarity=None,
            names=(),
            descriptor=outs[0].descriptor,
        )

    return predict
