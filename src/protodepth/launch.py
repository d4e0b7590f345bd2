"""Start or resume a named recipe in a folder: what ``protodepth train`` does."""

import dataclasses
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import torch

from protodepth import config, distributed, recipes
from protodepth.checkpoint import read_json, write_json
from protodepth.data.open import open_domain
from protodepth.errors import CheckpointError, ConfigError, ProcessLost
from protodepth.methods.base import Method, methods
from protodepth.progress import Reporter, StepCount
from protodepth.report import (
    Sample,
    about_run,
    add_predictions,
    collect,
    display_name,
    results_document,
    table,
    write_run,
)
from protodepth.runs import (
    BaseRecipe,
    SequenceRecipe,
    build_method,
    learn_sequence,
    new_network,
    open_domains,
    train_base,
)
from protodepth.storage import resolve
from protodepth.training import JsonLines, check_processes


def read_recipe(name: str) -> BaseRecipe | SequenceRecipe:
    """A recipe by name, or from the recipe.toml of an earlier run."""
    if not name.endswith(".toml"):
        return recipes.get(name)
    if "domains" in config.read_values(Path(name)):
        return config.read(SequenceRecipe, Path(name))
    return config.read(BaseRecipe, Path(name))


def train(
    name: str,
    out: Path,
    *,
    method: str,
    changes: dict[str, Any],
    settings: tuple[str, ...],
    resume: bool,
    device: str | None = None,
) -> None:
    """Run a recipe with changes into a folder, alone or together with the other processes that torchrun started."""
    with distributed.together(device) as place:
        try:
            recipe = distributed.lead(lambda: begin(name, out, method, changes, settings, resume))
            if not distributed.leads():
                divert(out / f"rank{distributed.rank()}.log")
            if isinstance(recipe, BaseRecipe):
                run_base(recipe, out, place)
            else:
                run_method(recipe, method, out, place)
        except ProcessLost as error:
            Reporter().line(f"{error}; the rank*.log in {out} may say why")
            raise KeyboardInterrupt from error


def begin(
    name: str, out: Path, method: str, changes: dict[str, Any], settings: tuple[str, ...], resume: bool
) -> BaseRecipe | SequenceRecipe:
    """The resolved recipe, after every check that can be made before anything runs; the folder is its own from here on."""
    recipe = read_recipe(name)
    fields = {f.name for f in dataclasses.fields(recipe)}
    wrong = [key for key in changes if key not in fields]
    if wrong:
        raise ConfigError(f"recipe {name!r} has no setting {wrong[0]!r}: --{wrong[0]} is for recipes of base networks")
    recipe = config.override(dataclasses.replace(recipe, **changes), settings)
    check(recipe, method)
    claim(out, recipe, method if isinstance(recipe, SequenceRecipe) else "", resume)
    return recipe


def divert(file: Path) -> None:
    """From here on this process prints into a file: of several processes the first alone writes to the terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):  # also what libraries print
        os.dup2(handle, number)
    os.close(handle)


def log_file(out: Path) -> Path:
    """Each process has its own."""
    return out / ("log.jsonl" if distributed.leads() else f"log.rank{distributed.rank()}.jsonl")


def check(recipe: BaseRecipe | SequenceRecipe, method: str) -> None:
    """What can be known to fail fails before a folder is made."""
    check_processes(recipe.schedule)
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


def claim(out: Path, recipe: BaseRecipe | SequenceRecipe, method: str, resume: bool) -> None:
    """An output folder belongs to one configuration; another one is refused, not mixed in."""
    about = {"kind": "run", "recipe": config.to_dict(recipe), "method": method}
    place = out / "run.json"
    if out.exists() and not out.is_dir():
        raise CheckpointError(f"{out} is a file: give a folder for --out")
    if place.exists():
        known = read_json(place)
        same = {k: known.get(k) for k in about} == config.to_dict(about)
        if not same:
            raise CheckpointError(f"{out} holds a run with other settings: give another --out")
        if not resume:
            raise CheckpointError(f"{out} holds this run already: --resume to go on, or another --out")
    elif out.exists() and any(out.iterdir()):
        raise CheckpointError(f"{out} is not empty and holds no run: give another --out, nothing was overwritten")
    else:
        write_json(place, config.to_dict(about))
        config.write(recipe, out / "recipe.toml")


def command_line() -> str:
    """The command as typed, without the path of the program."""
    return shlex.join(["protodepth", *sys.argv[1:]])


def print_table(document: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width: all twelve numbers
        console = Console(width=140)
    console.print(table(document, width=console.width))


def picture(samples: list[Sample], method: Method) -> list[Sample]:
    """The samples with the method's predictions under its displayed names."""
    agnostic = display_name(method.name, "agnostic") if method.name == "protodepth" else None
    return add_predictions(samples, method.predict, display_name(method.name), agnostic)


def run_base(recipe: BaseRecipe, out: Path, device: torch.device) -> None:
    reporter = Reporter(quiet=not distributed.leads())
    if (out / "model" / "config.json").exists():
        reporter.line(f"{out / 'model'} is complete: nothing to do")
        return
    log = JsonLines(log_file(out))
    with reporter.bar(f"training {recipe.name}", recipe.schedule.steps) as advance:

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


def run_method(recipe: SequenceRecipe, name: str, out: Path, device: torch.device) -> None:
    """One method on the sequence: results, report and the final model."""
    from protodepth.model import ProtoDepth

    reporter, log = Reporter(quiet=not distributed.leads()), JsonLines(log_file(out))
    model = ProtoDepth.from_pretrained(resolve(recipe.start)).to(device)
    domains = open_domains(recipe)
    total = recipe.schedule.steps * build_method(name, model, recipe).trainings(len(domains) - 1)
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
    samples = picture(collect(domains), method)
    write_run(out, document, samples)
    method.model.save_pretrained(
        out / "model", notes={"recipe": config.to_dict(recipe), "method": name, "command": command_line()}
    )
    print_table(document)
    print(f"wrote {out / 'report.html'}, {out / 'results.json'} and {out / 'model'}")
