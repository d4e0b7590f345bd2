"""Time of a training step by precision and memory layout, measured in turns.

    python benchmarks/precision.py --backbone lite --method finetune --size 64x96 --turns 20

A turn makes one step of every way, so that whatever else the machine does falls on all of them alike.  Numbers:
docs/scale.md.
"""

import argparse
import copy
import time
from dataclasses import replace

import numpy as np
import torch

from protodepth import distributed
from protodepth.backbones import fusionnet, kbnet, lite, uformer, voiced  # noqa: F401  (registers the networks)
from protodepth.backbones.base import backbones
from protodepth.cli.options import parse_size
from protodepth.data.batches import training_batches
from protodepth.data.worlds.worlds import world
from protodepth.errors import ConfigError
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import build
from protodepth.model import ProtoDepth
from protodepth.training.fit import Learner, train_step
from protodepth.training.schedule import Schedule

WAYS = {
    "float32": {},
    "float32, channels_last": {"channels_last": True},
    "bfloat16": {"precision": "bfloat16"},
    "bfloat16, channels_last": {"precision": "bfloat16", "channels_last": True},
    "float16": {"precision": "float16"},
    "float16, channels_last": {"precision": "float16", "channels_last": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="lite")
    parser.add_argument("--preset", default=None, help="default: the first of lite, small of the others")
    parser.add_argument("--method", default="finetune", choices=["finetune", "protodepth"])
    parser.add_argument("--size", type=parse_size, default=(64, 96))
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--device", default=None)
    options = parser.parse_args()
    device = distributed.device(options.device)
    domain = world("room", size=options.size, train=4, val=1, test=1)
    network = backbones.get(options.backbone)
    model = ProtoDepth(network.from_preset(options.preset or ("indoor" if options.backbone == "lite" else "small")))
    ways = {n: w for n, w in WAYS.items() if device.type == "cuda" or "float16" not in w.values()}
    learners = {}
    for name, settings in ways.items():
        method = build(
            options.method, copy.deepcopy(model).to(device), Objective(ObjectiveConfig(reduction="relative"))
        )
        method.begin_domain(domain, lambda m, d: None)
        try:
            learners[name] = Learner.of(method, replace(Schedule(batch_size=options.batch), **settings), 0)
        except ConfigError as error:
            print(f"{name}: {error}")
    batch = next(training_batches(domain.train, options.batch, seed=0))
    seconds: dict[str, list[float]] = {name: [] for name in learners}
    for turn in range(options.turns + 2):
        for name, learner in learners.items():
            begun = time.perf_counter()
            train_step(learner, batch, turn)  # reads the loss, so a GPU has finished when it returns
            if turn >= 2:
                seconds[name].append(time.perf_counter() - begun)
    height, width = options.size
    print(
        f"{options.backbone}, {options.method}, {options.batch} frames of {height}x{width}, {device}, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}, median of {options.turns} turns"
    )
    plain = float(np.median(seconds["float32"]))
    for name, times in seconds.items():
        low, middle, high = np.percentile(times, [25, 50, 75])
        print(f"  {name:<26}{1000 * middle:8.1f} ms  ({1000 * low:.1f} to {1000 * high:.1f})  x {middle / plain:.2f}")


if __name__ == "__main__":
    main()
