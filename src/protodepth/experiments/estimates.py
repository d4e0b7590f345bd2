"""What a bench would cost on this machine, before it runs: frames, steps, hours and memory of every cell.

A training step of each network is timed on one random crop with half the sides of the real one.  Convolutions cost what
their pixels cost, so that the time of a step and the memory of what it keeps for the backward pass are scaled by the
number of pixels.  Evaluation and reading files are not in it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from protodepth import config
from protodepth.backbones.base import count_parameters
from protodepth.backbones.posenet import PoseNet
from protodepth.data.arguments import open_domain
from protodepth.experiments.cells import Cell
from protodepth.methods.base import Method, build, methods
from protodepth.model import ProtoDepth
from protodepth.training.bases import new_network
from protodepth.training.fit import Learner, train_step
from protodepth.training.objective import build_objective
from protodepth.training.recipes import BaseRecipe, SequenceRecipe
from protodepth.training.schedule import Schedule
from protodepth.types import Batch

# Work of a step beside finetuning's 1: a teacher's forward pass, a second batch, an auxiliary network.
WORK = {"pretrained": 0.0, "lwf": 1.3, "replay": 2.0, "cmp": 2.0, "ancl": 2.0}
SMALLEST, MULTIPLE = 64, 32
WEIGHT_BYTES = {True: 16, False: 4}  # float32: weight, gradient and Adam's two moments; frozen, the weight alone


@dataclass(frozen=True, slots=True)
class StepCost:
    """Of one network, learning all weights or prototypes alone."""

    seconds_per_pixel: float
    bytes_per_pixel: float
    fixed_bytes: float


@dataclass(frozen=True, slots=True)
class CellCost:
    """Of one cell: (domain, frames, steps) of each stage, seconds, bytes."""

    stages: tuple[tuple[str, int, int], ...]
    seconds: float
    memory: float

    def __str__(self) -> str:
        """
        >>> str(CellCost((("void", 47000, 235000),), 7200.0, 3.2e9))
        'void 47000 frames 235000 steps; about 2.0 h, 3.2 GB'
        """
        text = ", ".join(f"{name} {frames} frames {steps} steps" for name, frames, steps in self.stages)
        return f"{text}; about {self.seconds / 3600:.1f} h, {self.memory / 1e9:.1f} GB"


def _measured(method: Method, crop: tuple[int, int], device: torch.device) -> StepCost:
    """Time a step on a small crop and add up what autograd keeps."""
    size = tuple(max(SMALLEST, side // 2 // MULTIPLE * MULTIPLE) for side in crop)
    learner = Learner.of(method, Schedule(steps=10, batch_size=1), 0)
    batch = _random_batch(size[0], size[1]).to(device)
    seen: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        train_step(learner, batch, 0)
    begun = time.monotonic()
    train_step(learner, batch, 1)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    pixels, learned = size[0] * size[1], sum(p.numel() for p in learner.parameters)
    total = count_parameters(method.backbone) + (
        count_parameters(method.objective.pose) if method.objective.pose else 0
    )
    weights = WEIGHT_BYTES[True] * learned + WEIGHT_BYTES[False] * max(0, total - learned)
    return StepCost((time.monotonic() - begun) / pixels, max(0, sum(seen.values()) - 4 * total) / pixels, weights)


def _random_batch(height: int, width: int) -> Batch:
    """A frame of noise with two neighbours and a point in every twentieth pixel."""
    draw = torch.Generator().manual_seed(0)
    images = [torch.rand(1, 3, height, width, generator=draw) for _ in range(3)]
    sparse = 2 + torch.rand(1, 1, height, width, generator=draw)
    sparse = sparse * (torch.rand(1, 1, height, width, generator=draw) < 0.05)
    K = torch.tensor([[[float(width), 0, width / 2], [0, float(width), height / 2], [0, 0, 1]]])
    return Batch(image=images[0], sparse_depth=sparse, intrinsics=K, neighbours=tuple(images[1:]))


@dataclass(slots=True)
class Estimator:
    """Costs of cells; every network is measured once, every dataset opened once."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    domains: dict[str, Any] = field(default_factory=dict)
    costs: dict[tuple[str, bool, tuple[int, int]], StepCost] = field(default_factory=dict)

    def domain(self, argument: str) -> Any:
        if argument not in self.domains:
            self.domains[argument] = open_domain(argument)
        return self.domains[argument]

    def cost(self, cell: Cell) -> CellCost | None:
        """None for cells that do not train."""
        if cell.kind == "base" and "recipe" in cell.inputs:
            recipe = config.from_dict(BaseRecipe, cell.inputs["recipe"], "recipe of a base")
            return self._sum(cell, [(recipe.data, recipe.schedule)], "finetune")
        if cell.kind == "sequence":
            sequence = config.from_dict(SequenceRecipe, cell.inputs["recipe"], "recipe of a sequence")
            name = cell.inputs["method"]
            later = sequence.domains[1:]
            plans = [(data, sequence.schedule_for(self.domain(data).name, name)) for data in later]
            return self._sum(cell.needed("base"), plans, name)
        return None

    def _sum(self, base: Cell, plans: Sequence[tuple[str, Schedule]], name: str) -> CellCost:
        """``plans``: the stages' data arguments and schedules."""
        stages, seconds, memory = [], 0.0, 0.0
        for data, schedule in plans:
            domain = self.domain(data)
            steps = schedule.counted(len(domain.train)).steps
            crop = schedule.augment.crop or domain.train[0].image.shape[:2]
            step = self.step(base, not methods.get(name).chooses, (int(crop[0]), int(crop[1])))
            factor = WORK.get(name, 1.0)
            pixels = crop[0] * crop[1] * schedule.batch_size * max(factor, 1.0)
            stages.append((domain.name, len(domain.train), steps if factor else 0))
            seconds += steps * factor * step.seconds_per_pixel * crop[0] * crop[1] * schedule.batch_size
            memory = max(memory, step.bytes_per_pixel * pixels + step.fixed_bytes)
        return CellCost(tuple(stages), seconds, memory)

    def step(self, base: Cell, every_weight: bool, crop: tuple[int, int]) -> StepCost:
        key = (base.key, every_weight, crop)
        if key not in self.costs:
            self.costs[key] = _measured(_method(base, every_weight, self.device), crop, self.device)
        return self.costs[key]


