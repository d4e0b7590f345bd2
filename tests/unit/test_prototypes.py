"""Eq. 6-8 against a loop written from the paper, gradients, starts, sizes, and the gathering of mixed batches."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from protodepth.errors import ConfigError
from protodepth.prototypes import (
    DomainPrototypes,
    PrototypeConfig,
    PrototypeSet,
    Values,
    adapt,
    apply,
    bias,
    gather,
    keys,
)
from protodepth.types import LatentSpec, Modality

SPECS = (
    LatentSpec("skip_image", 4, Modality.IMAGE),
    LatentSpec("skip_depth", 3, Modality.DEPTH),
    LatentSpec("tokens", 5, Modality.IMAGE, layout="bnc"),
    LatentSpec("latent", 6, Modality.FUSED, bottleneck=True),
)


def paper(X: np.ndarray, A: np.ndarray, P: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Eq. 6-8 for one sample, one query at a time."""
    n, c = X.shape
    K = P @ W
    adapted = np.zeros_like(X)
    for i in range(n):
        scores = np.array([sum(X[i, d] * K[m, d] for d in range(c)) / math.sqrt(c) for m in range(len(P))])
        weights = np.exp(scores) / np.exp(scores).sum()
        b = sum(weights[m] * P[m] for m in range(len(P)))
        adapted[i] = A * X[i] + b
    return adapted


def moved(size: int = 3, channels: int = 4, seed: int = 0, **config: object) -> PrototypeSet:
    random = torch.Generator().manual_seed(seed)
    made = PrototypeSet(channels, size, PrototypeConfig(**config), random)  # type: ignore[arg-type]
    with torch.no_grad():
        for p in made.parameters():
            p.add_(torch.randn(p.shape, generator=random))
    return made


def latents(b: int = 3, seed: int = 0) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {
        s.name: torch.randn(b, 7, s.channels, generator=random)
        if s.layout == "bnc"
        else torch.randn(b, s.channels, 2, 3, generator=random)
        for s in SPECS
    }


def domain(
    specs: tuple[LatentSpec, ...] = SPECS, seed: int = 0, base: bool = False, **config: object
) -> DomainPrototypes:
    made = DomainPrototypes(specs, 6, PrototypeConfig(**config), base=base, seed=seed)  # type: ignore[arg-type]
    with torch.no_grad():
        for p in made.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(seed + 1)))
    return made


def test_a_prototype_set_computes_equations_6_to_8_as_a_loop_from_the_paper_does() -> None:
    s, X = moved(size=5, channels=6), torch.randn(2, 9, 6)
    A, P, W = (t.detach().double().numpy() for t in (s.A, s.P, s.W))
    expected = np.stack([paper(x.double().numpy(), A, P, W) for x in X])
    np.testing.assert_allclose(s(X).detach().numpy(), expected, rtol=1e-5, atol=1e-5)


def test_maps_and_token_lists_are_adapted_alike_at_every_position() -> None:
    X = latents()
    d = domain()
    adapted = apply(X, d.values(), SPECS)
    for spec in SPECS:
        s = d.sets[spec.name]
        rows = X[spec.name] if spec.layout == "bnc" else X[spec.name].permute(0, 2, 3, 1).reshape(3, -1, spec.channels)
        A, P, W = (t.detach().double().numpy() for t in (s.A, s.P, s.W))
        expected = torch.from_numpy(np.stack([paper(r.double().numpy(), A, P, W) for r in rows]))
        if spec.layout == "bchw":
            expected = expected.reshape(3, 2, 3, spec.channels).permute(0, 3, 1, 2)
        assert adapted[spec.name].shape == X[spec.name].shape
        torch.testing.assert_close(adapted[spec.name].double(), expected, rtol=1e-5, atol=1e-5)


def test_layers_without_prototypes_pass_through_untouched() -> None:
    X = latents()
    adapted = apply(X, domain(SPECS[:1]).values(), SPECS)
    assert not torch.equal(adapted["skip_image"], X["skip_image"])
    assert all(adapted[s.name] is X[s.name] for s in SPECS[1:])


