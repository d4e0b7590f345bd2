"""Bars, plain lines and counts of steps."""

import threading
import time

import pytest

from protodepth.progress import Reporter, StepCount, working


def test_elsewhere_than_on_a_terminal_progress_is_plain_lines_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [100.0]
    monkeypatch.setattr("protodepth.progress.time.monotonic", lambda: clock[0])
    with Reporter().bar("learning", 10) as advance:
        for n in range(1, 11):
            clock[0] += 4
            advance(n)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[-1] == "learning: 10/10 in 40 s"
    assert "learning: 4/10, 24 s left" in lines
    assert "\x1b" not in err


def test_what_an_earlier_run_had_done_is_counted_but_took_no_time_of_this_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [100.0]
    monkeypatch.setattr("protodepth.progress.time.monotonic", lambda: clock[0])
    with Reporter().bar("learning", 100) as advance:
        count = StepCount(advance)
        for step in (*range(31, 51), *range(1, 11)):  # resumed at 30 of 50; then the second of two trainings
            clock[0] += 1
            count(step)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["learning: 31/100, 69 s left", "learning: 41/100, 59 s left", "learning: 51/100, 49 s left"]


def test_steps_of_trainings_one_after_another_are_one_count() -> None:
    seen: list[int] = []
    count = StepCount(seen.append)
    for step in (8, 9, 10, 1, 2, 1):
        count(step)
    assert seen == [8, 9, 10, 11, 12, 13]


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter(quiet=True)
    reporter.line("hello")
    with reporter.bar("x", 2) as advance:
        advance(2)
    assert capsys.readouterr() == ("", "")


def test_a_long_step_speaks_and_a_short_one_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    with working("thinking", after=0.05, every=0.05):
        time.sleep(0.2)
    err = capsys.readouterr().err
    assert err.startswith("thinking: 0 s\n")
    assert err.endswith("thinking: done in 0 s\n")
    with working("blinking", after=30):
        pass
    assert capsys.readouterr().err == ""


def test_a_step_that_fails_ends_its_progress() -> None:
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), working("failing", after=0.01):
        raise ZeroDivisionError
    assert threading.active_count() == before
