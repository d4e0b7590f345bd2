"""How often is the right domain chosen, and are unseen worlds noticed?

For a base network and a sequence of known worlds: selection accuracy of both rules after each stage, and for every pair
of known set and unseen world the AUROC of the alarm and detection at 5 % false alarms, for a frame and for a window of
8 frames; also detection and false alarms with the threshold that the domains store.

    python benchmarks/unknown_domains.py --write docs/choosing.md                      # the tables of the document
    python benchmarks/unknown_domains.py --model my_model --known room,warehouse --out unknown.json

An unseen world "differs in sensor" from a known one if it has another kind of sensor, picks its points in another way,
or has 1.5 times as many points or lines, or more; "in light" if the light from above is twice as strong or more.  Both
are read off the worlds' definitions, not off results.
It counts for a set of known worlds if it differs from each of them in one or the other.

Everything here depends on the frozen encoder alone, so no prototypes are trained; descriptors are learned by Eq. 9 as
in training, on the same samples, but without augmentation.  Known and unseen frames are test frames;
stored thresholds come from val frames.
"""

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from protodepth.data.worlds.sensors import Corners
from protodepth.data.worlds.worlds import WORLDS, set_scene, world
from protodepth.descriptors import descriptor_loss, select, similarity
from protodepth.methods.statistics import sample_descriptors
from protodepth.model import ProtoDepth
from protodepth.selection import SampleDistances, Statistics, auroc, fit_gaussians
from protodepth.training.schedule import Schedule

FALSE_ALARMS = 0.05
WINDOW = 8
SCHEDULE = Schedule(steps=500, batch_size=2, rate=3e-2)
DOCUMENTED = {  # base network -> the sequence of known worlds
    "worlds-tiny": "room,warehouse,corridor_night",
    "worlds-tiny-outdoor": "street,street_dusk,highway",
}
SENSOR, LIGHT = 1.5, 2.0  # factors from which on worlds differ
MARKS = ("<!-- tables -->\n", "<!-- end of tables -->\n")
Samples = dict[str, dict[str, Tensor]]  # world -> split -> descriptors


# --- how worlds differ, by their definitions --------------------------------------------------------------------------


def light_from_above(name: str) -> float:
    """Ambient light and sun, mean of the colours; it is the same in all scenes of a world."""
    light = set_scene(WORLDS[name], np.random.SeedSequence(0), (16, 24))[0].light
    return float(np.mean(light.above) + np.mean(light.sun))


def other_sensor(a: str, b: str) -> bool:
    one, two = WORLDS[a].sensor, WORLDS[b].sensor
    if isinstance(one, Corners) and isinstance(two, Corners):
        return one.sampler != two.sampler or _factor(one.density, two.density) >= SENSOR
    if isinstance(one, Corners) or isinstance(two, Corners):
        return True
    return _factor(one.lines, two.lines) >= SENSOR


def other_light(a: str, b: str) -> bool:
    return _factor(light_from_above(a), light_from_above(b)) >= LIGHT


def _factor(a: float, b: float) -> float:
    return max(a, b) / min(a, b)


def difference(known: list[str], unseen: str) -> str:
    """In what a world differs from every known one:
    ``sensor``, ``light``, ``sensor or light`` (one here, one there), or ``scenes only``.
    """
    sensor, light = ([f(name, unseen) for name in known] for f in (other_sensor, other_light))
    if all(sensor) and all(light):
        return "sensor and light"
    if all(sensor) or all(light):
        return "sensor" if all(sensor) else "light"
    return "sensor or light" if all(a or b for a, b in zip(sensor, light, strict=True)) else "scenes only"


def same_kind(pair: dict[str, Any]) -> bool:
    """Indoors with indoors, outdoors with outdoors: the pairs that are not easy."""
    return WORLDS[pair["unseen"]].indoor == WORLDS[pair["known"][0]].indoor


# --- measuring --------------------------------------------------------------------------------------------------------


def gather(model: ProtoDepth, names: list[str], counts: dict[str, int], seed: int) -> Samples:
    samples: Samples = {}
    for name in names:
        started = time.monotonic()
        data = world(name, seed=seed, **counts)
        samples[name] = {s: sample_descriptors(model, data.split(s), frames=counts[s]) for s in counts}
        print(f"  {name}: {sum(counts.values())} frames in {time.monotonic() - started:.0f} s", flush=True)
    return samples


