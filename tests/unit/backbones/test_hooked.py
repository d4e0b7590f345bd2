"""Networks that were not written for this package, wrapped: taps, replay, adaptation, saving, forgetting nothing."""

import copy
import re
import runpy
import threading
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.documents import ROOT
from protodepth.backbones.hooked import HookedBackbone, Tap, candidate_taps, wrap
from protodepth.descriptors import descriptor_loss
from protodepth.errors import CheckpointError, ConfigError, TapError
from protodepth.model import ProtoDepth
from protodepth.types import Batch, Depth, Modality

RANGE = (0.1, 8.0)


def frames(size: int = 2, height: int = 32, width: int = 48, seed: int = 0) -> Batch:
    g = torch.Generator().manual_seed(seed)
    points = (1 + 3 * torch.rand(size, 1, height, width, generator=g)) * (
        torch.rand(size, 1, height, width, generator=g) < 0.1
    )
    image = torch.rand(size, 3, height, width, generator=g)
    return Batch(image=image, sparse_depth=points, intrinsics=torch.eye(3).expand(size, 3, 3))


def stacked(batch: Batch) -> Tensor:
    """The image with sparse depth as a fourth channel."""
    return torch.cat([batch.image, batch.sparse_depth], 1)


def in_range(value: Tensor) -> Depth:
    return RANGE[0] + (RANGE[1] - RANGE[0]) * torch.sigmoid(value)


