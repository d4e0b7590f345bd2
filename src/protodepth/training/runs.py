"""What ``protodepth train`` does: a recipe is run in a folder that can be resumed, and reported."""

import dataclasses
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from protodepth import config, distributed
from protodepth.data.arguments import open_domain
from protodepth.errors import CheckpointError, ConfigError, ProcessLost
from protodepth.methods.base import methods
from protodepth.model import ProtoDepth
from protodepth.progress import Reporter, StepCount
from protodepth.report.results import about_run, command_line, results_document
from protodepth.report.run import print_table, write_run
from protodepth.report.samples import add_method, collect
from protodepth.storage import claims
from protodepth.storage.files import read_json, write_json
from protodepth.storage.folders import check_nothing_lost, resolve
from protodepth.storage.locks import writing
from protodepth.training.bases import new_network, train_base
from protodepth.training.drawn import MAY_CHANGE, DrawnRecipe, check_drawn, train_drawn
from protodepth.training.fit import check_processes
from protodepth.training.log import JsonLines, last_record
from protodepth.training.recipes import BaseRecipe, Recipe, SequenceRecipe, read_recipe
from protodepth.training.sequence import build_method, learn_sequence, open_domains
from protodepth.training.stages import prepared_start, total_steps


def train(
    name: str | Recipe,
    out: Path,
    *,
    method: str,
    changes: dict[str, Any],
    overrides: tuple[str, ...],
    resume: bool,
    device: str | None = None,
) -> None:
    """Run a recipe with changes into a folder, alone or together with the other processes that torchrun started."""
    with distributed.together(device) as place, ExitStack() as stack:

        def begin_alone() -> Recipe:
            stack.enter_context(writing(out))
            return _begin(name, out, method, changes, overrides, resume)

        try:
            recipe = distributed.lead(begin_alone)
            if not distributed.leads():
                _divert(out / f"rank{distributed.rank()}.log")
            if isinstance(recipe, DrawnRecipe):
                _run_drawn(recipe, out)
            elif isinstance(recipe, BaseRecipe):
                _run_base(recipe, out, place)
            else:
                _run_method(recipe, method, out, place)
        except ProcessLost as error:
            Reporter().line(f"{error}; the rank*.log in {out} may say why")
            raise KeyboardInterrupt from error


def _begin(
    name: str | Recipe, out: Path, method: str, changes: dict[str, Any], overrides: tuple[str, ...], resume: bool
) -> Recipe:
    """The resolved recipe, after every check that can be made before anything runs;
    the folder is its own from here on.
    """
    recipe = read_recipe(name) if isinstance(name, str) else name
    fields = {f.name for f in dataclasses.fields(recipe)}
    wrong = [key for key in changes if key not in fields]
    if wrong:
        raise ConfigError(
            f"recipe {recipe.name!r} has no setting {wrong[0]!r}: --{wrong[0]} is for recipes of base networks"
        )
    recipe = config.override(dataclasses.replace(recipe, **changes), overrides)
    _check_recipe(recipe, method)
    _claim_run(out, recipe, method if isinstance(recipe, SequenceRecipe) else "", resume)
    return recipe


