"""Official checkpoint files: what is read, what is refused, and what the message says."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from protodepth.backbones.base import backbones
from protodepth.backbones.fusionnet import FusionNet
from protodepth.backbones.kbnet import KBNet
from protodepth.backbones.posenet import PoseNet
from protodepth.backbones.scaffnet import ScaffNet
from protodepth.backbones.voiced import VOICED
from protodepth.cli.main import run
from protodepth.errors import CheckpointError, DomainError, UnknownNameError
from protodepth.model import ProtoDepth
from protodepth.storage.official.convert import convert, convert_with_report
from protodepth.storage.official.prototypes import LAYERS, load_official_prototypes
from protodepth.storage.official.read import detect, read_official
from protodepth.types import Batch


def content_of(module, prefix: str = "") -> dict:
    """The official layout of one of our networks: the inverse of its key map, with a step number and an optimiser."""
    parts = {theirs: module.get_submodule(ours) for theirs, ours in module.official_keys.items() if _has(module, ours)}
    states = {theirs: {prefix + n: t for n, t in part.state_dict().items()} for theirs, part in parts.items()}
    return {"train_step": 5, "optimizer_state_dict": {"state": {}, "param_groups": [{"lr": 1e-4}]}, **states}


def _has(module, name: str) -> bool:
    return name in dict(module.named_modules())


def saved(content, folder: Path, name: str = "net.pth", **options) -> Path:
    torch.save(content, folder / name, **options)
    return folder / name


@pytest.fixture(scope="module")
def kbnet():
    return KBNet.from_preset("void", coordinates="official")


def frame(height=33, width=40):
    g = torch.Generator().manual_seed(1)
    z = torch.rand(1, 1, height, width, generator=g) * (torch.rand(1, 1, height, width, generator=g) < 0.1) * 5
    K = torch.tensor([[[40.0, 0, width / 2], [0, 40.0, height / 2], [0, 0, 1]]])
    return Batch(image=torch.rand(1, 3, height, width, generator=g), sparse_depth=z, intrinsics=K)


# -- what is read


@pytest.mark.parametrize("prefix", ["", "module."])
def test_kbnet_is_read_with_and_without_module_prefix(tmp_path, kbnet, prefix):
    model = convert("kbnet", saved(content_of(kbnet, prefix), tmp_path), preset="void")
    assert model.backbone.config() == kbnet.config()
    assert torch.equal(model.predict_batch(frame(), "base").depth, kbnet(frame()))


def test_old_files_without_the_zip_container_are_read(tmp_path, kbnet):
    path = saved(content_of(kbnet), tmp_path, _use_new_zipfile_serialization=False)
    assert torch.equal(convert("kbnet", path, preset="void").backbone(frame()), kbnet(frame()))


@pytest.mark.parametrize(
    ("network", "preset"),
    [("voiced", "void"), ("fusionnet", "void"), ("fusionnet", "kitti_nospp"), ("scaffnet", "kitti")],
)
def test_the_other_networks_are_read(tmp_path, network, preset):
    net = backbones.get(network).from_preset(preset).eval()
    model = convert(network, saved(content_of(net), tmp_path), preset=preset)
    assert torch.equal(model.backbone(frame()), net(frame()))


def test_a_file_without_spatial_pyramid_pool_is_noticed_and_read(tmp_path):
    net = FusionNet.from_preset("void_nospp").eval()
    done = convert_with_report("fusionnet", saved(content_of(net), tmp_path), preset="void")
    assert torch.equal(done.model.backbone(frame()), net(frame()))
    assert "no spatial pyramid pool" in str(done)


def test_scaffnet_is_read_out_of_a_fusionnet_file(tmp_path):
    net = FusionNet.from_preset("void").eval()
    done = convert_with_report("scaffnet", saved(content_of(net), tmp_path), preset="void")
    assert torch.equal(done.model.backbone(frame()), net.scaffnet(frame()))
    assert "fusionnet_decoder_state_dict" in done.reports[0].unexpected


@pytest.mark.parametrize(("kind", "network"), [("resnet18", "kbnet"), ("posenet", "voiced")])
def test_the_pose_network_comes_along_with_the_networks_rotation(tmp_path, kind, network):
    net = backbones.get(network).from_preset("void")
    pose = PoseNet(kind, **{k: v for k, v in net.default_pose.items() if k != "kind"}).eval()
    files = saved(content_of(net), tmp_path), saved(content_of(pose, "module."), tmp_path, "pose.pth")
    model = convert(network, files[0], preset="void", pose=files[1])
    a, b = torch.rand(2, 1, 3, 64, 96)
    assert torch.equal(model.pose.eval()(a, b), pose(a, b))
    assert model.pose.rotation == net.default_pose["rotation"]
    other = convert(network, files[0], preset="void", pose=files[1], rotation="exponential")
    assert other.pose.rotation == "exponential"


def test_the_command_takes_the_rotation_and_the_depth_range_of_another_training(tmp_path, capsys):
    net = saved(content_of(VOICED.from_preset("void")), tmp_path)
    pose = saved(content_of(PoseNet("posenet")), tmp_path, "pose.pth")
    arguments = ["convert", "voiced", str(net), "--out", str(tmp_path / "m")]
    extra = ["--pose", str(pose), "--rotation", "exponential", "--depth-range", "0.2", "5"]
    assert run([*arguments, *extra]) == 0
    assert "rotation exponential" in capsys.readouterr().out
    model = ProtoDepth.from_pretrained(tmp_path / "m")
    assert model.backbone.depth_range == (0.2, 5.0)
    assert model.pose.rotation == "exponential"
    for wrong, cause in (
        (["--rotation", "euler"], "give its checkpoint too"),
        (["--depth-range", "5", "0.2"], "nearest < farthest"),
    ):
        assert run([*arguments, *wrong]) == 2
        assert cause in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "photo.png").touch()
    assert run(["convert", "voiced", str(net), "--out", str(tmp_path / "mine")]) == 2
    assert "nothing was overwritten" in capsys.readouterr().err


def test_a_converted_model_is_a_normal_model_folder(tmp_path, kbnet):
    model = convert("kbnet", saved(content_of(kbnet), tmp_path), preset="void", depth_range=(0.2, 5.0))
    model.save_pretrained(tmp_path / "model")
    again = ProtoDepth.from_pretrained(tmp_path / "model")
    assert again.backbone.config()["coordinates"] == "official"
    assert again.backbone.depth_range == (0.2, 5.0)
    assert torch.equal(again.predict_batch(frame(), "base").depth, model.predict_batch(frame(), "base").depth)


def test_the_report_accounts_for_every_tensor_and_entry(tmp_path, kbnet):
    content = content_of(kbnet)
    content["something_else"] = [1, 2]
    report = convert_with_report("kbnet", saved(content, tmp_path), preset="void").reports[0]
    assert set(report.loaded) == set(kbnet.state_dict())
    assert report.parameters == 6_957_764
    assert report.missing == ()
    assert report.unexpected == ()
    assert report.ignored == ("train_step", "optimizer_state_dict", "something_else")
    assert "35 tensors, 6,957,764 numbers loaded" in str(report)
    assert "missing: none" in str(report)


def test_missing_batch_counters_of_very_old_files_are_reported_and_nothing_else_may_miss(tmp_path):
    net = ScaffNet.from_preset("void")
    content = content_of(net)
    for state in content.values():
        if isinstance(state, dict):
            for name in [n for n in state if n.endswith("num_batches_tracked")]:
                del state[name]
    report = convert_with_report("scaffnet", saved(content, tmp_path), preset="void").reports[0]
    assert report.missing
    assert all(name.endswith("num_batches_tracked") for name in report.missing)


# -- what is refused


class Evil:
    """Unpickling this would create a file."""

    def __init__(self, target: Path) -> None:
        self.target = str(target)

    def __reduce__(self):
        return os.mkdir, (self.target,)


@pytest.mark.parametrize("container", ["zip", "legacy", "bare pickle"])
def test_a_malicious_pickle_is_refused_and_runs_nothing(tmp_path, kbnet, container):
    target, path = tmp_path / "ran", tmp_path / "net.pth"
    content = {**content_of(kbnet), "extra": Evil(target)}
    if container == "bare pickle":
        path.write_bytes(pickle.dumps({"encoder_state_dict": Evil(target)}))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=container == "zip")
    for read in (lambda: read_official(path), lambda: convert("kbnet", path, preset="void")):
        with pytest.raises(CheckpointError) as error:
            read()
        assert not target.exists()
    if container != "bare pickle":
        assert "refused, nothing was run" in str(error.value)
        assert "mkdir" in str(error.value)


def test_a_pickled_module_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="refused"):
        read_official(saved(torch.nn.Linear(2, 2), tmp_path))


@pytest.mark.parametrize("legacy", [False, True])
def test_a_file_cut_anywhere_is_refused_with_one_message(tmp_path, legacy):
    content = {"train_step": 1, "encoder_state_dict": {"a": torch.randn(40, 3), "b": torch.randn(7)}, "names": ["x"]}
    whole = saved(content, tmp_path, _use_new_zipfile_serialization=not legacy).read_bytes()
    cut = tmp_path / "cut.pth"
    for length in np.linspace(0, len(whole) - 1, 60).astype(int):
        cut.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"cut\.pth"):
            read_official(cut)


def test_flipped_bytes_never_raise_anything_but_the_projects_error(tmp_path):
    content = {"train_step": 1, "encoder_state_dict": {"a": torch.randn(40, 3)}, "names": ["x", "y"]}
    rng = np.random.default_rng(0)
    refused = 0
    for legacy in (False, True):
        whole = saved(content, tmp_path, _use_new_zipfile_serialization=not legacy).read_bytes()
        for _ in range(150):
            data = bytearray(whole)
            for position in rng.integers(0, len(data), rng.choice([1, 4])):
                data[position] = rng.integers(256)
            (tmp_path / "flipped.pth").write_bytes(bytes(data))
            try:
                read_official(tmp_path / "flipped.pth")
            except CheckpointError:
                refused += 1
    assert refused > 20


@pytest.mark.parametrize(
    ("data", "cause"),
    [(b"", "empty"), (b"<html>404</html>", "not a PyTorch checkpoint"), (b"PK\x03\x04rest", "cut or damaged")],
)
def test_what_is_not_a_checkpoint_is_named(tmp_path, data, cause):
    (tmp_path / "net.pth").write_bytes(data)
    with pytest.raises(CheckpointError, match=cause):
        convert("kbnet", tmp_path / "net.pth", preset="void")


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    for path in (tmp_path / "no.pth", tmp_path):
        with pytest.raises(CheckpointError, match="does not exist or is not a file"):
            read_official(path)


@pytest.mark.parametrize(
    ("network", "preset", "expected"),
    [
        ("kbnet", "kitti", "5 pooling maps: this is a void checkpoint, use --preset void"),
        ("voiced", "void", r"is a kbnet checkpoint \(5 pooling maps\), expected voiced: convert it as kbnet"),
        ("fusionnet", "kitti", "is a kbnet checkpoint"),
    ],
)
def test_another_preset_or_network_is_named_with_what_to_do(tmp_path, kbnet, network, preset, expected):
    with pytest.raises(CheckpointError, match=expected):
        convert(network, saved(content_of(kbnet), tmp_path), preset=preset)


def test_a_kitti_file_given_as_void_says_seven_maps(tmp_path):
    path = saved(content_of(KBNet.from_preset("kitti")), tmp_path)
    with pytest.raises(CheckpointError, match="7 pooling maps: this is a kitti checkpoint, use --preset kitti"):
        convert("kbnet", path, preset="void")


def test_pyramid_pool_where_none_is_expected_is_named(tmp_path):
    path = saved(content_of(ScaffNet.from_preset("void")), tmp_path)
    with pytest.raises(CheckpointError, match="use --preset void, not void_nospp"):
        convert("scaffnet", path, preset="void_nospp")


def test_a_pose_file_given_as_the_network_and_the_reverse_are_named(tmp_path, kbnet):
    depth, pose = saved(content_of(kbnet), tmp_path), saved(content_of(PoseNet("posenet")), tmp_path, "pose.pth")
    with pytest.raises(CheckpointError, match="give it as the pose network"):
        convert("kbnet", pose, preset="void")
    with pytest.raises(CheckpointError, match="expected the checkpoint of a pose network"):
        convert("kbnet", depth, preset="void", pose=depth)


def test_a_dictionary_of_something_else_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="none of the published checkpoints"):
        convert("kbnet", saved({"model": {"w": torch.ones(1)}}, tmp_path), preset="void")
    with pytest.raises(CheckpointError, match="holds a list"):
        convert("kbnet", saved([1, 2], tmp_path), preset="void")


def test_the_first_difference_is_named(tmp_path, kbnet):
    content = content_of(kbnet)
    content["decoder_state_dict"]["output0.conv.weight"] = torch.ones(2, 12, 3, 3)
    with pytest.raises(CheckpointError, match=r"decoder.output0.conv.weight: shape \(2, 12, 3, 3\) in the file"):
        convert("kbnet", saved(content, tmp_path), preset="void")
    del content["decoder_state_dict"]["output0.conv.weight"]
    with pytest.raises(CheckpointError, match=r"decoder.output0.conv.weight \(missing\)"):
        convert("kbnet", saved(content, tmp_path), preset="void")
    content = content_of(kbnet)
    content["encoder_state_dict"]["conv9.weight"] = torch.ones(1)
    with pytest.raises(CheckpointError, match=r"encoder.conv9.weight \(unexpected\)"):
        convert("kbnet", saved(content, tmp_path), preset="void")


def test_weights_that_are_not_finite_are_refused(tmp_path, kbnet):
    content = content_of(kbnet)
    state = content["encoder_state_dict"]
    state["conv0_image.conv.weight"] = torch.full_like(state["conv0_image.conv.weight"], torch.nan)
    with pytest.raises(CheckpointError, match="NaN"):
        convert("kbnet", saved(content, tmp_path), preset="void")


@pytest.mark.parametrize(("network", "preset"), [("unet", "void"), ("kbnet", "nyu"), ("kbnet", "small")])
def test_unknown_networks_and_presets_list_the_choices(tmp_path, network, preset):
    with pytest.raises(UnknownNameError, match=r"void|kbnet"):
        convert(network, tmp_path / "net.pth", preset=preset)


def test_layouts_are_told_apart(kbnet):
    found = {detect(content_of(net)).network for net in (kbnet, VOICED(), FusionNet(), ScaffNet(), PoseNet("posenet"))}
    assert found == {"kbnet", "voiced", "fusionnet", "scaffnet", "pose"}
    assert detect({"epoch": 1}) is None


# -- prototypes

CHANNELS = {"i2": 96, "d2": 32, "i3": 192, "d3": 64, "i4": 384, "d4": 128, "latent": 512}


def prototype_content(names=("zebra", "ant"), selectors: int | None = None) -> dict:
    g = torch.Generator().manual_seed(3)
    content = {"train_step": 9, "dataset_uids": list(names)}
    for layer, c in CHANNELS.items():
        size = 3 if layer.startswith("d") else 4
        for kind, shape in (("key_pools", (c, c)), ("token_pools", (size, c)), ("linear", (c, 1, 1))):
            content[f"{layer}_{kind}_state_dict"] = {n: torch.randn(shape, generator=g) for n in sorted(names)}
    for i in range(len(names) if selectors is None else selectors):
        content[f"selector_{i}"] = torch.nn.Parameter(torch.randn(512, 1, generator=g))
    return content


@pytest.fixture
def model(kbnet):
    return ProtoDepth(KBNet.from_preset("void"))


def test_prototypes_are_loaded_with_W_transposed_and_descriptors_bound_by_stored_name(tmp_path, model):
    content = prototype_content()
    names = load_official_prototypes(model, saved(content, tmp_path))
    assert names == model.domains == ("zebra", "ant")
    for i, name in enumerate(content["dataset_uids"]):  # the pools are in another order than the list of names
        domain = model.domain(name)
        assert torch.equal(domain.descriptor, content[f"selector_{i}"][:, 0])
        for theirs, ours in LAYERS.items():
            assert torch.equal(domain.sets[ours].W, content[f"{theirs}_key_pools_state_dict"][name].T)
            assert torch.equal(domain.sets[ours].P, content[f"{theirs}_token_pools_state_dict"][name])
            assert torch.equal(domain.sets[ours].A, content[f"{theirs}_linear_state_dict"][name].flatten())
        assert (domain.config.image_size, domain.config.depth_size) == (4, 3)


def test_prototypes_can_be_picked_and_renamed(tmp_path, model):
    path = saved(prototype_content(), tmp_path)
    assert load_official_prototypes(model, path, ["ant"]) == ("ant",)
    assert load_official_prototypes(model, path, {"ant": "insects"}) == ("insects",)
    assert torch.equal(model.domain("ant").descriptor, model.domain("insects").descriptor)
    assert model.history["insects"].stored_as == "ant"
    with pytest.raises(UnknownNameError, match="zebra, ant"):
        load_official_prototypes(model, path, ["bee"])


def test_prototypes_without_descriptors_are_used_by_name_only(tmp_path, model):
    model.load_official_prototypes(saved(prototype_content(selectors=0), tmp_path))
    assert model.descriptors()[0] == ()
    assert model.predict_batch(frame(), "ant").domains == ("ant",)


def test_all_prototypes_are_added_or_none(tmp_path, model):
    model.add_domain("ant")
    with pytest.raises(DomainError, match="exists"):
        load_official_prototypes(model, saved(prototype_content(), tmp_path))
    assert model.domains == ("ant",)


def test_prototypes_survive_saving_and_loading(tmp_path, model):
    load_official_prototypes(model, saved(prototype_content(), tmp_path))
    model.save_domain("ant", tmp_path / "ant")
    before = model.predict_batch(frame(), "ant").depth
    model.delete_domain("ant")
    model.load_domain(tmp_path / "ant")
    assert torch.equal(model.predict_batch(frame(), "ant").depth, before)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: c.update(dataset_uids=["ant"]), "the two must agree"),
        (lambda c: c.pop("dataset_uids"), "the two must agree"),
        (lambda c: c["i3_linear_state_dict"].pop("ant"), "no i3_linear for domain 'ant'"),
        (lambda c: c["d2_token_pools_state_dict"].update(ant=torch.ones(3, 7)), "another network or size"),
    ],
)
def test_inconsistent_prototype_files_are_refused(tmp_path, model, change, expected):
    content = prototype_content()
    change(content)
    with pytest.raises(CheckpointError, match=expected):
        load_official_prototypes(model, saved(content, tmp_path))
    assert model.domains == ()


def test_a_network_file_is_not_a_prototype_file(tmp_path, model, kbnet):
    with pytest.raises(CheckpointError, match="a kbnet checkpoint, expected a prototype file"):
        load_official_prototypes(model, saved(content_of(kbnet), tmp_path))
    with pytest.raises(CheckpointError, match="load_official_prototypes"):
        convert("kbnet", saved(prototype_content(), tmp_path), preset="void")
