"""The section "What holds" of docs/reproducing.md, from the kept results alone: no number in it is typed by hand.

    python benchmarks/reproducing.py kept --write docs/reproducing.md     # this section and all tables again

A sentence on one sample of scenes says so.  A claim about methods is made where scenes were drawn anew by every seed
and the 95 % interval of the difference excludes zero; everything else is undecided.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from protodepth.experiments.scenes import BASES, base_number

Rows = list[dict[str, Any]]
SCORES = {"Average performance MAE": "Average Performance", "SPTO MAE": "SPTO", "end": "the error at the end"}
SCORE_TITLES = ("Average performance", "SPTO", "Error at the end")  # as the findings of a bench name them
SEQUENCES = ("indoor", "outdoor", "mixed")
NOT_LEARNING = ("Pretrained", "Joint")
OURS = ("ProtoDepth", "ProtoDepth-A")


def holds(kept: dict[str, Any], trials: dict[str, Any], fresh: dict[str, Any]) -> str:
    """The whole section."""
    known = kept["experiments"]
    lines = ["**Scenes drawn anew by every seed** (what may be claimed):", ""]
    lines += [*fresh_lines(fresh), f"- {bar(fresh)}"]
    lines += [f"- {line}" for line in (*asked_for(fresh), *not_run(known, fresh), to_run(known, fresh))]
    lines += [
        "",
        "**One sample of scenes and one base** (the tables above: what these runs gave, no claim about others):",
        "",
    ]
    parts = (forgetting(known), places(known), gains(known), joint(known), spread(trials), others(known))
    lines += [f"- {line}" for part in parts for line in part]
    return "\n".join(lines) + "\n"


def fresh_lines(fresh: dict[str, Any]) -> list[str]:
    """The findings of the run with fresh scenes, word for word; they carry their intervals and verdicts."""
    if not fresh["experiments"]:
        return ["- No training is finished yet: every claim about the order of methods is **undecided**."]
    lines = []
    for name, experiment in fresh["experiments"].items():
        labels = [cell["label"] for cell in experiment.get("cells", ())]
        seeds = sorted({label["seed"] for label in labels})
        bases = sorted({base_number(seed) for seed in seeds})
        lines.append(
            f"- `{name}`, seeds {joined(seeds)} (bases {joined(bases)} of 0, 1 and 2), among the methods that were run "
            f"({', '.join(learning_methods(experiment))}):"
        )
        told = ("difference", "learned (MAE)", " above ")
        lines += [f"  - {line}" for line in experiment["findings"] if any(words in line for words in told)]
    return lines


def joined(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in values)


def listed(names: list[str]) -> str:
    """Names as a sentence lists them.

    >>> listed(["EWC"]), listed(["EWC", "LwF", "Replay"])
    ('EWC', 'EWC, LwF and Replay')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def not_run(known: dict[str, Any], fresh: dict[str, Any]) -> Iterator[str]:
    """Which methods of the tables of fixed scenes a run with fresh ones lacks: nothing is said against them."""
    for sequence, experiment in fresh["experiments"].items():
        there = {(row["Network"], row["Method"]) for row in experiment["tables"]["scores"]}
        for network in dict.fromkeys(pair[0] for pair in there):
            names = [row["Method"] for row in table(known, sequence, "scores") if row["Network"] == network]
            lacking = [name for name in names if (network, name) not in there]
            if lacking:
                yield f"{network} {sequence}, not run on fresh scenes and so in no verdict: {listed(lacking)}."


def learning_methods(experiment: dict[str, Any]) -> list[str]:
    """The names of the methods of an experiment that learn one domain after the other."""
    names = [row["Method"] for row in experiment["tables"]["scores"]]
    return [name for name in dict.fromkeys(names) if name not in NOT_LEARNING]


WANTED = [(s, n) for s in ("indoor", "outdoor") for n in ("lite", "KBNet")]
SEEDS = (11, 12, 13, 14, 15)
PLACE = re.compile(r"^(\S+), (.+) \(MAE\): (ProtoDepth\S*) .*: (first|not first|undecided)\.$")


