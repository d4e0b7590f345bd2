"""ProtoDepth: what is frozen, what trains, who is chosen, and that old predictions never change."""

import threading
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch

from conftest import random_batch, shake, tiny_lite, tiny_model
from protodepth.backbones.kbnet import KBNet
from protodepth.errors import DataError, DomainError, UnknownNameError
from protodepth.geometry import Registration, register
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import build
from protodepth.model import ProtoDepth
from protodepth.prototypes import PrototypeConfig
from protodepth.training.fit import fit
from protodepth.training.schedule import Schedule
from protodepth.types import Batch


def point_descriptors_at(model: ProtoDepth, batch: Batch, names: tuple[str, ...]) -> None:
    """Make sample n choose names[n]: the descriptor of each domain becomes the descriptor of its first sample."""
    s = model.predict_batch(batch, "base").descriptor
    for name in dict.fromkeys(names):
        model.domain(name).descriptor.data.copy_(s[names.index(name)])


# --- the backbone stays as it is --------------------------------------------------------------------------------------


def test_the_backbone_has_no_gradients_and_stays_in_eval_mode_whatever_train_says(model: ProtoDepth) -> None:
    model.train(True)
    assert not any(m.training for m in model.backbone.modules())
    assert not any(p.requires_grad for p in model.backbone.parameters())
    model.set_domain("night")
    model(random_batch()).depth.sum().backward()
    assert all(p.grad is None for p in model.backbone.parameters())


def test_forward_creates_no_parameters(model: ProtoDepth, batch: Batch) -> None:
    before = [(n, p.data_ptr()) for n, p in model.named_parameters()]
    for domain in (None, "base", "room", "night"):
        model.predict_batch(batch, domain)
    assert [(n, p.data_ptr()) for n, p in model.named_parameters()] == before


def test_the_base_network_and_the_base_domain_give_exactly_what_the_network_alone_gives(
    model: ProtoDepth, batch: Batch
) -> None:
    with torch.no_grad():
        alone = model.backbone(batch)
    assert torch.equal(model.predict_batch(batch, "base").depth, alone)
    assert torch.equal(model.predict_batch(batch, "room").depth, alone)
    assert not torch.equal(model.predict_batch(batch, "night").depth, alone)


def test_a_domain_with_zero_prototypes_is_bit_identical_to_the_network(batch: Batch) -> None:
    model = tiny_model()
    model.add_domain("new")
    for s in model.domain("new").sets.values():
        s.P.data.zero_()
    assert torch.equal(model.predict_batch(batch, "new").depth, model.predict_batch(batch, "base").depth)


# --- only the active domain trains ------------------------------------------------------------------------------------


def test_only_the_active_domain_trains(model: ProtoDepth, batch: Batch) -> None:
    model.set_domain("warehouse")
    trained = {id(p) for p in model.trainable_parameters()}
    assert trained == {id(p) for p in model.domain("warehouse").parameters()}
    model(batch).depth.sum().backward()
    for name in ("room", "night"):
        assert all(not p.requires_grad and p.grad is None for p in model.domain(name).parameters())
    assert all(p.grad is not None for p in model.domain("warehouse").sets.parameters())


def test_nothing_trains_without_an_active_domain(model: ProtoDepth) -> None:
    for name in (None, "base"):
        model.set_domain(name)
        assert not any(p.requires_grad for p in model.parameters())
        with pytest.raises(DomainError, match="set_domain"):
            list(model.trainable_parameters())


def test_an_incremental_only_domain_has_no_descriptor_to_train_or_to_choose(model: ProtoDepth, batch: Batch) -> None:
    model.add_domain("plain", config=replace(model.config, learn_descriptor=False))
    model.set_domain("plain")
    assert id(model.domain("plain").descriptor) not in {id(p) for p in model.trainable_parameters()}
    assert "plain" not in model.predict_batch(batch).names


