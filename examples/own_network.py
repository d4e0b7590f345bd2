"""A network of one's own, unchanged, as a backbone: list its taps, wrap it, check it, learn a domain, save, load.

Run it with ``python examples/own_network.py``; it takes a few seconds and needs no data.
"""

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import protodepth
from protodepth.backbones.hooked import HookedBackbone, Tap, candidate_taps


class UNet(nn.Module):
    """A plain U-Net; it knows nothing of this package."""

    def __init__(self, inputs: int = 4, width: int = 16) -> None:
        super().__init__()
        c = width
        self.down1 = self.stage(inputs, c)
        self.down2 = self.stage(c, 2 * c)
        self.down3 = self.stage(2 * c, 4 * c)
        self.up2 = nn.Conv2d(6 * c, 2 * c, 3, padding=1)
        self.up1 = nn.Conv2d(3 * c, c, 3, padding=1)
        self.head = nn.Conv2d(c, 1, 3, padding=1)

    @staticmethod
    def stage(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, 2, 1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(a)
        y = F.interpolate(self.down3(b), size=b.shape[-2:])
        y = F.interpolate(self.up2(torch.cat([y, b], 1)).relu(), size=a.shape[-2:])
        y = self.up1(torch.cat([y, a], 1)).relu()
        return self.head(F.interpolate(y, size=x.shape[-2:]))


def call(net: nn.Module, batch: protodepth.Batch) -> Tensor:
    """Image and sparse depth in, metres out."""
    return 0.1 + 7.9 * torch.sigmoid(net(torch.cat([batch.image, batch.sparse_depth], 1)))


def wrapped(net: nn.Module) -> HookedBackbone:
    # What enters the decoder: two skips and the bottleneck.
    taps = [Tap("down1"), Tap("down2"), Tap("down3", bottleneck=True)]
    return protodepth.wrap(net, taps=taps, call=call, depth_range=(0.1, 8.0))


def frames(size: int, height: int = 60, width: int = 84) -> protodepth.Batch:
    image = torch.rand(size, 3, height, width)
    points = (1 + image[:, :1]) * (torch.rand(size, 1, height, width) < 0.1)
    K = torch.tensor([[70.0, 0, width / 2], [0, 70.0, height / 2], [0, 0, 1]])
    return protodepth.Batch(image=image, sparse_depth=points, intrinsics=K.expand(size, 3, 3))


def main() -> None:
    torch.manual_seed(0)
    net, batch = UNet(), frames(4)
    print("places to tap:", *candidate_taps(net, batch, call, levels=1), sep="\n  ")

    backbone = wrapped(net)
    print("change of depth (m) when a tap is disturbed:", backbone.check(batch))

    model = protodepth.ProtoDepth(backbone)
    model.add_domain("warehouse")
    model.set_domain("warehouse")
    optimiser = torch.optim.Adam(model.trainable_parameters(), 0.01)
    for step in range(61):  # on the sparse points only; protodepth.adapt uses the whole unsupervised objective
        known = batch.sparse_depth > 0
        loss = (model(batch).depth - batch.sparse_depth)[known].abs().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 20 == 0:
            print(f"step {step:2d}: {float(loss.detach()):.3f} m from the points")

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(Path(folder) / "model")
        again = protodepth.ProtoDepth.from_pretrained(Path(folder) / "model", backbone=wrapped(UNet()))
    same = torch.equal(again.predict_batch(batch, "warehouse").depth, model.predict_batch(batch, "warehouse").depth)
    print("after loading, the same depth bit for bit:", same)


if __name__ == "__main__":
    main()