def verdicts(fresh: dict[str, Any]) -> dict[tuple[str, str, str], dict[str, str]]:
    """(sequence, network, score) -> method of ours -> first, not first or undecided."""
    known: dict[tuple[str, str, str], dict[str, str]] = {}
    for sequence, experiment in fresh["experiments"].items():
        for sentence in filter(None, map(PLACE.match, experiment["findings"])):
            network, score, method, verdict = sentence.groups()
            if score not in SCORE_TITLES:
                continue
            known.setdefault((sequence, network, score), {})[method] = verdict
    return known


def bar(fresh: dict[str, Any]) -> str:
    """In how many of the twelve cells of network, sequence and score each of ours is first."""
    known = verdicts(fresh)
    rows = [known[s, n, score] for s, n in WANTED for score in SCORE_TITLES if (s, n, score) in known]
    texts = []
    for method in ("ProtoDepth", "ProtoDepth-A", "ProtoDepth-own", "ProtoDepth-own-A"):
        own = [row[method] for row in rows if method in row]
        if own:
            counts = ", ".join(f"{verdict} in {own.count(verdict)}" for verdict in ("first", "not first", "undecided"))
            texts.append(f"{method} {counts}")
    every = len(WANTED) * len(SCORE_TITLES)
    return (
        f"Of {every} cells (lite and KBNet, indoors and outdoors, Average Performance, SPTO and the error at the end) "
        f"{len(rows)} are measured{', against the methods that were run: ' if texts else ''}{'; '.join(texts)}."
    )


ABOVE = re.compile(r"^(\S+), (ProtoDepth\S*)-A above ProtoDepth\S* \(MAE\): ")
GAP = re.compile(r"^(\S+), later domains when learned \(MAE\): (ProtoDepth\S*) .*, Finetuned ")
SHARE = re.compile(r"([-+][\d.]+) % \((\S+) to (\S+?)\)")  # with an interval: of three seeds or more
CHOOSING_COSTS, LEARNS_LESS = 1.0, 5.0  # per cent that are asked for at most


def asked_for(fresh: dict[str, Any]) -> Iterator[str]:
    """Whether choosing costs at most 1 % and the gap to finetuning is at most 5 %, as far as intervals decide it."""
    for sequence, experiment in fresh["experiments"].items():
        for line in experiment["findings"]:
            shares = [(float(mean), float(low), float(high)) for mean, low, high in SHARE.findall(line)]
            if above := ABOVE.match(line):
                known = judged(shares, CHOOSING_COSTS)
                bound = f"within {CHOOSING_COSTS:g} % of {above[2]} in all three scores"
                yield f"{above[1]} {sequence}, {above[2]}-A {bound}: {known}."
            if gap := GAP.match(line):
                known = judged(shares, LEARNS_LESS)
                yield f"{gap[1]} {sequence}, {gap[2]} at most {LEARNS_LESS:g} % above finetuning when learned: {known}."


def judged(shares: list[tuple[float, float, float]], bound: float) -> str:
    """Means with their intervals, of which the highest counts.

    >>> judged([(0.3, -0.4, 0.9)], 1.0), judged([(0.3, -0.4, 1.9), (0.1, 0.0, 0.2)], 1.0), judged([(9.0, 8.0, 14.0)], 5)
    ('yes (+0.3 %, up to +0.9)', 'undecided (+0.3 %, -0.4 to +1.9)', 'no (+9.0 %, at least +8.0)')
    """
    if not shares:
        return "undecided (too few seeds)"
    mean, low, high = max(shares, key=lambda share: share[2])
    if high <= bound:
        return f"yes ({mean:+.1f} %, up to {high:+.1f})"
    if low > bound:
        return f"no ({mean:+.1f} %, at least {low:+.1f})"
    return f"undecided ({mean:+.1f} %, {low:+.1f} to {high:+.1f})"


