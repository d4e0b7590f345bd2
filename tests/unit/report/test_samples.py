"""Frames kept for looking at come back whole, and a damaged file of them is one sentence."""

import contextlib
from pathlib import Path

import numpy as np
import pytest

from helpers.mutants import mutants
from protodepth.errors import DataError
from protodepth.report import run
from protodepth.report.samples import Sample, load_samples, save_samples
from protodepth.storage import files


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    flat = np.ones((4, 6), np.float32)
    sample = Sample(
        domain="room",
        name="room-0",
        image=np.zeros((4, 6, 3), np.uint8),
        sparse_depth=flat,
        ground_truth=2 * flat,
        intrinsics=np.eye(3),
        predictions={"EWC": 3 * flat},
        similarity={"room": 0.5},
    )
    save_samples(tmp_path / "samples.npz", [sample])
    return tmp_path / "samples.npz"


def test_samples_come_back(stored: Path) -> None:
    (sample,) = load_samples(stored)
    assert (sample.domain, sample.caps, sample.similarity) == ("room", (0.0, float("inf")), {"room": 0.5})
    np.testing.assert_array_equal(sample.predictions["EWC"], 3 * np.ones((4, 6), np.float32))


def test_damaged_samples_are_one_sentence(stored: Path, tmp_path: Path) -> None:
    """A checksum beside them is of whoever wrote both: a run's folder may come from a stranger."""
    refused = 0
    for bad in mutants(stored.read_bytes(), 1500, seed=1):
        stored.write_bytes(bad)
        with contextlib.suppress(DataError):
            load_samples(stored)
            continue
        refused += 1
    assert refused > 750


@pytest.mark.parametrize("listed", [5, None, ["samples.npz"], {"../secret": "0"}, {"/etc/hostname": "0"}])
def test_a_list_of_files_that_is_none_or_leads_out_is_no_traceback(tmp_path: Path, listed: object) -> None:
    (tmp_path / "secret").write_text("mine")
    files.write_sealed(tmp_path / "run" / "results.json", {"rows": [], "files": listed})
    with pytest.raises(DataError, match=r"leads out of|has no matrix"):
        run.read_run(tmp_path / "run")
