r"""The base for any sensor learns here, from the exact depth of drawn scenes that are in no sequence.

Loss of an image, each term divided by what the plain scaffold makes of it, so that no image dominates:

.. math:: \frac{|\log d - \log z|}{e_{log}} + \frac{|d - z|}{e_{lin}}
    + 0.3 \frac{\mathrm{rms}(d - z)}{e_{rms}} + 0.05 \sum_{scales, axes} \frac{|\nabla \log d - \nabla \log z|}{e_{log}}

means over pixels with a depth; those that carry a point count a tenth; e is the scaffold's own error.  Frames are drawn
ahead by a second process into files of the run's folder; step n chooses among a fixed number of them, so that a run
that is killed and resumed is the same run.  The rate is constant after a warm-up and falls at the end: one whose
``steps`` are raised before it falls goes on as if it had been so from the start, and can be trained over many days.
"""

import json
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protodepth.backbones.base import Backbone, backbones
from protodepth.backbones.scalefree import ScaleFree
from protodepth.data.worlds import anywhere
from protodepth.errors import CheckpointError, ConfigError, ProcessLost, TrainingDiverged
from protodepth.methods.base import part
from protodepth.model import ProtoDepth
from protodepth.storage import files
from protodepth.storage.space import check_space
from protodepth.training.fit import MAX_BAD_STEPS, whole_steps
from protodepth.training.log import JsonLines
from protodepth.training.pool import FramePool, draw_ahead, pool_bytes
from protodepth.training.schedule import LARGEST_RATE
from protodepth.training.state import optimiser_state, read_state_tensors, whole_state, write_state
from protodepth.training.wider import widened
from protodepth.types import Batch

MAY_CHANGE = ("steps", "fall", "rate", "half", "crops")  # of a recipe whose run goes on
WORST = 5.0  # no image pulls harder than one with this loss
KEPT = 3  # states, so that a run that went wrong can be taken up before it did
HELD = 48  # drawn frames that judge, of another seed than those that teach


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRecipe:
    """How a base learns from drawn scenes."""

    name: str = "any-sensor"
    backbone: str = "scalefree"
    preset: str = "small"
    start: str | None = None  # a model of this network, as wide or narrower, to begin with; None: the plain scaffold
    steps: int = 40_000
    warm: int = 400
    fall: float = 0.25  # share of the steps in which the rate falls to zero
    rate: float = 1.2e-3  # with 2e-3 a run diverged after 5,000 steps
    decay: float = 1e-4
    average: float = 0.9993  # of the weights, over steps
    crops: tuple[tuple[int, int, int], ...] = (
        (8, 128, 160),
        (8, 128, 160),
        (8, 128, 160),
        (2, 224, 320),
    )  # batch, rows, columns in turn
    frames: int = 6000
    start_frames: int = 240
    frames_per_step: float = 0.4
    size: tuple[int, int] = (240, 320)
    half: bool = True  # learned layers in bfloat16: half as much again in the same time where the processor has it
    seed: int = 0

    def available(self, step: int) -> int:
        """How many frames step n chooses from: they are drawn while the network learns."""
        return min(self.frames, int(self.start_frames + self.frames_per_step * step))

    def rate_at(self, step: int) -> float:
        """
        >>> r = DrawnRecipe(steps=1000, warm=100, rate=1.0)
        >>> r.rate_at(50), r.rate_at(500), round(r.rate_at(875), 3)
        (0.5, 1.0, 0.5)
        """
        left = (self.steps - step) / max(1.0, self.fall * self.steps)
        return self.rate * min(1.0, step / max(1, self.warm), max(left, 0.0))


def check_drawn(recipe: DrawnRecipe) -> None:
    """What can be known to fail fails before a folder is made."""
    backbones.get(recipe.backbone).from_preset(recipe.preset)
    if recipe.start is not None:
        _weights_of(recipe)
    least = (max(c[1] for c in recipe.crops), max(c[2] for c in recipe.crops))
    if least[0] > recipe.size[0] or least[1] > recipe.size[1]:
        raise ConfigError(
            f"crops of up to {least[0]}x{least[1]} do not fit into frames of {recipe.size}: give another size"
        )
    least_count = min(recipe.steps, recipe.frames, *(value for crop in recipe.crops for value in crop))
    if least_count < 1 or not 0 < recipe.rate <= LARGEST_RATE or not 0 <= recipe.fall <= 1:
        raise ConfigError(
            f"steps, frames, crops and rate must be positive, the rate up to {LARGEST_RATE:g}, "
            "and fall a share between 0 and 1"
        )
    if not 0 < recipe.start_frames <= recipe.frames:
        raise ConfigError(f"start_frames is {recipe.start_frames}, expected 1 to frames ({recipe.frames})")