def learn_descriptors(samples: Samples, known: list[str], separation: float) -> Tensor:
    """r_1 as the mean direction, the others by Eq. 9 with the schedule of training."""
    R = torch.nn.functional.normalize(samples[known[0]]["train"], dim=-1).mean(0, keepdim=True)
    for name in known[1:]:
        s = samples[name]["train"]
        r = torch.nn.Parameter(torch.randn(s.shape[1], generator=torch.Generator().manual_seed(0)))
        optimiser = torch.optim.Adam([r])
        random = torch.Generator().manual_seed(0)
        for step in range(SCHEDULE.steps):
            optimiser.param_groups[0]["lr"] = SCHEDULE.rate * SCHEDULE.factor(step)
            batch = s[torch.randint(len(s), (SCHEDULE.batch_size,), generator=random)]
            optimiser.zero_grad()
            descriptor_loss(batch, r, R, separation).backward()
            optimiser.step()
        R = torch.cat([R, r.detach()[None]])
    return R


def windows(score: Tensor, count: int = 400) -> Tensor:
    """Means over windows of frames of one world; every frame is a scene of its own, so any eight make a window."""
    random = torch.Generator().manual_seed(0)
    return torch.stack([score[torch.randperm(len(score), generator=random)[:WINDOW]].mean() for _ in range(count)])


def choose_rates(samples: Samples, known: list[str], R: Tensor, statistics: list[Statistics]) -> dict[str, Any]:
    """Share of test frames for which the right domain is chosen, by rule and world."""
    gaussians, rates = fit_gaussians(statistics), {}
    for rule in ("descriptor", "gaussian"):
        right = []
        for index, name in enumerate(known):
            s = samples[name]["test"]
            chosen = select(similarity(s, R)) if rule == "descriptor" else gaussians.distances(s).argmin(-1)
            right.append(float((chosen == index).float().mean()))
        rates[rule] = {"mean": sum(right) / len(right), **dict(zip(known, right, strict=True))}
    return rates


def alarm_rates(samples: Samples, known: list[str], unseen: str, statistics: list[Statistics]) -> dict[str, float]:
    """AUROC, detection and false alarms of one pair of known set and unseen world."""
    gaussians = fit_gaussians(statistics)

    def score(s: Tensor) -> Tensor:
        return SampleDistances(s, lambda: gaussians, FALSE_ALARMS).excess

    inside = [score(samples[name]["test"]) for name in known]
    frames, outside = torch.cat(inside), score(samples[unseen]["test"])
    calm, shifted = torch.cat([windows(s) for s in inside]), windows(outside)
    return {
        "auroc": auroc(frames, outside),
        "detected_at_5": above(outside, float(torch.quantile(frames, 1 - FALSE_ALARMS))),
        "detected": above(outside, 1.0),
        "false_alarms": above(frames, 1.0),
        "window_auroc": auroc(calm, shifted),
        "window_detected_at_5": above(shifted, float(torch.quantile(calm, 1 - FALSE_ALARMS))),
    }


def above(score: Tensor, limit: float) -> float:
    return float((score > limit).float().mean())


def measure(model: ProtoDepth, known: list[str], names: list[str], counts: dict[str, int], seed: int) -> dict[str, Any]:
    """All rates after each stage of the sequence ``known``, with every other world of ``names`` as the unseen one."""
    samples = gather(model, [*known, *(n for n in names if n not in known)], counts, seed)
    R = learn_descriptors(samples, known, model.config.separation)
    statistics = {name: Statistics.of(samples[name]["train"], samples[name]["val"]) for name in known}
    selection, pairs = {}, []
    for size in range(1, len(known) + 1):
        part = known[:size]
        mine = [statistics[name] for name in part]
        if size > 1:
            selection["+".join(part)] = choose_rates(samples, part, R[:size], mine)
        for name in (n for n in samples if n not in part):
            about = {"known": part, "unseen": name, "differs_in": difference(part, name)}
            pairs.append({**about, **alarm_rates(samples, part, name, mine)})
    return {"selection": selection, "pairs": pairs}


def mean_rates(pairs: list[dict[str, Any]]) -> dict[str, float]:
    keys = [key for key in pairs[0] if key not in ("known", "unseen", "differs_in")]
    return {key: sum(p[key] for p in pairs) / len(pairs) for key in keys}


