"""What one process and two processes both do, so that tests can compare:
gradients, evaluation, skipped steps, a whole training.

As a program it is one of the processes: ``python two_processes.py FOLDER`` with the variables that torchrun sets; it
leaves its results in ``FOLDER/<rank>.pt``.
"""

import copy
import math
import sys
from pathlib import Path
from typing import Any

import torch

import protodepth.methods  # noqa: F401  (registers the methods)
from protodepth import distributed
from protodepth.backbones.fusionnet import FusionNet
from protodepth.backbones.lite import Lite
from protodepth.backbones.posenet import PoseNet
from protodepth.backbones.uformer import Uformer
from protodepth.data.augment import AugmentConfig
from protodepth.data.batches import training_batches
from protodepth.data.frame import Domain
from protodepth.data.worlds.worlds import world
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import Method, build, methods
from protodepth.methods.statistics import describe
from protodepth.model import ProtoDepth
from protodepth.training.evaluate import evaluate
from protodepth.training.fit import Learner, fit, gradients
from protodepth.training.schedule import Schedule
from protodepth.training.sequence import run_sequence
from protodepth.types import Batch, LossTerms, View

SIZE, WORLDS = (32, 48), ("room", "warehouse", "street")
AUGMENT = AugmentConfig(
    brightness=(0.5, 1.5), flip_horizontal=True, resize=(0.7, 1.0), crop=(30, 44), remove_points=(0.0, 0.6)
)
# three frames for two processes: one has two of them, and the sources of replay and joint have one frame each
SCHEDULE = Schedule(steps=3, batch_size=3, rate=1e-3, augment=AUGMENT, save_every=100)
SETTINGS: dict[str, dict[str, Any]] = {"replay": {"size": 3}, "cmp": {"size": 3, "fixed_batch": True}}
THRESHOLD = 0.51  # of the prior's loss
NAMES = tuple(name for name in methods.names() if name != "pretrained")


def domains() -> list[Domain]:
    return [world(name, size=SIZE, train=5, val=1, test=5, cache=False) for name in WORLDS]


def start(name: str, places: list[Domain]) -> ProtoDepth:
    """The network that a method starts from."""
    torch.manual_seed(0)
    widths = {key: [6] * 5 for key in ("image_widths", "depth_widths")}
    if name == "l2p":
        network: Any = Uformer(width=8, heads=2, depth_range=(0.1, 100.0))
    elif name == "prior":
        network = FusionNet.from_preset("small")
    else:
        network = Lite(depth_range=(0.1, 100.0), **widths)  # type: ignore[arg-type]
    model = ProtoDepth(network, pose=PoseNet(kind="small", rotation="axis"))
    describe(model, places[0].name, places[0].train)
    return model


def make(name: str, places: list[Domain]) -> Method:
    """A method in the middle of a sequence, moved away from where it started so that every penalty has a gradient."""
    model = start(name, places)
    prior = {"prior": 0.5, "prior_threshold": THRESHOLD} if name == "prior" else {}
    objective = Objective(ObjectiveConfig(reduction="relative", **prior), pose=model.pose, max_depth=100.0)
    name = "finetune" if name == "prior" else name
    kind = methods.get(name).Config
    method = build(name, model, objective, kind(**SETTINGS.get(name, {})) if kind and name != "protodepth" else None)
    method.prepare(places)
    for domain in places[:2]:
        method.end_domain(domain)
    method.begin_domain(places[2], lambda m, d: None)
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in method.trainable_parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=random))
    return method


