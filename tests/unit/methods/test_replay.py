"""Replay: what is kept and how it is mixed."""

from itertools import islice

import pytest
import torch

from helpers.methods_toy import SquaredError, grey_frame, toy_model
from helpers.replay_buffers import domain_of
from protodepth.data.batches import collate, training_batches
from protodepth.errors import ConfigError
from protodepth.methods.replay import Replay, ReplayConfig, pack, unpack
from protodepth.storage import files
from protodepth.training.fit import Learner, train_step
from protodepth.training.schedule import Schedule
from protodepth.types import View


def with_two_buffers(config) -> Replay:
    method = Replay(toy_model(), SquaredError(), config)
    method.end_domain(domain_of("a", 20, 1.0))
    method.end_domain(domain_of("b", 20, 2.0))
    return method


def steps(method, count, batch_size, start=0):
    new = training_batches(domain_of("c", 30, 3.0).train, batch_size, seed=5, start=start, domain="c")
    return list(islice(method.batches(new, start=start, seed=5), count))


def test_every_step_has_the_whole_new_batch_and_as_many_old_frames_shared_among_the_buffers():
    for sources in steps(with_two_buffers(ReplayConfig(size=8)), 6, batch_size=4):
        assert [(s.domain, len(s)) for s in sources] == [("c", 4), ("a", 2), ("b", 2)]


def test_a_small_batch_still_takes_a_frame_from_each_buffer():
    for sources in steps(with_two_buffers(ReplayConfig(size=8)), 3, batch_size=1):
        assert [(s.domain, len(s)) for s in sources] == [("c", 1), ("a", 1), ("b", 1)]


def test_a_fixed_batch_is_half_old_and_the_buffers_take_turns():
    mixed = steps(with_two_buffers(ReplayConfig(size=8, fixed_batch=True)), 4, batch_size=3)
    assert [[(s.domain, len(s)) for s in sources] for sources in mixed] == [
        [("c", 2), ("a", 1)],
        [("c", 2), ("b", 1)],
        [("c", 2), ("a", 1)],
        [("c", 2), ("b", 1)],
    ]


def test_a_fixed_batch_of_one_frame_is_refused():
    with pytest.raises(ConfigError, match="at least 2"):
        steps(with_two_buffers(ReplayConfig(fixed_batch=True)), 1, batch_size=1)


def test_all_frames_of_a_buffer_are_replayed_equally_often():
    method = with_two_buffers(ReplayConfig(size=8))
    replayed = [float(x) for _, a, _ in steps(method, 8, batch_size=4) for x in a.image[:, 0, 0, 0]]
    kept = sorted(float(f.image[0, 0, 0]) for f in method.buffers["a"])
    assert sorted(replayed) == sorted(kept * 2)


@pytest.mark.parametrize("fixed", [False, True])
def test_a_resumed_run_mixes_the_same_frames(fixed):
    method = with_two_buffers(ReplayConfig(size=8, fixed_batch=fixed))
    whole, resumed = steps(method, 7, batch_size=4), steps(method, 4, batch_size=4, start=3)
    for expected, found in zip(whole[3:], resumed, strict=True):
        for a, b in zip(expected, found, strict=True):
            assert a.domain == b.domain
            assert torch.equal(a.image, b.image)


def test_the_first_domain_is_not_mixed_with_anything():
    method = Replay(toy_model(), SquaredError(), ReplayConfig())
    assert all(len(b) == 2 and b.domain == "c" for b in steps(method, 2, batch_size=2))


def test_the_gradient_of_a_step_is_the_sum_over_its_sources():
    method = Replay(toy_model(), SquaredError())
    sources = tuple(collate([grey_frame(x, z)]) for x, z in [(0.2, 4.0), (0.7, 1.0), (0.5, 8.0)])
    expected = torch.zeros(2)
    for source in sources:
        loss = method.loss(source, View.identity(source))["square"]
        expected += torch.stack(torch.autograd.grad(loss, list(method.trainable_parameters())))
    before = torch.stack([p.detach().clone() for p in method.trainable_parameters()])
    sgd = torch.optim.SGD([{"params": list(method.trainable_parameters()), "lr": 1.0, "initial_lr": 1.0}])
    terms = train_step(Learner(method, sgd, Schedule(clip=None, decay="constant"), 0), sources, 0)
    after = torch.stack([p.detach() for p in method.trainable_parameters()])
    assert torch.allclose(before - after, expected, rtol=1e-5)
    assert terms["square"] == pytest.approx(terms["total"])


def test_a_buffer_holds_copies_without_ground_truth_and_is_written_once():
    domain = domain_of("a", 6, 1.0)
    method = Replay(toy_model(), SquaredError(), ReplayConfig(size=4))
    method.end_domain(domain)
    kept = method.record()
    assert all(f.ground_truth is None for f in method.buffers["a"])
    for frame in domain.train:
        frame.image.fill(0.5)
    method.end_domain(domain)
    assert method.record() == kept
    assert kept["buffers"]["a"]["frames"] == 4


def test_a_restored_method_replays_its_buffers_in_the_order_of_the_domains(tmp_path):
    method = Replay(toy_model(), SquaredError(), ReplayConfig(size=2))
    for name in ("room", "atrium", "hall"):
        method.end_domain(domain_of(name, 4, 1.0))
    sha256 = files.write_tensors(tmp_path / "state", method.state())
    again = Replay(toy_model(), SquaredError(), ReplayConfig(size=2))
    again.load_state(files.read_tensors(tmp_path / "state", sha256))
    assert list(again.buffers) == ["room", "atrium", "hall"]
    assert again.record() == method.record()


def test_the_choice_depends_on_the_seed_and_the_hash_on_the_content():
    def record(seed, depth=1.0):
        method = Replay(toy_model(), SquaredError(), ReplayConfig(size=4, seed=seed))
        method.end_domain(domain_of("a", 20, depth))
        return method.record()["buffers"]["a"]["sha256"]

    assert record(0) == record(0)
    assert len({record(0), record(1), record(0, depth=2.0)}) == 3


def test_a_buffer_never_has_a_frame_twice_and_keeps_all_of_a_small_domain():
    method = with_two_buffers(ReplayConfig(size=12))
    assert len({f.name for f in method.buffers["a"]}) == 12
    method.end_domain(domain_of("small", 5, 1.0))
    assert len(method.buffers["small"]) == 5


def test_extra_memory_is_the_frames_of_the_buffers():
    method = with_two_buffers(ReplayConfig(size=8))
    frame = 3 * (2 * 2 * 3 * 4) + 2 * 2 * 4 + 9 * 8 + 2 * 16 * 8  # three pictures, depth, K, two poses
    names = sum(len(f.name) for frames in method.buffers.values() for f in frames)
    assert method.extra_bytes() == 16 * frame + names
    assert method.extra_parameters() == 0


def test_packing_and_unpacking_gives_the_same_training_batch():
    frame = grey_frame(0.3, 2.0, "ä-17")
    again = unpack(pack(frame))
    a, b = collate([frame]), collate([again])
    assert again.name == "ä-17"
    assert torch.equal(a.image, b.image)
    assert torch.equal(a.sparse_depth, b.sparse_depth)
    assert torch.equal(a.intrinsics, b.intrinsics)
    assert len(b.neighbours) == len(b.poses) == 2
    assert all(torch.equal(p, q) for p, q in zip((*a.neighbours, *a.poses), (*b.neighbours, *b.poses), strict=True))


def test_an_empty_buffer_is_refused():
    with pytest.raises(ConfigError, match="size=0"):
        ReplayConfig(size=0)
