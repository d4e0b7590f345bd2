"""What every registered backbone must do, and the example of docs/add_a_backbone.md too,
loaded as an outside package.
"""

import copy
import importlib
import json
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import protodepth.backbones  # noqa: F401  registers the built-in networks
from helpers.documents import ROOT
from protodepth.backbones.base import Backbone, backbones
from protodepth.descriptors import descriptor_loss, sample_descriptor
from protodepth.errors import UnknownNameError
from protodepth.model import ProtoDepth
from protodepth.types import Batch

DOCS = ROOT / "docs" / "add_a_backbone.md"
EXAMPLE = "mynet"
NAMES = (*(name for name in backbones.names() if name != EXAMPLE), EXAMPLE)


def code_blocks(language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL)


@pytest.fixture
def example_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The documented file as an installed package: a module and its entry point, nothing else."""
    (tmp_path / "mynet.py").write_text(code_blocks()[0])
    about = tmp_path / "mynet-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mynet\nVersion: 0.1\n")
    (entry,) = code_blocks("toml")
    (about / "entry_points.txt").write_text(entry.replace('project.entry-points."', "").replace('"', ""))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mynet", raising=False)
    monkeypatch.setattr(backbones, "_items", {k: v for k, v in backbones._items.items() if k != EXAMPLE})
    monkeypatch.setattr(backbones, "_outside_loaded", False)
    importlib.invalidate_caches()
    return tmp_path


@pytest.fixture(params=NAMES)
def kind(request: pytest.FixtureRequest) -> Iterator[type[Backbone]]:
    if request.param == EXAMPLE:
        request.getfixturevalue("example_installed")
    yield backbones.get(request.param)
    if request.param == EXAMPLE:
        sys.modules.pop("mynet", None)


def build(kind: type[Backbone], seed: int = 0) -> Backbone:
    torch.manual_seed(seed)
    return kind.from_preset("small" if "small" in kind.presets else next(iter(kind.presets))).eval()


@pytest.fixture
def net(kind: type[Backbone]) -> Backbone:
    return build(kind)


def frames(size: int = 1, height: int = 64, width: int = 96, seed: int = 0) -> Batch:
    """Smooth random pictures, and at most 1500 points on a slanted plane."""
    g = torch.Generator().manual_seed(seed)
    image = torch.rand(size, 3, 7, 9, generator=g)
    image = torch.nn.functional.interpolate(image, (height, width), mode="bicubic").clamp(0, 1)
    slope = torch.rand(size, 2, 1, 1, generator=g)
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    plane = 1.5 + 2 * (slope[:, 0] * x + slope[:, 1] * y)
    share = min(0.05, 1500 / (height * width))
    points = plane * (torch.rand(size, height, width, generator=g) < share)
    points[:, 1, 1] = plane[:, 1, 1]
    K = torch.tensor([[0.9 * width, 0, width / 2], [0, 0.9 * width, height / 2], [0, 0, 1]])
    return Batch(image=image, sparse_depth=points[:, None], intrinsics=K.expand(size, 3, 3))


def assert_in_range(net: Backbone, depth: torch.Tensor) -> None:
    low, high = net.depth_range
    least = low / (1 + low / high)  # what the published output formula reaches
    assert torch.isfinite(depth).all()
    if not net.bounded:
        assert depth.min() > 0
        return
    assert depth.min() >= least * (1 - 1e-5)
    assert depth.max() <= high * (1 + 1e-5)


def disturbed(net: Backbone, *names: str) -> ProtoDepth:
    """A model with domains that all differ from the base and from each other, on every layer."""
    model = ProtoDepth(net)
    for seed, name in enumerate(names):
        model.add_domain(name, seed=seed)
        with torch.no_grad():
            for parameter in model.domain(name).sets.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
    return model


def test_latents_are_as_declared(net: Backbone) -> None:
    specs, latents = net.latent_specs, net.encode(frames(2))
    names = [s.name for s in specs]
    assert list(latents.layers) == names
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"\w+", name) for name in names)
    assert sum(s.bottleneck for s in specs) == 1
    assert net.default_layers
    assert set(net.default_layers) <= set(names)
    for spec in specs:
        X = latents.layers[spec.name]
        assert X.ndim == len(spec.layout)
        assert X.shape[spec.layout.index("c")] == spec.channels, spec.name
        assert X.shape[0] == 2


def test_its_name_is_the_one_it_is_registered_by(kind: type[Backbone]) -> None:
    assert backbones.get(kind.name) is kind


def test_encode_then_decode_equals_forward(net: Backbone) -> None:
    batch = frames(2)
    with torch.no_grad():
        depth = net(batch)
        assert depth.shape == (2, 1, 64, 96)
        assert torch.equal(net.decode(net.encode(batch)), depth)


def test_decoding_twice_gives_the_same_answer(net: Backbone) -> None:
    latents = net.encode(frames())
    before = {name: X.clone() for name, X in latents.layers.items()}
    assert torch.equal(net.decode(latents), net.decode(latents))
    assert all(torch.equal(latents.layers[name], X) for name, X in before.items())


def test_nothing_is_remembered_between_encode_and_decode(net: Backbone) -> None:
    first, second = frames(1), frames(2, 48, 64, seed=1)
    with torch.no_grad():
        expected, latents = net(first), net.encode(first)
        net.encode(second)
        assert torch.equal(net.decode(latents), expected)


def test_every_latent_layer_matters(net: Backbone) -> None:
    with torch.no_grad():
        latents = net.encode(frames())
        plain = net.decode(latents)
        only_describes = {s.name for s in net.latent_specs if s.bottleneck} - set(net.default_layers)
        for name, X in latents.layers.items():
            if name in only_describes:  # as scalefree's signature, which no prototypes are for
                continue
            noise = torch.randn(X.shape, generator=torch.Generator().manual_seed(0)) * X.std()
            assert not torch.equal(net.decode(latents.with_layers({name: X + noise})), plain), name


def test_identity_prototypes_change_no_bit(net: Backbone) -> None:
    model, batch = ProtoDepth(net), frames(2)
    model.add_domain("same")
    with torch.no_grad():
        for s in model.domain("same").sets.values():
            s.A.fill_(1)
            s.P.zero_()
        bare = net(batch)
    assert torch.equal(model.predict_batch(batch, "same").depth, bare)
    assert torch.equal(model.predict_batch(batch, "base").depth, bare)


def test_a_batch_gives_what_single_frames_give(net: Backbone) -> None:
    batch = frames(3)
    with torch.no_grad():
        single = torch.cat([net(frame) for frame in batch.singles()])
        torch.testing.assert_close(net(batch), single, rtol=1e-5, atol=0)


def test_a_batch_of_mixed_domains_takes_one_pass_and_gives_what_single_frames_give(
    net: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = frames(3)
    model = disturbed(net, "a", "b")
    spec = net.bottleneck
    with torch.no_grad():
        s = sample_descriptor(net.encode(batch).layers[spec.name], spec.layout)
        s = s / s.norm(dim=1, keepdim=True)
        model.domain("a").descriptor.copy_(s[0] - s[1])  # frame 0 is on the side of a, frame 1 on that of b
        model.domain("b").descriptor.copy_(s[1] - s[0])
    single = [model.predict_batch(frame) for frame in batch.singles()]
    calls: list[str] = []
    for name in ("encode", "decode"):
        original = getattr(net, name)

        def counted(*args: Any, _name: str = name, _original: Any = original) -> Any:
            calls.append(_name)
            return _original(*args)

        monkeypatch.setattr(net, name, counted)
    mixed = model.predict_batch(batch)
    assert calls == ["encode", "decode"]
    assert mixed.domains[:2] == ("a", "b")
    assert mixed.domains == tuple(p.domains[0] for p in single)
    torch.testing.assert_close(mixed.depth, torch.cat([p.depth for p in single]), rtol=1e-5, atol=0)
    assert not torch.allclose(mixed.depth, model.predict_batch(batch, "a").depth, rtol=1e-5, atol=0)


def test_a_state_dict_carries_the_whole_network(kind: type[Backbone], net: Backbone) -> None:
    other, batch = build(kind, seed=1), frames()
    with torch.no_grad():
        assert not torch.equal(other(batch), net(batch))
        other.load_state_dict(net.state_dict(), strict=True)
        assert torch.equal(other(batch), net(batch))


def test_the_same_seed_gives_the_same_network_and_the_same_answer(kind: type[Backbone], net: Backbone) -> None:
    batch = frames(2)
    with torch.no_grad():
        first = net(batch)
        assert torch.equal(net(batch), first)
        assert torch.equal(build(kind)(batch), first)


def test_a_configuration_survives_json_and_builds_the_network_again(kind: type[Backbone]) -> None:
    with torch.device("meta"):  # shapes only: the full presets are large
        for preset in kind.presets:
            net = kind.from_preset(preset)
            again = kind(**json.loads(json.dumps(net.config())))
            assert again.config() == net.config()
            assert again.latent_specs == net.latent_specs
            assert again.depth_range == net.depth_range
            assert 0 < net.depth_range[0] < net.depth_range[1]
            shapes = {k: v.shape for k, v in net.state_dict().items()}
            assert {k: v.shape for k, v in again.state_dict().items()} == shapes


def test_a_preset_takes_another_range_and_unknown_presets_list_the_choices(kind: type[Backbone]) -> None:
    assert kind.from_preset(next(iter(kind.presets)), depth_range=(0.3, 5.0)).depth_range == (0.3, 5.0)
    with pytest.raises(UnknownNameError, match=next(iter(kind.presets))):
        kind.from_preset("no such preset")


def test_copies_and_pickles_are_the_same_network(net: Backbone) -> None:
    batch = frames()
    with torch.no_grad():
        depth = net(batch)
        assert torch.equal(copy.deepcopy(net)(batch), depth)
        assert torch.equal(pickle.loads(pickle.dumps(net))(batch), depth)  # noqa: S301  our own bytes


SIZES = [(32, 32), (33, 47), (57, 130), (480, 640)]


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@torch.no_grad()
def test_any_size_gives_depth_of_that_size_within_the_range(net: Backbone, size: tuple[int, int]) -> None:
    depth = net(frames(1, *size))
    assert depth.shape == (1, 1, *size)
    assert_in_range(net, depth)


@pytest.mark.slow
@torch.no_grad()
def test_a_full_waymo_frame(net: Backbone) -> None:
    model = disturbed(net, "a")
    depth = model.predict_batch(frames(1, 1280, 1920), "a").depth
    assert depth.shape == (1, 1, 1280, 1920)
    assert_in_range(net, depth)


@pytest.mark.parametrize("brightness", [0.0, 1.0])
@torch.no_grad()
def test_black_and_white_pictures_and_far_points_are_fine(net: Backbone, brightness: float) -> None:
    batch = frames()
    flat = Batch(
        image=torch.full_like(batch.image, brightness),
        sparse_depth=batch.sparse_depth * 1000,
        intrinsics=batch.intrinsics,
    )
    assert_in_range(net, net(flat))


@torch.no_grad()
def test_a_single_point_is_enough(net: Backbone) -> None:
    batch = frames()
    sparse = torch.zeros_like(batch.sparse_depth)
    sparse[..., 20, 30] = 2.0
    assert_in_range(net, net(Batch(image=batch.image, sparse_depth=sparse, intrinsics=batch.intrinsics)))


def test_gradients_reach_only_the_prototypes_and_the_descriptor_of_the_active_domain(net: Backbone) -> None:
    model, batch = ProtoDepth(net), frames(2)
    for name in ("old", "new"):
        model.add_domain(name, seed=len(name))
    model.set_domain("new")
    out = model(batch)
    names, R = model.descriptors()
    others = R[[n != "new" for n in names]]
    loss = out.depth.log().mean() + descriptor_loss(out.descriptor, model.domain("new").descriptor, others, 0.25)
    loss.backward()
    trained = {name for name, p in model.named_parameters() if p.grad is not None}
    expected = {f"_domains.d_new.sets.{layer}.{letter}" for layer in net.default_layers for letter in "APW"}
    assert trained == expected | {"_domains.d_new.descriptor"}
    for name, parameter in model.named_parameters():
        if name in trained:
            assert parameter.grad is not None
            assert torch.isfinite(parameter.grad).all(), name
            assert (parameter.grad != 0).any(), name


def test_the_network_itself_can_be_trained(net: Backbone) -> None:
    """For the first domain: every weight that asks for a gradient gets one."""
    net.train()
    net(frames(2)).log().mean().backward()
    for name, parameter in net.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert torch.isfinite(parameter.grad).all(), name


def test_a_saved_model_answers_bit_for_bit_the_same(net: Backbone, tmp_path: Path) -> None:
    batch = frames(2)
    model = disturbed(net, "a", "b")
    model.save_pretrained(tmp_path / "model")
    again = ProtoDepth.from_pretrained(tmp_path / "model")
    assert type(again.backbone) is type(net)
    for domain in ("base", "a", "b", None):
        assert torch.equal(again.predict_batch(batch, domain).depth, model.predict_batch(batch, domain).depth)


def test_the_documented_example_is_found_through_its_entry_point(example_installed: Path) -> None:
    assert EXAMPLE in backbones.names()
    assert Path(sys.modules["mynet"].__file__ or "").parent == example_installed
    sys.modules.pop("mynet")


@pytest.mark.parametrize("index", range(1, len(code_blocks())))
def test_the_other_code_of_the_page_runs(
    index: int, example_installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(example_installed)
    exec(compile(code_blocks()[index], f"add_a_backbone.md, block {index}", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out
    sys.modules.pop("mynet", None)
