"""The benchmark of spoiled recordings (table in docs/own_data.md) spoils as it says and tells what it hears."""

from pathlib import Path

import numpy as np
import pytest

from helpers.data_scene import sway
from helpers.documents import ROOT, load_benchmark
from helpers.recordings import write_recording
from protodepth.data.files import images

BENCHMARK = load_benchmark("bad_recordings")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honest")
    return write_recording(folder, sway(), dense=True, toml='depth_unit = "mm"\n')


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("as it is", "-"),
        ("mirrored", "alignment"),
        ("tum, not declared", "read as tum"),
        ("65535 for nothing", "65535"),
    ],
)
def test_a_way_of_spoiling_is_answered(source: Path, tmp_path: Path, way: str, expected: str) -> None:
    assert BENCHMARK.answer(BENCHMARK.spoiled(str(source), tmp_path / "bad", way)) == expected


def test_depth_and_poses_are_those_of_other_frames_where_they_should_be(source: Path, tmp_path: Path) -> None:
    bad = BENCHMARK.spoiled(str(source), tmp_path / "late", f"depth {BENCHMARK.LATE} frames late")
    depths = [images.read_depth(folder / "depth" / name, "mm") for folder, name in ((bad, "9.png"), (source, "4.png"))]
    np.testing.assert_array_equal(*depths)
    lag = BENCHMARK.spoiled(str(source), tmp_path / "lag", f"poses {BENCHMARK.LAG} frames late")
    np.testing.assert_allclose(np.loadtxt(lag / "poses.txt")[9], np.loadtxt(source / "poses.txt")[6])


def test_the_document_has_a_column_for_every_way() -> None:
    text = (ROOT / "docs" / "own_data.md").read_text()
    assert f"| recording | {' | '.join(BENCHMARK.WAYS)} |" in text
