"""A domain learned by one process is used by another: a small folder travels, the depth is the same bit for bit.

Run it with ``python examples/share_a_domain.py``; it takes a few seconds and needs no data.
"""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import protodepth
from protodepth.backbones.lite import Lite
from protodepth.data.worlds.worlds import WORLDS, render, world
from protodepth.storage.folders import bundled

RECEIVER = """
import sys, hashlib, torch, protodepth
from protodepth.data.worlds.worlds import WORLDS, render
torch.set_num_threads(1)
model = protodepth.ProtoDepth.from_pretrained(sys.argv[1])
model.load_domain(sys.argv[2])
frame = render(WORLDS["warehouse"], seed=5, size=(64, 96))
depth = model.predict(frame.image, frame.sparse_depth, frame.intrinsics, domain="warehouse").depth
print("receiver: domains", model.domains, "depth", hashlib.sha256(depth.tobytes()).hexdigest()[:16])
"""


def main() -> None:
    torch.set_num_threads(1)  # the same number in both processes: sums of floats depend on their order
    model = (
        protodepth.ProtoDepth.from_pretrained("worlds-tiny") if bundled() else protodepth.ProtoDepth(Lite((0.1, 8.0)))
    )
    with tempfile.TemporaryDirectory() as place:
        base, parcel = Path(place) / "base", Path(place) / "warehouse"
        model.save_pretrained(base)  # what the receiver has already

        data = world("warehouse", train=8, val=4, test=1, cache=False)
        print(protodepth.adapt(model, data, name="warehouse", steps=10))
        model.save_domain("warehouse", parcel)
        print(f"parcel: {sum(p.stat().st_size for p in parcel.iterdir()) / 1000:.0f} kB")

        frame = render(WORLDS["warehouse"], seed=5, size=(64, 96))
        depth = model.predict(frame.image, frame.sparse_depth, frame.intrinsics, domain="warehouse").depth
        print("sender:   domains", model.domains, "depth", hashlib.sha256(depth.tobytes()).hexdigest()[:16])
        sys.stdout.flush()
        done = subprocess.run(
            [sys.executable, "-c", RECEIVER, str(base), str(parcel)], check=True, capture_output=True, text=True
        )
        print(done.stdout, end="")


if __name__ == "__main__":
    main()