# --- the tables of the document ---------------------------------------------------------------------------------------

HEAD = (
    "AUROC | detected at 5 % false alarms | detected, stored threshold | its false alarms | window of 8: "
    "AUROC | detected at 5 %"
)


def selection_table(results: list[dict[str, Any]]) -> str:
    lines = ["| known | rule | right | by world |", "|---|---|---|---|"]
    for known, rules in (item for result in results for item in result["selection"].items()):
        for rule, rates in rules.items():
            each = ", ".join(f"{n} {100 * v:.0f} %" for n, v in rates.items() if n != "mean")
            lines.append(f"| {known.replace('+', ', ')} | {rule} | {100 * rates['mean']:.1f} % | {each} |")
    return "\n".join(lines)


def cells(p: dict[str, float]) -> str:
    return (
        f"{p['auroc']:.3f} | {100 * p['detected_at_5']:.0f} % | {100 * p['detected']:.0f} % | "
        f"{100 * p['false_alarms']:.1f} % | {p['window_auroc']:.3f} | {100 * p['window_detected_at_5']:.0f} %"
    )


def mean_table(results: list[dict[str, Any]]) -> str:
    """Means over groups of pairs: those that differ in sensor or light, of them those of one kind, and the others."""
    lines = [f"| base | pairs | number | {HEAD} |", "|---" * 9 + "|"]
    for result in results:
        apart = [p for p in result["pairs"] if p["differs_in"] != "scenes only"]
        groups = {
            "**differ in sensor or light**": apart,
            "of these, both indoors or both outdoors": [p for p in apart if same_kind(p)],
            "differ in scenes only": [p for p in result["pairs"] if p["differs_in"] == "scenes only"],
        }
        for label, pairs in groups.items():
            if pairs:
                lines.append(f"| `{result['model']}` | {label} | {len(pairs)} | {cells(mean_rates(pairs))} |")
    return "\n".join(lines)


def pair_table(result: dict[str, Any]) -> str:
    lines = [f"| known | unseen | differs in | {HEAD} |", "|---" * 9 + "|"]
    lines += [f"| {', '.join(p['known'])} | {p['unseen']} | {p['differs_in']} | {cells(p)} |" for p in result["pairs"]]
    return "\n".join(lines)


def markdown(results: list[dict[str, Any]]) -> str:
    parts = ["### Is the right domain chosen?", selection_table(results)]
    parts += ["### Is an unseen world noticed?", mean_table(results), "Every pair of known set and unseen world:"]
    for result in results:
        parts += [f"Base `{result['model']}`:", pair_table(result)]
    return "\n\n".join(parts) + "\n"


def write_into(path: Path, tables: str) -> None:
    """Replace what stands between the two marks of a document."""
    text = path.read_text()
    before, rest = text.split(MARKS[0])
    path.write_text(before + MARKS[0] + tables + MARKS[1] + rest.split(MARKS[1])[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None, help="a model folder or a bundled name (default: both bundled models)")
    parser.add_argument("--known", default=DOCUMENTED["worlds-tiny"], help="with --model: the sequence of known worlds")
    parser.add_argument("--worlds", default=",".join(WORLDS), help="the unseen ones are taken from these")
    parser.add_argument("--train", type=int, default=256)
    parser.add_argument("--val", type=int, default=64)
    parser.add_argument("--test", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="JSON file for all numbers")
    parser.add_argument("--write", type=Path, default=None, help="document whose tables are replaced")
    given = parser.parse_args()
    counts = {"train": given.train, "val": given.val, "test": given.test}
    started, results = time.monotonic(), []
    for name, known in (DOCUMENTED if given.model is None else {given.model: given.known}).items():
        model = ProtoDepth.from_pretrained(name)
        found = measure(model, known.split(","), given.worlds.split(","), counts, given.seed)
        results.append({"model": str(name), **found})
    about = {"counts": counts, "seed": given.seed, "seconds": round(time.monotonic() - started)}
    about["machine"] = f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    print(f"\n{about['machine']}, {about['seconds']} s\n\n{markdown(results)}")
    if given.out is not None:
        given.out.write_text(json.dumps({**about, "results": results}, indent=2) + "\n")
    if given.write is not None:
        write_into(given.write, markdown(results))


if __name__ == "__main__":
    main()