def test_old_predictions_stay_bit_identical_while_a_new_domain_trains(room: object, warehouse: object) -> None:
    model = tiny_model()
    model.add_domain("old")
    shake(model, "old")
    probe = random_batch(3, seed=5)
    before = {d: model.predict_batch(probe, d).depth.clone() for d in ("base", "old")}
    prints = model.fingerprint(), [p.clone() for p in model.domain("old").parameters()]
    objective = Objective(ObjectiveConfig(reduction="relative"), max_depth=8.0)
    method = build("protodepth", model, objective, model.config)
    method.begin_domain(warehouse, lambda m, d: None)  # type: ignore[arg-type]
    seen: list[bool] = []

    def look(step: int) -> None:
        seen.append(all(torch.equal(model.predict_batch(probe, d).depth, before[d]) for d in before))

    fit(method, warehouse, Schedule(steps=4, rate=3e-2), seed=0, each_step=look)  # type: ignore[arg-type]
    assert seen == [True] * 4
    assert model.fingerprint() == prints[0]
    assert all(torch.equal(a, b) for a, b in zip(model.domain("old").parameters(), prints[1], strict=True))
    assert not torch.equal(model.predict_batch(probe, "warehouse").depth, before["base"])


# --- choosing ---------------------------------------------------------------------------------------------------------


def test_a_mixed_batch_gives_what_the_single_images_give_in_one_encode_and_one_decode(model: ProtoDepth) -> None:
    model.add_domain(
        "small", config=PrototypeConfig(image_size=7, depth_size=1, layers=("skip1_depth", "latent")), seed=9
    )
    shake(model, "small", 9)
    batch, wanted = random_batch(6, seed=3), ("small", "night", "room", "warehouse", "night", "room")
    batch = replace(batch, image=batch.image * torch.linspace(0.1, 1, 6)[:, None, None, None])
    point_descriptors_at(model, batch, wanted)
    with (
        patch.object(model.backbone, "encode", wraps=model.backbone.encode) as encode,
        patch.object(model.backbone, "decode", wraps=model.backbone.decode) as decode,
    ):
        together = model.predict_batch(batch)
        assert (encode.call_count, decode.call_count) == (1, 1)
    assert together.domains[:4] == wanted[:4]
    for n, single in enumerate(batch.singles()):
        alone = model.predict_batch(single)
        named = model.predict_batch(single, together.domains[n])
        assert alone.domains == (together.domains[n],)
        assert torch.equal(alone.depth, named.depth)
        torch.testing.assert_close(together.depth[n : n + 1], alone.depth, rtol=1e-5, atol=1e-5)


def test_the_choice_is_made_from_latents_before_adaptation(model: ProtoDepth, batch: Batch) -> None:
    s = model.predict_batch(batch, "base").descriptor
    for domain in (None, "night"):
        assert torch.equal(model.predict_batch(batch, domain).descriptor, s)
    latent = model.backbone.encode(batch).layers["latent"]
    torch.testing.assert_close(s, latent.mean((2, 3)))


def test_the_domain_that_a_batch_carries_is_never_read(model: ProtoDepth, batch: Batch) -> None:
    told = replace(batch, domain="night")
    a, b = model.predict_batch(batch), model.predict_batch(told)
    assert a.domains == b.domains
    assert torch.equal(a.depth, b.depth)


def test_ground_truth_in_a_batch_changes_nothing(model: ProtoDepth, batch: Batch) -> None:
    wrong = replace(batch, ground_truth=torch.rand_like(batch.sparse_depth))
    assert torch.equal(model.predict_batch(batch, "night").depth, model.predict_batch(wrong, "night").depth)


def test_similarity_lists_the_cosine_to_every_descriptor(model: ProtoDepth, batch: Batch) -> None:
    out = model.predict_batch(batch)
    assert out.names == ("room", "warehouse", "night")
    for n, s in enumerate(out.descriptor.double().numpy()):
        for k, name in enumerate(out.names):
            r = model.domain(name).descriptor.detach().double().numpy()
            expected = s @ r / np.linalg.norm(s) / np.linalg.norm(r)
            assert float(out.similarity[n, k]) == pytest.approx(expected, abs=1e-5)  # type: ignore[index]


def test_without_any_domain_the_agnostic_answer_is_the_network() -> None:
    out = tiny_model().predict_batch(random_batch())
    assert out.domains == ("base", "base")
    assert out.similarity is None


def test_domains_without_descriptors_cannot_be_chosen_among(batch: Batch) -> None:
    model = tiny_model(learn_descriptor=False)
    model.add_domain("a")
    with pytest.raises(DomainError, match="name one of"):
        model.predict_batch(batch)
    model.predict_batch(batch, "a")


