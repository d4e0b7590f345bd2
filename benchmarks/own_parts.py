"""What a frozen network with prototypes can learn of a new world, against finetuning all of it, on val scenes.

    python benchmarks/own_parts.py corridor_night highway --ways finetune@1e-3 protodepth@0.06 \\
        "protodepth@0.01?parts=merges+head+scales&factors=parts:0.2+scales:0.5" --keep benchmarks/worlds_own_parts.json
    python benchmarks/own_parts.py --table

A way is a method at a learning rate, with what a domain learns beside its prototypes (``PrototypeConfig.parts``) and
factors of the rate.  ``--keep`` adds rows to a file; ``--table`` prints the kept rows, which stand in
docs/reproducing.md (``reproducing.py kept --write`` puts them there).
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from protodepth import ProtoDepth, open_domain
from protodepth.prototypes import PrototypeConfig
from protodepth.training import recipes
from protodepth.training.evaluate import evaluate
from protodepth.training.fit import fit
from protodepth.training.sequence import build_method

KEPT = Path(__file__).parent / "worlds_own_parts.json"
SIZES = PrototypeConfig(image_size=60, depth_size=30)


def parsed(way: str) -> tuple[str, float, dict[str, Any]]:
    """Method, rate and changes of the prototypes.

    >>> parsed("protodepth@0.01?parts=merges+head&factors=parts:0.2")
    ('protodepth', 0.01, {'parts': ('merges', 'head'), 'factors': {'parts': 0.2}})
    """
    head, _, query = way.partition("?")
    name, _, rate = head.partition("@")
    changes: dict[str, Any] = {}
    for key, text in (part.split("=", 1) for part in query.split("&") if part):
        values = text.split("+")
        pairs = {kind: float(factor) for kind, _, factor in (v.partition(":") for v in values)} if ":" in text else {}
        changes[key] = pairs or tuple(values)
    return name, float(rate), changes


def learn(world: str, way: str, steps: int, seed: int) -> dict[str, Any]:
    """Errors on val scenes after one domain, from the bundled base of `lite`."""
    domain = open_domain(f"worlds:{world}?train=64&val=64")
    recipe = recipes.indoor() if domain.rules.max_depth < 20 else recipes.outdoor()
    name, rate, changes = parsed(way)
    schedule = replace(recipe.schedule, rate=rate, steps=steps)
    recipe = replace(recipe, seed=seed, schedule=schedule, rates={}, prototypes=replace(SIZES, **changes))
    method = build_method(name, ProtoDepth.from_pretrained(recipe.start), recipe)
    method.begin_domain(domain, lambda m, d: None)
    started = time.process_time()
    fit(method, domain, schedule, seed=seed)
    seconds = time.process_time() - started
    extra = method.model.overhead()
    mean = evaluate(lambda b: method.predict(b, domain.name), domain.val, domain.rules).mean
    return {
        "world": world,
        "way": way,
        "steps": steps,
        "seed": seed,
        "parameters": sum(kept[world] for kept in (extra.domains, extra.descriptors)) if method.chooses else 0,
        "cpu_seconds": round(seconds, 1),
        **{metric: round(value, 2) for metric, value in mean.items()},
    }


def markdown(rows: list[dict[str, Any]]) -> str:
    """Every row beside the best finetuning of its world."""
    heads = "| world | way | numbers kept for the domain | MAE (mm) | above the best finetuning (%) |"
    lines = [heads, "|---|---|---:|---:|---:|"]
    for world in dict.fromkeys(row["world"] for row in rows):
        own = [row for row in rows if row["world"] == world]
        free = min(row["mae"] for row in own if row["way"].startswith("finetune"))
        for row in sorted(own, key=lambda r: r["mae"]):
            share = 100 * (row["mae"] - free) / free
            kept = f"{row['parameters']:,}" if row["parameters"] else "–"
            lines.append(f"| {world} | `{row['way']}` | {kept} | {row['mae']:.1f} | {share:+.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", nargs="*")
    parser.add_argument("--ways", nargs="+", default=["finetune@1e-3", "protodepth@0.06"])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=None, help="file that the rows are added to")
    parser.add_argument("--table", action="store_true", help="print the kept rows, train nothing")
    args = parser.parse_args()
    if args.table:
        print(markdown(json.loads(KEPT.read_text())["rows"]), end="")
        return
    for world in args.worlds:
        for way in args.ways:
            row = learn(world, way, args.steps, args.seed)
            print(json.dumps(row), flush=True)
            if args.keep is not None:
                rows = json.loads(args.keep.read_text())["rows"] if args.keep.exists() else []
                args.keep.write_text(json.dumps({"rows": [*rows, row]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
