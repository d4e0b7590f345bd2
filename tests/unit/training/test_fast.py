"""Latents that are kept while a domain is learned: the same steps, fewer passes of the encoder."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from conftest import tiny_model
from protodepth import config
from protodepth.data.augment import AugmentConfig
from protodepth.data.frame import Domain, Subset
from protodepth.errors import ConfigError
from protodepth.losses import Objective, ObjectiveConfig
from protodepth.methods.base import Method, build
from protodepth.training import fast
from protodepth.training.fast import KeptFrames, half_if_fast, kept_features
from protodepth.training.fit import fit
from protodepth.training.schedule import Schedule

SCHEDULE = Schedule(steps=6, batch_size=2, rate=1e-3)


class Passes:
    """Counts the frames that an encoder is given."""

    def __init__(self, method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
        self.frames, encode = 0, method.backbone.encode

        def counted(batch):
            self.frames += len(batch)
            self.seen()
            return encode(batch)

        monkeypatch.setattr(method.backbone, "encode", counted)

    def seen(self) -> None:
        """For tests that look at more than the count."""


def learned(name: str, schedule: Schedule, room: Domain, monkeypatch: pytest.MonkeyPatch) -> tuple[Method, int]:
    torch.manual_seed(0)
    model = tiny_model()
    objective = Objective(ObjectiveConfig(reduction="relative"), max_depth=8.0)
    method = build(name, model, objective, model.config if name == "protodepth" else None)
    method.begin_domain(room, lambda m, d: None)
    passes = Passes(method, monkeypatch)
    fit(method, room, schedule, seed=0)
    return method, passes.frames


def test_each_frame_is_encoded_once_and_the_weights_become_the_same(room: Domain, monkeypatch) -> None:
    few = replace(room, train=_first(room, 3))
    plain, passes = learned("protodepth", SCHEDULE, few, monkeypatch)
    kept, fewer = learned("protodepth", replace(SCHEDULE, cache=1.0), few, monkeypatch)
    assert passes == 12
    assert fewer == 3
    for a, b in zip(plain.trainable_parameters(), kept.trainable_parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def _first(room: Domain, count: int) -> Subset:
    return Subset(room.train, tuple(range(count)))


def test_views_that_repeat_are_encoded_once_each(room: Domain, monkeypatch) -> None:
    jitter = AugmentConfig(brightness=(0.8, 1.2))
    schedule = replace(SCHEDULE, steps=8, augment=jitter, views=1, cache=1.0)
    _, frames = learned("protodepth", schedule, replace(room, train=_first(room, 2)), monkeypatch)
    assert frames <= 4  # two frames, each in one of two rows


def test_a_method_that_changes_the_network_encodes_every_time(room: Domain, monkeypatch) -> None:
    _, frames = learned("finetune", replace(SCHEDULE, cache=1.0), replace(room, train=_first(room, 3)), monkeypatch)
    assert frames == 12


def test_the_cache_goes_when_learning_is_interrupted() -> None:
    method = build("protodepth", tiny_model(), Objective(ObjectiveConfig()))

    def interrupted() -> None:
        with kept_features(method, 1.0):
            assert "encode" in vars(method.backbone)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert "encode" not in vars(method.backbone)


def test_a_cache_that_would_never_find_anything_is_refused() -> None:
    with pytest.raises(ConfigError, match="changes every input"):
        Schedule(cache=1.0, augment=AugmentConfig.published())
    with pytest.raises(ConfigError, match="GiB"):
        Schedule(cache=0.0)
    with pytest.raises(ConfigError, match="views"):
        Schedule(views=0)
    assert not {"cache", "views"} & config.to_dict(Schedule()).keys()


def test_frames_are_read_once_as_far_as_the_memory_goes(room: Domain) -> None:
    reads: list[int] = []

    class Reading:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int):
            reads.append(index)
            return room.train[index]

    frame = room.train[0]
    size = sum(a.nbytes for a in (frame.image, frame.sparse_depth, *frame.neighbours))
    kept = KeptFrames(Reading(), most=2 * size)
    for _ in range(2):
        assert [kept[n].name for n in range(3)] == [room.train[n].name for n in range(3)]
    assert reads == [0, 1, 2, 2]
    assert len(kept) == 3


def test_half_precision_is_for_processors_that_multiply_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for supported, expected in ((True, "bfloat16"), (False, None)):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda s=supported: s)
        assert half_if_fast(torch.device("cpu")) == expected
        assert half_if_fast(torch.device("meta")) is None


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_small_batches_run_on_one_thread_and_the_number_is_put_back() -> None:
    with fast.threads_for(fast.FEW_PIXELS - 1) as threads:
        assert threads == torch.get_num_threads() == 1
    with fast.threads_for(fast.FEW_PIXELS) as threads:
        assert threads == torch.get_num_threads() == 2
    with pytest.raises(ValueError, match="stop"), fast.threads_for(1):
        raise ValueError("stop")
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("limit", "threads"), [(fast.FEW_PIXELS, 1), (1, 2)])
def test_a_training_step_counts_the_pixels_of_its_batch(
    room: Domain, monkeypatch: pytest.MonkeyPatch, limit: int, threads: int
) -> None:
    """Beside a busy program two threads at 64x96 took four times the CPU time: see docs/performance.md."""
    counts = []
    monkeypatch.setattr(fast, "FEW_PIXELS", limit)
    monkeypatch.setattr(Passes, "seen", lambda self: counts.append(torch.get_num_threads()))
    learned("protodepth", replace(SCHEDULE, steps=2), room, monkeypatch)
    assert counts == [threads] * 2
