"""Domains are listed, renamed, described and shared:
what is said about them, and bit-identical depth in another process.
"""

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import random_batch, shake, tiny_model
from protodepth.data.frame import Domain
from protodepth.descriptors import similarity
from protodepth.errors import CheckpointError, DomainError, UnknownNameError
from protodepth.methods.statistics import sample_descriptors
from protodepth.model import ProtoDepth
from protodepth.storage.history import History
from protodepth.training.domains import describe_base, details, facts, similarity_matrix
from protodepth.types import Batch

OTHER_PROCESS = """
import sys, numpy as np, torch
from protodepth.model import ProtoDepth
from protodepth.types import Batch
torch.set_num_threads(1)
model = ProtoDepth.from_pretrained(sys.argv[1])
assert model.domains == ("room",), model.domains
name = model.load_domain(sys.argv[2])
data = np.load(sys.argv[3])
batch = Batch(**{k: torch.from_numpy(data[k]) for k in ("image", "sparse_depth", "intrinsics")})
np.save(sys.argv[4], model.predict_batch(batch, name).depth.numpy())
"""


def test_an_exported_domain_gives_the_same_bits_in_another_process(model: ProtoDepth, batch: Batch, tmp_path: Path):
    model.save_domain("night", tmp_path / "night")
    expected = model.predict_batch(batch, "night").depth.numpy()
    for name in ("warehouse", "night"):
        model.delete_domain(name)
    model.save_pretrained(tmp_path / "base")
    np.savez(tmp_path / "frames.npz", **{k: getattr(batch, k).numpy() for k in ("image", "sparse_depth", "intrinsics")})
    places = [str(tmp_path / n) for n in ("base", "night", "frames.npz", "depth.npy")]
    subprocess.run([sys.executable, "-c", OTHER_PROCESS, *places], check=True, timeout=120)
    assert np.array_equal(np.load(tmp_path / "depth.npy"), expected)


def test_a_domain_of_another_base_is_refused_with_both_names(model: ProtoDepth, tmp_path: Path):
    model.save_domain("night", tmp_path / "night")
    with pytest.raises(CheckpointError, match="learned on another network") as error:
        tiny_model(seed=5).load_domain(tmp_path / "night")
    assert model.fingerprint()[:12] in str(error.value)


def test_renaming_keeps_order_weights_history_and_the_active_domain(model: ProtoDepth, batch: Batch):
    model.history["warehouse"] = History(source="somewhere")
    expected = model.predict_batch(batch, "warehouse").depth
    model.set_domain("warehouse")
    model.rename_domain("warehouse", "store")
    assert model.domains == ("room", "store", "night")
    assert model.active == "store"
    assert model.history == {"store": History(source="somewhere")}
    assert torch.equal(model.predict_batch(batch, "store").depth, expected)
    trained = {id(p) for p in model.trainable_parameters()}
    assert trained == {id(p) for p in model.domain("store").parameters()}
    assert {id(p) for p in model.parameters() if p.requires_grad} == trained


@pytest.mark.parametrize(
    ("name", "new", "kind"),
    [
        ("garage", "x", UnknownNameError),
        ("night", "room", DomainError),
        ("night", "a/b", DomainError),
        ("night", "base", DomainError),
    ],
)
def test_a_rename_that_is_refused_changes_nothing(model: ProtoDepth, name: str, new: str, kind: type[Exception]):
    before = model.domains
    with pytest.raises(kind):
        model.rename_domain(name, new)
    assert model.domains == before


def test_facts_count_parameters_and_bytes(model: ProtoDepth, tmp_path: Path):
    model.history["night"] = History(source="walk", when="2031-05-04T10:00:00+00:00")
    model.save_pretrained(tmp_path / "m")
    found = facts(model, "night", tmp_path / "m")
    assert found.parameters == sum(p.numel() for p in model.domain("night").parameters())
    assert found.percent == pytest.approx(100 * found.parameters / sum(p.numel() for p in model.backbone.parameters()))
    assert found.bytes == sum(p.stat().st_size for p in (tmp_path / "m" / "domains" / "night").iterdir())
    assert (found.source, found.when, found.samples) == ("walk", "2031-05-04 10:00", "none")
    assert facts(model, "room").source == "-"


def test_the_matrix_is_the_cosine_of_every_pair(model: ProtoDepth):
    names, matrix = similarity_matrix(model)
    rows = np.stack([model.domain(n).descriptor.detach().numpy() for n in names])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.allclose(matrix, rows @ rows.T, atol=1e-6)


def test_describing_the_base_makes_it_the_choice_for_its_own_frames(room: Domain):
    model = tiny_model()
    model.add_domain("night")
    shake(model, "night")
    assert describe_base(model, room) == "room"
    s = sample_descriptors(model, room.test)
    names, R = model.descriptors()
    assert (similarity(s, R).argmax(-1) == names.index("room")).all()
    assert model.statistics["room"].count == 5  # of six: the last judges, since val is short
    assert model.history["room"].described == History(
        source="room", data=room.identity, when=model.history["room"].when
    )
    again = random_batch()
    assert torch.equal(model.predict_batch(again, "room").depth, model.predict_batch(again, "base").depth)


def test_describe_refuses_an_adapted_domain_and_a_second_base(model: ProtoDepth, room: Domain):
    with pytest.raises(DomainError, match="adapted domain"):
        describe_base(model, room, "night")
    with pytest.raises(DomainError, match="described already, as 'room'"):
        describe_base(model, dataclasses.replace(room, name="hall"))


def test_details_say_from_where_on_a_frame_is_unknown(room: Domain, warehouse: Domain):
    model = tiny_model()
    describe_base(model, room)
    found = details(model, "room")
    assert found["base"]
    assert found["parameters"] == {"descriptor": model.backbone.bottleneck.channels}
    assert found["statistics"]["left_out"] == len(room.val) + 1
    assert found["statistics"]["distance_of_mean"]["room"] == 0
    assert found["statistics"]["unknown_beyond"] > 0
    with pytest.raises(UnknownNameError):
        details(model, "garage")
