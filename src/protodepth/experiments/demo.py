"""The whole story in minutes: a base network meets two new domains, finetuned and with prototypes."""

import dataclasses
import time
from pathlib import Path
from typing import Any

from protodepth.data.frame import Domain
from protodepth.model import ProtoDepth
from protodepth.progress import Reporter, StepCount
from protodepth.report.results import about_run, command_line, results_document
from protodepth.report.run import check_run_free, write_run
from protodepth.report.samples import add_method, collect
from protodepth.training import recipes
from protodepth.training.fast import threads_for
from protodepth.training.fit import Learner
from protodepth.training.recipes import SequenceRecipe
from protodepth.training.sequence import SequenceResult, build_method, learn_sequence, open_domains
from protodepth.training.step_time import step_times

METHODS = ("pretrained", "finetune", "protodepth")
COMPARED = ("finetune", "protodepth")  # the second one's step time is given relative to the first one's


def demo(
    out: Path,
    *,
    sequence: str = "outdoor",
    seed: int = 0,
    steps: int | None = None,
    reporter: Reporter | None = None,
    methods: tuple[str, ...] = METHODS,
) -> dict[str, Any]:
    """Run the methods on a built-in sequence and write report.html, results.json and pictures; returns the results."""
    check_run_free(out, "findings")  # before the training, not after it
    reporter, started = reporter or Reporter(quiet=True), time.monotonic()
    recipe = _demo_recipe(sequence, seed, steps)
    model = ProtoDepth.from_pretrained(recipe.start)
    domains = _draw(recipe, reporter)
    with threads_for(recipe.schedule.batch_size * domains[-1].train[0].sparse_depth.size):  # the judging, too
        return _compare(out, recipe, model, domains, methods, reporter, started)


def _compare(
    out: Path,
    recipe: SequenceRecipe,
    model: ProtoDepth,
    domains: list[Domain],
    methods: tuple[str, ...],
    reporter: Reporter,
    started: float,
) -> dict[str, Any]:
    results: list[SequenceResult] = []
    samples = collect(domains)
    for name in methods:
        total = recipe.schedule.steps * (len(domains) - 1) if name != "pretrained" else 1
        with reporter.bar(f"{name}: {' -> '.join(d.name for d in domains[1:])}", total) as advance:
            count = StepCount(advance)
            result, method = learn_sequence(
                name, recipe, model, domains, log=lambda step, record, count=count: count(step), report=reporter.line
            )
        results.append(result)
        samples = add_method(samples, method)
    seconds = time.monotonic() - started
    document = results_document(
        results, seconds=seconds, about=about_run(command_line(), recipe.seed, recipe=recipe.name)
    )
    document["step_ratio"] = ratio = step_ratio(recipe, model, domains[-1]) if {*COMPARED} <= {*methods} else None
    document["findings"] = _findings(results, ratio)
    write_run(out, document, samples)
    return document


def _demo_recipe(sequence: str, seed: int, steps: int | None) -> SequenceRecipe:
    recipe = recipes.SEQUENCES[sequence]()
    schedule = recipe.schedule if steps is None else dataclasses.replace(recipe.schedule, steps=steps)
    return dataclasses.replace(recipe, seed=seed, schedule=schedule, curve_every=max(1, schedule.steps // 5))


def _draw(recipe: SequenceRecipe, reporter: Reporter) -> list[Domain]:
    """Open the domains and draw every frame that the run needs (cached for the next time); D_1 is learned already."""
    domains = open_domains(recipe)
    needed = [data for n, d in enumerate(domains) for data in ((d.train, d.val, d.test) if n else (d.val, d.test))]
    with reporter.bar("drawing the worlds", len(needed)) as advance:
        for n, data in enumerate(needed):
            _ = data[0]
            advance(n + 1)
    return domains


def step_ratio(recipe: SequenceRecipe, model: ProtoDepth, domain: Domain, turns: int = 6) -> float:
    """CPU time of a step with prototypes by that of finetuning: one of each in every turn, on networks of their own."""
    learners = {}
    for name in COMPARED:
        method = build_method(name, model, recipe)
        method.begin_domain(domain, lambda other, new: None)
        learners[name] = Learner.of(method, recipe.schedule_for(domain.name, name), recipe.seed)
    return step_times(learners, domain, turns=turns)[COMPARED[1]].ratio


def _findings(results: list[SequenceResult], ratio: float | None) -> list[str]:
    """What the numbers say, in sentences."""
    by_name = {r.method: r for r in results}
    lines = []
    if "finetune" in by_name and "protodepth" in by_name:
        finetuned, ours = by_name["finetune"], by_name["protodepth"]
        old, new = finetuned.incremental.matrices["mae"], ours.incremental.matrices["mae"]
        lines.append(
            f"Finetuning forgets {100 * old.forgetting():.1f} % (MAE); ProtoDepth forgets {100 * new.forgetting():.3f} "
            f"% when the domain is given and {100 * ours.agnostic.matrices['mae'].forgetting():.1f} % when it is "
            "chosen by descriptor."
        )
        for k, name in enumerate(ours.domains[1:], start=1):
            ratio = new.values[k, k] / old.values[k, k]
            lines.append(
                f"On {name}, ProtoDepth's error just after learning it is {new.values[k, k]:.0f} mm, "
                f"finetuning's {old.values[k, k]:.0f} mm ({100 * (ratio - 1):+.1f} %); "
                f"the frozen network has {new.values[0, k]:.0f} mm."
            )
        if ratio is not None:
            lines.append(f"A step of ProtoDepth takes {ratio:.2f} of finetuning's CPU time (measured in turns).")
    if "protodepth" in by_name and (accuracy := by_name["protodepth"].selection_accuracy) is not None:
        lines.append(f"The right prototype set was chosen for {100 * accuracy:.1f} % of the test frames.")
    return lines