class PlainUNet(nn.Module):
    """A skip that also feeds the deeper stage, batch norm, and activations that work in place."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(4, 6, 3, 2, 1), nn.BatchNorm2d(6))
        self.two = nn.Sequential(nn.Conv2d(6, 8, 3, 2, 1), nn.BatchNorm2d(8))
        self.relu = nn.ReLU(inplace=True)
        self.unused = nn.Conv2d(8, 8, 1)
        self.up = nn.Conv2d(14, 6, 3, 1, 1)
        self.last = nn.Conv2d(6, 1, 3, 1, 1)

    def decode(self, skip: Tensor, deep: Tensor) -> Tensor:
        deep = F.interpolate(deep.relu(), size=skip.shape[-2:])
        return F.interpolate(self.last(self.up(torch.cat([deep, skip.relu()], 1))), scale_factor=2.0)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.one(x)
        skip = self.relu(skip)
        return self.decode(skip, self.two(skip))


def call_plain(net: nn.Module, batch: Batch) -> Depth:
    return in_range(net(stacked(batch)))


@pytest.fixture
def unet() -> PlainUNet:
    torch.manual_seed(0)
    return PlainUNet()


@pytest.fixture
def wrapped(unet: PlainUNet) -> HookedBackbone:
    return wrap(unet, ["one", "two"], call_plain, depth_range=RANGE).eval()  # type: ignore[return-value]


def hooks_left(module: nn.Module) -> int:
    return sum(len(part._forward_hooks) for part in module.modules())


def test_latents_are_the_outputs_before_later_modules_work_in_place(wrapped: HookedBackbone, unet: PlainUNet) -> None:
    latents = wrapped.encode(frames())
    torch.testing.assert_close(latents.layers["one"], unet.one(stacked(frames())), rtol=0, atol=0)
    assert (latents.layers["one"] < 0).any()


def test_replay_is_bit_equal_and_may_be_repeated(wrapped: HookedBackbone) -> None:
    batch = frames()
    latents = wrapped.encode(batch)
    plain = call_plain(wrapped.module, batch)
    assert torch.equal(wrapped.decode(latents), plain)
    assert torch.equal(wrapped.decode(latents), plain), "decoding must not change the latents it is given"


def test_a_skip_is_adapted_only_on_its_way_to_the_decoder(wrapped: HookedBackbone, unet: PlainUNet) -> None:
    latents = wrapped.encode(frames())
    skip, deep = latents.layers["one"] + 0.7, latents.layers["two"]
    expected = in_range(unet.decode(skip, deep))  # the deep features are those of the un-adapted skip
    assert torch.equal(wrapped.decode(latents.with_layers({"one": skip})), expected)
    assert not torch.equal(expected, wrapped.decode(latents))


def test_gradients_flow_through_the_second_pass_into_the_latents(wrapped: HookedBackbone, unet: PlainUNet) -> None:
    wrapped.requires_grad_(False)
    latents = wrapped.encode(frames())
    layers = {name: X.clone().requires_grad_() for name, X in latents.layers.items()}
    ours = torch.autograd.grad(wrapped.decode(latents.with_layers(layers)).sum(), list(layers.values()))
    direct = torch.autograd.grad(in_range(unet.decode(*layers.values())).sum(), list(layers.values()))
    for mine, theirs in zip(ours, direct, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_finetuning_a_wrapped_network_has_the_gradients_of_the_network(wrapped: HookedBackbone) -> None:
    batch = frames()
    names = [n for n, _ in wrapped.named_parameters() if "unused" not in n]
    parameters = [wrapped.get_parameter(n) for n in names]
    ours = torch.autograd.grad(wrapped(batch).sum(), parameters)
    direct = torch.autograd.grad(call_plain(wrapped.module, batch).sum(), parameters)
    for mine, theirs in zip(ours, direct, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_specs_are_learned_from_one_pass_that_leaves_the_network_as_it_was(unet: PlainUNet) -> None:
    before = copy.deepcopy(unet.state_dict())
    unet.two.eval()
    net = wrap(unet, [Tap("one", Modality.IMAGE), "two"], call_plain)
    assert [(s.name, s.channels, s.modality, s.bottleneck) for s in net.latent_specs] == [
        ("one", 6, Modality.IMAGE, False),
        ("two", 8, Modality.FUSED, True),
    ]
    assert all(torch.equal(before[k], v) for k, v in unet.state_dict().items()), "batch norm statistics moved"
    assert unet.one.training
    assert not unet.two.training
    assert hooks_left(unet) == 0


def test_check_reports_how_far_each_tap_moves_the_output(wrapped: HookedBackbone) -> None:
    changes = wrapped.check(frames())
    assert list(changes) == ["one", "two"]
    assert all(change > 1e-3 for change in changes.values())


def test_check_names_a_tap_that_nothing_reads(unet: PlainUNet) -> None:
    def call(net: Any, batch: Batch) -> Depth:
        net.unused(torch.zeros(len(batch), 8, 4, 4))
        return call_plain(net, batch)

    net = wrap(unet, ["one", "unused", "two"], call, depth_range=RANGE)
    with pytest.raises(TapError, match=r"does not depend on tap 'unused'"):
        net.check(frames())


def test_check_names_a_tap_whose_effect_another_tap_overwrites(unet: PlainUNet) -> None:
    net = wrap(unet, ["one.0", "one", "two"], call_plain, depth_range=RANGE)
    with pytest.raises(TapError, match=r"does not depend on tap 'one\.0'.*overwritten"):
        net.check(frames())


def test_check_refuses_a_network_that_is_random(unet: PlainUNet) -> None:
    net = wrap(unet, ["one"], lambda m, b: in_range(F.dropout(m(stacked(b)), 0.5)), depth_range=RANGE)
    with pytest.raises(TapError, match="random or keeps state"):
        net.check(frames())


def test_check_refuses_depth_outside_the_declared_range(unet: PlainUNet) -> None:
    net = wrap(unet, ["two"], call_plain, depth_range=(0.1, 1.0))
    with pytest.raises(ConfigError, match=r"outside its depth_range 0\.1-1 m"):
        net.check(frames())


@pytest.mark.parametrize(
    ("taps", "message"),
    [
        (["three"], "no module 'three'; near it"),
        (["ones"], "near it: one"),
        (["unused"], "'unused' did not run"),
        ([], "at least one"),
        (["one", "one"], "different"),
        ([Tap("one", bottleneck=True), Tap("two", bottleneck=True)], "not several"),
        (["one[0][0][0]"], r"float32 tensor of shape \(80,\), which is no bchw or bnc layer"),
        ([Tap("one", layout="bnc")], r"no bnc layer"),
    ],
)
def test_taps_that_cannot_work_are_refused_when_wrapping(unet: PlainUNet, taps: list[Any], message: str) -> None:
    with pytest.raises(TapError, match=message):
        wrap(unet, taps, call_plain)
    assert hooks_left(unet) == 0


def test_a_module_that_runs_twice_cannot_be_tapped(unet: PlainUNet) -> None:
    def twice(net: Any, batch: Batch) -> Depth:
        return call_plain(net, batch) + 0 * call_plain(net, batch)

    with pytest.raises(TapError, match="'one' runs more than once"):
        wrap(unet, ["one"], twice)
    assert hooks_left(unet) == 0


def test_output_of_another_shape_is_refused_with_what_was_expected(unet: PlainUNet) -> None:
    with pytest.raises(
        ConfigError, match=r"float32 tensor of shape \(1, 128, 160\), expected a tensor \(1, 1, 128, 160\)"
    ):
        wrap(unet, ["one"], lambda m, b: call_plain(m, b)[:, 0])


def test_a_network_that_does_not_take_the_example_says_how_to_give_one(unet: PlainUNet) -> None:
    def fixed_size(net: Any, batch: Batch) -> Depth:
        return call_plain(net, batch) + torch.zeros(1, 1, 32, 48)

    with pytest.raises(ConfigError, match=r"128 x 160 pixels.*example="):
        wrap(unet, ["one"], fixed_size)
    assert wrap(unet, ["one"], fixed_size, example=frames()).check(frames())


def test_hooks_are_gone_after_a_pass_that_fails(wrapped: HookedBackbone) -> None:
    batch = frames()
    wrong = Batch(image=batch.image[:, :2], sparse_depth=batch.sparse_depth, intrinsics=batch.intrinsics)
    with pytest.raises(RuntimeError):
        wrapped.encode(wrong)
    assert hooks_left(wrapped) == 0


Pair = namedtuple("Pair", ["low", "high"])


class Several(nn.Module):
    """A stage that returns a container, and a decoder that reads it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.conv = kind, nn.Conv2d(4, 5, 3, 2, 1)

    def forward(self, x: Tensor) -> Any:
        low, high = self.conv(x), x[:, :1]
        if self.kind == "bhwc":
            return low.permute(0, 2, 3, 1)
        kinds: dict[str, Any] = {
            "tuple": (low, [high]),
            "list": [low, high],
            "dict": {"low": low, "high": [high, low]},
            "named": Pair(low, high),
        }
        return kinds[self.kind]


