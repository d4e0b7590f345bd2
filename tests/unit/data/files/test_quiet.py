"""Lines of libraries are kept off the terminal, those of others are not."""

import os
import sys

import pytest

from protodepth.data.files.quiet import without_lines


def test_only_the_named_lines_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    with without_lines("a.exr: ", "Warning: "):
        os.write(2, b"a.exr: bad \xff\nby another thread\na.exr: worse\n")
        print("Warning: bad")
        print("an answer")
    print("after", file=sys.stderr)
    assert capfd.readouterr() == ("an answer\n", "by another thread\nafter\n")


def test_an_error_passes_and_both_streams_are_back(capfd: pytest.CaptureFixture[str]) -> None:
    def read() -> None:
        os.write(2, b"a.exr: bad\n")
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"), without_lines("a.exr: "):
        read()
    os.write(2, b"a.exr: said by us\n")
    print("out")
    assert capfd.readouterr() == ("out\n", "a.exr: said by us\n")


def test_a_closed_stderr_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(number: int) -> int:
        raise OSError(number)

    monkeypatch.setattr(os, "dup", closed)
    with without_lines("a.exr: "):
        pass
