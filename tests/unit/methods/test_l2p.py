"""L2P: which prompts a frame gets, what learns, and which networks are refused."""

import numpy as np
import pytest
import torch

from helpers.methods_toy import toy_domain
from protodepth.backbones.lite import Lite
from protodepth.backbones.uformer import Uformer
from protodepth.errors import ConfigError
from protodepth.losses import Objective
from protodepth.methods.base import build
from protodepth.methods.l2p import L2P, L2PConfig
from protodepth.model import ProtoDepth
from protodepth.types import Batch, View

WIDTH = 8


def frames(count=3, seed=0) -> Batch:
    random = torch.Generator().manual_seed(seed)
    image = torch.rand(count, 3, 28, 42, generator=random) * torch.rand(count, 3, 1, 1, generator=random)
    depth = 3 * torch.rand(count, 1, 28, 42, generator=random) + 0.5
    K = torch.tensor([[40.0, 0, 20], [0, 40.0, 14], [0, 0, 1]]).expand(count, 3, 3)
    eye = torch.eye(4).expand(count, 4, 4)
    sparse = depth * (torch.rand(depth.shape, generator=random) < 0.1)
    return Batch(image=image, sparse_depth=sparse, intrinsics=K, neighbours=(image, image), poses=(eye, eye))


def make(*domains, **settings) -> L2P:
    torch.manual_seed(0)
    method = build("l2p", ProtoDepth(Uformer(width=WIDTH, heads=2)), Objective(), L2PConfig(**settings))
    for name in domains:
        method.add(name)
        method.active = name
    return method


def given_prompts(method, monkeypatch):
    """What encode receives: None for the query, then the prompts."""
    seen, encode = [], method.backbone.encode

    def spy(batch, prompts=None):
        seen.append(prompts)
        return encode(batch, prompts=prompts)

    monkeypatch.setattr(method.backbone, "encode", spy)
    return seen


def nearest(query, keys, count):
    q, k = (a.detach().double().numpy() for a in (query, keys))
    cosines = (q @ k.T) / np.linalg.norm(q, axis=1)[:, None] / np.linalg.norm(k, axis=1)
    return np.argsort(-cosines, axis=1)[:, :count], -np.sort(-cosines, axis=1)[:, :count]


def test_each_frame_gets_the_prompts_of_its_five_nearest_keys_of_all_domains(monkeypatch):
    method, batch = make("a", "b"), frames()
    keys = torch.cat([method.pools["a"].keys, method.pools["b"].keys])
    prompts = torch.cat([method.pools["a"].prompts, method.pools["b"].prompts])
    index, _ = nearest(method.query(batch), keys, 5)
    assert {"a" if i < 20 else "b" for i in index.flatten()} == {"a", "b"}  # both compete
    seen = given_prompts(method, monkeypatch)
    method.predict(batch, None)
    expected = torch.stack([prompts[row].flatten(0, 1) for row in index])
    assert expected.shape == (3, 25, 2 * WIDTH)
    assert torch.equal(seen[-1], expected)


def test_while_learning_only_the_new_domain_competes(monkeypatch):
    method, batch = make("a", "b"), frames()
    index, cosines = nearest(method.query(batch), method.pools["b"].keys, 5)
    seen = given_prompts(method, monkeypatch)
    terms = method.loss(batch, View.identity(batch))
    assert torch.equal(seen[-1], torch.stack([method.pools["b"].prompts[row].flatten(0, 1) for row in index]))
    assert float(terms["keys"].detach()) == pytest.approx(0.5 * (1 - cosines).sum(1).mean(), rel=1e-5)


def test_only_chosen_prompts_and_keys_of_the_new_domain_have_gradients():
    method, batch = make("a", "b"), frames()
    index, _ = nearest(method.query(batch), method.pools["b"].keys, 5)
    torch.stack(list(method.loss(batch, View.identity(batch)).values())).sum().backward()
    moved = method.pools["b"].prompts.grad.flatten(1).norm(dim=1) > 0
    assert set(torch.nonzero(moved).flatten().tolist()) == set(index.flatten().tolist())
    pulled = method.pools["b"].keys.grad.norm(dim=1) > 0
    assert torch.equal(moved, pulled)
    assert method.pools["a"].prompts.grad is None
    assert all(p.grad is None for p in method.backbone.parameters())
    assert {id(p) for p in method.trainable_parameters()} == {id(p) for p in method.pools["b"].parameters()}


def test_a_mixed_batch_gives_what_the_single_frames_give():
    method, batch = make("a", "b"), frames()
    together = method.predict(batch, None).depth
    alone = torch.cat([method.predict(single, None).depth for single in batch.singles()])
    assert torch.allclose(together, alone, rtol=1e-4)


def test_prompts_matter_and_the_name_of_a_domain_does_not():
    method, batch = make("a"), frames()
    plain = method.model.predict_batch(batch, "base").depth
    assert not torch.allclose(method.predict(batch, None).depth, plain)
    assert torch.equal(method.predict(batch, None).depth, method.predict(batch, "a").depth)
    assert torch.equal(make().predict(batch, None).depth, plain)  # nothing learned: the network as it was


@pytest.mark.parametrize(("first", "expected"), [(True, ["a", "b", "c"]), (False, ["b", "c"])])
def test_the_first_domain_gets_prompts_before_it_is_measured_unless_switched_off(first, expected):
    method, fitted = make(first=first), []
    a, b, c = (toy_domain(name, [(0.5, 1.0)]) for name in "abc")

    def fit(m, d, /):
        fitted.append((m.active, d.name))

    method.learned_before(a, fit)
    method.end_domain(a)
    assert list(method.pools) == expected[:-2]
    for domain in (b, c):
        method.begin_domain(domain, fit)
        method.end_domain(domain)
    assert list(method.pools) == expected
    assert fitted == ([("a", "a")] if first else [])
    assert method.active == "c"


def test_extra_parameters_are_20_prompts_of_5_vectors_and_their_keys():
    method = make("a", "b")
    assert method.extra_parameters() == 2 * 20 * (5 * 2 * WIDTH + 2 * WIDTH)
    assert method.extra_bytes() == 4 * method.extra_parameters()


def test_domains_start_from_different_prompts_within_one():
    method = make("a", "b")
    assert not torch.equal(method.pools["a"].prompts, method.pools["b"].prompts)
    assert float(method.pools["a"].prompts.detach().abs().max()) <= 1.0
    assert float(method.pools["a"].prompts.detach().min()) < -0.9


def test_a_network_without_a_place_for_prompts_is_refused_before_anything_runs():
    with pytest.raises(ConfigError, match=r"lite has no place for them: use the backbone uformer"):
        build("l2p", ProtoDepth(Lite()), Objective())


def test_choosing_more_prompts_than_there_are_is_refused():
    with pytest.raises(ConfigError, match="chosen=30"):
        L2PConfig(chosen=30)