# --- names ------------------------------------------------------------------------------------------------------------


def test_an_unknown_domain_is_an_error_that_lists_the_known_ones(model: ProtoDepth, batch: Batch) -> None:
    for call in (
        lambda: model.set_domain("attic"),
        lambda: model.delete_domain("attic"),
        lambda: model.predict_batch(batch, "attic"),
        lambda: model.domain("attic"),
    ):
        with pytest.raises(UnknownNameError, match=r"'attic'.*room, warehouse, night"):
            call()


@pytest.mark.parametrize("name", ["", "base", "a/b", "../x", ".hidden", "a b", "-x", "x" * 65, "é"])
def test_names_that_are_no_folder_names_are_refused(name: str) -> None:
    with pytest.raises(DomainError, match="cannot name a domain"):
        tiny_model().add_domain(name)


@pytest.mark.parametrize("name", ["train", "forward", "keys", "type", "A", "0", "x" * 64])
def test_names_of_attributes_are_fine(name: str) -> None:
    model = tiny_model()
    model.add_domain(name)
    assert model.domains == (name,)


def test_a_domain_cannot_be_added_twice(model: ProtoDepth) -> None:
    before = model.domain("night")
    with pytest.raises(DomainError, match=r"exists.*protodepth domains remove --name .* --model MODEL"):
        model.add_domain("night")
    assert model.domain("night") is before


def test_an_unknown_layer_is_refused(model: ProtoDepth) -> None:
    with pytest.raises(UnknownNameError, match="skip9"):
        model.add_domain("x", config=PrototypeConfig(layers=("skip9",)))
    assert "x" not in model.domains


def test_using_restores_the_active_domain_also_after_an_error(model: ProtoDepth) -> None:
    model.set_domain("night")
    with pytest.raises(RuntimeError), model.using("warehouse"):  # noqa: PT012
        assert model.active == "warehouse"
        raise RuntimeError
    assert model.active == "night"


def test_deleting_the_active_domain_makes_the_model_agnostic(model: ProtoDepth, batch: Batch) -> None:
    model.set_domain("night")
    model.delete_domain("night")
    assert model.active is None
    assert model.domains == ("room", "warehouse")
    assert "night" not in model(batch).names


# --- counts -----------------------------------------------------------------------------------------------------------


def test_overhead_counts_every_prototype_exactly(model: ProtoDepth) -> None:
    overhead = model.overhead()
    sizes = {"image": 4, "fused": 4, "depth": 3}
    expected = {s.name: s.channels * (1 + sizes[s.modality] + s.channels) for s in model.backbone.latent_specs}
    assert overhead.layers["night"] == expected
    assert overhead.domains == {"room": 0, "warehouse": sum(expected.values()), "night": sum(expected.values())}
    assert overhead.descriptors == dict.fromkeys(("room", "warehouse", "night"), 12)
    assert overhead.backbone == sum(p.numel() for p in model.backbone.parameters())
    assert overhead.percent["night"] == pytest.approx(100 * sum(expected.values()) / overhead.backbone)
    everything = sum(p.numel() for p in model.parameters())
    assert everything == overhead.backbone + sum(overhead.domains.values()) + sum(overhead.descriptors.values())


def test_overhead_of_the_published_network_is_twice_the_printed_one() -> None:
    """The printed 0.25 M for KBNet (N = 10 and 5) counts half of W: sum of c² over the seven layers is about 0.48 M."""
    model = ProtoDepth(KBNet.from_preset("void"))
    model.add_domain("scannet")
    specs = [s for s in model.backbone.latent_specs if s.name in model.backbone.default_layers]
    squares = sum(s.channels**2 for s in specs)
    rest = sum(s.channels * (1 + (5 if s.modality == "depth" else 10)) for s in specs)
    count = model.overhead().domains["scannet"]
    assert len(specs) == 7
    assert count == squares + rest
    assert squares / 2 + rest == pytest.approx(0.25e6, rel=0.06)
    assert model.overhead().backbone == 6_957_764


# --- arrays in, arrays out --------------------------------------------------------------------------------------------