def headline(fresh: dict[str, Any]) -> str:
    """What README says of fresh scenes, in one clause; nothing decided: just that."""
    known = verdicts(fresh)
    decided = {key: row for key, row in known.items() if set(row.values()) != {"undecided"}}
    if not decided:
        return "which method leads on fresh drawn scenes is undecided so far"
    texts = []
    for sequence, network in dict.fromkeys(key[:2] for key in known):
        for method in ("ProtoDepth", "ProtoDepth-own"):
            rows = {score: known[sequence, network, score].get(method) for score in SCORE_TITLES}
            by_verdict = {v: [t for t in SCORE_TITLES if rows[t] == v] for v in ("first", "not first", "undecided")}
            told = [f"{verdict} in {listed(titles)}" for verdict, titles in by_verdict.items() if titles]
            rivals = [m for m in learning_methods(fresh["experiments"][sequence]) if not m.startswith("ProtoDepth")]
            head = f"{network} {sequence} against {listed(rivals)}"
            texts += [f"{head}: {method} {', '.join(told)}"] if told else []
    return f"fresh drawn scenes, {'; '.join(texts)}"


def to_run(known: dict[str, Any], fresh: dict[str, Any]) -> str:
    """Which trainings of the five seeds are missing, and how long they take by the costs of fixed scenes."""
    missing, count, seconds, bases = 0, 0, 0.0, 0
    for sequence, network in WANTED:
        cells = fresh["experiments"].get(sequence, {}).get("cells", ())
        done = [c["label"] for c in cells if c["label"]["backbone"] == network.lower()]
        done = [label for label in done if label["method"] != "protodepth-own" and label["seed"] in SEEDS]
        costs = [r["training"]["mean"] for r in table(known, sequence, "costs") if r["Network"] == network]
        mean = sum(costs) / len(costs)
        left = len(costs) * len(SEEDS) - len(done)
        missing, count, seconds = missing + left, count + len(costs) * len(SEEDS), seconds + left * mean
        there = {0} if network == "lite" else set()  # its first base is bundled
        bases += BASES - len(there | {base_number(label["seed"]) for label in done})
    return (
        f"Not run yet: {missing} of the {count} trainings of five seeds with lite and KBNet, indoors and outdoors, "
        f"about {seconds / 3600:.1f} hours of one core, and {bases} bases to train before."
    )


def table(known: dict[str, Any], experiment: str, name: str) -> Rows:
    return known.get(experiment, {}).get("tables", {}).get(name, [])


def end_of(stages: dict[str, Any]) -> float:
    """Mean over the domains after the last one was learned; the last domain ends as it was learned."""
    last = [k for k in stages if k.endswith("learned")][-1]
    values = [v["mean"] for k, v in stages.items() if k.endswith("at the end") or k == last]
    return sum(values) / len(values)


def means(known: dict[str, Any], sequence: str, network: str) -> dict[str, dict[str, float]]:
    """Score -> method -> mean over seeds, of one network."""
    rows = [r for r in table(known, sequence, "scores") if r["Network"] == network]
    stages = {r["Method"]: r for r in table(known, sequence, "stages") if r["Network"] == network}
    learning = [r for r in rows if r["Method"] not in NOT_LEARNING]
    out = {score: {r["Method"]: r[score]["mean"] for r in learning} for score in SCORES if score != "end"}
    return out | {"end": {r["Method"]: end_of(stages[r["Method"]]) for r in learning}}


def networks(known: dict[str, Any], sequence: str) -> list[str]:
    return list(dict.fromkeys(r["Network"] for r in table(known, sequence, "scores")))


def forgetting(known: dict[str, Any]) -> Iterator[str]:
    worst = max(
        abs(r[k]["mean"])
        for s in SEQUENCES
        for r in table(known, s, "scores")
        if r["Method"] == "ProtoDepth"
        for k in r
        if k.startswith("Forgetting")
    )
    yield f"**Forgetting** with the domain given: at most {worst:.6f} % in any network, sequence and metric."


def places(known: dict[str, Any]) -> Iterator[str]:
    """Where the lowest mean is ours, and by how much; where it is not, whose it is."""
    for ours in OURS:
        for score, title in SCORES.items():
            first, behind = [], []
            for sequence in SEQUENCES:
                for network in networks(known, sequence):
                    by_method = means(known, sequence, network)[score]
                    rivals = {m: v for m, v in by_method.items() if m not in OURS}
                    rival = min(rivals, key=lambda m: rivals[m])
                    share = 100 * (rivals[rival] - by_method[ours]) / rivals[rival]
                    text = f"{network} {sequence} {share:+.1f} % ({rival})"
                    (first if share > 0 else behind).append(text)
            count = len(first) + len(behind)
            text = f"**{ours}, {title}** (MAE): a lower mean than the best baseline in {len(first)} of {count} cells"
            yield text + (f"; not in {', '.join(behind)}." if behind else ".")


