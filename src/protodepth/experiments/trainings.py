"""Cells that train, a base or a method on a sequence, and how other cells load what they left in their folders."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from protodepth import config
from protodepth.backbones.base import Backbone, count_parameters
from protodepth.backbones.fusionnet import FusionNet
from protodepth.data.arguments import open_domain
from protodepth.data.augment import AugmentConfig
from protodepth.data.frame import Domain
from protodepth.experiments.cells import Cell, Store
from protodepth.experiments.jobs import Job
from protodepth.methods.base import Method
from protodepth.model import ProtoDepth
from protodepth.report.results import about_run, plain, results_document
from protodepth.storage import files
from protodepth.storage.replace import discard
from protodepth.training.bases import train_base, train_scaffnet
from protodepth.training.recipes import BaseRecipe, SequenceRecipe
from protodepth.training.schedule import Schedule
from protodepth.training.sequence import build_method, open_domains, run_sequence
from protodepth.training.stages import StageFit, prepared_start, total_steps


def base_folder(store: Store, base: Cell) -> Path:
    """Where the base network of a cell is: what it trained, or what was given."""
    if base.where:
        return Path(base.where)
    if store.done(base):
        store.file(base, "model/config.json")  # which has the checksums of the others
    return store.place(base) / "model"


def run_base(job: Job) -> dict[str, Any]:
    """The cell of a base network: train it, or take note of a given one."""
    folder, inputs = base_folder(job.store, job.cell), job.cell.inputs
    started = time.monotonic()
    if "given" not in inputs and not (folder / "config.json").exists():
        recipe = config.from_dict(BaseRecipe, inputs["recipe"], "recipe of a base")

        def prepare(network: Backbone) -> None:
            if isinstance(network, FusionNet):
                _prepare_scaffold(job, network, recipe)

        steps = recipe.schedule.steps
        if recipe.schedule.epochs is not None:
            steps = recipe.schedule.counted(len(open_domain(recipe.data).train)).steps
        with job.reporter.bar(job.cell.title, steps) as advance:
            model = train_base(
                recipe, folder=job.place / "state", log=job.log(advance), prepare=prepare, device=job.store.device
            )
        model.save_pretrained(folder, notes=inputs)
    discard(job.place / "state")  # also what is left where it was killed after the model was written
    model = ProtoDepth.from_pretrained(folder)
    about = {"parameters": count_parameters(model.backbone), "domains": list(model.domains)}
    return {**about, "seconds": time.monotonic() - started}


def _prepare_scaffold(job: Job, network: FusionNet, recipe: BaseRecipe) -> None:
    """FusionNet's ScaffNet, with half the steps of the network around it; frozen ever after.
    A resumed cell finds it trained.
    """
    kept, about = job.place / "scaffnet.safetensors", job.place / "scaffnet.json"
    if about.exists():
        stored = files.read_tensors(kept, files.read_json(about)["sha256"])
        files.load_state(network.scaffnet, stored, kept)
        network.scaffnet.eval().requires_grad_(False)
        return
    stored_schedule = job.cell.inputs.get("scaffold_schedule")
    domain = open_domain(job.cell.inputs["scaffold"])
    schedule = replace(
        recipe.schedule,
        steps=max(1, recipe.schedule.steps // 2),
        batch_size=4,
        rate=2e-3,
        augment=AugmentConfig(remove_points=(0.0, 0.6), remove_rows=(0.0, 0.6)),
    )
    if stored_schedule is not None:  # the published one
        schedule = config.from_dict(Schedule, stored_schedule, "schedule of ScaffNet").counted(len(domain.train))
    with job.reporter.bar(f"{job.cell.title}: ScaffNet", schedule.steps) as advance:
        train_scaffnet(network.scaffnet, domain, schedule, seed=recipe.seed, log=job.log(advance))
    files.write_json(about, {"sha256": files.write_tensors(kept, network.scaffnet.state_dict())})


def load_start(store: Store, cell: Cell, domains: list[Domain]) -> ProtoDepth:
    """The base that the cell of a training starts from, with D_1's descriptor and no other domain's."""
    model = ProtoDepth.from_pretrained(base_folder(store, cell.needed("base"))).to(store.device)
    return prepared_start(model, sequence_recipe(cell), domains[0])


def run_training(job: Job) -> dict[str, Any]:
    """The cell of a method on a sequence: its results, and its state after every stage for other cells."""
    recipe, name = sequence_recipe(job.cell), job.cell.inputs["method"]
    domains = open_domains(recipe)
    method = build_method(name, load_start(job.store, job.cell, domains), recipe)
    stages: dict[str, str] = {}
    resumed = (job.place / "state").exists()
    with job.reporter.bar(job.cell.title, total_steps(recipe, name, method, domains)) as advance:
        fit_domain = StageFit(recipe=recipe, name=name, log=job.log(advance), folder=job.place / "state")

        def keep(domain: Domain) -> None:
            stages[domain.name] = files.write_tensors(_stage_file(job.place, domain.name), method.stage_state())

        result = run_sequence(
            method,
            domains,
            fit_domain,
            curve_every=recipe.curve_every,
            split=job.cell.inputs["split"],
            after_domain=keep,
            folder=job.place / "state",
        )
    about = about_run("", recipe.seed, resumed=resumed, threads=torch.get_num_threads())
    document = results_document([result], seconds=sum(result.seconds), about=about)
    document |= {
        "stages": stages,
        "record": result.record,
        "scenes": plain(result.scenes) if _frames_in(result.scenes) <= MOST_SCENES else {},
        "parameters": count_parameters(method.backbone),
        "overhead": method.model.overhead().percent if method.chooses else {},
    }
    discard(job.place / "state")
    return document


MOST_SCENES = 5000  # test frames of all domains: with more of them their choice no longer matters


def _frames_in(scenes: dict[str, Any]) -> int:
    return sum(len(names) for names in scenes.get("names", ()))


def sequence_recipe(cell: Cell) -> SequenceRecipe:
    """The recipe that is written in the cell of a training."""
    return config.from_dict(SequenceRecipe, cell.inputs["recipe"], "recipe of a sequence")


def _stage_file(place: Path, domain: str) -> Path:
    return place / "stages" / f"{domain}.safetensors"


def load_stage(store: Store, cell: Cell, domains: list[Domain], name: str) -> Method:
    """From the folder of a finished cell: the method of its training as it was after the domain ``name``."""
    method = build_method(cell.inputs["method"], load_start(store, cell, domains), sequence_recipe(cell))
    method.prepare(domains)
    sha256 = store.result(cell)["stages"][name]
    method.load_state(files.read_tensors(_stage_file(store.place(cell), name), sha256))
    method.train(False)
    return method


def open_of(cell: Cell) -> list[Domain]:
    """The domains of the cell of a training, opened."""
    return open_domains(sequence_recipe(cell))