def gradient(name: str, places: list[Domain]) -> dict[str, Any]:
    """Gradients and terms of one step with the batch of all processes, in single and in double precision."""
    method, found = make(name, places), {}
    colors = watch_prior(method)
    for kind in (torch.float32, torch.float64):
        for held in (*vars(method).values(), *getattr(method, "pools", {}).values()):
            if isinstance(held, torch.nn.Module):
                held.to(kind)
        learner = Learner.of(method, SCHEDULE, 4)
        loader = training_batches(places[2].train, SCHEDULE.batch_size, seed=4, start=1)
        step = next(iter(method.batches(loader, start=1, seed=4)))
        batches = (step,) if isinstance(step, Batch) else step
        sources = tuple(source.map(lambda t: t.to(kind)) for source in batches)  # noqa: B023
        terms = gradients(learner, sources, 1)
        kept = [None if p.grad is None else p.grad.clone() for p in learner.parameters]
        found[str(kind)] = {"terms": terms, "gradients": kept, "rows": [len(s) for s in sources]}
    return found | {"colors": colors}


def watch_prior(method: Method) -> list[float]:
    """The colour loss of this process's own rows, by which the prior would be judged if nobody asked the others."""
    term, colors = method.objective._prior_term, []

    def watched(batch: Batch, depth: Any, prior: Any, pose: Any, color: torch.Tensor) -> torch.Tensor:
        colors.append(float(color.detach()))
        return term(batch, depth, prior, pose, color)

    method.objective._prior_term = watched  # type: ignore[method-assign]
    return colors


def skipped(places: list[Domain]) -> dict[str, Any]:
    """A training in which the loss of one frame is not a number, in the steps that have it."""
    method = make("protodepth", places)
    loss, bad = method.loss, float(training_image(places[2], 0))

    def poisoned(batch: Batch, view: View) -> LossTerms:
        terms = loss(batch, view)
        if any(abs(float(mean) - bad) < 1e-6 for mean in batch.image.mean((1, 2, 3))):
            terms["color"] = terms["color"] * math.nan
        return terms

    method.loss = poisoned  # type: ignore[method-assign]
    plain = Schedule(steps=5, batch_size=2, rate=1e-3)
    progress = fit(method, places[2], plain, seed=0)
    return {"skipped": progress.skipped, "weights": weights(method)}


def training_image(domain: Domain, index: int) -> torch.Tensor:
    return torch.from_numpy(domain.train[index].image).float().div(255).mean()


def weights(method: Method) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in method.state().items()}


def sequence(places: list[Domain]) -> dict[str, Any]:
    """A whole sequence with a forgetting curve."""
    model = start("protodepth", places)
    objective = Objective(ObjectiveConfig(reduction="relative"), pose=model.pose, max_depth=100.0)
    method = build("protodepth", copy.deepcopy(model), objective, model.config)
    result = run_sequence(method, places, lambda m, d, each: fit(m, d, SCHEDULE, seed=2, each_step=each), curve_every=2)
    return {
        "incremental": result.incremental.to_json(),
        "agnostic": result.agnostic.to_json(),
        "curves": result.curves,
        "weights": weights(method),
    }


def evaluation(places: list[Domain]) -> dict[str, Any]:
    model = start("protodepth", places)
    found = {
        n: evaluate(lambda b: model.predict_batch(b, "base"), places[0].test, places[0].rules, batch_size=n)
        for n in (1, 2, 8)
    }
    return {n: (e.mean, e.images) for n, e in found.items()}


def statistics() -> torch.Tensor:
    """The running mean of a batch norm that has seen another value in every process."""
    norm = torch.nn.Sequential(torch.nn.BatchNorm1d(1, momentum=1.0), torch.nn.BatchNorm1d(1).eval())
    norm[0](torch.tensor([[1.0], [3.0]]) + 10 * distributed.rank())
    distributed.average_statistics(None, norm)
    return norm[0].running_mean


def everything() -> dict[str, Any]:
    torch.set_num_threads(1)
    places = domains()
    found: dict[str, Any] = {name: gradient(name, places) for name in (*NAMES, "prior")}
    return found | {
        "skipped": skipped(places),
        "sequence": sequence(places),
        "evaluation": evaluation(places),
        "mean": statistics(),
    }


if __name__ == "__main__":
    with distributed.together("cpu"):
        results = everything()
        torch.save(results, Path(sys.argv[1]) / f"{distributed.rank()}.pt")