SampleParts = list[tuple[np.ndarray, np.ndarray, np.ndarray]]


def _samples(recipe: DrawnRecipe, pool: FramePool, step: int) -> SampleParts:
    """What one step learns from; the same for the same recipe and step, whenever it is asked for.
    Nothing if nobody draws frames any more: in a worker an error would lose its message.
    """
    rng = np.random.default_rng(np.random.SeedSequence((anywhere.SEED, recipe.seed, 7, step)))
    size, rows, columns = recipe.crops[step % len(recipe.crops)]
    count = recipe.available(step)
    if not pool.wait(count):
        return []
    chosen = rng.integers(count, size=size).tolist()
    return [anywhere.sample(pool.pictures[i], pool.depths[i], (rows, columns), rng) for i in chosen]


def collate(parts: SampleParts) -> tuple[Batch, Tensor]:
    """The batch and its exact depth."""
    image, sparse, truth = (torch.from_numpy(np.stack(column)) for column in zip(*parts, strict=True))
    eye = torch.eye(3).expand(len(parts), 3, 3)
    return Batch(image=image, sparse_depth=sparse[:, None], intrinsics=eye), truth[:, None]


class Steps(torch.utils.data.Dataset[SampleParts]):
    """Steps ``first`` to ``last`` for a worker to prepare, as arrays: the way of a tensor between processes is long."""

    def __init__(self, recipe: DrawnRecipe, folder: Path, first: int, last: int) -> None:
        self.recipe, self.folder, self.first, self.last = recipe, folder, first, last
        self.pool: FramePool | None = None

    def __len__(self) -> int:
        return self.last - self.first

    def __getitem__(self, index: int) -> SampleParts:
        self.pool = self.pool or FramePool(self.folder, self.recipe.frames, self.recipe.size, seed=self.recipe.seed)
        return _samples(self.recipe, self.pool, self.first + index)


def _mean(error: Tensor, weight: Tensor) -> Tensor:
    return (error * weight).sum((1, 2, 3)) / weight.sum((1, 2, 3)).clamp(min=1)


def _root(error: Tensor, weight: Tensor) -> Tensor:
    return (_mean(error.square(), weight) + 1e-12).sqrt()


def loss(depth: Tensor, scaffold: Tensor, truth: Tensor, sparse: Tensor) -> Tensor:
    """The formula above."""
    known = (truth > 0).to(depth.dtype)
    weight = known * (1 - 0.9 * (sparse > 0).to(depth.dtype))
    z = torch.where(truth > 0, truth, torch.ones_like(truth))
    middle = (truth.sum((1, 2, 3)) / known.sum((1, 2, 3)).clamp(min=1)).view(-1, 1, 1, 1)
    off, linear = depth.log() - z.log(), (depth - z) / middle
    with torch.no_grad():
        base = _mean((scaffold.log() - z.log()).abs(), weight) + 0.005
        first = (scaffold - z) / middle
        base_linear = _mean(first.abs(), weight) + 0.005
        base_square = _root(first, weight) + 0.01
    total = _mean(off.abs(), weight) / base + _mean(linear.abs(), weight) / base_linear
    total = total + 0.3 * _root(linear, weight) / base_square
    for scale in (1, 2, 4):
        for axis in (-1, -2):
            length = off.shape[axis]
            ahead, here = off.narrow(axis, scale, length - scale), off.narrow(axis, 0, length - scale)
            both = weight.narrow(axis, scale, length - scale) * weight.narrow(axis, 0, length - scale)
            total = total + 0.05 * _mean((ahead - here).abs(), both) / base
    return (total * (WORST / total.detach()).clamp(max=1.0)).mean()


@torch.no_grad()
def _scaffold_of(network: Backbone, context: dict[str, Any]) -> Tensor:
    """What the sharp planes alone say, at full size."""
    guess = F.interpolate(context["planes"].guesses[:, :1], scale_factor=2.0, mode="nearest")
    height, width = context["size"]
    return (context["unit"] * guess.exp())[..., :height, :width]


@torch.no_grad()
def _judge(network: Backbone, held: list[tuple[Batch, Tensor]]) -> dict[str, float]:
    """Error on held-out samples as a share of the scaffold's: mean over images of the ratio of MAE and RMSE."""
    network.eval()
    absolute, squared = [], []
    for batch, truth in held:
        latents = network.encode(batch)
        depth, scaffold = network.decode(latents), _scaffold_of(network, dict(latents.context))
        weight = ((truth > 0) & (batch.sparse_depth == 0)).to(depth.dtype)
        a, b = (_mean((d - truth).abs(), weight) for d in (depth, scaffold))
        c, d = (_mean((d - truth).square(), weight).sqrt() for d in (depth, scaffold))
        absolute.append(a / b.clamp(min=1e-6))
        squared.append(c / d.clamp(min=1e-6))
    network.train()
    return {"mae": float(torch.cat(absolute).mean()), "rmse": float(torch.cat(squared).mean())}


