"""What one asks of a model in a notebook: depth for whatever is at hand, and a few words about itself."""

from typing import TYPE_CHECKING, Any, cast

import torch

from protodepth.data import given
from protodepth.data.doubt import check_points
from protodepth.data.files.cameras import intrinsics_fault
from protodepth.errors import DataError, DomainError, UnknownNameError
from protodepth.selection import Rule
from protodepth.storage.history import History
from protodepth.storage.space import check_frames
from protodepth.types import Batch

if TYPE_CHECKING:
    from protodepth.model import ProtoDepth


class Notebook:
    """The part of ``ProtoDepth`` that speaks with people."""

    def predict(
        self,
        image: Any,
        sparse_depth: Any = None,
        intrinsics: Any = None,
        *,
        domain: str | None = None,
        rule: Rule | None = None,
        unit: str | None = None,
        force: bool = False,
        **unknown: object,
    ) -> Any:
        """Dense depth: a ``Prediction`` for one frame, a list of them for several.

        ``image`` HxWx3 or 3xHxW, uint8 or float in [0, 1]; ``sparse_depth`` HxW metres, 0 or NaN = no point, whole
        numbers only with their ``unit`` ("mm", "kitti", or how many make a metre); ``intrinsics`` 3x3 or (fx, fy, cx,
        cy) in pixels.  Each may be an array, a tensor, a PIL image or a path; ``image`` alone may be a ``Frame`` or a
        ``Batch``; lists and arrays with one more axis are several frames of one size.
        ``domain`` a name, "base" = the un-adapted network, None = chosen by descriptor.
        Sparse depth of which less than half lies in the network's range is refused, with the unit that would fit, and
        so are intrinsics of another resolution; ``force`` goes on.
        """
        if unknown:
            raise UnknownNameError("option of predict", next(iter(unknown)), ("domain", "rule", "unit", "force"))
        if not isinstance(domain, str | None):
            raise DomainError(f"domain {domain!r} is no name: give one that the model has, or none to have it chosen")
        batch, several = given.read(image, sparse_depth, intrinsics, unit)
        _check_cameras(batch, force)
        model = cast("ProtoDepth", self)
        network = model.backbone
        points = batch.sparse_depth.cpu().numpy()
        check_points(points, network.depth_range, unit=unit or "metres", bounded=network.bounded, force=force)
        out = model.predict_batch(batch, domain, rule)
        frames = [out.frame(index, batch) for index in range(len(batch))]
        return frames if several else frames[0]

    def _fitting(self, batch: Batch, device: torch.device) -> Batch:
        """Where the network is.  A frame that the memory does not hold is refused: the system would end this program,
        or another one.
        """
        if device.type == "cpu":
            check_frames(batch.size)
        return batch.to(device)

    @property
    def selection(self) -> str:
        """What a domain is chosen by where none is named: "descriptor" (cosine) or "gaussian" (distance)."""
        model = cast("ProtoDepth", self)
        return model.backbone.selection if model.rule.selection == "auto" else model.rule.selection

    def __repr__(self) -> str:
        """Three lines: the network, the domains, the rule of choice."""
        model = cast("ProtoDepth", self)
        low, high = model.backbone.depth_range
        overhead = model.overhead()
        known = [_domain_words(model, name, overhead.domains[name]) for name in model.domains]
        rule = model.rule
        return "\n".join(
            [
                f"ProtoDepth on {model.backbone.name}: {overhead.backbone:,} parameters, {low:g} .. {high:g} m",
                f"domains: {'; '.join(known) or 'none yet (adapt learns one)'}",
                f"rule: {model.active or 'chosen for each frame by ' + self.selection}, unknown frames: {rule.unknown}",
            ]
        )


def _check_cameras(batch: Batch, force: bool) -> None:
    """Intrinsics of another resolution would give a cloud that only looks like one."""
    for K in [] if force else batch.intrinsics.double().cpu().numpy():
        fault = intrinsics_fault(K, batch.size)
        if fault:
            raise DataError(f"intrinsics: {fault}  (force=True goes on)")


def _domain_words(model: "ProtoDepth", name: str, count: int) -> str:
    """Size, source and held-out gain of one domain."""
    history = model.history.get(name, History())
    size = "the network itself" if model.domain(name).base else f"{count:,} parameters"
    error = history.held_out_error_mm or {}
    before, after = error.get("before"), error.get("after")
    gain = f"held-out error {100 * (after / before - 1):+.0f} %" if before and after is not None else ""
    source = f"from {history.learned_from}" if history.learned_from else ""
    return f"{name} ({', '.join(part for part in (size, source, gain) if part)})"
