"""What describes a domain: descriptors of its frames, their mean and scatter, which frames count as left out, and the
descriptor of D_1.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from protodepth.data.batches import collate
from protodepth.data.faults import Faults, readable
from protodepth.data.frame import FrameDataset
from protodepth.descriptors import sample_descriptor
from protodepth.model import ProtoDepth
from protodepth.selection import Statistics, shared_covariance
from protodepth.types import Float

FRAMES = 256  # as many frames at most describe a domain
FEWEST = 3  # frames that statistics need
BLOCKS = 5  # of time, each of which is left out in turn where val frames are few
SHORT = 64  # frames below which a recording has not seen where it goes:
AHEAD = 2.0  # it goes this many times as far as its blocks are from each other
ENOUGH = 19  # left-out frames of which the largest distance is exceeded by 5 % of new ones


@torch.no_grad()
def sample_descriptors(model: ProtoDepth, data: FrameDataset, *, frames: int = FRAMES) -> Float[Tensor, "n c"]:
    """s of frames spread evenly over a dataset, as the un-adapted encoder gives them."""
    count, bottleneck = min(frames, len(data)), model.backbone.bottleneck
    rows = []
    for read in readable(data, Faults(len(data)), (i * len(data) // count for i in range(count))):
        frame = replace(read, neighbours=(), poses=())
        latents = model.backbone.encode(collate([frame]).to(model.descriptors()[1].device))
        rows.append(sample_descriptor(latents.layers[bottleneck.name], bottleneck.layout))
    return torch.cat(rows) if rows else torch.empty(0, bottleneck.channels)


def collect_statistics(model: ProtoDepth, train: FrameDataset, val: FrameDataset | None = None) -> Statistics:
    """Mean and scatter of the train frames' descriptors; the left-out samples come from ``val`` and, if these are few,
    from blocks of time of ``train``, of a short one twice as far from its mean.  Consecutive frames are alike,
    so the left-out ones must not lie between those that are fitted.
    """
    return _statistics(model, sample_descriptors(model, train), train, val)


def _statistics(model: ProtoDepth, fitted: Tensor, train: FrameDataset, val: FrameDataset | None) -> Statistics:
    later = fitted[:0]
    if val is not None and len(val) and not share_frames(train, val):
        later = sample_descriptors(model, val)
    if len(later) >= ENOUGH:
        return Statistics.of(fitted, later)
    if len(fitted) >= 2 * BLOCKS:
        mean, left_out = fitted.mean(0), torch.cat([as_left_out(fitted), later])
        return Statistics.of(fitted, mean + (AHEAD if len(fitted) < SHORT else 1.0) * (left_out - mean))
    cut = len(fitted) - max(1, len(fitted) // 4)
    return Statistics.of(fitted[:cut], torch.cat([fitted[cut:], later]))


def as_left_out(rows: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    r"""Samples as far from the mean of all as each is from what the other blocks of time give.

    A recording moves on, and its frames are too few to keep a part of them back: each of five blocks is left out in
    turn, and its samples are placed at :math:`\mu + \frac{d_{-b}(s)}{d(s)} (s - \mu_{-b})`, d by the covariance of all
    and :math:`d_{-b}, \mu_{-b}` without the block.
    """
    covariance, mean, placed = shared_covariance([Statistics.of(rows, rows[:1])]), rows.mean(0), []
    for block in torch.arange(len(rows)).chunk(BLOCKS):
        rest = torch.cat([rows[: block[0]], rows[block[-1] + 1 :]])
        away = rows[block] - rest.mean(0)
        far, near = (_distance(away, c) for c in (shared_covariance([Statistics.of(rest, rest[:1])]), covariance))
        placed.append(mean + away * (far / near.clamp(min=1e-9)).to(rows)[:, None])
    return torch.cat(placed)


def _distance(away: Float[Tensor, "n c"], covariance: Float[Tensor, "c c"]) -> Float[Tensor, "n"]:
    v = away.cpu().double()
    return (v * torch.linalg.solve(covariance, v.T).T).sum(-1).clamp(min=0).sqrt()


def share_frames(train: FrameDataset, val: FrameDataset) -> bool:
    """Whether the splits of a domain share frames, as those of a recording of less than ten do."""
    names = [{f.name for f in readable(d, Faults(len(d)), range(min(10, len(d))))} for d in (train, val)]
    return bool(names[0] & names[1])


@torch.no_grad()
def describe(model: ProtoDepth, name: str, data: FrameDataset, val: FrameDataset | None = None) -> None:
    """Give D_1 its descriptor: the mean of unit sample descriptors,
    which is the exact minimum of Eq. 9 with no other domain.

    With three frames or more also its statistics, so that unknown places can be told from it.
    """
    if name not in model.domains:
        model.add_domain(name, base=True)
    rows = sample_descriptors(model, data)
    direction = normalize(normalize(rows, dim=-1).mean(0), dim=0)
    model.domain(name).descriptor.copy_(direction * len(direction) ** 0.5)
    if len(data) >= FEWEST:
        model.statistics[name] = _statistics(model, rows, data, val)