def _method(base: Cell, every_weight: bool, device: torch.device) -> Method:
    """Finetuning or ProtoDepth on the network of a base, untrained unless it is given."""
    if base.where:
        model = ProtoDepth.from_pretrained(base.where)
        recipe = None
    else:
        recipe = config.from_dict(BaseRecipe, base.inputs["recipe"], "recipe of a base")
        model = ProtoDepth(new_network(recipe), recipe.prototypes)
    if model.pose is None:
        model.pose = PoseNet(**(model.backbone.default_pose or {"kind": "posenet"}))
    objective = build_objective(
        model.to(device), recipe.objective if recipe else BaseRecipe(name="", data="").objective
    )
    method = build("finetune" if every_weight else "protodepth", model, objective)
    if every_weight:
        model.backbone.unfreeze()
    else:
        model.add_domain("estimate")
        model.set_domain("estimate")
    return method


def costs_text(cells: Sequence[Cell], done: Callable[[Cell], bool], device: torch.device) -> list[str]:
    """A line for each cell, and the sum of what is to do."""
    estimator, lines, total = Estimator(device), [], 0.0
    for cell in cells:
        finished = done(cell)
        cost = None if finished else estimator.cost(cell)
        total += cost.seconds if cost else 0.0
        lines.append(
            f"{'done   ' if finished else 'to do  '} {cell.kind:<12} {cell.title}" + (f": {cost}" if cost else "")
        )
    left = sum(not done(cell) for cell in cells)
    return [*lines, f"{left} cells to do, about {total / 3600:.1f} h of training on {device} (evaluation not counted)"]
