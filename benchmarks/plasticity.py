"""What a frozen network with prototypes can learn of a new world, against finetuning all of it, on val scenes.

python benchmarks/plasticity.py worlds-tiny warehouse --frames 20 64 320 --steps 500

Prints the MAE of the frozen network, of finetuning and of ProtoDepth for each number of training frames and of steps.
"""

import argparse
from dataclasses import replace

from protodepth import ProtoDepth, open_domain
from protodepth.data.frame import Domain
from protodepth.training import recipes
from protodepth.training.evaluate import evaluate
from protodepth.training.fit import fit
from protodepth.training.recipes import SequenceRecipe
from protodepth.training.sequence import build_method


def learn(name: str, recipe: SequenceRecipe, domain: Domain) -> float:
    """MAE in mm on val scenes after one domain."""
    method = build_method(name, ProtoDepth.from_pretrained(recipe.start), recipe)
    method.begin_domain(domain, lambda m, d: None)
    schedule = replace(recipe.schedule, rate=recipe.rates.get(name, recipe.schedule.rate))
    fit(method, domain, schedule, seed=recipe.seed)
    return evaluate(lambda b: method.predict(b, domain.name), domain.val, domain.rules).mean["mae"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("world")
    parser.add_argument("--frames", type=int, nargs="+", default=[20, 64, 320])
    parser.add_argument("--steps", type=int, nargs="+", default=[500])
    parser.add_argument("--sizes", default="", help="set sizes as 25/10 (default: the recipe's)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    recipe = recipes.indoor() if open_domain(f"worlds:{args.world}").rules.max_depth < 20 else recipes.outdoor()
    recipe = replace(recipe, start=args.model, seed=args.seed)
    if args.sizes:
        image, depth = (int(n) for n in args.sizes.split("/"))
        recipe = replace(recipe, prototypes=replace(recipe.prototypes, image_size=image, depth_size=depth))
    print("| world | frames | steps | frozen | Finetuned | ProtoDepth | ratio |\n|---|---:|---:|---:|---:|---:|---:|")
    for frames in args.frames:
        domain = open_domain(f"worlds:{args.world}?train={frames}")
        model = ProtoDepth.from_pretrained(args.model)
        frozen = evaluate(lambda b, m=model: m.predict_batch(b, "base"), domain.val, domain.rules).mean["mae"]
        for steps in args.steps:
            own = replace(recipe, schedule=replace(recipe.schedule, steps=steps))
            full, ours = (learn(name, own, domain) for name in ("finetune", "protodepth"))
            row = (args.world, frames, steps, f"{frozen:.0f}", f"{full:.0f}", f"{ours:.0f}", f"{ours / full:.2f}")
            print(f"| {' | '.join(str(v) for v in row)} |", flush=True)


if __name__ == "__main__":
    main()