def _divert(file: Path) -> None:
    """From here on this process prints into a file: of several processes the first alone writes to the terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):  # also what libraries print
        os.dup2(handle, number)
    os.close(handle)


def _log_file(out: Path) -> Path:
    """Each process has its own."""
    return out / ("log.jsonl" if distributed.leads() else f"log.rank{distributed.rank()}.jsonl")


def _check_recipe(recipe: Recipe, method: str) -> None:
    """What can be known to fail fails before a folder is made."""
    if isinstance(recipe, DrawnRecipe):
        check_drawn(recipe)
        return
    stages = (recipe.stages or {}) if isinstance(recipe, SequenceRecipe) else {}
    for schedule in (recipe.schedule, *(stage.schedule for stage in stages.values())):
        check_processes(schedule)
    if isinstance(recipe, BaseRecipe):
        if recipe.supervised and distributed.world() > 1:
            raise ConfigError(
                f"recipe {recipe.name!r} learns from ground truth in a loop of its own: call it without torchrun"
            )
        new_network(recipe)
        open_domain(recipe.data)
    else:
        methods.get(method)
        resolve(recipe.start)
        open_domains(recipe)


def _claim_run(out: Path, recipe: Recipe, method: str, resume: bool) -> None:
    """An output folder belongs to one configuration; another one is refused, not mixed in."""
    values = config.to_dict(recipe)
    if isinstance(recipe, DrawnRecipe):  # more steps are the same run, longer
        values = {k: v for k, v in values.items() if k not in MAY_CHANGE}
    about = {"kind": "run", "recipe": values, "method": method}
    if claims.holds(out, "run.json", "run"):
        known = read_json(out / "run.json")
        if isinstance(recipe, DrawnRecipe) and isinstance(known.get("recipe"), dict):  # begun by an earlier version
            known["recipe"] = {k: v for k, v in known["recipe"].items() if k not in MAY_CHANGE}
        claims.check_same(out, "a run", {k: known.get(k) for k in about}, config.to_dict(about))
        if not resume:
            raise CheckpointError(f"{out} holds this run already: --resume to go on, or another --out")
    else:
        write_json(out / "run.json", config.to_dict(about))
    if not (out / "recipe.toml").exists():  # also of a run that was killed between the two
        config.write(recipe, out / "recipe.toml")


def _run_base(recipe: BaseRecipe, out: Path, device: torch.device) -> None:
    reporter = Reporter(quiet=not distributed.leads())
    if (out / "model" / "config.json").exists():
        reporter.line(f"{out / 'model'} is complete: nothing to do")
        return
    log = JsonLines(_log_file(out))
    steps = recipe.schedule.steps
    if recipe.schedule.epochs is not None:
        steps = recipe.schedule.counted(len(open_domain(recipe.data).train)).steps
    with reporter.bar(f"training {recipe.name}", steps) as advance:

        def each(step: int, record: dict[str, Any]) -> None:
            advance(step)
            if step % 50 == 0:
                log(step, record)

        model = train_base(recipe, folder=out / "state", log=each, report=reporter.line, device=device)
    if not distributed.leads():
        return
    notes = {"recipe": config.to_dict(recipe), "command": command_line()}
    model.save_pretrained(out / "model", notes=notes)
    print(f"wrote {out / 'model'}: protodepth evaluate --model {out} --data {recipe.data.split('?')[0]}")


def _run_drawn(recipe: DrawnRecipe, out: Path) -> None:
    """The base for any sensor: a model without domains."""

    network = train_drawn(recipe, out / "state", report=Reporter().line)
    held_out = last_record(out / "state" / "curve.jsonl", ("step", "mae", "rmse"))
    notes = {
        "recipe": config.to_dict(recipe),
        "command": command_line(),
        "supervision": "exact depth of drawn scenes that are in no sequence; domains are learned without labels",
        "held_out": held_out,
    }
    ProtoDepth(network).save_pretrained(out / "model", notes=notes)
    print(f"wrote {out / 'model'}: protodepth evaluate --model {out} --data worlds:any")


def _run_method(recipe: SequenceRecipe, name: str, out: Path, device: torch.device) -> None:
    """One method on the sequence: results, report and the final model."""

    reporter, log = Reporter(quiet=not distributed.leads()), JsonLines(_log_file(out))
    model = ProtoDepth.from_pretrained(resolve(recipe.start)).to(device)
    domains = open_domains(recipe)
    if recipe.stages:  # a recipe of the paper starts from any base, also a converted one
        model = prepared_start(model, recipe, domains[0])
    check_nothing_lost(out / "model", {*model.domains, *(domain.name for domain in domains)})
    total = total_steps(recipe, name, build_method(name, model, recipe), domains)
    with reporter.bar(f"{name} on {recipe.name}", total) as advance:
        count = StepCount(advance)

        def each(step: int, record: dict[str, Any]) -> None:
            count(step)
            if step % 50 == 0:
                log(step, record)

        result, method = learn_sequence(
            name, recipe, model, domains, folder=out / "state", log=each, report=reporter.line
        )
    if not distributed.leads():
        return
    document = results_document([result], seconds=sum(result.seconds), about=about_run(command_line(), recipe.seed))
    samples = add_method(collect(domains), method)
    write_run(out, document, samples)
    method.model.save_pretrained(
        out / "model", notes={"recipe": config.to_dict(recipe), "method": name, "command": command_line()}
    )
    print_table(document)
    print(f"wrote {out / 'report.html'}, {out / 'results.json'} and {out / 'model'}")
