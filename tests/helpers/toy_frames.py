"""Frames with one depth everywhere."""

from collections.abc import Callable

import numpy as np
import torch

from protodepth.data.frame import EvalRules, Frame
from protodepth.types import Batch, BatchPrediction

RULES = EvalRules(min_depth=0.2, max_depth=5.0)


def frame(truth: float, shape: tuple[int, int] = (8, 8), name: str = "") -> Frame:
    depth = np.full(shape, truth, np.float32)
    return Frame(
        image=np.zeros((*shape, 3), np.uint8), sparse_depth=depth, intrinsics=np.eye(3), ground_truth=depth, name=name
    )


def constant(value: float, domain: str = "x") -> Callable[[Batch], BatchPrediction]:
    def predict(batch: Batch) -> BatchPrediction:
        depth = torch.full_like(batch.sparse_depth, value)
        return BatchPrediction(
            depth=depth,
            domains=(domain,) * len(batch),
            similarity=None,
            names=(),
            descriptor=torch.zeros(len(batch), 2),
        )

    return predict