def _held_out(recipe: DrawnRecipe, folder: Path) -> list[tuple[Batch, Tensor]]:
    """The samples that judge: other scenes, each with three sensors."""
    pool = FramePool(folder / "held", HELD, recipe.size, seed=recipe.seed + 1)
    pool.draw(HELD)
    out, crop = [], (4 * recipe.size[0] // 5, 4 * recipe.size[1] // 5)
    for index in range(HELD):
        rng = np.random.default_rng(index)
        frame = (pool.pictures[index], pool.depths[index])
        out.append(collate([anywhere.sample(*frame, crop, rng) for _ in range(3)]))
    return out


def _weights_of(recipe: DrawnRecipe) -> dict[str, Tensor]:
    """The weights that a run begins with, of a model with the same network or a narrower one."""
    given = ProtoDepth.from_pretrained(str(recipe.start)).backbone
    expected = backbones.get(recipe.backbone).from_preset(recipe.preset)
    if type(given) is type(expected) and given.config() == expected.config():
        return given.state_dict()
    if isinstance(given, ScaleFree) and isinstance(expected, ScaleFree):
        return widened(given, expected).state_dict()
    raise ConfigError(
        f"start {recipe.start} holds another network ({given.name}, {given.config()}) than {recipe.backbone}, "
        f"preset {recipe.preset}: give a model of the same network"
    )


class DrawnLearner:
    """Network, average of its weights, optimiser and step, stored and read as one."""

    def __init__(self, recipe: DrawnRecipe) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.step = recipe, 0
        # steps without a change, those of them in a row, losses since the last line of the curve
        self.counts: dict[str, Any] = {"skipped": 0, "bad": 0, "losses": []}
        self.network = backbones.get(recipe.backbone).from_preset(recipe.preset).train()
        if recipe.start is not None:
            self.network.load_state_dict(_weights_of(recipe))
        self.average = {k: v.detach().clone() for k, v in self.network.state_dict().items()}
        self.optimiser = torch.optim.AdamW(
            self.network.parameters(), recipe.rate, betas=(0.9, 0.99), weight_decay=recipe.decay
        )

    def learn(self, batch: Batch, truth: Tensor) -> float | None:
        """One step; None (and no change of any weight) if the loss or a gradient was not finite."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.rate_at(self.step)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.recipe.half):
            latents = self.network.encode(batch)
            depth = self.network.decode(latents)
        value = loss(depth, _scaffold_of(self.network, dict(latents.context)), truth, batch.sparse_depth)
        self.optimiser.zero_grad(set_to_none=True)
        fine = bool(torch.isfinite(value))
        if fine:
            value.backward()  # type: ignore[no-untyped-call]
            fine = bool(torch.isfinite(nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)))
        if fine:
            self.optimiser.step()
        self.count(float(value.detach()) if fine else None)
        share = min(self.recipe.average, self.step / (self.step + 10))
        with torch.no_grad():
            for name, value_now in self.network.state_dict().items():
                self.average[name].lerp_(value_now, 1 - share)
        return float(value.detach()) if fine else None

    def count(self, value: float | None) -> None:
        """A step is done; what was counted is part of the state, so that a run that goes on counts as a whole one."""
        self.step += 1
        if value is None:
            self.counts["skipped"] += 1
            self.counts["bad"] += 1
        else:
            self.counts["bad"] = 0
            self.counts["losses"].append(value)

    def averaged(self) -> Backbone:
        network = backbones.get(self.recipe.backbone).from_preset(self.recipe.preset)
        network.load_state_dict(self.average)
        return network.eval()

    def tensors(self) -> dict[str, Tensor]:
        out = {f"network/{k}": v for k, v in self.network.state_dict().items()}
        out |= {f"average/{k}": v for k, v in self.average.items()}
        state = self.optimiser.state_dict()["state"]
        return out | {f"optimiser/{i}/{k}": v for i, entry in state.items() for k, v in entry.items()}

    def save(self, folder: Path) -> None:
        facts = {"recipe": asdict(self.recipe), "counts": self.counts}
        write_state(folder, self.step, self.tensors(), facts, keep=KEPT)

    def load(self, folder: Path) -> None:
        about = files.read_sealed(folder / "state.json", earlier=("step", "sha256", "recipe"))
        with whole_state(folder / "state.json"):
            now, then = asdict(self.recipe), about["recipe"]
            changed = [k for k in now if json.loads(json.dumps(now[k])) != then.get(k) and k not in MAY_CHANGE]
            if changed:
                raise CheckpointError(
                    f"{folder} was begun with another {', '.join(changed)}: resume with the same recipe"
                )
            about.setdefault("file", f"state-{int(about['step'])}.safetensors")  # earlier versions did not say it
            self._restore(read_state_tensors(folder, about))
            self.step, self.counts = int(about["step"]), about.get("counts", self.counts)

    def _restore(self, stored: dict[str, Tensor]) -> None:
        self.network.load_state_dict(part(stored, "network/"))
        self.average = part(stored, "average/")
        self.optimiser.load_state_dict(optimiser_state(self.optimiser, part(stored, "optimiser/"), "/"))


def _as_it_is(parts: SampleParts) -> SampleParts:
    return parts


def batches(recipe: DrawnRecipe, folder: Path, first: int) -> Iterator[tuple[Batch, Tensor]]:
    steps = Steps(recipe, folder, first, recipe.steps)
    loader = torch.utils.data.DataLoader(steps, batch_size=None, num_workers=1, prefetch_factor=6, collate_fn=_as_it_is)
    for parts in loader:
        if not parts:
            raise ProcessLost(f"the process that draws frames into {folder} has ended: --resume to go on")
        yield collate(parts)


def train_drawn(
    recipe: DrawnRecipe,
    out: Path,
    *,
    report: Callable[[str], None] = print,
    every: int = 1000,
) -> Backbone:
    """Learn, or go on with what is in ``out``; ``curve.jsonl`` is the curve."""
    learner = DrawnLearner(recipe)
    if (out / "state.json").exists():
        learner.load(out)
        report(f"going on from step {learner.step}")
    state = 4 * sum(p.numel() for p in learner.network.parameters()) * 4  # weights, average and two moments
    pools = pool_bytes(out / "pool", recipe.frames, recipe.size) + pool_bytes(out / "held", HELD, recipe.size)
    check_space(out, (KEPT + 1) * state + pools, f"training {recipe.name}")
    FramePool(out / "pool", recipe.frames, recipe.size, seed=recipe.seed)  # its files are there before two open them
    with drawing(recipe, out / "pool"):
        held = _held_out(recipe, out)
        with whole_steps() as pause:
            _learn(learner, out, held, report, every, pause)
    network = learner.averaged()  # rounded: half the bytes, and domains that copy a part of it exactly stay small, too
    network.load_state_dict({key: files.rounded(value) for key, value in network.state_dict().items()})
    return network


@contextmanager
def drawing(recipe: DrawnRecipe, folder: Path) -> Iterator[None]:
    """A second process fills the pool meanwhile."""
    drawer = multiprocessing.get_context("spawn").Process(
        target=draw_ahead, args=(folder, recipe.frames, recipe.size, recipe.seed), daemon=True
    )
    drawer.start()
    try:
        yield
    finally:
        drawer.terminate()


def _learn(
    learner: DrawnLearner,
    out: Path,
    held: list[tuple[Batch, Tensor]],
    report: Callable[[str], None],
    every: int,
    pause: Callable[[], None],
) -> None:
    recipe, began, curve = learner.recipe, time.monotonic(), JsonLines(out / "curve.jsonl")
    try:
        for batch, truth in batches(recipe, out / "pool", learner.step):
            learner.learn(batch, truth)
            if learner.counts["bad"] >= MAX_BAD_STEPS:
                raise TrainingDiverged(
                    f"the loss was not finite in {learner.counts['bad']} steps in a row: "
                    f"--set rate={recipe.rate / 2:g}, and --resume to go on from the last good state"
                )
            if learner.step % every == 0 or learner.step == recipe.steps:
                line = {"loss": float(np.mean(learner.counts["losses"] or [math.nan]))}
                line |= _judge(learner.averaged(), held) | {"rate": recipe.rate_at(learner.step)}
                line |= {"skipped": learner.counts["skipped"], "seconds": round(time.monotonic() - began, 1)}
                curve(learner.step, line)  # before the state: a run killed in between does not write it again
                report("  ".join(f"{k} {v:.4g}" for k, v in {"step": learner.step, **line}.items()))
                learner.counts["losses"] = []
                learner.save(out)
            pause()
    except (KeyboardInterrupt, TrainingDiverged, ProcessLost):
        learner.save(out)
        raise