def gains(known: dict[str, Any]) -> Iterator[str]:
    """Over all four metrics, as the paper computes it."""
    for ours in OURS:
        texts = []
        for sequence in SEQUENCES:
            row = next(r for r in table(known, sequence, "gain") if r["Method"] == ours)
            texts.append(f"{sequence} {row['Average performance']['mean']:+.1f} and {row['SPTO']['mean']:+.1f} %")
        yield (
            f"**{ours} against the best baseline of each cell**, mean over networks and all four metrics, Average "
            f"Performance and SPTO (below zero: behind): {'; '.join(texts)}."
        )


def joint(known: dict[str, Any]) -> Iterator[str]:
    rows = {r["Method"]: r["MAE"] for r in table(known, "joint", "mean")}
    if {"Joint", "ProtoDepth-A"} <= set(rows):
        here, paper = (100 * (rows["ProtoDepth-A"][k] - rows["Joint"][k]) / rows["Joint"][k] for k in ("mean", "paper"))
        yield (
            f"**Joint training** is ahead: ProtoDepth-A's mean MAE is {here:.0f} % above it, in the paper {paper:.0f} "
            "%. Ours was run on `mixed`, the paper's outdoors."
        )


def spread(trials: dict[str, Any]) -> Iterator[str]:
    """Worst over best trial of each method, over networks and sequences."""
    scores: dict[tuple[str, str, str], list[float]] = {}
    for trial in trials["trials"]:
        scores.setdefault((trial["method"], trial["sequence"], trial["backbone"]), []).append(trial["score"])
    ratios: dict[str, list[float]] = {}
    for (method, _, _), values in scores.items():
        ratios.setdefault(method, []).append(max(values) / min(values))
    texts = ", ".join(f"{m} {min(r):.2f} to {max(r):.2f}" for m, r in ratios.items())
    less = [m for m, r in ratios.items() if max(r) < max(ratios["protodepth"])]
    verdict = f"not so: {' and '.join(less)} depend less on them" if less else "so in these trials"
    yield (
        f"**Hyper-parameters**: worst over best of four trials by method: {texts}. That they matter for the baselines "
        f"and not for ProtoDepth is {verdict}."
    )


def others(known: dict[str, Any]) -> Iterator[str]:
    unseen = {r["Method"]: r["garden MAE"]["mean"] for r in table(known, "zero-shot", "unseen")}
    if unseen:
        texts = ", ".join(f"{m} {v:.0f}" for m, v in sorted(unseen.items(), key=lambda pair: pair[1]))
        first = min(unseen, key=lambda m: unseen[m])
        lead = "shows" if first == "ProtoDepth-A" else f"does not show, {first} has the lowest error"
        yield f"**Zero-shot** on `garden` (KBNet, one seed; MAE in mm): {texts}. The paper's lead {lead}."
    rows = {r["Without"]: r["warehouse MAE"]["mean"] for r in table(known, "ablations", "indoor")}
    if rows:
        whole = rows.pop("no ablations")
        texts = ", ".join(f"{name} {value - whole:+.0f}" for name, value in rows.items())
        yield f"**Ablations** (KBNet, one seed, `warehouse`; mm added to {whole:.0f} by leaving out): {texts}."
    times = [r for s in ("indoor", "outdoor") for r in table(known, "training-time", s)]
    ratio = {m: [v["mean"] for r in times if r["Method"] == m for k, v in r.items() if k.endswith("times finetuning")]
             for m in ("ProtoDepth", "ProtoDepth-A", "Replay")}  # fmt: skip
    if all(ratio.values()):
        texts = ", ".join(f"{m} {min(r):.2f} to {max(r):.2f}" for m, r in ratio.items())
        yield f"**Time of a training step** (KBNet), in steps of finetuning: {texts}."