def test_stop_gradient_leaves_the_prototypes_only_the_gradient_of_the_bias() -> None:
    """With keys held constant the gradient on P is softmax(X K^T / sqrt c)^T G, and nothing flows through the keys."""
    s, X, G = moved(), torch.randn(2, 5, 4), torch.randn(2, 5, 4)
    (s(X) * G).sum().backward()
    with torch.no_grad():
        K = s.P @ s.W
        weights = torch.softmax(X @ K.T / 2, -1)
        expected = torch.einsum("bnm,bnc->mc", weights, G)
    torch.testing.assert_close(s.P.grad, expected)
    assert s.W.grad is not None
    assert s.W.grad.abs().max() > 0


def test_without_stop_gradient_the_prototypes_also_learn_through_the_keys() -> None:
    grads = []
    for stop in (True, False):
        s, X = moved(stop_gradient=stop), torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(3))
        s(X).square().sum().backward()
        grads.append(s.P.grad)
    assert not torch.allclose(grads[0], grads[1])


def test_the_gradient_of_the_keys_reaches_the_projection_and_never_the_prototypes() -> None:
    P, W = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    keys(P, W).sum().backward()
    assert P.grad is None
    torch.testing.assert_close(W.grad, P.detach().sum(0)[:, None].expand(4, 4))


def test_a_fresh_domain_is_nearly_the_frozen_network_and_zero_prototypes_are_exactly_it() -> None:
    X = latents()
    d = DomainPrototypes(SPECS, 6, PrototypeConfig())
    for name, layer in apply(X, d.values(), SPECS).items():
        assert (layer - X[name]).abs().max() < 0.4  # |B| is at most the largest of some draws of N(0, 0.1²)
    with torch.no_grad():
        for s in d.sets.values():
            s.P.zero_()
    for name, layer in apply(X, d.values(), SPECS).items():
        assert torch.equal(layer, X[name])


def test_starts_have_the_stated_spread() -> None:
    random = torch.Generator().manual_seed(0)
    ours = PrototypeSet(256, 200, PrototypeConfig(), random)
    assert torch.equal(ours.A, torch.ones(256))
    assert float(ours.P.detach().std()) == pytest.approx(0.1, rel=0.02)
    assert float(ours.W.detach().std()) == pytest.approx(1 / 16, rel=0.02)
    theirs = PrototypeSet(256, 200, PrototypeConfig(init="official"), random)
    assert float(theirs.A.detach().std()) == pytest.approx(math.sqrt(2), rel=0.15)
    for tensor in (theirs.P, theirs.W):
        assert float(tensor.detach().std()) == pytest.approx(math.sqrt(2 / 256), rel=0.02)
    low = PrototypeSet(256, 10, PrototypeConfig(projection_rank=16), random)
    assert float((low.U @ low.V).detach().std()) == pytest.approx(1 / 16, rel=0.1)


def test_nothing_said_is_the_papers_indoor_setting_drawn_from_seed_0() -> None:
    config = PrototypeConfig()
    assert (config.image_size, config.depth_size) == (10, 5)
    a, b = DomainPrototypes(SPECS, 6, config), DomainPrototypes(SPECS, 6, config, seed=0)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def test_sets_of_one_prototype_are_gathered_beside_a_domain_that_leaves_the_layer_alone() -> None:
    X = latents(b=2)
    domains = [domain(seed=1, image_size=1, depth_size=1), domain(seed=3, base=True)]
    together = apply(X, gather(domains, torch.tensor([1, 0]), SPECS), SPECS)
    assert all(torch.equal(together[spec.name][0], X[spec.name][0]) for spec in SPECS)


def test_set_sizes_follow_the_modality() -> None:
    d = DomainPrototypes(SPECS, 6, PrototypeConfig(image_size=7, depth_size=2))
    assert [len(d.sets[s.name].P) for s in SPECS] == [7, 2, 7, 7]


@pytest.mark.parametrize(
    ("switch", "names"),
    [
        ({}, {"A", "P", "W"}),
        ({"use_global": False}, {"P", "W"}),
        ({"use_projection": False}, {"A", "P", "K"}),
        ({"projection_rank": 2}, {"A", "P", "U", "V"}),
    ],
)
def test_the_ablation_switches_change_what_is_learned(switch: dict[str, object], names: set[str]) -> None:
    s = moved(**switch)
    assert {n for n, _ in s.named_parameters()} == names
    X = torch.randn(1, 3, 4)
    s(X).sum().backward()
    assert all(p.grad is not None for p in s.parameters())
    if "A" not in names:
        assert torch.equal(s.A, torch.ones(4))


