"""Models and domains as folders: what is refused, what survives a failing disk, what is noticed."""

import contextlib
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import random_batch, shake, tiny_lite, tiny_model
from helpers.descriptions import as_version_1, edit
from helpers.mutants import mutants
from protodepth.backbones.hooked import wrap
from protodepth.errors import CheckpointError, DomainError, ProtoDepthError
from protodepth.model import ProtoDepth
from protodepth.selection import Statistics
from protodepth.storage import files as stored_files
from protodepth.storage import folders
from protodepth.storage.history import History
from protodepth.types import Batch


def same(a: ProtoDepth, b: ProtoDepth, batch: Batch) -> bool:
    return a.domains == b.domains and all(
        torch.equal(a.predict_batch(batch, d).depth, b.predict_batch(batch, d).depth) for d in ("base", *a.domains)
    )


def stray(folder: Path) -> list[str]:
    return [str(p) for p in folder.rglob("*") if p.suffix in (".tmp", ".old")]


def test_a_saved_model_comes_back_bit_identical_with_everything_it_had(tmp_path: Path, batch: Batch) -> None:
    model = tiny_model(pose=True, layers=("latent", "skip2_depth"))
    model.add_domain("room", base=True)
    model.add_domain("night")
    shake(model, "night")
    model.history["night"] = History(source="somewhere", steps=3)
    model.save_pretrained(tmp_path / "m", notes={"why": "test"})
    again = ProtoDepth.from_pretrained(tmp_path / "m")
    assert same(model, again, batch)
    assert again.config == model.config
    assert again.domain("night").config == model.domain("night").config
    assert again.domain("room").base
    assert again.history == model.history
    assert again.fingerprint() == model.fingerprint()
    assert again.predict_batch(batch).domains == model.predict_batch(batch).domains
    theirs = again.pose.state_dict()  # type: ignore[union-attr]
    assert all(torch.equal(v, theirs[k]) for k, v in model.pose.state_dict().items())  # type: ignore[union-attr]
    assert not any(p.requires_grad for p in again.backbone.parameters())


def test_the_folder_has_the_promised_layout(model: ProtoDepth, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "m")
    files = {str(p.relative_to(tmp_path / "m")) for p in (tmp_path / "m").rglob("*") if p.is_file()}
    parts = ("weights.safetensors", "meta.json")
    domains = {f"domains/{d}/{file}" for d in model.domains for file in parts}
    assert files - {"README.md"} == {"config.json", "backbone.safetensors", *domains}
    meta = json.loads((tmp_path / "m/domains/night/meta.json").read_text())
    assert meta["format_version"] == 3
    assert len(meta["sealed"]) == 64
    assert meta["backbone_sha256"] == model.fingerprint()
    assert [s["name"] for s in meta["latents"]] == [s.name for s in model.backbone.latent_specs]
    assert meta["config"]["image_size"] == 4


def test_a_domain_travels_between_copies_of_one_network(model: ProtoDepth, tmp_path: Path, batch: Batch) -> None:
    model.save_domain("night", tmp_path / "night")
    other = ProtoDepth(tiny_lite())
    assert other.load_domain(tmp_path / "night") == "night"
    assert other.load_domain(tmp_path / "night", name="late") == "late"
    expected = model.predict_batch(batch, "night").depth
    assert torch.equal(other.predict_batch(batch, "night").depth, expected)
    assert torch.equal(other.predict_batch(batch, "late").depth, expected)


def test_a_domain_of_another_network_is_refused_with_both_names(model: ProtoDepth, tmp_path: Path) -> None:
    model.save_domain("night", tmp_path / "night")
    other = ProtoDepth(tiny_lite(seed=1))
    with pytest.raises(CheckpointError, match=r"learned on another network \(lite.*this model is lite"):
        other.load_domain(tmp_path / "night")
    assert other.domains == ()


def test_a_domain_with_a_taken_or_impossible_name_is_refused(model: ProtoDepth, tmp_path: Path) -> None:
    model.save_domain("night", tmp_path / "night")
    with pytest.raises(DomainError, match="exists"):
        model.load_domain(tmp_path / "night")
    with pytest.raises(DomainError, match="cannot name"):
        model.load_domain(tmp_path / "night", name="../up")


