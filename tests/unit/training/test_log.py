"""The log of a training as lines of JSON: one a record, none twice after a run goes on, none half written."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protodepth.training.log import JsonLines, last_record


def test_the_log_is_one_json_line_a_record(tmp_path: Path) -> None:
    log = JsonLines(tmp_path / "a" / "log.jsonl", method="x")
    log(1, {"total": 0.5})
    log(2, {"total": 0.25})
    lines: Iterator[dict[str, Any]] = (
        json.loads(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()
    )
    assert list(lines) == [{"method": "x", "step": 1, "total": 0.5}, {"method": "x", "step": 2, "total": 0.25}]


def test_a_run_that_goes_on_repeats_no_line_and_cuts_off_a_half_written_one(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    for n in (1, 2):
        JsonLines(file)(n, {"method": "x", "domain": "room"})
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"step": 3, "met')  # killed while it wrote
    log = JsonLines(file)
    assert file.read_bytes() == whole
    for n in (2, 3):  # from the state after the first step: the second is in the log already
        log(n, {"method": "x", "domain": "room"})
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [1, 2, 3]


def test_a_damaged_line_is_no_record_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    damaged = b"[]\n5\nnull\n\xff\n" + b"[" * 100_000 + b'\n{"step": [1]}\n{"step": {}, "method": []}\n'
    file.write_bytes(damaged + b'{"method": "x", "domain": "room", "step": 1}\n')
    log = JsonLines(file)
    for n in (1, 2):
        log(n, {"method": "x", "domain": "room"})
    lines = file.read_bytes().removeprefix(damaged).splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]


@pytest.mark.parametrize(
    "damaged", [None, b"", b"\xff", b"[]", b"{}", b'{"step": 1}', b"[" * 100_000, b'{"step": 2, "m']
)
def test_what_a_damaged_log_says_of_the_end_is_left_out_with_a_word(
    tmp_path: Path, damaged: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "curve.jsonl"
    for n in (1, 2):
        JsonLines(file)(n, {"mae": 10 * n, "rate": 1})
    assert last_record(file, ("step", "mae")) == {"step": 2, "mae": 20}
    assert not caplog.text
    if damaged is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes() + damaged if damaged else b"")
    assert last_record(file, ("step", "mae")) == {}
    assert "curve.jsonl has no whole last line" in caplog.text