def test_a_low_rank_projection_is_never_larger_than_the_full_one() -> None:
    assert moved(projection_rank=99).U.shape == (4, 4)


def test_free_keys_are_used_as_they_are() -> None:
    s, X = moved(use_projection=False), torch.randn(1, 3, 4)
    expected = s.A * X + torch.softmax(X @ s.K.T / 2, -1) @ s.P
    torch.testing.assert_close(s(X), expected)


def test_the_same_seed_draws_the_same_domain_and_the_descriptor_does_not_disturb_it() -> None:
    a, b, c = (DomainPrototypes(SPECS, 6, PrototypeConfig(), seed=seed) for seed in (5, 5, 6))
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.sets["latent"].P, c.sets["latent"].P)


def test_a_base_domain_has_a_descriptor_and_nothing_else() -> None:
    d = DomainPrototypes(SPECS, 6, PrototypeConfig(), base=True)
    assert [n for n, _ in d.named_parameters()] == ["descriptor"]
    assert d.values() == {}


def test_a_domain_is_one_line() -> None:
    made = DomainPrototypes(SPECS, 8, PrototypeConfig())
    made.parts["head"] = torch.nn.Linear(2, 2)
    sizes = {f"sets.{name}": sum(p.numel() for p in part.parameters()) for name, part in made.sets.items()}
    layers = ", ".join(f"{layer} {size:,}" for layer, size in sizes.items())
    total = sum(sizes.values()) + 8 + 6
    assert repr(made) == f"DomainPrototypes({total:,} parameters: descriptor 8, parts.head 6, {layers})"


def test_padding_never_receives_weight() -> None:
    X, K, P = torch.randn(2, 5, 4), torch.randn(3, 4), torch.randn(3, 4)
    absent = torch.tensor([0.0, 0.0, 0.0, -math.inf])
    wide = bias(X, torch.cat([K, 100 * torch.ones(1, 4)]), torch.cat([P, torch.full((1, 4), 1e6)]), absent)
    torch.testing.assert_close(wide, bias(X, K, P))


def test_a_mixed_batch_gives_each_sample_what_its_own_domain_gives() -> None:
    """Domains of different set sizes, of different layers, and the base, in one pass."""
    X = latents(b=5)
    domains = [
        domain(seed=1, image_size=3, depth_size=2),
        domain(SPECS[2:], seed=2, image_size=6, depth_size=4),
        domain(seed=3, base=True),
    ]
    index = torch.tensor([2, 0, 1, 1, 0])
    together = apply(X, gather(domains, index, SPECS), SPECS)
    for n, k in enumerate(index.tolist()):
        alone = apply({name: x[n : n + 1] for name, x in X.items()}, domains[k].values(), SPECS)
        for spec in SPECS:
            torch.testing.assert_close(together[spec.name][n : n + 1], alone[spec.name], rtol=1e-5, atol=1e-5)
    unadapted = [spec.name for spec in SPECS[:2]]
    assert all(
        torch.equal(together[name][2:4], X[name][2:4]) for name in unadapted
    )  # the second domain leaves them alone
    assert all(
        torch.equal(together[spec.name][0], X[spec.name][0]) for spec in SPECS
    )  # the base domain leaves all alone


def test_gathering_keeps_the_gradient_of_every_chosen_domain() -> None:
    domains = [domain(seed=1), domain(seed=2)]
    out = apply(latents(b=2), gather(domains, torch.tensor([0, 0]), SPECS), SPECS)
    sum(layer.square().sum() for layer in out.values()).backward()  # type: ignore[union-attr]
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in domains[0].sets.parameters())
    assert all(p.grad is None or p.grad.abs().max() == 0 for p in domains[1].sets.parameters())


def test_values_are_what_forward_uses() -> None:
    s, X = moved(), torch.randn(2, 3, 4)
    values = s.values()
    assert isinstance(values, Values)
    assert torch.equal(adapt(X, *values), s(X))


@pytest.mark.parametrize(
    "wrong", [{"image_size": 0}, {"depth_size": -1}, {"projection_rank": 0}, {"image_size": 10**9}]
)
def test_impossible_sizes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="1 to 65536"):
        PrototypeConfig(**wrong)  # type: ignore[arg-type]