def test_saving_an_unknown_domain_writes_nothing(model: ProtoDepth, tmp_path: Path) -> None:
    with pytest.raises(ProtoDepthError, match="attic"):
        model.save_domain("attic", tmp_path / "attic")
    assert list(tmp_path.iterdir()) == []


def test_a_model_and_a_domain_folder_are_not_taken_for_each_other(model: ProtoDepth, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "m")
    model.save_domain("night", tmp_path / "d")
    with pytest.raises(CheckpointError, match=r"config.json is missing"):
        ProtoDepth.from_pretrained(tmp_path / "d")
    (tmp_path / "d" / "config.json").write_bytes((tmp_path / "d" / "meta.json").read_bytes())
    with pytest.raises(CheckpointError, match="holds a 'domain', expected a protodepth 'model'"):
        ProtoDepth.from_pretrained(tmp_path / "d")


def test_a_missing_model_names_the_bundled_ones(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no model 'nowhere'.*bundled name"):
        ProtoDepth.from_pretrained("nowhere")


def test_a_wrapped_network_asks_for_its_module(tmp_path: Path, batch: Batch) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Conv2d(4, 5, 3, padding=1), torch.nn.Conv2d(5, 1, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 1 + self.b(self.a(x)).sigmoid()

    def call(net: torch.nn.Module, b: Batch) -> torch.Tensor:
        return net(torch.cat([b.image, b.sparse_depth], 1))

    net = Net()
    model = ProtoDepth(wrap(net, taps=["a"], call=call))
    model.add_domain("x")
    shake(model, "x")
    model.save_pretrained(tmp_path / "m")
    with pytest.raises(CheckpointError, match="backbone=wrap"):
        ProtoDepth.from_pretrained(tmp_path / "m")
    again = ProtoDepth.from_pretrained(tmp_path / "m", backbone=wrap(Net(), taps=["a"], call=call))
    assert same(model, again, batch)


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["backbone.safetensors", "domains/night/weights.safetensors"])
def test_every_flipped_bit_of_the_weights_is_noticed(model: ProtoDepth, tmp_path: Path, file: str) -> None:
    model.save_pretrained(tmp_path / "m")
    path = tmp_path / "m" / file
    good = path.read_bytes()
    random = np.random.default_rng(0)
    for position in random.integers(0, len(good), 25):
        bad = bytearray(good)
        bad[position] ^= 1 << int(random.integers(8))
        path.write_bytes(bytes(bad))
        with pytest.raises(CheckpointError, match=r"checksum"):
            ProtoDepth.from_pretrained(tmp_path / "m")
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(CheckpointError, match="checksum"):
        ProtoDepth.from_pretrained(tmp_path / "m")
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        ProtoDepth.from_pretrained(tmp_path / "m")


@pytest.mark.parametrize("file", ["config.json", "domains/night/meta.json"])
def test_a_damaged_description_is_refused_and_never_ends_in_a_traceback(
    model: ProtoDepth, tmp_path: Path, file: str
) -> None:
    model.save_pretrained(tmp_path / "m")
    path = tmp_path / "m" / file
    good = path.read_bytes()
    random = np.random.default_rng(1)
    for _ in range(120):
        bad = bytearray(good)
        for position in random.integers(0, len(good), random.integers(1, 4)):
            bad[position] = int(random.integers(256))
        path.write_bytes(bytes(bad))
        with contextlib.suppress(ProtoDepthError):  # any other error fails the test
            ProtoDepth.from_pretrained(tmp_path / "m")
            assert json.loads(bad) == json.loads(good)  # only white space may differ in what is taken


def damage_and_load(model: ProtoDepth, folder: Path, counts: dict[str, int]) -> dict[str, int]:
    """So many damaged copies of each file of a model; how many were refused, and how many differ by white space."""
    model.save_pretrained(folder)
    other, seen = tiny_model(), {"refused": 0, "white space": 0, "reached": 0}
    for file, count in counts.items():
        path = folder / file
        good = path.read_bytes()
        for bad in mutants(good, count, seed=11):
            path.write_bytes(bad)
            seen["reached"] += path.suffix == ".safetensors" or is_json(bad)
            try:
                if path.parent == folder:
                    ProtoDepth.from_pretrained(folder)
                else:
                    other.load_domain(path.parent, name="night")
                    other.delete_domain("night")
            except ProtoDepthError as error:
                seen["refused"] += "\n" not in str(error)
            else:
                assert bad == good or (path.suffix == ".json" and json.loads(bad) == json.loads(good)), bad
                seen["white space"] += 1
        path.write_bytes(good)
    return seen


def is_json(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        return False


def test_damaged_folders_are_refused(model: ProtoDepth, tmp_path: Path) -> None:
    counts = {"config.json": 100, "domains/night/meta.json": 60, "domains/night/weights.safetensors": 20}
    seen = damage_and_load(model, tmp_path / "m", {**counts, "backbone.safetensors": 10})
    assert seen["refused"] + seen["white space"] == 190
    assert seen["refused"] > 150


@pytest.mark.slow
def test_of_ten_thousand_damaged_folders_none_loads_in_silence(model: ProtoDepth, tmp_path: Path) -> None:
    counts = {"config.json": 5000, "domains/night/meta.json": 3000, "domains/night/weights.safetensors": 1500}
    seen = damage_and_load(model, tmp_path / "m", {**counts, "backbone.safetensors": 500})
    assert seen["refused"] + seen["white space"] == 10_000
    print(seen)


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("config.json", '"separation": 0.25', '"separation": 0.26'),  # a setting that any value fits
        ("config.json", '"separation"', '"separatiom"'),
        ("config.json", '"format_version": 3', '"format_version": 1'),
        ("config.json", '"format_version": 3', '"format_version": 2'),
        ("config.json", '"sealed": "', '"sealed": "0'),
        ("domains/night/meta.json", '"stop_gradient": true', '"stop_gradient": false'),
        ("domains/night/meta.json", '"format_version": 3', '"format_version": 1'),
        ("domains/night/meta.json", '"history": {}', '"history": {"source": "elsewhere"}'),
    ],
)
def test_a_changed_setting_is_refused_when_a_model_is_loaded_and_when_it_is_written_over(
    model: ProtoDepth, tmp_path: Path, file: str, before: str, after: str
) -> None:
    """Also one that leaves a model that can be built."""
    model.save_pretrained(tmp_path / "m")
    path = tmp_path / "m" / file
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
    for refused in (lambda: ProtoDepth.from_pretrained(tmp_path / "m"), lambda: model.save_pretrained(tmp_path / "m")):
        with pytest.raises(CheckpointError, match=rf"{path.name} .*it was edited or is damaged"):
            refused()
    assert path.read_text() == text.replace(before, after)


