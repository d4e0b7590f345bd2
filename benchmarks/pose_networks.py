"""Train the pose network of a base again, from the poses of its own world; the depth network stays as it is.

    python benchmarks/pose_networks.py worlds-tiny worlds-tiny-outdoor worlds-tiny-mixed --out runs/poses

The bundled bases were trained when the objective taught their pose networks by the photometric loss alone, of which
they learned nothing.  ``protodepth train`` now teaches them by ``losses.pose_distance``; this does the same for a
network that is already there, in minutes.  Prints the error of the motion on val frames,
against a camera that stands still.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from protodepth import ProtoDepth, open_domain
from protodepth.backbones.posenet import PoseNet
from protodepth.data.batches import collate
from protodepth.data.frame import FrameDataset
from protodepth.errors import ProtoDepthError
from protodepth.losses import pose_distance
from protodepth.storage.folders import resolve
from protodepth.training.schedule import Schedule


@torch.no_grad()
def error(pose: PoseNet, data: FrameDataset) -> tuple[float, float]:
    """Mean length of the difference of translations, and of the translations, in metres."""
    pose.eval()
    differences, lengths = [], []
    for index in range(len(data)):
        batch = collate([data[index]])
        for neighbour, given in zip(batch.neighbours, batch.poses, strict=True):
            true = given[:, :3, 3]
            differences.append((pose(batch.image, neighbour)[:, :3, 3] - true).norm(dim=1))
            lengths.append(true.norm(dim=1))
    return float(torch.cat(differences).mean()), float(torch.cat(lengths).mean())


def recolour(images: list[Tensor], random: np.random.Generator) -> list[Tensor]:
    """The same change of light and contrast in all pictures of a step: the next place may be darker."""
    gain, contrast = np.exp(random.uniform(np.log(0.2), np.log(1.5))), random.uniform(0.5, 1.5)
    return [(gain * (contrast * (x - 0.5) + 0.5)).clamp(0, 1) for x in images]


def teach(model: ProtoDepth, data: FrameDataset, schedule: Schedule, seed: int) -> PoseNet:
    torch.manual_seed(seed)
    pose = PoseNet(**model.backbone.default_pose)
    optimiser = torch.optim.Adam(pose.parameters(), lr=schedule.pose_rate)
    pose.train()
    for step in range(schedule.steps):
        random = np.random.default_rng((seed, step))
        chosen = random.integers(len(data), size=schedule.batch_size)
        batch = collate([data[int(i)] for i in chosen])
        with torch.no_grad():
            depth = model.predict_batch(batch, "base").depth
        image, *neighbours = recolour([batch.image, *batch.neighbours], random)
        pairs = zip(neighbours, batch.poses, strict=True)
        loss = torch.stack([pose_distance(depth, pose(image, n), g, batch.intrinsics) for n, g in pairs]).sum()
        optimiser.zero_grad()
        loss.backward()
        for group in optimiser.param_groups:
            group["lr"] = schedule.pose_rate * schedule.factor(step)
        optimiser.step()
        if (step + 1) % 500 == 0:
            print(f"  step {step + 1}: {float(loss.detach()):.4f}", flush=True)
    return pose.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="bundled names or model folders")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for name in given.models:
        model, folder = ProtoDepth.from_pretrained(name), resolve(name)
        notes = json.loads((folder / "config.json").read_text())["notes"]
        domain = open_domain(notes["recipe"]["data"])
        print(f"{name}: {len(domain.train)} frames of {domain.name}", flush=True)
        model.pose = teach(model, domain.train, Schedule(steps=given.steps, batch_size=4, rate=1e-3), given.seed)
        for world in (
            domain,
            *(open_domain(f"worlds:{w}") for w in ("warehouse", "corridor_night", "street_dusk", "highway")),
        ):
            off, length = error(model.pose, world.val)
            print(f"  {world.name}: motion off by {off:.3f} m; still camera {length:.3f} m", flush=True)
        command = (
            f"python benchmarks/pose_networks.py {name} --out runs/poses --steps {given.steps} --seed {given.seed}"
        )
        model.save_pretrained(given.out / Path(name).name, notes={**notes, "pose network": command})


if __name__ == "__main__":
    try:
        main()
    except ProtoDepthError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