class Reader(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.stage, self.last = Several(kind), nn.Conv2d(5, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        out = self.stage(x)
        if self.stage.kind == "bhwc":
            return self.read(out.permute(0, 3, 1, 2))
        if self.stage.kind == "dict":
            return self.read(out["high"][1])
        return self.read(out.low if self.stage.kind == "named" else out[0])

    def read(self, low: Tensor) -> Tensor:
        return F.interpolate(self.last(low), scale_factor=2.0)


@pytest.mark.parametrize(
    ("kind", "tap"),
    [
        ("tuple", Tap("stage[0]")),
        ("list", Tap("stage[0]")),
        ("dict", Tap("stage[high][1]")),
        ("named", Tap("stage[0]")),
        ("bhwc", Tap("stage", layout="bhwc")),
    ],
)
def test_a_tensor_inside_what_a_module_returns_can_be_tapped(kind: str, tap: Tap) -> None:
    torch.manual_seed(0)
    net = Reader(kind)
    hooked = wrap(net, [tap], call_plain, depth_range=RANGE)
    batch = frames()
    hooked.check(batch)
    latents = hooked.encode(batch)
    assert hooked.bottleneck.channels == 5
    moved = hooked.decode(latents.with_layers({tap.name: latents.layers[tap.name] + 1}))
    expected = in_range(net.read(net.stage.conv(stacked(batch)) + 1))
    torch.testing.assert_close(moved, expected)


def test_a_key_that_is_not_in_the_output_is_named() -> None:
    with pytest.raises(TapError, match=r"\[middle\] is not in the module's output, a dict with keys"):
        wrap(Reader("dict"), ["stage[middle]"], call_plain)


def test_names_never_collide_with_what_a_module_dictionary_has() -> None:
    assert Tap("enc.layers.3").name == "enc_layers_3"
    assert Tap("values").name == "values_tap"
    nn.ModuleDict({Tap("values").name: nn.Identity()})


def test_candidates_list_channels_layout_and_stride(unet: PlainUNet) -> None:
    rows = {c.path: (c.layout, c.channels, c.stride) for c in candidate_taps(unet, frames(), call_plain)}
    assert rows["one"] == ("bchw", 6, 2)
    assert rows["two.0"] == ("bchw", 8, 4)
    assert "unused" not in rows, "it does not run"
    assert hooks_left(unet) == 0
    assert "two.0" not in {c.path for c in candidate_taps(unet, frames(), call_plain, levels=1)}
    nested = {c.path: c.layout for c in candidate_taps(Reader("dict"), frames(), call_plain)}
    assert nested["stage[high][1]"] == "bchw"
    assert {c.path: c.layout for c in candidate_taps(Reader("bhwc"), frames(), call_plain)}["stage"] == "bhwc"


def test_every_candidate_can_be_wrapped(unet: PlainUNet) -> None:
    for candidate in candidate_taps(unet, frames(), call_plain):
        spec = wrap(unet, [Tap(candidate.path, layout=candidate.layout)], call_plain).bottleneck
        assert spec.channels == candidate.channels


def test_threads_take_turns(wrapped: HookedBackbone) -> None:
    batches = [frames(1, seed=seed) for seed in range(4)]
    expected = [wrapped(b) for b in batches]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(5):
            with torch.no_grad():
                if not torch.equal(wrapped(batches[i]), expected[i]):
                    wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_deep_copy_has_its_own_network(wrapped: HookedBackbone) -> None:
    twin, batch = copy.deepcopy(wrapped), frames()
    before = wrapped(batch)
    with torch.no_grad():
        twin.module.get_parameter("last.bias").add_(1)
    assert torch.equal(wrapped(batch), before)
    assert not torch.equal(twin(batch), before)


# Networks that nobody here wrote.


def square(batch: Batch, side: int) -> Tensor:
    return torch.cat(
        [F.interpolate(batch.image, (side, side)), F.interpolate(batch.sparse_depth, (side, side), mode="nearest")], 1
    )


def sized(value: Tensor, batch: Batch) -> Depth:
    return in_range(F.interpolate(value, batch.size, mode="bilinear", align_corners=False))


def stronger(net: nn.Module) -> nn.Module:
    """Random weights of these models are so small that the output is constant; trained ones are not."""
    torch.manual_seed(0)
    for parameter in net.parameters():
        if parameter.ndim > 1:
            nn.init.kaiming_normal_(parameter)
    return net


def monai_unet() -> HookedBackbone:
    nets = pytest.importorskip("monai.networks.nets", reason="the third-party U-Net is MONAI's: pip install monai")
    net = nets.BasicUNet(spatial_dims=2, in_channels=4, out_channels=1, features=(4, 4, 8, 8, 16, 4))
    taps = ["down_1", "down_2", "down_3", "down_4"]
    return wrap(net, taps, lambda m, b: in_range(m(stacked(b))), depth_range=RANGE)


def dpt() -> HookedBackbone:
    hf = pytest.importorskip("transformers", reason="the depth models are those of transformers")
    config = hf.DPTConfig(
        num_channels=4,
        image_size=32,
        patch_size=8,
        hidden_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=32,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 8, 12, 16],
        fusion_hidden_size=8,
        is_hybrid=False,
    )
    net = stronger(hf.DPTForDepthEstimation(config))
    taps = [f"neck.reassemble_stage.layers.{i}" for i in range(4)]  # maps of four scales, on their way to the decoder
    return wrap(net, taps, lambda m, b: sized(m(square(b, 32)).predicted_depth[:, None], b), depth_range=RANGE)


def depth_anything() -> HookedBackbone:
    hf = pytest.importorskip("transformers", reason="the depth models are those of transformers")
    encoder = hf.Dinov2Config(
        num_channels=4,
        image_size=42,
        patch_size=14,
        hidden_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        out_indices=[1, 2, 3, 4],
        reshape_hidden_states=False,
    )
    config = hf.DepthAnythingConfig(
        backbone_config=encoder,
        reassemble_hidden_size=16,
        neck_hidden_sizes=[8, 8, 12, 16],
        fusion_hidden_size=8,
        head_hidden_size=8,
    )
    net = stronger(hf.DepthAnythingForDepthEstimation(config))
    nn.init.constant_(net.head.conv3.bias, 3.0)  # its last activation is a ReLU
    taps = [f"backbone[feature_maps][{i}]" for i in range(4)]  # lists of positions, the class position among them
    return wrap(net, taps, lambda m, b: sized(0.1 * m(square(b, 42)).predicted_depth[:, None], b), depth_range=RANGE)


THIRD_PARTY: list[Callable[[], HookedBackbone]] = [monai_unet, dpt, depth_anything]


def adapt_some_steps(model: ProtoDepth, name: str, batch: Batch, steps: int = 6) -> list[float]:
    """Pull the prediction to the sparse points, and the descriptor to the frames."""
    model.set_domain(name)
    optimiser = torch.optim.Adam(model.trainable_parameters(), 0.02)
    losses = []
    for _ in range(steps):
        out = model(batch)
        valid = batch.sparse_depth > 0
        loss = (out.depth - batch.sparse_depth)[valid].abs().mean()
        _, others = model.descriptors()
        pull = descriptor_loss(out.descriptor, model.domain(name).descriptor, others[:0], 0.0)
        optimiser.zero_grad()
        (loss + pull).backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    model.set_domain(None)
    return losses


@pytest.mark.parametrize("build", THIRD_PARTY)
def test_third_party_network_adapts_saves_reloads_and_forgets_nothing(
    build: Callable[[], HookedBackbone], tmp_path: Path
) -> None:
    net = build()
    first, second = frames(2, seed=1), frames(2, seed=2).map(lambda t: t / 2 if t.shape[1] == 1 else t)
    assert all(change > 0 for change in net.check(first).values())
    model = ProtoDepth(net)
    weights = {k: v.clone() for k, v in net.state_dict().items()}
    plain = model.predict_batch(first, "base").depth
    assert torch.equal(plain, net.call(net.module, first).detach())

    model.add_domain("room")
    losses = adapt_some_steps(model, "room", first)
    assert losses[-1] < losses[0]
    room = model.predict_batch(first, "room").depth
    assert not torch.equal(room, plain)

    model.add_domain("warehouse")
    adapt_some_steps(model, "warehouse", second)
    assert torch.equal(model.predict_batch(first, "room").depth, room), "the old domain must stay bit-identical"
    assert torch.equal(model.predict_batch(first, "base").depth, plain)
    assert all(torch.equal(weights[k], v) for k, v in net.state_dict().items())

    model.save_pretrained(tmp_path / "model")
    fresh = build()
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.zero_()
    again = ProtoDepth.from_pretrained(tmp_path / "model", backbone=fresh)
    assert again.domains == ("room", "warehouse")
    assert torch.equal(again.predict_batch(first, "room").depth, room)
    assert torch.equal(again.predict_batch(second).depth, model.predict_batch(second).depth)


def test_layers_of_a_transformer_that_nothing_reads_are_found_out() -> None:
    """This model collects its hidden states inside the layers' forward: what a hook returns comes too late."""
    net = dpt().module
    taps = [f"dpt.encoder.layer.{i}" for i in range(4)]
    hooked = wrap(net, taps, lambda m, b: sized(m(square(b, 32)).predicted_depth[:, None], b), depth_range=RANGE)
    with pytest.raises(TapError, match=r"does not depend on tap .*'dpt\.encoder\.layer\.3'"):
        hooked.check(frames())


def test_a_wrapped_model_is_not_loaded_without_its_network(wrapped: HookedBackbone, tmp_path: Path) -> None:
    ProtoDepth(wrapped).save_pretrained(tmp_path / "model")
    with pytest.raises(CheckpointError, match=r"backbone=wrap\(module, taps, call\)"):
        ProtoDepth.from_pretrained(tmp_path / "model")


def test_a_domain_is_refused_by_the_same_network_with_other_taps(unet: PlainUNet, tmp_path: Path) -> None:
    model = ProtoDepth(wrap(unet, ["one", "two"], call_plain))
    model.add_domain("room")
    model.save_domain("room", tmp_path / "room")
    other = ProtoDepth(wrap(unet, [Tap("one", Modality.IMAGE), "two"], call_plain))
    with pytest.raises(CheckpointError, match="learned on another network"):
        other.load_domain(tmp_path / "room")


def test_a_network_with_tied_weights_can_be_saved(tmp_path: Path) -> None:
    class Tied(PlainUNet):
        def __init__(self) -> None:
            super().__init__()
            self.unused.weight = nn.Parameter(torch.zeros(8, 8, 1, 1))
            self.twin = nn.Conv2d(8, 8, 1)
            self.twin.weight = self.unused.weight

    model = ProtoDepth(wrap(Tied(), ["one", "two"], call_plain))
    model.save_pretrained(tmp_path / "model")
    again = ProtoDepth.from_pretrained(tmp_path / "model", backbone=wrap(Tied(), ["one", "two"], call_plain))
    assert torch.equal(again.predict_batch(frames()).depth, model.predict_batch(frames()).depth)


def test_the_example_script_runs(capsys: pytest.CaptureFixture[str]) -> None:
    script = ROOT / "examples" / "own_network.py"
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    assert "bit for bit: True" in printed
    errors = [float(e) for e in re.findall(r"step +\d+: ([\d.]+) m", printed)]
    assert errors == sorted(errors, reverse=True)
    assert len(errors) == 4
