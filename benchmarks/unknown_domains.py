"""How often is the right domain chosen, and are unseen worlds noticed?

For a base network and a sequence of known worlds: selection accuracy of both rules after each stage, and for every pair of known set and
unseen world the AUROC of the alarm and detection at 5 % false alarms, for a frame and for a window of 8 frames; also detection and
false alarms with the threshold that the domains store.

    python benchmarks/unknown_domains.py --model worlds-tiny --known room,warehouse,corridor_night --out unknown.json

Everything here depends on the frozen encoder alone, so no prototypes are trained; descriptors are learned by Eq. 9 as in training, on the
same samples, but without augmentation.  Known and unseen frames are test frames; stored thresholds come from val frames.
"""

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from protodepth.data.worlds import WORLDS, world
from protodepth.descriptors import descriptor_loss, select, similarity
from protodepth.methods.protodepth import sample_descriptors
from protodepth.model import ProtoDepth
from protodepth.selection import Statistics, auroc, excess, fit_gaussians
from protodepth.training import Schedule

FALSE_ALARMS = 0.05
WINDOW = 8
SCHEDULE = Schedule(steps=500, batch_size=2, rate=3e-2)
Samples = dict[str, dict[str, Tensor]]  # world -> split -> descriptors


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
    gaussians, rates = fit_gaussians(tuple(statistics)), {}
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

    def score(s: Tensor) -> Tensor:
        return excess(s, statistics, FALSE_ALARMS)[1]

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
        pairs += [{"known": part, "unseen": n, **alarm_rates(samples, part, n, mine)} for n in samples if n not in part]
    return {"selection": selection, "pairs": pairs, "mean": mean_rates(pairs)}


def mean_rates(pairs: list[dict[str, Any]]) -> dict[str, float]:
    keys = [key for key in pairs[0] if key not in ("known", "unseen")]
    return {key: sum(p[key] for p in pairs) / len(pairs) for key in keys}


def markdown(result: dict[str, Any]) -> str:
    lines = ["| known | rule | right | by world |", "|---|---|---|---|"]
    for known, rules in result["selection"].items():
        for rule, rates in rules.items():
            each = ", ".join(f"{n} {100 * v:.0f} %" for n, v in rates.items() if n != "mean")
            lines.append(f"| {known.replace('+', ', ')} | {rule} | {100 * rates['mean']:.1f} % | {each} |")
    head = "AUROC | detected at 5 % false alarms | detected, stored threshold | its false alarms | window of 8: AUROC | detected at 5 %"
    lines += ["", f"| known | unseen | {head} |", "|---|---|---|---|---|---|---|---|"]
    rows = [(", ".join(p["known"]), p["unseen"], p) for p in result["pairs"]] + [("**mean**", "", result["mean"])]
    for known, unseen, p in rows:
        cells = (
            f"{p['auroc']:.3f} | {100 * p['detected_at_5']:.0f} % | {100 * p['detected']:.0f} % | {100 * p['false_alarms']:.1f} % "
            f"| {p['window_auroc']:.3f} | {100 * p['window_detected_at_5']:.0f} %"
        )
        lines.append(f"| {known} | {unseen} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="worlds-tiny", help="a model folder or a bundled name")
    parser.add_argument("--known", default="room,warehouse,corridor_night", help="the sequence of known worlds")
    parser.add_argument("--worlds", default=",".join(WORLDS), help="the unseen ones are taken from these")
    parser.add_argument("--train", type=int, default=256)
    parser.add_argument("--val", type=int, default=64)
    parser.add_argument("--test", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="JSON file for all numbers")
    given = parser.parse_args()
    model = ProtoDepth.from_pretrained(given.model)
    counts = {"train": given.train, "val": given.val, "test": given.test}
    started = time.monotonic()
    result = measure(model, given.known.split(","), given.worlds.split(","), counts, given.seed)
    about = {"model": str(given.model), "counts": counts, "seed": given.seed, "seconds": time.monotonic() - started}
    about["machine"] = f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    print(f"\n{about['machine']}, {about['seconds']:.0f} s\n\n{markdown(result)}")
    if given.out is not None:
        given.out.write_text(json.dumps({**about, **result}, indent=2) + "\n")


if __name__ == "__main__":
    main()
