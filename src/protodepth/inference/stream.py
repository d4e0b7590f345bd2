"""Live frames: arrays in, depth out, nothing kept between frames."""

from typing import Any

from protodepth.data import arrays
from protodepth.data.doubt import reason_against
from protodepth.errors import DataError
from protodepth.model import ProtoDepth
from protodepth.selection import Rule
from protodepth.types import BASE, Prediction


class Stream:
    """Completes one frame after the other, from any number of threads.

    A stream holds the model, the camera's intrinsics if they are given once for all, and the rule of choice; no frame,
    no result and no counter, so its memory does not grow.  ``model`` itself is not changed:
    two streams may use one model with different rules.

    >>> import numpy as np
    >>> from protodepth.backbones.lite import Lite
    >>> stream = Stream(ProtoDepth(Lite()), intrinsics=(60, 60, 24, 16))
    >>> stream(np.zeros((32, 48, 3), np.uint8), np.eye(32, 48)).depth.shape
    (32, 48)
    """

    def __init__(
        self,
        model: ProtoDepth,
        domain: str | None = None,
        *,
        intrinsics: Any = None,
        rule: Rule | None = None,
        force: bool = False,
    ) -> None:
        if domain not in (None, BASE):
            model.domain(str(domain))  # an unknown name is an error now, not at the first frame
        self.model, self.domain, self.intrinsics, self.rule = model, domain, intrinsics, rule
        self.force = force  # also where less than half of a frame's points lies in the network's range

    def __call__(self, image: Any, sparse_depth: Any, intrinsics: Any = None) -> Prediction:
        """Dense depth of one frame of NumPy arrays or torch tensors; see ``ProtoDepth.predict``."""
        K = self.intrinsics if intrinsics is None else intrinsics
        if K is None:
            raise DataError("no intrinsics: give them once, Stream(model, intrinsics=K), or with every frame")
        batch = arrays.to_batch(image, sparse_depth, K)
        network = self.model.backbone
        points = batch.sparse_depth.numpy()
        reason = None if self.force else reason_against(points, network.depth_range)
        if reason is not None:
            raise DataError(f"{reason}.  Convert to metres, or Stream(model, force=True) to go on")
        return self.model.predict_batch(batch, self.domain, self.rule).frame(0, batch)
