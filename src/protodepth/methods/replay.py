"""Experience replay (Rolnick 2019): a few frames of every old domain are kept and learned again beside the new ones."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from protodepth.data.batches import training_batches
from protodepth.data.faults import Faults, readable
from protodepth.data.frame import Domain, Frame
from protodepth.errors import ConfigError
from protodepth.losses import Objective
from protodepth.methods.base import Step, methods, part
from protodepth.methods.finetune import Finetune
from protodepth.model import ProtoDepth
from protodepth.storage.files import fingerprint
from protodepth.types import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayConfig:
    """Settings of experience replay: its buffers.

    ``fixed_batch`` False, as the public scripts: the new batch stays whole and as many old frames come on top,
    shared among the buffers, so a step costs about twice as much and no new frame is lost.  True: half of the batch is
    old, from the buffers in turn; a step costs what it costs the others (the paper's + 10 %)
    and half of the new frames is not seen.
    """

    size: int = 64  # frames kept of each domain; on the real datasets about 0.1 %
    fixed_batch: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"a buffer must keep at least one frame, got size={self.size}")


def pack(frame: Frame) -> dict[str, Tensor]:
    """What training needs of a frame, as tensors of their own memory; no ground truth."""
    arrays = {"image": frame.image, "sparse_depth": frame.sparse_depth, "intrinsics": frame.intrinsics}
    arrays |= {f"neighbour{i}": a for i, a in enumerate(frame.neighbours)}
    arrays |= {f"pose{i}": a for i, a in enumerate(frame.poses)}
    arrays["name"] = np.frombuffer(frame.name.encode(), np.uint8)
    return {key: torch.from_numpy(np.array(a, order="C")) for key, a in arrays.items()}


def unpack(tensors: dict[str, Tensor]) -> Frame:
    """The inverse of :func:`pack`."""
    arrays = {key: t.numpy() for key, t in tensors.items()}
    return Frame(
        image=arrays["image"],
        sparse_depth=arrays["sparse_depth"],
        intrinsics=arrays["intrinsics"],
        neighbours=tuple(arrays[key] for key in sorted(arrays) if key.startswith("neighbour")),
        poses=tuple(arrays[key] for key in sorted(arrays) if key.startswith("pose")),
        name=arrays["name"].tobytes().decode(),
    )


@methods.register("replay")
class Replay(Finetune):
    """Finetuning on the new batch plus a batch from the old domains' buffers, each augmented like the new one;
    losses are summed.

    A buffer is written once, when its domain ends, and holds the frames themselves:
    old data need not be on disk any more.
    """

    name: ClassVar[str] = "replay"
    Config: ClassVar[Any] = ReplayConfig
    only_to_learn: ClassVar[tuple[str, ...]] = ("buffer.",)
    config: ReplayConfig

    def __init__(self, model: ProtoDepth, objective: Objective, config: ReplayConfig | None = None) -> None:
        super().__init__(model, objective, config)
        self.buffers: dict[str, list[Frame]] = {}

    def choose(self, domain: Domain) -> list[int]:
        """Frame numbers to keep: uniform, without replacement."""
        order = np.random.default_rng(self.config.seed).permutation(len(domain.train))
        return sorted(order[: self.config.size].tolist())

    def end_domain(self, domain: Domain) -> None:
        if domain.name not in self.buffers:
            good = readable(domain.train, Faults(len(domain.train)), self.choose(domain))
            self.buffers[domain.name] = [unpack(pack(frame)) for frame in good]

    def batches(self, loader: Iterable[Batch], *, start: int, seed: int) -> Iterable[Step]:
        return self._mixed(loader, start, seed) if self.buffers else loader

    def _mixed(self, loader: Iterable[Batch], start: int, seed: int) -> Iterator[Step]:
        streams: list[Iterator[Batch]] = []
        for step, batch in enumerate(loader, start):
            old = batch.total // 2 if self.config.fixed_batch else max(1, batch.total // len(self.buffers))
            if old == 0:
                raise ConfigError("fixed_batch needs a batch size of at least 2: one new frame and one from a buffer")
            if not streams:
                streams = [
                    training_batches(
                        frames, old, seed=seed, start=start, domain=name, turn=1 if self.config.fixed_batch else n
                    )
                    for n, (name, frames) in enumerate(self.buffers.items())
                ]
            replayed = tuple(next(stream) for stream in streams)
            if self.config.fixed_batch:
                yield batch.head(batch.total - old), replayed[step % len(replayed)]
            else:
                yield batch, *replayed

    def state(self) -> dict[str, Tensor]:
        tensors = super().state()
        for name, frames in self.buffers.items():
            for n, frame in enumerate(frames):
                tensors |= {f"buffer.{name}.{n:05d}.{key}": t for key, t in pack(frame).items()}
        return tensors

    def load_state(self, state: dict[str, Tensor]) -> None:
        super().load_state(state)
        self.buffers = {}
        kept = part(state, "buffer.")
        for key in dict.fromkeys(
            name.rsplit(".", 1)[0] for name in kept
        ):  # in the order of the domains, as it was saved
            self.buffers.setdefault(key.rsplit(".", 1)[0], []).append(unpack(part(kept, key + ".")))

    def record(self) -> dict[str, Any]:
        hashes = {name: [fingerprint({}, pack(f)) for f in frames] for name, frames in self.buffers.items()}
        return {"buffers": {n: {"frames": len(h), "sha256": fingerprint({"frames": h}, {})} for n, h in hashes.items()}}