def test_a_folder_without_a_checksum_of_its_settings_is_taken_and_it_is_said_once(
    model: ProtoDepth, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Folders that earlier versions wrote; saved again they have one."""
    model.save_pretrained(tmp_path / "m")
    assert ProtoDepth.from_pretrained(tmp_path / "m").domains
    assert caplog.text == ""
    for file in (tmp_path / "m").rglob("*.json"):
        as_version_1(file)
    again = ProtoDepth.from_pretrained(tmp_path / "m")
    assert caplog.text.count("have no checksum") == 1
    assert tiny_model().load_domain(tmp_path / "m" / "domains" / "night") == "night"
    assert caplog.text.count("have no checksum") == 2
    again.save_pretrained(tmp_path / "m")
    assert ProtoDepth.from_pretrained(tmp_path / "m").domains == model.domains
    assert caplog.text.count("have no checksum") == 2


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("config.json", "format_version", 99),
        ("config.json", "format_version", "1"),
        ("config.json", "kind", "letter"),
        ("config.json", "backbone", "resnet"),
        ("config.json", "backbone_config", {"colour": 3}),
        ("config.json", "backbone_config", []),
        ("config.json", "sha256", {}),
        ("config.json", "sha256", None),
        ("config.json", "sha256", {"backbone.safetensors": None}),
        ("config.json", "prototypes", {}),
        ("config.json", "prototypes", None),
        ("config.json", "domains", ["attic"]),
        ("config.json", "domains", 3),
        ("config.json", "pose_config", {"kind": "huge"}),
        ("domains/night/meta.json", "sha256", {"weights.safetensors": None}),
        ("domains/night/meta.json", "config", {"layers": None, "image_size": 2.5}),
        ("domains/night/meta.json", "config", {"layers": None, "image_size": 9}),
        ("domains/night/meta.json", "config", {"layers": ["skip9"]}),
        ("domains/night/meta.json", "history", "long ago"),
        ("domains/night/meta.json", "name", "../night"),
        ("domains/night/meta.json", "name", None),
        ("domains/night/meta.json", "base", True),
    ],
)
def test_a_wrong_entry_in_a_description_is_one_clear_error(
    model: ProtoDepth, tmp_path: Path, file: str, key: str, value: object
) -> None:
    model.save_pretrained(tmp_path / "m")
    edit(tmp_path / "m" / file, **{key: value})
    with pytest.raises(ProtoDepthError) as caught:
        ProtoDepth.from_pretrained(tmp_path / "m")
    assert "\n" not in str(caught.value)
    assert "checksum it states" not in str(caught.value)  # the entry itself is refused


def test_a_network_that_is_larger_than_the_file_of_its_weights_is_refused_before_it_takes_memory(
    model: ProtoDepth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's folder may ask for a network of any size: this one would take 10 TB."""
    model.save_pretrained(tmp_path / "m")
    network = json.loads((tmp_path / "m" / "config.json").read_text())["backbone_config"]
    edit(tmp_path / "m" / "config.json", backbone_config={**network, "image_widths": [300_000] * 5})
    with pytest.raises(CheckpointError, match=r"backbone\.safetensors has \d+ bytes, and the network .* needs \d{14}:"):
        ProtoDepth.from_pretrained(tmp_path / "m")


# --- what is overwritten, and when ------------------------------------------------------------------------------------


def test_saving_over_an_own_folder_replaces_it_and_over_anything_else_is_refused(
    model: ProtoDepth, tmp_path: Path, batch: Batch
) -> None:
    model.save_pretrained(tmp_path / "m")
    model.delete_domain("night")
    model.save_pretrained(tmp_path / "m")
    assert ProtoDepth.from_pretrained(tmp_path / "m").domains == ("room", "warehouse")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "config.json").write_text("{}")
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    (tmp_path / "note").write_text("a file")
    for target in ("thesis", "note"):
        with pytest.raises(CheckpointError, match="nothing was overwritten"):
            model.save_pretrained(tmp_path / target)
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "years of work"
    (tmp_path / "empty").mkdir()
    model.save_pretrained(tmp_path / "empty")
    assert same(model, ProtoDepth.from_pretrained(tmp_path / "empty"), batch)