def test_predict_takes_arrays_and_returns_metres(model: ProtoDepth, batch: Batch) -> None:
    image = (batch.image[0].permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
    sparse, K = batch.sparse_depth[0, 0].numpy().copy(), batch.intrinsics[0].numpy()
    p = model.predict(image, sparse, K, domain="night")
    single = replace(batch[:1], image=torch.from_numpy(image).permute(2, 0, 1)[None] / 255)
    np.testing.assert_array_equal(p.depth, model.predict_batch(single, "night").depth[0, 0].numpy())
    assert p.domain == "night"
    assert set(p.similarity) == {"room", "warehouse", "night"}
    assert p.depth.shape == (32, 48)
    sparse[sparse == 0] = np.nan
    four = model.predict(image.astype(np.float32) / 255, sparse, (40.0, 42.0, 24.0, 16.0), domain="night")
    np.testing.assert_allclose(four.depth, p.depth, rtol=1e-5)


@pytest.mark.parametrize("size", [(8, 8), (9, 31), (33, 17), (100, 64)])
def test_any_size_is_completed(model: ProtoDepth, size: tuple[int, int]) -> None:
    height, width = size
    sparse = np.zeros(size)
    sparse[height // 2, width // 2] = 2.0
    p = model.predict(np.zeros((*size, 3), np.uint8), sparse, (50, 50, width / 2, height / 2))
    assert p.depth.shape == size
    assert np.isfinite(p.depth).all()
    assert (p.depth > 0.1).all()
    assert (p.depth < 8.0).all()


def test_a_frame_without_points_is_refused_with_a_reason(model: ProtoDepth) -> None:
    with pytest.raises(DataError, match="no points"):
        model.predict(np.zeros((16, 16, 3), np.uint8), np.zeros((16, 16)), (9, 9, 8, 8))


def test_two_networks_of_one_seed_have_one_fingerprint_and_a_changed_weight_another() -> None:
    a, b = ProtoDepth(tiny_lite(seed=4)), ProtoDepth(tiny_lite(seed=4))
    assert a.fingerprint() == b.fingerprint()
    next(b.backbone.parameters()).data.view(-1)[0] += 1e-6
    assert a.fingerprint() != b.fingerprint()
    assert ProtoDepth(tiny_lite((0.1, 9.0), seed=4)).fingerprint() != a.fingerprint()


def test_threads_predict_while_domains_come_and_go(model: ProtoDepth, batch: Batch) -> None:
    wrong: list[BaseException] = []
    end = threading.Event()
    expected = model.predict_batch(batch, "night").depth

    def look() -> None:
        try:
            while not end.is_set():
                model.predict_batch(batch)
                assert torch.equal(model.predict_batch(batch, "night").depth, expected)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for n in range(150):
        model.add_domain(f"new{n}", seed=n)
        if n % 3:
            model.rename_domain(f"new{n}", f"newer{n}")
            model.delete_domain(f"newer{n}")
    end.set()
    for thread in threads:
        thread.join()
    assert wrong == []


# --- pictures that do not lie on their depth --------------------------------------------------------------------------


def test_a_registration_moves_the_picture_of_its_own_domain_alone(model: ProtoDepth, batch: Batch) -> None:
    before = {name: model.predict_batch(batch, name).depth for name in ("base", "room", "night")}
    place = Registration(1.1, 0.05, -0.02)
    model.domain("night").registration = torch.tensor(place)
    moved = replace(batch, image=register(batch.image, torch.tensor([place]).expand(len(batch), 3)))
    for name in ("base", "room"):
        assert torch.equal(model.predict_batch(batch, name).depth, before[name])
    after = model.predict_batch(batch, "night").depth
    assert not torch.equal(after, before["night"])
    model.domain("night").registration = None
    assert torch.equal(after, model.predict_batch(moved, "night").depth)


def test_samples_of_a_mixed_batch_are_chosen_by_the_picture_as_it_came_and_completed_where_it_belongs(
    model: ProtoDepth,
) -> None:
    batch = random_batch(2)
    names = ("room", "night")
    point_descriptors_at(model, batch, names)
    model.domain("night").registration = torch.tensor([1.2, 0.0, 0.1])
    out = model.predict_batch(batch)
    assert out.domains == names
    for n, name in enumerate(names):
        alone = model.predict_batch(batch[n : n + 1], name).depth
        assert torch.allclose(out.depth[n], alone[0], rtol=1e-5)
