"""The prototype layer and the descriptor loss against the published ones, with their gradients."""

import pytest
import torch
from fixture_tools import TOLERANCE, Fixture, relative_error

from protodepth.descriptors import descriptor_loss, sample_descriptor, select, similarity
from protodepth.prototypes import PrototypeConfig, PrototypeSet, apply
from protodepth.storage.official.prototypes import LAYERS
from protodepth.types import LatentSpec, Modality


@pytest.fixture(scope="module")
def fixture():
    return Fixture("prototype_layer")


@pytest.fixture
def layer(fixture):
    """Prototype sets with the stored values, and the latent layers they adapt."""
    domain = next(key.split("/")[1] for key in fixture.arrays.files if key.startswith("param/") and key.count("/") == 3)
    latents = {key.removeprefix("in/"): fixture[key] for key in fixture.arrays.files if key.startswith("in/")}
    sets = {}
    for theirs, ours in LAYERS.items():
        A, P, W = (fixture[f"param/{domain}/{theirs}/{letter}"] for letter in "APW")
        sets[ours] = PrototypeSet(P.shape[1], P.shape[0], PrototypeConfig(), torch.Generator())
        sets[ours].load_state_dict({"A": A.reshape(-1), "P": P, "W": W.mT})
    return latents, sets


def specs(latents):
    return [LatentSpec(name, X.shape[1], Modality.IMAGE) for name, X in latents.items()]


def adapted(latents, sets):
    """Outputs in the order of the stored incoming gradients: latent, then the concatenated skips of levels 1 to 4."""
    out = apply(latents, {name: s.values() for name, s in sets.items()}, specs(latents))
    return [out["latent"], *(torch.cat([out[f"skip{n}_image"], out[f"skip{n}_depth"]], 1) for n in (1, 2, 3, 4))]


def test_adapted_layers_equal_the_published_ones(fixture, layer):
    names = ["latent", *(f"skip{n}_cat" for n in (1, 2, 3, 4))]
    for name, value in zip(names, adapted(*layer), strict=True):
        fixture.check(f"out/{name}", value, 1e-5)


def test_gradients_of_A_P_and_W_equal_the_published_ones(fixture, layer):
    latents, sets = layer
    outputs = adapted(latents, sets)
    learned = [i for i, value in enumerate(outputs) if value.requires_grad]  # level 1 passes through
    assert learned == [0, 2, 3, 4]
    torch.autograd.backward([outputs[i] for i in learned], [fixture[f"grad_in/{i}"] for i in learned])
    for theirs, ours in LAYERS.items():
        fixture.check(f"grad/{theirs}/A", sets[ours].A.grad[:, None, None], 1e-5)
        fixture.check(f"grad/{theirs}/P", sets[ours].P.grad, 1e-5)
        fixture.check(f"grad/{theirs}/W", sets[ours].W.grad.mT, 1e-5)


def descriptors(fixture):
    count = sum(key.startswith("param/selector_") for key in fixture.arrays.files)
    return torch.stack([fixture[f"param/selector_{i}"][:, 0] for i in range(count)])


def test_descriptor_cosines_and_choice_equal_the_published_ones(fixture):
    s = sample_descriptor(fixture["in/latent"], "bchw")
    fixture.check("out/sample_descriptor", s, 1e-6)
    cosines = similarity(s, descriptors(fixture))
    fixture.check("out/cosine", cosines, 1e-5)
    assert torch.equal(select(cosines), fixture["out/agnostic_index_per_sample"])
    assert int(cosines.mean(0).argmax()) == int(fixture["out/agnostic_index_batch_mean"])


def test_descriptor_loss_and_its_gradient_equal_the_published_ones(fixture):
    s, R = sample_descriptor(fixture["in/latent"], "bchw"), descriptors(fixture)
    checked = 0
    for label, stored in fixture.meta["agnostic_loss"].items():
        settings = dict(part.split("=") for part in label.split(",") if "=" in part)
        plain = [float(part) for part in label.split(",") if "=" not in part]
        k, n = int(settings["key_idx"]), int(settings["n"])
        weight = float(settings.get("lambda_agnostic", plain[0] if plain else 1))
        separation = float(settings.get("lambda_kk", plain[1] if plain else 0))
        r = R[k].clone().requires_grad_(True)
        others = torch.stack([R[i] for i in range(n) if i != k]) if n > 1 else R[:0]
        loss = weight * descriptor_loss(s, r, others, separation)
        assert float(loss.detach()) == pytest.approx(stored, rel=1e-5), label
        loss.backward()
        key = f"out/agnostic_grad/{k}_{weight}_{separation}"
        if n == len(R) and key in fixture.arrays.files:
            assert relative_error(r.grad[:, None], fixture.arrays[key]) < TOLERANCE
            checked += 1
    assert checked == sum(key.startswith("out/agnostic_grad/") for key in fixture.arrays.files)