def failing(monkeypatch: pytest.MonkeyPatch, at: int, error: BaseException) -> list[int]:
    """The n-th of all calls that write, flush, create or rename fails; returns the counter."""
    count = [0]

    def wrapped(call: Callable[..., object]) -> Callable[..., object]:
        def run(*args: object, **kwargs: object) -> object:
            count[0] += 1
            if count[0] == at:
                raise error
            return call(*args, **kwargs)

        return run

    monkeypatch.setattr(os, "fsync", wrapped(os.fsync))
    for name in ("open", "mkdir", "rename", "replace"):
        monkeypatch.setattr(Path, name, wrapped(getattr(Path, name)))
    return count


def operations(monkeypatch: pytest.MonkeyPatch, save: Callable[[], None]) -> int:
    with monkeypatch.context() as patch:
        count = failing(patch, -1, OSError())
        save()
        return count[0]


def test_a_disk_that_fails_at_any_operation_keeps_the_old_model_and_leaves_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = tiny_model(), tiny_model(seed=2)
    for m in (old, new):
        m.add_domain("d")
    prints = old.fingerprint(), new.fingerprint()
    old.save_pretrained(tmp_path / "m")
    total = operations(monkeypatch, lambda: new.save_pretrained(tmp_path / "count"))
    assert total > 12
    for n in range(1, total + 8):
        with monkeypatch.context() as patch:
            failing(patch, n, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
            try:
                new.save_pretrained(tmp_path / "m")
                failed = False
            except OSError:
                failed = True
        found = ProtoDepth.from_pretrained(tmp_path / "m").fingerprint()
        assert found in prints
        assert stray(tmp_path) == []
        if failed and n < total:
            assert found == prints[0], f"operation {n} of {total}"
        if not failed:
            old.save_pretrained(tmp_path / "m")


def test_a_program_killed_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    old, batch = tiny_model(), random_batch(1)
    old.save_pretrained(tmp_path / "m")
    (tmp_path / "m").rename(
        tmp_path / ".m.0123abcd.old"
    )  # what a kill leaves: the old one aside, the new one not in place
    (tmp_path / ".m.0123abcd.tmp").mkdir()
    assert same(ProtoDepth.from_pretrained(tmp_path / "m"), old, batch)
    old.save_pretrained(tmp_path / "m")
    assert stray(tmp_path) == []
    assert same(ProtoDepth.from_pretrained(tmp_path / "m"), old, batch)


def test_leftovers_of_other_folders_are_left_alone(tmp_path: Path) -> None:
    for name in (".m2.0123abcd.tmp", ".m.notes.old", "m.0123abcd.tmp", ".m.0123abcd.tmp.txt"):
        (tmp_path / name).mkdir()
    tiny_model().save_pretrained(tmp_path / "m")
    assert len(list(tmp_path.iterdir())) == 5


def test_the_current_folder_can_be_a_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_text("")
    with pytest.raises(CheckpointError, match="nothing was overwritten"):
        tiny_model().save_pretrained(".")


def test_bundled_models_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: Batch) -> None:
    monkeypatch.setattr(folders, "BUNDLED", tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    model = tiny_model()
    model.save_pretrained(tmp_path / "worlds-test")
    assert folders.bundled() == ("worlds-test",)
    assert same(ProtoDepth.from_pretrained("worlds-test"), model, batch)


def test_tied_and_empty_tensors_are_written(tmp_path: Path) -> None:
    shared = torch.arange(3.0)
    sha256 = stored_files.write_tensors(
        tmp_path / "t", {"a": shared, "b": shared, "c": torch.empty(0), "d": torch.tensor(2)}
    )
    back = stored_files.read_tensors(tmp_path / "t", sha256)
    assert torch.equal(back["a"], back["b"])
    assert back["c"].numel() == 0
    assert int(back["d"]) == 2


def test_the_network_is_hashed_once_however_many_domains_a_model_has(
    model: ProtoDepth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, real = [], folders.fingerprint
    monkeypatch.setattr(folders, "fingerprint", lambda m: calls.append(1) or real(m))
    assert len(model.domains) == 3
    model.save_pretrained(tmp_path / "m")
    assert len(calls) == 1
    assert ProtoDepth.from_pretrained(tmp_path / "m").domains == model.domains
    assert len(calls) == 2


def test_a_domain_keeps_where_its_picture_lies(model: ProtoDepth, tmp_path: Path, batch: Batch) -> None:
    model.domain("night").registration = torch.tensor([1.105, 0.0125, -0.003])
    model.save_pretrained(tmp_path / "m")
    again = ProtoDepth.from_pretrained(tmp_path / "m")
    assert same(model, again, batch)
    assert again.domain("room").registration is None


def test_statistics_travel_with_a_domain_and_those_of_another_network_are_refused(tmp_path: Path) -> None:
    model = tiny_model()
    model.add_domain("d")
    c = model.backbone.bottleneck.channels
    model.statistics["d"] = Statistics.of(torch.randn(5, c), torch.randn(3, c))
    model.save_domain("d", tmp_path / "d")
    again = tiny_model()
    again.load_domain(tmp_path / "d")
    assert torch.equal(again.statistics["d"].mean, model.statistics["d"].mean)
    meta = json.loads((tmp_path / "d" / "meta.json").read_text())
    for tensors in ({"mean": torch.zeros(c)}, Statistics.of(torch.randn(5, c + 1), torch.randn(3, c + 1)).tensors()):
        digest = stored_files.write_tensors(tmp_path / "d" / "statistics.safetensors", tensors)
        edit(tmp_path / "d" / "meta.json", sha256={**meta["sha256"], "statistics.safetensors": digest})
        with pytest.raises(CheckpointError, match="does not fit this network"):
            tiny_model().load_domain(tmp_path / "d")
