"""One stage of a sequence: each domain by its own schedule and objective, and the checkpoint that is kept of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from protodepth import distributed
from protodepth.backbones.posenet import PoseNet
from protodepth.data.frame import Domain
from protodepth.errors import CheckpointError
from protodepth.methods.base import Method
from protodepth.methods.statistics import describe
from protodepth.metrics import METRICS
from protodepth.model import ProtoDepth
from protodepth.storage import files
from protodepth.training.evaluate import evaluate
from protodepth.training.fit import FitRecord, fit
from protodepth.training.log import Log, silent
from protodepth.training.objective import resolved
from protodepth.training.recipes import CheckpointChoice, SequenceRecipe
from protodepth.training.schedule import Schedule


def better(errors: dict[str, float], best: dict[str, float] | None) -> bool:
    """The published rule: at least three of the four errors, rounded to two decimals, are not above the best so far.

    >>> old = {"mae": 10.0, "rmse": 20.0, "imae": 3.0, "irmse": 5.0}
    >>> better({**old, "mae": 99.0}, old), better({**old, "mae": 99.0, "rmse": 99.0}, old), better(old, None)
    (True, False, True)
    """
    return best is None or sum(round(errors[m], 2) <= round(best[m], 2) for m in METRICS) >= 3


class BestCheckpoint:
    """The method's state at the best look of a stage; with a folder it survives a restart.

    All four errors of the best are replaced together, whatever the fourth says, as the published rule does.
    """

    def __init__(self, method: Method, domain: Domain, select: CheckpointChoice, folder: Path | None) -> None:
        self.method, self.domain, self.select, self.folder = method, domain, select, folder
        self.best: dict[str, float] | None = None
        self.step, self.looked = 0, 0
        self.state: dict[str, Tensor] = {}
        if folder is not None and (folder / "best.json").exists():
            self._read(folder)

    def _read(self, folder: Path) -> None:
        about = files.read_sealed(folder / "best.json", earlier={"errors", "step", "looked", "sha256"})
        try:
            self.best, self.step, self.looked = about["errors"], int(about["step"]), int(about["looked"])
            self.state = files.read_tensors(folder / f"best-{self.step}.safetensors", about["sha256"])
        except (LookupError, TypeError, ValueError) as error:
            raise CheckpointError(f"{folder / 'best.json'} is damaged ({error!r}): remove {folder}") from None

    def look(self, step: int) -> None:
        """Judge the method now; a resumed run does not judge a step twice."""
        if step <= self.looked:
            return
        data = self.domain.split(self.select.split)
        judged = evaluate(lambda batch: self.method.predict(batch, self.domain.name), data, self.domain.rules)
        self.looked = step
        if better(judged.mean, self.best):
            self.best, self.step = {m: judged.mean[m] for m in METRICS}, step
            self.state = {name: tensor.detach().cpu().clone() for name, tensor in self.method.state().items()}
        if self.folder is not None and distributed.leads():
            self._write(self.folder)

    def _write(self, folder: Path) -> None:
        file = folder / f"best-{self.step}.safetensors"
        about = {"errors": self.best, "step": self.step, "looked": self.looked}
        sha256 = files.write_tensors(file, self.state)
        files.write_sealed(folder / "best.json", {**about, "sha256": sha256})
        for old in folder.glob("best-*.safetensors"):
            if old != file:
                old.unlink()

    def restore(self) -> None:
        """The method as it was at its best."""
        self.method.load_state(self.state)


def fit_selected(
    method: Method,
    domain: Domain,
    schedule: Schedule,
    select: CheckpointChoice | None,
    *,
    seed: int,
    log: Log = silent,
    folder: Path | None = None,
    each_step: Callable[[int], None] | None = None,
) -> FitRecord:
    """One stage: ``fit``, then the checkpoint at its best look is kept; without a selection the last."""
    if select is None or not method.trains:
        return fit(method, domain, schedule, seed=seed, log=log, folder=folder, each_step=each_step)
    steps = method.budget(schedule.counted(len(domain.train)).steps)
    if len(domain.split(select.split)) == 0:
        record = fit(method, domain, schedule, seed=seed, log=log, folder=folder, each_step=each_step)
        record.kept = {"step": steps, "of": steps, "reason": f"{domain.name} has no {select.split} frames to choose by"}
        return record
    best = BestCheckpoint(method, domain, select, folder)

    def each(step: int) -> None:
        if each_step is not None:
            each_step(step)
        if step % select.every == 0 or step == steps:
            best.look(step)

    record = fit(method, domain, schedule, seed=seed, log=log, folder=folder, each_step=each)
    best.look(steps)  # only if the run was stopped between its last step and the look
    best.restore()
    record.kept = {"step": best.step, "of": steps, "errors": best.best}
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFit:
    """Trains methods on domains as a recipe says: each domain with its own schedule, objective and selection."""

    recipe: SequenceRecipe
    name: str  # of the method whose learning rate counts, also for an auxiliary network
    log: Log = silent
    folder: Path | None = None

    def __call__(self, method: Method, domain: Domain, each_step: Callable[[int], None] | None = None) -> FitRecord:
        recipe, place = self.recipe, self.folder / f"{method.name}-{domain.name}" if self.folder else None
        method.objective.use(resolved(recipe.objective_for(domain.name), method.backbone))
        schedule = recipe.schedule_for(domain.name, self.name)
        return fit_selected(
            method, domain, schedule, recipe.select, seed=recipe.seed, log=self.log, folder=place, each_step=each_step
        )


def prepared_start(model: ProtoDepth, recipe: SequenceRecipe, first: Domain) -> ProtoDepth:
    """The start of a sequence: with D_1's descriptor and no other domain's, and with a pose network where the objective
    needs one (a converted network comes without).
    """
    for name in model.domains:
        if name != first.name:
            model.delete_domain(name)
    if model.pose is None and recipe.objective.poses == "network" and model.backbone.default_pose:
        torch.manual_seed(recipe.seed)
        model.pose = PoseNet(**model.backbone.default_pose).to(next(model.backbone.parameters()).device)
    if first.name not in model.domains:
        describe(model, first.name, first.train, first.val)
    return model


def total_steps(recipe: SequenceRecipe, name: str, method: Method, domains: list[Domain]) -> int:
    """How many steps a sequence takes in all, for progress bars: an even share for each training of the method."""
    later = domains[1:]
    steps = [recipe.schedule_for(d.name, name).counted(len(d.train)).steps for d in later]
    return round(sum(steps) / max(1, len(later)) * method.trainings(len(later)))
