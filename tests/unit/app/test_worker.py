"""One question cannot take the page away from the next visitor."""

import os
import time

import pytest

from conftest import tiny_model
from helpers.slow_answers import by_domain
from protodepth.app import worker
from protodepth.app.answers import Limits, Question
from protodepth.errors import ConfigError, DataError
from protodepth.storage import space


def test_a_question_that_takes_too_long_or_dies_is_ended_and_the_next_one_is_answered():
    desk = worker.Worker(tiny_model(), Limits(seconds=1.0), by_domain)
    try:
        first = desk.ask(Question())
        assert 10_000 < first["pixels"] <= 16_000_000
        old, begun = desk._process.pid, time.monotonic()
        with pytest.raises(DataError, match="took longer than 1 s"):
            desk.ask(Question(domain="sleep"))
        assert time.monotonic() - begun < 60
        with pytest.raises(ProcessLookupError):
            os.kill(old, 0)  # it does not go on in the background
        assert desk.ask(Question())["pixels"] > 0
        with pytest.raises(DataError, match="ended by the system"):
            desk.ask(Question(domain="die"))
        with pytest.raises(DataError, match="not enough memory"):
            desk.ask(Question(domain="memory"))
        pid = desk._process.pid
    finally:
        desk.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_network_that_cannot_be_sent_to_another_process_is_refused():
    model = tiny_model()
    model.backbone.trick = lambda: None
    with pytest.raises(ConfigError, match="process of its own"):
        worker.Worker(model, Limits(), by_domain)


def test_fewer_pixels_are_allowed_where_the_memory_is_small(monkeypatch: pytest.MonkeyPatch):
    model = tiny_model()
    each = worker.bytes_of_a_pixel(model)
    assert space.LEAST <= each < 1e5
    monkeypatch.setattr(worker, "free_memory", lambda: 2e6 * space.COMPLETED)
    monkeypatch.setattr(worker, "bytes_of_a_pixel", lambda m: space.COMPLETED)
    assert worker.pixels_in_memory(model) == 1_000_000
